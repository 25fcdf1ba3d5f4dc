//! What is told about a pod: Kubernetes Events (§12) and transitions with
//! their causes.
//!
//! Never: decides what happens; only how it is put.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use ambient::Now;
use objects::reasons::{condition, event, terminated, waiting};

use crate::action::{Action, Cause, PullPolicy};
use crate::fact::{ImageUse, Instance, InstanceState, Lack, MissingVolume, Observation, Outcome, StartStage};
use crate::spec::HookKind;
use crate::start::Course;
use crate::state::{LostSandbox, Note, PodState, Severity, Stage};
use crate::text;
use crate::view::{ContainerView, Shown, Termination, View};

/// What is kept of a fact until it is clear whether there is anything to tell.
#[derive(Debug)]
pub(crate) enum Heard {
    Words(Cow<'static, str>),
    Observed { before: Option<Observation> },
    Begun(Action),
    Ended(Action, Outcome),
}

/// A fact in words, for causes.
pub(crate) struct Because {
    general: String,
    /// What an observation says about single containers.
    by_container: BTreeMap<String, String>,
}

impl Because {
    /// `seen`: by now.
    pub(crate) fn of(heard: &Heard, seen: Option<&Observation>) -> Self {
        let mut by_container = BTreeMap::new();
        let general = match heard {
            Heard::Words(words) => words.clone().into_owned(),
            Heard::Observed { before } => {
                by_container = seen.map(|seen| changed_containers(seen, before.as_ref())).unwrap_or_default();
                by_container.values().next().cloned().unwrap_or_else(|| "the runtime was observed".to_owned())
            }
            Heard::Begun(action) => format!("began to {}", describe_action(action)),
            Heard::Ended(
                action,
                Outcome::Done
                | Outcome::Image(_)
                | Outcome::Probed(_)
                | Outcome::Measured(_)
                | Outcome::FellBackToHttp { .. },
            ) => format!("did {}", describe_action(action)),
            Heard::Ended(action, Outcome::NoImage { message, .. })
            | Heard::Ended(action, Outcome::NotStarted { message, .. } | Outcome::NotPrepared { message, .. })
            | Heard::Ended(action, Outcome::Failed(message)) => {
                format!("failed to {}: {message}", describe_action(action))
            }
        };
        Self { general, by_container }
    }

    fn about(&self, container: &str) -> &str {
        self.by_container.get(container).unwrap_or(&self.general)
    }
}

/// The newest instance of each container that is not as it was.
fn changed_containers(seen: &Observation, before: Option<&Observation>) -> BTreeMap<String, String> {
    let was = |id: &str| before.and_then(|before| before.instance(id)).map(|old| &old.state);
    let mut changed = BTreeMap::new();
    for instance in &seen.instances {
        let is_newest = seen.newest_of(&instance.name).is_some_and(|newest| newest.id == instance.id);
        if is_newest && was(&instance.id) != Some(&instance.state) {
            changed.insert(instance.name.clone(), describe_instance(instance));
        }
    }
    changed
}

fn describe_instance(instance: &Instance) -> String {
    match &instance.state {
        InstanceState::Created => format!("container {} was created", instance.name),
        InstanceState::Running { .. } => format!("container {} runs", instance.name),
        InstanceState::Exited { code, .. } => format!("container {} exited with code {code}", instance.name),
        InstanceState::Unknown => format!("container {} is in an unknown state", instance.name),
    }
}

fn describe_action(action: &Action) -> String {
    match action {
        Action::CreateSandbox { attempt } => format!("create sandbox {attempt}"),
        Action::PullImage { container, image, .. } => format!("pull {image} for {container}"),
        Action::StartContainer { container, attempt } => format!("start {container} (attempt {attempt})"),
        Action::KillContainer { container, grace, .. } => {
            format!("kill {container} within {}", text::duration(*grace))
        }
        Action::RunProbe { container, probe, .. } => format!("run the {probe} probe of {container}"),
        Action::RunHook { container, hook: HookKind::PostStart, .. } => {
            format!("run the postStart hook of {container}")
        }
        Action::RunHook { container, hook: HookKind::PreStop, .. } => format!("run the preStop hook of {container}"),
        Action::MeasureMemory => "measure the memory in use".to_owned(),
        Action::UpdateResources { container, .. } => format!("update the resources of {container}"),
        Action::UpdatePodResources { .. } => "update the resources of the pod".to_owned(),
        Action::RemoveContainer { container, .. } => format!("remove a dead {container}"),
        Action::StopSandbox { .. } => "stop the sandbox".to_owned(),
        Action::RemoveSandbox { .. } => "remove the sandbox".to_owned(),
        Action::TearDown => "tear down volumes and cgroup".to_owned(),
        Action::DeleteObject => "delete the object".to_owned(),
    }
}

impl PodState {
    pub(crate) fn note_begun(&mut self, action: &Action) {
        // Whether another policy pulls at all is known when it ended.
        if let Action::PullImage { container, image, policy: PullPolicy::Always } = action {
            let message = format!("Pulling image {image:?}");
            self.event(Severity::Normal, event::PULLING, message, Some(container));
        }
        if let Action::KillContainer { container, id, .. }
        | Action::RunHook { container, id, hook: HookKind::PreStop, .. } = action
        {
            self.announce_kill(container, id);
        }
    }

