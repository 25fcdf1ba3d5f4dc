//! Everything that can go wrong, and the one function that turns it into a
//! `Status` (API-119 to API-150).

use std::collections::HashSet;

use http::StatusCode;
use objects::apply::Conflict;
use objects::{ApplyError, FieldError, Kind};
use serde_json::{Map, Value, json};
use store::Revision;

use crate::target::Verb;

/// A resource as messages name it: `pods`, `deployments.apps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceName {
    pub(crate) group: String,
    pub(crate) resource: String,
}

impl ResourceName {
    pub(crate) fn of(kind: &Kind) -> Self {
        Self { group: kind.group.to_owned(), resource: kind.plural.to_owned() }
    }

    pub(crate) fn core(resource: &str) -> Self {
        Self { group: String::new(), resource: resource.to_owned() }
    }
}

impl std::fmt::Display for ResourceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        qualified(f, &self.resource, &self.group)
    }
}

/// API-122.
fn qualified(f: &mut std::fmt::Formatter<'_>, name: &str, group: &str) -> std::fmt::Result {
    if group.is_empty() { f.write_str(name) } else { write!(f, "{name}.{group}") }
}

/// A kind as `Invalid` messages name it: `Pod`, `Deployment.apps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KindName {
    pub(crate) group: String,
    pub(crate) kind: String,
}

impl KindName {
    pub(crate) fn of(kind: &Kind) -> Self {
        Self { group: kind.group.to_owned(), kind: kind.kind.to_owned() }
    }

    /// `ListOptions`, `DeleteOptions`, … of meta.k8s.io.
    pub(crate) fn meta(kind: &str) -> Self {
        Self { group: "meta.k8s.io".to_owned(), kind: kind.to_owned() }
    }
}

impl std::fmt::Display for KindName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        qualified(f, &self.kind, &self.group)
    }
}

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{0}")]
    BadRequest(String),
    /// API-124.
    #[error("Unauthorized")]
    Unauthorized,
    /// The caller may not do this.
    #[error("{}", forbidden(resource.as_ref(), name, detail))]
    Forbidden { resource: Option<ResourceName>, name: String, detail: String, cause: Option<Box<Cause>> },
    /// API-126.
    #[error("{resource} \"{name}\" not found")]
    NotFound { resource: ResourceName, name: String },
    /// No such path below a served group (API-007).
    #[error("the server could not find the requested resource")]
    NoSuchResource,
    /// No such path at all (API-007): answered as plain text.
    #[error("404 page not found")]
    NoSuchPage,
    /// Not everything is there yet, so nobody knows that it is missing (API-008).
    #[error("the request has been made before all known HTTP paths have been installed, please try again")]
    NotInstalled,
    /// API-127.
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// API-128.
    #[error("only the following media types are accepted: {0}")]
    NotAcceptable(&'static str),
    /// API-133.
    #[error("the body of the request was in an unknown format - accepted media types include: {0}")]
    UnsupportedMediaType(&'static str),
    /// API-129.
    #[error("{}{resource} \"{name}\" already exists{}", being_deleted(*is_deleting), not_unique(*was_generated))]
    AlreadyExists { resource: ResourceName, name: String, is_deleting: bool, was_generated: bool },
    #[error("Operation cannot be fulfilled on {resource} \"{name}\": {detail}")]
    Conflict { resource: ResourceName, name: String, detail: String },
    /// History no longer reaches back; `continue_token` goes on from now.
    #[error("{message}")]
    Expired { message: String, continue_token: Option<String> },
    /// API-132.
    #[error("Request entity too large: {0}")]
    TooLarge(String),
    #[error("{kind} \"{name}\" is invalid: {}", joined(errors))]
    Invalid { kind: KindName, name: String, errors: Vec<FieldError> },
    /// A patch that does not fit the object (API-390).
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable,
    /// API-460: others own what an applied configuration would change.
    #[error("{message}")]
    ApplyConflict { message: String, conflicts: Vec<Conflict> },
    /// A configuration that does not fit its kind; upstream gives no reason.
    #[error("{0}")]
    Unfit(String),
    /// API-135: too much at once; answered as plain text.
    #[error("The server has received too many requests, please try again later.")]
    Overloaded,
    /// API-005.
    #[error("Timeout: request did not complete within the allotted timeout")]
    TookTooLong,
    /// API-139.
    #[error("Timeout: Too large resource version: {wanted}, current: {current}")]
    FutureRevision { wanted: Revision, current: Revision },
    /// Others kept changing what this request was to change.
    #[error("Timeout: {0}")]
    Outrun(String),
    /// Not now; the cause says why.
    #[error("{message}")]
    NotNow { message: &'static str, cause: Box<Cause>, retry_seconds: Option<u32> },
    /// API-136.
    #[error("Internal error occurred: {0}")]
    Internal(String),
    /// The store is full, as etcd says it and upstream passes it on: without a
    /// reason.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The store did not answer, and nothing was written (API-137).
    #[error("{}", unreachable(during.as_ref(), detail))]
    Unreachable { detail: String, during: Option<(&'static str, ResourceName)> },
    /// The node's answer, or that there was none (API-138).
    #[error("{detail}")]
    Node { code: StatusCode, detail: String },
}

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: &'static str,
}

/// API-130: what a stale resourceVersion is answered with.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn forbidden(resource: Option<&ResourceName>, name: &str, detail: &str) -> String {
    match resource {
        None => format!("forbidden: {detail}"),
        Some(resource) if name.is_empty() => format!("{resource} is forbidden: {detail}"),
        Some(resource) => format!("{resource} \"{name}\" is forbidden: {detail}"),
    }
}

fn unreachable(during: Option<&(&'static str, ResourceName)>, detail: &str) -> String {
    match during {
        Some((operation, resource)) => format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        ),
        None => format!("Internal error occurred: {detail}"),
    }
}

fn being_deleted(is_deleting: bool) -> &'static str {
    if is_deleting { "object is being deleted: " } else { "" }
}

fn not_unique(was_generated: bool) -> &'static str {
    if was_generated { ", the server was not able to generate a unique name for the object" } else { "" }
}

