//! Typed checks of documents: wrong types are errors, unknown fields are named.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

mod quantities;

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

/// What a kind's type knows about documents.
pub trait Schema: Sync {
    /// Paths of fields the type does not have, or the first type error.
    fn check(&self, doc: &Value) -> Result<Vec<String>, DecodeError>;
    /// Rewrites the document as the type serialises it: unknown fields, nulls
    /// and empty lists vanish, times get their usual precision.
    fn canonicalise(&self, doc: &mut Value);
    /// Upstream's name of the type (API-071).
    fn name(&self) -> Cow<'static, str>;
    /// Adds the type and what it consists of to the generator's definitions.
    fn describe(&self, generator: &mut SchemaGenerator);
}

/// The schema of a `k8s-openapi` type.
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T> Typed<T> {
    pub const NEW: Self = Self(PhantomData);
}

impl<T: DeserializeOwned + Serialize + JsonSchema> Schema for Typed<T> {
    fn check(&self, doc: &Value) -> Result<Vec<String>, DecodeError> {
        // Numbers are fine as quantities, but the generated types only take text.
        let textual = quantities::as_text(doc)?;
        read::<T>(textual.as_ref().unwrap_or(doc)).map(|(_, unknown)| unknown)
    }

    fn canonicalise(&self, doc: &mut Value) {
        quantities::canonicalise(doc);
        let typed = T::deserialize(&*doc).ok().and_then(|typed| serde_json::to_value(typed).ok());
        if let Some(mut canonical) = typed {
            crate::doc::prune(&mut canonical);
            *doc = canonical;
        }
    }

    fn name(&self) -> Cow<'static, str> {
        T::schema_name()
    }

    fn describe(&self, generator: &mut SchemaGenerator) {
        generator.subschema_for::<T>();
    }
}

/// A document as a type, and the paths of fields the type does not have.
pub fn read<T: DeserializeOwned>(doc: &Value) -> Result<(T, Vec<String>), DecodeError> {
    let mut unknown = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(render(&path));
    let deserializer = serde_ignored::Deserializer::new(doc, &mut note);
    let typed = serde_path_to_error::deserialize(deserializer).map_err(|error| DecodeError {
        path: match error.path().to_string() {
            path if path == "." => String::new(),
            path => path,
        },
        problem: error.inner().to_string(),
    })?;
    Ok((typed, unknown))
}

/// Upstream's spelling of a path; the wrappers serde sees do not show.
fn render(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", render(parent)),
        Path::Map { parent, key } => match render(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => render(parent),
    }
}
