//! What may change after a pod's creation (API-361, API-588 to API-592).

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::doc::{at, by, items, keep, object, text};
use crate::errors::FieldError;
use crate::kinds::pod::app_armor;

pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

const ALLOWED: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate(doc: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(mirror_annotation(doc, old));
    errors.extend(app_armor::changes(doc, old));
    for list in ["spec.containers", "spec.initContainers"] {
        if items(doc, list).len() != items(old, list).len() {
            errors.push(FieldError::forbidden(list, "pod updates may not add or remove containers"));
        }
    }
    // Comparing the rest would only repeat the same problem.
    if !errors.is_empty() {
        return errors;
    }
    errors.extend(deadline(doc, old));
    errors.extend(tolerations(doc, old));
    errors.extend(gates(doc, old));
    errors.extend(node_selector(doc, old));
    errors.extend(node_affinity(doc, old));
    let differences = frozen_differences(doc, old);
    if !differences.is_empty() {
        errors.push(FieldError::forbidden("spec", format!("{ALLOWED}\n{}", differences.join("\n"))));
    }
    errors
}

/// API-592.
fn mirror_annotation(doc: &Value, old: &Value) -> Option<FieldError> {
    let read = |doc: &Value| at(doc, "metadata.annotations").get(MIRROR).cloned();
    let detail = match (read(old), read(doc)) {
        (old, new) if old == new => return None,
        (None, Some(_)) => "may not add mirror pod annotation",
        _ => "may not remove or update mirror pod annotation",
    };
    Some(FieldError::forbidden(format!("metadata.annotations[{MIRROR}]"), detail))
}

/// Set once, then only lowered.
fn deadline(doc: &Value, old: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.activeDeadlineSeconds";
    let before = at(old, PATH).as_i64()?;
    match at(doc, PATH).as_i64() {
        None => Some(FieldError::invalid(PATH, Value::Null, "must not update from a positive integer to nil value")),
        Some(after) if after > before => {
            Some(FieldError::invalid(PATH, after, "must be less than or equal to previous value"))
        }
        Some(_) => None,
    }
}

/// Every old toleration must survive; only its seconds may change.
fn tolerations(doc: &Value, old: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.tolerations";
    let key = |toleration| ["key", "operator", "value", "effect"].map(|field| text(toleration, field));
    let new: HashSet<[&str; 4]> = items(doc, PATH).iter().map(key).collect();
    let lost = items(old, PATH).iter().any(|before| !new.contains(&key(before)));
    lost.then(|| FieldError::forbidden(PATH, "existing toleration can not be modified except its tolerationSeconds"))
}

fn gates(doc: &Value, old: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.schedulingGates";
    let known = by(items(old, PATH), "name");
    let new = items(doc, PATH).iter().map(|gate| text(gate, "name"));
    new.filter(|name| !known.contains_key(name))
        .map(|name| {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            FieldError::forbidden(format!("{PATH}.{name}"), detail)
        })
        .collect()
}

/// API-589: a gated pod's selector may grow.
fn node_selector(doc: &Value, old: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.nodeSelector";
    if items(old, "spec.schedulingGates").is_empty() {
        return None;
    }
    let mut before = at(old, PATH).as_object().into_iter().flatten();
    before.any(|(key, value)| at(doc, PATH).get(key) != Some(value)).then(|| {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        FieldError::invalid(PATH, at(doc, PATH).clone(), detail)
    })
}

/// API-589: a gated pod may be wanted on fewer nodes, not on others.
fn node_affinity(doc: &Value, old: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (before, after) = (items(old, PATH), items(doc, PATH));
    if items(old, "spec.schedulingGates").is_empty() || before.is_empty() {
        return Vec::new();
    }
    if before.len() != after.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return vec![FieldError::invalid(PATH, at(doc, PATH).clone(), detail)];
    }
    let has_only_additions = |before: &Value, after: &Value| {
        let lists = ["matchExpressions", "matchFields"].map(|list| (items(before, list), items(after, list)));
        let was_empty = lists.iter().all(|(before, _)| before.is_empty());
        lists.iter().all(|(before, after)| after.starts_with(before) && (after.is_empty() || !was_empty))
    };
    let terms = before.iter().zip(after).enumerate();
    terms
        .filter(|(_, (before, after))| !has_only_additions(before, after))
        .map(|(index, (_, after))| {
            let detail = "only additions are allowed (no mutations or deletions)";
            FieldError::invalid(format!("{PATH}[{index}]"), after.clone(), detail)
        })
        .collect()
}

/// API-590, API-591: what differs once the mutable fields are put back.
fn frozen_differences(doc: &Value, old: &Value) -> Vec<String> {
    let mut copy = doc.clone();
    let old_spec = at(old, "spec");
    for list in ["containers", "initContainers"] {
        let before = items(old_spec, list);
        let path = format!("spec.{list}");
        for (container, before) in crate::doc::items_mut(&mut copy, &path).iter_mut().zip(before) {
            keep(crate::doc::as_object(container), before, "image");
        }
    }
    let spec = object(&mut copy, "spec");
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        keep(spec, old_spec, field);
    }
    if !items(old, "spec.schedulingGates").is_empty() {
        keep(spec, old_spec, "nodeSelector");
        keep_node_affinity(spec, old_spec);
    }
    let grace = |doc: &Value| at(doc, "spec.terminationGracePeriodSeconds").as_i64();
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(doc) == Some(1) {
        keep(spec, old_spec, "terminationGracePeriodSeconds");
    }
    let mut lines = Vec::new();
    difference("", old_spec, at(&copy, "spec"), &mut lines);
    lines
}

fn keep_node_affinity(spec: &mut Map<String, Value>, old_spec: &Value) {
    if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
        keep(affinity, at(old_spec, "affinity"), "nodeAffinity");
        if affinity.is_empty() && at(old_spec, "affinity").is_null() {
            spec.shift_remove("affinity");
        }
    } else if !at(old_spec, "affinity.nodeAffinity").is_null() {
        spec.insert("affinity".to_owned(), json!({"nodeAffinity": at(old_spec, "affinity.nodeAffinity")}));
    }
}

/// One line per value that went and per value that came.
pub(in crate::kinds) fn difference(path: &str, old: &Value, new: &Value, lines: &mut Vec<String>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let added = after.keys().filter(|key| !before.contains_key(*key));
            for key in before.keys().chain(added) {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                difference(&below, at_key(old, key), at_key(new, key), lines);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                difference(&format!("{path}[{index}]"), before, after, lines);
            }
        }
        _ => {
            if !old.is_null() {
                lines.push(format!("-  {path}: {old}"));
            }
            if !new.is_null() {
                lines.push(format!("+  {path}: {new}"));
            }
        }
    }
}

/// Unlike a path, a key may contain dots.
fn at_key<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests;