    /// LC-285: told before any hook runs and whoever has to wait.
    pub(crate) fn announce_kills(&mut self) {
        let alive: Vec<_> = self.alive().map(|instance| (instance.name.clone(), instance.id.clone())).collect();
        for (name, id) in alive {
            self.announce_kill(&name, &id);
        }
    }

    /// LC-291: once per instance; a re-armed kill is the same kill.
    fn announce_kill(&mut self, name: &str, id: &str) {
        if !self.announced.insert(id.to_owned()) {
            return;
        }
        let own = self.unwanted(id).map(|unwanted| unwanted.message);
        // LC-156
        let own = own.or_else(|| {
            self.is_restarting_all().then(|| format!("Container {name} is killed: all containers restart"))
        });
        let message = own.unwrap_or_else(|| match self.reason_to_stop() {
            Some(why) => format!("Stopping container {name}: {why}"),
            None => format!("Stopping container {name}"),
        });
        self.event(Severity::Normal, event::KILLING, message, Some(name));
    }

    /// Why everything of the pod stops.
    fn reason_to_stop(&self) -> Option<String> {
        match &self.stage {
            // TC-047: the node's reason came first.
            Stage::Terminating(_) | Stage::Terminated(_) if self.ending.is_some() => {
                self.ending.as_ref().map(|ending| ending.message.trim_end_matches(['.', ' ']).to_owned())
            }
            Stage::Terminating(shutdown) => Some(shutdown.cause.because.to_string()),
            Stage::Terminated(_) => None,
            Stage::Syncing => self.lost_sandbox.as_ref().map(|_| "the sandbox of the pod is lost".to_owned()),
        }
    }

    /// LC-229, LC-226, TC-060.
    pub(crate) fn note_hook_ended(&mut self, id: &str, hook: HookKind, outcome: &Outcome) {
        let name = self.seen.as_ref().and_then(|seen| seen.instance(id)).map(|instance| instance.name.clone());
        let (reason, message) = match (outcome, hook) {
            (Outcome::Failed(_), HookKind::PostStart) => {
                (event::FAILED_POST_START_HOOK, "PostStartHook failed".to_owned())
            }
            (Outcome::Failed(_), HookKind::PreStop) => (event::FAILED_PRE_STOP_HOOK, "PreStopHook failed".to_owned()),
            (Outcome::FellBackToHttp { host }, HookKind::PostStart | HookKind::PreStop) => {
                let message =
                    format!("request to HTTPS lifecycle hook {host} got HTTP response, retry with HTTP succeeded");
                (event::LIFECYCLE_HTTP_FALLBACK, message)
            }
            _ => return,
        };
        self.event(Severity::Warning, reason, message, name.as_deref());
    }

