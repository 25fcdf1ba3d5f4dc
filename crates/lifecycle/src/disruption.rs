//! What the node decided against a pod: not to run it, or to end it (LC-026).
//!
//! Decides: the grace such an end leaves, and the reason, message and
//! `DisruptionTarget` it leaves behind (LC-101, LC-121, LC-301).
//! Never: decides who is chosen (`node` does).

use std::time::Duration;

use ambient::{Mono, Now};
use objects::reasons::{event, pod as reasons};

use crate::action::Cause;
use crate::limits::{GRACE_MIN, KILL_WAIT_MIN};
use crate::node::{Eviction, EvictionCause, Rejection};
use crate::state::{PodState, Severity, Stage};
use crate::view::Phase;

/// Why the node ends a pod that nobody deleted, and what it shows for it once
/// it stopped (LC-046, LC-301). The first such decision counts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub(crate) cause: Cause,
    /// `status.reason` and `status.message`; the phase is `Failed`.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Less than what the pod asks for.
    pub(crate) grace: Option<Duration>,
    pub(crate) by: Ender,
    since: Mono,
    /// TC-252: it had already succeeded when the node began to shut down.
    had_succeeded: bool,
    is_overdue_told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ender {
    /// `activeDeadlineSeconds`
    Deadline,
    Admission,
    Eviction(EvictionCause),
}

impl Ending {
    pub(crate) fn new(by: Ender, cause: Cause, reason: &str, message: String, now: Now) -> Self {
        Self {
            cause,
            reason: reason.to_owned(),
            message,
            grace: None,
            by,
            since: now.mono,
            had_succeeded: false,
            is_overdue_told: false,
        }
    }

    /// A shutdown leaves a success alone.
    pub(crate) fn applies_to(&self, computed: Phase) -> bool {
        !(self.had_succeeded && computed == Phase::Succeeded)
    }

    /// LC-121: what a pod brought upon itself is no disruption (TC-205).
    pub(crate) fn disruption_message(&self) -> Option<String> {
        match self.by {
            Ender::Deadline | Ender::Admission | Ender::Eviction(EvictionCause::StorageLimit) => None,
            Ender::Eviction(EvictionCause::Preemption) => {
                Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned())
            }
            Ender::Eviction(EvictionCause::Pressure | EvictionCause::StorageLost | EvictionCause::Shutdown) => {
                Some(self.message.clone())
            }
        }
    }

    /// LC-095, TC-241: what an evicted pod leaves behind goes at once.
    pub(crate) fn clears_remains(&self) -> bool {
        match self.by {
            Ender::Deadline | Ender::Admission | Ender::Eviction(EvictionCause::Shutdown) => false,
            Ender::Eviction(
                EvictionCause::Pressure
                | EvictionCause::StorageLimit
                | EvictionCause::StorageLost
                | EvictionCause::Preemption,
            ) => true,
        }
    }

    /// LC-292, TC-049: how long a kill that the node ordered may take before
    /// someone is told.
    fn overdue_at(&self, own: Duration) -> Option<Mono> {
        match self.by {
            Ender::Deadline | Ender::Admission => None,
            Ender::Eviction(_) => Some(self.since + KILL_WAIT_MIN.max(self.grace.unwrap_or(own).mul_f64(1.5))),
        }
    }
}

impl PodState {
    /// TC-260. TC-277: a pod that runs already (agent restart) ends like an orphan.
    pub(crate) fn on_rejected(&mut self, rejection: &Rejection, now: Now) {
        if self.ending.is_some() || self.stage != Stage::Syncing {
            return;
        }
        let Rejection { reason, message } = rejection;
        self.event(Severity::Warning, reason.clone(), message.clone(), None);
        let cause = Cause::new("LC-372", format!("the node rejects the pod: {reason}"));
        let mut ending = Ending::new(Ender::Admission, cause, reason, format!("Pod was rejected: {message}"), now);
        ending.grace = Some(GRACE_MIN);
        self.ending = Some(ending);
    }

    pub(crate) fn on_evicted(&mut self, eviction: Eviction, now: Now) {
        if self.is_stopped() {
            return;
        }
        let Eviction { cause: why, message, grace, annotations } = eviction;
        if let Some(ending) = &mut self.ending {
            ending.grace = [ending.grace, grace].into_iter().flatten().min();
            return;
        }
        let event = match why {
            EvictionCause::Pressure | EvictionCause::StorageLimit | EvictionCause::StorageLost => Some(event::EVICTED),
            EvictionCause::Preemption => Some(event::PREEMPTING),
            EvictionCause::Shutdown => None,
        };
        if let Some(reason) = event {
            self.event_with(Severity::Warning, reason, message.clone(), None, annotations);
        }
        let (cause, reason) = words(why);
        let mut ending = Ending::new(Ender::Eviction(why), cause, reason, message, now);
        ending.grace = grace;
        ending.had_succeeded = why == EvictionCause::Shutdown && self.computed_phase() == Phase::Succeeded;
        self.ending = Some(ending);
    }

    /// TC-049: when the world is told that the end takes too long.
    pub(crate) fn overdue_kill_at(&self) -> Option<Mono> {
        let is_dying = matches!(self.stage, Stage::Terminating(_));
        let ending = self.ending.as_ref().filter(|ending| is_dying && !ending.is_overdue_told)?;
        ending.overdue_at(self.spec.grace)
    }

    /// LC-292, TC-049: told once; whoever kills goes on trying.
    pub(crate) fn note_overdue_kill(&mut self, now: Now) {
        if self.overdue_kill_at().is_none_or(|at| at > now.mono) {
            return;
        }
        if let Some(ending) = &mut self.ending {
            ending.is_overdue_told = true;
            let message = "Container runtime did not kill the pod within specified grace period.".to_owned();
            self.event(Severity::Warning, event::EXCEEDED_GRACE_PERIOD, message, None);
        }
    }

    /// The status shows nothing but the rejection (LC-101): nothing ever ran.
    pub(crate) fn is_turned_away(&self) -> bool {
        let is_rejected = match &self.ending {
            Some(ending) => ending.by == Ender::Admission,
            None => self.was_turned_away(),
        };
        let has_nothing = self.seen.as_ref().is_some_and(|seen| seen.instances.is_empty());
        is_rejected && has_nothing && self.is_stopped() && self.shown.has_never_run()
    }
}

impl PodState {
    /// By an earlier agent: it said why, and no word about containers.
    fn was_turned_away(&self) -> bool {
        let published = &self.spec.published;
        let tells_nothing = published.init.is_empty() && published.apps.is_empty();
        published.phase == Phase::Failed && !published.reason.is_empty() && tells_nothing
    }
}

/// The rule and `status.reason` (LC-301).
fn words(why: EvictionCause) -> (Cause, &'static str) {
    match why {
        EvictionCause::Pressure => (Cause::new("TC-240", "the node is low on resources"), reasons::EVICTED),
        EvictionCause::StorageLimit => {
            (Cause::new("TC-242", "the pod exceeds a local storage limit"), reasons::EVICTED)
        }
        EvictionCause::StorageLost => (Cause::new("LC-165", "the storage of the pod is lost"), reasons::EVICTED),
        EvictionCause::Preemption => (Cause::new("TC-246", "a critical pod needs the room"), reasons::PREEMPTING),
        EvictionCause::Shutdown => (Cause::new("TC-252", "the node shuts down"), reasons::TERMINATED),
    }
}
