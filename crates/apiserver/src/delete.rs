//! delete and deletecollection: carries out what `deletion` decides.

use bytes::Bytes;
use http::{Response, StatusCode};
use objects::Kind;
use objects::kinds::priority_class;
use serde_json::{Value, json};
use store::{Entry, Op, ReadError, WriteError};

use crate::answer::{self, Answer, Body};
use crate::api::{Api, Call};
use crate::authz::Access;
use crate::body::DeleteOptions;
use crate::deletion::{self, Outcome, Propagation, Wish};
use crate::error::{ApiError, ResourceName};
use crate::target::Verb;
use crate::{admission, authz, bootstrap, flow, namespaces, object, read};

pub(crate) async fn delete(api: &Api, call: &mut Call, bytes: Bytes) -> Answer {
    let options = DeleteOptions::parse(&bytes, &call.headers, &call.query)?;
    // Upstream keeps a Job's pods unless it is told otherwise, which surprises people (TC-407).
    if options.propagation.is_none() && (call.kind.group, call.kind.kind) == ("batch", "Job") {
        call.warnings.push(JOB_ORPHANS.to_owned());
    }
    let unreadable = if options.ignores_read_error { remove_unreadable(api, call, &options).await? } else { None };
    let deleted = match unreadable {
        Some(deleted) => deleted,
        None => remove(api, call, call.name(), &options).await?,
    };
    deleted_answer(api, call, &deleted, &options)
}

/// What follows when an object is gone, however that came about.
pub(crate) async fn after_removal(
    api: &Api,
    kind: &'static Kind,
    namespace: Option<&str>,
    name: &str,
) -> Result<(), ApiError> {
    authz::after_write(api, kind).await?;
    if kind.group == flow::GROUP {
        return bootstrap::keep_flow(api).await;
    }
    // Nobody must lose the way to this server.
    if bootstrap::is_kept(kind, namespace, name) { bootstrap::keep(api).await } else { Ok(()) }
}

const JOB_ORPHANS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// API-711.
fn check_system(kind: &Kind, name: &str) -> Result<(), ApiError> {
    let is_system = priority_class::SYSTEM.iter().any(|(known, _)| *known == name);
    if kind.kind == "PriorityClass" && is_system {
        return Err(ApiError::denied(kind, name, "this is a system priority class and cannot be deleted"));
    }
    Ok(())
}

/// The last known state and whether the object is still there.
pub(crate) struct Deleted {
    pub(crate) doc: Value,
    exists: bool,
}

/// An object that can not be read goes as it is: whatever waits for its end is
/// not asked, so this takes a right of its own. None: it can be read.
async fn remove_unreadable(api: &Api, call: &Call, options: &DeleteOptions) -> Result<Option<Deleted>, ApiError> {
    let mut access = Access::of(Verb::Delete, &call.path, &call.query);
    access.verb = "unsafe-delete-ignore-read-errors".to_owned();
    authz::require(api, &call.caller, &access).await?;
    namespaces::check_protected(call.kind, call.name())?;
    check_system(call.kind, call.name())?;
    let key = call.key();
    let Err(ReadError::Sealed { modified, .. }) = api.store.get(&key).await else { return Ok(None) };
    if !options.is_dry_run {
        api.store.write(vec![Op::delete(key, modified)]).await?;
        after_removal(api, call.kind, call.namespace(), call.name()).await?;
    }
    let metadata = json!({"name": call.name(), "namespace": call.namespace()});
    let doc = json!({"kind": call.kind.kind, "apiVersion": call.kind.api_version(), "metadata": metadata});
    Ok(Some(Deleted { doc, exists: false }))
}

/// How often a race against other writers is run again.
const DELETE_TRIES: u32 = 16;

/// The one way by which objects are deleted: one by one, together or by
/// eviction. What is protected stays.
pub(crate) async fn remove(api: &Api, call: &Call, name: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
    let (kind, namespace) = (call.kind, call.namespace());
    namespaces::check_protected(kind, name)?;
    check_system(kind, name)?;
    let key = object::key(kind, namespace, name);
    for _ in 0..DELETE_TRIES {
        let entry = api.store.get(&key).await?.ok_or_else(|| ApiError::not_found(kind, name))?;
        let doc = object::document_as(kind, &entry);
        admission::judge_delete(api, call, &doc).await?;
        check_preconditions(kind, &doc, options)?;
        let wish = Wish { grace: options.grace_seconds, propagation: propagation(kind, &doc, options) };
        let outcome = deletion::decide(&doc, wish, api.clock.now().wall);
        if options.is_dry_run {
            return Ok(would_be(outcome, doc));
        }
        match carry_out(api, kind, &entry, doc, outcome).await {
            Err(Failure::LostRace) => {}
            Err(Failure::Refused(error)) => return Err(error),
            Ok(deleted) => {
                if !deleted.exists {
                    after_removal(api, kind, namespace, name).await?;
                }
                return Ok(deleted);
            }
        }
    }
    Err(ApiError::conflict(kind, name))
}

