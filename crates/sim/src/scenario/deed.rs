//! The verbs of a script and their fields.

use std::collections::BTreeMap;
use std::time::Duration;

use lifecycle::node::{Eviction, EvictionCause};
use lifecycle::{HookKind, ProbeKind, ProbeResult, StartStage};
use serde_json::Value;

use super::fields::{self, Fields};
use super::{Deed, PullRun};
use crate::world::{Life, Manner, Trouble};

pub(super) const VERBS: &[&str] = &[
    "exit",
    "oom",
    "probe",
    "hook",
    "delete",
    "kubelet",
    "node",
    "api",
    "sandbox",
    "image",
    "start",
    "process",
    "condition",
    "update",
    "evict",
    "resize",
];

/// The exit code of a process that got KILL.
const KILLED: i32 = 137;

/// What `verb: what` means. A process can be told two things at once.
pub(super) fn read(verb: &str, what: &Value) -> Result<Vec<Deed>, String> {
    let one = |deed: Result<Deed, String>| deed.map(|deed| vec![deed]);
    match verb {
        "exit" => one(exit(Fields::of(verb, what)?)),
        "oom" => one(oom(Fields::of(verb, what)?)),
        "probe" => one(probe(Fields::of(verb, what)?)),
        "hook" => one(hook(Fields::of(verb, what)?)),
        "delete" => one(delete(Fields::of(verb, what)?)),
        "image" => one(image(Fields::of(verb, what)?)),
        "start" => one(start(Fields::of(verb, what)?)),
        "process" => process(Fields::of(verb, what)?),
        "condition" => one(condition(Fields::of(verb, what)?)),
        "evict" => one(evict(Fields::of(verb, what)?)),
        "resize" => one(resize(Fields::of(verb, what)?)),
        "update" => one(update(Fields::of(verb, what)?)),
        "kubelet" | "node" | "api" | "sandbox" => one(word(verb, what)),
        other => Err(format!("{other:?} is not something that can happen; possible: {}", VERBS.join(", "))),
    }
}

fn word(verb: &str, what: &Value) -> Result<Deed, String> {
    let said = fields::text(verb, what)?;
    let possible = match (verb, said.as_str()) {
        ("kubelet", "restarts") => return Ok(Deed::KubeletRestarts),
        ("node", "reboots") => return Ok(Deed::NodeReboots),
        ("node", "shuts-down") => return Ok(Deed::Evict { eviction: shutdown() }),
        ("api", "down") => return Ok(Deed::Api { is_up: false }),
        ("api", "up") => return Ok(Deed::Api { is_up: true }),
        ("sandbox", "lost") => return Ok(Deed::SandboxLost),
        ("sandbox", "fails") => return Ok(Deed::SandboxFails { message: Some("the network is not ready".to_owned()) }),
        ("sandbox", "works") => return Ok(Deed::SandboxFails { message: None }),
        ("kubelet", _) => "restarts",
        ("node", _) => "reboots, shuts-down",
        ("api", _) => "down, up",
        _ => "lost, fails, works",
    };
    Err(format!("{verb}: {said:?} is not possible; possible: {possible}"))
}

fn code(fields: &mut Fields) -> Result<Option<i32>, String> {
    let Some(number) = fields.number("code")? else { return Ok(None) };
    match u8::try_from(number) {
        Ok(code) => Ok(Some(i32::from(code))),
        Err(_) => Err(format!("code: {number} is not an exit code; possible: 0 to 255")),
    }
}

fn exit(mut fields: Fields) -> Result<Deed, String> {
    let container = fields.needed("container")?;
    let code = code(&mut fields)?.unwrap_or(0);
    let reason = fields.text("reason")?;
    fields.finish()?;
    Ok(Deed::Exit { container, code, reason })
}

fn oom(mut fields: Fields) -> Result<Deed, String> {
    let container = fields.needed("container")?;
    fields.finish()?;
    Ok(Deed::Exit { container, code: KILLED, reason: Some("OOMKilled".to_owned()) })
}

