//! Applying a strategic merge patch (API-393 to API-400).
//!
//! Directives live in the patch next to the fields they speak about:
//! `$patch`, `$retainKeys`, `$setElementOrder/<list>` and
//! `$deleteFromPrimitiveList/<list>`.

use serde_json::{Map, Value};

use super::PatchError;
use super::order;
use crate::schema::{Node, Strategy, TypeId, Types};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

pub(super) fn apply(types: &'static Types, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let empty = Map::new();
    let (Some(patch), original) = (patch.as_object(), original.as_object().unwrap_or(&empty)) else {
        return Err(malformed("a strategic merge patch must be a JSON object"));
    };
    let of = Of { types, id: Some(types.root()) };
    Ok(Value::Object(merge_maps(of, original, patch)?))
}

fn malformed(problem: impl Into<String>) -> PatchError {
    PatchError::Malformed(problem.into())
}

/// The type of a value; without an id nobody knows it.
#[derive(Clone, Copy)]
struct Of {
    types: &'static Types,
    id: Option<TypeId>,
}

impl Of {
    /// What the type says about a key.
    fn child(self, key: &str) -> (Strategy, Self) {
        let (strategy, id) = match self.id.map(|id| self.types.node(id)) {
            Some(Node::Map { of, .. }) => (Strategy::Plain, Some(*of)),
            Some(node) => node.field(key).map_or((Strategy::Plain, None), |field| (field.strategy, Some(field.of))),
            None => (Strategy::Plain, None),
        };
        (strategy, Self { id, ..self })
    }

    /// The type of a list's items.
    fn items(self) -> Self {
        let id = match self.id.map(|id| self.types.node(id)) {
            Some(Node::List { of, .. }) => Some(*of),
            _ => None,
        };
        Self { id, ..self }
    }
}

fn merge_maps(
    of: Of,
    original: &Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    // API-394
    match patch.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            let rest = patch.iter().filter(|(key, _)| *key != PATCH);
            return Ok(rest.map(|(key, value)| (key.clone(), value.clone())).collect());
        }
        Some("delete") => return Ok(Map::new()),
        Some(other) => {
            let map = Value::Object(patch.clone());
            return Err(malformed(format!("unknown patch type: {other} in map: {map}")));
        }
    }
    let mut result = retained(original, patch)?;
    for (key, change) in patch {
        if key == PATCH || key == RETAIN_KEYS {
            continue;
        }
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            delete_scalars(&mut result, list, change)?;
        } else if let Some(list) = key.strip_prefix(SET_ORDER) {
            if !patch.contains_key(list) {
                reorder(of, &mut result, list, change)?;
            }
        } else if change.is_null() {
            result.shift_remove(key);
        } else {
            let order = patch.get(&format!("{SET_ORDER}{key}"));
            let merged = merge_field(of.child(key), result.get(key), change, order)?;
            result.insert(key.clone(), merged);
        }
    }
    Ok(result)
}

/// API-396: only the listed keys survive, and the patch stays within them.
fn retained(original: &Map<String, Value>, patch: &Map<String, Value>) -> Result<Map<String, Value>, PatchError> {
    let Some(retain) = patch.get(RETAIN_KEYS) else { return Ok(original.clone()) };
    let keys = retain.as_array().ok_or_else(|| malformed("invalid patch format of retainKeys list"))?;
    let listed = |key: &str| keys.iter().any(|listed| listed == key);
    if patch.iter().any(|(key, value)| !key.starts_with('$') && !value.is_null() && !listed(key)) {
        return Err(malformed("patch content doesn't match retainKeys list"));
    }
    Ok(original.iter().filter(|(key, _)| listed(key)).map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn merge_field(
    field: (Strategy, Of),
    original: Option<&Value>,
    change: &Value,
    order: Option<&Value>,
) -> Result<Value, PatchError> {
    let (strategy, of) = field;
    match (strategy, change) {
        (Strategy::Replace, change) => Ok(cleaned(change)),
        (Strategy::MergeBy(key), Value::Array(change)) => {
            let original = original.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let merged = merge_list(of.items(), key, original, change)?;
            order::keyed(key, original, merged, change, order)
        }
        (Strategy::MergeSet, Value::Array(change)) => {
            let original = original.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let mut merged = original.to_vec();
            merged.extend(change.iter().filter(|item| !original.contains(item)).cloned());
            order::scalars(original, merged, change, order)
        }
        (_, Value::Object(change)) => {
            let empty = Map::new();
            let original = original.and_then(Value::as_object).unwrap_or(&empty);
            Ok(Value::Object(merge_maps(of, original, change)?))
        }
        // API-393: scalars and lists without a strategy are replaced whole.
        (_, change) => Ok(change.clone()),
    }
}

/// API-395, API-399: elements are found by the printed form of their key.
fn merge_list(of: Of, key: &str, original: &[Value], patch: &[Value]) -> Result<Vec<Value>, PatchError> {
    if patch.iter().any(|item| item.get(PATCH).is_some_and(|directive| directive == "replace")) {
        return Ok(patch.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect());
    }
    let mut result = original.to_vec();
    for item in patch {
        let change = item.as_object().ok_or_else(|| malformed("invalid patch format of a merged list"))?;
        let name = change
            .get(key)
            .map(printed)
            .ok_or_else(|| malformed(format!("map: {item} does not contain declared merge key: {key}")))?;
        let same = |element: &Value| element.get(key).map(printed) == Some(name.clone());
        if change.get(PATCH).is_some_and(|directive| directive == "delete") {
            result.retain(|element| !same(element));
            continue;
        }
        match result.iter_mut().find(|element| same(element)) {
            Some(element) => {
                let before = element.as_object().cloned().unwrap_or_default();
                *element = Value::Object(merge_maps(of, &before, change)?);
            }
            None => result.push(Value::Object(merge_maps(of, &Map::new(), change)?)),
        }
    }
    Ok(result)
}

/// A value as merge keys are compared: by how it prints (API-399).
pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// API-398.
fn delete_scalars(result: &mut Map<String, Value>, list: &str, gone: &Value) -> Result<(), PatchError> {
    let gone = gone.as_array().ok_or_else(|| malformed("invalid patch format of deleteFromPrimitiveList"))?;
    if let Some(items) = result.get_mut(list).and_then(Value::as_array_mut) {
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// API-397: an order without changes to the list itself.
fn reorder(of: Of, result: &mut Map<String, Value>, list: &str, order: &Value) -> Result<(), PatchError> {
    let Some(items) = result.get(list).and_then(Value::as_array).cloned() else { return Ok(()) };
    let sorted = match of.child(list).0 {
        Strategy::MergeBy(key) => order::keyed(key, &items, items.clone(), &[], Some(order))?,
        _ => order::scalars(&items, items.clone(), &[], Some(order))?,
    };
    result.insert(list.to_owned(), sorted);
    Ok(())
}

/// The value without a `$patch` directive of its own.
fn cleaned(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.shift_remove(PATCH);
    }
    value
}
