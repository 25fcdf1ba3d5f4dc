//! Small readers and writers for JSON documents.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The value at `path` (`spec.nodeName`), `Null` if absent.
pub(crate) fn at<'a>(doc: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(doc, |value, key| value.get(key).unwrap_or(&Value::Null))
}

/// The text at `path`, empty if absent or not a string.
pub(crate) fn text<'a>(doc: &'a Value, path: &str) -> &'a str {
    at(doc, path).as_str().unwrap_or_default()
}

/// The items at `path`, none if absent or not a list.
pub(crate) fn items<'a>(doc: &'a Value, path: &str) -> &'a [Value] {
    at(doc, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The items of a list by the text of a field; the first one of each counts.
pub(crate) fn by<'a>(list: &'a [Value], field: &str) -> HashMap<&'a str, &'a Value> {
    let mut found = HashMap::with_capacity(list.len());
    for item in list {
        found.entry(text(item, field)).or_insert(item);
    }
    found
}

/// The items at `path` for change, none if absent or not a list.
pub(crate) fn items_mut<'a>(doc: &'a mut Value, path: &str) -> &'a mut [Value] {
    let mut value = doc;
    for key in path.split('.') {
        match value.get_mut(key) {
            Some(next) => value = next,
            None => return &mut [],
        }
    }
    value.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default()
}

/// The object at `key`, made if absent or not an object.
pub(crate) fn object<'a>(doc: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    as_object(as_object(doc).entry(key).or_insert(Value::Null))
}

/// The value as an object; anything else is replaced by an empty one.
pub(crate) fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object just above")
}

/// Sets `key` unless the object already has a value there.
pub(crate) fn set_default(object: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if object.get(key).is_none_or(Value::is_null) {
        object.insert(key.to_owned(), value.into());
    }
}

/// Removes fields that hold their type's zero value, as upstream's encoder
/// does.
pub(crate) fn drop_zero(object: &mut Map<String, Value>, keys: &[&str]) {
    for key in keys {
        if object.get(*key).is_some_and(|value| value == false || value == "" || value == 0) {
            object.shift_remove(*key);
        }
    }
}

/// Copies `key` from `old`, removing it where `old` has none.
pub(crate) fn keep(new: &mut Map<String, Value>, old: &Value, key: &str) {
    match old.get(key) {
        Some(value) => {
            new.insert(key.to_owned(), value.clone());
        }
        None => {
            new.shift_remove(key);
        }
    }
}