fn probe(mut fields: Fields) -> Result<Deed, String> {
    let container = fields.needed("container")?;
    let kind = match fields.needed("kind")?.as_str() {
        "startup" => ProbeKind::Startup,
        "liveness" => ProbeKind::Liveness,
        "readiness" => ProbeKind::Readiness,
        other => return Err(format!("kind: {other:?} is not a probe; possible: startup, liveness, readiness")),
    };
    let message = fields.text("message")?;
    let words = |default: &str| message.unwrap_or_else(|| default.to_owned());
    let result = match fields.needed("result")?.as_str() {
        "success" => ProbeResult::Success,
        "failure" => ProbeResult::Failure(words("the script says so")),
        "unknown" => ProbeResult::Unknown(words("the script says so")),
        other => return Err(format!("result: {other:?} is not possible; possible: success, failure, unknown")),
    };
    fields.finish()?;
    Ok(Deed::Probe { container, kind, result })
}

fn hook(mut fields: Fields) -> Result<Deed, String> {
    let container = fields.needed("container")?;
    let kind = match fields.needed("kind")?.as_str() {
        "postStart" => HookKind::PostStart,
        "preStop" => HookKind::PreStop,
        other => return Err(format!("kind: {other:?} is not a hook; possible: postStart, preStop")),
    };
    let takes = match fields.take("takes") {
        None => Some(Duration::ZERO),
        Some(Value::String(word)) if word == "forever" => None,
        Some(takes) => Some(fields::duration("takes", &takes)?),
    };
    let error = match fields.text("result")?.as_deref() {
        None | Some("succeeds") => None,
        Some("fails") => Some(fields.text("message")?.unwrap_or_else(|| "the script says so".to_owned())),
        Some(other) => return Err(format!("result: {other:?} is not possible; possible: succeeds, fails")),
    };
    fields.finish()?;
    Ok(Deed::Hook { container, kind, takes, error })
}

fn delete(mut fields: Fields) -> Result<Deed, String> {
    let grace = fields.duration("grace")?;
    fields.finish()?;
    Ok(Deed::Delete { grace })
}

fn image(mut fields: Fields) -> Result<Deed, String> {
    let container = fields.text("container")?;
    let left = fields.times()?;
    let time = fields.duration("time")?;
    let message = fields.text("message")?.unwrap_or_else(|| "the registry does not answer".to_owned());
    let how = match (fields.needed("pull")?.as_str(), time) {
        ("fails", _) => PullRun::Fails(Trouble { left, message }),
        ("succeeds", _) => PullRun::Succeeds,
        ("takes", Some(time)) => PullRun::Takes(time),
        ("takes", None) => return Err("image: pull: takes needs a time".to_owned()),
        (other, _) => return Err(format!("pull: {other:?} is not possible; possible: fails, takes, succeeds")),
    };
    fields.finish()?;
    Ok(Deed::Pull { container, how })
}

fn start(mut fields: Fields) -> Result<Deed, String> {
    let container = fields.needed("container")?;
    let left = fields.times()?;
    let message = fields.text("message")?.unwrap_or_else(|| "the script says so".to_owned());
    let stage = match fields.needed("fails")?.as_str() {
        "configure" => Some(StartStage::Configure),
        "create" => Some(StartStage::Create),
        "start" => Some(StartStage::Start),
        "never" => None,
        other => return Err(format!("fails: {other:?} is not possible; possible: configure, create, start, never")),
    };
    fields.finish()?;
    Ok(Deed::Start { container, trouble: stage.map(|stage| (stage, Trouble { left, message })) })
}

fn process(mut fields: Fields) -> Result<Vec<Deed>, String> {
    let container = fields.text("container")?;
    let mut deeds = Vec::new();
    match fields.take("on-term") {
        None => {}
        Some(Value::String(word)) if word == "ignores" => {
            deeds.push(Deed::OnTerm { container: container.clone(), manner: Manner::Ignores });
        }
        Some(how) => {
            let (after, code, _) = ending("on-term", &how, "ignores, {after: 3s, code: 0}")?;
            let manner = Manner::Exits { after: after.unwrap_or_default(), code: code.unwrap_or(0) };
            deeds.push(Deed::OnTerm { container: container.clone(), manner });
        }
    }
    match fields.take("exits") {
        None => {}
        Some(Value::String(word)) if word == "never" => {
            deeds.push(Deed::Lives { container: container.clone(), life: None });
        }
        Some(how) => {
            let (after, code, left) = ending("exits", &how, "never, {after: 3s, code: 0, times: 2}")?;
            let life = Life { after: after.unwrap_or_default(), code: code.unwrap_or(0), left };
            deeds.push(Deed::Lives { container: container.clone(), life: Some(life) });
        }
    }
    fields.finish()?;
    if deeds.is_empty() {
        return Err("process: says nothing; possible: on-term, exits".to_owned());
    }
    Ok(deeds)
}

