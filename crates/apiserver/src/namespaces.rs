//! The life of namespaces as far as the API decides it (API-192 to API-196, API-197).
//!
//! Deleting one deletes its content, pods first (traps W15); the last removal
//! inside takes the namespace with it. All of it happens inside requests: no
//! task, no queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use objects::{Kind, kinds};
use serde_json::{Value, json};
use store::{Entry, ListRequest, Op, WriteError};

use crate::api::Api;
use crate::body::DeleteOptions;
use crate::deletion::Propagation;
use crate::error::{ApiError, Cause, ResourceName};
use crate::{delete, object};

/// API-195.
pub(crate) const INITIAL: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

pub(crate) fn kind() -> &'static Kind {
    kinds::find("", "v1", "namespaces").expect("the kinds table has namespaces")
}

/// API-194.
pub(crate) fn check_protected(kind: &Kind, name: &str) -> Result<(), ApiError> {
    if kind.plural == "namespaces" && matches!(name, "default" | "kube-system" | "kube-public") {
        return Err(ApiError::denied(kind, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Goes with the write that creates something: it fails if the namespace has
/// changed meanwhile. So nothing gets in once the mark of deletion is set, and
/// what was found empty after that stays empty.
pub(crate) async fn guard(api: &Api, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<Op>, ApiError> {
    let Some(namespace) = namespace else { return Ok(None) };
    let entry = check_open(api, kind, namespace, name).await?;
    Ok(Some(Op::guard(Arc::clone(&entry.key), entry.modified)))
}

/// API-704: nothing is created in a missing or terminating namespace.
pub(crate) async fn check_open(api: &Api, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Entry>, ApiError> {
    let entry = api.store.get(&object::key(self::kind(), None, namespace)).await?;
    let entry = entry.ok_or_else(|| ApiError::not_found(self::kind(), namespace))?;
    if !object::is_deleting(self::kind(), &entry) {
        return Ok(entry);
    }
    Err(ApiError::Forbidden {
        resource: Some(ResourceName::of(kind)),
        name: name.to_owned(),
        detail: format!("unable to create new content in namespace {namespace} because it is being terminated"),
        cause: Some(Box::new(Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace",
        })),
    })
}

/// Deletes everything inside, then the namespace if nothing is left.
pub(crate) async fn drain(api: &Api, namespace: &str) -> Result<(), ApiError> {
    let pods_first = |kind: &&&Kind| u8::from(kind.plural != "pods");
    let mut inside: Vec<_> = kinds::ALL.iter().filter(|kind| kind.is_namespaced()).collect();
    inside.sort_by_key(pods_first);
    // Everything goes: what is owned by something needs nobody to free it.
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    for kind in inside {
        let listing = api.store.list(ListRequest::all(&object::prefix(kind, Some(namespace)))).await?;
        for entry in listing.entries {
            let name = object::document(&entry)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match delete::delete_object(api, kind, Some(namespace), &name, &options).await {
                Ok(_) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    finish(api, namespace).await
}

/// Something inside was removed: was it the last thing of a dying namespace?
pub(crate) async fn after_removal(api: &Api, namespace: Option<&str>) -> Result<(), ApiError> {
    match namespace {
        Some(namespace) => finish(api, namespace).await,
        None => Ok(()),
    }
}

/// API-193: removes a terminating namespace without content and finalizers,
/// or says what it waits for (API-197).
pub(crate) async fn finish(api: &Api, namespace: &str) -> Result<(), ApiError> {
    let key = object::key(kind(), None, namespace);
    loop {
        let Some(entry) = api.store.get(&key).await? else { return Ok(()) };
        if !object::is_deleting(kind(), &entry) {
            return Ok(());
        }
        let doc = object::document(&entry);
        let rest = Rest::of(api, namespace).await?;
        let next = match rest.is_nothing() {
            false => Some(doc.clone()),
            true if is_held(&doc) => Some(without_own_finalizer(doc.clone())),
            true => None,
        };
        let op = match next {
            Some(mut next) => {
                rest.tell(&mut next, &api.timestamp());
                // Counts alone are not worth a write each.
                if without_digits(&next["status"]) == without_digits(&doc["status"]) && next["spec"] == doc["spec"] {
                    return Ok(());
                }
                Op::update(key.clone(), object::encode(kind(), &next), entry.modified)
            }
            None => Op::delete(key.clone(), entry.modified),
        };
        match api.store.write(vec![op]).await {
            Ok(_) => return Ok(()),
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn without_digits(value: &Value) -> String {
    value.to_string().replace(|letter: char| letter.is_ascii_digit(), "")
}

/// By finalizers that are not ours.
fn is_held(doc: &Value) -> bool {
    let others = |path: &[&str]| {
        let list = object::at(doc, path).as_array();
        list.is_some_and(|list| list.iter().any(|name| name != "kubernetes"))
    };
    others(&["metadata", "finalizers"]) || others(&["spec", "finalizers"])
}

fn without_own_finalizer(mut doc: Value) -> Value {
    let finalizers = doc["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let rest: Vec<Value> = finalizers.into_iter().filter(|name| name != "kubernetes").collect();
    doc["spec"] = if rest.is_empty() { json!({}) } else { json!({"finalizers": rest}) };
    doc
}

/// What is still inside: how many of each resource, how many held by each
/// finalizer.
#[derive(Default)]
struct Rest {
    resources: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

/// API-197: types, and reason and message of those that do not hold. The first
/// three never do: every kind is known, and what can not be deleted fails the
/// request itself.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// So many of each kind are asked who holds them: every removal inside asks
/// again.
const LOOKED_AT_MAX: usize = 16;

impl Rest {
    async fn of(api: &Api, namespace: &str) -> Result<Self, ApiError> {
        let mut rest = Self::default();
        for kind in kinds::ALL.iter().filter(|kind| kind.is_namespaced() && kind.ops.view().is_none()) {
            let prefix = object::prefix(kind, Some(namespace));
            let request = ListRequest { limit: Some(LOOKED_AT_MAX), ..ListRequest::all(&prefix) };
            let listing = api.store.list(request).await?;
            if !listing.entries.is_empty() {
                let count = listing.entries.len() + listing.remaining;
                rest.resources.insert(format!("{}.{}", kind.plural, kind.group), count);
            }
            for entry in &listing.entries {
                let doc = object::document(entry);
                let names = object::at(&doc, &["metadata", "finalizers"]).as_array();
                for name in names.into_iter().flatten().filter_map(Value::as_str) {
                    *rest.finalizers.entry(name.to_owned()).or_default() += 1;
                }
            }
        }
        Ok(rest)
    }

    fn is_nothing(&self) -> bool {
        self.resources.is_empty()
    }

    fn tell(&self, doc: &mut Value, now: &str) {
        let listed = |map: &BTreeMap<String, usize>, verb: &str| {
            let each: Vec<String> =
                map.iter().map(|(name, count)| format!("{name} {verb} {count} resource instances")).collect();
            each.join(", ")
        };
        let resources = (!self.is_nothing()).then(|| {
            ("SomeResourcesRemain", format!("Some resources are remaining: {}", listed(&self.resources, "has")))
        });
        let finalizers = (!self.finalizers.is_empty()).then(|| {
            let names = listed(&self.finalizers, "in");
            ("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {names}"))
        });
        let conditions = object::object_mut(doc, "status").entry("conditions").or_insert(json!([]));
        let Some(conditions) = conditions.as_array_mut() else { return };
        for ((kind, reason, message), found) in CONDITIONS.into_iter().zip([None, None, None, resources, finalizers]) {
            let status = if found.is_some() { "True" } else { "False" };
            let (reason, message) = found.unwrap_or_else(|| (reason, message.to_owned()));
            let old = conditions.iter().position(|condition| condition["type"] == kind);
            let since = old.map(|at| conditions.remove(at)).filter(|old| old["status"] == status);
            let since = since.map_or_else(|| json!(now), |old| old["lastTransitionTime"].clone());
            conditions.push(json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}));
        }
    }
}
