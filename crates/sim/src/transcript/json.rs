//! Lines for tools: one JSON object each.

use lifecycle::{Action, CgroupValues, Outcome, Planned};
use serde_json::{Map, Value, json};

use super::{Line, What, changes, error};

/// `{"t", "type", "name", "container", "detail", "cause"}`, with `pod` before
/// them when the story has several. `None` for what nobody would see.
pub fn object(line: &Line, pod: Option<&str>) -> Option<Value> {
    let (kind, name, container, detail, cause) = match &line.what {
        What::Happened(happening) => {
            let container = happening.container.clone();
            ("fact", happening.name.to_owned(), container, happening.detail.clone(), None)
        }
        What::Did(Planned { action, cause }) => {
            let (name, container, detail) = action_parts(action);
            ("action", name.to_owned(), container, detail, Some(format!("{}: {}", cause.rule, cause.because)))
        }
        What::Sent { container, id, signal, cause } => {
            let detail = json!({ "id": id, "signal": signal });
            let cause = Some(format!("{}: {}", cause.rule, cause.because));
            ("action", "SendSignal".to_owned(), Some(container.clone()), detail, cause)
        }
        What::Ended(action, Outcome::Probed(result)) => {
            let (_, container, mut detail) = action_parts(action);
            let (word, message) = super::answer(result);
            detail["result"] = json!(word);
            detail["message"] = json!(message);
            ("fact", "ProbeAnswered".to_owned(), container, detail, None)
        }
        What::Ended(action, outcome) => {
            let (name, container, mut detail) = action_parts(action);
            detail["error"] = json!(error(outcome));
            if let Outcome::NoImage { reason, .. } = outcome {
                detail["reason"] = json!(reason);
            }
            ("fact", format!("{name}Failed"), container, detail, None)
        }
        What::Published { before, after, causes } => {
            changes(before.as_deref(), after)?;
            let value = |status| serde_json::to_value(status).unwrap_or_default();
            let before = before.as_deref().map(value).unwrap_or_else(|| json!({}));
            let mut words: Vec<String> =
                causes.iter().map(|cause| format!("{}: {}", cause.rule, cause.because)).collect();
            words.dedup();
            let cause = (!words.is_empty()).then(|| words.join("; "));
            let changed = difference(&before, &value(after)).unwrap_or_else(|| json!({}));
            ("status", "PodStatus".to_owned(), None, changed, cause)
        }
        What::Told { severity, reason, message, container } => {
            let detail = json!({ "type": format!("{severity:?}"), "message": message });
            ("event", reason.clone().into_owned(), container.clone(), detail, None)
        }
        What::Changed { .. } => return None,
    };
    let mut object = Map::new();
    if let Some(pod) = pod {
        object.insert("pod".to_owned(), json!(pod));
    }
    let detail = if detail.is_null() { json!({}) } else { detail };
    object.insert("t".to_owned(), seconds(line.at.as_secs_f64()));
    object.insert("type".to_owned(), json!(kind));
    object.insert("name".to_owned(), json!(name));
    object.insert("container".to_owned(), json!(container));
    object.insert("detail".to_owned(), detail);
    object.insert("cause".to_owned(), json!(cause));
    Some(Value::Object(object))
}

/// Whole seconds without a fraction.
fn seconds(seconds: f64) -> Value {
    let whole = seconds.trunc();
    if (seconds - whole).abs() < f64::EPSILON { json!(whole as u64) } else { json!(seconds) }
}

fn action_parts(action: &Action) -> (&'static str, Option<String>, Value) {
    match action {
        Action::CreateSandbox { attempt } => ("CreateSandbox", None, json!({ "attempt": attempt })),
        Action::PullImage { container, image, policy } => {
            let detail = json!({ "image": image, "policy": format!("{policy:?}") });
            ("PullImage", Some(container.clone()), detail)
        }
        Action::StartContainer { container, attempt } => {
            ("StartContainer", Some(container.clone()), json!({ "attempt": attempt }))
        }
        Action::KillContainer { container, id, grace } => {
            let detail = json!({ "id": id, "graceSeconds": seconds(grace.as_secs_f64()) });
            ("KillContainer", Some(container.clone()), detail)
        }
        Action::RunProbe { container, id, probe } => {
            let detail = json!({ "id": id, "probe": probe.to_string().to_lowercase() });
            ("RunProbe", Some(container.clone()), detail)
        }
        Action::RunHook { container, id, hook, timeout } => {
            let timeout = timeout.map(|timeout| seconds(timeout.as_secs_f64()));
            let detail = json!({ "id": id, "hook": format!("{hook:?}"), "timeoutSeconds": timeout });
            ("RunHook", Some(container.clone()), detail)
        }
        Action::MeasureMemory => ("MeasureMemory", None, json!({})),
        Action::UpdateResources { container, id, limits } => {
            let mut detail = cgroup(limits);
            detail["id"] = json!(id);
            ("UpdateResources", Some(container.clone()), detail)
        }
        Action::UpdatePodResources { limits } => ("UpdatePodResources", None, cgroup(limits)),
        Action::RemoveContainer { container, id } => ("RemoveContainer", Some(container.clone()), json!({ "id": id })),
        Action::StopSandbox { id } => ("StopSandbox", None, json!({ "id": id })),
        Action::RemoveSandbox { id } => ("RemoveSandbox", None, json!({ "id": id })),
        Action::TearDown => ("TearDown", None, json!({})),
        Action::DeleteObject => ("DeleteObject", None, json!({})),
    }
}

fn cgroup(values: &CgroupValues) -> Value {
    json!({
        "cpuShares": values.cpu_shares,
        "cpuQuota": values.cpu_quota,
        "memoryLimitBytes": values.memory_limit_bytes,
    })
}

/// The part of `after` that is not in `before`; what vanished is null. Items
/// of keyed lists keep their key. `None` if nothing changed.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        _ if before == after => None,
        (Value::Object(old), Value::Object(new)) => {
            let mut changed = Map::new();
            for (key, value) in new {
                let part = match old.get(key) {
                    Some(was) => difference(was, value),
                    None => Some(value.clone()),
                };
                changed.extend(part.map(|part| (key.clone(), part)));
            }
            let vanished = old.keys().filter(|key| !new.contains_key(*key));
            changed.extend(vanished.map(|key| (key.clone(), Value::Null)));
            Some(Value::Object(changed))
        }
        (Value::Array(old), Value::Array(new)) => match new.iter().find_map(key_of) {
            Some(key) => Some(Value::Array(new.iter().filter_map(|item| changed_item(key, old, item)).collect())),
            None => Some(after.clone()),
        },
        _ => Some(after.clone()),
    }
}

/// Conditions are keyed by type, containers by name.
fn key_of(item: &Value) -> Option<&'static str> {
    ["type", "name"].into_iter().find(|key| item.get(key).is_some())
}

fn changed_item(key: &str, old: &[Value], item: &Value) -> Option<Value> {
    let Some(was) = old.iter().find(|was| was.get(key) == item.get(key)) else { return Some(item.clone()) };
    let mut changed = Map::new();
    changed.extend(item.get(key).map(|value| (key.to_owned(), value.clone())));
    if let Value::Object(part) = difference(was, item)? {
        changed.extend(part);
    }
    Some(Value::Object(changed))
}
