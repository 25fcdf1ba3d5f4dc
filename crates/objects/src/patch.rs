//! Patches: JSON patch, merge patch and strategic merge patch.

use std::fmt;

use serde_json::Value;

use crate::kinds::Kind;

mod json;
mod order;
mod size;
mod strategic;

/// A patch that can not be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchError {
    /// The patch itself is malformed: 400.
    Malformed(String),
    /// The patch does not fit the object: 422.
    Unprocessable(String),
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(problem) | Self::Unprocessable(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for PatchError {}

/// Whether a value takes more than `max` bytes as JSON, about.
pub fn is_longer(value: &Value, max: usize) -> bool {
    size::within(value, max, TEXT_PER_VALUE).is_none()
}

/// Brackets, quotes and commas.
const TEXT_PER_VALUE: usize = 2;

/// API-390: RFC 6902.
pub fn json_patch(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations: json_patch::Patch = serde::Deserialize::deserialize(patch)
        .map_err(|error: serde_json::Error| PatchError::Malformed(error.to_string()))?;
    json::apply(original.clone(), &operations.0).ok_or_else(|| {
        PatchError::Unprocessable("the server rejected our request due to an error in our request".to_owned())
    })
}

/// API-391: RFC 7386.
pub fn merge_patch(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("a merge patch must be a JSON object".to_owned()));
    }
    let mut result = original.clone();
    json_patch::merge(&mut result, patch);
    Ok(result)
}

/// API-393 to API-400.
pub fn strategic_merge_patch(kind: &Kind, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("a strategic merge patch must be a JSON object".to_owned()));
    }
    strategic::apply(kind.ops.schema().types(), original, patch)
}

#[cfg(test)]
mod tests;
