//! What is known and remembered about one pod, and how facts change it.
//!
//! Read next: `plan.rs` for what happens because of it, `derive.rs` for what
//! the world sees of it.

mod alive;
mod ending;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ambient::{Mono, Now};
use objects::reasons::waiting;

use crate::action::{Action, Cause, Plan};
use crate::attempts::Attempts;
use crate::disruption::Ending;
use crate::fact::{Fact, Lack, Observation, Outcome, ProbeResult};
use crate::hooks::PostStart;
use crate::kill::Kill;
use crate::limits::{MEMORY_BYTES_DEFAULT, NOTES_MAX, RESTART_DELAY_INITIAL, RESTART_DELAY_MAX};
use crate::notes::{Because, Heard};
use crate::probes::Probes;
use crate::resize::Sizing;
use crate::resources::Machine;
use crate::spec::{HookKind, ImageSpec, PodSpec};
use crate::start::Course;
use crate::status::PodStatus;
use crate::table::Table;
use crate::termination::{Cleanup, Shutdown};
use crate::view::{View, Waiting};
use crate::work::Work;
use crate::{derive, plan, status};

/// Node-wide settings the rules read.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    pub backoff_initial: Duration,
    pub backoff_max: Duration,
    pub host_ips: Vec<IpAddr>,
    /// What cgroup values and OOM scores depend on.
    pub machine: Machine,
    /// Gate `ContainerRestartRules`: container-level policies and rules (LC-132).
    pub container_restart_rules: bool,
    /// Gate `RestartAllContainersOnContainerExits` (LC-135).
    pub restart_all_containers: bool,
    /// Gate `PodReadyToStartContainersCondition`.
    pub ready_to_start_condition: bool,
    /// Gate `ContainerStopSignals`: `stopSignal` in the status (LC-084).
    pub container_stop_signals: bool,
    /// Gate `ChangeContainerStatusOnKubeletRestart`: containers are not started
    /// and not ready until a new agent probed them (LC-379).
    pub change_status_on_agent_restart: bool,
    /// An event for every container exit, which upstream does not have (LC-167).
    pub exit_events: bool,
}

impl Rules {
    /// An unconfigured node of Kubernetes v1.35.
    pub fn upstream(host_ips: Vec<IpAddr>) -> Self {
        Self {
            backoff_initial: RESTART_DELAY_INITIAL,
            backoff_max: RESTART_DELAY_MAX,
            host_ips,
            machine: Machine::upstream(MEMORY_BYTES_DEFAULT),
            container_restart_rules: true,
            restart_all_containers: false,
            ready_to_start_condition: true,
            container_stop_signals: false,
            change_status_on_agent_restart: false,
            exit_events: true,
        }
    }
}

/// What is worth telling, in order: Kubernetes Events and transitions with
/// their causes. Drained by the driver, so that each is told once.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    Event {
        severity: Severity,
        reason: Cow<'static, str>,
        message: String,
        container: Option<String>,
        annotations: BTreeMap<String, String>,
    },
    Transition {
        what: String,
        cause: Cause,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// LC-008: only ever forward.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    /// Containers are started and kept running.
    Syncing,
    /// Nothing starts any more; what runs is stopped.
    Terminating(Shutdown),
    /// Nothing runs any more; what is left is cleaned up.
    Terminated(Cleanup),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostSandbox {
    pub(crate) id: String,
    pub(crate) at: Mono,
}

/// Whether a fact changed anything that the view of a pod is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    Something,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PodState {
    pub(crate) spec: PodSpec,
    pub(crate) rules: Rules,
    /// The object left the API.
    pub(crate) is_gone: bool,
    /// An object with the same UID that appeared afterwards.
    successor: Option<PodSpec>,
    pub(crate) stage: Stage,
    /// The node ends the pod.
    pub(crate) ending: Option<Ending>,
    /// Nothing is begun before the node said yes (LC-372).
    pub(crate) awaits_admission: bool,
    /// Nothing is decided before the first look at the runtime (LC-377, TC-268).
    pub(crate) seen: Option<Observation>,
    /// When instances ended, on our own time scale, by instance.
    pub(crate) exited_at: Table<String, Mono>,
    pub(crate) work: Work,
    pub(crate) attempts: Attempts,
    /// Kills that were begun, by instance.
    pub(crate) kills: Table<String, Kill>,
    /// Kills that were told, by instance.
    pub(crate) announced: BTreeSet<String>,
    /// postStart hooks, by instance.
    pub(crate) post_starts: Table<String, PostStart>,
    pub(crate) probes: Probes,
    /// When all containers were last restarted in place.
    pub(crate) restarted_all_at: Option<Mono>,
    /// The last view of the pod; before the first one, what the API shows.
    pub(crate) shown: View,
    /// The last look at everything showed what the one before had shown. What is
    /// shown follows from what was shown, so one look may not be enough.
    is_at_rest: bool,
    /// A container was due or held back then: time alone can change the view.
    has_wanted: bool,
    /// The sandbox whose loss was told.
    pub(crate) lost_sandbox: Option<LostSandbox>,
    pub(crate) sizing: Sizing,
    notes: Vec<Note>,
}

