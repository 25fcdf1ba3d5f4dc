//! What PersistentVolume, PersistentVolumeClaim and StorageClass share: access
//! modes, amounts, cells.

use serde_json::Value;

use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::quantity::Quantity;

const MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

/// API-763.
pub(super) fn access_modes(doc: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.accessModes";
    let given = items(doc, PATH);
    let mut errors = Vec::new();
    if given.is_empty() {
        errors.push(FieldError::required(PATH, "at least 1 access mode is required"));
    }
    let known = MODES.map(|(name, _)| name);
    for mode in given.iter().filter(|mode| !mode.as_str().is_some_and(|mode| known.contains(&mode))) {
        let mut known = known.to_vec();
        known.sort_unstable();
        errors.push(FieldError::not_supported(PATH, mode.clone(), &known));
    }
    if given.len() > 1 && given.iter().any(|mode| mode == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(PATH, detail));
    }
    errors
}

/// API-763: there and more than nothing.
pub(super) fn storage(doc: &Value, path: &str) -> Option<FieldError> {
    let amount = at(doc, path);
    let Some(amount) = amount.get("storage") else {
        return Some(FieldError::required(format!("{path}[storage]"), ""));
    };
    let is_positive = amount
        .as_str()
        .and_then(|text| Quantity::parse(text).ok())
        .is_some_and(|it| !it.is_zero() && !it.is_negative());
    (!is_positive).then(|| FieldError::invalid(format!("{path}[storage]"), amount.clone(), "must be greater than zero"))
}

pub(super) fn volume_mode(doc: &Value) -> Option<FieldError> {
    let mode = at(doc, "spec.volumeMode");
    let is_known = mode.is_null() || mode == "Block" || mode == "Filesystem";
    (!is_known).then(|| FieldError::not_supported("spec.volumeMode", mode.clone(), &["Block", "Filesystem"]))
}

/// API-288.
pub(super) fn phase(doc: &Value) -> &str {
    if at(doc, "metadata.deletionTimestamp").is_null() { text(doc, "status.phase") } else { "Terminating" }
}

/// API-288: in the order of the table, each once.
pub(super) fn modes_cell(modes: &[Value]) -> String {
    let has = |name: &str| modes.iter().any(|mode| mode == name);
    let short: Vec<&str> = MODES.iter().filter(|(name, _)| has(name)).map(|(_, short)| *short).collect();
    short.join(",")
}

/// API-288.
pub(super) fn or_unset(value: &Value) -> &str {
    value.as_str().unwrap_or("<unset>")
}
