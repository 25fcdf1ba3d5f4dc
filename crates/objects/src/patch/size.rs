//! How much a value takes, and how deep it goes.

use serde_json::Value;

/// What a value counts in memory beside its text: an empty list takes room, too.
pub(super) const VALUE_BYTES: usize = 32;

/// Text and structure together, with `each` for every value; None if that is
/// more than `max`. Stops there.
pub(super) fn within(value: &Value, max: usize, each: usize) -> Option<usize> {
    let mut left = max.checked_sub(each)?;
    let mut spend = |size: usize| {
        left = left.checked_sub(size)?;
        Some(left)
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => drop(spend(text.len())?),
        Value::Array(items) => {
            for item in items {
                let left = spend(0)?;
                spend(within(item, left, each)?)?;
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                let left = spend(key.len())?;
                spend(within(value, left, each)?)?;
            }
        }
    }
    Some(max - left)
}

/// Levels: a scalar has none.
pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
