//! How a pod dies: grace periods, stop signals, their order, and cleaning up.
//!
//! Decides: when a pod starts to terminate, who gets the stop signal when, how
//! long until KILL, and what is removed in which order.
//! Never: talks to a runtime (kubelet does), reads a clock (`now` comes in).
//! Read next: `derive.rs`, which shows the resulting stage to the world.
//!
//! Invariants, checked in `tests/props.rs`:
//! 1. A deadline only ever moves earlier.
//! 2. Once terminating, no container of this UID is started again.
//! 3. Within the grace period, sidecars outlive the last app container.

use std::time::Duration;

use ambient::{Mono, Now};
use objects::reasons::{event, pod as reasons};

use crate::action::{Action, Cause};
use crate::disruption::{Ender, Ending};
use crate::fact::Instance;
use crate::kill::Terms;
use crate::limits::{GRACE_MIN, KILL_WINDOW_MIN};
use crate::plan::Draft;
use crate::start::Course;
use crate::state::{PodState, Severity, Stage};
use crate::view::{ContainerView, View};

/// The stopping of a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shutdown {
    pub(crate) cause: Cause,
    since: Mono,
    /// LC-012: only ever shrinks.
    grace: Duration,
    /// When the grace period is over: `since + grace`, but never in the past
    /// of the moment it was shortened.
    pub(crate) deadline: Mono,
    /// TC-093: a forced deletion in the middle still leaves two seconds.
    kill_not_before: Mono,
    /// TC-058, DEC-15: a grace of 0 was asked for.
    is_forced: bool,
}

/// What remains to be done once everything stopped.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Cleanup {
    /// The final container states are recorded; later looks at an emptied
    /// runtime change nothing.
    pub(crate) is_sealed: bool,
    pub(crate) is_torn_down: bool,
    pub(crate) is_object_deleted: bool,
}

impl Shutdown {
    fn new(cause: Cause, grace: Duration, now: Now) -> Self {
        let is_forced = grace.is_zero();
        let grace = grace.max(GRACE_MIN);
        let (since, deadline) = (now.mono, now.mono + if is_forced { Duration::ZERO } else { grace });
        Self { cause, since, grace, deadline, kill_not_before: since, is_forced }
    }

    /// LC-012, TC-047: takes effect at once and never reaches into the past.
    fn shorten(&mut self, asked: Duration, now: Now) {
        let grace = asked.max(GRACE_MIN);
        if asked.is_zero() && !self.is_forced {
            self.is_forced = true;
            self.deadline = now.mono;
        }
        if grace >= self.grace {
            return;
        }
        self.grace = grace;
        self.deadline = self.deadline.min((self.since + grace).max(now.mono));
        if asked.is_zero() {
            self.kill_not_before = now.mono + KILL_WINDOW_MIN;
        }
    }

    /// What one container is given of it.
    pub(crate) fn terms(&self, must_wait: bool) -> Terms {
        Terms {
            since: self.since,
            grace: self.grace,
            runs_hook: !self.is_forced,
            deadline: self.deadline,
            kill_not_before: self.kill_not_before,
            must_wait,
        }
    }
}

impl PodState {
    /// LC-008, TC-040, TC-042: goes forward as far as the facts allow, never back.
    /// TC-122: so that not even a sidecar starts again.
    pub(crate) fn advance_stage(&mut self, now: Now) {
        if self.stage == Stage::Syncing
            && let Some(cause) = self.termination_trigger()
        {
            self.stage = Stage::Terminating(Shutdown::new(cause, self.requested_grace(), now));
            self.announce_kills();
        }
        let requested = self.requested_grace();
        let has_stopped = self.has_stopped();
        if let Stage::Terminating(shutdown) = &mut self.stage {
            shutdown.shorten(requested, now);
            // LC-016: at once, if nothing was ever started.
            if has_stopped {
                self.stage = Stage::Terminated(Cleanup::default());
            }
        }
    }

    /// LC-365: when the pod will have been active for too long, on our own time
    /// scale.
    pub(crate) fn active_until(&self, now: Now) -> Option<Mono> {
        let started_at = self.shown.start_time.filter(|_| self.stage == Stage::Syncing)?;
        self.spec.active_deadline.map(|limit| now.mono_of(started_at) + limit)
    }

    pub(crate) fn is_overdue(&self, now: Now) -> bool {
        self.ending.is_none() && self.active_until(now).is_some_and(|at| at <= now.mono)
    }

