//! Documents whose structures are objects, and nothing else.
//!
//! serde takes a list of values for a structure, too. Other readers do not: a
//! document that is one thing here and another (or nothing) to whoever looked
//! through an image before must not exist.

/// For types with `#[serde(remote = "Self")]`, whose fields are read as derived.
macro_rules! only_objects {
    ($($name:ident),*) => {
        $(impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, fields: A) -> Result<$name, A::Error> {
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(fields))
                    }
                }
                deserializer.deserialize_map(Fields)
            }
        })*
    };
}
pub(super) use only_objects;
