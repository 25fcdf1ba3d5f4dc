//! Pod templates: the part of a pod that other kinds carry. The rules are those
//! of pods, below the path of the template.

use serde_json::{Value, json};

use super::features::Features;
use super::{app_armor, defaults, validate, warnings};
use crate::doc::{as_object, at, items, object, set_default};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::meta;

/// The template at `path` of a document for change; made if absent.
fn within<'a>(doc: &'a mut Value, path: &str) -> &'a mut Value {
    let mut value = doc;
    for key in path.split('.') {
        value = as_object(value).entry(key).or_insert(Value::Null);
    }
    value
}

/// Fills the canonical template at `path`.
pub(crate) fn default(doc: &mut Value, path: &str) {
    let template = within(doc, path);
    set_default(as_object(template), "metadata", json!({}));
    object(template, "spec");
    defaults::template(template);
}

/// Drops fields of features that are off, unless the stored object has them.
pub(crate) fn drop_unavailable(doc: &mut Value, old: &Value, path: &str, gates: &Gates) {
    if !at(doc, path).is_null() {
        Features::of_stored(gates, at(old, path)).drop_unavailable(within(doc, path));
    }
}

/// All problems of a template. Label and annotation paths are upstream's,
/// without `metadata`.
pub(crate) fn validate(template: &Value, old: &Value, path: &str, gates: &Gates) -> Vec<FieldError> {
    let mut errors = meta::labels(at(template, "metadata.labels"), "labels");
    errors.extend(meta::annotations(at(template, "metadata.annotations"), "annotations"));
    errors.extend(validate::annotations::all(template, "annotations"));
    errors.extend(validate::spec(template, &Features::of_stored(gates, old)));
    // API-535
    if !items(template, "spec.ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden("spec.ephemeralContainers", detail));
    }
    errors.extend(app_armor::contradictions(template));
    errors.into_iter().map(|error| error.under(path)).collect()
}

/// API-580 to API-587: what is said about a template that is new or changed.
pub(crate) fn warnings(doc: &Value, old: Option<&Value>, path: &str) -> Vec<String> {
    let is_changed = old.is_none_or(|old| at(old, path) != at(doc, path));
    if is_changed { warnings::all(at(doc, path), &format!("{path}.")) } else { Vec::new() }
}
