//! Probes: when they run, and what their results mean.
//!
//! Decides: timing, gating and thresholds (§10.3), and from them whether a
//! container is started, ready, or must be killed.
//! Never: runs a probe (kubelet does).

use std::collections::BTreeMap;
use std::time::Duration;

use ambient::{Mono, Now};
use objects::reasons::{condition, event};

use crate::action::{Action, Cause};
use crate::fact::{Instance, InstanceState, Observation, ProbeResult};
use crate::limits::ADOPTED_AGE;
use crate::plan::Draft;
use crate::spec::{ContainerSpec, ProbeKind, ProbeSpec, Role};
use crate::state::{News, PodState, Severity, Stage};
use crate::view::{Truth, View};

/// The shortest time there is.
const INSTANT: Duration = Duration::from_nanos(1);

/// Everything that is known about the probes of a pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Probes {
    /// LC-256: one per container and kind. Bounded by the spec.
    workers: Vec<Worker>,
    /// LC-378: instances that ran before this agent did, by id.
    adopted: BTreeMap<String, Adopted>,
}

#[derive(Debug, Clone, PartialEq)]
struct Worker {
    container: String,
    kind: ProbeKind,
    /// Runs happen at whole periods after this moment.
    origin: Mono,
    /// Not before.
    next_at: Mono,
    /// The instance all below is about.
    instance: Option<String>,
    started_at: Mono,
    /// Since when the instance may be probed at all.
    eligible_since: Option<Mono>,
    verdict: Option<Verdict>,
    /// LC-260: decided; the next instance will be probed again.
    is_on_hold: bool,
    /// LC-259: consecutive equal results.
    last: Option<Verdict>,
    count: u32,
}

/// LC-254, LC-255.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Success,
    Failure,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Adopted {
    was_started: bool,
    was_ready: bool,
}

impl Probes {
    fn worker(&self, instance: &Instance, kind: ProbeKind) -> Option<&Worker> {
        let is_its_own = |worker: &&Worker| worker.is_for(&instance.name, kind);
        self.workers.iter().find(is_its_own).filter(|worker| worker.instance.as_ref() == Some(&instance.id))
    }

    fn worker_mut(&mut self, container: &str, kind: ProbeKind) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.is_for(container, kind))
    }

    fn verdict(&self, instance: &Instance, kind: ProbeKind) -> Option<Verdict> {
        self.worker(instance, kind)?.verdict
    }
}

impl Worker {
    fn new(container: &str, kind: ProbeKind, origin: Mono, now: Mono) -> Self {
        Self {
            container: container.to_owned(),
            kind,
            origin,
            next_at: now,
            instance: None,
            started_at: now,
            eligible_since: None,
            verdict: None,
            is_on_hold: false,
            last: None,
            count: 0,
        }
    }

    fn is_for(&self, container: &str, kind: ProbeKind) -> bool {
        self.kind == kind && self.container == container
    }

    /// The moment of the next run, if nothing happens until then (LC-257).
    fn due_at(&self, probe: &ProbeSpec) -> Option<Mono> {
        let eligible_since = self.eligible_since.filter(|_| !self.is_on_hold)?;
        let from = eligible_since.max(self.started_at + probe.initial_delay).max(self.next_at);
        match self.kind {
            // LC-261: as soon as it may, whatever the rhythm was.
            ProbeKind::Readiness => Some(from),
            // A tick at the very moment of the start came too early for it.
            ProbeKind::Startup | ProbeKind::Liveness if from == eligible_since => {
                Some(self.tick(from + INSTANT, probe.period))
            }
            ProbeKind::Startup | ProbeKind::Liveness => Some(self.tick(from, probe.period)),
        }
    }

    /// The first whole period at or after `from`.
    fn tick(&self, from: Mono, period: Duration) -> Mono {
        let (passed, period) = (from.since(self.origin).as_nanos(), period.as_nanos().max(1));
        let ticks = passed.div_ceil(period) * period;
        self.origin + Duration::from_nanos(u64::try_from(ticks).unwrap_or(u64::MAX))
    }

    /// LC-259, LC-260.
    fn count(&mut self, result: Verdict, probe: &ProbeSpec) {
        self.count = if self.last == Some(result) { self.count.saturating_add(1) } else { 1 };
        self.last = Some(result);
        let threshold = match result {
            Verdict::Success => probe.success_threshold,
            Verdict::Failure => probe.failure_threshold,
            Verdict::Unknown => return,
        };
        if self.count < threshold {
            return;
        }
        self.verdict = Some(result);
        if self.kind == ProbeKind::Startup || (self.kind == ProbeKind::Liveness && result == Verdict::Failure) {
            self.is_on_hold = true;
            self.count = 0;
        }
    }
}

impl PodState {
    /// LC-077, LC-211.
    pub(crate) fn is_started(&self, container: &ContainerSpec, instance: &Instance) -> bool {
        if !instance.is_running() || self.is_post_starting(instance) {
            return false;
        }
        container.handlers.startup.is_none()
            || self.probes.verdict(instance, ProbeKind::Startup) == Some(Verdict::Success)
    }

