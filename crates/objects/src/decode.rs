//! Documents against the types of their kind: wrong types are errors, unknown
//! fields are named, and what may be written in several ways is written in one.
//!
//! What passes here, and is then brought into its one form, every reader can
//! read: alone, in a list and in a watch event. One object that nobody can
//! read would hide all others of its kind.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::Quantity;
use crate::schema::{Field, Node, Scalar, TypeId, Types};

/// A document that does not have the types its kind demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Where, e.g. `spec.containers[0].ports`; empty for the document itself.
    pub path: String,
    pub problem: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.problem) } else { write!(f, "{}: {}", self.path, self.problem) }
    }
}

impl std::error::Error for DecodeError {}

/// How deep lists and objects may be nested, the document itself counted.
/// Readers stop at 127; between the two is room for what wraps a document
/// (lists, watch events, tables) and for `managedFields`, which repeat its
/// fields a few levels further down.
pub const DEPTH_MAX: usize = 100;

/// Whether a value is nested deeper than this.
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| is_deeper(value, levels - 1);
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(items) => items.iter().any(below),
        Value::Object(fields) => fields.values().any(below),
        _ => false,
    }
}

/// Paths of fields the type does not have, or the first type error.
pub(crate) fn check(types: &Types, doc: &Value) -> Result<Vec<String>, DecodeError> {
    let mut checker = Checker { types, unknown: Vec::new() };
    checker.check(types.root(), doc, &Path::Root, DEPTH_MAX)?;
    Ok(checker.unknown)
}

/// Where a value stands; only written out where something is wrong there.
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Path::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// More unknown fields than this are not told.
const UNKNOWN_MAX: usize = 100;

struct Checker<'a> {
    types: &'a Types,
    unknown: Vec<String>,
}

impl Checker<'_> {
    /// `levels`: how many more there may be.
    fn check(&mut self, of: TypeId, value: &Value, path: &Path<'_>, levels: usize) -> Result<(), DecodeError> {
        let wrong = |problem| Err(DecodeError { path: path.to_string(), problem });
        if levels == 0 {
            check_depth(value, path, levels)?;
        }
        let below = levels.saturating_sub(1);
        match (self.types.node(of), value) {
            (Node::Struct { fields, .. }, Value::Object(map)) => self.check_fields(fields, map, path, below),
            (Node::Map { of, .. }, Value::Object(map)) => {
                map.iter().try_for_each(|(key, value)| self.check_entry(*of, value, &Path::Key(path, key), below))
            }
            (Node::List { of, .. }, Value::Array(items)) => items
                .iter()
                .enumerate()
                .try_for_each(|(index, item)| self.check_entry(*of, item, &Path::Item(path, index), below)),
            (Node::Struct { .. } | Node::Map { .. }, value) => wrong(mismatch(value, "an object")),
            (Node::List { .. }, value) => wrong(mismatch(value, "a list")),
            (Node::Scalar(scalar), value) => scalar.problem(value).map_or(Ok(()), wrong),
            (Node::Untyped | Node::Deduced, value) => check_depth(value, path, levels),
        }
    }

    fn check_fields(
        &mut self,
        fields: &[Field],
        map: &Map<String, Value>,
        path: &Path<'_>,
        levels: usize,
    ) -> Result<(), DecodeError> {
        for (name, value) in map {
            let path = Path::Key(path, name);
            match Field::find(fields, name) {
                Some(_) if value.is_null() => {}
                Some(field) => self.check(field.of, value, &path, levels)?,
                None => {
                    check_depth(value, &path, levels)?;
                    if self.unknown.len() < UNKNOWN_MAX {
                        self.unknown.push(path.to_string());
                    }
                }
            }
        }
        Ok(())
    }

    /// Nothing is the zero of its type, which times do not have.
    fn check_entry(&mut self, of: TypeId, value: &Value, path: &Path<'_>, levels: usize) -> Result<(), DecodeError> {
        let is_time = || matches!(self.types.node(of), Node::Scalar(Scalar::Time | Scalar::MicroTime));
        if value.is_null() && !is_time() { Ok(()) } else { self.check(of, value, path, levels) }
    }
}

fn check_depth(value: &Value, path: &Path<'_>, levels: usize) -> Result<(), DecodeError> {
    if is_deeper(value, levels) {
        return Err(DecodeError { path: path.to_string(), problem: "exceeded max depth".to_owned() });
    }
    Ok(())
}

