//! Claims and volumes are protected while in use, and a claim without a class
//! gets the default one (API-720).

use objects::kinds::{self, storage_class};
use objects::{Kind, Quantity};
use serde_json::{Value, json};

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
    let classes = super::all(api, kind, None).await?.into_iter().filter(storage_class::is_default);
    // Of several the newest, then the first by name.
    let age = |class: &Value| object::text(class, &["metadata", "creationTimestamp"]).to_owned();
    let chosen = classes.reduce(|best, next| if age(&next) > age(&best) { next } else { best });
    if let Some(class) = chosen {
        object::object_mut(doc, "spec").insert("storageClassName".to_owned(), json!(object::name(&class)));
    }
    Ok(())
}

/// A claim grows only where its class lets it.
pub(super) async fn check_growth(api: &Api, kind: &Kind, doc: &Value, old: &Value) -> Result<(), ApiError> {
    let size = |doc: &Value| {
        let text = object::text(doc, &["spec", "resources", "requests", "storage"]);
        Quantity::parse(text).unwrap_or_default()
    };
    if old["status"]["phase"] != "Bound" || size(doc) <= size(old) {
        return Ok(());
    }
    let class = object::text(old, &["spec", "storageClassName"]);
    let classes = kinds::find("storage.k8s.io", "v1", "storageclasses").expect("the kinds table has storage classes");
    let entry = if class.is_empty() { None } else { api.store.get(&object::key(classes, None, class)).await? };
    if entry.is_some_and(|entry| object::document(&entry)["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    let detail = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(ApiError::denied(kind, object::name(doc), detail))
}
