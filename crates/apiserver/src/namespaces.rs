//! The life of namespaces as far as the API decides it (API-192 to API-196).
//!
//! Deleting one marks it; from then on nothing is created inside. A controller
//! empties it (traps W15) and takes its finalizer away, and the write that
//! leaves it without any removes it.

use std::sync::Arc;

use objects::{Kind, kinds};
use store::{Entry, ListRequest, Op};

use crate::api::Api;
use crate::error::{ApiError, Cause, ResourceName};
use crate::object;

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

/// Before one is removed. What can not be read is not in any list, so that
/// whoever empties the namespace does not see it; it is there all the same.
pub(crate) async fn check_readable(api: &Api, namespace: &str) -> Result<(), ApiError> {
    for kind in kinds::ALL.iter().filter(|kind| kind.is_namespaced() && kind.ops.is_stored()) {
        let prefix = object::prefix(kind, Some(namespace));
        let listing = api.store.list(ListRequest { limit: Some(0), ..ListRequest::all(&prefix) }).await?;
        if listing.unreadable > 0 {
            return Err(ApiError::Internal(format!(
                "namespace {namespace} is not empty: {} of its {} can not be read",
                listing.unreadable, kind.plural
            )));
        }
    }
    Ok(())
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
