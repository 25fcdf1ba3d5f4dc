//! Documents as people and programs write them: JSON and YAML, read as
//! upstream reads them (API-101).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

use crate::errors::clipped;

mod go;

pub use go::to_json;

/// More repeated keys than this are not told.
const REPEATED_MAX: usize = 100;
/// How much of a path or key is told.
const TOLD_BYTES_MAX: usize = 1_024;

/// How many objects the lists of a document hold. Each grows by its defaults,
/// a hundredfold if it is empty, so that what fits into a request would not fit
/// into memory; nothing near this could be stored.
pub const LISTED_MAX: usize = 50_000;

/// Whether a document's lists hold more than is read.
pub fn lists_too_much(doc: &Value) -> bool {
    fn count(value: &Value, left: &mut usize) -> Option<()> {
        match value {
            Value::Array(items) => {
                *left = left.checked_sub(items.iter().filter(|item| item.is_object()).count())?;
                items.iter().try_for_each(|item| count(item, left))
            }
            Value::Object(fields) => fields.values().try_for_each(|value| count(value, left)),
            _ => Some(()),
        }
    }
    count(doc, &mut LISTED_MAX.clone()).is_none()
}

/// The document, and the paths of keys that were given twice; the last one
/// counts (API-341). Whole numbers are integers, however they are written.
pub fn from_json(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let (repeated, listed) = (RefCell::default(), Cell::new(0));
    let mut source = serde_json::Deserializer::from_slice(bytes);
    let doc = Reader { repeated: &repeated, listed: &listed, path: &Path::Root }.deserialize(&mut source)?;
    source.end()?;
    Ok((doc, repeated.into_inner()))
}

/// All documents of a text; JSON is YAML too. Words such as `yes` are booleans
/// and `0644` is octal, as in YAML 1.1.
pub fn from_yaml(text: &str) -> Result<Vec<Value>, String> {
    let documents = serde_saphyr::from_multiple_with_options(text, options(text));
    let mut documents: Vec<Value> = documents.map_err(|error| error.to_string())?;
    documents.iter_mut().for_each(whole_numbers);
    Ok(documents)
}

/// What aliases may make of a text beside what it says itself.
const ALIASED_BYTES_MAX: usize = 32 << 20;
const ALIASED_EVENTS_MAX: usize = 100_000;

fn options(text: &str) -> serde_saphyr::Options {
    // An alias repeats no more than the whole text.
    let events_max = (ALIASED_BYTES_MAX / text.len().max(1)).min(ALIASED_EVENTS_MAX);
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: events_max },
    }
}

/// Keys of a YAML text that their map has already, each with the line of its
/// value, as upstream tells them.
pub fn repeated_keys(text: &str) -> Vec<(u64, String)> {
    let documents = serde_saphyr::from_multiple_with_options::<Repeated>(text, options(text));
    documents.unwrap_or_default().into_iter().flat_map(|found| found.0).take(REPEATED_MAX).collect()
}

/// What is repeated anywhere below a value.
#[derive(Default)]
struct Repeated(Vec<(u64, String)>);

impl Repeated {
    fn add(&mut self, found: impl IntoIterator<Item = (u64, String)>) {
        let room = REPEATED_MAX.saturating_sub(self.0.len());
        self.0.extend(found.into_iter().take(room));
    }
}

impl<'de> serde::Deserialize<'de> for Repeated {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(RepeatedVisitor)
    }
}

struct RepeatedVisitor;

