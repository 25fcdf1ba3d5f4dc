//! What is told about a pod: Kubernetes Events (§12) and transitions with
//! their causes.
//!
//! Never: decides what happens; only how it is put.

use std::time::Duration;

use crate::action::{Action, Cause, PullPolicy};
use crate::fact::{Fact, ImageUse, Observation, Outcome, StartStage};
use crate::start::Course;
use crate::state::{Note, PodState, Severity, Stage};
use crate::text;
use crate::view::{ContainerView, Shown, Termination, View};

/// A fact in words, for causes.
pub(crate) fn describe(fact: &Fact, before: Option<&Observation>) -> String {
    match fact {
        Fact::PodChanged(_) => "the pod object changed".to_owned(),
        Fact::PodGone => "the pod object is gone".to_owned(),
        Fact::Observed(seen) => describe_observation(seen, before),
        Fact::Begun(action) => format!("began to {}", describe_action(action)),
        Fact::Ended(action, outcome) => match outcome {
            Outcome::Done | Outcome::Image(_) => format!("done: {}", describe_action(action)),
            Outcome::NoImage { message, .. } | Outcome::NotStarted { message, .. } | Outcome::Failed(message) => {
                format!("failed to {}: {message}", describe_action(action))
            }
        },
    }
}

/// The first difference to the last look says it best.
fn describe_observation(seen: &Observation, before: Option<&Observation>) -> String {
    let old = |id: &str| before.and_then(|before| before.instance(id));
    for instance in &seen.instances {
        if old(&instance.id).is_some_and(|old| old.state == instance.state) {
            continue;
        }
        return match instance.exit() {
            Some(exit) => format!("container {} exited with code {}", instance.name, exit.code),
            None if instance.is_running() => format!("container {} runs", instance.name),
            None => format!("container {} was seen", instance.name),
        };
    }
    if before.is_some_and(|before| before.sandboxes != seen.sandboxes) {
        return "the sandbox changed".to_owned();
    }
    "the runtime was observed".to_owned()
}

fn describe_action(action: &Action) -> String {
    match action {
        Action::CreateSandbox { attempt } => format!("create sandbox {attempt}"),
        Action::PullImage { container, image, .. } => format!("pull {image} for {container}"),
        Action::StartContainer { container, attempt } => format!("start {container} (attempt {attempt})"),
        Action::KillContainer { container, grace, .. } => {
            format!("kill {container} within {}", text::duration(*grace))
        }
        Action::RemoveContainer { container, .. } => format!("remove a dead {container}"),
        Action::StopSandbox { .. } => "stop the sandbox".to_owned(),
        Action::RemoveSandbox { .. } => "remove the sandbox".to_owned(),
        Action::TearDown => "tear down volumes and cgroup".to_owned(),
        Action::DeleteObject => "delete the object".to_owned(),
    }
}

impl PodState {
    pub(crate) fn note_begun(&mut self, action: &Action) {
        match action {
            // Whether another policy pulls at all is known when it ended.
            Action::PullImage { container, image, policy: PullPolicy::Always } => {
                let message = format!("Pulling image {image:?}");
                self.event(Severity::Normal, "Pulling", message, Some(container));
            }
            // LC-291: once per instance; a re-armed kill is the same kill.
            Action::KillContainer { container, id, .. } if !self.kills.contains_key(id) => {
                let own = self.unwanted(id).map(|unwanted| unwanted.message);
                let message = own.unwrap_or_else(|| format!("Stopping container {container}"));
                self.event(Severity::Normal, "Killing", message, Some(container));
            }
            _ => {}
        }
    }