impl PodState {
    pub fn new(spec: PodSpec, rules: Rules, now: Now) -> Self {
        Self {
            shown: spec.published.clone(),
            sizing: Sizing::recovered(&spec, now),
            spec,
            rules,
            is_gone: false,
            successor: None,
            stage: Stage::Syncing,
            ending: None,
            awaits_admission: false,
            seen: None,
            exited_at: Table::default(),
            work: Work::default(),
            attempts: Attempts::default(),
            kills: Table::default(),
            announced: BTreeSet::new(),
            post_starts: Table::default(),
            is_at_rest: false,
            has_wanted: false,
            probes: Probes::default(),
            restarted_all_at: None,
            lost_sandbox: None,
            notes: Vec::new(),
        }
    }

    /// For a driver that tells `Admitted`: nothing is begun before.
    pub fn awaiting_admission(self) -> Self {
        Self { awaits_admission: true, ..self }
    }

    /// Remembers what happened.
    pub fn absorb(&mut self, fact: Fact, now: Now) {
        self.pass_time(now);
        let (heard, news) = self.hear(fact, now);
        if self.seen.is_none() {
            return;
        }
        // Most facts of a long life: the same observation, the same answer to a probe.
        if news == News::Nothing && self.is_quiet() {
            debug_assert!(self.is_settled(now), "{heard:?} was news to {self:#?}");
            return;
        }
        self.reconsider(&heard, now);
    }

    /// What is left of a fact to tell about it, and whether it was news.
    fn hear(&mut self, fact: Fact, now: Now) -> (Heard, News) {
        let heard = match fact {
            Fact::PodChanged(spec) => {
                return (Heard::Words("the pod object changed".into()), self.on_pod_changed(*spec));
            }
            Fact::PodGone => {
                self.is_gone = true;
                self.successor = None;
                Heard::Words("the pod object is gone".into())
            }
            Fact::Observed(seen) => return self.on_observed(seen, now),
            Fact::Begun(action) => {
                let news = self.on_begun(&action, now);
                return (Heard::Begun(action), news);
            }
            Fact::Ended(action, outcome) => {
                let news = self.on_ended(&action, &outcome, now);
                return (Heard::Ended(action, outcome), news);
            }
            Fact::Admitted(allocation) => {
                self.on_admitted(allocation, now);
                Heard::Words("the node admitted the pod".into())
            }
            Fact::Resized(allocation) => {
                self.on_resized(allocation, now);
                Heard::Words("the node resized the pod".into())
            }
            Fact::ResizeRefused(refusal) => {
                let words = format!("the node refused a resize: {}", refusal.message);
                self.on_resize_refused(refusal, now);
                Heard::Words(words.into())
            }
            Fact::Rejected(rejection) => {
                self.on_rejected(&rejection, now);
                Heard::Words(format!("the node rejected the pod: {}", rejection.reason).into())
            }
            Fact::Evicted(eviction) => {
                let words = format!("the node ends the pod: {}", eviction.message.trim_end());
                self.on_evicted(eviction, now);
                Heard::Words(words.into())
            }
        };
        (heard, News::Something)
    }

