//! How one instance is stopped: preStop hook, its turn, stop signal, KILL.
//!
//! Decides: when each of them comes, within which budget (LC-285, TC-051).
//! Never: decides that an instance must stop (`start.rs`, `restart_all.rs` and
//! `termination.rs` do).

use std::time::Duration;

use ambient::{Mono, Now};

use crate::action::{Action, Cause};
use crate::fact::{Instance, Outcome};
use crate::limits::KILL_WINDOW_MIN;
use crate::plan::Draft;
use crate::spec::{HookKind, Role};
use crate::start::{Course, Unwanted};
use crate::state::{PodState, Stage};

/// A kill that was begun, with its hook or with its signal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kill {
    since: Mono,
    grace: Duration,
    hook: Hook,
    signal: Option<Signal>,
    pub(crate) has_ended: bool,
    /// The container starts again whatever its exit code (LC-137, LC-138).
    pub(crate) restarts: bool,
    /// LC-176: when the instance before it ended.
    pub(crate) previous_exit: Option<Mono>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hook {
    NotRun,
    Running,
    Over(Mono),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signal {
    sent_at: Mono,
    kill_at: Mono,
    /// When the grace was to end as it was sent.
    deadline: Mono,
}

/// What an instance that must stop is given (LC-286).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    /// When the stopping began.
    pub(crate) since: Mono,
    pub(crate) grace: Duration,
    /// TC-058: not if no grace at all was asked for.
    pub(crate) runs_hook: bool,
    /// When the grace is over.
    pub(crate) deadline: Mono,
    /// TC-093: a forced deletion in the middle still leaves two seconds.
    pub(crate) kill_not_before: Mono,
    /// Its turn has not come (LC-294).
    pub(crate) must_wait: bool,
}

impl Terms {
    pub(crate) fn new(grace: Duration, since: Mono) -> Self {
        let deadline = since + grace;
        Self { since, grace, runs_hook: !grace.is_zero(), deadline, kill_not_before: since, must_wait: false }
    }

    /// When an instance that has its signal gets KILL.
    fn kill_at(&self, sent_at: Mono) -> Mono {
        self.deadline.max(self.kill_not_before).max(sent_at + KILL_WINDOW_MIN)
    }

    /// LC-285, TC-114: whole seconds of the hook and of waiting are deducted.
    /// LC-237, TC-056, TC-115: two remain, once, whoever used up the rest.
    /// LC-297, TC-116: nobody gets more because others were slow.
    fn budget(&self, kill: Option<&Kill>, now: Now) -> Duration {
        let (since, grace) = kill.map_or((self.since, self.grace), |kill| (kill.since, kill.grace.min(self.grace)));
        let waits_since = kill.and_then(Kill::hook_ended_at).unwrap_or(since);
        let spent = whole_seconds(waits_since.since(since)) + whole_seconds(now.mono.since(waits_since));
        grace.saturating_sub(spent).max(KILL_WINDOW_MIN)
    }
}

impl Kill {
    fn hook_ended_at(&self) -> Option<Mono> {
        match self.hook {
            Hook::Over(at) => Some(at),
            Hook::NotRun | Hook::Running => None,
        }
    }
}

fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