fn mismatch(value: &Value, expected: &str) -> String {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("boolean `{value}`"),
        Value::Number(number) if number.is_f64() => format!("floating point `{number}`"),
        Value::Number(number) => format!("integer `{number}`"),
        Value::String(text) => format!("string {text:?}"),
        Value::Array(_) => "sequence".to_owned(),
        Value::Object(_) => "map".to_owned(),
    };
    format!("invalid type: {found}, expected {expected}")
}

impl Scalar {
    /// What is wrong with a value of this type.
    fn problem(self, value: &Value) -> Option<String> {
        let is_i32 = |value: &Value| value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
        let (is_right, expected) = match self {
            Self::Text => (value.is_string(), "a string"),
            Self::Bool => (value.is_boolean(), "a boolean"),
            Self::Int32 => (is_i32(value), "a 32-bit integer"),
            Self::Int64 => (value.is_i64(), "a 64-bit integer"),
            Self::Double => (value.is_number(), "a number"),
            Self::IntOrText => (value.is_string() || is_i32(value), "a 32-bit integer or a string"),
            Self::Quantity => (value.is_string() || value.is_number(), "a quantity"),
            Self::Bytes => (value.is_string(), "a string in base64"),
            Self::Time | Self::MicroTime => (value.is_string(), "a time"),
        };
        match (self, value.as_str()) {
            _ if !is_right => Some(mismatch(value, expected)),
            (Self::Bytes, Some(text)) => STANDARD.decode(text).err().map(|error| not_base64(error, text)),
            (Self::Quantity, Some(text)) => Quantity::parse(text).err().map(|error| error.to_string()),
            (Self::Quantity, None) => Quantity::parse(&value.to_string()).err().map(|error| error.to_string()),
            (Self::Time | Self::MicroTime, Some(text)) if instant(text).is_none() => {
                Some(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse"))
            }
            _ => None,
        }
    }

    /// Brings a value into its one form; what can not be read stays.
    fn canonicalise(self, value: &mut Value) {
        let text = match (self, &*value) {
            (Self::Quantity, Value::Number(number)) => quantity(&number.to_string()),
            (Self::Quantity, Value::String(text)) => quantity(text),
            (Self::Time, Value::String(text)) => canonical_time(text),
            (Self::MicroTime, Value::String(text)) => time(text, "%Y-%m-%dT%H:%M:%S%.6fZ"),
            _ => None,
        };
        if let Some(text) = text {
            *value = Value::String(text);
        }
    }

    /// What a required field of this type holds when nobody says anything.
    fn zero(self) -> Option<Value> {
        match self {
            Self::Text | Self::Bytes => Some("".into()),
            Self::Bool => Some(false.into()),
            Self::Int32 | Self::Int64 | Self::Double | Self::IntOrText => Some(0.into()),
            Self::Quantity => Some("0".into()),
            Self::Time | Self::MicroTime => None,
        }
    }
}

/// As upstream's decoder says it.
fn not_base64(error: base64::DecodeError, text: &str) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len(),
    };
    format!("illegal base64 data at input byte {at}")
}

/// API-477: the canonical form, rounded up to 1m.
fn quantity(text: &str) -> Option<String> {
    Quantity::parse(text).ok().map(|quantity| quantity.rounded_to_milli().to_string())
}

/// A time in its one form, to the second.
pub(crate) fn canonical_time(text: &str) -> Option<String> {
    time(text, "%Y-%m-%dT%H:%M:%SZ")
}

fn time(text: &str, format: &str) -> Option<String> {
    jiff::fmt::strtime::format(format, instant(text)?).ok()
}

/// RFC 3339 and nothing else, within the years that have four digits: what
/// upstream's clients and ours read alike.
fn instant(text: &str) -> Option<Timestamp> {
    let (moment, rest) = text.split_at_checked(MOMENT.len())?;
    let fits = |text: &str, shape: &str| {
        text.len() == shape.len()
            && text.bytes().zip(shape.bytes()).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                wanted => byte == wanted,
            })
    };
    let fraction = rest.strip_prefix(['.', ',']);
    let zone = fraction.map_or(rest, |fraction| fraction.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    let is_fraction_empty = fraction.is_some_and(|fraction| fraction.len() == zone.len());
    let is_zone = zone == "Z" || fits(zone, "+00:00") || fits(zone, "-00:00");
    // Leap seconds only one of the two knows.
    if !fits(moment, MOMENT) || moment.ends_with(":60") || is_fraction_empty || !is_zone {
        return None;
    }
    text.parse().ok().filter(|time: &Timestamp| time.as_second() >= YEAR_ZERO)
}