/// More problems than this are counted, not told: whoever sends thousands of
/// them would be answered with megabytes.
const ERRORS_TOLD_MAX: usize = 100;

/// How many errors are not told.
fn untold(errors: &[FieldError]) -> Option<String> {
    let more = errors.len().saturating_sub(ERRORS_TOLD_MAX);
    (more > 0).then(|| format!("too many errors: {more} more"))
}

/// API-134: duplicates removed, order kept.
fn joined(errors: &[FieldError]) -> String {
    let mut seen = HashSet::new();
    let texts = errors.iter().take(ERRORS_TOLD_MAX).map(ToString::to_string);
    let mut texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
    texts.extend(untold(errors));
    match &texts[..] {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl ApiError {
    pub(crate) fn conflict(kind: &Kind, name: &str) -> Self {
        Self::Conflict { resource: ResourceName::of(kind), name: name.to_owned(), detail: MODIFIED.to_owned() }
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::NotFound { resource: ResourceName::of(kind), name: name.to_owned() }
    }

    pub(crate) fn denied(kind: &Kind, name: &str, detail: impl Into<String>) -> Self {
        let resource = Some(ResourceName::of(kind));
        Self::Forbidden { resource, name: name.to_owned(), detail: detail.into(), cause: None }
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, errors: Vec<FieldError>) -> Self {
        Self::Invalid { kind: KindName::of(kind), name: name.to_owned(), errors }
    }

    pub(crate) fn invalid_options(kind: &str, error: FieldError) -> Self {
        Self::Invalid { kind: KindName::meta(kind), name: String::new(), errors: vec![error] }
    }

    /// The same while doing this to that.
    pub(crate) fn during(self, verb: Verb, resource: ResourceName) -> Self {
        match self {
            Self::Unreachable { detail, during: None } => {
                tracing::warn!(%resource, verb = verb.as_str(), detail, "the store can not be reached");
                let operation = match verb {
                    Verb::Get => "get",
                    Verb::List | Verb::Watch => "list",
                    Verb::Create => "create",
                    Verb::Update | Verb::Patch => "update",
                    Verb::Delete | Verb::DeleteCollection => "delete",
                };
                Self::Unreachable { detail, during: Some((operation, resource)) }
            }
            other => other,
        }
    }

    /// HTTP status and reason.
    fn class(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden { .. } => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::NotFound { .. } | Self::NoSuchResource | Self::NoSuchPage => (StatusCode::NOT_FOUND, "NotFound"),
            Self::NotInstalled => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Self::Unreachable { during: Some(_), .. } => (StatusCode::INTERNAL_SERVER_ERROR, "ServerTimeout"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::NotAcceptable(_) => (StatusCode::NOT_ACCEPTABLE, "NotAcceptable"),
            Self::UnsupportedMediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType"),
            Self::AlreadyExists { .. } => (StatusCode::CONFLICT, "AlreadyExists"),
            Self::Conflict { .. } | Self::ApplyConflict { .. } => (StatusCode::CONFLICT, "Conflict"),
            Self::Expired { .. } => (StatusCode::GONE, "Expired"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            Self::Invalid { .. } | Self::Unprocessable => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            Self::FutureRevision { .. } | Self::TookTooLong | Self::Outrun(_) => {
                (StatusCode::GATEWAY_TIMEOUT, "Timeout")
            }
            Self::Overloaded | Self::NotNow { .. } => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::Internal(_) | Self::Unreachable { during: None, .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
            }
            Self::Unfit(_) | Self::NoSpace => (StatusCode::INTERNAL_SERVER_ERROR, ""),
            Self::Node { code, .. } => (*code, node_reason(*code)),
        }
    }

    pub(crate) fn code(&self) -> StatusCode {
        self.class().0
    }

    /// Seconds after which trying again may help (API-009, API-120).
    pub(crate) fn retry_after(&self) -> Option<u32> {
        match self {
            Self::AlreadyExists { was_generated: true, .. } | Self::FutureRevision { .. } | Self::Overloaded => Some(1),
            Self::Outrun(_) => Some(10),
            Self::NotInstalled => Some(5),
            Self::Unreachable { during: Some(_), .. } => Some(2),
            Self::NotNow { retry_seconds, .. } => *retry_seconds,
            _ => None,
        }
    }

    /// The `Status` object of API-119.
    pub(crate) fn status(&self) -> Value {
        let (code, reason) = self.class();
        let mut metadata = Map::new();
        if let Self::Expired { continue_token: Some(token), .. } = self {
            metadata.insert("continue".to_owned(), json!(token));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.to_string(), "reason": reason,
        });
        if let (Some(map), "") = (status.as_object_mut(), reason) {
            map.shift_remove("reason");
        }
        let details = self.details();
        if !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status["code"] = json!(code.as_u16());
        status
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        let (name, group, kind) = self.subject();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), json!(value));
            }
        }
        let causes = self.causes();
        if !causes.is_empty() {
            details.insert("causes".to_owned(), json!(causes));
        }
        if let Some(seconds) = self.retry_after() {
            details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        details
    }

    /// API-121: name, group, and the resource (the kind for `Invalid`).
    fn subject(&self) -> (&str, &str, &str) {
        match self {
            Self::NotFound { resource, name }
            | Self::AlreadyExists { resource, name, .. }
            | Self::Conflict { resource, name, .. }
            | Self::Forbidden { resource: Some(resource), name, .. } => (name, &resource.group, &resource.resource),
            Self::Invalid { kind, name, .. } => (name, &kind.group, &kind.kind),
            Self::Unreachable { during: Some((_, resource)), .. } => ("", &resource.group, &resource.resource),
            _ => ("", "", ""),
        }
    }

    fn causes(&self) -> Vec<Value> {
        match self {
            Self::Invalid { errors, .. } => {
                let told = errors.iter().take(ERRORS_TOLD_MAX).map(|error| {
                    json!({"reason": error.reason.as_str(), "message": error.message(), "field": error.shown_path()})
                });
                told.chain(untold(errors).map(|message| json!({"message": message}))).collect()
            }
            Self::Forbidden { cause: Some(cause), .. } => {
                vec![json!({"reason": cause.reason, "message": cause.message, "field": cause.field})]
            }
            Self::NotNow { cause, .. } => vec![json!({"reason": cause.reason, "message": cause.message})],
            Self::ApplyConflict { conflicts, .. } => conflicts
                .iter()
                .map(|Conflict { manager, field, .. }| {
                    let message = format!("conflict with {manager}");
                    json!({"reason": "FieldManagerConflict", "message": message, "field": field})
                })
                .collect(),
            Self::FutureRevision { .. } => {
                vec![json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"})]
            }
            Self::Internal(detail) | Self::Unreachable { detail, during: None } => vec![json!({"message": detail})],
            _ => Vec::new(),
        }
    }
}