    pub(crate) fn note_ended(&mut self, action: &Action, outcome: &Outcome) {
        match (action, outcome) {
            (Action::PullImage { container, image, policy }, outcome) if self.stage == Stage::Syncing => {
                self.note_pull(container, image, *policy, outcome);
            }
            (Action::StartContainer { container, .. }, outcome) => self.note_start(container, outcome),
            // LC-192: not while the pod is being deleted.
            (Action::CreateSandbox { .. }, Outcome::Failed(error)) if self.stage == Stage::Syncing => {
                let message = format!("Failed to create pod sandbox: {error}");
                self.event(Severity::Warning, event::FAILED_CREATE_POD_SANDBOX, message, None);
            }
            (Action::CreateSandbox { .. }, Outcome::NotPrepared { lacks, message }) if self.stage == Stage::Syncing => {
                self.note_lack(lacks, message);
            }
            (Action::KillContainer { .. } | Action::StopSandbox { .. }, Outcome::Failed(error)) => {
                self.note_failed_kill(error);
            }
            _ => {}
        }
    }

    /// LC-018, LC-185, LC-186: what keeps a pod from having a sandbox.
    fn note_lack(&mut self, lacks: &Lack, message: &str) {
        let (reason, message) = match lacks {
            Lack::Network => (event::NETWORK_NOT_READY, format!("network is not ready: {message}")),
            Lack::Cgroup => {
                (event::FAILED_CREATE_POD_CONTAINER, format!("unable to ensure pod container exists: {message}"))
            }
            Lack::Directories => (event::FAILED, format!("error making pod data directories: {message}")),
            Lack::Volumes(missing) => {
                for MissingVolume { message, .. } in missing {
                    self.event(Severity::Warning, event::FAILED_MOUNT, message.clone(), None);
                }
                return;
            }
        };
        self.event(Severity::Warning, reason, message, None);
    }

    /// LC-185: told after each whole wait in vain.
    pub(crate) fn note_volumes_overdue(&mut self, missing: &[MissingVolume]) {
        let names: Vec<&str> = missing.iter().map(|volume| volume.name.as_str()).collect();
        let message = format!(
            "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[], failed to process \
             volumes=[]: timed out waiting for the condition",
            names.join(" ")
        );
        self.event(Severity::Warning, event::FAILED_MOUNT, message, None);
    }

    /// LC-292.
    pub(crate) fn note_failed_kill(&mut self, error: &str) {
        self.event(Severity::Warning, event::FAILED_KILL_POD, format!("error killing pod: {error}"), None);
    }

    fn note_pull(&mut self, container: &str, image: &str, policy: PullPolicy, outcome: &Outcome) {
        let is_late = policy == PullPolicy::IfNotPresent;
        match outcome {
            Outcome::Image(ImageUse::Pulled { took_ms, waited_ms, size_bytes }) => {
                if is_late {
                    self.event(Severity::Normal, event::PULLING, format!("Pulling image {image:?}"), Some(container));
                }
                let took = text::duration(Duration::from_millis(*took_ms));
                let total = text::duration(Duration::from_millis(took_ms + waited_ms));
                let message = format!(
                    "Successfully pulled image {image:?} in {took} ({total} including waiting). \
                     Image size: {size_bytes} bytes."
                );
                self.event(Severity::Normal, event::PULLED, message, Some(container));
            }
            Outcome::Done
            | Outcome::Image(ImageUse::AlreadyPresent)
            | Outcome::Probed(_)
            | Outcome::Measured(_)
            | Outcome::FellBackToHttp { .. } => {
                let message =
                    format!("Container image {image:?} already present on machine and can be accessed by the pod");
                self.event(Severity::Normal, event::PULLED, message, Some(container));
            }
            Outcome::NoImage { reason, message } => self.note_no_image(container, image, reason, message, is_late),
            Outcome::NotStarted { message, .. } | Outcome::NotPrepared { message, .. } | Outcome::Failed(message) => {
                self.note_no_image(container, image, waiting::ERR_IMAGE_PULL, message, is_late);
            }
        }
    }

