//! update and patch (API-337 to API-400): from a body to a stored object, in
//! the order of API-116 to API-118. How new objects are made is in `create`.

use bytes::Bytes;
use http::StatusCode;
use objects::{FieldError, Kind, Subresource, kinds};
use serde_json::{Value, json};
use store::{Entry, Op, Revision, WriteError};

use crate::admission::quota;
use crate::answer::{self, Answer};
use crate::api::{Api, Call};
use crate::body::{self, Patch, PatchKind, WriteOptions};
use crate::create::{self, New};
use crate::error::{ApiError, ResourceName};
use crate::negotiate::{self, Form};
use crate::ownership::{self, Config};
use crate::{admission, authz, certificates, delete, namespaces, object, read};

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
pub(crate) async fn post(api: &Api, call: &mut Call, bytes: Bytes) -> Answer {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?.by(&call.headers);
    negotiate::require_json(&call.headers)?;
    let doc = body::object(call.kind, &bytes, &options, &mut call.warnings)?;
    let (bytes, revision) = create::create(api, call, New::Sent(doc), &options).await?;
    stored_answer(api, call, StatusCode::CREATED, &bytes, revision)
}

pub(crate) fn is_deleting(doc: &Value) -> bool {
    !object::at(doc, &["metadata", "deletionTimestamp"]).is_null()
}

/// API-157: an empty namespace is the request's; another one is an error, but
/// for what has none: manifests that say one anyway are common.
pub(crate) fn place_in_namespace(doc: &mut Value, namespace: Option<&str>) -> Result<(), ApiError> {
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
    // Who applies says so itself, and never by its user agent (API-078).
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
    let next = |call: &mut Call, old: &Value, entry: &Entry| {
        let (mut doc, owners) = source.next(api, call, old, ownership::Endpoint { options, part })?;
        check_identity(call, &mut doc, old, entry)?;
        Ok(Next { doc, owners, is_conditional: source.is_conditional() })
    };
    let mut tries = UPDATE_TRIES;
    loop {
        if let Some((bytes, revision)) = change(api, call, part, options, &next).await? {
            return stored_answer(api, call, StatusCode::OK, &bytes, revision);
        }
        tries -= 1;
        match create_by_update(api, call, source, part, options).await {
            // Somebody made it meanwhile: what was asked for is a change again (API-459).
            Err(ApiError::AlreadyExists { .. }) if tries > 0 => {}
            answer => return answer,
        }
    }
}

/// What shall become of an object.
pub(crate) struct Next {
    pub(crate) doc: Value,
    /// Who owns its fields.
    pub(crate) owners: Value,
    /// Whether all this is for one version only.
    pub(crate) is_conditional: bool,
}

/// The one way by which callers change objects: all of them or a part, by
/// whatever source. None if there is no such object.
pub(crate) async fn change(
    api: &Api,
    call: &mut Call,
    part: Part,
    options: &WriteOptions,
    next: impl Fn(&mut Call, &Value, &Entry) -> Result<Next, ApiError>,
) -> Result<Option<(Bytes, Revision)>, ApiError> {
    let key = call.key();
    for _ in 0..UPDATE_TRIES {
        let turn = if part == Part::Main { api.services.turn(call.kind).await } else { None };
        let Some(entry) = api.store.get(&key).await? else { return Ok(None) };
        let old = object::document_as(call.kind, &entry);
        let Next { doc, owners, is_conditional } = next(call, &old, &entry)?;
        admission::restrict_update(api, call, &doc, &old).await?;
        let mut doc = prepare(api, call.kind, doc, &old, part).await?;
        admission::judge_update(api, call, &doc, &old).await?;
        ownership::settle(&mut doc, owners, &old);
        match store_update(api, call, (&entry, &old), &doc, options).await? {
            Stored::At { bytes, revision, is_gone } => {
                drop(turn);
                if part == Part::Main && call.path.subresource.is_none() {
                    call.warnings.extend(call.kind.ops.warnings(&doc, Some(&old)));
                }
                if !options.is_dry_run {
                    after_change(api, call, is_gone).await?;
                }
                return Ok(Some((bytes, revision)));
            }
            Stored::LostRace if is_conditional => break,
            Stored::LostRace => {}
        }
    }
    Err(ApiError::conflict(call.kind, call.name()))
}

async fn after_change(api: &Api, call: &Call, is_gone: bool) -> Result<(), ApiError> {
    match is_gone {
        true => delete::after_removal(api, call.kind, call.namespace(), call.name()).await,
        false => authz::after_write(api, call.kind).await,
    }
}

