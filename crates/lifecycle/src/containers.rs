//! What a container's status shows (§3.4).
//!
//! Decides: state, last state, restart count, ready and started of each
//! container, from its instances, its start failures and what was shown before.

use std::time::Duration;

use ambient::Now;
use objects::reasons::{terminated, waiting};

use crate::fact::{Instance, InstanceState, Observation};
use crate::limits::{EXIT_CODE_LOST, MESSAGE_BYTES_MAX, REPLACEMENT_MAX};
use crate::restart_all::{is_shown_restarting, removed};
use crate::spec::{ContainerSpec, Role, is_spec_hash};
use crate::start::Course;
use crate::state::{PodState, Stage};
use crate::text;
use crate::view::{ContainerView, Shown, Termination, Waiting};

pub(crate) struct Containers<'a> {
    pub(crate) state: &'a PodState,
    pub(crate) seen: &'a Observation,
    /// Containers whose start is due or held back.
    pub(crate) wanted: &'a [String],
    pub(crate) now: Now,
}

impl Containers<'_> {
    pub(crate) fn view(&self, container: &ContainerSpec) -> ContainerView {
        let prior = self.state.shown.container(&container.name);
        let mut instances = self.seen.instances_of(&container.name);
        // LC-058: until its hook is done, it is where it was.
        let hidden = self.seen.newest_of(&container.name).filter(|newest| self.state.is_post_starting(newest));
        if hidden.is_some() {
            return prior.cloned().unwrap_or_else(|| self.without_instance(container, None));
        }
        let is_replaced =
            self.wanted.contains(&container.name) && self.state.replaced_for(container, self.now).is_some();
        if let Some(prior) = prior.filter(|_| is_replaced) {
            return prior.clone();
        }
        let mut view = match instances.next() {
            Some(newest) if self.runs_again(container, newest) => {
                let mut view = self.with_instances(container, newest, instances.next(), prior);
                view.last = termination(newest).or(view.last);
                view.state = Shown::Waiting(self.waiting_before(prior));
                view
            }
            Some(newest) => self.with_instances(container, newest, instances.next(), prior),
            None => self.without_instance(container, prior),
        };
        self.apply_failure(container, &mut view);
        self.mark_started_and_ready(container, &mut view);
        self.limit_messages(&mut view);
        let newest = self.seen.newest_of(&container.name);
        view.size = view.id.is_some().then(|| self.state.size_of(container, newest));
        view
    }

    /// LC-189, LC-208: what an init container did in a sandbox that is gone is
    /// to be done again in the next.
    fn runs_again(&self, container: &ContainerSpec, newest: &Instance) -> bool {
        if container.role != Role::Init || newest.exit().is_none() || self.state.stage != Stage::Syncing {
            return false;
        }
        match self.seen.usable_sandbox(self.state.spec.is_host_network) {
            Some(sandbox) => newest.sandbox != sandbox.id,
            None => self.state.gets_new_sandbox(),
        }
    }

    /// LC-064, LC-065, TC-279.
    fn without_instance(&self, container: &ContainerSpec, prior: Option<&ContainerView>) -> ContainerView {
        let is_removed = is_shown_restarting(&self.state.shown) && container.role != Role::Ephemeral;
        if let Some(prior) = prior.filter(|_| is_removed && self.state.may_restart_all()) {
            return removed(prior);
        }
        if let Some(ended) = prior.filter(|prior| prior.termination().is_some()) {
            return ended.clone();
        }
        let mut view = ContainerView {
            name: container.name.clone(),
            image: container.image.clone(),
            image_id: String::new(),
            id: prior.and_then(|prior| prior.id.clone()),
            state: Shown::Waiting(self.default_waiting(prior)),
            last: prior.and_then(|prior| prior.last.clone()),
            restart_count: prior.map_or(0, |prior| prior.restart_count),
            is_ready: false,
            is_started: false,
            stop_signal: None,
            user: None,
            size: None,
        };
        // With an end on record, the next start will count (`next_attempt`).
        if prior.is_some_and(ContainerView::is_running) && view.last.is_none() {
            let message = "The container could not be located when the pod was deleted.  \
                           The container used to be Running";
            view.id = None;
            view.last = Some(lost(message, None));
            if self.state.spec.deletion.is_none() {
                view.restart_count += 1;
            }
        }
        view
    }

    /// Until it runs it waits for what it waited for; never for nothing.
    fn waiting_before(&self, prior: Option<&ContainerView>) -> Waiting {
        match prior.map(|prior| &prior.state) {
            Some(Shown::Waiting(shown)) if !shown.reason.is_empty() => shown.clone(),
            _ => self.default_waiting(prior),
        }
    }

    fn default_waiting(&self, prior: Option<&ContainerView>) -> Waiting {
        // LC-153: until it starts again.
        if let Some(Shown::Waiting(shown)) = prior.map(|prior| &prior.state)
            && shown.reason == waiting::RESTARTING_ALL_CONTAINERS
        {
            return shown.clone();
        }
        let reason =
            if self.state.spec.init.is_empty() { waiting::CONTAINER_CREATING } else { waiting::POD_INITIALIZING };
        Waiting { reason: reason.to_owned(), message: String::new() }
    }

    /// LC-066, LC-061: the newest gives the state, the second newest the last
    /// state.
    fn with_instances(
        &self,
        container: &ContainerSpec,
        newest: &Instance,
        second: Option<&Instance>,
        prior: Option<&ContainerView>,
    ) -> ContainerView {
        // What is only made has not replaced anything yet: whoever waits for a
        // restart to be counted reads the times of the instance that runs.
        let is_made = matches!(newest.state, InstanceState::Created);
        if let Some(prior) = prior.filter(|prior| is_made && prior.id.as_ref().is_some_and(|id| *id != newest.id)) {
            let state = self.show(newest, Some(prior));
            let last = second.and_then(termination).or_else(|| remembered_last(newest, Some(prior)));
            return ContainerView { state, last, is_ready: false, is_started: false, ..prior.clone() };
        }
        let state = self.show(newest, prior);
        let is_lost = newest.is_unknown() && matches!(state, Shown::Terminated(_));
        let prior_count = prior.map_or(0, |prior| prior.restart_count);
        let was_counted = prior.is_some_and(|prior| prior.id.as_ref() == Some(&newest.id) && !prior.is_running());
        let count = match (is_lost, was_counted) {
            (true, false) => prior_count.max(newest.attempt) + 1,
            (true, true) | (false, _) => prior_count.max(newest.attempt),
        };
        let count = self.counted_on(count, &state, prior);
        ContainerView {
            name: container.name.clone(),
            image: newest.image.clone(),
            image_id: newest.image_id.clone(),
            id: Some(newest.id.clone()),
            state,
            last: second.and_then(termination).or_else(|| remembered_last(newest, prior)),
            restart_count: count,
            is_ready: false,
            is_started: false,
            stop_signal: self.stop_signal(container, newest),
            user: newest.user.clone(),
            size: None,
        }
    }

    /// LC-067.
    fn show(&self, instance: &Instance, prior: Option<&ContainerView>) -> Shown {
        match &instance.state {
            InstanceState::Running { started_at } => Shown::Running { started_at: *started_at },
            InstanceState::Created => Shown::Waiting(self.waiting_before(prior)),
            InstanceState::Exited { .. } => Shown::Terminated(termination(instance).unwrap_or_default()),
            InstanceState::Unknown => {
                let same = prior.filter(|prior| prior.id.as_ref() == Some(&instance.id));
                match same.map(|prior| &prior.state) {
                    Some(Shown::Running { .. }) => Shown::Terminated(self.given_up(instance)),
                    // Once given up, an instance stays so, also while its successor cannot start.
                    Some(Shown::Terminated(end)) => Shown::Terminated(end.clone()),
                    Some(Shown::Waiting(_)) | None => {
                        let given_up =
                            same.and_then(|prior| prior.last.clone()).filter(|end| end.id == Some(instance.id.clone()));
                        given_up.map_or_else(|| Shown::Waiting(self.waiting_before(prior)), Shown::Terminated)
                    }
                }
            }
        }
    }

    /// It ran, and now nobody can say what became of it.
    fn given_up(&self, instance: &Instance) -> Termination {
        let message = "The container could not be located when the pod was terminated";
        let mut end = lost(message, Some(instance.id.clone()));
        if self.state.is_restarting_all() {
            terminated::RESTARTING_ALL_CONTAINERS.clone_into(&mut end.reason);
        }
        end
    }

    /// LC-076: what runs again after its remains were removed counts on.
    fn counted_on(&self, count: u32, state: &Shown, prior: Option<&ContainerView>) -> u32 {
        let is_again = matches!(state, Shown::Running { .. })
            && self.state.rules.restart_all_containers
            && prior.is_some_and(|prior| prior.termination().is_some() && count <= prior.restart_count);
        if is_again { count + 1 } else { count }
    }

    /// LC-084, TC-077: what the runtime says, else what it was told.
    fn stop_signal(&self, container: &ContainerSpec, instance: &Instance) -> Option<String> {
        let told = || container.handlers.stop_signal.clone();
        instance.stop_signal.clone().or_else(told).filter(|_| self.state.rules.container_stop_signals)
    }

    /// LC-077, LC-078. LC-079: a regular init container is ready once it
    /// succeeded. LC-080: an ephemeral one never is.
    pub(crate) fn mark_started_and_ready(&self, container: &ContainerSpec, view: &mut ContainerView) {
        let newest = self.seen.newest_of(&container.name).filter(|newest| view.id.as_ref() == Some(&newest.id));
        let shown = newest.filter(|_| view.is_running());
        view.is_started = shown.is_some_and(|instance| self.state.is_started(container, instance));
        view.is_ready = match container.role {
            Role::Init => view.termination().is_some_and(|end| end.code == 0),
            Role::Sidecar | Role::App => shown.is_some_and(|instance| self.state.is_ready(container, instance)),
            Role::Ephemeral => false,
        };
    }

    /// LC-068.
    fn apply_failure(&self, container: &ContainerSpec, view: &mut ContainerView) {
        if self.state.stage != Stage::Syncing || !self.state.should_start(container, self.seen) {
            return;
        }
        let is_wanted = self.wanted.contains(&container.name);
        let waiting = if is_wanted {
            self.state.waiting(container, self.now)
        } else {
            self.state.attempts.failure(&container.name).cloned()
        };
        let Some(waiting) = waiting else { return };
        let ended_well = view.termination().is_some_and(|end| end.code == 0);
        if matches!(container.role, Role::Init | Role::Sidecar) && ended_well {
            return;
        }
        if let Shown::Terminated(end) = std::mem::replace(&mut view.state, Shown::Waiting(waiting)) {
            view.last = Some(end);
        }
    }

    /// LC-094.
    fn limit_messages(&self, view: &mut ContainerView) {
        let limit = MESSAGE_BYTES_MAX / self.state.spec.all_containers().count().max(1);
        let state = match &mut view.state {
            Shown::Terminated(end) => Some(end),
            Shown::Waiting(_) | Shown::Running { .. } => None,
        };
        for end in state.into_iter().chain(view.last.as_mut()) {
            end.message.truncate(text::cut(&end.message, limit).len());
        }
    }
}