impl Draft<'_> {
    /// The next step of stopping an instance (LC-285, TC-051, TC-109). LC-234,
    /// TC-063: whoever decided it, the hook runs; LC-059, TC-062: it has ended or was given up before
    /// the instance ends by our hand.
    pub(crate) fn stop(&mut self, instance: &Instance, terms: &Terms, cause: Cause) {
        let state = self.state;
        let now = self.now;
        let kill = state.kills.get(&instance.id);
        if state.work.is_killing(&instance.id) {
            // TC-047: the same kill with a shorter grace re-arms it.
            let shortened =
                |signal: &Signal| terms.deadline < signal.deadline && terms.kill_at(signal.sent_at) < signal.kill_at;
            if let Some(signal) = kill.and_then(|kill| kill.signal).filter(shortened) {
                let rest = terms.kill_at(signal.sent_at).since(now.mono);
                self.kill(instance, rest, Cause::new("TC-047", "the grace period was shortened"));
            }
            return;
        }
        let deadline = kill.map_or(terms.deadline, |kill| terms.deadline.min(kill.since + kill.grace));
        if now.mono < deadline {
            let is_hooked = terms.runs_hook && instance.is_running() && state.has_hook(instance, HookKind::PreStop);
            if is_hooked && kill.is_none() {
                return self.run_hook(instance, HookKind::PreStop, Some(deadline.since(now.mono)), cause);
            }
            // LC-235, LC-296, TC-055, TC-057, TC-117: the signal waits for the hook and for its turn.
            let is_hook_running = kill.is_some_and(|kill| kill.hook == Hook::Running);
            let is_signalled = kill.is_some_and(|kill| kill.signal.is_some());
            if is_hook_running || (terms.must_wait && !is_signalled) {
                return self.wake(deadline);
            }
        }
        self.kill(instance, terms.budget(kill, now), cause);
    }

    pub(crate) fn run_hook(&mut self, instance: &Instance, hook: HookKind, timeout: Option<Duration>, cause: Cause) {
        let (container, id) = (instance.name.clone(), instance.id.clone());
        self.act(Action::RunHook { container, id, hook, timeout }, cause);
    }
}

impl PodState {
    pub(crate) fn has_hook(&self, instance: &Instance, hook: HookKind) -> bool {
        self.spec.hook(&instance.name, hook).is_some()
    }

    /// On which terms an instance is stopped right now, if it is.
    fn terms(&self, id: &str, now: Now) -> Option<Terms> {
        let instance = self.seen.as_ref()?.instance(id)?;
        match (&self.stage, self.course()) {
            (Stage::Terminating(shutdown), _) => Some(shutdown.terms(self.must_wait(instance))),
            (Stage::Syncing, Course::Containers { kill, .. }) => {
                kill.iter().find(|unwanted| unwanted.instance.id == id).map(|unwanted| self.own_terms(unwanted, now))
            }
            (Stage::Syncing, Course::NewSandbox(_)) => Some(self.replacement_terms(instance, now)),
            (Stage::Syncing, Course::RestartAll { .. }) => Some(Terms::new(Duration::ZERO, now.mono)),
            (Stage::Syncing, Course::Wait | Course::End(_)) | (Stage::Terminated(_), _) => None,
        }
    }

    /// Of one instance that is stopped while the pod goes on (LC-286).
    pub(crate) fn own_terms(&self, unwanted: &Unwanted<'_>, now: Now) -> Terms {
        let since = self.kills.get(&unwanted.instance.id).map_or(now.mono, |kill| kill.since);
        Terms::new(unwanted.grace, since)
    }

    /// LC-189: everything of the pod stops, in the usual order.
    pub(crate) fn replacement_terms(&self, instance: &Instance, now: Now) -> Terms {
        let since = self.lost_sandbox.as_ref().map_or(now.mono, |lost| lost.at);
        Terms { must_wait: self.must_wait(instance), ..Terms::new(self.spec.grace, since) }
    }

    pub(crate) fn on_kill_begun(&mut self, id: &str, grace: Duration, now: Now) {
        let (sent_at, kill_at) = (now.mono, now.mono + grace);
        let deadline = self.terms(id, now).map_or(kill_at, |terms| terms.deadline);
        let kill = self.kill_entry(id, now);
        let sent_at = kill.signal.map_or(sent_at, |signal| signal.sent_at);
        kill.signal = Some(Signal { sent_at, kill_at, deadline });
        kill.has_ended = false;
    }

    pub(crate) fn on_pre_stop_begun(&mut self, id: &str, now: Now) {
        self.kill_entry(id, now).hook = Hook::Running;
    }