/// API-188, API-459: some kinds may be created by PUT, and what is applied and
/// not there is made.
async fn create_by_update(api: &Api, call: &mut Call, source: &Source, part: Part, options: &WriteOptions) -> Answer {
    let is_creating = call.kind.ops.creates_on_update();
    let new = match (source, part) {
        (Source::Replace(doc), Part::Main) if is_creating => {
            check_absent(call, doc, false)?;
            let mut doc = doc.clone();
            // Zero is no version: it asks for nothing.
            object::metadata_mut(&mut doc).shift_remove("resourceVersion");
            New::Sent(doc)
        }
        (Source::Apply(config), Part::Main) => {
            check_absent(call, &config.document, true)?;
            let endpoint = ownership::Endpoint { options, part: Part::Main };
            let (mut doc, owners) = config.apply(api, call, None, endpoint)?;
            check_name(&doc, call.name())?;
            object::metadata_mut(&mut doc).insert("name".to_owned(), json!(call.name()));
            New::Applied(doc, owners)
        }
        _ => return Err(ApiError::not_found(call.kind, call.name())),
    };
    let (bytes, revision) = create::create(api, call, new, options).await?;
    stored_answer(api, call, StatusCode::CREATED, &bytes, revision)
}

/// API-347, API-459: whoever names a uid or a version means an object that is
/// there.
fn check_absent(call: &Call, doc: &Value, is_applied: bool) -> Result<(), ApiError> {
    let uid = object::text(doc, &["metadata", "uid"]);
    let conflict =
        |detail| ApiError::Conflict { resource: ResourceName::of(call.kind), name: call.name().to_owned(), detail };
    match object::text(doc, &["metadata", "resourceVersion"]) {
        _ if !uid.is_empty() && is_applied => Err(conflict(format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        ))),
        _ if !uid.is_empty() => Err(conflict(uid_differs(&call.key(), uid, ""))),
        "" => Ok(()),
        "0" if !is_applied => Ok(()),
        _ => Err(ApiError::conflict(call.kind, call.name())),
    }
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
        return Err(conflict(uid_differs(&entry.key, sent, stored)));
    }
    let version = object::text(doc, &["metadata", "resourceVersion"]);
    // Of these kinds nobody may overwrite what it did not see (API-189).
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

fn uid_differs(key: &str, sent: &str, stored: &str) -> String {
    format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}"
    )
}

/// The document as it will be stored: limited to what the part may
/// change, admitted, validated.
async fn prepare(api: &Api, kind: &'static Kind, mut doc: Value, old: &Value, part: Part) -> Result<Value, ApiError> {
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
    if kind.kind == kinds::certificate_request::KIND.kind {
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

enum Stored {
    At { bytes: Bytes, revision: Revision, is_gone: bool },
    LostRace,
}

/// Writes an update, or removes the object if this update was all that its
/// deletion waited for (API-185, TC-034).
async fn store_update(
    api: &Api,
    call: &Call,
    (entry, old): (&Entry, &Value),
    doc: &Value,
    options: &WriteOptions,
) -> Result<Stored, ApiError> {
    let bytes = object::encode(call.kind, doc);
    let is_done = is_deletion_complete(doc);
    // API-176, API-348: nothing changed, so nothing is written.
    if !is_done && (bytes == entry.value || object::is_same_document(doc, old)) {
        return Ok(Stored::At { bytes, revision: entry.modified, is_gone: false });
    }
    let is_charged = !is_done && matches!(call.path.subresource.as_deref(), None | Some("resize"));
    if options.is_dry_run {
        if is_charged {
            quota::charge(api, call.kind, call.namespace(), doc, Some(old)).await?;
        }
        return Ok(Stored::At { bytes, revision: entry.modified, is_gone: false });
    }
    if is_done && call.kind.kind == "Namespace" {
        namespaces::check_readable(api, call.name()).await?;
    }
    let op = || match is_done {
        true => Op::delete(entry.key.clone(), entry.modified),
        false => Op::update(entry.key.clone(), bytes.clone(), entry.modified),
    };
    for _ in 0..quota::TRIES {
        let mut ops = vec![op()];
        if is_charged {
            ops.extend(quota::charge(api, call.kind, call.namespace(), doc, Some(old)).await?);
        }
        match api.store.write(ops).await {
            Ok(revision) => return Ok(Stored::At { bytes, revision, is_gone: is_done }),
            Err(WriteError::Conflict { index: 0, .. }) => return Ok(Stored::LostRace),
            // A quota has changed: there may still be room.
            Err(WriteError::Conflict { .. }) => {}
            // API-464: better nobody's than not stored.
            Err(WriteError::TooLarge { .. }) if !object::at(doc, &["metadata", "managedFields"]).is_null() => {
                let mut doc = doc.clone();
                ownership::set(&mut doc, Value::Null);
                return Box::pin(store_update(api, call, (entry, old), &doc, options)).await;
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
