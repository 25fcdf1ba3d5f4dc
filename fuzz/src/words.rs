//! Documents with a few things changed, in the words of their kind.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Value, json};

/// How many changes make a document interesting.
const CHANGES_MAX: usize = 6;
const DEPTH_MAX: usize = 5;

/// What documents of some kind are made of.
pub struct Words<'a> {
    /// Of fields.
    pub names: &'a [&'a str],
    /// What goes wrong in one place or another.
    pub texts: &'a [&'a str],
}

impl Words<'_> {
    pub fn change(&self, bytes: &mut Unstructured<'_>, doc: &mut Value) -> Result<()> {
        for _ in 0..bytes.int_in_range(0..=CHANGES_MAX)? {
            let place = self.place(bytes, doc)?;
            *place = self.value(bytes, 0)?;
        }
        Ok(())
    }

    /// Somewhere in the document, or beside what is there.
    fn place<'a>(&self, bytes: &mut Unstructured<'_>, value: &'a mut Value) -> Result<&'a mut Value> {
        let is_leaf = match &*value {
            Value::Object(map) => map.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => true,
        };
        if is_leaf || bytes.ratio(1, 6)? {
            return Ok(value);
        }
        match value {
            Value::Object(map) => {
                let index = bytes.choose_index(map.len() + 1)?;
                if index == map.len() {
                    return Ok(map.entry(self.name(bytes)?).or_insert(Value::Null));
                }
                let (_, inner) = map.iter_mut().nth(index).expect("the index is below the length");
                self.place(bytes, inner)
            }
            Value::Array(items) => {
                if bytes.ratio(1, 4)? {
                    items.push(items[0].clone());
                }
                let index = bytes.choose_index(items.len())?;
                self.place(bytes, &mut items[index])
            }
            value => Ok(value),
        }
    }

    fn name(&self, bytes: &mut Unstructured<'_>) -> Result<String> {
        Ok((*bytes.choose(self.names)?).to_owned())
    }

    pub fn value(&self, bytes: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
        Ok(match bytes.int_in_range(0..=9u8)? {
            0 => Value::Null,
            1 => json!(bytes.arbitrary::<bool>()?),
            2 => json!(bytes.arbitrary::<i64>()?),
            3 => json!(bytes.arbitrary::<i8>()?),
            4 => json!(f64::from(bytes.arbitrary::<f32>()?)),
            5 | 6 => json!(*bytes.choose(self.texts)?),
            7 => json!(bytes.arbitrary::<String>()?),
            _ if depth >= DEPTH_MAX => json!({}),
            8 => {
                let count = bytes.int_in_range(0..=3)?;
                let items: Result<Vec<Value>> = (0..count).map(|_| self.value(bytes, depth + 1)).collect();
                items?.into()
            }
            _ => {
                let mut map = serde_json::Map::new();
                for _ in 0..bytes.int_in_range(0..=3)? {
                    map.insert(self.name(bytes)?, self.value(bytes, depth + 1)?);
                }
                map.into()
            }
        })
    }
}
