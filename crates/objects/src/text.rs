//! Documents as people and programs write them: JSON and YAML, read as
//! upstream reads them (API-101).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

mod go;

pub use go::to_json;

/// The document, and the paths of keys that were given twice; the last one
/// counts (API-341). Whole numbers are integers, however they are written.
pub fn from_json(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let repeated = RefCell::default();
    let mut source = serde_json::Deserializer::from_slice(bytes);
    let doc = Reader { repeated: &repeated }.deserialize(&mut source)?;
    source.end()?;
    Ok((doc, repeated.into_inner()))
}

/// All documents of a text; JSON is YAML too. Words such as `yes` are booleans
/// and `0644` is octal, as in YAML 1.1.
pub fn from_yaml(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
    };
    let documents = serde_saphyr::from_multiple_with_options(text, options);
    let mut documents: Vec<Value> = documents.map_err(|error| error.to_string())?;
    documents.iter_mut().for_each(whole_numbers);
    Ok(documents)
}

/// Keys of a YAML text that their map has already, each with the line of its
/// value, as upstream tells them.
pub fn repeated_keys(text: &str) -> Vec<(u64, String)> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
    };
    let documents = serde_saphyr::from_multiple_with_options::<Repeated>(text, options);
    documents.unwrap_or_default().into_iter().flat_map(|found| found.0).collect()
}

/// What is repeated anywhere below a value.
#[derive(Default)]
struct Repeated(Vec<(u64, String)>);

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
            found.0.extend(item.0);
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Repeated, A::Error> {
        let (mut found, mut seen) = (Repeated::default(), BTreeSet::new());
        while let Some(key) = fields.next_key::<String>()? {
            let Spanned { value, referenced, .. } = fields.next_value::<Spanned<Repeated>>()?;
            found.0.extend(value.0);
            if !seen.insert(key.clone()) {
                found.0.push((referenced.line(), key));
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

/// Up to where every integer has a floating-point number of its own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

fn whole(number: Number) -> Number {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT_MAX);
    #[allow(clippy::cast_possible_truncation, reason = "it was just compared")]
    float.map_or(number, |float| Number::from(float as i64))
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    repeated: &'a RefCell<Vec<String>>,
}

impl Reader<'_> {
    /// Puts where we are in front of what was found further down.
    fn prefix(self, from: usize, place: &str) {
        for path in &mut self.repeated.borrow_mut()[from..] {
            let dot = if path.starts_with('[') { "" } else { "." };
            *path = format!("{place}{dot}{path}");
        }
    }

    fn count(self) -> usize {
        self.repeated.borrow().len()
    }
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
            let before = self.count();
            let Some(item) = source.next_element_seed(self)? else { return Ok(Value::Array(items)) };
            self.prefix(before, &format!("[{}]", items.len()));
            items.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = source.next_key::<String>()? {
            let before = self.count();
            let value = source.next_value_seed(self)?;
            if self.count() > before {
                self.prefix(before, &key);
            }
            if fields.contains_key(&key) {
                self.repeated.borrow_mut().push(key.clone());
            }
            fields.insert(key, value);
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
