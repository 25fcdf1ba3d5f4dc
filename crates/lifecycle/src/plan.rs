//! Turns the state into actions and the next moment to ask again.
//!
//! Decides: nothing of its own; it calls the rule modules in order, which is the
//! order of the reference timelines (LC-393), and leaves out what is in flight or
//! must wait.

use std::time::Duration;

use ambient::{Mono, Now};

use crate::action::{Action, Cause, Plan, Planned};
use crate::fact::Instance;
use crate::hooks::plan_post_starts;
use crate::probes::plan_probes;
use crate::restart_all::plan_restart_all;
use crate::spec::{ContainerSpec, ImageSpec, Role};
use crate::start::{Course, Wanted};
use crate::state::{PodState, Stage};
use crate::{resize, termination};

pub(crate) fn plan(state: &PodState, now: Now) -> Plan {
    let mut draft = Draft { state, now, plan: Plan::default() };
    if state.seen.is_some() {
        // LC-365
        if let Some(at) = state.active_until(now) {
            draft.wake(at);
        }
        match &state.stage {
            // LC-358, TC-245: others leave first.
            Stage::Syncing if state.awaits_admission => {}
            Stage::Syncing => {
                draft.sync();
                plan_probes(&mut draft);
            }
            // LC-010: no way leads from here to a start.
            Stage::Terminating(shutdown) => {
                termination::plan_stop(&mut draft, shutdown);
                plan_probes(&mut draft);
            }
            Stage::Terminated(cleanup) => termination::plan_cleanup(&mut draft, cleanup),
        }
    }
    draft.plan
}

/// A plan in the making.
pub(crate) struct Draft<'a> {
    pub(crate) state: &'a PodState,
    pub(crate) now: Now,
    plan: Plan,
}

impl<'a> Draft<'a> {
    /// Adds an action unless it is under way or must wait after a failure.
    pub(crate) fn act(&mut self, action: Action, cause: Cause) {
        if self.state.work.is_in_flight(&action) {
            return;
        }
        match self.state.work.retry_at(&action, self.now.mono) {
            Some(retry_at) => self.wake(retry_at),
            None => self.plan.actions.push(Planned { action, cause }),
        }
    }

    pub(crate) fn wake(&mut self, at: Mono) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    pub(crate) fn kill(&mut self, instance: &Instance, grace: Duration, cause: Cause) {
        let (container, id) = (instance.name.clone(), instance.id.clone());
        self.act(Action::KillContainer { container, id, grace }, cause);
    }

    pub(crate) fn remove(&mut self, instance: &Instance, cause: Cause) {
        let (container, id) = (instance.name.clone(), instance.id.clone());
        self.act(Action::RemoveContainer { container, id }, cause);
    }

    /// LC-187: kill, then sandbox, ephemeral and init containers, resize, apps.
    fn sync(&mut self) {
        match self.state.course() {
            Course::Wait | Course::End(_) => {}
            Course::NewSandbox(cause) => self.replace_sandbox(cause),
            Course::RestartAll { kill, remove } => plan_restart_all(self, &kill, &remove),
            Course::Containers { start, kill } => {
                for wanted in &start {
                    if let Some(rest) = self.state.replaced_for(wanted.container, self.now) {
                        self.wake(self.now.mono + rest);
                    }
                }
                for unwanted in kill {
                    let terms = self.state.own_terms(&unwanted, self.now);
                    self.stop(unwanted.instance, &terms, unwanted.cause);
                }
                plan_post_starts(self);
                self.tidy();
                let (apps, first): (Vec<_>, Vec<_>) =
                    start.into_iter().partition(|wanted| wanted.container.role == Role::App);
                // LC-232: the hook of one is part of its start.
                let is_busy = self.state.work.is_starting_container() || self.state.has_post_starting();
                let is_busy = self.start_next(&first, is_busy);
                resize::plan(self);
                self.start_next(&apps, is_busy);
            }
        }
    }

    /// LC-189, LC-208, TC-284: everything of the old one goes before the new one
    /// comes, and what initialized the pod, so that it runs again.
    fn replace_sandbox(&mut self, cause: Cause) {
        let state = self.state;
        let Some(seen) = &state.seen else { return };
        for instance in state.alive() {
            let terms = state.replacement_terms(instance, self.now);
            self.stop(instance, &terms, Cause::new("LC-189", "the sandbox is replaced"));
        }
        if state.alive().next().is_some() || state.work.is_creating() {
            return;
        }
        termination::stop_sandboxes(self, &Cause::new("LC-189", "the sandbox is replaced"));
        if seen.sandboxes.iter().any(|sandbox| sandbox.is_ready) {
            return;
        }
        let is_init = |instance: &&Instance| state.spec.init.iter().any(|init| init.name == instance.name);
        for instance in seen.instances.iter().filter(is_init) {
            self.remove(instance, Cause::new("LC-189", "init containers run again in the new sandbox"));
        }
        self.act(Action::CreateSandbox { attempt: seen.next_sandbox_attempt() }, cause);
    }

    /// LC-095, LC-096, LC-097: one dead instance per container is kept.
    fn tidy(&mut self) {
        let state = self.state;
        let Some(seen) = &state.seen else { return };
        for container in state.spec.all_containers() {
            let dead = seen.instances_of(&container.name).filter(|instance| !state.is_alive(instance));
            for older in dead.filter(|instance| !instance.is_created()).skip(1) {
                self.remove(older, Cause::new("LC-095", format!("container {} has a newer dead instance", older.name)));
            }
            let created = seen.instances_of(&container.name).filter(|instance| instance.is_created());
            for stale in created.filter(|_| !state.work.is_starting(&container.name)) {
                self.remove(stale, Cause::new("LC-204", format!("container {} was never started", stale.name)));
            }
        }
        for sandbox in seen.sandboxes.iter().skip(1).filter(|sandbox| !sandbox.is_ready) {
            if !seen.instances.iter().any(|instance| instance.sandbox == sandbox.id) {
                let cause = Cause::new("LC-097", "an older sandbox is empty");
                self.act(Action::RemoveSandbox { id: sandbox.id.clone() }, cause);
            }
        }
    }

    /// LC-193, LC-213: one after another in spec order; one that is held back or
    /// failed does not stop the next. True if one is starting.
    fn start_next(&mut self, wanted: &[Wanted<'_>], mut is_busy: bool) -> bool {
        for Wanted { container, cause } in wanted {
            if let Some(at) = self.state.reason_changes_at(container, self.now) {
                self.wake(at);
            }
            if let Some(at) = self.state.held_until(container, self.now) {
                self.wake(at);
                continue;
            }
            let newest = self.state.seen.as_ref().and_then(|seen| seen.newest_of(&container.name));
            if is_busy || newest.is_some_and(Instance::is_created) {
                continue;
            }
            is_busy = true;
            self.start(container, cause);
        }
        is_busy
    }

    /// LC-194: images first, then the container.
    fn start(&mut self, container: &ContainerSpec, cause: &Cause) {
        let attempt = self.state.next_attempt(&container.name);
        let name = container.name.clone();
        let action = match self.state.attempts.lacks_image(container, attempt) {
            None => Action::StartContainer { container: name, attempt },
            Some(ImageSpec { image, policy }) => Action::PullImage { container: name, image, policy },
        };
        self.act(action, cause.clone());
    }
}