    fn note_no_image(&mut self, container: &str, image: &str, reason: &str, message: &str, is_late: bool) {
        match reason {
            waiting::ERR_IMAGE_NEVER_PULL => {
                self.event(Severity::Warning, event::ERR_IMAGE_NEVER_PULL, message.to_owned(), Some(container));
            }
            waiting::INVALID_IMAGE_NAME | waiting::IMAGE_INSPECT_ERROR => {
                self.event(Severity::Warning, event::INSPECT_FAILED, message.to_owned(), Some(container));
            }
            _ => {
                if is_late {
                    self.event(Severity::Normal, event::PULLING, format!("Pulling image {image:?}"), Some(container));
                }
                let failed = format!("Failed to pull image {image:?}: {message}");
                self.event(Severity::Warning, event::FAILED, failed, Some(container));
            }
        }
        self.event(Severity::Warning, event::FAILED, format!("Error: {reason}"), Some(container));
    }

    /// LC-306: each step is told when it is done, so that the order is theirs.
    fn note_start(&mut self, container: &str, outcome: &Outcome) {
        let (was_created, error) = match outcome {
            Outcome::Done
            | Outcome::Image(_)
            | Outcome::Probed(_)
            | Outcome::Measured(_)
            | Outcome::FellBackToHttp { .. } => (true, None),
            Outcome::NotStarted { stage, message } => (*stage == StartStage::Start, Some(message)),
            Outcome::NoImage { message, .. } | Outcome::NotPrepared { message, .. } | Outcome::Failed(message) => {
                (false, Some(message))
            }
        };
        if was_created {
            self.event(Severity::Normal, event::CREATED, "Container created".to_owned(), Some(container));
        }
        match error {
            Some(error) => self.event(Severity::Warning, event::FAILED, format!("Error: {error}"), Some(container)),
            None => self.event(Severity::Normal, event::STARTED, "Container started".to_owned(), Some(container)),
        }
    }

    /// LC-189, TC-286: once for each sandbox that is lost and will be replaced.
    pub(crate) fn note_lost_sandbox(&mut self, now: Now) {
        let may_be_lost = self.stage == Stage::Syncing && !self.has_usable_sandbox();
        let is_lost = may_be_lost && matches!(self.course(), Course::NewSandbox(_));
        let lost = self.seen.as_ref().and_then(|seen| seen.sandboxes.first()).map(|sandbox| sandbox.id.clone());
        let is_told = |id: &String| self.lost_sandbox.as_ref().is_some_and(|lost| lost.id == *id);
        if let Some(id) = lost.filter(|id| is_lost && !is_told(id)) {
            let message = "Pod sandbox changed, it will be killed and re-created.".to_owned();
            self.event(Severity::Normal, event::SANDBOX_CHANGED, message, None);
            self.lost_sandbox = Some(LostSandbox { id, at: now.mono });
        }
    }

    /// Tells every difference between two views.
    pub(crate) fn note_changes(&mut self, before: &View, after: &View, because: &Because) {
        for view in after.containers() {
            let old = before.container(&view.name);
            if old == Some(view) {
                continue;
            }
            self.note_exit(old, view);
            let words = |view: &ContainerView| format!("{} rc={}", view.state, view.restart_count);
            let was = old.map_or_else(|| "none".to_owned(), words);
            if was != words(view) {
                let what = format!("container {}: {was} → {}", view.name, words(view));
                self.transition(container_rule(&view.state), what, because.about(&view.name));
            }
        }
        if before.phase != after.phase {
            let rule = if after.phase.is_terminal() { "LC-049" } else { "LC-039" };
            let what = format!("phase: {} → {}", before.phase.as_str(), after.phase.as_str());
            self.transition(rule, what, &because.general);
        }
        for condition in &after.conditions {
            let was = before.condition(&condition.kind).map_or("none", |old| old.status.as_str());
            if was != condition.status.as_str() {
                let what = format!("{}: {was} → {}", condition.kind, condition.status.as_str());
                self.transition(condition_rule(&condition.kind), what, &because.general);
            }
        }
    }

