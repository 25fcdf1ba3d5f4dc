//! Annotations of pods that mean something (API-494, API-567, API-568).

use serde_json::Value;

use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::kinds::pod::app_armor;
use crate::kinds::pod::update::MIRROR;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Of a pod or template; `path` is that of the annotations.
pub(in crate::kinds::pod) fn all(doc: &Value, path: &str) -> Vec<FieldError> {
    let annotations = at(doc, "metadata.annotations");
    let mut errors = Vec::new();
    if let Some(hash) = annotations.get(MIRROR) {
        if text(doc, "spec.nodeName").is_empty() {
            let detail = "must set spec.nodeName if mirror pod annotation is set";
            errors.push(FieldError::invalid(format!("{path}[{MIRROR}]"), hash.clone(), detail));
        }
        if path.starts_with("metadata") && !items(doc, "spec.resourceClaims").is_empty() {
            errors.push(FieldError::forbidden("", "static pods do not support resource claims"));
        }
    }
    if let Some(cost) = annotations.get(COST).and_then(Value::as_str).filter(|cost| !is_cost(cost)) {
        errors.push(FieldError::invalid(format!("{path}[{COST}]"), cost, "must be a 32bit integer"));
    }
    errors.extend(app_armor::validate(doc, path));
    errors
}

/// Neither a plus sign nor leading zeros.
fn is_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits == "0" || !digits.starts_with(['0', '+']);
    text.parse::<i32>().is_ok() && is_plain
}
