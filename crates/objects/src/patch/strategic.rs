//! Applying a strategic merge patch.

use serde_json::Value;

use super::{PatchError, Type};

pub(super) fn apply(of: &Type, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let _ = of;
    let mut result = original.clone();
    json_patch::merge(&mut result, patch);
    Ok(result)
}
