//! Kubernetes' protobuf form of objects, read into documents (API-097,
//! API-098, API-782, API-786) and written.
//!
//! Answers are JSON, which nearly every client takes (API-095), and in this form for
//! those that take nothing else (`write`). What the table `wire/messages.txt` does not
//! know is skipped, as API-099 says.
//!
//! ```
//! let wire = objects::wire::Messages::default();
//! let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x05\x0a\x03\x0a\x01a";
//! let doc = wire.read(body, "v1").expect("well formed");
//! assert_eq!(doc, serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
//! ```

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use serde_json::{Map, Value, json};

mod raw;
mod write;

use raw::{Field as RawField, fields, signed, truncated};

const TABLE: &str = include_str!("wire/messages.txt");
/// How every body begins.
const MAGIC: &[u8] = b"k8s\0";
/// Messages in messages; no kind goes half as deep.
const DEPTH_MAX: usize = 64;

/// Why a body can not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError(String);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WireError {}

fn wrong(text: impl Into<String>) -> WireError {
    WireError(text.into())
}

/// Every message, by group and name.
#[derive(Debug)]
pub struct Messages(BTreeMap<&'static str, BTreeMap<&'static str, Fields>>);

type Fields = BTreeMap<u32, Field>;

#[derive(Debug)]
struct Field {
    /// None: the fields of the message stand in its parent.
    name: Option<&'static str>,
    of: Type,
    shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Zero and empty mean "not set".
    Plain,
    /// There or not there.
    Optional,
    List,
    Map,
}

/// The type of a value, of a list's items, or of a map's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Text,
    Bytes,
    Bool,
    Number,
    Message(&'static str),
}

impl Default for Messages {
    fn default() -> Self {
        let (mut messages, mut group) = (BTreeMap::<_, BTreeMap<_, _>>::new(), "");
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                group = header;
            } else if let Some((name, rest)) = line.split_once(": ") {
                messages.entry(group).or_default().insert(name, rest.split("; ").filter_map(Field::parse).collect());
            }
        }
        Self(messages)
    }
}

impl Field {
    /// `2 apiGroups:s[]`, `1 ^LocalObjectReference`.
    fn parse(text: &'static str) -> Option<(u32, Self)> {
        let (number, rest) = text.split_once(' ')?;
        let number = number.parse().ok()?;
        if let Some(inlined) = rest.strip_prefix('^') {
            return Some((number, Self { name: None, of: Type::Message(inlined), shape: Shape::Plain }));
        }
        let (name, of) = rest.rsplit_once(':')?;
        let (shape, of) = match (of.strip_suffix("[]"), of.strip_suffix('?'), of.strip_prefix("map<s,")) {
            (Some(of), ..) => (Shape::List, of),
            (_, Some(of), _) => (Shape::Optional, of),
            (.., Some(of)) => (Shape::Map, of.trim_end_matches('>')),
            _ => (Shape::Plain, of),
        };
        let of = match of {
            "s" => Type::Text,
            "y" => Type::Bytes,
            "b" => Type::Bool,
            "i32" | "i64" => Type::Number,
            message => Type::Message(message),
        };
        Some((number, Self { name: Some(name), of, shape }))
    }
}

