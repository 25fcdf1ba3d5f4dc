//! Object metadata: what it must look like and what may never change.

use serde_json::Value;

use crate::doc::{self, as_object, keep, object};
use crate::errors::FieldError;
use crate::kinds::Scope;
use crate::names::NameFormat;

/// API-157: clears what only the server may set; uid, times and the request
/// namespace are the server's to add.
pub fn prepare_create(doc: &mut Value, generation: bool) {
    let meta = object(doc, "metadata");
    for key in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"]
    {
        meta.shift_remove(key);
    }
    if generation {
        meta.insert("generation".to_owned(), 1.into());
    }
}

/// API-158: what the server owns comes from the stored object.
pub fn prepare_update(doc: &mut Value, old: &Value, generation: bool) {
    let old_meta = old.get("metadata").unwrap_or(&Value::Null);
    let changed = generation && spec_changed(doc, old);
    let meta = object(doc, "metadata");
    meta.shift_remove("selfLink");
    for key in ["creationTimestamp", "deletionTimestamp", "generation"] {
        keep(meta, old_meta, key);
    }
    for key in ["uid", "namespace", "name", "deletionGracePeriodSeconds"] {
        if meta.get(key).is_none_or(|value| value.is_null() || value == "" || value == 0) {
            keep(meta, old_meta, key);
        }
    }
    if changed {
        let generation = old_meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
        meta.insert("generation".to_owned(), (generation + 1).into());
    }
}

fn spec_changed(doc: &Value, old: &Value) -> bool {
    doc.get("spec") != old.get("spec")
}

/// Everything but status, resourceVersion (the precondition) and managedFields
/// comes from the stored object.
pub fn prepare_status_update(doc: &mut Value, old: &Value) {
    let status = doc.get("status").cloned();
    let sent = doc.get("metadata").cloned().unwrap_or(Value::Null);
    *doc = old.clone();
    match status {
        Some(status) => {
            as_object(doc).insert("status".to_owned(), status);
        }
        None => {
            as_object(doc).shift_remove("status");
        }
    }
    let meta = object(doc, "metadata");
    for key in ["resourceVersion", "managedFields", "uid"] {
        if let Some(value) = sent.get(key).filter(|value| !value.is_null() && *value != "") {
            meta.insert(key.to_owned(), value.clone());
        }
    }
}

pub fn validate_create(doc: &Value, scope: Scope, format: NameFormat) -> Vec<FieldError> {
    let _ = (doc, scope, format);
    Vec::new()
}

pub fn validate_update(doc: &Value, old: &Value, scope: Scope, format: NameFormat) -> Vec<FieldError> {
    let _ = old;
    validate_create(doc, scope, format)
}

/// `metadata.name` and, for namespaced kinds, `metadata.namespace` (API-217).
pub fn fields(doc: &Value, scope: Scope) -> Vec<(&'static str, String)> {
    let mut fields = vec![("metadata.name", doc::text(doc, "metadata.name").to_owned())];
    if scope == Scope::Namespaced {
        fields.push(("metadata.namespace", doc::text(doc, "metadata.namespace").to_owned()));
    }
    fields
}
