//! The loop of one pod: facts in, actions and status out (style §2.6).
//!
//! Never: an `if` about Kubernetes. What happens is decided in `lifecycle`;
//! what it means for the runtime and the API is in `act` and `publish`.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ambient::{Mono, Now};
use client::About;
use futures::FutureExt as _;
use lifecycle::node::NodeFact;
use lifecycle::{
    Action, Cause, Fact, Machine, Note, Observation, Outcome, Plan, Planned, PodSpec, PodState, Rules, Severity,
    is_static,
};
use objects::api::core::v1::Pod;
use objects::reasons::event;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::act::{Handler, Scene, carry_out};
use crate::allocations;
use crate::container;
use crate::ctx::Ctx;
use crate::mailbox::{Mailbox, News, is_older};
use crate::observe::{LastWords, PodRef, observe};
use crate::publish::{Desk, ShownBy};

/// What a worker shares with who started it.
#[derive(Clone, Default)]
pub(crate) struct Lines {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Actions under way; they outlive a worker that panics.
    pub(crate) actions: TaskTracker,
    /// The last facts, for whoever must explain a panic.
    pub(crate) journal: Arc<Mutex<VecDeque<Fact>>>,
}

const JOURNAL_MAX: usize = 64;
/// Pause before looking again at a runtime that could not be read.
const LOOK_RETRY: Duration = Duration::from_secs(1);
/// Timers do not know less.
pub(crate) const TICK: Duration = Duration::from_millis(1);

pub(crate) struct Worker {
    ctx: Arc<Ctx>,
    lines: Lines,
    who: PodRef,
    pod: Arc<Pod>,
    /// LC-356: what shows it in the API, if it is static.
    mirror: Option<Arc<Pod>>,
    state: PodState,
    seen: Observation,
    /// The runtime could not be read the last time.
    is_blind: bool,
    is_stop_told: bool,
    is_clear_told: bool,
    words: LastWords,
    desk: Desk,
    /// Cancelled when nothing of the pod is to start any more.
    stopping: CancellationToken,
    /// Cancelled with the worker.
    dropped: CancellationToken,
    _cancels: DropGuard,
}

impl Worker {
    pub(crate) fn new(
        ctx: Arc<Ctx>,
        pod: Arc<Pod>,
        spec: PodSpec,
        lines: Lines,
        connections: watch::Receiver<u64>,
    ) -> Self {
        let who = PodRef { namespace: spec.namespace.clone(), name: spec.name.clone(), uid: spec.uid.clone() };
        let shown_by = if is_static(&pod) { ShownBy::Mirror } else { ShownBy::Itself };
        let desk = Desk::open(ctx.clone(), who.clone(), shown_by, lines.mailbox.clone(), connections);
        let rules = Rules {
            host_ips: ctx.config.host_ips.clone(),
            machine: Machine { memory_bytes: ctx.config.capacity.memory_bytes, ..ctx.config.rules.machine.clone() },
            ..ctx.config.rules.clone()
        };
        let state = PodState::new(spec, rules, ctx.clock.now()).awaiting_admission();
        lines.mailbox.look();
        let (seen, words) = (Observation::default(), LastWords::default());
        let (stopping, dropped) = (CancellationToken::new(), CancellationToken::new());
        let _cancels = dropped.clone().drop_guard();
        Self {
            ctx,
            lines,
            who,
            pod,
            mirror: None,
            state,
            seen,
            is_blind: false,
            is_stop_told: false,
            is_clear_told: false,
            words,
            desk,
            stopping,
            dropped,
            _cancels,
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            if let Some(look_again) = self.receive().await {
                self.sleep_until(Some(look_again)).await;
                continue;
            }
            let now = self.ctx.clock.now();
            let plan = self.begin_actions(now);
            let insist_at = self.shown().and_then(|shown| self.desk.offer(&self.state.render(now), &shown, now));
            self.tell(now);
            self.tell_stopped();
            if self.state.is_finished() {
                return;
            }
            if self.sleep_until([plan.wake_at, insist_at].into_iter().flatten().min()).await == Woken::ByTime {
                // What time alone changes is told like anything else: nothing
                // new was seen, so the last sight is absorbed once more.
                self.absorb(Fact::Observed(self.seen.clone()));
            }
        }
    }

