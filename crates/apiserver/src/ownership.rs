//! Who owns which fields, as requests bring it about: applied configurations
//! (API-456 to API-463), and all other writes (API-452).

use bytes::Bytes;
use objects::apply::{self, Writer};
use objects::{FieldError, Kind};
use serde_json::{Value, json};

use crate::api::{Api, Call};
use crate::body::WriteOptions;
use crate::error::ApiError;
use crate::object;
use crate::query::Query;
use crate::write::Part;

/// Whom the server's own writes belong to.
const SERVER: &str = "kube-apiserver";

/// Through what is written, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint<'a> {
    pub(crate) options: &'a WriteOptions,
    pub(crate) part: Part,
}

impl Endpoint<'_> {
    fn writer<'a>(&'a self, now: &'a str) -> Writer<'a> {
        let manager = match self.options.manager.as_str() {
            "" => SERVER,
            manager => manager,
        };
        Writer { manager, subresource: self.part.name(), now }
    }
}

/// Defaults a document and says who owns its fields then: `managedFields`,
/// which are no longer in the document.
pub(crate) fn track(
    api: &Api,
    kind: &'static Kind,
    live: Option<&Value>,
    doc: &mut Value,
    endpoint: Endpoint<'_>,
) -> Value {
    let sent = object::metadata_mut(doc).shift_remove("managedFields");
    kind.ops.default(doc);
    set(doc, sent.unwrap_or_default());
    let owners = apply::track(kind, live, doc, &endpoint.writer(&api.timestamp()));
    set(doc, Value::Null);
    owners
}

pub(crate) fn set(doc: &mut Value, owners: Value) {
    let metadata = object::metadata_mut(doc);
    if owners.is_null() {
        metadata.shift_remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), owners);
    }
}

/// API-176, API-461: a write that changes nothing leaves the times alone, too.
pub(crate) fn settle(doc: &mut Value, owners: Value, old: &Value) {
    set(doc, owners);
    if apply::is_same_but_times(doc, old) {
        set(doc, object::at(old, &["metadata", "managedFields"]).clone());
    }
}

/// An applied configuration.
pub(crate) struct Config {
    pub(crate) document: Value,
    force: bool,
}

impl Config {
    /// API-456: YAML, of which JSON is a part.
    pub(crate) fn parse(bytes: &Bytes, query: &Query, options: &WriteOptions) -> Result<Self, ApiError> {
        if options.manager.is_empty() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid_options("PatchOptions", error));
        }
        let wrong = |error: String| ApiError::BadRequest(format!("error decoding YAML: {error}"));
        let document = match objects::text::from_json(bytes) {
            Ok((document, _)) => document,
            Err(_) => {
                let text = std::str::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
                objects::text::from_yaml(text).map_err(wrong)?.into_iter().next().unwrap_or_default()
            }
        };
        let document = if document.is_null() { json!({}) } else { document };
        if !document.is_object() {
            return Err(ApiError::BadRequest("error decoding YAML: the configuration is not an object".to_owned()));
        }
        Ok(Self { document, force: query.flag("force").unwrap_or(false) })
    }

    /// The defaulted document, and who owns its fields.
    pub(crate) fn apply(
        &self,
        api: &Api,
        call: &Call,
        live: Option<&Value>,
        endpoint: Endpoint<'_>,
    ) -> Result<(Value, Value), ApiError> {
        let now = api.timestamp();
        let mut doc = apply::apply(call.kind, live, &self.document, &endpoint.writer(&now), self.force)?;
        let owners = object::metadata_mut(&mut doc).shift_remove("managedFields").unwrap_or_default();
        call.kind.ops.default(&mut doc);
        Ok((doc, owners))
    }
}
