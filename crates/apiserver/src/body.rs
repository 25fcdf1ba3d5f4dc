//! Request bodies and the options that come with them: objects, patches,
//! delete options; strictness about unknown fields.

use bytes::Bytes;
use http::HeaderMap;
use objects::kinds::asked::DELETE_OPTIONS;
use objects::{FieldError, Kind, PatchError};
use serde_json::{Value, json};

use crate::deletion::Propagation;
use crate::error::ApiError;
use crate::intake::BODY_BYTES_MAX;
use crate::negotiate;
use crate::query::Query;

/// API-337 to API-340.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    pub(crate) is_dry_run: bool,
    pub(crate) strictness: Strictness,
    /// Who owns what is written; empty is the server itself.
    pub(crate) manager: String,
}

/// What happens to fields the kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Strictness {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl WriteOptions {
    pub(crate) fn parse(query: &Query, kind: &str) -> Result<Self, ApiError> {
        let invalid = |error| ApiError::invalid_options(kind, error);
        let strictness = match query.text("fieldValidation") {
            None | Some("Warn") => Strictness::Warn,
            Some("Ignore") => Strictness::Ignore,
            Some("Strict") => Strictness::Strict,
            Some(other) => {
                let supported = ["Ignore", "Strict", "Warn"];
                return Err(invalid(FieldError::not_supported("fieldValidation", other, &supported)));
            }
        };
        let manager = query.text("fieldManager").unwrap_or_default();
        if manager.len() > FIELD_MANAGER_BYTES_MAX {
            return Err(invalid(FieldError::too_long("fieldManager", FIELD_MANAGER_BYTES_MAX)));
        }
        if manager.chars().any(char::is_control) {
            let detail = "should only contain printable characters";
            return Err(invalid(FieldError::invalid("fieldManager", manager, detail)));
        }
        let dry_run: Vec<&str> = query.all("dryRun").filter(|value| !value.is_empty()).collect();
        Ok(Self { is_dry_run: is_dry_run(&dry_run, kind)?, strictness, manager: manager.to_owned() })
    }

    /// API-339: whoever does not say is known by their program.
    pub(crate) fn by(mut self, headers: &HeaderMap) -> Self {
        if self.manager.is_empty() {
            let agent = negotiate::header_text(headers, http::header::USER_AGENT);
            let name = agent.split('/').next().unwrap_or_default();
            self.manager = name.chars().filter(|letter| !letter.is_control()).collect();
            while self.manager.len() > FIELD_MANAGER_BYTES_MAX {
                self.manager.pop();
            }
            if self.manager.is_empty() {
                self.manager.push_str("unknown");
            }
        }
        self
    }
}

/// API-339.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// API-338: `All` is the only value.
fn is_dry_run(values: &[&str], kind: &str) -> Result<bool, ApiError> {
    match values.iter().find(|value| **value != "All") {
        Some(_) => Err(ApiError::invalid_options(kind, FieldError::not_supported("dryRun", json!(values), &["All"]))),
        None => Ok(!values.is_empty()),
    }
}

/// A JSON object of the endpoint's kind, its fields checked; kind and version
/// may be left out.
pub(crate) fn object(
    kind: &Kind,
    bytes: &Bytes,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let (mut doc, repeated) =
        objects::text::from_json(bytes).map_err(|error| cannot_handle(kind, &error.to_string()))?;
    name_kind(kind, &mut doc)?;
    check_fields(kind, &doc, &repeated, options, warnings)?;
    Ok(doc)
}

/// API-101.
pub(crate) fn yaml_in_json(bytes: &Bytes) -> Result<Bytes, ApiError> {
    let read = || {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        match objects::text::from_yaml(text)?.as_slice() {
            [doc] => Ok(doc.to_string().into()),
            docs => Err(format!("there must be one document, there are {}", docs.len())),
        }
    };
    read().map_err(|error: String| ApiError::BadRequest(format!("error converting YAML to JSON: {error}")))
}

pub(crate) fn cannot_handle(kind: &Kind, detail: &str) -> ApiError {
    let (name, version) = (kind.kind, kind.version);
    ApiError::BadRequest(format!("{name} in version \"{version}\" cannot be handled as a {name}: {detail}"))
}