    fn kill_entry(&mut self, id: &str, now: Now) -> &mut Kill {
        let terms = self.terms(id, now).unwrap_or_else(|| Terms::new(self.spec.grace, now.mono));
        // LC-189: what only makes room for a new sandbox starts again in it.
        let is_replaced = self.stage == Stage::Syncing && matches!(self.course(), Course::NewSandbox(_));
        let restarts = is_replaced || self.unwanted(id).is_some_and(|unwanted| unwanted.restarts);
        let previous_exit = self.exit_before(id);
        let fresh = Kill {
            since: terms.since,
            grace: terms.grace,
            hook: Hook::NotRun,
            signal: None,
            has_ended: false,
            restarts,
            previous_exit,
        };
        let kill = self.kills.get_or_insert(id.to_owned(), fresh);
        // LC-138: what failed to die of a probe may go on to die of a new image.
        kill.restarts |= restarts;
        kill
    }

    /// LC-238, TC-059, TC-119: how it ended changes nothing; that it ended does.
    pub(crate) fn on_pre_stop_ended(&mut self, id: &str, outcome: &Outcome, now: Now) {
        let is_alive = self.alive().any(|instance| instance.id == id);
        let terms = self.terms(id, now);
        let Some(kill) = self.kills.get_mut(id).filter(|kill| kill.hook == Hook::Running) else { return };
        kill.hook = Hook::Over(now.mono);
        let deadline = terms.map_or(kill.since + kill.grace, |terms| terms.deadline.min(kill.since + kill.grace));
        // A hook that was given up, or died with its container (H19), did not fail.
        if is_alive && now.mono < deadline {
            self.note_hook_ended(id, HookKind::PreStop, outcome);
        }
    }

    /// Nobody knows whether the signal was sent: it is tried again in its turn.
    pub(crate) fn on_kill_failed(&mut self, id: &str, action: &Action, now: Now) {
        self.work.hold_after_failure(action, now.mono);
        let is_still_killed = self.work.is_killing(id);
        let Some(kill) = self.kills.get_mut(id) else { return };
        match &mut kill.signal {
            // TC-047: a kill that could not be shortened goes on as it was.
            Some(signal) if is_still_killed => signal.deadline = signal.sent_at + Duration::MAX,
            signal => *signal = None,
        }
    }

    pub(crate) fn on_kill_ended(&mut self, id: &str, action: &Action, now: Now) {
        if let Some(kill) = self.kills.get_mut(id) {
            kill.has_ended = true;
        }
        let survivor = self.alive().find(|instance| instance.id == id).map(|instance| instance.name.clone());
        // TC-048: the runtime says that it worked, but it did not.
        if let Some(name) = survivor {
            let error = format!("detected running containers after a successful KillPod, CRI violation: [{name}]");
            self.note_failed_kill(&error);
            self.work.hold_after_failure(action, now.mono);
        }
    }

    /// LC-294, TC-110, TC-111, TC-123: a sidecar waits for every app container and for
    /// the sidecar after it, transitively for all later ones. TC-112, TC-118: for
    /// those the runtime still shows alive, whatever became of their hooks.
    pub(crate) fn must_wait(&self, instance: &Instance) -> bool {
        let position = |name: &str| self.spec.init.iter().position(|container| container.name == name);
        let role = |name: &str| self.spec.container(name).map(|container| container.role);
        if role(&instance.name) != Some(Role::Sidecar) {
            return false;
        }
        self.alive().any(|other| match role(&other.name) {
            Some(Role::App) => true,
            Some(Role::Sidecar) => position(&other.name) > position(&instance.name),
            // LC-295, TC-113: neither waits nor is waited for.
            Some(Role::Init | Role::Ephemeral) | None => false,
        })
    }

    /// The reason to kill one instance while the pod goes on.
    pub(crate) fn unwanted(&self, id: &str) -> Option<Unwanted<'_>> {
        match (&self.stage, self.course()) {
            (Stage::Syncing, Course::Containers { kill, .. }) => {
                kill.into_iter().find(|unwanted| unwanted.instance.id == id)
            }
            _ => None,
        }
    }
}