impl Messages {
    /// A request's body as a document with kind and version. Where the
    /// envelope names neither, they are left out; `group` (`apps/v1`) is that
    /// of the request.
    pub fn read(&self, body: &[u8], group: &str) -> Result<Value, WireError> {
        let envelope = body.strip_prefix(MAGIC).ok_or_else(|| {
            wrong("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
        })?;
        let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
        for field in fields(envelope) {
            match field? {
                RawField { number: 1, value: raw::Value::Bytes(meta) } => {
                    for field in fields(meta) {
                        match field? {
                            RawField { number: 1, value: raw::Value::Bytes(text) } => api_version = utf8(text)?,
                            RawField { number: 2, value: raw::Value::Bytes(text) } => kind = utf8(text)?,
                            _ => {}
                        }
                    }
                }
                RawField { number: 2, value: raw::Value::Bytes(bytes) } => raw = bytes,
                _ => {}
            }
        }
        let group = if api_version.is_empty() { group } else { &api_version };
        // API-097: options of a deletion may come without saying so.
        let name = if kind.is_empty() { "DeleteOptions" } else { &kind };
        let mut doc = Map::new();
        for (key, text) in [("apiVersion", &api_version), ("kind", &kind)] {
            if !text.is_empty() {
                doc.insert(key.to_owned(), json!(text));
            }
        }
        // Never in the core: another kind may have the same name there.
        let Some(message) = [group, "meta/v1"].into_iter().find_map(|place| self.0.get(place)?.get(name)) else {
            return Err(wrong(format!("no kind \"{name}\" is registered for version \"{group}\" in protobuf")));
        };
        self.message(&mut doc, message, raw, group, 0)?;
        Ok(Value::Object(doc))
    }

    /// In the group itself, else in the core, else in what all share.
    fn find(&self, group: &str, name: &str) -> Option<&Fields> {
        let places = [group, "v1", "meta/v1"];
        places.into_iter().find_map(|place| self.0.get(place)?.get(name))
    }

    fn message(
        &self,
        into: &mut Map<String, Value>,
        known: &Fields,
        bytes: &[u8],
        group: &str,
        depth: usize,
    ) -> Result<(), WireError> {
        if depth > DEPTH_MAX {
            return Err(wrong("proto: messages are nested too deeply"));
        }
        for field in fields(bytes) {
            let RawField { number, value } = field?;
            let Some(Field { name, of, shape }) = known.get(&number) else { continue };
            let Some(name) = name else {
                if let (Type::Message(inlined), raw::Value::Bytes(bytes)) = (of, value)
                    && let Some(message) = self.find(group, inlined)
                {
                    self.message(into, message, bytes, group, depth + 1)?;
                }
                continue;
            };
            match shape {
                Shape::List => {
                    let list = into.entry(*name).or_insert(json!([]));
                    if let Some(list) = list.as_array_mut() {
                        self.items(list, *of, value, group, depth)?;
                    }
                }
                Shape::Map => {
                    let map = into.entry(*name).or_insert(json!({}));
                    if let (Some(map), raw::Value::Bytes(entry)) = (map.as_object_mut(), value) {
                        let (key, value) = self.entry(*of, entry, group, depth)?;
                        map.insert(key, value);
                    }
                }
                Shape::Plain | Shape::Optional => {
                    let value = self.value(*of, value, group, depth)?;
                    if !value.is_null() && (*shape == Shape::Optional || !is_zero(&value)) {
                        into.insert((*name).to_owned(), value);
                    }
                }
            }
        }
        Ok(())
    }

    /// API-782: numbers may come packed.
    fn items(
        &self,
        list: &mut Vec<Value>,
        of: Type,
        value: raw::Value<'_>,
        group: &str,
        depth: usize,
    ) -> Result<(), WireError> {
        match (of, value) {
            (Type::Number | Type::Bool, raw::Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    let number = raw::varint(&mut packed).ok_or_else(truncated)?;
                    list.push(self.value(of, raw::Value::Varint(number), group, depth)?);
                }
            }
            (of, value) => list.push(self.value(of, value, group, depth)?),
        }
        Ok(())
    }

    fn entry(&self, of: Type, entry: &[u8], group: &str, depth: usize) -> Result<(String, Value), WireError> {
        let (mut key, mut value) = (String::new(), Value::Null);
        for field in fields(entry) {
            match field? {
                RawField { number: 1, value: raw::Value::Bytes(text) } => key = utf8(text)?,
                RawField { number: 2, value: raw } => value = self.value(of, raw, group, depth)?,
                _ => {}
            }
        }
        if value.is_null() && matches!(of, Type::Text | Type::Bytes) {
            value = json!("");
        }
        Ok((key, value))
    }

