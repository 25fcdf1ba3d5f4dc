//! The agent's conditions: PodReadyToStartContainers, Initialized, Ready,
//! ContainersReady, PodScheduled.
//!
//! Decides: their status, reason, message and transition time.
//! Never: touches a condition someone else owns (LC-099).

use ambient::Timestamp;
use objects::reasons::condition;

use crate::spec::{ContainerSpec, PodSpec, Role};
use crate::state::Rules;
use crate::view::{Condition, Phase, Truth, View};

/// LC-099: replaced on each write; everything else is foreign. LC-104: none of
/// them under its obsolete name.
pub(crate) const OWNED: [&str; 9] = [
    condition::POD_SCHEDULED,
    condition::READY,
    condition::INITIALIZED,
    condition::CONTAINERS_READY,
    condition::POD_RESIZE_IN_PROGRESS,
    condition::POD_RESIZE_PENDING,
    condition::POD_READY_TO_START_CONTAINERS,
    condition::ALL_CONTAINERS_RESTARTING,
    condition::POD_RESTART_IN_PLACE,
];

/// What conditions are made from: a view whose phase and containers are done.
pub(crate) struct Basis<'a> {
    pub(crate) pod: &'a PodSpec,
    pub(crate) rules: &'a Rules,
    pub(crate) view: &'a View,
    /// The last view, for transition times.
    pub(crate) previous: &'a View,
    pub(crate) has_sandbox: bool,
    /// An app instance exists in the current sandbox (LC-042).
    pub(crate) is_initialized: bool,
    /// LC-115: `None` if the feature does not apply to the pod.
    pub(crate) is_restarting_all: Option<bool>,
    pub(crate) resize: Vec<Condition>,
    /// LC-121: the node ends the pod, and how it says so.
    pub(crate) disruption: Option<String>,
    pub(crate) wall: Timestamp,
}

