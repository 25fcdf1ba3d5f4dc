//! postStart hooks: when they run, and what waits for them.
//!
//! Decides: that a container is not Running for the world before its hook is
//! done (LC-231, LC-232), and that a failed hook ends it (LC-233).
//! Read next: `kill.rs` for preStop.

use ambient::Now;

use crate::action::Cause;
use crate::fact::{Instance, Outcome};
use crate::plan::Draft;
use crate::spec::HookKind;
use crate::state::PodState;

/// How far the postStart hook of an instance is. An instance that an earlier
/// agent started is not in the table: its hook is not run again (LC-228).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostStart {
    Due,
    Running,
    Done,
    Failed,
}

impl PodState {
    /// LC-058: it runs, but its hook is not done (or it is being killed because
    /// the hook failed), so that nobody may know yet.
    pub(crate) fn is_post_starting(&self, instance: &Instance) -> bool {
        if !instance.is_running() || !self.has_hook(instance, HookKind::PostStart) {
            return false;
        }
        match self.post_starts.get(&instance.id) {
            Some(PostStart::Due | PostStart::Running | PostStart::Failed) => true,
            Some(PostStart::Done) => false,
            None => self.work.is_starting(&instance.name),
        }
    }

    pub(crate) fn has_post_starting(&self) -> bool {
        self.seen.iter().flat_map(|seen| &seen.instances).any(|instance| self.is_post_starting(instance))
    }

    pub(crate) fn has_failed_hook(&self, instance: &Instance) -> bool {
        self.post_starts.get(&instance.id) == Some(&PostStart::Failed)
    }

    /// The instance was just started by us.
    pub(crate) fn on_instance_started(&mut self, name: &str, attempt: u32) {
        let newest = self.seen.as_ref().and_then(|seen| seen.newest_of(name));
        let started = newest.filter(|instance| instance.attempt == attempt && instance.is_running());
        if let Some(instance) = started.filter(|instance| self.has_hook(instance, HookKind::PostStart)) {
            self.post_starts.get_or_insert(instance.id.clone(), PostStart::Due);
        }
    }

    pub(crate) fn on_post_start_begun(&mut self, id: &str) {
        if let Some(hook) = self.post_starts.get_mut(id) {
            *hook = PostStart::Running;
        }
    }

    pub(crate) fn on_post_start_ended(&mut self, name: &str, id: &str, outcome: &Outcome, now: Now) {
        let is_running = self.seen.as_ref().and_then(|seen| seen.instance(id)).is_some_and(Instance::is_running);
        let Some(hook) = self.post_starts.get_mut(id).filter(|hook| **hook == PostStart::Running) else { return };
        // H19: a hook whose container is gone decides nothing.
        let failure = if let Outcome::Failed(message) = outcome { Some(message).filter(|_| is_running) } else { None };
        *hook = if failure.is_some() { PostStart::Failed } else { PostStart::Done };
        if is_running {
            self.note_hook_ended(id, HookKind::PostStart, outcome);
        }
        if let Some(message) = failure {
            self.attempts.on_hook_failed(name, message, now);
        }
    }
}

/// LC-231: right after the start.
pub(crate) fn plan_post_starts(draft: &mut Draft<'_>) {
    let state = draft.state;
    for instance in state.alive() {
        if state.post_starts.get(&instance.id) == Some(&PostStart::Due) {
            let because = format!("container {} was started", instance.name);
            draft.run_hook(instance, HookKind::PostStart, None, Cause::new("LC-231", because));
        }
    }
}
