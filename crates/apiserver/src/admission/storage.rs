//! Claims and volumes are protected while in use, and a claim without a class
//! gets the default one (API-720).

use objects::kinds::{self, storage_class};
use serde_json::{Value, json};
use store::ListRequest;

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

pub(super) fn protect(doc: &mut Value, finalizer: &str) {
    let list = object::metadata_mut(doc).entry("finalizers").or_insert(json!([]));
    if let Some(list) = list.as_array_mut().filter(|list| !list.iter().any(|known| known == finalizer)) {
        list.push(json!(finalizer));
    }
}

/// An empty class is a choice, too: none.
pub(super) async fn default_class(api: &Api, doc: &mut Value) -> Result<(), ApiError> {
    if !object::at(doc, &["spec", "storageClassName"]).is_null() {
        return Ok(());
    }
    let kind = kinds::find("storage.k8s.io", "v1", "storageclasses").expect("the kinds table has storage classes");
    let listing = api.store.list(ListRequest::all(&object::prefix(kind, None))).await?;
    let classes = listing.entries.iter().map(|entry| object::document(entry)).filter(storage_class::is_default);
    // Of several the newest, then the first by name.
    let age = |class: &Value| object::text(class, &["metadata", "creationTimestamp"]).to_owned();
    let chosen = classes.reduce(|best, next| if age(&next) > age(&best) { next } else { best });
    if let Some(class) = chosen {
        object::object_mut(doc, "spec").insert("storageClassName".to_owned(), json!(object::name(&class)));
    }
    Ok(())
}