    fn transition(&mut self, rule: &'static str, what: String, because: &str) {
        self.note(Note::Transition { what, cause: Cause::new(rule, because) });
    }

    /// LC-167, TC-150, TC-151: once per instance, also when its successor already
    /// runs. DEC-10 settles the words (LC-394).
    fn note_exit(&mut self, before: Option<&ContainerView>, after: &ContainerView) {
        if !self.rules.exit_events {
            return;
        }
        let knows = |view: &ContainerView, id: &Option<String>| ends(view).any(|known| known.id == *id);
        for end in ends(after) {
            if end.id.is_none() || before.is_some_and(|before| knows(before, &end.id)) {
                continue;
            }
            let (severity, reason, message) = exit_event(&after.name, end);
            self.event(severity, reason, message, Some(&after.name));
        }
    }

    /// LC-174, LC-181: when a back-off begins.
    pub(crate) fn note_back_off(&mut self, name: &str, reason: &str, image: &str) {
        if reason == waiting::CRASH_LOOP_BACK_OFF {
            let message = format!("Back-off restarting failed container {name} in pod {}", self.spec.full_name());
            self.event(Severity::Warning, event::BACK_OFF, message, Some(name));
        }
        if reason == waiting::IMAGE_PULL_BACK_OFF {
            let message = format!("Back-off pulling image {image:?}");
            self.event(Severity::Normal, event::BACK_OFF, message, Some(name));
            self.event(Severity::Warning, event::FAILED, format!("Error: {reason}"), Some(name));
        }
    }
}

/// The ends of instances that a container shows.
fn ends(view: &ContainerView) -> impl Iterator<Item = &Termination> {
    view.termination().into_iter().chain(&view.last)
}

/// The rule that put a container into its state.
fn container_rule(state: &Shown) -> &'static str {
    match state {
        Shown::Waiting(shown) if shown.reason == waiting::CRASH_LOOP_BACK_OFF => "LC-174",
        Shown::Waiting(shown) if shown.reason == waiting::IMAGE_PULL_BACK_OFF => "LC-181",
        Shown::Waiting(shown) if shown.reason == waiting::CONTAINER_CREATING => "LC-064",
        Shown::Waiting(shown) if shown.reason == waiting::POD_INITIALIZING => "LC-064",
        Shown::Waiting(_) => "LC-068",
        Shown::Running { .. } | Shown::Terminated(_) => "LC-067",
    }
}

fn condition_rule(kind: &str) -> &'static str {
    match kind {
        condition::POD_READY_TO_START_CONTAINERS => "LC-107",
        condition::INITIALIZED => "LC-105",
        condition::READY => "LC-117",
        condition::CONTAINERS_READY => "LC-103",
        condition::POD_SCHEDULED => "LC-113",
        _ => "LC-099",
    }
}

fn exit_event(name: &str, end: &Termination) -> (Severity, &'static str, String) {
    match (end.reason.as_str(), end.code) {
        (terminated::OOM_KILLED, _) => {
            (Severity::Warning, "ContainerOOMKilled", format!("Container {name} was OOM killed"))
        }
        (_, 0) => (Severity::Normal, "ContainerCompleted", format!("Container {name} completed")),
        (reason, code) => {
            let message = format!("Container {name} failed with exit code {code}: {reason}");
            (Severity::Warning, "ContainerFailed", message)
        }
    }
}