type Ending = (Option<Duration>, Option<i32>, Option<u32>);

fn ending(key: &str, how: &Value, possible: &str) -> Result<Ending, String> {
    if !how.is_object() {
        return Err(format!("{key}: {how} is not possible; possible: {possible}"));
    }
    let mut fields = Fields::of(key, how)?;
    let ending = (fields.duration("after")?, code(&mut fields)?, fields.times()?);
    fields.finish()?;
    Ok(ending)
}

fn condition(mut fields: Fields) -> Result<Deed, String> {
    let kind = fields.needed("type")?;
    let status = fields.needed("status")?;
    if !["True", "False", "Unknown"].contains(&status.as_str()) {
        return Err(format!("status: {status:?} is not possible; possible: True, False, Unknown"));
    }
    fields.finish()?;
    Ok(Deed::Condition { kind, status })
}

fn update(mut fields: Fields) -> Result<Deed, String> {
    let container = fields.needed("container")?;
    let image = fields.needed("image")?;
    fields.finish()?;
    Ok(Deed::Update { container, image })
}

/// With the grace an operator might configure for ordinary pods.
fn shutdown() -> Eviction {
    Eviction {
        cause: EvictionCause::Shutdown,
        message: "Pod was terminated in response to imminent node shutdown.".to_owned(),
        grace: Some(Duration::from_secs(20)),
        annotations: BTreeMap::new(),
    }
}

fn evict(mut fields: Fields) -> Result<Deed, String> {
    let (cause, message) = match fields.text("cause")?.as_deref() {
        None | Some("pressure") => (EvictionCause::Pressure, "The node was low on resource: memory. "),
        Some("storage") => (
            EvictionCause::StorageLimit,
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        ),
        Some("disk") => (EvictionCause::StorageLost, "The storage of the pod was lost. "),
        Some("preemption") => (EvictionCause::Preemption, "Preempted in order to admit critical pod"),
        Some(other) => {
            return Err(format!("cause: {other:?} is not possible; possible: pressure, storage, disk, preemption"));
        }
    };
    let message = fields.text("message")?.unwrap_or_else(|| message.to_owned());
    let grace = fields.duration("grace")?;
    fields.finish()?;
    Ok(Deed::Evict { eviction: Eviction { cause, message, grace, annotations: BTreeMap::new() } })
}

fn resize(mut fields: Fields) -> Result<Deed, String> {
    let container = fields.needed("container")?;
    let requests = amounts("requests", fields.take("requests"))?;
    let limits = amounts("limits", fields.take("limits"))?;
    fields.finish()?;
    if requests.is_empty() && limits.is_empty() {
        return Err("resize: says nothing; possible: requests, limits".to_owned());
    }
    Ok(Deed::Resize { container, requests, limits })
}

/// `{cpu: 100m, memory: 64Mi}` as `cpu:100m,memory:64Mi`.
fn amounts(key: &str, value: Option<Value>) -> Result<String, String> {
    let Some(value) = value else { return Ok(String::new()) };
    let Value::Object(map) = &value else { return Err(format!("{key}: say {{cpu: 100m, memory: 64Mi}}")) };
    let mut parts = Vec::new();
    for (name, amount) in map {
        let amount = fields::text(name, amount)?;
        if !["cpu", "memory"].contains(&name.as_str()) {
            return Err(format!("{key}: {name:?} cannot be resized; possible: cpu, memory"));
        }
        amount.parse::<objects::Quantity>().map_err(|_| format!("{name}: {amount:?} is not a quantity"))?;
        parts.push(format!("{name}:{amount}"));
    }
    Ok(parts.join(","))
}
