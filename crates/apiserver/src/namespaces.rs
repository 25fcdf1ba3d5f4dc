//! The life of namespaces as far as the API decides it (API-192 to API-196).
//!
//! Deleting one deletes its content, pods first (traps W15); the last removal
//! inside takes the namespace with it. All of it happens inside requests: no
//! task, no queue.

use objects::{Kind, kinds};
use serde_json::{Value, json};
use store::{ListRequest, Op, WriteError};

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

/// API-704: nothing is created in a missing or terminating namespace.
pub(crate) async fn check_open(api: &Api, kind: &Kind, namespace: &str, name: &str) -> Result<(), ApiError> {
    let entry = api.store.get(&object::key(self::kind(), None, namespace)).await?;
    let entry = entry.ok_or_else(|| ApiError::not_found(self::kind(), namespace))?;
    if !object::is_deleting(self::kind(), &entry) {
        return Ok(());
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

/// API-193: removes a terminating namespace without content and finalizers.
pub(crate) async fn finish(api: &Api, namespace: &str) -> Result<(), ApiError> {
    let key = object::key(kind(), None, namespace);
    loop {
        let Some(entry) = api.store.get(&key).await? else { return Ok(()) };
        if !object::is_deleting(kind(), &entry) || has_content(api, namespace).await? {
            return Ok(());
        }
        let doc = object::document(&entry);
        let op = if is_held(&doc) {
            let bytes = object::encode(kind(), &without_own_finalizer(doc));
            if bytes == entry.value {
                return Ok(());
            }
            Op::update(key.clone(), bytes, entry.modified)
        } else {
            Op::delete(key.clone(), entry.modified)
        };
        match api.store.write(vec![op]).await {
            Ok(_) => return Ok(()),
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
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

async fn has_content(api: &Api, namespace: &str) -> Result<bool, ApiError> {
    for kind in kinds::ALL.iter().filter(|kind| kind.is_namespaced()) {
        let prefix = object::prefix(kind, Some(namespace));
        let request = ListRequest { limit: Some(1), ..ListRequest::all(&prefix) };
        if !api.store.list(request).await?.entries.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