impl Basis<'_> {
    /// LC-100: foreign conditions first, then ours in upstream's order.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let disruption = self.disruption();
        let is_ours = |it: &&Condition| disruption.is_none() || it.kind != condition::DISRUPTION_TARGET;
        let mut all: Vec<Condition> = self.foreign().filter(is_ours).cloned().collect();
        all.extend(self.resize.iter().cloned());
        all.extend(disruption.clone());
        if self.rules.ready_to_start_condition {
            all.push(self.condition(condition::POD_READY_TO_START_CONTAINERS, Verdict::plain(self.has_sandbox)));
        }
        all.push(self.condition(condition::INITIALIZED, self.initialized()));
        let containers_ready = self.containers_ready();
        all.push(self.condition(condition::READY, self.ready(&containers_ready)));
        all.push(self.condition(condition::CONTAINERS_READY, containers_ready));
        // LC-113: whoever runs a pod knows that it was scheduled.
        all.push(self.condition(condition::POD_SCHEDULED, Verdict::plain(true)));
        // LC-114, LC-115, TC-071: under both names, without a generation.
        for kind in [condition::ALL_CONTAINERS_RESTARTING, condition::POD_RESTART_IN_PLACE] {
            if let Some(is_restarting) = self.is_restarting_all {
                let condition = self.condition(kind, self.restarting(is_restarting));
                all.push(Condition { observed_generation: None, ..condition });
            }
        }
        all
    }

    /// LC-103, LC-149.
    fn restarting(&self, is_restarting: bool) -> Verdict {
        match self.view.phase {
            Phase::Succeeded => Verdict::no(condition::POD_COMPLETED, String::new()),
            Phase::Failed => Verdict::no(condition::POD_FAILED, String::new()),
            Phase::Pending | Phase::Running | Phase::Unknown if is_restarting => Verdict {
                status: Truth::True,
                reason: condition::RESTART_ALL_CONTAINERS_STARTED,
                message: "container exited with restart policy rule".to_owned(),
            },
            Phase::Pending | Phase::Running | Phase::Unknown => Verdict::plain(false),
        }
    }

    /// LC-122, TC-204, TC-207: only together with the terminal phase, with a fresh
    /// time and the generation.
    fn disruption(&self) -> Option<Condition> {
        let message = self.disruption.clone().filter(|_| self.view.phase.is_terminal())?;
        let reason = condition::TERMINATION_BY_KUBELET;
        let ours = self.condition(condition::DISRUPTION_TARGET, Verdict { status: Truth::True, reason, message });
        let is_new = !self.previous.phase.is_terminal();
        Some(Condition { last_transition: if is_new { Some(self.wall) } else { ours.last_transition }, ..ours })
    }

    fn foreign(&self) -> impl Iterator<Item = &Condition> {
        self.pod.published.conditions.iter().filter(|condition| !OWNED.contains(&&*condition.kind))
    }

    /// LC-098: the transition time moves only when the status does.
    fn condition(&self, kind: &'static str, verdict: Verdict) -> Condition {
        let before = self.previous.condition(kind).filter(|before| before.status == verdict.status);
        Condition {
            kind: kind.into(),
            status: verdict.status,
            reason: verdict.reason.into(),
            message: verdict.message,
            last_probe: None,
            last_transition: before.and_then(|before| before.last_transition).or(Some(self.wall)),
            observed_generation: (self.pod.generation > 0).then_some(self.pod.generation),
        }
    }

    /// LC-105. LC-106: init containers are done only after they ran in a sandbox.
    fn initialized(&self) -> Verdict {
        let mut names = Names::default();
        for container in &self.pod.init {
            match self.view.init.iter().find(|view| view.name == container.name) {
                None => names.unknown.push(&container.name),
                Some(view) if container.role == Role::Sidecar && !view.is_started => names.lacking.push(&view.name),
                Some(view) if container.role == Role::Init && !view.is_ready => names.lacking.push(&view.name),
                Some(_) => {}
            }
        }
        if self.view.phase == Phase::Succeeded && names.unknown.is_empty() {
            return Verdict { status: Truth::True, reason: condition::POD_COMPLETED, message: String::new() };
        }
        // LC-105, LC-154: an in-place restart does not take it back.
        let was_initialized = self.previous.condition(condition::INITIALIZED).map(|before| before.status);
        if self.rules.restart_all_containers && was_initialized == Some(Truth::True) {
            return Verdict::plain(true);
        }
        // LC-106: an app container that ran in a sandbox before this says nothing about it.
        let is_again = !self.is_initialized && self.pod.init.iter().any(|container| self.waits_again(container));
        let has_begun = self.view.apps.iter().any(|view| !view.is_waiting()) && !is_again;
        if names.is_empty() || has_begun {
            return Verdict::plain(true);
        }
        Verdict::no(condition::CONTAINERS_NOT_INITIALIZED, names.message("incomplete"))
    }

    /// LC-189: it was done once, and is to be done again.
    fn waits_again(&self, container: &ContainerSpec) -> bool {
        let view = self.view.init.iter().find(|view| view.name == container.name);
        container.role == Role::Init && view.is_some_and(|view| !view.is_ready && view.last.is_some())
    }

    /// LC-103, LC-109, LC-215, TC-085. LC-048: from the same view as the phase. LC-110:
    /// that the pod is being deleted is no reason.
    fn containers_ready(&self) -> Verdict {
        let counted = self.pod.containers().filter(|container| container.role != Role::Init);
        let mut names = Names::default();
        for container in counted {
            match self.view.container(&container.name) {
                None => names.unknown.push(&container.name),
                Some(view) if !view.is_ready => names.lacking.push(&container.name),
                Some(_) => {}
            }
        }
        if self.view.phase == Phase::Succeeded && names.unknown.is_empty() {
            return Verdict::no(condition::POD_COMPLETED, String::new());
        }
        if self.view.phase == Phase::Failed {
            return Verdict::no(condition::POD_FAILED, String::new());
        }
        if names.is_empty() {
            return Verdict::plain(true);
        }
        Verdict::no(condition::CONTAINERS_NOT_READY, names.message("unready"))
    }

    /// LC-117, LC-119: containers first, then the gates. TC-126: a deletion alone
    /// is no reason.
    fn ready(&self, containers_ready: &Verdict) -> Verdict {
        if containers_ready.status != Truth::True {
            return containers_ready.clone();
        }
        let failing: Vec<String> = self.pod.readiness_gates.iter().filter_map(|gate| self.failing_gate(gate)).collect();
        if failing.is_empty() {
            return Verdict::plain(true);
        }
        Verdict::no(condition::READINESS_GATES_NOT_READY, failing.join(", "))
    }

    /// LC-118. LC-120: gates are others' conditions; we only read them.
    fn failing_gate(&self, gate: &str) -> Option<String> {
        match self.pod.published.condition(gate) {
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
            Some(condition) if condition.status == Truth::True => None,
            Some(condition) => Some(format!(
                "the status of pod readiness gate {gate:?} is not \"True\", but {}",
                condition.status.as_str()
            )),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    status: Truth,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn plain(is_true: bool) -> Self {
        Self { status: is_true.into(), reason: "", message: String::new() }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { status: Truth::False, reason, message }
    }
}

/// LC-103: names in spec order, sidecars before apps.
#[derive(Default)]
struct Names<'a> {
    unknown: Vec<&'a str>,
    lacking: Vec<&'a str>,
}

impl Names<'_> {
    fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.lacking.is_empty()
    }

    fn message(&self, lack: &str) -> String {
        let part = |kind: &str, names: &[&str]| {
            (!names.is_empty()).then(|| format!("containers with {kind} status: [{}]", names.join(" ")))
        };
        let parts = [part("unknown", &self.unknown), part(lack, &self.lacking)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests;
