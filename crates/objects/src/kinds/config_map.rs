//! ConfigMap: descriptor and rules.

use serde_json::{Value, json};

use crate::api::core::v1::ConfigMap;
use crate::doc::{at, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::meta::{self, invalid_each};
use crate::schema::{Schema, Typed};
use crate::{names, printing};

/// API-037, API-250.
pub static KIND: Kind = Kind {
    short_names: &["cm"],
    columns: &[
        Column::NAME,
        Column::text(
            "Data",
            "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'.",
        ),
        Column::AGE,
    ],
    ..Kind::new("", ["ConfigMap", "ConfigMapList", "configmaps", "configmap"], Scope::Namespaced, &ConfigMapOps)
};

/// API-755: of keys' values together.
pub(super) const DATA_MAX: usize = 1024 * 1024;

struct ConfigMapOps;

impl KindOps for ConfigMapOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ConfigMap>::NEW
    }

    /// API-734: empty maps vanish.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        drop_empty_maps(doc, &["data", "binaryData"]);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(data(doc));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(immutable(doc, old, &["data", "binaryData"]));
        errors.extend(data(doc));
        errors
    }

    /// API-287.
    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let keys = count(doc, "data") + count(doc, "binaryData");
        vec![json!(text(doc, "metadata.name")), json!(keys.to_string()), json!(printing::age_of(doc, now))]
    }
}

pub(super) fn drop_empty_maps(doc: &mut Value, keys: &[&str]) {
    if let Some(map) = doc.as_object_mut() {
        map.retain(|key, value| !keys.contains(&key.as_str()) || value.as_object().is_none_or(|map| !map.is_empty()));
    }
}

pub(super) fn count(doc: &Value, map: &str) -> usize {
    at(doc, map).as_object().map_or(0, serde_json::Map::len)
}

/// How many bytes base64 text stands for.
pub(super) fn decoded_len(text: &str) -> usize {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).map_or(text.len(), |bytes| bytes.len())
}

/// API-755.
fn data(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in at(doc, "data").as_object().into_iter().flatten() {
        let path = format!("data[{key}]");
        invalid_each(&mut errors, &path, key, names::config_key(key));
        if at(doc, "binaryData").get(key).is_some() {
            errors.push(FieldError::invalid(path, key.as_str(), "duplicate of key present in binaryData"));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in at(doc, "binaryData").as_object().into_iter().flatten() {
        invalid_each(&mut errors, &format!("binaryData[{key}]"), key, names::config_key(key));
        size += decoded_len(value.as_str().unwrap_or_default());
    }
    if size > DATA_MAX {
        // Upstream names no field here, which prints as brackets.
        errors.push(FieldError::too_long("[]", DATA_MAX));
    }
    errors
}

/// API-367, API-368: what is immutable stays so.
pub(super) fn immutable(doc: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if at(old, "immutable") != true {
        return Vec::new();
    }
    let detail = "field is immutable when `immutable` is set";
    let mut errors = Vec::new();
    if at(doc, "immutable") != true {
        errors.push(FieldError::forbidden("immutable", detail));
    }
    errors.extend(
        fields
            .iter()
            .filter(|field| at(doc, field) != at(old, field))
            .map(|field| FieldError::forbidden(*field, detail)),
    );
    errors
}