    /// LC-078, LC-265. LC-266: not before its first success.
    pub(crate) fn is_ready(&self, container: &ContainerSpec, instance: &Instance) -> bool {
        if !self.is_started(container, instance) {
            return false;
        }
        if container.handlers.readiness.is_none() {
            return true;
        }
        match self.probes.verdict(instance, ProbeKind::Readiness) {
            Some(verdict) => verdict == Verdict::Success,
            // LC-378, TC-272
            None => self.probes.adopted.get(&instance.id).is_some_and(|before| before.was_ready),
        }
    }

    /// LC-196, LC-263: the probe that condemned the instance. LC-264: time to start
    /// is given by a startup probe, and by nothing else.
    pub(crate) fn failed_probe(&self, instance: &Instance) -> Option<ProbeKind> {
        let has_failed = |kind: &ProbeKind| self.probes.verdict(instance, *kind) == Some(Verdict::Failure);
        [ProbeKind::Liveness, ProbeKind::Startup].into_iter().find(has_failed)
    }

    /// LC-378, H39: what runs before we look for the first time keeps its state.
    pub(crate) fn adopt(&mut self, seen: &Observation, now: Now) {
        // LC-379, TC-273
        if self.rules.change_status_on_agent_restart {
            return;
        }
        let was_ready = self.shown.condition(condition::READY).is_some_and(|ready| ready.status == Truth::True);
        // TC-271: younger ones may owe their start to whoever is restarting.
        let is_older = |instance: &&Instance| match &instance.state {
            InstanceState::Running { started_at } => now.mono_of(*started_at) + ADOPTED_AGE < now.mono,
            InstanceState::Created | InstanceState::Exited { .. } | InstanceState::Unknown => false,
        };
        for instance in seen.instances.iter().filter(is_older) {
            let was_started = was_started(&self.shown, instance);
            self.probes.adopted.insert(instance.id.clone(), Adopted { was_started, was_ready });
        }
    }

    /// Brings the workers up to what runs now.
    pub(crate) fn tend_probes(&mut self, now: Now) {
        let Some(seen) = self.seen.take() else { return };
        self.probes.adopted.retain(|id, _| seen.instance(id).is_some());
        let mut probes = std::mem::take(&mut self.probes);
        for (container, kind, probe) in self.spec.probes() {
            let running = seen.newest_of(&container.name).filter(|instance| instance.is_running());
            let adopted = running.and_then(|instance| probes.adopted.get(&instance.id)).copied();
            if probes.worker_mut(&container.name, kind).is_none() {
                let wait = if adopted.is_some() { self.spread(container, kind, probe) } else { Duration::ZERO };
                probes.workers.push(Worker::new(&container.name, kind, now.mono + wait, now.mono));
            }
            let Some(worker) = probes.worker_mut(&container.name, kind) else { continue };
            if let Some(instance) = running.filter(|instance| worker.instance.as_ref() != Some(&instance.id)) {
                worker.follow(instance, adopted, now);
            }
        }
        self.probes = probes;
        self.seen = Some(seen);
        self.gate_probes(now);
    }

    /// TC-274: after an agent restart a part of the period passes first, so that
    /// not all containers of the node are probed together. The part is the same
    /// for the same container.
    fn spread(&self, container: &ContainerSpec, kind: ProbeKind, probe: &ProbeSpec) -> Duration {
        match kind {
            ProbeKind::Readiness => Duration::ZERO,
            ProbeKind::Startup | ProbeKind::Liveness => {
                probe.period.mul_f64(fraction_of(&[&self.spec.uid, &container.name, &kind.to_string()]))
            }
        }
    }

    /// LC-257, LC-262: who may be probed from now on. LC-258: nobody who does not
    /// run.
    fn gate_probes(&mut self, now: Now) {
        let gates: Vec<bool> =
            self.spec.probes().map(|(container, kind, _)| self.is_gate_open(container, kind)).collect();
        for ((container, kind, _), is_open) in self.spec.probes().zip(gates) {
            if let Some(worker) = self.probes.worker_mut(&container.name, kind) {
                worker.eligible_since = is_open.then(|| worker.eligible_since.unwrap_or(now.mono));
            }
        }
    }

    fn is_gate_open(&self, container: &ContainerSpec, kind: ProbeKind) -> bool {
        let newest = self.seen.as_ref().and_then(|seen| seen.newest_of(&container.name));
        let Some(instance) = newest.filter(|instance| instance.is_running()) else { return false };
        let is_started = self.is_started(container, instance);
        match kind {
            ProbeKind::Startup => !is_started && !self.is_post_starting(instance),
            ProbeKind::Liveness | ProbeKind::Readiness => is_started,
        }
    }

