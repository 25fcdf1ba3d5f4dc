//! Lines for people: a table with the time, what happened, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use lifecycle::{Action, Outcome, Planned, ProbeKind, ProbeResult};
use objects::api::core::v1::{ContainerState, ContainerStatus, PodStatus};

use super::{Line, What, answer, describe, ending, signal_words};

/// Causes start at the same column unless that is further right than this.
const CAUSE_COLUMN_MAX: usize = 44;

struct Row<'a> {
    time: String,
    pod: Option<&'a str>,
    kind: &'static str,
    text: String,
    cause: String,
}

/// Aligned; a time that repeats is left out, and so are probes that succeed
/// once more.
pub fn table(lines: &[(Option<&str>, &Line)]) -> String {
    let mut rows: Vec<Row> = Vec::new();
    let mut last = None;
    let dull = repeated_successes(lines);
    for (at, (pod, line)) in lines.iter().enumerate() {
        let Some((kind, text, cause)) = words(line).filter(|_| !dull.contains(&at)) else { continue };
        let time = if last == Some(line.at) { String::new() } else { clock(line.at) };
        last = Some(line.at);
        rows.push(Row { time, pod: *pod, kind, text, cause });
    }
    let width = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
    let time = width(&mut rows.iter().map(|row| row.time.chars().count()));
    let pod = width(&mut rows.iter().filter_map(|row| row.pod).map(|pod| pod.chars().count()));
    let with_cause = rows.iter().filter(|row| !row.cause.is_empty()).map(|row| row.text.chars().count());
    let text = width(&mut with_cause.filter(|width| *width <= CAUSE_COLUMN_MAX));
    let mut table = String::new();
    for row in &rows {
        let _ = write!(table, "{:>time$}  ", row.time);
        if let Some(name) = row.pod {
            let _ = write!(table, "{name:<pod$}  ");
        }
        let _ = match row.cause.as_str() {
            "" => writeln!(table, "{:<6}  {}", row.kind, row.text),
            cause => writeln!(table, "{:<6}  {:<text$}  ← {cause}", row.kind, row.text),
        };
    }
    table
}

/// Runs and answers of probes that say nothing new.
fn repeated_successes(lines: &[(Option<&str>, &Line)]) -> BTreeSet<usize> {
    let mut dull = BTreeSet::new();
    let mut begun: BTreeMap<(Option<&str>, &Action), usize> = BTreeMap::new();
    let mut healthy: BTreeSet<(Option<&str>, &str, ProbeKind)> = BTreeSet::new();
    for (at, (pod, line)) in lines.iter().enumerate() {
        match &line.what {
            What::Did(Planned { action: action @ Action::RunProbe { .. }, .. }) => {
                begun.insert((*pod, action), at);
            }
            What::Ended(action @ Action::RunProbe { id, probe, .. }, Outcome::Probed(result)) => {
                let key = (*pod, id.as_str(), *probe);
                let is_success = *result == ProbeResult::Success;
                if is_success && !healthy.insert(key) {
                    dull.insert(at);
                    dull.extend(begun.remove(&(*pod, action)));
                } else if !is_success {
                    healthy.remove(&key);
                }
            }
            _ => {}
        }
    }
    dull
}

fn words(line: &Line) -> Option<(&'static str, String, String)> {
    Some(match &line.what {
        What::Happened(happening) => ("fact", happening.words.clone(), String::new()),
        What::Did(Planned { action, cause }) => {
            ("action", describe(action), format!("{}: {}", cause.rule, cause.because))
        }
        What::Sent { id, signal, cause, .. } => {
            ("action", signal_words(id, signal), format!("{}: {}", cause.rule, cause.because))
        }
        What::Ended(Action::RunProbe { container, probe, .. }, Outcome::Probed(result)) => {
            let (word, message) = answer(result);
            let message = message.map(|message| format!(": {message}")).unwrap_or_default();
            let probe = probe.to_string().to_lowercase();
            ("fact", format!("{probe} probe of {container}: {word}{message}"), String::new())
        }
        What::Ended(action, outcome) => ("fact", ending(action, outcome), String::new()),
        What::Published { before, after, .. } => ("status", news(before.as_deref(), after)?, String::new()),
        What::Told { severity, reason, message, .. } => {
            ("event", format!("{severity:?} {reason}: {message}"), String::new())
        }
        What::Changed { .. } => return None,
    })
}

/// What is new in a status: phase and address, containers, conditions.
fn news(before: Option<&PodStatus>, after: &PodStatus) -> Option<String> {
    let known = before.map(parts).unwrap_or_default();
    let new: Vec<String> = parts(after).into_iter().filter(|part| !known.contains(part)).collect();
    (!new.is_empty()).then(|| new.join("; "))
}

fn parts(status: &PodStatus) -> Vec<String> {
    let mut parts = vec![format!("phase {}", status.phase.as_deref().unwrap_or("-"))];
    parts.extend(status.reason.as_ref().map(|reason| format!("reason {reason}")));
    parts.extend(status.message.as_ref().map(|message| format!("message {message:?}")));
    parts.extend(status.pod_ip.as_ref().map(|ip| format!("podIP {ip}")));
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
    let containers = containers.chain(&status.ephemeral_container_statuses).flatten();
    parts.extend(containers.map(|container| format!("{} {}", container.name, container_words(container))));
    for condition in status.conditions.iter().flatten() {
        let reason = condition.reason.as_deref().filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| format!("({reason})")).unwrap_or_default();
        parts.push(format!("{}={}{reason}", condition.type_, condition.status));
    }
    parts
}

/// `running, ready, restarts 2, before: ended 1 (Error)`
fn container_words(container: &ContainerStatus) -> String {
    let mut words = vec![state_words(container.state.as_ref())];
    if container.ready {
        words.push("ready".to_owned());
    }
    if container.restart_count > 0 {
        words.push(format!("restarts {}", container.restart_count));
    }
    if container.last_state.as_ref().is_some_and(|last| last.terminated.is_some()) {
        words.push(format!("before: {}", state_words(container.last_state.as_ref())));
    }
    words.join(", ")
}

fn state_words(state: Option<&ContainerState>) -> String {
    match state {
        Some(ContainerState { waiting: Some(waiting), .. }) => match waiting.reason.as_deref() {
            Some(reason) => format!("waiting ({reason})"),
            None => "waiting".to_owned(),
        },
        Some(ContainerState { running: Some(_), .. }) => "running".to_owned(),
        Some(ContainerState { terminated: Some(end), .. }) => {
            format!("ended {} ({})", end.exit_code, end.reason.as_deref().unwrap_or("-"))
        }
        _ => "waiting".to_owned(),
    }
}

/// `0s`, `10s`, `1m20s`, `1h0m5s`, `2.5s`
fn clock(at: Duration) -> String {
    let (hours, minutes) = (at.as_secs() / 3600, at.as_secs() / 60 % 60);
    let seconds = (at.as_millis() % 60_000) as f64 / 1000.0;
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}
