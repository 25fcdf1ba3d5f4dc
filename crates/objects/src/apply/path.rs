//! Steps of paths into documents, and how `fieldsV1` and messages write them
//! (API-450, API-460).

use std::fmt;

use serde_json::{Map, Value, json};

/// One step down. The order is that of `fieldsV1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// `f:`, a field or the key of a map.
    Field(Box<str>),
    /// `k:`, the item of a list with these keys, sorted by name.
    Key(Box<[(Box<str>, Atom)]>),
    /// `v:`, the item of a set.
    Value(Atom),
    /// `i:`, the item of any other list.
    Index(i64),
}

/// A scalar that tells items apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Atom {
    Int(i64),
    /// A number that is no integer, as it is printed.
    Float(Box<str>),
    Text(Box<str>),
    Bool(bool),
    Null,
}

impl Atom {
    /// None: not a scalar.
    pub(super) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => Self::Float(number.to_string().into()),
            },
            Value::String(text) => Self::Text(text.as_str().into()),
            Value::Array(_) | Value::Object(_) => return None,
        })
    }

    fn json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => json!(flag),
            Self::Int(number) => json!(number),
            Self::Float(number) => serde_json::from_str(number).unwrap_or_default(),
            Self::Text(text) => json!(text),
        }
    }
}

/// As messages show it: text in quotes.
impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json().fmt(f)
    }
}

impl Step {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// The name in `fieldsV1`.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> =
                    keys.iter().map(|(name, atom)| (String::from(&**name), atom.json())).collect();
                format!("k:{}", Value::Object(keys))
            }
            Self::Value(atom) => format!("v:{atom}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// None: not a name of `fieldsV1`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (kind, rest) = name.split_once(':')?;
        match kind {
            "f" => Some(Self::field(rest)),
            "i" => rest.parse().ok().map(Self::Index),
            "v" => Atom::of(&serde_json::from_str(rest).ok()?).map(Self::Value),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
                let keys = keys.iter().map(|(name, value)| Some((name.as_str().into(), Atom::of(value)?)));
                let mut keys: Vec<(Box<str>, Atom)> = keys.collect::<Option<_>>()?;
                keys.sort();
                Some(Self::Key(keys.into()))
            }
            _ => None,
        }
    }
}

/// As messages show it (API-460).
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, atom)| format!("{name}={atom}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(atom) => write!(f, "[={atom}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A whole path as messages show it.
pub(super) fn printed(path: &[Step]) -> String {
    path.iter().map(ToString::to_string).collect()
}
