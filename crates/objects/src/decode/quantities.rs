//! Quantities inside documents: numbers become text, text is checked and
//! brought into canonical form (API-477).
//!
//! They are found by the names of their fields, which no built-in kind uses
//! for anything else.

use serde_json::Value;

use super::DecodeError;
use crate::Quantity;

/// Objects whose values are quantities, or objects of quantities.
const LISTS: [&str; 13] = [
    "limits",
    "requests",
    "capacity",
    "allocatable",
    "overhead",
    "allocatedResources",
    "hard",
    "used",
    "max",
    "min",
    "default",
    "defaultRequest",
    "maxLimitRequestRatio",
];

/// Fields that are quantities themselves.
const SINGLE: [&str; 4] = ["sizeLimit", "divisor", "capacity", "maximumVolumeSize"];

/// Free-form maps, where the names above mean nothing.
const FREE: [&str; 4] = ["metadata", "data", "stringData", "binaryData"];

/// A copy with numbers as text where the document has any; an error for text
/// that is no quantity.
pub(super) fn as_text(doc: &Value) -> Result<Option<Value>, DecodeError> {
    let mut numbers = false;
    let mut problem = None;
    visit(doc, "", &mut |value, path| {
        numbers |= value.is_number();
        if let Some(error) = value.as_str().and_then(|text| Quantity::parse(text).err()) {
            problem.get_or_insert(DecodeError { path: path.to_owned(), problem: error.to_string() });
        }
    });
    match problem {
        Some(problem) => Err(problem),
        None if !numbers => Ok(None),
        None => {
            let mut copy = doc.clone();
            canonicalise(&mut copy);
            Ok(Some(copy))
        }
    }
}

/// Rewrites every quantity in its canonical form, rounded up to 1m.
pub(super) fn canonicalise(doc: &mut Value) {
    let Value::Object(map) = doc else {
        if let Value::Array(list) = doc {
            list.iter_mut().for_each(canonicalise);
        }
        return;
    };
    for (key, value) in map.iter_mut() {
        if SINGLE.contains(&key.as_str()) && !value.is_object() {
            rewrite(value);
        } else if LISTS.contains(&key.as_str()) && value.is_object() {
            rewrite_all(key, value);
        } else if !FREE.contains(&key.as_str()) {
            canonicalise(value);
        }
    }
}

fn rewrite_all(key: &str, list: &mut Value) {
    match list {
        Value::Object(map) => map.iter_mut().for_each(|(name, amount)| rewrite_all(name, amount)),
        _ if key == COUNT => {}
        amount => rewrite(amount),
    }
}

/// How many volumes a driver can have: a number, though it is `allocatable`.
const COUNT: &str = "count";

fn rewrite(value: &mut Value) {
    let text = match &*value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return,
    };
    if let Ok(quantity) = Quantity::parse(&text) {
        *value = Value::String(quantity.rounded_to_milli().to_string());
    }
}

fn visit(value: &Value, path: &str, found: &mut impl FnMut(&Value, &str)) {
    match value {
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                visit(item, &format!("{path}[{index}]"), found);
            }
        }
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| !FREE.contains(&key.as_str())) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                if SINGLE.contains(&key.as_str()) && !value.is_object() {
                    found(value, &path);
                } else if LISTS.contains(&key.as_str()) && value.is_object() {
                    visit_list(value, &path, found);
                } else {
                    visit(value, &path, found);
                }
            }
        }
        _ => {}
    }
}

fn visit_list(list: &Value, path: &str, found: &mut impl FnMut(&Value, &str)) {
    match list {
        Value::Object(map) => {
            for (name, amount) in map.iter().filter(|(name, _)| *name != COUNT) {
                visit_list(amount, &format!("{path}.{name}"), found);
            }
        }
        amount => found(amount, path),
    }
}