fn name_kind(kind: &Kind, doc: &mut Value) -> Result<(), ApiError> {
    let Some(map) = doc.as_object_mut() else {
        return Err(cannot_handle(kind, "json: cannot unmarshal a value that is not an object"));
    };
    let given = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, name) = (given("apiVersion"), given("kind"));
    let expected = kind.api_version();
    if !api_version.is_empty() && api_version != expected {
        return Err(ApiError::BadRequest(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    if !name.is_empty() && name != kind.kind {
        return Err(ApiError::BadRequest(format!(
            "{name} in version \"{}\" cannot be handled as a {}: converting ({expected}.{name}) to ({expected}.{}): unknown conversion",
            kind.version, kind.kind, kind.kind
        )));
    }
    map.insert("apiVersion".to_owned(), json!(expected));
    map.insert("kind".to_owned(), json!(kind.kind));
    Ok(())
}

/// API-341: wrong types are always refused; unknown and repeated fields as asked.
fn check_fields(
    kind: &Kind,
    doc: &Value,
    repeated: &[String],
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let unknown = kind.ops.decode(doc).map_err(|error| cannot_handle(kind, &error.to_string()))?;
    let problems = problems(&unknown, repeated);
    match options.strictness {
        Strictness::Ignore => Ok(()),
        Strictness::Warn => {
            warnings.extend(problems);
            Ok(())
        }
        Strictness::Strict if problems.is_empty() => Ok(()),
        Strictness::Strict => Err(cannot_handle(kind, &format!("strict decoding error: {}", problems.join(", ")))),
    }
}

fn problems(unknown: &[String], repeated: &[String]) -> Vec<String> {
    let unknown = unknown.iter().map(|path| format!("unknown field {path:?}"));
    let repeated = repeated.iter().map(|path| format!("duplicate field {path:?}"));
    unknown.chain(repeated).take(PROBLEMS_MAX).collect()
}

/// API-341.
const PROBLEMS_MAX: usize = 100;

/// A patch by its media type (API-387).
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    kind: PatchKind,
    document: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    /// Not a patch but a configuration: see `apply.rs`.
    Apply,
}

const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";

impl Patch {
    pub(crate) fn kind_of(headers: &HeaderMap) -> Result<PatchKind, ApiError> {
        match negotiate::content_type(headers).as_str() {
            "application/json-patch+json" => Ok(PatchKind::Json),
            "application/merge-patch+json" => Ok(PatchKind::Merge),
            "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
            "application/apply-patch+yaml" => Ok(PatchKind::Apply),
            _ => Err(ApiError::UnsupportedMediaType(PATCH_TYPES)),
        }
    }

    pub(crate) fn parse(kind: PatchKind, bytes: &Bytes, query: &Query) -> Result<Self, ApiError> {
        if query.text("force").is_some() {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid_options("PatchOptions", error));
        }
        let document: Value = serde_json::from_slice(bytes)
            .map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}")))?;
        if let (PatchKind::Json, Some(operations)) = (kind, document.as_array())
            && operations.len() > PATCH_OPERATIONS_MAX
        {
            return Err(ApiError::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {PATCH_OPERATIONS_MAX}, got {}",
                operations.len()
            )));
        }
        Ok(Self { kind, document })
    }

    pub(crate) fn document(&self) -> &Value {
        &self.document
    }

    /// The patched object, with its fields checked (API-392).
    pub(crate) fn apply(
        &self,
        kind: &Kind,
        name: Option<&str>,
        old: &Value,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        let patched = match self.kind {
            PatchKind::Json => objects::patch::json_patch(old, &self.document),
            PatchKind::Apply | PatchKind::Merge => objects::patch::merge_patch(old, &self.document),
            PatchKind::Strategic => objects::patch::strategic_merge_patch(kind, old, &self.document),
        };
        let patched = patched.map_err(|error| match error {
            PatchError::Malformed(detail) => ApiError::BadRequest(detail),
            PatchError::Unprocessable(_) => ApiError::Unprocessable,
        })?;
        check_size(&patched)?;
        let invalid = |detail: String| {
            // Errors are written to logs, where nobody looks for the contents of a Secret.
            let shown = if kind.kind == "Secret" { REDACTED.to_owned() } else { self.document.to_string() };
            let error = FieldError::invalid("patch", shown, detail);
            ApiError::invalid(kind, name.unwrap_or_default(), vec![error])
        };
        let unknown = kind.ops.decode(&patched).map_err(|error| invalid(error.to_string()))?;
        let problems = problems(&unknown, &[]);
        match options.strictness {
            Strictness::Ignore => {}
            Strictness::Warn => warnings.extend(problems),
            Strictness::Strict if problems.is_empty() => {}
            Strictness::Strict => return Err(invalid(format!("strict decoding error: {}", problems.join(", ")))),
        }
        Ok(patched)
    }
}