    /// Everything that follows from what is known by now.
    fn reconsider(&mut self, heard: &Heard, now: Now) {
        self.tend_probes(now);
        self.advance_stage(now);
        self.note_overdue_kill(now);
        self.advance_resize();
        self.note_lost_sandbox(now);
        let wanted = self.wanted_names();
        self.remember_waiting(&wanted, now);
        let view = derive::view(self, &wanted, now);
        self.note_restarted_all(&view, now);
        self.settle(view, heard);
        self.has_wanted = !wanted.is_empty();
    }

    /// Time alone changes nothing of the view. (What a deadline changes,
    /// `pass_time` sees to.)
    fn is_quiet(&self) -> bool {
        self.is_at_rest && !self.has_wanted && self.ending.is_none()
    }

    /// Nothing more follows from what is known.
    fn is_settled(&self, now: Now) -> bool {
        let mut again = self.clone();
        again.reconsider(&Heard::Words("nothing happened".into()), now);
        again == *self
    }

    /// What should happen now, and when to ask again.
    pub fn plan(&self, now: Now) -> Plan {
        plan::plan(&self.at(now), now)
    }

    /// What the world may see.
    pub fn render(&self, now: Now) -> PodStatus {
        self.at(now).render_settled(now)
    }

    /// This state, with what time alone has changed since the last fact.
    fn at(&self, now: Now) -> Cow<'_, Self> {
        if self.seen.is_none() || !self.is_overdue(now) {
            return Cow::Borrowed(self);
        }
        let mut later = self.clone();
        later.pass_time(now);
        Cow::Owned(later)
    }

    fn pass_time(&mut self, now: Now) {
        if self.seen.is_some() && self.is_overdue(now) {
            self.end_if_overdue(now);
            self.advance_stage(now);
        }
    }

    fn render_settled(&self, now: Now) -> PodStatus {
        let fresh = || derive::view(self, &self.wanted_names(), now);
        let view = match &self.seen {
            Some(_) if !self.is_quiet() => Cow::Owned(fresh()),
            Some(_) | None => Cow::Borrowed(&self.shown),
        };
        debug_assert!(self.seen.is_none() || *view == fresh(), "what was shown last is not what there is to show");
        // LC-101: a pod that is turned away has nothing of this node.
        let host_ips: &[IpAddr] = if self.is_turned_away() { &[] } else { &self.rules.host_ips };
        status::write(&view, &self.spec, host_ips)
    }

    /// The newest version of the object.
    pub fn spec(&self) -> &PodSpec {
        &self.spec
    }

    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// LC-014, H65: what to begin anew with once this is finished: a static pod
    /// with a fixed UID was removed and added again.
    pub fn successor(&self) -> Option<&PodSpec> {
        self.successor.as_ref()
    }

    pub(crate) fn has_usable_sandbox(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.usable_sandbox(self.spec.is_host_network).is_some())
    }

    pub(crate) fn note(&mut self, note: Note) {
        if self.notes.len() == NOTES_MAX {
            self.notes.remove(0);
        }
        self.notes.push(note);
    }

    pub(crate) fn event(
        &mut self,
        severity: Severity,
        reason: impl Into<Cow<'static, str>>,
        message: String,
        container: Option<&str>,
    ) {
        self.event_with(severity, reason, message, container, BTreeMap::new());
    }

    pub(crate) fn event_with(
        &mut self,
        severity: Severity,
        reason: impl Into<Cow<'static, str>>,
        message: String,
        container: Option<&str>,
        annotations: BTreeMap<String, String>,
    ) {
        let (reason, message) = (reason.into(), self.without_ids(message, container));
        let container = container.map(str::to_owned);
        self.note(Note::Event { severity, reason, message, container, annotations });
    }

    /// LC-303: a container goes by its name, so that events about its instances
    /// stay equal.
    fn without_ids(&self, message: String, container: Option<&str>) -> String {
        let Some(name) = container else { return message };
        let instances = self.seen.iter().flat_map(|seen| seen.instances_of(name));
        let ids = instances.map(|it| it.id.rsplit_once("://").map_or(it.id.as_str(), |(_, id)| id));
        ids.filter(|id| !id.is_empty()).fold(message, |message, id| message.replace(id, name))
    }

    fn on_pod_changed(&mut self, spec: PodSpec) -> News {
        // LC-006: what comes too late says nothing.
        if !spec.is_static && spec.generation < self.spec.generation {
            return News::Nothing;
        }
        // LC-014: it came back; what there is must end first. TC-043: the UID of
        // an API pod never lives again.
        if self.is_gone {
            self.successor = Some(spec).filter(|spec| spec.is_static);
            return News::Something;
        }
        // LC-064: until the first look, what the API shows is all there is.
        if self.seen.is_none() {
            self.shown = spec.published.clone();
        }
        self.spec = spec;
        News::Something
    }

    fn on_observed(&mut self, seen: Observation, now: Now) -> (Heard, News) {
        // LC-006: what comes too late says nothing.
        if self.seen.as_ref().is_some_and(|known| seen.taken_at < known.taken_at) {
            return (Heard::Words("the runtime was observed".into()), News::Nothing);
        }
        self.attempts.on_seen(&seen);
        self.work.forget_unless(|id| seen.instance(id).is_some());
        self.exited_at.retain(|id, _| seen.instance(id).is_some());
        self.kills.retain(|id, _| seen.instance(id).is_some());
        self.announced.retain(|id| seen.instance(id).is_some());
        self.post_starts.retain(|id, _| seen.instance(id).is_some());
        if self.seen.is_none() {
            self.adopt(&seen, now);
        }
        for instance in &seen.instances {
            if let Some(exit) = instance.exit() {
                // Once: a later clock jump must not move it.
                self.exited_at.get_or_insert(instance.id.clone(), now.mono_of(exit.finished_at));
            }
        }
        let is_same = self.seen.as_ref().is_some_and(|known| known.shows_the_same(&seen));
        let before = self.seen.replace(seen);
        self.forget_sizes();
        (Heard::Observed { before }, if is_same { News::Nothing } else { News::Something })
    }

    fn on_begun(&mut self, action: &Action, now: Now) -> News {
        if !self.work.begin(action, now.mono) {
            return News::Nothing;
        }
        self.note_begun(action);
        self.on_birth(action);
        match action {
            Action::StartContainer { container, .. } => self.advance_restart_delay(container, now),
            Action::KillContainer { id, grace, .. } => self.on_kill_begun(id, *grace, now),
            Action::RunProbe { container, probe, .. } => {
                self.on_probe_begun(container, *probe, now);
                return News::Nothing;
            }
            Action::RunHook { id, hook: HookKind::PostStart, .. } => self.on_post_start_begun(id),
            Action::RunHook { id, hook: HookKind::PreStop, .. } => self.on_pre_stop_begun(id, now),
            Action::CreateSandbox { .. }
            | Action::PullImage { .. }
            | Action::MeasureMemory
            | Action::UpdateResources { .. }
            | Action::UpdatePodResources { .. }
            | Action::RemoveContainer { .. }
            | Action::StopSandbox { .. }
            | Action::RemoveSandbox { .. }
            | Action::TearDown
            | Action::DeleteObject => {}
        }
        News::Something
    }

    fn on_ended(&mut self, action: &Action, outcome: &Outcome, now: Now) -> News {
        // LC-006: what comes too late says nothing.
        if !self.work.is_in_flight(action) {
            return News::Nothing;
        }
        self.work.end(action);
        self.note_ended(action, outcome);
        if matches!(action, Action::CreateSandbox { .. }) && !outcome.lacks_volumes() {
            self.work.on_volumes_mounted();
        }
        match (action, outcome) {
            (Action::PullImage { container, image, policy }, outcome) => {
                let image = ImageSpec { image: image.clone(), policy: *policy };
                self.on_pull_ended(container, image, outcome, now);
            }
            (Action::StartContainer { container, attempt }, outcome) => {
                self.work.hold_repetition(action, now.mono);
                self.on_instance_started(container, *attempt);
                self.on_start_ended(container, outcome, now);
            }
            (Action::RunProbe { container, id, probe }, Outcome::Probed(result)) => {
                return self.on_probed(container, id, *probe, result, now);
            }
            // LC-246: could not even be tried.
            (Action::RunProbe { container, id, probe }, Outcome::Failed(error)) => {
                return self.on_probed(container, id, *probe, &ProbeResult::Unknown(error.clone()), now);
            }
            (Action::RunProbe { .. }, _) => return News::Nothing,
            (Action::RunHook { container, id, hook: HookKind::PostStart, .. }, outcome) => {
                self.on_post_start_ended(container, id, outcome, now);
            }
            (Action::RunHook { id, hook: HookKind::PreStop, .. }, outcome) => self.on_pre_stop_ended(id, outcome, now),
            (Action::MeasureMemory | Action::UpdateResources { .. } | Action::UpdatePodResources { .. }, outcome) => {
                self.on_update_ended(action, outcome, now);
            }
            (Action::KillContainer { id, .. }, Outcome::Failed(_)) => self.on_kill_failed(id, action, now),
            // LC-018
            (_, Outcome::NotPrepared { lacks: Lack::Network, .. }) => self.work.hold_without_network(action, now.mono),
            // LC-182
            (_, Outcome::NotPrepared { lacks: Lack::Volumes(missing), .. }) => {
                if self.work.hold_without_volumes(action, now.mono) && self.stage == Stage::Syncing {
                    self.note_volumes_overdue(missing);
                }
            }
            (_, Outcome::Failed(_) | Outcome::NotPrepared { .. }) => self.work.hold_after_failure(action, now.mono),
            (Action::KillContainer { id, .. }, _) => self.on_kill_ended(id, action, now),
            // It did not help: wait like after a failure.
            (Action::CreateSandbox { .. }, _) if !self.has_usable_sandbox() => {
                self.work.hold_after_failure(action, now.mono);
            }
            (Action::TearDown, _) => self.on_torn_down(),
            (Action::DeleteObject, _) => self.on_object_deleted(),
            _ => self.work.hold_repetition(action, now.mono),
        }
        News::Something
    }

    fn on_pull_ended(&mut self, name: &str, image: ImageSpec, outcome: &Outcome, now: Now) {
        let attempt = self.next_attempt(name);
        if self.spec.container(name).is_none() {
            return;
        }
        let waiting = match outcome {
            Outcome::Done
            | Outcome::Image(_)
            | Outcome::Probed(_)
            | Outcome::Measured(_)
            | Outcome::FellBackToHttp { .. } => {
                return self.attempts.on_pulled(name, attempt, image);
            }
            Outcome::NoImage { reason, message } => Waiting { reason: reason.clone(), message: message.clone() },
            Outcome::NotStarted { message, .. } | Outcome::NotPrepared { message, .. } | Outcome::Failed(message) => {
                Waiting { reason: waiting::ERR_IMAGE_PULL.to_owned(), message: message.clone() }
            }
        };
        self.attempts.on_pull_failed(name, image, waiting, now);
    }

    fn on_start_ended(&mut self, name: &str, outcome: &Outcome, now: Now) {
        use crate::fact::StartStage::{Create, Start};
        match outcome {
            Outcome::Done
            | Outcome::Image(_)
            | Outcome::Probed(_)
            | Outcome::Measured(_)
            | Outcome::FellBackToHttp { .. } => {
                self.attempts.on_started(name);
            }
            Outcome::NotStarted { stage, message } => self.attempts.on_start_failed(name, *stage, message, now),
            Outcome::NoImage { message, .. } => self.attempts.on_start_failed(name, Create, message, now),
            Outcome::NotPrepared { message, .. } | Outcome::Failed(message) => {
                self.attempts.on_start_failed(name, Start, message, now);
            }
        }
    }

    fn wanted_names(&self) -> Vec<String> {
        match (&self.stage, self.course()) {
            (Stage::Syncing, Course::Containers { start, .. }) => {
                start.into_iter().map(|wanted| wanted.container.name.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The new view becomes the last one; differences are told.
    fn settle(&mut self, view: View, heard: &Heard) {
        self.is_at_rest = view == self.shown;
        if !self.is_at_rest {
            let because = Because::of(heard, self.seen.as_ref());
            let before = std::mem::take(&mut self.shown);
            self.note_changes(&before, &view, &because);
            self.shown = view;
        }
        if let Stage::Terminated(cleanup) = &mut self.stage {
            cleanup.is_sealed = true;
        }
    }
}
