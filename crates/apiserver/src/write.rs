//! create, update and patch (API-337 to API-400): from a body to a stored
//! object, in the order of API-116 to API-118.

use bytes::Bytes;
use http::StatusCode;
use objects::{FieldError, Kind, Subresource, kinds};
use serde_json::{Value, json};
use store::{Entry, Op, Revision, WriteError};

use crate::admission::quota;
use crate::answer::{self, Answer};
use crate::api::{Api, Call};
use crate::authz::Access;
use crate::body::{self, Patch, PatchKind, WriteOptions};
use crate::error::{ApiError, ResourceName};
use crate::negotiate::{self, Form};
use crate::ownership::{self, Config};
use crate::target::Verb;
use crate::{admission, authz, certificates, namespaces, object, read};

/// Which part of an object a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// `spec.finalizers` of a namespace (API-193).
    Finalize,
    /// One part of the spec, as the kind says.
    Of(Subresource),
}

impl Part {
    /// As `managedFields` names it; empty for the object itself.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
            Self::Of(part) => part.name(),
        }
    }
}

/// API-344.
pub(crate) async fn create(api: &Api, call: &mut Call, bytes: Bytes) -> Answer {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?.by(&call.headers);
    negotiate::require_json(&call.headers)?;
    let mut doc = body::object(call.kind, &bytes, &options, &mut call.warnings)?;
    if call.kind.kind == CERTIFICATE_REQUEST {
        certificates::stamp(&call.caller, &mut doc);
    }
    admission::check_create(api, call, &doc).await?;
    let warnings = call.kind.ops.warnings(&doc, None);
    let (bytes, revision) = create_object(api, call.kind, call.namespace(), doc, &options).await?;
    call.warnings.extend(warnings);
    authz::after_write(api, call.kind).await?;
    stored_answer(api, call, StatusCode::CREATED, &bytes, revision)
}

const CERTIFICATE_REQUEST: &str = kinds::certificate_request::KIND.kind;

/// Stores a decoded document as a new object, whose fields are its writer's
/// (API-186); returns its bytes and version.
pub(crate) async fn create_object(
    api: &Api,
    kind: &'static Kind,
    namespace: Option<&str>,
    mut doc: Value,
    options: &WriteOptions,
) -> Result<(Bytes, Revision), ApiError> {
    if !object::text(&doc, &["metadata", "resourceVersion"]).is_empty() {
        return Err(ApiError::Internal("resourceVersion should not be set on objects to be created".to_owned()));
    }
    place_in_namespace(&mut doc, namespace)?;
    let owners = ownership::track(api, kind, None, &mut doc, ownership::Endpoint { options, part: Part::Main });
    ownership::set(&mut doc, owners);
    store_new(api, kind, namespace, doc, options).await
}

/// Stores a defaulted document whose fields have owners.
pub(crate) async fn store_new(
    api: &Api,
    kind: &'static Kind,
    namespace: Option<&str>,
    mut doc: Value,
    options: &WriteOptions,
) -> Result<(Bytes, Revision), ApiError> {
    let _turn = api.services.turn(kind).await;
    admission::create(api, kind, namespace, &mut doc).await?;
    // API-117: once more, after those who may change it.
    kind.ops.default(&mut doc);
    let generate = object::text(&doc, &["metadata", "generateName"]).to_owned();
    let is_generated = object::name(&doc).is_empty() && !generate.is_empty();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut doc = doc.clone();
        if is_generated {
            let stem: String = generate.chars().take(GENERATED_STEM_MAX).collect();
            object::metadata_mut(&mut doc).insert("name".to_owned(), json!(stem + &api.ids.suffix()));
        }
        kind.ops.prepare_create(&mut doc, &api.config.gates);
        let metadata = object::metadata_mut(&mut doc);
        // API-156.
        metadata.insert("uid".to_owned(), json!(api.ids.uid()));
        metadata.insert("creationTimestamp".to_owned(), json!(api.timestamp()));
        kind.ops.complete_create(&mut doc);
        let errors = kind.ops.validate_create(&doc, &api.config.gates);
        if !errors.is_empty() {
            return Err(ApiError::invalid(kind, object::name(&doc), errors));
        }
        match insert(api, kind, namespace, &doc, options).await {
            Err(ApiError::AlreadyExists { .. }) if is_generated && attempt < NAME_TRIES => {}
            Err(ApiError::AlreadyExists { resource, name, is_deleting, .. }) => {
                return Err(ApiError::AlreadyExists { resource, name, is_deleting, was_generated: is_generated });
            }
            other => return other,
        }
    }
}