/// What a patch or an applied configuration makes is no larger than what could
/// have been sent: nothing further looks at more.
pub(crate) fn check_size(made: &Value) -> Result<(), ApiError> {
    if objects::patch::is_longer(made, BODY_BYTES_MAX) {
        return Err(ApiError::TooLarge(format!("limit is {BODY_BYTES_MAX}")));
    }
    if objects::text::lists_too_much(made) {
        let max = objects::text::LISTED_MAX;
        return Err(ApiError::TooLarge(format!("lists hold too much: the limit is {max} objects")));
    }
    Ok(())
}

/// API-005.
const REDACTED: &str = "<secret contents redacted>";
const PATCH_OPERATIONS_MAX: usize = 10_000;

/// API-380, TC-014: from the body, or from the query if there is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) is_dry_run: bool,
    /// 202 instead of 200 while the object still exists (API-114).
    pub(crate) orphans_explicitly_not: bool,
    /// What becomes of what the object owns; None leaves it to the kind.
    pub(crate) propagation: Option<Propagation>,
    /// The object goes although nobody can read who waits for its end.
    pub(crate) ignores_read_error: bool,
}

impl DeleteOptions {
    pub(crate) fn parse(bytes: &Bytes, headers: &HeaderMap, query: &Query) -> Result<Self, ApiError> {
        if bytes.is_empty() {
            return Self::from_query(query);
        }
        negotiate::require_json(headers)?;
        let doc: Value = serde_json::from_slice(bytes)
            .map_err(|error| ApiError::BadRequest(format!("couldn't decode DeleteOptions: {error}")))?;
        let mut options = Self::of(&doc)?;
        options.is_dry_run |= Self::from_query(query)?.is_dry_run;
        Ok(options)
    }

    /// From a document; an absent one asks for nothing.
    pub(crate) fn of(doc: &Value) -> Result<Self, ApiError> {
        if !doc.is_null() {
            let wrong = |error| ApiError::BadRequest(format!("couldn't decode DeleteOptions: {error}"));
            DELETE_OPTIONS.ops.decode(doc).map_err(wrong)?;
        }
        let text = |path: &[&str]| {
            let text = crate::object::text(doc, path);
            (!text.is_empty()).then(|| text.to_owned())
        };
        let grace = &doc["gracePeriodSeconds"];
        let dry_run: Vec<&str> = doc["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let orphans = doc["orphanDependents"].as_bool();
        let propagation = propagation(text(&["propagationPolicy"]).as_deref(), orphans)?;
        Ok(Self {
            propagation,
            grace_seconds: grace.as_i64(),
            uid: text(&["preconditions", "uid"]),
            version: text(&["preconditions", "resourceVersion"]),
            is_dry_run: is_dry_run(&dry_run, "DeleteOptions")?,
            orphans_explicitly_not: orphans == Some(false),
            ignores_read_error: doc[IGNORE_READ_ERROR] == true,
        })
    }

    fn from_query(query: &Query) -> Result<Self, ApiError> {
        let orphans = query.flag("orphanDependents");
        let propagation = propagation(query.text("propagationPolicy"), orphans)?;
        let dry_run: Vec<&str> = query.all("dryRun").filter(|value| !value.is_empty()).collect();
        Ok(Self {
            grace_seconds: query.number("gracePeriodSeconds")?,
            is_dry_run: is_dry_run(&dry_run, "DeleteOptions")?,
            propagation,
            orphans_explicitly_not: orphans == Some(false),
            ignores_read_error: query.is_set(IGNORE_READ_ERROR),
            ..Self::default()
        })
    }
}

const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// TC-015.
fn propagation(policy: Option<&str>, orphans: Option<bool>) -> Result<Option<Propagation>, ApiError> {
    let invalid = |error| Err(ApiError::invalid_options("DeleteOptions", error));
    match (policy, orphans) {
        (Some(policy), Some(_)) => invalid(FieldError::invalid(
            "propagationPolicy",
            policy,
            "orphanDependents and deletionPropagation cannot be both set",
        )),
        (Some("Foreground"), None) => Ok(Some(Propagation::Foreground)),
        (Some("Background"), None) | (None, Some(false)) => Ok(Some(Propagation::Background)),
        (Some("Orphan"), None) | (None, Some(true)) => Ok(Some(Propagation::Orphan)),
        (None, None) => Ok(None),
        (Some(policy), None) => invalid(FieldError::not_supported(
            "propagationPolicy",
            policy,
            &["Foreground", "Background", "Orphan", "nil"],
        )),
    }
}
