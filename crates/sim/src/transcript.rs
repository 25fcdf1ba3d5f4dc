//! What happened, line by line: kept as it was, put into words only when
//! somebody reads it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lifecycle::{Action, Cause, CgroupValues, Outcome, Planned, ProbeResult, Severity};
use objects::api::core::v1::{ContainerState, ContainerStatus, PodStatus};
use serde_json::Value;

mod json;
mod people;

pub use json::object;
pub use people::table;

/// One thing that happened at one moment of virtual time.
#[derive(Debug, Clone)]
pub struct Line {
    /// Since the start of the story.
    pub at: Duration,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    /// The world moved: a process ended, somebody deleted the pod, …
    Happened(Happening),
    /// The agent began an action, and why.
    Did(Planned),
    /// The runtime sent a signal on the way, and why.
    Sent { container: String, id: String, signal: String, cause: Cause },
    /// An action did not go well, or a probe was answered.
    Ended(Action, Outcome),
    /// The API shows a new status; why, as far as the rules said.
    Published { before: Option<Arc<PodStatus>>, after: Arc<PodStatus>, causes: Vec<Cause> },
    /// A Kubernetes Event.
    Told { severity: Severity, reason: Cow<'static, str>, message: String, container: Option<String> },
    /// A transition with its cause.
    Changed { what: String, cause: Cause },
}

#[derive(Debug, Clone)]
pub struct Happening {
    /// `ContainerExited`, `PodDeleted`, …
    pub name: &'static str,
    pub container: Option<String>,
    /// For tools.
    pub detail: Value,
    /// For people.
    pub words: String,
}

impl Line {
    /// As tests write it: `t=10    do     StartContainer app #1  [LC-195: …]`.
    /// `None` for a status write that shows nothing new.
    pub fn brief(&self) -> Option<String> {
        let (kind, text) = match &self.what {
            What::Happened(happening) => ("fact", happening.words.clone()),
            What::Did(Planned { action, cause }) => {
                ("do", format!("{}  [{}: {}]", describe(action), cause.rule, cause.because))
            }
            What::Sent { id, signal, cause, .. } => {
                ("do", format!("{}  [{}: {}]", signal_words(id, signal), cause.rule, cause.because))
            }
            What::Ended(action, outcome) => ("fact", ending(action, outcome)),
            What::Published { before, after, .. } => ("status", changes(before.as_deref(), after)?),
            What::Told { severity, reason, message, .. } => ("event", format!("{severity:?} {reason}: {message}")),
            What::Changed { what, cause } => ("why", format!("{what}  [{}: {}]", cause.rule, cause.because)),
        };
        Some(format!("t={:<5} {kind:<6} {text}", self.at.as_secs_f64()))
    }
}

pub(crate) fn signal_words(id: &str, signal: &str) -> String {
    format!("SendSignal {} {signal}", short(id))
}

fn ending(action: &Action, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Probed(result) => format!("{} ends: {result:?}", describe(action)),
        outcome => format!("{} fails: {}", describe(action), error(outcome)),
    }
}

/// A probe's answer in a word, and what it said.
pub(crate) fn answer(result: &ProbeResult) -> (&'static str, Option<&str>) {
    match result {
        ProbeResult::Success => ("success", None),
        ProbeResult::Warning(message) => ("warning", Some(message)),
        ProbeResult::Failure(message) => ("failure", Some(message)),
        ProbeResult::Unknown(message) => ("unknown", Some(message)),
    }
}

/// The error text of an outcome.
pub(crate) fn error(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::NoImage { message, .. }
        | Outcome::NotStarted { message, .. }
        | Outcome::NotPrepared { message, .. }
        | Outcome::Failed(message) => message,
        Outcome::Done
        | Outcome::Image(_)
        | Outcome::Probed(_)
        | Outcome::Measured(_)
        | Outcome::FellBackToHttp { .. } => "",
    }
}

