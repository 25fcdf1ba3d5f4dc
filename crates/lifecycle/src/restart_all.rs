//! Restarting all containers of a pod in place, because one of them exited
//! with a code that asks for it (§5.3).
//!
//! Decides: when that happens, and in which order what is left of the old
//! containers goes. The start afterwards is the normal one (`start.rs`).

use ambient::{Mono, Now};
use objects::reasons::{condition, terminated, waiting};

use crate::action::Cause;
use crate::fact::Instance;
use crate::kill::Terms;
use crate::limits::{EXIT_CODE_LOST, RESTART_ALL_PAUSE};
use crate::plan::Draft;
use crate::restart::{has_restart_all_rule, restarts_all};
use crate::spec::ContainerSpec;
use crate::start::Course;
use crate::state::{PodState, Stage};
use crate::view::{ContainerView, Shown, Termination, Truth, View, Waiting};

const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

impl PodState {
    /// LC-115: whether the feature applies to the pod at all.
    pub(crate) fn may_restart_all(&self) -> bool {
        self.rules.restart_all_containers
            && self.spec.containers().any(|container| has_restart_all_rule(container, &self.rules))
    }

    /// LC-148, LC-154: from the exit until nothing of the old containers is left.
    /// LC-158: what was shown counts, so that a new agent goes on.
    pub(crate) fn is_restarting_all(&self) -> bool {
        self.stage == Stage::Syncing
            && self.may_restart_all()
            && self.remains().next().is_some()
            && (is_shown_restarting(&self.shown) || self.spec.containers().any(|container| self.triggers(container)))
    }

    pub(crate) fn course_of_restart_all(&self) -> Course<'_> {
        let alive: Vec<&Instance> = self.remains().filter(|instance| self.is_alive(instance)).collect();
        if !alive.is_empty() || self.work.is_creating() {
            return Course::RestartAll { kill: alive, remove: Vec::new() };
        }
        // LC-151: who asked for it goes last, so that the reason is not lost.
        let (triggers, victims): (Vec<&ContainerSpec>, Vec<&ContainerSpec>) =
            self.spec.apps.iter().chain(&self.spec.init).partition(|container| self.triggers(container));
        let remains_of = |containers: Vec<&ContainerSpec>| -> Vec<&Instance> {
            let instances = |container: &ContainerSpec| {
                self.remains().filter(|instance| instance.name == container.name).collect::<Vec<_>>()
            };
            containers.into_iter().flat_map(instances).collect()
        };
        let victims = remains_of(victims);
        let remove = if victims.is_empty() { remains_of(triggers) } else { victims };
        Course::RestartAll { kill: Vec::new(), remove }
    }

    /// DEC-8: not more often than once per second, so that a pod whose
    /// containers exit at once cannot spin.
    pub(crate) fn restart_all_not_before(&self) -> Option<Mono> {
        self.restarted_all_at.map(|at| at + RESTART_ALL_PAUSE)
    }

    /// Called with the view that follows `shown`.
    pub(crate) fn note_restarted_all(&mut self, next: &View, now: Now) {
        if is_shown_restarting(&self.shown) && !is_shown_restarting(next) {
            self.restarted_all_at = Some(now.mono);
        }
    }

    fn triggers(&self, container: &ContainerSpec) -> bool {
        let newest = self.seen.as_ref().and_then(|seen| seen.newest_of(&container.name));
        let shown = || self.shown.container(&container.name).and_then(ContainerView::termination).map(|end| end.code);
        let code = match newest {
            Some(instance) => instance.exit().map(|exit| exit.code),
            None => shown(),
        };
        code.is_some_and(|code| restarts_all(container, code, &self.rules))
    }

    /// LC-157: ephemeral containers are not concerned.
    fn remains(&self) -> impl Iterator<Item = &Instance> {
        let instances = self.seen.iter().flat_map(|seen| &seen.instances);
        instances.filter(|instance| self.spec.containers().any(|container| container.name == instance.name))
    }
}

/// LC-150, LC-151, LC-240, TC-070: no grace, and so no hook. LC-152: the sandbox stays.
/// LC-155: without dead instances there is no back-off.
pub(crate) fn plan_restart_all(draft: &mut Draft<'_>, kill: &[&Instance], remove: &[&Instance]) {
    if let Some(at) = draft.state.restart_all_not_before().filter(|at| *at > draft.now.mono) {
        return draft.wake(at);
    }
    let terms = Terms::new(std::time::Duration::ZERO, draft.now.mono);
    for instance in kill {
        draft.stop(instance, &terms, Cause::new("LC-150", "all containers of the pod restart"));
    }
    for instance in remove {
        draft.remove(instance, Cause::new("LC-151", "all containers of the pod restart"));
    }
}

pub(crate) fn is_shown_restarting(view: &View) -> bool {
    view.condition(condition::ALL_CONTAINERS_RESTARTING).is_some_and(|shown| shown.status == Truth::True)
}

/// LC-153, H61: a container whose instances are gone.
pub(crate) fn removed(prior: &ContainerView) -> ContainerView {
    if prior.is_waiting() {
        return prior.clone();
    }
    ContainerView {
        id: None,
        image_id: String::new(),
        state: Shown::Waiting(Waiting {
            reason: waiting::RESTARTING_ALL_CONTAINERS.to_owned(),
            message: MESSAGE.to_owned(),
        }),
        last: Some(Termination {
            code: EXIT_CODE_LOST,
            reason: terminated::RESTARTING_ALL_CONTAINERS.to_owned(),
            message: MESSAGE.to_owned(),
            ..Termination::default()
        }),
        restart_count: prior.restart_count + 1,
        ..prior.clone()
    }
}