impl<'de> Visitor<'de> for RepeatedVisitor {
    type Value = Repeated;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Repeated, E> {
        Ok(Repeated::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Repeated, E> {
        Ok(Repeated::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Repeated, E> {
        Ok(Repeated::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Repeated, E> {
        Ok(Repeated::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Repeated, E> {
        Ok(Repeated::default())
    }

    fn visit_unit<E>(self) -> Result<Repeated, E> {
        Ok(Repeated::default())
    }

    fn visit_none<E>(self) -> Result<Repeated, E> {
        Ok(Repeated::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<Repeated, D::Error> {
        source.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Repeated, A::Error> {
        let mut found = Repeated::default();
        while let Some(item) = items.next_element::<Repeated>()? {
            found.add(item.0);
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Repeated, A::Error> {
        let (mut found, mut seen) = (Repeated::default(), BTreeSet::new());
        while let Some(key) = fields.next_key::<String>()? {
            let Spanned { value, referenced, .. } = fields.next_value::<Spanned<Repeated>>()?;
            found.add(value.0);
            if !seen.insert(key.clone()) {
                found.add([(referenced.line(), clipped(&key, TOLD_BYTES_MAX).into_owned())]);
            }
        }
        Ok(found)
    }
}

pub fn to_yaml(doc: &Value) -> Result<String, String> {
    serde_saphyr::to_string(doc).map_err(|error| error.to_string())
}

fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => *number = whole(number.clone()),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Between these a floating-point number without fraction is an integer that can
/// be kept as one; beyond, it is written and read again with all its digits.
const WHOLE_MIN: f64 = -9_223_372_036_854_775_808.0;
const WHOLE_MAX: f64 = 18_446_744_073_709_551_616.0;

fn whole(number: Number) -> Number {
    let is_whole = |float: &f64| float.fract() == 0.0 && (WHOLE_MIN..WHOLE_MAX).contains(float);
    let Some(float) = number.as_f64().filter(|float| number.is_f64() && is_whole(float)) else { return number };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was just compared")]
    if float < 0.0 { Number::from(float as i64) } else { Number::from(float as u64) }
}

/// Where a value stands; only written out where a key is repeated.
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Path::Root, key) => f.write_str(&clipped(key, TOLD_BYTES_MAX)),
            Self::Key(parent, key) => write!(f, "{parent}.{}", clipped(key, TOLD_BYTES_MAX)),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    repeated: &'a RefCell<Vec<String>>,
    /// Objects in lists so far.
    listed: &'a Cell<usize>,
    path: &'a Path<'a>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("number out of range"))?;
        Ok(Value::Number(whole(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = Path::Item(self.path, items.len());
            let Some(item) = source.next_element_seed(Reader { path: &path, ..self })? else {
                return Ok(Value::Array(items));
            };
            self.listed.set(self.listed.get() + usize::from(item.is_object()));
            if self.listed.get() > LISTED_MAX {
                let problem = format!("lists hold too much: at most {LISTED_MAX} objects are read");
                return Err(serde::de::Error::custom(problem));
            }
            items.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = source.next_key::<String>()? {
            let path = Path::Key(self.path, &key);
            let value = source.next_value_seed(Reader { path: &path, ..self })?;
            match fields.entry(key) {
                Entry::Vacant(place) => drop(place.insert(value)),
                Entry::Occupied(mut place) => {
                    if self.repeated.borrow().len() < REPEATED_MAX {
                        let path = Path::Key(self.path, place.key()).to_string();
                        self.repeated.borrow_mut().push(clipped(&path, TOLD_BYTES_MAX).into_owned());
                    }
                    place.insert(value);
                }
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn api_341_repeated_keys_are_named_and_the_last_one_counts() {
        let text = br#"{"a": 1, "spec": {"b": [{"c": 1, "c": 2}, {}], "d": 1, "d": {"e": 1}}, "a": 3}"#;
        let (doc, repeated) = from_json(text).unwrap();
        assert_eq!(doc, json!({"a": 3, "spec": {"b": [{"c": 2}, {}], "d": {"e": 1}}}));
        assert_eq!(repeated, ["spec.b[0].c", "spec.d", "a"]);
        assert!(from_json(b"{} x").is_err() && from_json(b"{").is_err());
    }

    #[test]
    fn api_101_whole_numbers_are_integers() {
        let (doc, _) = from_json(b"[5.0, 5.5, 1e3, -0.0, 1e300]").unwrap();
        assert_eq!(doc, json!([5, 5.5, 1000, 0, 1e300]));
        assert!(doc[0].is_i64() && doc[2].is_i64());
        let (doc, _) = from_json(b"[9223372036854775808.0, -9223372036854775808.0, 18446744073709551616.0]").unwrap();
        assert_eq!(doc, json!([9_223_372_036_854_775_808_u64, i64::MIN, 18_446_744_073_709_551_616.0_f64]));
    }

    #[test]
    fn numbers_that_were_written_are_read_as_the_same() {
        let floats = [0.1, 1e-7, 2.5, 1e15, 1e18, 1e19, 2e19, 1e21, 1.7e308, 5e-324, 68.674_793_394_996_33];
        for float in floats.into_iter().flat_map(|float| [float, -float]) {
            let (doc, _) = from_json(format!("[{float:e}]").as_bytes()).unwrap();
            assert_eq!(from_json(&to_json(&doc).unwrap()).unwrap().0, doc, "{float:e}");
            assert_eq!(from_yaml(&to_yaml(&doc).unwrap()).unwrap(), [doc], "{float:e}");
        }
    }

    #[test]
    fn api_101_yaml_is_read_as_version_1_1() {
        let docs = from_yaml("a: yes\nmode: 0644\n1: x\nb: 'no'\n---\n{\"json\": 1.0}\n").unwrap();
        assert_eq!(docs, [json!({"a": true, "mode": 420, "1": "x", "b": "no"}), json!({"json": 1})]);
        assert_eq!(from_yaml("a: 1\na: 2").unwrap(), [json!({"a": 2})]);
        assert!(from_yaml("a: [").is_err());
    }

    #[test]
    fn yaml_that_was_written_can_be_read() {
        let doc = json!({"a": "yes", "b": "1", "c": [{"x": "two\nlines", "y": null}], "d": {}, "e": [], "f": "0644"});
        assert_eq!(from_yaml(&to_yaml(&doc).unwrap()).unwrap(), [doc]);
    }

    #[test]
    fn api_341_repeated_keys_are_told_with_their_lines() {
        let yaml = "a: 1\nb:\n- c: x\n  d: 2.5\n  c: null\na:\n  e: true\n";
        assert_eq!(repeated_keys(yaml), [(5, "c".to_owned()), (7, "a".to_owned())]);
        assert_eq!(repeated_keys(r#"{"a": 1, "a": {"b": [], "b": 2}}"#), [(1, "b".to_owned()), (1, "a".to_owned())]);
        assert_eq!(repeated_keys("a: [1"), []);
    }
}