impl PodState {
    /// What ran in the old one says nothing about the next.
    pub(crate) fn gets_new_sandbox(&self) -> bool {
        let is_there = self.has_usable_sandbox() || self.stage != Stage::Syncing;
        !is_there && (self.work.is_creating_sandbox() || matches!(self.course(), Course::NewSandbox(_)))
    }

    /// LC-196: an instance that was killed for a new definition is shown as it was
    /// until its successor runs or has failed to, as upstream does, but not for
    /// longer than this.
    pub(crate) fn replaced_for(&self, container: &ContainerSpec, now: Now) -> Option<Duration> {
        let shown = self.shown.container(&container.name).filter(|shown| shown.is_running())?;
        let seen = self.seen.as_ref().filter(|_| self.stage == Stage::Syncing)?;
        // The successor may be there already, but not run.
        let killed = seen.instances_of(&container.name).find(|instance| !instance.is_created())?;
        let is_old = shown.id.as_ref() == Some(&killed.id)
            && !is_spec_hash(&killed.spec_hash, &container.name, &container.image)
            && self.kills.get(&killed.id).is_some_and(|kill| kill.restarts)
            && self.attempts.failure(&container.name).is_none();
        let since = now.wall.duration_since(killed.exit().filter(|_| is_old)?.finished_at).unsigned_abs();
        REPLACEMENT_MAX.checked_sub(since).filter(|rest| !rest.is_zero())
    }
}

pub(crate) fn lost(message: &str, id: Option<String>) -> Termination {
    Termination {
        id,
        code: EXIT_CODE_LOST,
        reason: terminated::CONTAINER_STATUS_UNKNOWN.to_owned(),
        message: message.to_owned(),
        started_at: None,
        finished_at: None,
    }
}

fn termination(instance: &Instance) -> Option<Termination> {
    match &instance.state {
        InstanceState::Exited { started_at, finished_at, code, reason, message } => Some(Termination {
            id: Some(instance.id.clone()),
            code: *code,
            reason: reason.clone(),
            message: message.clone(),
            started_at: *started_at,
            finished_at: Some(*finished_at),
        }),
        InstanceState::Created | InstanceState::Running { .. } | InstanceState::Unknown => None,
    }
}

/// LC-095 may have removed the second newest; it stays visible.
fn remembered_last(newest: &Instance, prior: Option<&ContainerView>) -> Option<Termination> {
    let prior = prior?;
    let is_other = |end: &&Termination| end.id.as_ref() != Some(&newest.id);
    prior.termination().filter(is_other).or(prior.last.as_ref().filter(is_other)).cloned()
}