    pub(crate) fn on_probe_begun(&mut self, name: &str, kind: ProbeKind, now: Now) {
        let Some(probe) = self.spec.probe(name, kind) else { return };
        let Some(worker) = self.probes.worker_mut(name, kind) else { return };
        worker.next_at = match kind {
            ProbeKind::Readiness => now.mono + probe.period,
            // The next whole period, however late this one is.
            ProbeKind::Startup | ProbeKind::Liveness => worker.tick(now.mono + INSTANT, probe.period),
        };
    }

    pub(crate) fn on_probed(&mut self, name: &str, id: &str, kind: ProbeKind, result: &ProbeResult, now: Now) -> News {
        let running = self.seen.as_ref().and_then(|seen| seen.instance(id)).is_some_and(Instance::is_running);
        let Some(probe) = self.spec.probe(name, kind).filter(|_| running) else { return News::Nothing };
        let Some(worker) = self.probes.worker_mut(name, kind) else { return News::Nothing };
        // A late answer about an older instance says nothing about this one.
        if worker.instance.as_deref() != Some(id) || worker.is_on_hold {
            return News::Nothing;
        }
        let before = worker.verdict;
        let (verdict, told) = match result {
            ProbeResult::Success => (Verdict::Success, None),
            // LC-248
            ProbeResult::Warning(body) => {
                let message = format!("{kind} probe warning: Probe terminated redirects, Response body: {body}");
                (Verdict::Success, Some((event::PROBE_WARNING, message)))
            }
            // LC-268
            ProbeResult::Failure(output) => {
                (Verdict::Failure, Some((event::UNHEALTHY, format!("{kind} probe failed: {output}"))))
            }
            // LC-246
            ProbeResult::Unknown(error) => {
                let message = format!("{kind} probe errored and resulted in unknown state: {error}");
                (Verdict::Unknown, Some((event::UNHEALTHY, message)))
            }
        };
        if verdict != Verdict::Unknown {
            worker.count(verdict, probe);
        }
        let is_same = worker.verdict == before;
        if let Some((reason, message)) = told {
            self.event(Severity::Warning, reason, message, Some(name));
        }
        // LC-259: one more of the same decides nothing.
        if is_same {
            return News::Nothing;
        }
        self.gate_probes(now);
        News::Something
    }

    /// LC-269, H41, TC-124, TC-125: a terminating pod is asked for its readiness to the end,
    /// and only its sidecars for more.
    fn is_probed(&self, container: &ContainerSpec, kind: ProbeKind) -> bool {
        match &self.stage {
            Stage::Syncing => true,
            Stage::Terminating(_) => kind == ProbeKind::Readiness || container.role == Role::Sidecar,
            Stage::Terminated(_) => false,
        }
    }
}

impl Worker {
    /// LC-255: a new instance appeared.
    fn follow(&mut self, instance: &Instance, adopted: Option<Adopted>, now: Now) {
        let started_at = match &instance.state {
            InstanceState::Running { started_at } => now.mono_of(*started_at),
            InstanceState::Created | InstanceState::Exited { .. } | InstanceState::Unknown => now.mono,
        };
        let was_started = adopted.is_some_and(|before| before.was_started);
        self.verdict = match (self.kind, adopted) {
            (ProbeKind::Startup, _) if was_started => Some(Verdict::Success),
            (ProbeKind::Startup | ProbeKind::Liveness | ProbeKind::Readiness, Some(_)) => None,
            (ProbeKind::Startup, None) => Some(Verdict::Unknown),
            (ProbeKind::Liveness, None) => Some(Verdict::Success),
            (ProbeKind::Readiness, None) => Some(Verdict::Failure),
        };
        self.is_on_hold = self.kind == ProbeKind::Startup && was_started;
        if self.kind == ProbeKind::Readiness {
            self.next_at = now.mono;
        }
        self.instance = Some(instance.id.clone());
        self.started_at = started_at;
        self.eligible_since = None;
    }
}

fn was_started(shown: &View, instance: &Instance) -> bool {
    let before = shown.container(&instance.name).filter(|view| view.id.as_ref() == Some(&instance.id));
    before.is_some_and(|view| view.is_running() && view.is_started)
}

/// A fraction of one that is the same for the same words.
fn fraction_of(words: &[&str]) -> f64 {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in words.iter().flat_map(|word| word.bytes().chain([0])) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    f64::from(hash) / f64::from(u32::MAX)
}

/// LC-256: what is due, else when it will be.
pub(crate) fn plan_probes(draft: &mut Draft<'_>) {
    let state = draft.state;
    let Some(seen) = &state.seen else { return };
    for (container, kind, probe) in state.spec.probes().filter(|(container, kind, _)| state.is_probed(container, *kind))
    {
        let Some(instance) = seen.newest_of(&container.name) else { continue };
        let worker = state.probes.worker(instance, kind);
        let Some(due_at) = worker.and_then(|worker| worker.due_at(probe)) else { continue };
        if due_at > draft.now.mono {
            draft.wake(due_at);
            continue;
        }
        let (name, id) = (instance.name.clone(), instance.id.clone());
        let because = format!("the {kind} probe of container {name} is due");
        draft.act(Action::RunProbe { container: name, id, probe: kind }, Cause::new("LC-256", because));
    }
}