/// TC-407: what was asked for, else what is under way, else what is usual for
/// the kind. None where nothing is ever owned (API-191).
fn propagation(kind: &Kind, doc: &Value, options: &DeleteOptions) -> Option<Propagation> {
    if kind.kind == "Event" {
        return None;
    }
    let usual = if orphans_by_itself(kind) { Propagation::Orphan } else { Propagation::Background };
    Some(options.propagation.or_else(|| Propagation::of(doc)).unwrap_or(usual))
}

/// API-190.
fn orphans_by_itself(kind: &Kind) -> bool {
    matches!((kind.group, kind.kind), ("batch", "Job") | ("", "ReplicationController"))
}

/// TC-027.
fn would_be(outcome: Outcome, doc: Value) -> Deleted {
    match outcome {
        Outcome::Unchanged => Deleted { doc, exists: true },
        Outcome::Marked(doc) => Deleted { doc, exists: true },
        Outcome::Removed { last } => Deleted { doc: last.unwrap_or(doc), exists: false },
    }
}

enum Failure {
    LostRace,
    Refused(ApiError),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict { .. } => Self::LostRace,
            error => Self::Refused(error.into()),
        }
    }
}

async fn carry_out(
    api: &Api,
    kind: &'static Kind,
    entry: &Entry,
    doc: Value,
    outcome: Outcome,
) -> Result<Deleted, Failure> {
    let update = |doc: &Value| Op::update(entry.key.clone(), object::encode(kind, doc), entry.modified);
    match outcome {
        Outcome::Unchanged => Ok(Deleted { doc, exists: true }),
        Outcome::Marked(mut doc) => {
            let revision = api.store.write(vec![update(&doc)]).await?;
            object::metadata_mut(&mut doc).insert("resourceVersion".to_owned(), json!(revision.to_string()));
            Ok(Deleted { doc, exists: true })
        }
        Outcome::Removed { last: None } => {
            api.store.write(vec![Op::delete(entry.key.clone(), entry.modified)]).await?;
            Ok(Deleted { doc, exists: false })
        }
        // TC-020, LC-276: watchers see the mark, then the removal.
        Outcome::Removed { last: Some(mut doc) } => {
            let revision = api.store.write(vec![update(&doc)]).await?;
            object::metadata_mut(&mut doc).insert("resourceVersion".to_owned(), json!(revision.to_string()));
            match api.store.write(vec![Op::delete(entry.key.clone(), revision)]).await {
                // Someone else removed it in between: the same result.
                Ok(_) | Err(WriteError::Conflict { current: None, .. }) => Ok(Deleted { doc, exists: false }),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// TC-025, API-381.
pub(crate) fn check_preconditions(kind: &Kind, doc: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let conflict =
        |detail| ApiError::Conflict { resource: ResourceName::of(kind), name: object::name(doc).to_owned(), detail };
    let uid = object::text(doc, &["metadata", "uid"]);
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        )));
    }
    let version = object::text(doc, &["metadata", "resourceVersion"]);
    if let Some(wanted) = options.version.as_deref().filter(|wanted| *wanted != version) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        )));
    }
    Ok(())
}

/// API-151.
fn deleted_answer(
    api: &Api,
    call: &Call,
    deleted: &Deleted,
    options: &DeleteOptions,
) -> Result<Response<Body>, ApiError> {
    let code = if deleted.exists && options.orphans_explicitly_not { StatusCode::ACCEPTED } else { StatusCode::OK };
    if deleted.exists || answers_with_object(call.kind) {
        return Ok(read::shaped(api, call, call.form()?, code, &deleted.doc));
    }
    let mut details = json!({"name": call.name()});
    if !call.kind.group.is_empty() {
        details["group"] = json!(call.kind.group);
    }
    details["kind"] = json!(call.kind.plural);
    details["uid"] = deleted.doc["metadata"]["uid"].clone();
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    Ok(answer::json(code, &status))
}

fn answers_with_object(kind: &Kind) -> bool {
    matches!(
        kind.plural,
        "pods"
            | "services"
            | "serviceaccounts"
            | "namespaces"
            | "persistentvolumeclaims"
            | "persistentvolumes"
            | "resourcequotas"
            | "podtemplates"
    )
}

/// API-152, API-386: every selected object, the same rules for each. What may
/// not go stays, the rest goes; then the first refusal is the answer.
pub(crate) async fn delete_collection(api: &Api, call: &Call, bytes: Bytes) -> Answer {
    let options = DeleteOptions::parse(&bytes, &call.headers, &call.query)?;
    let page = read::select(api, call).await?;
    let mut items = Vec::with_capacity(page.entries.len());
    let mut refusal = None;
    for entry in &page.entries {
        let doc = object::document(entry);
        match remove(api, call, object::name(&doc), &options).await {
            Ok(mut deleted) => {
                // API-200: what they are says the list.
                if let Some(doc) = deleted.doc.as_object_mut() {
                    doc.shift_remove("kind");
                    doc.shift_remove("apiVersion");
                }
                items.push(deleted.doc);
            }
            Err(ApiError::NotFound { .. }) => {}
            Err(error @ ApiError::Forbidden { .. }) => refusal = refusal.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    let list = json!({
        "kind": call.kind.list_kind, "apiVersion": call.kind.api_version(),
        "metadata": {"resourceVersion": page.revision.to_string()}, "items": items,
    });
    Ok(answer::json(StatusCode::OK, &list))
}
