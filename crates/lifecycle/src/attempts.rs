//! Attempts to start containers: what went wrong, what is held back, until when.
//!
//! Decides: the restart back-off (LC-129, LC-168…LC-177), whoever's policy asks
//! for the restart (LC-140), the image pull back-off (LC-181) and the Waiting reason of a container that could not start yet.
//! Never: decides which container should start (`start.rs` does).

use ambient::{Mono, Now};
use objects::reasons::waiting;

use crate::backoff::{Curve, Delays, Hold};
use crate::fact::{Observation, StartStage};
use crate::limits::{PULL_DELAY_INITIAL, PULL_DELAY_MAX, PULL_ERROR_SHOWN, RETRY_AFTER};
use crate::resources::Demand;
use crate::spec::{ContainerSpec, ImageSpec};
use crate::state::PodState;
use crate::table::Table;
use crate::text;
use crate::view::Waiting;

/// LC-177, TC-276: in memory only; an agent restart forgets it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Attempts {
    /// LC-069: the start-failure cache, by container. Bounded by the spec.
    failures: Table<String, Failure>,
    /// The highest number an instance of each container was seen with: none is
    /// given twice, even if the runtime forgets. Bounded by the spec.
    used: Table<String, u32>,
    /// For which attempt which images are known to be here. Bounded by the spec.
    pulled: Table<String, (u32, Vec<ImageSpec>)>,
    restarts: Delays<RestartKey>,
    /// LC-181: by image. With the policy, because a container that may use a
    /// present image must not wait for another's pull.
    pulls: Delays<ImageSpec>,
    /// The last error of each pull, for the back-off message.
    pull_errors: Table<ImageSpec, String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Failure {
    waiting: Waiting,
    at: Mono,
    /// Retries that have no back-off wait at least until then.
    retry_at: Mono,
}

/// LC-173: what resets the delay when it changes. (The pod is implied.)
type RestartKey = (String, String, Demand);

impl Attempts {
    pub(crate) fn on_seen(&mut self, seen: &Observation) {
        // What was only created is replaced, not restarted.
        for instance in seen.instances.iter().filter(|instance| !instance.is_created()) {
            match self.used.get_mut(&instance.name) {
                Some(used) => *used = instance.attempt.max(*used),
                None => drop(self.used.insert(instance.name.clone(), instance.attempt)),
            }
        }
    }

    /// The lowest number that no instance was seen with.
    pub(crate) fn unused(&self, container: &str) -> u32 {
        self.used.get(container).map_or(0, |used| used + 1)
    }

    /// LC-194, LC-315: the first image that was not ensured for this very attempt.
    pub(crate) fn lacks_image(&self, container: &ContainerSpec, attempt: u32) -> Option<ImageSpec> {
        let pulled = self.pulled.get(&container.name).filter(|(of, _)| *of == attempt);
        container.images().find(|image| !pulled.is_some_and(|(_, images)| images.contains(image)))
    }

    pub(crate) fn on_pulled(&mut self, container: &str, attempt: u32, image: ImageSpec) {
        match self.pulled.get_mut(container) {
            Some((of, images)) if *of == attempt => {
                // An image that the spec named before may be among them.
                images.retain(|known| *known != image);
                images.push(image);
            }
            _ => drop(self.pulled.insert(container.to_owned(), (attempt, vec![image]))),
        }
    }

    /// Whether the registry said no (back-off) or we did not get that far.
    pub(crate) fn on_pull_failed(&mut self, container: &str, image: ImageSpec, waiting: Waiting, now: Now) {
        let is_local = matches!(
            waiting.reason.as_str(),
            waiting::ERR_IMAGE_NEVER_PULL | waiting::INVALID_IMAGE_NAME | waiting::IMAGE_INSPECT_ERROR
        );
        if !is_local {
            let curve = Curve::new(PULL_DELAY_INITIAL, PULL_DELAY_MAX);
            self.pull_errors.insert(image.clone(), format!("{}: {}", waiting.reason, waiting.message));
            self.pulls.advance(image, now.mono, curve, now.mono);
        }
        // LC-183: other failures come back at the sync-error cadence.
        let retry_at = if is_local { now.mono + RETRY_AFTER } else { now.mono };
        self.failures.insert(container.to_owned(), Failure { waiting, at: now.mono, retry_at });
    }

    pub(crate) fn on_start_failed(&mut self, container: &str, stage: StartStage, message: &str, now: Now) {
        let reason = match stage {
            StartStage::Configure => waiting::CREATE_CONTAINER_CONFIG_ERROR,
            StartStage::Create => waiting::CREATE_CONTAINER_ERROR,
            StartStage::Start => waiting::RUN_CONTAINER_ERROR,
        };
        let waiting = Waiting { reason: reason.to_owned(), message: message.to_owned() };
        let failure = Failure { waiting, at: now.mono, retry_at: now.mono + RETRY_AFTER };
        self.failures.insert(container.to_owned(), failure);
    }

    /// LC-233: the back-off follows from the exit.
    pub(crate) fn on_hook_failed(&mut self, container: &str, message: &str, now: Now) {
        let waiting = Waiting { reason: waiting::POST_START_HOOK_ERROR.to_owned(), message: message.to_owned() };
        self.failures.insert(container.to_owned(), Failure { waiting, at: now.mono, retry_at: now.mono });
    }

    /// LC-069: success removes the entry.
    pub(crate) fn on_started(&mut self, container: &str) {
        self.failures.remove(container);
        self.pulled.remove(container);
    }

    fn remember(&mut self, container: &str, waiting: Waiting, now: Now) {
        let retry_at = self.failures.get(container).map_or(now.mono, |failure| failure.retry_at);
        self.failures.insert(container.to_owned(), Failure { waiting, at: now.mono, retry_at });
    }