    /// LC-365, TC-264: time alone can end a pod.
    pub(crate) fn end_if_overdue(&mut self, now: Now) {
        if !self.is_overdue(now) {
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline".to_owned();
        self.event(Severity::Normal, event::DEADLINE_EXCEEDED, message.clone(), None);
        let cause = Cause::new("LC-365", "activeDeadlineSeconds passed since the pod started");
        self.ending = Some(Ending::new(Ender::Deadline, cause, reasons::DEADLINE_EXCEEDED, message, now));
    }

    /// LC-009, TC-038, TC-041.
    fn termination_trigger(&self) -> Option<Cause> {
        if let Some(ending) = &self.ending {
            return Some(ending.cause.clone());
        }
        if self.is_gone {
            return Some(Cause::new("LC-009", "the pod vanished from the API"));
        }
        if self.spec.deletion.is_some() {
            return Some(Cause::new("LC-282", "the pod is marked for deletion"));
        }
        // LC-381, TC-101, TC-147: where nothing runs any more, only cleaning up is left.
        let published = self.spec.published.phase;
        if published.is_terminal() {
            return Some(Cause::new("TC-146", format!("the API shows phase {}", published.as_str())));
        }
        match self.course() {
            Course::End(cause) => Some(cause),
            Course::Wait | Course::NewSandbox(_) | Course::Containers { .. } | Course::RestartAll { .. } => None,
        }
    }

    /// TC-045: what the deletion says, else what the spec says (TC-046, LC-293: of
    /// a pod that ended by itself; TC-095, LC-299: of one that just vanished).
    /// LC-290, TC-099, TC-280: never what an earlier agent left of it.
    fn requested_grace(&self) -> Duration {
        let deletion = self.spec.deletion.as_ref().and_then(|deletion| deletion.grace);
        let ending = self.ending.as_ref().and_then(|ending| ending.grace);
        // TC-239, TC-251: the node may leave less, never more.
        let own = deletion.unwrap_or(self.spec.grace);
        ending.map_or(own, |grace| grace.min(own))
    }

    /// LC-011, TC-044: nothing runs, nothing holds the network, nothing is on its
    /// way; for a pod that never began that is so at once.
    fn has_stopped(&self) -> bool {
        let has_sandbox = self.seen.iter().flat_map(|seen| &seen.sandboxes).any(|sandbox| sandbox.is_ready);
        !has_sandbox && self.alive().next().is_none() && !self.work.is_creating()
    }

    /// LC-013: the API knows the end, and every exit code, before the runtime
    /// forgets them; a phase that others wrote is not enough.
    fn is_recorded(&self) -> bool {
        let (shown, published) = (&self.shown, &self.spec.published);
        let code = |view: &View, name: &str| view.container(name)?.termination().map(|end| end.code);
        let is_told = |view: &ContainerView| code(shown, &view.name) == code(published, &view.name);
        published.phase.is_terminal() && shown.containers().all(is_told)
    }

    pub(crate) fn on_torn_down(&mut self) {
        if let Stage::Terminated(cleanup) = &mut self.stage {
            cleanup.is_torn_down = true;
        }
    }

    pub(crate) fn on_object_deleted(&mut self) {
        if let Stage::Terminated(cleanup) = &mut self.stage {
            cleanup.is_object_deleted = true;
        }
    }
}

/// LC-283, TC-080: kill all running instances, then stop the sandbox. TC-100:
/// what ended is left alone.
pub(crate) fn plan_stop(draft: &mut Draft<'_>, shutdown: &Shutdown) {
    let state = draft.state;
    if let Some(at) = state.overdue_kill_at() {
        draft.wake(at);
    }
    // LC-284, TC-050: all at once, except for those whose turn has not come.
    for instance in state.alive() {
        draft.stop(instance, &shutdown.terms(state.must_wait(instance)), shutdown.cause.clone());
    }
    // LC-287: the sandbox goes after the last process.
    if state.alive().next().is_none() && !state.work.is_creating() {
        let because = "no container of the pod runs any more";
        stop_sandboxes(draft, &Cause::new("TC-065", because));
    }
}

pub(crate) fn stop_sandboxes(draft: &mut Draft<'_>, cause: &Cause) {
    for sandbox in draft.state.seen.iter().flat_map(|seen| &seen.sandboxes).filter(|sandbox| sandbox.is_ready) {
        draft.act(Action::StopSandbox { id: sandbox.id.clone() }, cause.clone());
    }
}

/// LC-013, LC-278, TC-086: what a pod leaves behind goes when the pod is deleted, or
/// evicted (TC-241): its directories, then dead containers, then the object.
pub(crate) fn plan_cleanup(draft: &mut Draft<'_>, cleanup: &Cleanup) {
    let state = draft.state;
    // TC-091, LC-027: until then logs are read and volumes belong to the UID.
    let is_evicted = state.ending.as_ref().is_some_and(Ending::clears_remains);
    if !state.is_gone && state.spec.deletion.is_none() && !is_evicted {
        return;
    }
    // LC-013, TC-102, TC-143: the end is on record before anything is forgotten;
    // what an agent decided and could not tell, the next one finds out again.
    if !state.is_gone && !state.is_recorded() {
        return;
    }
    if !cleanup.is_torn_down {
        draft.act(Action::TearDown, Cause::new("LC-013", "every container of the pod has stopped"));
        return;
    }
    let Some(seen) = &state.seen else { return };
    let because = if state.is_gone { "the pod is gone from the API" } else { "the API shows the terminal phase" };
    for sandbox in &seen.sandboxes {
        draft.act(Action::RemoveSandbox { id: sandbox.id.clone() }, Cause::new("TC-091", because));
    }
    let is_stray = |instance: &&Instance| !seen.sandboxes.iter().any(|sandbox| sandbox.id == instance.sandbox);
    for stray in seen.instances.iter().filter(is_stray) {
        draft.remove(stray, Cause::new("TC-091", because));
    }
    let is_clean = seen.sandboxes.is_empty() && seen.instances.is_empty();
    // LC-357: a static pod's object is its mirror, which others remove.
    let is_deleted = state.spec.deletion.is_some() && !state.spec.is_static;
    if is_clean && !state.is_gone && is_deleted && !cleanup.is_object_deleted {
        draft.act(Action::DeleteObject, Cause::new("LC-278", "the pod is stopped, recorded and cleaned up"));
    }
}
