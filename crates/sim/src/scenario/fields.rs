//! Fields of an entry, read one by one, so that what is left over has a name.

use std::time::Duration;

use serde_json::{Map, Value};

pub(super) struct Fields<'a> {
    verb: &'a str,
    map: Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(verb: &'a str, value: &Value) -> Result<Self, String> {
        let map = match value {
            Value::Object(map) => map.clone(),
            Value::Null => Map::new(),
            other => return Err(format!("{verb}: say {verb}: {{…}}, not {verb}: {other}")),
        };
        Ok(Self { verb, map, known: Vec::new() })
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.map.shift_remove(key)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        self.take(key).map(|value| text(key, &value)).transpose()
    }

    pub(super) fn needed(&mut self, key: &'static str) -> Result<String, String> {
        self.text(key)?.ok_or_else(|| format!("{}: {key} is missing", self.verb))
    }

    pub(super) fn duration(&mut self, key: &'static str) -> Result<Option<Duration>, String> {
        self.take(key).map(|value| duration(key, &value)).transpose()
    }

    pub(super) fn number(&mut self, key: &'static str) -> Result<Option<i64>, String> {
        self.take(key).map(|value| number(key, &value)).transpose()
    }

    /// How often: a number, or `always`.
    pub(super) fn times(&mut self) -> Result<Option<u32>, String> {
        match self.take("times") {
            None => Ok(None),
            Some(Value::String(word)) if word == "always" => Ok(None),
            Some(value) => {
                let times = number("times", &value)?;
                u32::try_from(times).map(Some).map_err(|_| format!("times: {times} is not a number of times"))
            }
        }
    }

    /// Refuses what nobody asked for.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.map.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!("{}: unknown field {key:?}; possible: {}", self.verb, self.known.join(", "))),
        }
    }
}

pub(super) fn text(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(truth) => Ok(if *truth { "True".to_owned() } else { "False".to_owned() }),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("{key}: {other} is not a word")),
    }
}

fn number(key: &str, value: &Value) -> Result<i64, String> {
    let parsed = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    };
    parsed.ok_or_else(|| format!("{key}: {value} is not a whole number"))
}

/// `5s`, `1m30s`, `500ms`; a bare number counts seconds.
pub(super) fn duration(key: &str, value: &Value) -> Result<Duration, String> {
    let bad = || format!("{key}: {value} is not a duration; say 5s, 1m30s or 500ms");
    match value {
        Value::String(text) => parse_duration(text).ok_or_else(bad),
        Value::Number(number) => {
            number.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(bad)
        }
        _ => Err(bad()),
    }
}

pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let parsed: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(parsed).ok()
}
