//! Who owns which fields, as requests bring it about: applied configurations
//! (API-456 to API-463), and all other writes (API-452).

use bytes::Bytes;
use objects::apply::{self, Writer};
use objects::kinds::scale;
use objects::{ApplyError, FieldError, Kind};
use serde_json::{Value, json};

use crate::api::{Api, Call};
use crate::body::{self, Strictness, WriteOptions};
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

/// API-455: they are sent to everybody; hiding them is for clients.
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

/// API-341: keys that a configuration has twice, by their lines.
fn refuse_repeated(text: &str, strictness: Strictness, warnings: &mut Vec<String>) -> Result<(), ApiError> {
    if strictness == Strictness::Ignore {
        return Ok(());
    }
    let found = objects::text::repeated_keys(text);
    let told = found.into_iter().map(|(line, key)| format!("line {line}: key {key:?} already set in map"));
    let told: Vec<String> = told.collect();
    if strictness == Strictness::Strict && !told.is_empty() {
        let intro = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:";
        return Err(ApiError::BadRequest(format!("{intro}\n  {}", told.join("\n  "))));
    }
    warnings.extend(told);
    Ok(())
}

/// An applied configuration.
pub(crate) struct Config {
    pub(crate) document: Value,
    force: bool,
}

impl Config {
    /// API-456: YAML, of which JSON is a part.
    pub(crate) fn parse(
        bytes: &Bytes,
        query: &Query,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Self, ApiError> {
        if options.manager.is_empty() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid_options("PatchOptions", error));
        }
        let wrong = |error: String| ApiError::BadRequest(format!("error decoding YAML: {error}"));
        let text = std::str::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
        let (document, is_suspect) = match objects::text::from_json(bytes) {
            Ok((document, repeated)) => (document, !repeated.is_empty()),
            Err(_) => (objects::text::from_yaml(text).map_err(wrong)?.into_iter().next().unwrap_or_default(), true),
        };
        if is_suspect {
            refuse_repeated(text, options.strictness, warnings)?;
        }
        let document = if document.is_null() { json!({}) } else { document };
        if !document.is_object() {
            return Err(ApiError::BadRequest("error decoding YAML: the configuration is not an object".to_owned()));
        }
        body::check_size(&document)?;
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
        body::check_size(&doc)?;
        // The merge knows shapes; what a time or a quantity is, only this.
        call.kind.ops.decode(&doc).map_err(|error| body::cannot_handle(call.kind, &error.to_string()))?;
        let owners = object::metadata_mut(&mut doc).shift_remove("managedFields").unwrap_or_default();
        call.kind.ops.default(&mut doc);
        Ok((doc, owners))
    }

    /// API-389: what an applied scale makes of its controller, and who owns the
    /// controller's fields.
    pub(crate) fn apply_scale(
        &self,
        api: &Api,
        kind: &'static Kind,
        live: &Value,
        endpoint: Endpoint<'_>,
    ) -> Result<(Value, Value), ApiError> {
        let now = api.timestamp();
        let writer = endpoint.writer(&now);
        // A good scale, before it is looked at as a part of something else.
        apply::apply(&scale::KIND, None, &self.document, &writer, true)?;
        let unknown = scale::KIND.ops.decode(&self.document).map_err(|error| ApiError::Unfit(error.to_string()))?;
        if !unknown.is_empty() {
            let told: Vec<String> =
                unknown.iter().map(|path| format!(".{path}: field not declared in schema")).collect();
            let what = format!("/{}; {}, Kind=Scale", object::name(&self.document), scale::KIND.api_version());
            let text = format!("failed to create typed patch object ({what}): {}", told.join("\n  "));
            return Err(ApiError::Unfit(text));
        }
        let mut config = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "spec": {}});
        if let Some(replicas) = self.document["spec"].get("replicas") {
            config["spec"]["replicas"] = replicas.clone();
        }
        let applied = apply::apply(kind, Some(live), &config, &writer, self.force);
        let mut doc = applied.map_err(|error| seen_as_scale(error, kind))?;
        let owners = object::metadata_mut(&mut doc).shift_remove("managedFields").unwrap_or_default();
        // Nobody asks for any.
        object::object_mut(&mut doc, "spec").entry("replicas").or_insert(json!(0));
        kind.ops.default(&mut doc);
        Ok((doc, owners))
    }
}

/// Conflicts over a scale name its version, whoever owns the controller's.
fn seen_as_scale(error: ApplyError, kind: &Kind) -> ApplyError {
    let ApplyError::Conflicts { mut told, count } = error else { return error };
    let (from, to) = (format!(" using {}", kind.api_version()), format!(" using {}", scale::KIND.api_version()));
    for conflict in &mut told {
        conflict.manager = conflict.manager.replace(&from, &to);
    }
    ApplyError::Conflicts { told, count }
}
