//! What the node decided against a pod: not to run it, or to end it.
//!
//! Decides: the grace such an end leaves, and the phase, reason, message and
//! `DisruptionTarget` it leaves behind (LC-101, LC-121, LC-301).
//! Never: decides who is chosen (`node` does).

use std::time::Duration;

use ambient::{Mono, Now};
use objects::reasons::{event, pod};

use crate::action::Cause;
use crate::limits::{GRACE_MIN, KILL_WAIT_MIN};
use crate::node::{Eviction, EvictionCause, Rejection};
use crate::state::{PodState, Severity, Stage};
use crate::view::Phase;

/// The first decision counts; a later one may only shorten the grace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Doom {
    why: Why,
    grace: Option<Duration>,
    since: Mono,
    /// TC-252: it had already succeeded when the node began to shut down.
    had_succeeded: bool,
    is_overdue_told: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Why {
    Rejected(Rejection),
    Evicted(Eviction),
}

impl Doom {
    pub(crate) fn cause(&self) -> Cause {
        match &self.why {
            Why::Rejected(rejection) => Cause::new("LC-372", format!("the node rejects the pod: {}", rejection.reason)),
            Why::Evicted(eviction) => match eviction.cause {
                EvictionCause::Pressure => Cause::new("TC-240", "the node is low on resources"),
                EvictionCause::StorageLimit => Cause::new("TC-242", "the pod exceeds a local storage limit"),
                EvictionCause::Preemption => Cause::new("TC-246", "a critical pod needs the room"),
                EvictionCause::Shutdown => Cause::new("TC-252", "the node shuts down"),
            },
        }
    }

    pub(crate) fn grace(&self) -> Option<Duration> {
        self.grace
    }

    /// LC-301: what the status says at the end. A shutdown leaves a success
    /// alone.
    pub(crate) fn ending(&self, computed: Phase) -> Option<(String, String)> {
        if self.had_succeeded && computed == Phase::Succeeded {
            return None;
        }
        Some(match &self.why {
            Why::Rejected(rejection) => (rejection.reason.clone(), format!("Pod was rejected: {}", rejection.message)),
            Why::Evicted(eviction) => (status_reason(eviction.cause).to_owned(), eviction.message.clone()),
        })
    }

    pub(crate) fn rejection(&self) -> Option<&Rejection> {
        match &self.why {
            Why::Rejected(rejection) => Some(rejection),
            Why::Evicted(_) => None,
        }
    }

    /// LC-121: exceeding one's own limits is no disruption.
    pub(crate) fn disruption_message(&self) -> Option<String> {
        match &self.why {
            Why::Rejected(_) => None,
            Why::Evicted(eviction) => match eviction.cause {
                EvictionCause::StorageLimit => None,
                EvictionCause::Preemption => {
                    Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned())
                }
                EvictionCause::Pressure | EvictionCause::Shutdown => Some(eviction.message.clone()),
            },
        }
    }

    /// LC-095, TC-241: what an evicted pod leaves behind goes at once.
    pub(crate) fn clears_remains(&self) -> bool {
        match &self.why {
            Why::Rejected(_) => false,
            Why::Evicted(eviction) => match eviction.cause {
                EvictionCause::Pressure | EvictionCause::StorageLimit | EvictionCause::Preemption => true,
                EvictionCause::Shutdown => false,
            },
        }
    }

    /// TC §14.2: how long a kill may take before someone is told.
    fn overdue_at(&self, own: Duration) -> Mono {
        self.since + KILL_WAIT_MIN.max(self.grace.unwrap_or(own).mul_f64(1.5))
    }
}

fn status_reason(cause: EvictionCause) -> &'static str {
    match cause {
        EvictionCause::Pressure | EvictionCause::StorageLimit => pod::EVICTED,
        EvictionCause::Preemption => pod::PREEMPTING,
        EvictionCause::Shutdown => pod::TERMINATED,
    }
}

impl PodState {
    /// TC-260. A pod that runs already (agent restart) ends like an orphan.
    pub(crate) fn on_rejected(&mut self, rejection: Rejection, now: Now) {
        if self.doom.is_some() || self.stage != Stage::Syncing {
            return;
        }
        self.event(Severity::Warning, rejection.reason.clone(), rejection.message.clone(), None);
        self.doom = Some(Doom::new(Why::Rejected(rejection), Some(GRACE_MIN), now));
    }

    pub(crate) fn on_evicted(&mut self, eviction: Eviction, now: Now) {
        if matches!(self.stage, Stage::Terminated(_)) {
            return;
        }
        let grace = eviction.grace;
        if let Some(doom) = &mut self.doom {
            doom.grace = [doom.grace, grace].into_iter().flatten().min();
            return;
        }
        match eviction.cause {
            EvictionCause::Pressure | EvictionCause::StorageLimit => {
                let (message, annotations) = (eviction.message.clone(), eviction.annotations.clone());
                self.event_with(Severity::Warning, event::EVICTED, message, None, annotations);
            }
            EvictionCause::Preemption => {
                self.event(Severity::Warning, event::PREEMPTING, eviction.message.clone(), None);
            }
            EvictionCause::Shutdown => {}
        }
        let is_shutdown = eviction.cause == EvictionCause::Shutdown;
        let mut doom = Doom::new(Why::Evicted(eviction), grace, now);
        doom.had_succeeded = is_shutdown && self.computed_phase() == Phase::Succeeded;
        self.doom = Some(doom);
    }

    /// LC-305: told once, when the next fact finds the pod still alive.
    pub(crate) fn note_overdue_kill(&mut self, now: Now) {
        let own = self.spec.grace;
        let is_dying = matches!(self.stage, Stage::Terminating(_));
        let Some(doom) = self.doom.as_mut().filter(|doom| is_dying && !doom.is_overdue_told) else { return };
        if now.mono >= doom.overdue_at(own) {
            doom.is_overdue_told = true;
            let message = "Container runtime did not kill the pod within specified grace period.".to_owned();
            self.event(Severity::Warning, event::EXCEEDED_GRACE_PERIOD, message, None);
        }
    }

    /// The status shows nothing but the rejection (LC-101): nothing ever ran.
    pub(crate) fn is_turned_away(&self) -> bool {
        let is_rejected = self.doom.as_ref().is_some_and(|doom| doom.rejection().is_some());
        let has_nothing = self.seen.as_ref().is_some_and(|seen| seen.instances.is_empty());
        is_rejected && has_nothing && matches!(self.stage, Stage::Terminated(_)) && self.shown.has_never_run()
    }
}

impl Doom {
    fn new(why: Why, grace: Option<Duration>, now: Now) -> Self {
        Self { why, grace, since: now.mono, had_succeeded: false, is_overdue_told: false }
    }
}
