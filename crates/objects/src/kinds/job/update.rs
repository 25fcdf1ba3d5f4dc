//! What may change after a job's creation (API-364).

use serde_json::{Value, json};

use crate::doc::{as_object, at, keep, object, text};
use crate::errors::FieldError;
use crate::kinds::workload::{SELECTOR, TEMPLATE};
use crate::meta::immutable;

pub(super) fn validate(doc: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(completions(doc, old));
    errors.extend(immutable(SELECTOR, at(doc, SELECTOR), at(old, SELECTOR)));
    errors.extend(immutable(TEMPLATE, at(doc, TEMPLATE), &comparable(doc, old)));
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        let path = format!("spec.{field}");
        errors.extend(immutable(&path, at(doc, &path), at(old, &path)));
    }
    errors
}

fn completions(doc: &Value, old: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.completions";
    let (new, before) = (at(doc, PATH), at(old, PATH));
    if text(doc, "spec.completionMode") != "Indexed" {
        return immutable(PATH, new, before);
    }
    let is_fine = new == before || new.is_null() || new == at(doc, "spec.parallelism");
    let detail = "can only be modified in tandem with spec.parallelism";
    (!is_fine).then(|| FieldError::invalid(PATH, new.clone(), detail))
}

/// The old template; while the job is suspended and was never started, with
/// what the new one says about where its pods go.
fn comparable(doc: &Value, old: &Value) -> Value {
    let mut template = at(old, TEMPLATE).clone();
    let may_move = at(old, "spec.suspend") == true && at(old, "status.startTime").is_null();
    if !may_move {
        return template;
    }
    let new = at(doc, TEMPLATE);
    for field in ["annotations", "labels"] {
        keep(object(&mut template, "metadata"), at(new, "metadata"), field);
    }
    let spec = object(&mut template, "spec");
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        keep(spec, at(new, "spec"), field);
    }
    let affinity = at(new, "spec.affinity");
    let mut kept = spec.get("affinity").cloned().unwrap_or_else(|| json!({}));
    keep(as_object(&mut kept), affinity, "nodeAffinity");
    if affinity.is_null() && kept == json!({}) {
        spec.shift_remove("affinity");
    } else {
        spec.insert("affinity".to_owned(), kept);
    }
    template
}