    /// Absorbs all that arrived. Nothing may be decided while the runtime cannot
    /// be read; then the answer says when to look again.
    async fn receive(&mut self) -> Option<Mono> {
        let News { pod, mirror, is_gone, must_look, verdicts, ended } = self.lines.mailbox.take();
        if let Some(pod) = pod.filter(|pod| !is_older(pod, &self.pod)) {
            self.on_pod(pod);
        }
        if let Some(mirror) = mirror {
            self.on_mirror(mirror);
        }
        if is_gone {
            self.absorb(Fact::PodGone);
        }
        for verdict in verdicts {
            // TC-299: on disk before anything comes of it.
            if let Fact::Admitted(given) | Fact::Resized(given) = &verdict {
                allocations::keep(&self.ctx, &self.who.uid, given).await;
            }
            self.absorb(verdict);
        }
        if must_look {
            match observe(&self.ctx, &self.who, &mut self.words).await {
                Ok(seen) => {
                    self.is_blind = false;
                    self.seen = seen.clone();
                    self.absorb(Fact::Observed(seen));
                }
                Err(error) => {
                    tracing::warn!(pod = self.who.name, uid = self.who.uid, %error, "the runtime cannot be read");
                    self.tell_blind(&error.to_string());
                    self.lines.mailbox.give_back(ended);
                    return Some(self.ctx.clock.now().mono + LOOK_RETRY);
                }
            }
        }
        for (action, outcome) in ended {
            self.absorb(Fact::Ended(action, outcome));
        }
        None
    }

    /// Where the API shows the pod; a static pod may have no place there yet.
    fn shown(&self) -> Option<Arc<Pod>> {
        if is_static(&self.pod) { self.mirror.clone() } else { Some(self.pod.clone()) }
    }

    fn on_mirror(&mut self, mirror: Arc<Pod>) {
        if self.mirror.as_ref().is_none_or(|known| known.metadata.uid != mirror.metadata.uid) {
            self.desk.forget();
        }
        self.mirror = Some(mirror);
    }

    /// LC-305: once for each time that nothing can be seen.
    fn tell_blind(&mut self, error: &str) {
        if !std::mem::replace(&mut self.is_blind, true) {
            let (message, now) = (format!("error determining status: {error}"), self.ctx.clock.now());
            self.ctx.recorder.record(self.about(None), client::Severity::Warning, event::FAILED_SYNC, &message, now);
        }
    }

    fn on_pod(&mut self, pod: Arc<Pod>) {
        match PodSpec::parse(&pod) {
            Ok(spec) => {
                self.pod = pod;
                self.absorb(Fact::PodChanged(Box::new(spec)));
            }
            Err(error) => tracing::warn!(pod = self.who.name, uid = self.who.uid, ?error, "not a pod we understand"),
        }
    }

    fn absorb(&mut self, fact: Fact) {
        let mut journal = self.lines.journal.lock().expect("a journal is never poisoned: nothing panics holding it");
        if journal.len() == JOURNAL_MAX {
            journal.pop_front();
        }
        journal.push_back(fact.clone());
        drop(journal);
        self.state.absorb(fact, self.ctx.clock.now());
        if self.state.is_stopping() {
            self.stopping.cancel();
        }
    }