    /// Null: nothing there, although something was sent.
    fn value(&self, of: Type, value: raw::Value<'_>, group: &str, depth: usize) -> Result<Value, WireError> {
        Ok(match (of, value) {
            (Type::Text, raw::Value::Bytes(bytes)) => json!(utf8(bytes)?),
            (Type::Bytes, raw::Value::Bytes(bytes)) => json!(base64::prelude::BASE64_STANDARD.encode(bytes)),
            (Type::Bool, raw::Value::Varint(number)) => json!(number != 0),
            (Type::Number, raw::Value::Varint(number)) => json!(signed(number)),
            (Type::Message(name), raw::Value::Bytes(bytes)) => match special(name, bytes) {
                Some(value) => value?,
                None => {
                    let mut doc = Map::new();
                    if let Some(known) = self.find(group, name) {
                        self.message(&mut doc, known, bytes, group, depth + 1)?;
                    }
                    // API-098: a list of its own in JSON.
                    if name == "ExtraValue" { doc.remove("items").unwrap_or(json!([])) } else { Value::Object(doc) }
                }
            },
            _ => return Err(wrong("proto: wrong wireType")),
        })
    }
}

fn is_zero(value: &Value) -> bool {
    value == 0 || value == "" || value == false
}

fn utf8(bytes: &[u8]) -> Result<String, WireError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| wrong("proto: string field contains invalid UTF-8"))
}

/// API-098: messages that are no objects in JSON.
fn special(name: &str, bytes: &[u8]) -> Option<Result<Value, WireError>> {
    match name {
        "Time" => Some(time(bytes, "%Y-%m-%dT%H:%M:%SZ")),
        "MicroTime" => Some(time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")),
        "Quantity" => Some(part(bytes, 1).map(|text| text.map_or(Value::Null, Value::String))),
        "IntOrString" => Some(int_or_string(bytes)),
        "RawExtension" | "FieldsV1" => Some(part(bytes, 1).and_then(|text| match text.as_deref() {
            None | Some("") => Ok(Value::Null),
            Some(text) => serde_json::from_str(text).map_err(|error| wrong(error.to_string())),
        })),
        _ => None,
    }
}

fn part(bytes: &[u8], wanted: u32) -> Result<Option<String>, WireError> {
    for field in fields(bytes) {
        if let RawField { number, value: raw::Value::Bytes(text) } = field?
            && number == wanted
        {
            return utf8(text).map(Some);
        }
    }
    Ok(None)
}

fn numbers(bytes: &[u8]) -> Result<BTreeMap<u32, i64>, WireError> {
    let mut numbers = BTreeMap::new();
    for field in fields(bytes) {
        if let RawField { number, value: raw::Value::Varint(value) } = field? {
            numbers.insert(number, signed(value));
        }
    }
    Ok(numbers)
}

/// API-783: an empty one is no time.
fn time(bytes: &[u8], format: &str) -> Result<Value, WireError> {
    let numbers = numbers(bytes)?;
    let of = |number: u32| numbers.get(&number).copied().unwrap_or(0);
    if (of(1), of(2)) == (0, 0) {
        return Ok(Value::Null);
    }
    let nanoseconds = i32::try_from(of(2)).map_err(|_| wrong("a time is out of range"))?;
    let time = jiff::Timestamp::new(of(1), nanoseconds).map_err(|_| wrong("a time is out of range"))?;
    Ok(json!(time.strftime(format).to_string()))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, WireError> {
    let numbers = numbers(bytes)?;
    if numbers.get(&1).copied().unwrap_or(0) == 1 {
        return Ok(json!(part(bytes, 3)?.unwrap_or_default()));
    }
    Ok(json!(numbers.get(&2).copied().unwrap_or(0)))
}

#[cfg(test)]
mod tests;
