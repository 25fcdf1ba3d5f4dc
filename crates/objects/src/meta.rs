//! Object metadata: what the server owns, what it must look like and what may
//! never change.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::doc::{self, as_object, items, keep, object, text};
use crate::errors::FieldError;
use crate::kinds::Scope;
use crate::names::{self, NameFormat};

/// API-181.
const ANNOTATIONS_MAX: usize = 262_144;

/// API-156, API-157: clears what only the server may set; uid, times and the request
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
    drop_duplicate_owners(doc);
}

/// API-158: what the server owns comes from the stored object. API-178: a
/// changed spec raises the generation.
pub fn prepare_update(doc: &mut Value, old: &Value, generation: bool) {
    let old_meta = doc::at(old, "metadata");
    let changed = generation && doc.get("spec") != old.get("spec");
    let meta = object(doc, "metadata");
    meta.shift_remove("selfLink");
    for key in ["creationTimestamp", "generation"] {
        keep(meta, old_meta, key);
    }
    // Nobody takes it back, and nobody but the server sets it.
    if old_meta.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        keep(meta, old_meta, "deletionTimestamp");
    }
    for key in ["uid", "namespace", "name", "deletionGracePeriodSeconds"] {
        if meta.get(key).is_none_or(|value| value.is_null() || value == "") {
            keep(meta, old_meta, key);
        }
    }
    if changed {
        let generation = old_meta.get("generation").and_then(Value::as_i64).unwrap_or(0);
        meta.insert("generation".to_owned(), generation.saturating_add(1).into());
    }
    drop_duplicate_owners(doc);
}

/// API-349 to API-353: status and metadata come from `doc`, everything else
/// from the stored object. Owners and what the server owns stay, too.
pub fn prepare_status_update(doc: &mut Value, old: &Value) {
    let sent = std::mem::replace(doc, old.clone());
    for part in ["status", "metadata"] {
        keep(as_object(doc), &sent, part);
    }
    prepare_update(doc, old, false);
    keep(object(doc, "metadata"), doc::at(old, "metadata"), "ownerReferences");
}

/// API-182: an owner named twice is stored once.
fn drop_duplicate_owners(doc: &mut Value) {
    if let Some(owners) = doc.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) {
        let mut seen = HashSet::new();
        owners.retain(|owner| seen.insert(owner.to_string()));
    }
}

/// Checks of a new object's metadata.
pub fn validate_create(doc: &Value, scope: Scope, format: NameFormat) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let prefix = text(doc, "metadata.generateName");
    if !prefix.is_empty() {
        invalid_each(&mut errors, "metadata.generateName", prefix, format.check(prefix, true));
    }
    match text(doc, "metadata.name") {
        // API-154
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => invalid_each(&mut errors, "metadata.name", name, format.check(name, false)),
    }
    errors.extend(namespace(doc, scope));
    if doc::at(doc, "metadata.generation").as_i64().is_some_and(|generation| generation < 0) {
        let value = doc::at(doc, "metadata.generation").clone();
        errors.push(FieldError::invalid("metadata.generation", value, "must be greater than or equal to 0"));
    }
    errors.extend(common(doc));
    errors
}

/// Checks of a changed object's metadata against the stored one.
pub fn validate_update(doc: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(new_finalizers(doc, old));
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let path = format!("metadata.{field}");
        errors.extend(immutable(&path, doc::at(doc, &path), doc::at(old, &path)));
    }
    errors.extend(common(doc));
    errors
}

/// API-158: `field is immutable` unless both values are the same.
pub(crate) fn immutable(path: &str, new: &Value, old: &Value) -> Option<FieldError> {
    (new != old).then(|| FieldError::invalid(path, new.clone(), "field is immutable"))
}

fn namespace(doc: &Value, scope: Scope) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (scope, text(doc, "metadata.namespace")) {
        (Scope::Namespaced, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (Scope::Namespaced, name) => {
            invalid_each(&mut errors, "metadata.namespace", name, NameFormat::Label.check(name, false));
        }
        (Scope::Cluster, "") => {}
        (Scope::Cluster, _) => errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type")),
    }
    errors
}