    /// Every action becomes a task of its own that ends in exactly one `Ended`.
    fn begin_actions(&mut self, now: Now) -> Plan {
        let plan = self.state.plan(now);
        for planned in &plan.actions {
            let action = planned.action.clone();
            self.announce(planned);
            self.absorb(Fact::Begun(action.clone()));
            let scene = self.scene(&action);
            let mailbox = self.lines.mailbox.clone();
            let carried_out = async move {
                let outcome = AssertUnwindSafe(carry_out(&scene, &action)).catch_unwind().await;
                let outcome = outcome.unwrap_or_else(|_| Outcome::Failed("the agent failed at it".to_owned()));
                tracing::debug!(pod = scene.who.name, ?action, ?outcome, "ended");
                mailbox.ended(action, outcome);
            };
            match planned.action {
                // Nobody but this worker wants to know how they end, and hooks may take for ever.
                Action::RunProbe { .. } | Action::RunHook { .. } => {
                    let dropped = self.dropped.clone();
                    self.lines.actions.spawn(async move { dropped.run_until_cancelled(carried_out).await });
                }
                _ => drop(self.lines.actions.spawn(carried_out)),
            }
        }
        plan
    }

    fn scene(&self, action: &Action) -> Scene {
        Scene {
            ctx: self.ctx.clone(),
            pod: self.pod.clone(),
            who: self.who.clone(),
            seen: self.seen.clone(),
            cgroups: self.state.cgroups(),
            handler: Handler::of(action, self.state.spec()),
            stopping: self.stopping.clone(),
        }
    }

    fn announce(&self, planned: &Planned) {
        let (pod, uid, action) = (&self.who.name, &self.who.uid, &planned.action);
        let Cause { rule, because } = &planned.cause;
        match action {
            // Every few seconds for the life of a container.
            Action::RunProbe { .. } => tracing::debug!(pod, uid, ?action, rule, because),
            _ => tracing::info!(pod, uid, ?action, rule, because),
        }
    }

    /// Posts what is worth telling (LC-303).
    fn tell(&mut self, now: Now) {
        for note in self.state.take_notes() {
            match note {
                Note::Event { severity, reason, message, container, annotations } => {
                    let severity = match severity {
                        Severity::Normal => client::Severity::Normal,
                        Severity::Warning => client::Severity::Warning,
                    };
                    let about = About { annotations, ..self.about(container.as_deref()) };
                    self.ctx.recorder.record(about, severity, &reason, &message, now);
                }
                Note::Transition { what, cause } => {
                    tracing::info!(
                        pod = self.who.name,
                        uid = self.who.uid,
                        what,
                        rule = cause.rule,
                        because = cause.because
                    );
                }
            }
        }
    }

    /// Once: the room is free for others.
    fn tell_stopped(&mut self) {
        if self.state.is_stopped() && !std::mem::replace(&mut self.is_stop_told, true) {
            self.ctx.node.tell(NodeFact::PodStopped(self.who.uid.clone()));
        }
        if self.state.is_cleared() && !std::mem::replace(&mut self.is_clear_told, true) {
            self.ctx.node.tell(NodeFact::PodCleared(self.who.uid.clone()));
        }
    }

    fn about(&self, container: Option<&str>) -> About {
        let pod = About::object(self.pod.as_ref());
        match container.and_then(|name| container::find(&self.pod, name)) {
            Some((list, found)) => pod.container(list.field(), &found.name),
            None => pod,
        }
    }

    async fn sleep_until(&self, wake_at: Option<Mono>) -> Woken {
        let arrival = self.lines.mailbox.arrival();
        let Some(wake_at) = wake_at else {
            arrival.await;
            return Woken::ByNews;
        };
        let rest = wake_at.since(self.ctx.clock.now().mono).max(TICK);
        tokio::select! {
            biased;
            () = arrival => Woken::ByNews,
            () = tokio::time::sleep(rest) => Woken::ByTime,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    ByNews,
    ByTime,
}

/// Used by the panic report.
pub(crate) fn last_facts(lines: &Lines) -> Vec<Fact> {
    lines.journal.lock().map(|journal| journal.iter().cloned().collect()).unwrap_or_default()
}