/// API-153.
const NAME_TRIES: u32 = 8;
const GENERATED_STEM_MAX: usize = 58;

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
        is_deleting: current.is_some_and(|entry| is_deleting(&object::document(entry))),
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

pub(crate) fn is_deleting(doc: &Value) -> bool {
    !object::at(doc, &["metadata", "deletionTimestamp"]).is_null()
}

/// API-157: an empty namespace is the request's; another one is an error, but
/// for what has none: manifests that say one anyway are common.
fn place_in_namespace(doc: &mut Value, namespace: Option<&str>) -> Result<(), ApiError> {
    let metadata = object::metadata_mut(doc);
    let Some(namespace) = namespace else {
        metadata.shift_remove("namespace");
        return Ok(());
    };
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        "" => {
            metadata.insert("namespace".to_owned(), json!(namespace));
            Ok(())
        }
        given if given == namespace => Ok(()),
        _ => Err(ApiError::BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
        )),
    }
}

pub(crate) async fn replace(api: &Api, call: &mut Call, bytes: Bytes, part: Part) -> Answer {
    let options = WriteOptions::parse(&call.query, "UpdateOptions")?.by(&call.headers);
    negotiate::require_json(&call.headers)?;
    let mut doc = body::object(call.kind, &bytes, &options, &mut call.warnings)?;
    place_in_namespace(&mut doc, call.namespace())?;
    if object::name(&doc).is_empty() {
        let name = call.name();
        return Err(ApiError::BadRequest(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    check_name(&doc, call.name())?;
    update(api, call, &Source::Replace(doc), part, &options).await
}

pub(crate) async fn patch(api: &Api, call: &mut Call, bytes: Bytes, part: Part) -> Answer {
    let options = WriteOptions::parse(&call.query, "PatchOptions")?;
    let kind_of_patch = Patch::kind_of(&call.headers)?;
    // API-078.
    if kind_of_patch == PatchKind::Apply {
        let config = Config::parse(&bytes, &call.query, &options, &mut call.warnings)?;
        return update(api, call, &Source::Apply(config), part, &options).await;
    }
    let options = options.by(&call.headers);
    let patch = Patch::parse(kind_of_patch, &bytes, &call.query)?;
    update(api, call, &Source::Patch(patch), part, &options).await
}

/// Where the new state comes from.
enum Source {
    Replace(Value),
    Patch(Patch),
    Apply(Config),
}

impl Source {
    /// The new document, defaulted (API-117), and who owns its fields.
    fn next(
        &self,
        api: &Api,
        call: &mut Call,
        old: &Value,
        endpoint: ownership::Endpoint<'_>,
    ) -> Result<(Value, Value), ApiError> {
        let mut doc = match self {
            Self::Apply(config) => return config.apply(api, call, Some(old), endpoint),
            Self::Replace(doc) => doc.clone(),
            Self::Patch(patch) => {
                let (name, options) = (call.path.name.as_deref(), endpoint.options);
                patch.apply(call.kind, name, old, options, &mut call.warnings)?
            }
        };
        let owners = ownership::track(api, call.kind, Some(old), &mut doc, endpoint);
        Ok((doc, owners))
    }

    /// Whether the client insists on the version it saw (API-347, API-388).
    fn is_conditional(&self) -> bool {
        let doc = match self {
            Self::Replace(doc) => doc,
            Self::Patch(patch) => patch.document(),
            Self::Apply(config) => &config.document,
        };
        !object::text(doc, &["metadata", "resourceVersion"]).is_empty()
    }
}

/// API-388: how often a lost race is run again.
const UPDATE_TRIES: u32 = 8;

async fn update(api: &Api, call: &mut Call, source: &Source, part: Part, options: &WriteOptions) -> Answer {
    let key = call.key();
    for _ in 0..UPDATE_TRIES {
        let turn = if part == Part::Main { api.services.turn(call.kind).await } else { None };
        let Some(entry) = api.store.get(&key).await? else {
            drop(turn);
            return create_by_update(api, call, source, part, options).await;
        };
        let old = object::document_as(call.kind, &entry);
        let (mut doc, owners) = source.next(api, call, &old, ownership::Endpoint { options, part })?;
        check_identity(call, &mut doc, &old, &entry)?;
        admission::check_update(api, call, &doc, &old).await?;
        let mut doc = prepare(api, call.kind, doc, &old, part).await?;
        ownership::settle(&mut doc, owners, &old);
        match store_update(api, call, &entry, &doc, options).await? {
            Stored::At(bytes, revision) => {
                if part == Part::Main {
                    call.warnings.extend(call.kind.ops.warnings(&doc, Some(&old)));
                }
                authz::after_write(api, call.kind).await?;
                return stored_answer(api, call, StatusCode::OK, &bytes, revision);
            }
            Stored::LostRace if source.is_conditional() => break,
            Stored::LostRace => {}
        }
    }
    Err(ApiError::conflict(call.kind, call.name()))
}

/// API-188: some kinds may be created by PUT.
async fn create_by_update(api: &Api, call: &mut Call, source: &Source, part: Part, options: &WriteOptions) -> Answer {
    if let (Source::Apply(config), Part::Main) = (source, part) {
        return create_by_apply(api, call, config, options).await;
    }
    let may_create = call.kind.ops.creates_on_update();
    let (Source::Replace(doc), true, Part::Main) = (source, may_create, part) else {
        return Err(ApiError::not_found(call.kind, call.name()));
    };
    let mut doc = doc.clone();
    check_name(&doc, call.name())?;
    let metadata = object::metadata_mut(&mut doc);
    metadata.insert("name".to_owned(), json!(call.name()));
    metadata.shift_remove("resourceVersion");
    admission::check_create(api, call, &doc).await?;
    let (bytes, revision) = create_object(api, call.kind, call.namespace(), doc, options).await?;
    authz::after_write(api, call.kind).await?;
    stored_answer(api, call, StatusCode::CREATED, &bytes, revision)
}

/// API-459: what is applied and not there is made.
async fn create_by_apply(api: &Api, call: &mut Call, config: &Config, options: &WriteOptions) -> Answer {
    authz::require(api, &call.caller, &Access::of(Verb::Create, &call.path, &call.query)).await?;
    let conflict = |detail| {
        Err(ApiError::Conflict { resource: ResourceName::of(call.kind), name: call.name().to_owned(), detail })
    };
    let uid = object::text(&config.document, &["metadata", "uid"]);
    if !uid.is_empty() {
        let detail = "uid mismatch: the provided object specified uid {}, and no existing object was found";
        return conflict(detail.replace("{}", uid));
    }
    if !object::text(&config.document, &["metadata", "resourceVersion"]).is_empty() {
        return Err(ApiError::conflict(call.kind, call.name()));
    }
    let endpoint = ownership::Endpoint { options, part: Part::Main };
    let (mut doc, owners) = config.apply(api, call, None, endpoint)?;
    check_name(&doc, call.name())?;
    object::metadata_mut(&mut doc).insert("name".to_owned(), json!(call.name()));
    place_in_namespace(&mut doc, call.namespace())?;
    ownership::set(&mut doc, owners);
    admission::check_create(api, call, &doc).await?;
    let (bytes, revision) = store_new(api, call.kind, call.namespace(), doc, options).await?;
    authz::after_write(api, call.kind).await?;
    stored_answer(api, call, StatusCode::CREATED, &bytes, revision)
}

pub(crate) fn check_name(doc: &Value, name: &str) -> Result<(), ApiError> {
    match object::name(doc) {
        "" => Ok(()),
        given if given == name => Ok(()),
        given => Err(ApiError::BadRequest(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

/// Name, namespace, uid and version must fit the stored object (API-123,
/// API-159, API-347, API-606).
fn check_identity(call: &Call, doc: &mut Value, old: &Value, entry: &Entry) -> Result<(), ApiError> {
    place_in_namespace(doc, call.namespace())?;
    check_name(doc, call.name())?;
    let conflict =
        |detail| ApiError::Conflict { resource: ResourceName::of(call.kind), name: call.name().to_owned(), detail };
    let (sent, stored) = (object::text(doc, &["metadata", "uid"]), object::text(old, &["metadata", "uid"]));
    if !sent.is_empty() && sent != stored {
        return Err(conflict(format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}",
            entry.key
        )));
    }
    let version = object::text(doc, &["metadata", "resourceVersion"]);
    // API-189.
    if version.is_empty() && !call.kind.ops.updates_unconditionally() {
        let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(ApiError::invalid(call.kind, call.name(), vec![error]));
    }
    if !version.is_empty() && version != "0" && version != entry.modified.to_string() {
        return Err(ApiError::conflict(call.kind, call.name()));
    }
    object::metadata_mut(doc).insert("name".to_owned(), json!(call.name()));
    Ok(())
}

/// The document as it will be stored: limited to what the part may
/// change, admitted, validated.
pub(crate) async fn prepare(
    api: &Api,
    kind: &'static Kind,
    mut doc: Value,
    old: &Value,
    part: Part,
) -> Result<Value, ApiError> {
    let gates = &api.config.gates;
    let mut errors = match part {
        Part::Main => {
            kind.ops.prepare_update(&mut doc, old, gates);
            admission::update(api, kind, &mut doc, old).await?;
            kind.ops.validate_update(&doc, old, gates)
        }
        Part::Status => {
            kind.ops.prepare_status_update(&mut doc, old);
            kind.ops.validate_status_update(&doc, old, gates)
        }
        Part::Of(part) => {
            admission::before_part(api, part, &mut doc, old).await?;
            kind.ops.prepare_part(part, &mut doc, old, gates);
            kind.ops.validate_part(part, &doc, old, gates)
        }
        Part::Finalize => {
            kind.ops.prepare_finalize(&mut doc, old, gates);
            kind.ops.validate_update(&doc, old, gates)
        }
    };
    if kind.kind == CERTIFICATE_REQUEST {
        errors.extend(certificates::finish_update(&mut doc, old, &api.timestamp()));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid(kind, object::name(old), errors));
    }
    if let Part::Of(part) = part {
        admission::after_part(api, kind, part, &doc).await?;
    }
    Ok(doc)
}

pub(crate) enum Stored {
    At(Bytes, Revision),
    LostRace,
}

/// Writes an update, or removes the object if this update was all that its
/// deletion waited for (API-185, TC-034).
pub(crate) async fn store_update(
    api: &Api,
    call: &Call,
    entry: &Entry,
    doc: &Value,
    options: &WriteOptions,
) -> Result<Stored, ApiError> {
    let bytes = object::encode(call.kind, doc);
    let is_done = is_deletion_complete(doc);
    // API-176, API-348: nothing changed, so nothing is written.
    if options.is_dry_run || (!is_done && object::is_same(&bytes, &entry.value)) {
        return Ok(Stored::At(bytes, entry.modified));
    }
    let op = || match is_done {
        true => Op::delete(entry.key.clone(), entry.modified),
        false => Op::update(entry.key.clone(), bytes.clone(), entry.modified),
    };
    for _ in 0..quota::TRIES {
        let mut ops = vec![op()];
        if !is_done && matches!(call.path.subresource.as_deref(), None | Some("resize")) {
            let old = object::document_as(call.kind, entry);
            ops.extend(quota::charge(api, call.kind, call.namespace(), doc, Some(&old)).await?);
        }
        match api.store.write(ops).await {
            Ok(revision) => return Ok(Stored::At(bytes, revision)),
            Err(WriteError::Conflict { index: 0, .. }) => return Ok(Stored::LostRace),
            // A quota has changed: there may still be room.
            Err(WriteError::Conflict { .. }) => {}
            // API-464: better nobody's than not stored.
            Err(WriteError::TooLarge { .. }) if !object::at(doc, &["metadata", "managedFields"]).is_null() => {
                let mut doc = doc.clone();
                ownership::set(&mut doc, Value::Null);
                return Box::pin(store_update(api, call, entry, &doc, options)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Stored::LostRace)
}

/// Marked as deleted, no grace left, nobody holds it.
fn is_deletion_complete(doc: &Value) -> bool {
    let grace = object::at(doc, &["metadata", "deletionGracePeriodSeconds"]).as_i64().unwrap_or(0);
    is_deleting(doc) && grace == 0 && !has_finalizers(doc)
}

/// In the metadata, or in the spec as only namespaces have them.
pub(crate) fn has_finalizers(doc: &Value) -> bool {
    let is_filled = |path: &[&str]| object::at(doc, path).as_array().is_some_and(|list| !list.is_empty());
    is_filled(&["metadata", "finalizers"]) || (doc["kind"] == "Namespace" && is_filled(&["spec", "finalizers"]))
}

fn stored_answer(api: &Api, call: &Call, code: StatusCode, bytes: &Bytes, revision: Revision) -> Answer {
    let bytes = &*object::seen(call.kind, bytes);
    match call.form()? {
        Form::Plain if revision.0 > 0 => {
            let mut out = Vec::with_capacity(bytes.len() + 20);
            object::write_json(&mut out, bytes, revision);
            Ok(answer::json_bytes(code, out))
        }
        form => {
            let mut doc = object::decode(bytes, revision);
            if revision.0 == 0 {
                object::metadata_mut(&mut doc).shift_remove("resourceVersion");
            }
            Ok(read::shaped(api, call, form, code, &doc))
        }
    }
}