/// What a time begins with, in the place of any digit a zero.
const MOMENT: &str = "0000-00-00T00:00:00";
/// In seconds since 1970.
const YEAR_ZERO: i64 = -62_167_219_200;

/// Rewrites the document as upstream shows it: unknown fields, nulls and empty
/// lists vanish, required fields are there, times and quantities get their
/// usual form, fields their usual order.
pub(crate) fn canonicalise(types: &Types, doc: &mut Value) {
    rewrite(types, types.root(), doc);
}

fn rewrite(types: &Types, of: TypeId, value: &mut Value) {
    match (types.node(of), value) {
        (Node::Struct { fields, .. }, Value::Object(map)) => {
            map.retain(|name, value| match Field::find(fields, name) {
                Some(field) if !value.is_null() => {
                    rewrite(types, field.of, value);
                    name == CONTAINERS || value.as_array().is_none_or(|items| !items.is_empty())
                }
                _ => false,
            });
            for field in fields.iter().filter(|field| field.is_required) {
                if !map.contains_key(&*field.name)
                    && let Some(zero) = zero(types, field)
                {
                    map.insert(field.name.to_string(), zero);
                }
            }
            order(map);
        }
        (Node::Map { of, .. }, Value::Object(map)) => {
            map.values_mut().for_each(|value| rewrite_entry(types, *of, value));
            order(map);
        }
        (Node::List { of, .. }, Value::Array(items)) => {
            items.iter_mut().for_each(|item| rewrite_entry(types, *of, item));
        }
        (Node::Scalar(scalar), value) => scalar.canonicalise(value),
        (Node::Untyped, value) => sort(value),
        _ => {}
    }
}

/// What is somebody else's keeps all it has, in the order in which Go writes
/// maps: upstream's tools compare its bytes (WL-139).
fn sort(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(sort);
            if !map.keys().is_sorted() {
                map.sort_keys();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}

/// An entry of a list or map; upstream takes nothing for the zero of its type.
fn rewrite_entry(types: &Types, of: TypeId, value: &mut Value) {
    if value.is_null() {
        *value = match types.node(of) {
            Node::Scalar(scalar) => scalar.zero().unwrap_or_default(),
            Node::Struct { .. } | Node::Map { .. } => Map::new().into(),
            Node::List { .. } => Vec::<Value>::new().into(),
            Node::Untyped | Node::Deduced => return,
        };
    }
    rewrite(types, of, value);
}

/// The one list that is shown though it is empty.
const CONTAINERS: &str = "containers";

/// The required times without which the generated types do not read an object:
/// those of conditions and of series of events.
const NEEDED_TIMES: [&str; 2] = ["lastTransitionTime", "lastObservedTime"];
/// The zero of upstream's times, which its clients read as none.
pub(crate) const NO_TIME: &str = "0001-01-01T00:00:00Z";

fn zero(types: &Types, field: &Field) -> Option<Value> {
    match types.node(field.of) {
        Node::Scalar(Scalar::Time | Scalar::MicroTime) => NEEDED_TIMES.contains(&&*field.name).then(|| NO_TIME.into()),
        Node::Scalar(scalar) => scalar.zero(),
        Node::List { .. } => (&*field.name == CONTAINERS).then(|| Vec::<Value>::new().into()),
        Node::Map { .. } => Some(Map::new().into()),
        Node::Struct { .. } => {
            let mut zero = field.zero.clone()?;
            rewrite(types, field.of, &mut zero);
            Some(zero)
        }
        Node::Untyped | Node::Deduced => None,
    }
}

/// By name, after what tells the kind.
fn order(map: &mut Map<String, Value>) {
    fn rank(key: &str) -> (bool, bool, &str) {
        (key != "apiVersion", key != "kind", key)
    }
    if !map.keys().map(|key| rank(key)).is_sorted() {
        let mut entries: Vec<_> = std::mem::take(map).into_iter().collect();
        entries.sort_unstable_by(|one, other| rank(&one.0).cmp(&rank(&other.0)));
        map.extend(entries);
    }
}

#[cfg(test)]
mod readers;
#[cfg(test)]
mod tests;
