//! Documents in protobuf, for clients that take nothing else (API-784): what the
//! table does not know is left out, as their own decoders would.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::{Field, Fields, MAGIC, Messages, Shape, Type};

impl Messages {
    /// None: nothing in the table is of this kind.
    pub fn write(&self, doc: &Value) -> Option<Vec<u8>> {
        let of = |key: &str| doc.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind, map) = (of("apiVersion"), of("kind"), doc.as_object()?);
        let raw = match self.own(version, kind) {
            Some(message) => self.fields_of(map, message, version),
            None => self.list(map, version, kind.strip_suffix("List")?)?,
        };
        let meta = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        Some([MAGIC.to_vec(), bytes(1, &meta), bytes(2, &raw)].concat())
    }

    /// One change of a watch, with its length before it.
    pub fn write_event(&self, kind: &str, object: &Value) -> Option<Vec<u8>> {
        let object = bytes(1, &self.write(object)?);
        let event = [bytes(1, kind.as_bytes()), bytes(2, &object)].concat();
        let length = u32::try_from(event.len()).ok()?;
        Some([&length.to_be_bytes()[..], &event].concat())
    }

    /// Never in the core: another kind may have the same name there.
    fn own(&self, group: &str, kind: &str) -> Option<&Fields> {
        [group, "meta/v1"].into_iter().find_map(|place| self.0.get(place)?.get(kind))
    }

    /// API-785: all lists look the same.
    fn list(&self, doc: &Map<String, Value>, group: &str, kind: &str) -> Option<Vec<u8>> {
        let (of_list, of_item) = (self.own(group, "ListMeta")?, self.own(group, kind)?);
        let metadata = doc.get("metadata").and_then(Value::as_object);
        let mut out = bytes(1, &metadata.map(|metadata| self.fields_of(metadata, of_list, group)).unwrap_or_default());
        let items = doc.get("items").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
        out.extend(items.flat_map(|item| bytes(2, &self.fields_of(item, of_item, group))));
        Some(out)
    }

    fn fields_of(&self, doc: &Map<String, Value>, known: &Fields, group: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, Field { name, of, shape }) in known {
            let Some(name) = name else {
                let Type::Message(inlined) = of else { continue };
                let inner = self.find(group, inlined).map(|message| self.fields_of(doc, message, group));
                out.extend(
                    inner.filter(|inner| !inner.is_empty()).map(|inner| bytes(*number, &inner)).unwrap_or_default(),
                );
                continue;
            };
            match (shape, doc.get(*name)) {
                (_, None | Some(Value::Null)) => {}
                (Shape::List, Some(Value::Array(items))) => {
                    out.extend(items.iter().flat_map(|item| self.written(*number, *of, item, group)));
                }
                (Shape::Map, Some(Value::Object(entries))) => {
                    for (key, value) in entries {
                        let entry = [bytes(1, key.as_bytes()), self.written(2, *of, value, group)].concat();
                        out.extend(bytes(*number, &entry));
                    }
                }
                (Shape::List | Shape::Map, Some(_)) => {}
                (Shape::Plain | Shape::Optional, Some(value)) => out.extend(self.written(*number, *of, value, group)),
            }
        }
        out
    }

    /// Nothing if it is not of this type.
    fn written(&self, number: u32, of: Type, value: &Value, group: &str) -> Vec<u8> {
        let written = match (of, value) {
            (Type::Text, Value::String(text)) => Some(bytes(number, text.as_bytes())),
            (Type::Bytes, Value::String(text)) => BASE64_STANDARD.decode(text).ok().map(|raw| bytes(number, &raw)),
            (Type::Bool, Value::Bool(flag)) => Some(varint(number, u64::from(*flag))),
            (Type::Number, value) => value.as_i64().map(|count| varint(number, count.cast_unsigned())),
            (Type::Message(name), value) => self.message_of(name, value, group).map(|inner| bytes(number, &inner)),
            _ => None,
        };
        written.unwrap_or_default()
    }

    /// API-098: some are no objects in JSON.
    fn message_of(&self, name: &str, value: &Value, group: &str) -> Option<Vec<u8>> {
        match name {
            "Time" | "MicroTime" => {
                let time: jiff::Timestamp = value.as_str()?.parse().ok()?;
                let nanoseconds = u64::try_from(time.subsec_nanosecond()).ok()?;
                Some([varint(1, time.as_second().cast_unsigned()), varint(2, nanoseconds)].concat())
            }
            "Quantity" => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Some(bytes(1, text.as_bytes()))
            }
            "IntOrString" => Some(match value.as_i64() {
                Some(number) => varint(2, number.cast_unsigned()),
                None => [varint(1, 1), bytes(3, value.as_str()?.as_bytes())].concat(),
            }),
            "RawExtension" | "FieldsV1" => Some(bytes(1, &crate::text::to_json(value).ok()?)),
            "ExtraValue" => {
                let items = json!({"items": value});
                Some(self.fields_of(items.as_object()?, self.find(group, name)?, group))
            }
            _ => Some(self.fields_of(value.as_object()?, self.find(group, name)?, group)),
        }
    }
}

fn varint(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    push(&mut out, u64::from(number) << 3);
    push(&mut out, value);
    out
}

fn bytes(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 6);
    push(&mut out, u64::from(number) << 3 | 2);
    push(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

fn push(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(0x80 | (value & 0x7f) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}