/// An action in one line.
pub fn describe(action: &Action) -> String {
    match action {
        Action::CreateSandbox { attempt } => format!("CreateSandbox #{attempt}"),
        Action::PullImage { container, image, .. } => format!("PullImage {container} {image}"),
        Action::StartContainer { container, attempt } => format!("StartContainer {container} #{attempt}"),
        Action::KillContainer { id, grace, .. } => format!("KillContainer {} grace={grace:?}", short(id)),
        Action::RunProbe { id, probe, .. } => format!("RunProbe {} {probe}", short(id)),
        Action::RunHook { id, hook, timeout, .. } => match timeout {
            Some(timeout) => format!("RunHook {} {hook:?} timeout={timeout:?}", short(id)),
            None => format!("RunHook {} {hook:?}", short(id)),
        },
        Action::MeasureMemory => "MeasureMemory".into(),
        Action::UpdateResources { id, limits, .. } => format!("UpdateResources {} {}", short(id), cgroup(limits)),
        Action::UpdatePodResources { limits } => format!("UpdatePodResources {}", cgroup(limits)),
        Action::RemoveContainer { id, .. } => format!("RemoveContainer {}", short(id)),
        Action::StopSandbox { id } => format!("StopSandbox {id}"),
        Action::RemoveSandbox { id } => format!("RemoveSandbox {id}"),
        Action::TearDown => "TearDown".into(),
        Action::DeleteObject => "DeleteObject".into(),
    }
}

fn cgroup(values: &CgroupValues) -> String {
    let parts = [
        values.cpu_shares.map(|shares| format!("shares={shares}")),
        values.cpu_quota.map(|quota| format!("quota={quota}")),
        values.memory_limit_bytes.map(|bytes| format!("memory={bytes}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

pub(crate) fn short(id: &str) -> &str {
    id.trim_start_matches("podium://")
}

/// What a status write changed, in a few words; `None` if nothing one would see.
pub(crate) fn changes(before: Option<&PodStatus>, after: &PodStatus) -> Option<String> {
    let (shown, summary) = (before.map(summarize).unwrap_or_default(), summarize(after));
    let mut changed: Vec<String> = summary
        .iter()
        .filter(|(key, value)| shown.get(*key) != Some(value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    changed.extend(shown.keys().filter(|key| !summary.contains_key(*key)).map(|key| format!("{key}=gone")));
    (!changed.is_empty()).then(|| changed.join(" "))
}

fn summarize(status: &PodStatus) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    all.insert("phase".into(), status.phase.clone().unwrap_or_default());
    if let Some(reason) = &status.reason {
        all.insert("reason".into(), reason.clone());
    }
    if let Some(ip) = &status.pod_ip {
        all.insert("podIP".into(), ip.clone());
    }
    for condition in status.conditions.iter().flatten() {
        let reason = condition.reason.as_deref().map(|reason| format!("({reason})")).unwrap_or_default();
        all.insert(condition.type_.clone(), format!("{}{reason}", condition.status));
    }
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    for container in lists.into_iter().flatten().flatten() {
        all.insert(format!("{{{}}}", container.name), summarize_container(container));
    }
    all
}

fn summarize_container(container: &ContainerStatus) -> String {
    let mut text = state_words(container.state.as_ref());
    let last = state_words(container.last_state.as_ref());
    if !last.is_empty() {
        text += &format!(",last:{last}");
    }
    text += &format!(",rc{}", container.restart_count);
    if container.ready {
        text += ",ready";
    }
    let is_running = container.state.as_ref().is_some_and(|state| state.running.is_some());
    if is_running && container.started == Some(false) {
        text += ",unstarted";
    }
    text
}

fn state_words(state: Option<&ContainerState>) -> String {
    let Some(state) = state else { return String::new() };
    if let Some(waiting) = &state.waiting {
        return format!("waiting:{}", waiting.reason.as_deref().unwrap_or("-"));
    }
    if state.running.is_some() {
        return "running".into();
    }
    match &state.terminated {
        Some(end) => format!("{}:{}", end.reason.as_deref().unwrap_or("-"), end.exit_code),
        None => String::new(),
    }
}