    pub(crate) fn failure(&self, container: &str) -> Option<&Waiting> {
        self.failures.get(container).map(|failure| &failure.waiting)
    }
}

impl PodState {
    /// The earliest moment of the next attempt, if that is not now.
    pub(crate) fn held_until(&self, container: &ContainerSpec, now: Now) -> Option<Mono> {
        let retry_at = self.attempts.failures.get(&container.name).map(|failure| failure.retry_at);
        let holds = [
            self.restart_hold(container, now).map(|hold| hold.until),
            self.pull_hold(container, now).map(|(_, hold)| hold.until),
            retry_at.filter(|at| *at > now.mono),
        ];
        holds.into_iter().flatten().max()
    }

    /// When the Waiting reason changes by itself.
    pub(crate) fn reason_changes_at(&self, container: &ContainerSpec, now: Now) -> Option<Mono> {
        let failure = self.attempts.failures.get(&container.name)?;
        let shown_until = self.pull_hold(container, now).map_or(failure.retry_at, |_| failure.at + PULL_ERROR_SHOWN);
        (shown_until > now.mono).then_some(shown_until)
    }

    /// Why a container that should start does not run yet (LC-068). A failure
    /// shows first; then the back-off, if it lasts longer.
    pub(crate) fn waiting(&self, container: &ContainerSpec, now: Now) -> Option<Waiting> {
        let failure = self.attempts.failures.get(&container.name);
        let is_fresh = self.reason_changes_at(container, now).is_some();
        let remembered = || failure.map(|failure| failure.waiting.clone());
        if is_fresh {
            return remembered();
        }
        if let Some(hold) = self.restart_hold(container, now) {
            return Some(self.crash_loop(container, hold));
        }
        if let Some((held, _)) = self.pull_hold(container, now) {
            let error = self.attempts.pull_errors.get(&held).cloned().unwrap_or_default();
            let message = format!("Back-off pulling image {:?}: {error}", held.image);
            return Some(Waiting { reason: waiting::IMAGE_PULL_BACK_OFF.to_owned(), message });
        }
        remembered()
    }

    /// LC-174.
    fn crash_loop(&self, container: &ContainerSpec, hold: Hold) -> Waiting {
        let (delay, name, pod) = (text::duration(hold.delay), &container.name, self.spec.full_name());
        let message = format!("back-off {delay} restarting failed container={name} pod={pod}");
        Waiting { reason: waiting::CRASH_LOOP_BACK_OFF.to_owned(), message }
    }

    /// LC-005: a back-off shows for its whole duration, and until the attempt
    /// that follows it has an outcome.
    pub(crate) fn remember_waiting(&mut self, wanted: &[String], now: Now) {
        for name in wanted {
            let Some(container) = self.spec.container(name) else { continue };
            let Some(waiting) = self.waiting(container, now) else { continue };
            if self.attempts.failure(name) != Some(&waiting) {
                let image = self.pull_hold(container, now).map(|(held, _)| held.image);
                self.note_back_off(name, &waiting.reason, &image.unwrap_or_default());
                self.attempts.remember(name, waiting, now);
            }
        }
    }

    /// LC-170: each start after an exit advances the delay.
    pub(crate) fn advance_restart_delay(&mut self, name: &str, now: Now) {
        let Some(container) = self.spec.container(name) else { return };
        let Some(finished_at) = self.last_exit(container) else { return };
        let curve = Curve::new(self.rules.backoff_initial, self.rules.backoff_max);
        let key = restart_key(container);
        self.attempts.restarts.advance(key, finished_at, curve, now.mono);
    }

    /// LC-169: counted from the end of the newest exited instance, LC-130,
    /// LC-175: whatever ended it. The delay that a start under way brought
    /// about is for the one after it.
    fn restart_hold(&self, container: &ContainerSpec, now: Now) -> Option<Hold> {
        if self.work.is_starting(&container.name) {
            return None;
        }
        let finished_at = self.last_exit(container)?;
        self.attempts.restarts.hold_since(&restart_key(container), finished_at, now.mono)
    }

    /// The image a container waits for longest, its own or a volume's.
    fn pull_hold(&self, container: &ContainerSpec, now: Now) -> Option<(ImageSpec, Hold)> {
        let hold = |image: ImageSpec| self.attempts.pulls.hold(&image, now.mono).map(|hold| (image, hold));
        container.images().filter_map(hold).max_by_key(|(_, hold)| hold.until)
    }

    /// What the delay counts from.
    fn last_exit(&self, container: &ContainerSpec) -> Option<Mono> {
        let mut instances = self.seen.as_ref()?.instances_of(&container.name);
        let newest = instances.find(|instance| instance.exit().is_some())?;
        let finished_at = self.exited_at.get(&newest.id).copied()?;
        let Some(kill) = self.kills.get(&newest.id).filter(|kill| kill.restarts) else { return Some(finished_at) };
        // LC-176: one that we killed in order to restart it waits only if the
        // one before it would have made it wait.
        let previous = kill.previous_exit?;
        let hold = self.attempts.restarts.hold_since(&restart_key(container), previous, finished_at);
        Some(if hold.is_some() { finished_at } else { previous })
    }

    /// When the instance before `id` of the same container ended.
    pub(crate) fn exit_before(&self, id: &str) -> Option<Mono> {
        let seen = self.seen.as_ref()?;
        let mut older = seen.instances_of(&seen.instance(id)?.name).skip_while(|instance| instance.id != id).skip(1);
        older.find_map(|instance| self.exited_at.get(&instance.id).copied())
    }
}

fn restart_key(container: &ContainerSpec) -> RestartKey {
    (container.name.clone(), container.image.clone(), container.demand.clone())
}