    pub(crate) fn note_ended(&mut self, action: &Action, outcome: &Outcome) {
        match (action, outcome) {
            (Action::PullImage { container, image, policy }, outcome) => {
                self.note_pull(container, image, *policy, outcome);
            }
            (Action::StartContainer { container, .. }, outcome) => self.note_start(container, outcome),
            // LC-192: not while the pod is being deleted.
            (Action::CreateSandbox { .. }, Outcome::Failed(error)) if self.stage == Stage::Syncing => {
                let message = format!("Failed to create pod sandbox: {error}");
                self.event(Severity::Warning, "FailedCreatePodSandBox", message, None);
            }
            (Action::KillContainer { .. } | Action::StopSandbox { .. }, Outcome::Failed(error)) => {
                self.note_failed_kill(error);
            }
            _ => {}
        }
    }

    /// LC-292.
    pub(crate) fn note_failed_kill(&mut self, error: &str) {
        self.event(Severity::Warning, "FailedKillPod", format!("error killing pod: {error}"), None);
    }

    fn note_pull(&mut self, container: &str, image: &str, policy: PullPolicy, outcome: &Outcome) {
        let is_late = policy == PullPolicy::IfNotPresent;
        match outcome {
            Outcome::Image(ImageUse::Pulled { took_ms, waited_ms, size_bytes }) => {
                if is_late {
                    self.event(Severity::Normal, "Pulling", format!("Pulling image {image:?}"), Some(container));
                }
                let took = text::duration(Duration::from_millis(*took_ms));
                let total = text::duration(Duration::from_millis(took_ms + waited_ms));
                let message = format!(
                    "Successfully pulled image {image:?} in {took} ({total} including waiting). \
                     Image size: {size_bytes} bytes."
                );
                self.event(Severity::Normal, "Pulled", message, Some(container));
            }
            Outcome::Done | Outcome::Image(ImageUse::AlreadyPresent) => {
                let message =
                    format!("Container image {image:?} already present on machine and can be accessed by the pod");
                self.event(Severity::Normal, "Pulled", message, Some(container));
            }
            Outcome::NoImage { reason, message } => self.note_no_image(container, image, reason, message, is_late),
            Outcome::NotStarted { message, .. } | Outcome::Failed(message) => {
                self.note_no_image(container, image, "ErrImagePull", message, is_late);
            }
        }
    }

    fn note_no_image(&mut self, container: &str, image: &str, reason: &str, message: &str, is_late: bool) {
        match reason {
            "ErrImageNeverPull" => {
                self.event(Severity::Warning, "ErrImageNeverPull", message.to_owned(), Some(container));
            }
            "InvalidImageName" | "ImageInspectError" => {
                self.event(Severity::Warning, "InspectFailed", message.to_owned(), Some(container));
            }
            _ => {
                if is_late {
                    self.event(Severity::Normal, "Pulling", format!("Pulling image {image:?}"), Some(container));
                }
                let failed = format!("Failed to pull image {image:?}: {message}");
                self.event(Severity::Warning, "Failed", failed, Some(container));
            }
        }
        self.event(Severity::Warning, "Failed", format!("Error: {reason}"), Some(container));
    }

    fn note_start(&mut self, container: &str, outcome: &Outcome) {
        let (was_created, error) = match outcome {
            Outcome::Done | Outcome::Image(_) => (true, None),
            Outcome::NotStarted { stage, message } => (*stage == StartStage::Start, Some(message)),
            Outcome::NoImage { message, .. } | Outcome::Failed(message) => (false, Some(message)),
        };
        if was_created {
            self.event(Severity::Normal, "Created", "Container created".to_owned(), Some(container));
        }
        match error {
            Some(error) => self.event(Severity::Warning, "Failed", format!("Error: {error}"), Some(container)),
            None => self.event(Severity::Normal, "Started", "Container started".to_owned(), Some(container)),
        }
    }

    /// LC-189: once for each sandbox that is lost and will be replaced.
    pub(crate) fn note_lost_sandbox(&mut self) {
        let is_lost = self.stage == Stage::Syncing && matches!(self.course(), Course::NewSandbox(_));
        let lost = self.seen.as_ref().and_then(|seen| seen.sandboxes.first()).map(|sandbox| sandbox.id.clone());
        if let Some(id) = lost.filter(|id| is_lost && self.lost_sandbox.as_ref() != Some(id)) {
            let message = "Pod sandbox changed, it will be killed and re-created.".to_owned();
            self.event(Severity::Normal, "SandboxChanged", message, None);
            self.lost_sandbox = Some(id);
        }
    }