fn common(doc: &Value) -> Vec<FieldError> {
    let mut errors = labels(doc::at(doc, "metadata.labels"), "metadata.labels");
    errors.extend(annotations(doc::at(doc, "metadata.annotations"), "metadata.annotations"));
    errors.extend(owners(items(doc, "metadata.ownerReferences")));
    errors.extend(finalizers(items(doc, "metadata.finalizers")));
    errors
}

/// API-181: keys are qualified names, values label values.
pub(crate) fn labels(labels: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        invalid_each(&mut errors, path, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        invalid_each(&mut errors, path, value, names::label_value(value));
    }
    errors
}

/// A label selector, where there is one.
pub(crate) fn label_selector(selector: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = crate::errors::Errors(Vec::new());
    crate::selectors::typed::check(&mut errors, path, selector);
    errors.0
}

/// API-181: keys are qualified names in any case; all of it has a limit.
pub(crate) fn annotations(annotations: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        invalid_each(&mut errors, path, key, names::qualified_name(&key.to_lowercase()));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX));
    }
    errors
}

/// API-182.
fn owners(owners: &[Value]) -> Vec<FieldError> {
    const PATH: &str = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let (mut controller, mut is_told) = (None::<&str>, false);
    for owner in owners {
        let api_version = text(owner, "apiVersion");
        if api_version.rsplit('/').next().is_none_or(str::is_empty) {
            errors.push(FieldError::invalid(format!("{PATH}.apiVersion"), api_version, "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                errors.push(FieldError::invalid(format!("{PATH}.{field}"), "", "must not be empty"));
            }
        }
        if api_version == "v1" && text(owner, "kind") == "Event" {
            errors.push(FieldError::invalid(PATH, owner.clone(), "/v1, Kind=Event is disallowed from being an owner"));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = text(owner, "name");
            match controller {
                // Shows all of them, and so is said once.
                Some(first) if !is_told => {
                    is_told = true;
                    errors.push(FieldError::invalid(
                        PATH,
                        json!(owners),
                        format!(
                            "Only one reference can have Controller set to true. Found \"true\" in references for \
                             {first} and {name}"
                        ),
                    ));
                }
                Some(_) => {}
                None => controller = Some(name),
            }
        }
    }
    errors
}

/// API-183.
fn finalizers(finalizers: &[Value]) -> Vec<FieldError> {
    const PATH: &str = "metadata.finalizers";
    let mut errors = Vec::new();
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        errors.extend(finalizer_name(finalizer, PATH));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.push(FieldError::invalid(
            PATH,
            json!(finalizers),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
    errors
}

/// API-183: a qualified name, and one with a prefix unless it is a standard one.
pub(crate) fn finalizer_name(name: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invalid_each(&mut errors, path, name, names::qualified_name(name));
    if errors.is_empty() && !name.contains('/') && !["orphan", "foregroundDeletion", "kubernetes"].contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(FieldError::invalid(path, name, detail));
    }
    errors
}

/// API-184: a dying object gets no new finalizers.
fn new_finalizers(doc: &Value, old: &Value) -> Option<FieldError> {
    if doc::at(old, "metadata.deletionTimestamp").is_null() {
        return None;
    }
    let known: HashSet<Option<&str>> = items(old, "metadata.finalizers").iter().map(Value::as_str).collect();
    let mut added: Vec<String> = items(doc, "metadata.finalizers")
        .iter()
        .filter(|finalizer| !known.contains(&finalizer.as_str()))
        .map(Value::to_string)
        .collect();
    added.sort();
    (!added.is_empty()).then(|| {
        FieldError::forbidden(
            "metadata.finalizers",
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            ),
        )
    })
}

/// One `Invalid value` per problem.
pub(crate) fn invalid_each(errors: &mut Vec<FieldError>, path: &str, value: &str, problems: Vec<String>) {
    errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path, value, problem)));
}

/// `metadata.name` and, for namespaced kinds, `metadata.namespace` (API-217).
pub fn fields(doc: &Value, scope: Scope) -> Vec<(&'static str, String)> {
    let mut fields = vec![("metadata.name", text(doc, "metadata.name").to_owned())];
    if scope == Scope::Namespaced {
        fields.push(("metadata.namespace", text(doc, "metadata.namespace").to_owned()));
    }
    fields
}

#[cfg(test)]
mod tests;
