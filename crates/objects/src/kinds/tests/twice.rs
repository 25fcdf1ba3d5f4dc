//! What is done twice is done once: defaults and apply, of good documents in
//! which any one value was replaced, whether the rest makes sense or not.

use serde_json::{Value, json};

use crate::apply::{Writer, apply, is_same_but_times};
use crate::kinds::{Kind, find_kind};

const GOOD: [&str; 12] = [
    include_str!("../../../../../fuzz/seeds/objects/budget"),
    include_str!("../../../../../fuzz/seeds/objects/claim"),
    include_str!("../../../../../fuzz/seeds/objects/cron_job"),
    include_str!("../../../../../fuzz/seeds/objects/deployment"),
    include_str!("../../../../../fuzz/seeds/objects/ingress"),
    include_str!("../../../../../fuzz/seeds/objects/job"),
    include_str!("../../../../../fuzz/seeds/objects/node"),
    include_str!("../../../../../fuzz/seeds/objects/pod"),
    include_str!("../../../../../fuzz/seeds/objects/role"),
    include_str!("../../../../../fuzz/seeds/objects/service"),
    include_str!("../../../../../fuzz/seeds/objects/slice"),
    include_str!("../../../../../fuzz/seeds/objects/stateful_set"),
];

fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                pointers(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Documents of a kind, each with the place that was changed.
fn variants() -> Vec<(&'static Kind, String, Value)> {
    let mut all = Vec::new();
    for text in GOOD {
        let doc: Value = serde_json::from_str(text).unwrap();
        let text = |key: &str| doc[key].as_str().unwrap().to_owned();
        let kind = find_kind(&text("apiVersion"), &text("kind")).unwrap();
        let mut places = Vec::new();
        pointers(&doc, "", &mut places);
        for place in places.iter().filter(|place| !["", "/kind", "/apiVersion"].contains(&place.as_str())) {
            for value in [json!(null), json!({}), json!([]), json!(""), json!([null]), json!([{}]), json!(0)] {
                let mut doc = doc.clone();
                let told = format!("{} {place} = {value}", kind.kind);
                *doc.pointer_mut(place).unwrap() = value;
                if kind.ops.decode(&doc).is_ok() {
                    all.push((kind, told, doc));
                }
            }
        }
    }
    all
}

#[test]
fn defaults_of_defaults_are_the_same() {
    let mut differing = Vec::new();
    for (kind, told, mut doc) in variants() {
        kind.ops.default(&mut doc);
        let mut again = doc.clone();
        kind.ops.default(&mut again);
        if again != doc {
            differing.push(format!("{told}\n  {doc}\n  {again}"));
        }
    }
    assert!(differing.is_empty(), "{}:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn api_461_what_is_applied_twice_is_applied_once() {
    let mut differing = Vec::new();
    let writer = Writer { manager: "me", now: "2026-01-01T00:00:00Z", subresource: "" };
    for (kind, told, config) in variants() {
        if differs_upstream(&config) {
            continue;
        }
        let Ok(mut applied) = apply(kind, None, &config, &writer, false) else { continue };
        kind.ops.default(&mut applied);
        let again = apply(kind, Some(&applied), &config, &writer, false);
        let mut again = again.unwrap_or_else(|error| panic!("{told}: {}", error.message()));
        kind.ops.default(&mut again);
        if !is_same_but_times(&applied, &again) {
            differing.push(format!("{told}\n  {applied}\n  {again}"));
        }
    }
    assert!(differing.is_empty(), "{}:\n{}", differing.len(), differing.join("\n"));
}

/// Upstream takes a null for the key of an item, and nothing of an item that
/// says nothing; and what a Job does not say of completions depends on whether
/// it has a parallelism already.
fn differs_upstream(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| {
            let fields = item.as_object();
            fields.is_some_and(|fields| fields.is_empty() || fields.values().any(Value::is_null))
                || differs_upstream(item)
        }),
        Value::Object(fields) => {
            fields.get("completions").is_some_and(Value::is_null) || fields.values().any(differs_upstream)
        }
        _ => false,
    }
}
