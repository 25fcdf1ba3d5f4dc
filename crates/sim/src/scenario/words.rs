//! Entries in words: `at 5s: exit app 1` becomes the mapping it stands for.

use serde_json::{Map, Value, json};

use super::deed::VERBS;

/// What can be said in words, for errors.
const EXAMPLES: &[(&str, &str)] = &[
    ("exit", "exit CONTAINER CODE"),
    ("oom", "oom CONTAINER"),
    ("probe", "probe fails|succeeds CONTAINER startup|liveness|readiness"),
    ("hook", "hook fails|succeeds CONTAINER postStart|preStop, hook takes 5s CONTAINER preStop"),
    ("delete", "delete [grace=10]"),
    ("kubelet", "kubelet restarts"),
    ("node", "node reboots, node shuts-down"),
    ("evict", "evict [cause=pressure|storage|preemption] [grace=10]"),
    ("resize", "resize CONTAINER, with requests and limits in the mapping form"),
    ("api", "api down, api up"),
    ("sandbox", "sandbox lost, sandbox fails, sandbox works"),
    ("image", "image [CONTAINER] pull fails [once|twice|3 times], … pull takes 5s, … pull succeeds"),
    ("start", "start CONTAINER fails [once|twice|3 times], start CONTAINER succeeds"),
    ("process", "process [CONTAINER] ignores TERM, … obeys TERM [after 3s] [code 0], … exits 1 [after 5s] [twice]"),
    ("condition", "condition TYPE True|False|Unknown"),
    ("update", "update CONTAINER image=IMAGE"),
];

/// `[at TIME:] VERB …`
pub(super) fn entry(text: &str) -> Result<Map<String, Value>, String> {
    let mut map = Map::new();
    let mut rest = text.trim();
    if let Some(timed) = rest.strip_prefix("at ") {
        let (at, said) = timed.split_once(':').unwrap_or((timed, ""));
        map.insert("at".to_owned(), json!(at.trim()));
        rest = said.trim();
        if rest.is_empty() {
            return Ok(map);
        }
    }
    let mut words = rest.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let Some((_, example)) = EXAMPLES.iter().find(|(known, _)| *known == verb) else {
        return Err(format!("{verb:?} is not something that can happen; possible: {}", VERBS.join(", ")));
    };
    let words: Vec<&str> = words.collect();
    let (fields, words): (Vec<&str>, Vec<&str>) = words.into_iter().partition(|word| word.contains('='));
    let mut value = sentence(verb, &words).ok_or_else(|| format!("{rest:?} is not understood; say: {example}"))?;
    for (key, given) in fields.iter().filter_map(|field| field.split_once('=')) {
        match &mut value {
            Value::Object(map) => drop(map.insert(key.to_owned(), json!(given))),
            _ => return Err(format!("{verb}: unknown field {key:?}; say: {example}")),
        }
    }
    map.insert(verb.to_owned(), value);
    Ok(map)
}

/// The value of the verb, as the mapping form has it.
fn sentence(verb: &str, words: &[&str]) -> Option<Value> {
    Some(match (verb, words) {
        ("exit", [container, code]) => json!({ "container": container, "code": code }),
        ("oom", [container]) => json!({ "container": container }),
        ("probe", [how @ ("fails" | "succeeds"), container, kind]) => {
            let result = if *how == "fails" { "failure" } else { "success" };
            json!({ "container": container, "kind": kind, "result": result })
        }
        ("hook", ["takes", time, container, kind]) => json!({ "container": container, "kind": kind, "takes": time }),
        ("hook", [how @ ("fails" | "succeeds"), container, kind]) => {
            json!({ "container": container, "kind": kind, "result": how })
        }
        ("delete" | "evict", []) => json!({}),
        ("kubelet" | "node" | "api" | "sandbox", [what]) => json!(what),
        ("image", ["pull", rest @ ..]) => pull(None, rest)?,
        ("image", [container, "pull", rest @ ..]) => pull(Some(container), rest)?,
        ("start", [container, "fails", rest @ ..]) => {
            json!({ "container": container, "fails": "start", "times": times(rest)? })
        }
        ("start", [container, "succeeds"]) => json!({ "container": container, "fails": "never" }),
        ("process", [what @ ("ignores" | "obeys" | "exits"), rest @ ..]) => process(None, what, rest)?,
        ("process", [container, what, rest @ ..]) => process(Some(container), what, rest)?,
        ("condition", [kind, status]) => json!({ "type": kind, "status": status }),
        ("update", [container]) => json!({ "container": container }),
        _ => return None,
    })
}

fn pull(container: Option<&&str>, words: &[&str]) -> Option<Value> {
    let mut value = match words {
        ["fails", rest @ ..] => json!({ "pull": "fails", "times": times(rest)? }),
        ["takes", time] => json!({ "pull": "takes", "time": time }),
        ["succeeds"] => json!({ "pull": "succeeds" }),
        _ => return None,
    };
    name(&mut value, container);
    Some(value)
}

fn process(container: Option<&&str>, what: &str, words: &[&str]) -> Option<Value> {
    let mut value = match (what, words) {
        ("ignores", ["TERM"]) => json!({ "on-term": "ignores" }),
        ("obeys", ["TERM", rest @ ..]) => json!({ "on-term": ending(rest)? }),
        ("exits", ["never"]) => json!({ "exits": "never" }),
        ("exits", [code, rest @ ..]) => {
            let mut exits = ending(rest)?;
            exits["code"] = json!(code);
            json!({ "exits": exits })
        }
        _ => return None,
    };
    name(&mut value, container);
    Some(value)
}

/// `[after 3s] [code 0] [twice]`
fn ending(mut words: &[&str]) -> Option<Value> {
    let mut value = json!({});
    loop {
        words = match words {
            [] => return Some(value),
            ["after", time, rest @ ..] => {
                value["after"] = json!(time);
                rest
            }
            ["code", code, rest @ ..] => {
                value["code"] = json!(code);
                rest
            }
            rest => {
                value["times"] = times(rest)?;
                &[]
            }
        };
    }
}

/// `always` (or nothing), `once`, `twice`, `3 times`
fn times(words: &[&str]) -> Option<Value> {
    Some(match words {
        [] | ["always"] => json!("always"),
        ["once"] => json!(1),
        ["twice"] => json!(2),
        [number, "times"] => json!(number.parse::<u32>().ok()?),
        _ => return None,
    })
}

fn name(value: &mut Value, container: Option<&&str>) {
    if let Some(container) = container {
        value["container"] = json!(container);
    }
}
