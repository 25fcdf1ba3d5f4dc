//! The only function that returns a phase.
//!
//! Decides: the phase that container states add up to (LC-039), and that a
//! terminal phase is final (LC-044): containers are healed, pods are not (LC-025).
//! Never: decides when a phase may be shown (`derive.rs` does).

use objects::reasons::{terminated, waiting};

use crate::restart::should_restart;
use crate::spec::{ContainerSpec, PodSpec, Role};
use crate::state::Rules;
use crate::view::{ContainerView, Phase, Shown, Termination};

/// What the phase depends on beside the container states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Circumstances {
    /// All containers have been stopped for good.
    pub(crate) is_terminal: bool,
    /// An app instance exists in the current sandbox (LC-042).
    pub(crate) is_initialized: bool,
}

/// LC-039: the procedure, with its counters by name. Ephemeral containers are
/// not even an input (LC-040).
pub(crate) fn of<'a>(
    pod: &PodSpec,
    views: impl IntoIterator<Item = &'a ContainerView> + Clone,
    at: Circumstances,
    rules: &Rules,
) -> Phase {
    let mut count = Count::default();
    for container in pod.containers() {
        let view = views.clone().into_iter().find(|view| view.name == container.name);
        let restarts = |end: &Termination| is_restartable(pod, container, end, rules);
        match container.role {
            Role::Init => count.init(view, restarts),
            Role::Sidecar => count.sidecar(view),
            Role::App => count.app(view, restarts),
            // LC-040, LC-364
            Role::Ephemeral => {}
        }
    }
    count.decide(at, pod.is_static)
}

/// LC-044, TC-145: a terminal phase is never left. The API's word counts most:
/// others have acted on it.
pub(crate) fn final_once_terminal(computed: Phase, previous: Phase, published: Phase) -> Phase {
    [published, previous].into_iter().find(|phase| phase.is_terminal()).unwrap_or(computed)
}

fn is_restartable(pod: &PodSpec, container: &ContainerSpec, end: &Termination, rules: &Rules) -> bool {
    should_restart(pod, container, end.code, rules)
        || (rules.restart_all_containers && end.reason == terminated::RESTARTING_ALL_CONTAINERS)
}

#[derive(Default)]
struct Count {
    init_pending: u32,
    /// Ran before, and not to its end since: in the current sandbox or the next.
    init_unfinished: u32,
    init_fatal: u32,
    sidecar_pending: u32,
    running: u32,
    waiting: u32,
    unknown: u32,
    stopped: u32,
    fatal: u32,
    succeeded: u32,
}

impl Count {
    /// Step A.
    fn init(&mut self, view: Option<&ContainerView>, restarts: impl Fn(&Termination) -> bool) {
        let Some(view) = view else {
            self.init_pending += 1;
            return;
        };
        let end = match (&view.state, &view.last) {
            (Shown::Running { .. }, _) | (Shown::Waiting(_), None) => {
                self.init_pending += 1;
                return;
            }
            (Shown::Terminated(end), _) | (Shown::Waiting(_), Some(end)) => end,
        };
        let is_restarting_all =
            matches!(&view.state, Shown::Waiting(shown) if shown.reason == waiting::RESTARTING_ALL_CONTAINERS);
        let is_done = matches!(view.state, Shown::Terminated(_)) && end.code == 0;
        self.init_unfinished += u32::from(!is_done && !is_restarting_all);
        if end.code != 0 && !restarts(end) {
            self.init_fatal += 1;
        }
    }

    /// Step B. LC-041, LC-217, TC-121: how a sidecar ends never counts.
    fn sidecar(&mut self, view: Option<&ContainerView>) {
        let Some(view) = view else {
            self.unknown += 1;
            return;
        };
        match (&view.state, &view.last) {
            (Shown::Running { .. }, _) => {
                self.running += 1;
                self.sidecar_pending += u32::from(!view.is_started);
            }
            (Shown::Waiting(_), None) => {
                self.sidecar_pending += 1;
                self.waiting += 1;
            }
            (Shown::Terminated(_), _) | (Shown::Waiting(_), Some(_)) => {}
        }
    }

    /// Step C.
    fn app(&mut self, view: Option<&ContainerView>, restarts: impl Fn(&Termination) -> bool) {
        let Some(view) = view else {
            self.unknown += 1;
            return;
        };
        match (&view.state, &view.last) {
            (Shown::Running { .. }, _) => self.running += 1,
            (Shown::Waiting(_), None) => self.waiting += 1,
            (Shown::Terminated(end), _) => {
                self.stopped += 1;
                self.fatal += u32::from(!restarts(end));
                self.succeeded += u32::from(end.code == 0);
            }
            (Shown::Waiting(_), Some(end)) => {
                self.stopped += 1;
                self.fatal += u32::from(!restarts(end));
            }
        }
    }

    /// First match wins. LC-036: from Pending to Running to an end. The worked
    /// states LC-160, LC-161, LC-162, LC-163 and LC-164 follow from it.
    fn decide(&self, at: Circumstances, is_static: bool) -> Phase {
        if self.init_fatal > 0 {
            return Phase::Failed;
        }
        // LC-042: not in this sandbox, whatever ran in another.
        let is_unfinished = (self.sidecar_pending > 0 || self.init_unfinished > 0) && !at.is_initialized;
        let is_initializing = self.init_pending > 0 || is_unfinished;
        if is_initializing || self.waiting > 0 {
            return Phase::Pending;
        }
        if self.unknown > 0 || (self.running == 0 && self.stopped == 0) {
            return Phase::Pending;
        }
        if self.running > 0 {
            return Phase::Running;
        }
        let all_succeeded = if self.stopped == self.succeeded { Phase::Succeeded } else { Phase::Failed };
        // TC-082, TC-141: by exit codes, whatever the policy. TC-142, LC-359: not
        // for a static pod.
        if at.is_terminal && !is_static {
            return all_succeeded;
        }
        // Something will restart.
        if self.stopped != self.fatal {
            return Phase::Running;
        }
        all_succeeded
    }
}

#[cfg(test)]
mod tests;
