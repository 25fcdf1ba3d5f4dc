//! The order of a merged list (API-397).

use serde_json::Value;

use super::PatchError;
use super::strategic::printed;

/// Orders a list of objects by `order`, whose entries carry the merge key.
pub(super) fn keyed(
    key: &str,
    original: &[Value],
    merged: Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
) -> Result<Value, PatchError> {
    let id = |item: &Value| item.get(key).map(printed).unwrap_or_default();
    let patched = patch.iter().filter(|item| item.get("$patch").is_none());
    sort(original, merged, patched, order, id)
}

/// Orders a list of scalars by `order`.
pub(super) fn scalars(
    original: &[Value],
    merged: Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
) -> Result<Value, PatchError> {
    sort(original, merged, patch.iter(), order, printed)
}

/// Elements of `order` come in its order. Elements only the server knows keep
/// their relative order and stay behind the known element they followed.
fn sort<'a>(
    original: &[Value],
    merged: Vec<Value>,
    mut patched: impl Iterator<Item = &'a Value>,
    order: Option<&Value>,
    id: impl Fn(&Value) -> String,
) -> Result<Value, PatchError> {
    let Some(order) = order else { return Ok(Value::Array(merged)) };
    let invalid = || PatchError::Malformed("invalid patch format of setElementOrder list".to_owned());
    let order: Vec<String> = order.as_array().ok_or_else(invalid)?.iter().map(&id).collect();
    if patched.any(|item| !order.contains(&id(item))) {
        return Err(invalid());
    }
    let position = |item: &Value| order.iter().position(|known| *known == id(item));
    let (mut known, unknown): (Vec<Value>, Vec<Value>) = merged.into_iter().partition(|item| position(item).is_some());
    known.sort_by_key(|item| position(item).unwrap_or(usize::MAX));
    let live: Vec<String> = original.iter().map(&id).collect();
    for item in unknown {
        let before = live.iter().position(|other| *other == id(&item)).map_or(&live[..], |at| &live[..at]);
        // Behind the nearest element that preceded it on the server.
        let anchor = before.iter().rev().find_map(|other| known.iter().position(|item| id(item) == *other));
        known.insert(anchor.map_or(0, |at| at + 1), item);
    }
    Ok(Value::Array(known))
}