fn node_reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    }
}

impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        let message = error.message();
        match error {
            ApplyError::Malformed(_) => Self::BadRequest(message),
            ApplyError::Unfit(_) => Self::Unfit(message),
            ApplyError::Conflicts { told, .. } => Self::ApplyConflict { message, conflicts: told },
        }
    }
}

/// Reads fail like this when a revision is gone or not there yet.
impl From<store::ReadError> for ApiError {
    fn from(error: store::ReadError) -> Self {
        match error {
            store::ReadError::Compacted { .. } => Self::Expired {
                message: "The resourceVersion for the provided list is too old.".to_owned(),
                continue_token: None,
            },
            store::ReadError::Future { wanted, newest } => Self::FutureRevision { wanted, current: newest },
            store::ReadError::Sealed { fault, .. } => Self::Internal(fault.to_string()),
            store::ReadError::Unavailable { detail } => Self::Unreachable { detail, during: None },
        }
    }
}

/// Only for failures of the store itself: conflicts mean something different
/// to each caller, which therefore handles them first.
impl From<store::WriteError> for ApiError {
    fn from(error: store::WriteError) -> Self {
        match error {
            store::WriteError::TooLarge { bytes_max, .. } => Self::TooLarge(format!("limit is {bytes_max}")),
            store::WriteError::NoSpace => Self::NoSpace,
            error => Self::Internal(error.to_string()),
        }
    }
}

impl From<store::WatchError> for ApiError {
    fn from(error: store::WatchError) -> Self {
        match error {
            store::WatchError::Compacted { wanted, oldest } => Self::Expired {
                message: format!("too old resource version: {wanted} ({oldest})"),
                continue_token: None,
            },
            store::WatchError::Future { wanted, newest } => Self::FutureRevision { wanted, current: newest },
            store::WatchError::Unavailable { detail } => Self::Internal(detail),
        }
    }
}
