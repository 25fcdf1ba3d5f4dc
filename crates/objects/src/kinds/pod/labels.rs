//! Label keys in affinity and spread terms become requirements on the pod's own
//! labels when it is created (API-493).

use serde_json::{Map, Value, json};

use crate::doc::{as_object, at, items, items_mut};

const KINDS: [&str; 2] = ["podAffinity", "podAntiAffinity"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn resolve_keys(doc: &mut Value) {
    let labels = at(doc, "metadata.labels").as_object().cloned().unwrap_or_default();
    for kind in KINDS {
        for term in items_mut(doc, &format!("spec.affinity.{kind}.{REQUIRED}")) {
            resolve(term, &labels);
        }
        for weighted in items_mut(doc, &format!("spec.affinity.{kind}.{PREFERRED}")) {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                resolve(term, &labels);
            }
        }
    }
    for constraint in items_mut(doc, "spec.topologySpreadConstraints") {
        resolve(constraint, &labels);
    }
}

fn resolve(term: &mut Value, labels: &Map<String, Value>) {
    let mut added = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in items(term, field).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    // A term without a selector matches nothing and stays so.
    if let Some(selector) = term.get_mut("labelSelector") {
        let expressions = as_object(selector).entry("matchExpressions").or_insert(json!([]));
        if let Some(list) = expressions.as_array_mut() {
            list.extend(added);
        }
    }
}
