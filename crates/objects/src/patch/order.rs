//! The order of a merged list (API-397).

use std::collections::HashMap;

use serde_json::Value;

use super::PatchError;
use super::strategic::printed;

/// What tells an item of a list apart.
pub(super) fn id(key: &str, item: &Value) -> String {
    item.get(key).map(printed).unwrap_or_default()
}

/// Orders a list of objects by `order`, whose entries carry the merge key;
/// `live` is what the server had.
pub(super) fn keyed(
    key: &str,
    live: &[String],
    merged: Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
) -> Result<Value, PatchError> {
    let patched = patch.iter().filter(|item| item.get("$patch").is_none());
    sort(live, merged, patched, order, |item| id(key, item))
}

/// Orders a list of scalars by `order`.
pub(super) fn scalars(
    live: &[String],
    merged: Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
) -> Result<Value, PatchError> {
    sort(live, merged, patch.iter(), order, printed)
}

/// Elements of `order` come in its order. Elements only the server knows keep
/// their relative order and stay behind the known element they followed.
fn sort<'a>(
    live: &[String],
    merged: Vec<Value>,
    mut patched: impl Iterator<Item = &'a Value>,
    order: Option<&Value>,
    id: impl Fn(&Value) -> String,
) -> Result<Value, PatchError> {
    let Some(order) = order else { return Ok(Value::Array(merged)) };
    let invalid = || PatchError::Malformed("invalid patch format of setElementOrder list".to_owned());
    let order = places(order.as_array().ok_or_else(invalid)?.iter().map(&id));
    if patched.any(|item| !order.contains_key(&id(item))) {
        return Err(invalid());
    }
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for item in merged {
        match order.get(&id(&item)) {
            Some(place) => known.push((*place, item)),
            None => unknown.push(item),
        }
    }
    known.sort_by_key(|(place, _)| *place);
    let known: Vec<Value> = known.into_iter().map(|(_, item)| item).collect();
    Ok(Value::Array(placed(known, unknown, live, id)))
}

/// Puts each unknown element behind the nearest one that preceded it on the
/// server, or in front of all.
fn placed(known: Vec<Value>, unknown: Vec<Value>, live: &[String], id: impl Fn(&Value) -> String) -> Vec<Value> {
    let seen = places(known.iter().map(&id));
    // The anchor of every place of the server's list: the last known before it.
    let mut anchors = Vec::with_capacity(live.len() + 1);
    let mut anchor = None;
    for one in live {
        anchors.push(anchor);
        anchor = seen.get(one).copied().or(anchor);
    }
    let at = places(live.iter().cloned());
    let mut behind: Vec<Vec<Value>> = Vec::new();
    behind.resize_with(known.len() + 1, Vec::new);
    for item in unknown {
        let anchor = at.get(&id(&item)).map_or(anchor, |at| anchors[*at]);
        behind[anchor.map_or(0, |at| at + 1)].push(item);
    }
    let mut groups = behind.into_iter();
    let mut result = groups.next().unwrap_or_default();
    for (item, followers) in known.into_iter().zip(groups) {
        result.push(item);
        result.extend(followers);
    }
    result
}

/// Where each one is first.
fn places(ids: impl Iterator<Item = String>) -> HashMap<String, usize> {
    let mut places = HashMap::new();
    for (at, id) in ids.enumerate() {
        places.entry(id).or_insert(at);
    }
    places
}
