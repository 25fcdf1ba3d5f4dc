//! The one way by which new objects get into the store: by POST, by PUT, by
//! apply and under a generated name, for callers and for the server itself.
//!
//! Stamped, defaulted, changed by admission, completed and validated, and only
//! then judged: what is judged is what will be stored. Nothing else in this
//! crate makes objects, but for the roles that `authz::defaults` puts back.

use bytes::Bytes;
use http::Method;
use objects::{Kind, kinds};
use serde_json::{Value, json};
use store::{Entry, Op, Revision, WriteError};

use crate::admission::{self, quota};
use crate::api::{Api, Call};
use crate::authz::{self, Access};
use crate::body::WriteOptions;
use crate::error::{ApiError, ResourceName};
use crate::ownership;
use crate::target::Verb;
use crate::write::{self, Part};
use crate::{certificates, namespaces, object};

/// A decoded document that shall become an object.
pub(crate) enum New {
    /// Whose fields are its writer's (API-186).
    Sent(Value),
    /// Defaulted already, and who owns its fields.
    Applied(Value, Value),
}

/// In whose name. Whatever a caller asks for is authorized, stamped and judged;
/// only the server's own objects are not.
enum By<'a> {
    Caller(&'a mut Call),
    Server,
}

/// Creates what a caller asked for; returns its bytes and version.
pub(crate) async fn create(
    api: &Api,
    call: &mut Call,
    new: New,
    options: &WriteOptions,
) -> Result<(Bytes, Revision), ApiError> {
    // To make something takes the right to create, whatever verb it is made by.
    if call.method != Method::POST {
        authz::require(api, &call.caller, &Access::of(Verb::Create, &call.path, &call.query)).await?;
    }
    let (kind, namespace) = (call.kind, call.path.namespace.clone());
    store_new(api, By::Caller(call), kind, namespace.as_deref(), new, options).await
}

/// For what the server itself makes, which nobody asked for: it is not judged.
pub(crate) async fn by_server(
    api: &Api,
    kind: &'static Kind,
    namespace: Option<&str>,
    doc: Value,
) -> Result<(), ApiError> {
    let new = New::Sent(doc);
    store_new(api, By::Server, kind, namespace, new, &WriteOptions::default()).await.map(drop)
}

async fn store_new(
    api: &Api,
    mut by: By<'_>,
    kind: &'static Kind,
    namespace: Option<&str>,
    new: New,
    options: &WriteOptions,
) -> Result<(Bytes, Revision), ApiError> {
    let mut doc = owned(api, kind, namespace, new, options)?;
    if let (By::Caller(call), true) = (&by, kind.kind == kinds::certificate_request::KIND.kind) {
        certificates::stamp(&call.caller, &mut doc);
    }
    let turn = api.services.turn(kind).await;
    admission::create(api, kind, namespace, &mut doc).await?;
    // API-117: once more, after those who may change it.
    kind.ops.default(&mut doc);
    let generate = object::text(&doc, &["metadata", "generateName"]).to_owned();
    let is_generated = object::name(&doc).is_empty() && !generate.is_empty();
    let mut attempt = 0;
    let stored = loop {
        attempt += 1;
        // Only a generated name is tried again.
        let mut doc = if is_generated { doc.clone() } else { std::mem::take(&mut doc) };
        if is_generated {
            let stem: String = generate.chars().take(GENERATED_STEM_MAX).collect();
            object::metadata_mut(&mut doc).insert("name".to_owned(), json!(stem + &api.ids.suffix()));
        }
        complete(api, kind, &mut doc)?;
        if let By::Caller(call) = &mut by {
            admission::judge_create(api, call, &doc).await?;
        }
        match insert(api, kind, namespace, &doc, options).await {
            Err(ApiError::AlreadyExists { .. }) if is_generated && attempt < NAME_TRIES => {}
            Err(ApiError::AlreadyExists { resource, name, is_deleting, .. }) => {
                return Err(ApiError::AlreadyExists { resource, name, is_deleting, was_generated: is_generated });
            }
            other => {
                let stored = other?;
                if let By::Caller(call) = &mut by {
                    call.warnings.extend(kind.ops.warnings(&doc, None));
                }
                break stored;
            }
        }
    };
    drop(turn);
    if !options.is_dry_run {
        authz::after_write(api, kind).await?;
    }
    Ok(stored)
}

/// API-153.
const NAME_TRIES: u32 = 8;
const GENERATED_STEM_MAX: usize = 58;

/// The document in its namespace, defaulted, its fields owned.
fn owned(
    api: &Api,
    kind: &'static Kind,
    namespace: Option<&str>,
    new: New,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let (mut doc, owners) = match new {
        New::Sent(mut doc) => {
            if !object::text(&doc, &["metadata", "resourceVersion"]).is_empty() {
                let text = "resourceVersion should not be set on objects to be created";
                return Err(ApiError::Internal(text.to_owned()));
            }
            write::place_in_namespace(&mut doc, namespace)?;
            let endpoint = ownership::Endpoint { options, part: Part::Main };
            let owners = ownership::track(api, kind, None, &mut doc, endpoint);
            (doc, owners)
        }
        New::Applied(mut doc, owners) => {
            write::place_in_namespace(&mut doc, namespace)?;
            (doc, owners)
        }
    };
    ownership::set(&mut doc, owners);
    Ok(doc)
}

/// What will be stored, if it is valid.
fn complete(api: &Api, kind: &'static Kind, doc: &mut Value) -> Result<(), ApiError> {
    kind.ops.prepare_create(doc, &api.config.gates);
    let metadata = object::metadata_mut(doc);
    // Whatever was sent: the server alone says what is one object and how old it is (API-156).
    metadata.insert("uid".to_owned(), json!(api.ids.uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(api.timestamp()));
    kind.ops.complete_create(doc);
    let errors = kind.ops.validate_create(doc, &api.config.gates);
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(kind, object::name(doc), errors)) }
}

async fn insert(
    api: &Api,
    kind: &'static Kind,
    namespace: Option<&str>,
    doc: &Value,
    options: &WriteOptions,
) -> Result<(Bytes, Revision), ApiError> {
    let name = object::name(doc);
    let key = object::key(kind, namespace, name);
    let bytes = object::encode(kind, doc);
    let exists = |current: Option<&Entry>| ApiError::AlreadyExists {
        resource: ResourceName::of(kind),
        name: name.to_owned(),
        is_deleting: current.is_some_and(|entry| write::is_deleting(&object::document(entry))),
        was_generated: false,
    };
    if options.is_dry_run {
        quota::charge(api, kind, namespace, doc, None).await?;
        return match api.store.get(&key).await? {
            Some(current) => Err(exists(Some(&current))),
            None => Ok((bytes, Revision(0))),
        };
    }
    for _ in 0..quota::TRIES {
        let mut ops = vec![Op::create(key.clone(), bytes.clone())];
        ops.extend(namespaces::guard(api, kind, namespace, name).await?);
        ops.extend(quota::charge(api, kind, namespace, doc, None).await?);
        match api.store.write(ops).await {
            Ok(revision) => return Ok((bytes, revision)),
            Err(WriteError::Conflict { index: 0, current, .. }) => return Err(exists(current.as_deref())),
            // A quota or the namespace has changed: there may still be room.
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ApiError::conflict(kind, name))
}
