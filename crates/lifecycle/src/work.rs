//! Actions in flight, and when an action that did not help may be tried again.

use std::time::Duration;

use ambient::Mono;

use crate::action::Action;
use crate::limits::{NETWORK_RETRY_AFTER, RETRY_AFTER, VOLUME_DELAY_INITIAL, VOLUME_DELAY_MAX, VOLUME_WAIT};
use crate::resources::CgroupValues;
use crate::table::Table;

/// Bounded by what one pod can have in flight.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Work {
    in_flight: Table<Action, Mono>,
    /// LC-004: a failed action is retried by a later step (§1.3), in whatever
    /// variation.
    failed: Table<Action, Mono>,
    /// The very same action again.
    repeated: Table<Action, Mono>,
    volumes: Option<VolumeWait>,
}

/// Volumes could not be set up the last time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct VolumeWait {
    since: Mono,
    delay: Duration,
}

impl Work {
    /// False if it was in flight already: facts may arrive twice.
    pub(crate) fn begin(&mut self, action: &Action, at: Mono) -> bool {
        self.in_flight.insert(action.clone(), at).is_none()
    }

    pub(crate) fn end(&mut self, action: &Action) {
        self.in_flight.remove(action);
    }

    /// Probes and hooks of instances that are gone may never end.
    pub(crate) fn forget_unless(&mut self, is_there: impl Fn(&str) -> bool) {
        let is_stray = |action: &Action| matches!(action, Action::RunProbe { id, .. } | Action::RunHook { id, .. } if !is_there(id));
        self.in_flight.retain(|action, _| !is_stray(action));
    }

    pub(crate) fn hold_after_failure(&mut self, action: &Action, at: Mono) {
        hold(&mut self.failed, family(action), at, RETRY_AFTER);
    }

    /// LC-018: a network comes up by itself.
    pub(crate) fn hold_without_network(&mut self, action: &Action, at: Mono) {
        hold(&mut self.failed, family(action), at, NETWORK_RETRY_AFTER);
    }

    /// LC-182: a growing pause. True when a whole wait for volumes is over (LC-185).
    pub(crate) fn hold_without_volumes(&mut self, action: &Action, at: Mono) -> bool {
        let wait = match self.volumes {
            None => VolumeWait { since: at, delay: VOLUME_DELAY_INITIAL },
            Some(VolumeWait { since, delay }) => VolumeWait { since, delay: (delay * 2).min(VOLUME_DELAY_MAX) },
        };
        hold(&mut self.failed, family(action), at, wait.delay);
        let is_over = at.since(wait.since) >= VOLUME_WAIT;
        self.volumes = Some(if is_over { VolumeWait { since: at, ..wait } } else { wait });
        is_over
    }

    pub(crate) fn on_volumes_mounted(&mut self) {
        self.volumes = None;
    }

    /// An action that ended well and is still wanted did not help: it waits
    /// like one that failed, so that nothing can spin.
    pub(crate) fn hold_repetition(&mut self, action: &Action, at: Mono) {
        hold(&mut self.repeated, action.clone(), at, RETRY_AFTER);
    }

    pub(crate) fn is_in_flight(&self, action: &Action) -> bool {
        self.in_flight.get(action).is_some()
    }

    pub(crate) fn retry_at(&self, action: &Action, now: Mono) -> Option<Mono> {
        let holds = [self.repeated.get(action), self.failed.get(&family(action))];
        holds.into_iter().flatten().copied().filter(|at| *at > now).max()
    }

    pub(crate) fn is_creating_sandbox(&self) -> bool {
        self.any(|action| matches!(action, Action::CreateSandbox { .. }))
    }

    /// LC-193: one pull or start at a time.
    pub(crate) fn is_starting_container(&self) -> bool {
        self.any(|action| matches!(action, Action::PullImage { .. } | Action::StartContainer { .. }))
    }

    /// LC-349: one step at a time.
    pub(crate) fn is_resizing(&self) -> bool {
        self.any(|action| {
            matches!(action, Action::MeasureMemory | Action::UpdateResources { .. } | Action::UpdatePodResources { .. })
        })
    }

    /// Something may still come to life.
    pub(crate) fn is_creating(&self) -> bool {
        self.any(|action| matches!(action, Action::CreateSandbox { .. } | Action::StartContainer { .. }))
    }

    pub(crate) fn is_starting(&self, name: &str) -> bool {
        self.any(|action| matches!(action, Action::StartContainer { container, .. } if container == name))
    }

    pub(crate) fn is_killing(&self, instance: &str) -> bool {
        self.any(|action| matches!(action, Action::KillContainer { id, .. } if id == instance))
    }

    fn any(&self, test: impl Fn(&Action) -> bool) -> bool {
        self.in_flight.keys().any(test)
    }
}

fn hold(holds: &mut Table<Action, Mono>, key: Action, at: Mono, pause: Duration) {
    holds.retain(|_, retry_at| *retry_at > at);
    holds.insert(key, at + pause);
}

/// The action without what changes from try to try.
fn family(action: &Action) -> Action {
    let mut family = action.clone();
    match &mut family {
        Action::CreateSandbox { attempt } | Action::StartContainer { attempt, .. } => *attempt = 0,
        Action::KillContainer { grace, .. } => *grace = Duration::ZERO,
        Action::RunHook { timeout, .. } => *timeout = None,
        Action::UpdateResources { limits, .. } | Action::UpdatePodResources { limits } => {
            *limits = CgroupValues::default();
        }
        Action::PullImage { .. }
        | Action::RunProbe { .. }
        | Action::MeasureMemory
        | Action::RemoveContainer { .. }
        | Action::StopSandbox { .. }
        | Action::RemoveSandbox { .. }
        | Action::TearDown
        | Action::DeleteObject => {}
    }
    family
}