    /// Tells every difference between the last view and `self.shown`.
    pub(crate) fn note_changes(&mut self, before: &View, because: &str) {
        let after = self.shown.clone();
        for view in after.init.iter().chain(&after.apps) {
            let old = before.container(&view.name);
            self.note_exit(old, view);
            self.note_waiting(old, view);
            let words = |view: &ContainerView| format!("{} rc={}", view.state, view.restart_count);
            if old.map(words) != Some(words(view)) {
                let was = old.map_or_else(|| "none".to_owned(), words);
                self.transition("LC-066", format!("container {}: {was} → {}", view.name, words(view)), because);
            }
        }
        if before.phase != after.phase {
            let what = format!("phase: {} → {}", before.phase.as_str(), after.phase.as_str());
            self.transition("LC-039", what, because);
        }
        for condition in &after.conditions {
            let was = before.condition(&condition.kind).map_or("none", |old| old.status.as_str());
            if was != condition.status.as_str() {
                let what = format!("{}: {was} → {}", condition.kind, condition.status.as_str());
                self.transition("LC-103", what, because);
            }
        }
    }

    fn transition(&mut self, rule: &'static str, what: String, because: &str) {
        self.note(Note::Transition { what, cause: Cause::new(rule, because) });
    }

    /// LC-167: once per instance, also when its successor already runs.
    fn note_exit(&mut self, before: Option<&ContainerView>, after: &ContainerView) {
        if !self.rules.exit_events {
            return;
        }
        for end in after.termination().into_iter().chain(&after.last) {
            let is_known = |old: &ContainerView| old.termination().into_iter().chain(&old.last).any(|known| known == end);
            let is_same = |old: &ContainerView| {
                old.termination().into_iter().chain(&old.last).any(|known| known.id.is_some() && known.id == end.id)
            };
            if end.id.is_none() || before.is_some_and(|old| is_known(old) || is_same(old)) {
                continue;
            }
            let (severity, reason, message) = exit_event(&after.name, end);
            self.event(severity, reason, message, Some(&after.name));
        }
    }

    /// LC-174, LC-181: when a back-off begins.
    fn note_waiting(&mut self, before: Option<&ContainerView>, after: &ContainerView) {
        let Shown::Waiting(waiting) = &after.state else { return };
        if before.is_some_and(|old| old.state == after.state) {
            return;
        }
        match waiting.reason.as_str() {
            "CrashLoopBackOff" => {
                let message =
                    format!("Back-off restarting failed container {} in pod {}", after.name, self.spec.full_name());
                self.event(Severity::Warning, "BackOff", message, Some(&after.name));
            }
            "ImagePullBackOff" => {
                let image = self.spec.container(&after.name).map(|container| container.image.clone());
                let message = format!("Back-off pulling image {:?}", image.unwrap_or_default());
                self.event(Severity::Normal, "BackOff", message, Some(&after.name));
                self.event(Severity::Warning, "Failed", "Error: ImagePullBackOff".to_owned(), Some(&after.name));
            }
            _ => {}
        }
    }
}

fn exit_event(name: &str, end: &Termination) -> (Severity, &'static str, String) {
    match (end.reason.as_str(), end.code) {
        ("OOMKilled", _) => (Severity::Warning, "ContainerOOMKilled", format!("Container {name} was OOM killed")),
        (_, 0) => (Severity::Normal, "ContainerCompleted", format!("Container {name} completed")),
        (reason, code) => {
            let message = format!("Container {name} failed with exit code {code}: {reason}");
            (Severity::Warning, "ContainerFailed", message)
        }
    }
}
