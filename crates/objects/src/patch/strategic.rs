//! Applying a strategic merge patch (API-393 to API-400).
//!
//! Directives live in the patch next to the fields they speak about:
//! `$patch`, `$retainKeys`, `$setElementOrder/<list>` and
//! `$deleteFromPrimitiveList/<list>`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::PatchError;
use super::order;
use crate::schema::{Node, Strategy, TypeId, Types};

type Fields = Map<String, Value>;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

pub(super) fn apply(types: &'static Types, original: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Some(patch) = patch.as_object() else {
        return Err(malformed("a strategic merge patch must be a JSON object"));
    };
    let of = Of { types, id: Some(types.root()) };
    let original = original.as_object().cloned().unwrap_or_default();
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

/// What is merged into is taken, not copied: a patch costs what it and the
/// object hold together.
fn merge_maps(of: Of, original: Fields, patch: &Fields) -> Result<Fields, PatchError> {
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
            // In place of the last one: the order of fields says nothing.
            result.swap_remove(key);
        } else {
            let order = patch.get(&format!("{SET_ORDER}{key}"));
            let original = result.get_mut(key).map(Value::take).unwrap_or_default();
            let merged = merge_field(of.child(key), original, change, order)?;
            result.insert(key.clone(), merged);
        }
    }
    Ok(result)
}

/// API-396: only the listed keys survive, and the patch stays within them.
fn retained(mut original: Fields, patch: &Fields) -> Result<Fields, PatchError> {
    let Some(retain) = patch.get(RETAIN_KEYS) else { return Ok(original) };
    let keys = retain.as_array().ok_or_else(|| malformed("invalid patch format of retainKeys list"))?;
    let listed: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    if patch.iter().any(|(key, value)| !key.starts_with('$') && !value.is_null() && !listed.contains(key.as_str())) {
        return Err(malformed("patch content doesn't match retainKeys list"));
    }
    original.retain(|key, _| listed.contains(key.as_str()));
    Ok(original)
}

fn merge_field(
    (strategy, of): (Strategy, Of),
    original: Value,
    change: &Value,
    order: Option<&Value>,
) -> Result<Value, PatchError> {
    match (strategy, change) {
        (Strategy::Replace, change) => Ok(cleaned(change)),
        (Strategy::MergeBy(key), Value::Array(change)) => {
            let original = items(original);
            let live: Vec<String> = original.iter().map(|item| order::id(key, item)).collect();
            let merged = merge_list(of.items(), key, original, change)?;
            order::keyed(key, &live, merged, change, order)
        }
        (Strategy::MergeSet, Value::Array(change)) => {
            let mut merged = items(original);
            let live: Vec<String> = merged.iter().map(printed).collect();
            let known: HashSet<String> = merged.iter().map(Value::to_string).collect();
            merged.extend(change.iter().filter(|item| !known.contains(&item.to_string())).cloned());
            order::scalars(&live, merged, change, order)
        }
        (_, Value::Object(change)) => {
            let original = if let Value::Object(original) = original { original } else { Map::new() };
            Ok(Value::Object(merge_maps(of, original, change)?))
        }
        // API-393: scalars and lists without a strategy are replaced whole.
        (_, change) => Ok(change.clone()),
    }
}

fn items(list: Value) -> Vec<Value> {
    if let Value::Array(items) = list { items } else { Vec::new() }
}

/// API-395, API-399: elements are found by the printed form of their key.
fn merge_list(of: Of, key: &str, original: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, PatchError> {
    if patch.iter().any(|item| item.get(PATCH).is_some_and(|directive| directive == "replace")) {
        return Ok(patch.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect());
    }
    // Where the elements of a key are; what was deleted leaves its place empty.
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    let mut result: Vec<Option<Value>> = Vec::with_capacity(original.len());
    for element in original {
        if let Some(name) = element.get(key) {
            places.entry(printed(name)).or_default().push(result.len());
        }
        result.push(Some(element));
    }
    for item in patch {
        let change = item.as_object().ok_or_else(|| malformed("invalid patch format of a merged list"))?;
        let name = change
            .get(key)
            .map(printed)
            .ok_or_else(|| malformed(format!("map: {item} does not contain declared merge key: {key}")))?;
        if change.get(PATCH).is_some_and(|directive| directive == "delete") {
            for at in places.remove(&name).unwrap_or_default() {
                result[at] = None;
            }
            continue;
        }
        match places.get(&name).and_then(|places| places.first()) {
            Some(at) => {
                let before = result[*at].take();
                let before = if let Some(Value::Object(before)) = before { before } else { Map::new() };
                result[*at] = Some(Value::Object(merge_maps(of, before, change)?));
            }
            None => {
                places.insert(name, vec![result.len()]);
                result.push(Some(Value::Object(merge_maps(of, Map::new(), change)?)));
            }
        }
    }
    Ok(result.into_iter().flatten().collect())
}

/// A value as merge keys are compared: by how it prints (API-399).
pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// API-398.
fn delete_scalars(result: &mut Fields, list: &str, gone: &Value) -> Result<(), PatchError> {
    let gone = gone.as_array().ok_or_else(|| malformed("invalid patch format of deleteFromPrimitiveList"))?;
    let gone: HashSet<String> = gone.iter().map(Value::to_string).collect();
    if let Some(items) = result.get_mut(list).and_then(Value::as_array_mut) {
        items.retain(|item| !gone.contains(&item.to_string()));
    }
    Ok(())
}

/// API-397: an order without changes to the list itself.
fn reorder(of: Of, result: &mut Fields, list: &str, order: &Value) -> Result<(), PatchError> {
    let Some(Value::Array(items)) = result.get_mut(list) else { return Ok(()) };
    let items = std::mem::take(items);
    let sorted = match of.child(list).0 {
        Strategy::MergeBy(key) => {
            let live: Vec<String> = items.iter().map(|item| order::id(key, item)).collect();
            order::keyed(key, &live, items, &[], Some(order))?
        }
        _ => {
            let live: Vec<String> = items.iter().map(printed).collect();
            order::scalars(&live, items, &[], Some(order))?
        }
    };
    result.insert(list.to_owned(), sorted);
    Ok(())
}

/// The value without a `$patch` directive of its own.
fn cleaned(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.swap_remove(PATCH);
    }
    value
}
