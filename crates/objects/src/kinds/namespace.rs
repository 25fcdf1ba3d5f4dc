//! Namespace: descriptor and rules (API-192, API-193).

use serde_json::{Value, json};

use crate::api::core::v1::Namespace;
use crate::doc::{as_object, at, items, keep, object, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};
use crate::names::NameFormat;
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-036, API-240.
pub static KIND: Kind = Kind {
    short_names: &["ns"],
    subresources: &[Subresource::Status, Subresource::Finalize],
    columns: &[Column::NAME, Column::text("Status", "The status of the namespace"), Column::AGE],
    ..Kind::new("", ["Namespace", "NamespaceList", "namespaces", "namespace"], Scope::Cluster, &NamespaceOps)
};

/// The finalizer every namespace is born with.
pub const FINALIZER: &str = "kubernetes";

/// The label that carries the name.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

struct NamespaceOps;

impl KindOps for NamespaceOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Namespace>::NEW
    }

    fn name_format(&self) -> NameFormat {
        NameFormat::Label
    }

    /// API-115: nobody deletes them all at once.
    fn verbs(&self) -> &'static [&'static str] {
        &["create", "delete", "get", "list", "patch", "update", "watch"]
    }

    /// API-731, API-778: it is `Active` and says so.
    fn prepare_create(&self, doc: &mut Value, _gates: &Gates) {
        meta::prepare_create(doc, false);
        name_label(doc);
        let spec = object(doc, "spec");
        let finalizers = spec.entry("finalizers").or_insert(json!([]));
        if let Some(list) = finalizers.as_array_mut().filter(|list| !list.contains(&json!(FINALIZER))) {
            list.push(json!(FINALIZER));
        }
        as_object(doc).insert("status".to_owned(), json!({"phase": "Active"}));
    }

    /// API-353: only `finalize` changes the finalizers of the spec.
    fn prepare_update(&self, doc: &mut Value, old: &Value, _gates: &Gates) {
        meta::prepare_update(doc, old, false);
        name_label(doc);
        keep(as_object(doc), old, "status");
        keep(object(doc, "spec"), at(old, "spec"), "finalizers");
    }

    fn prepare_finalize(&self, doc: &mut Value, old: &Value, _gates: &Gates) {
        meta::prepare_update(doc, old, false);
        name_label(doc);
        keep(as_object(doc), old, "status");
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Cluster, NameFormat::Label);
        errors.extend(finalizers(doc));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(finalizers(doc));
        errors
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        let deleting = !at(doc, "metadata.deletionTimestamp").is_null();
        let phase = text(doc, "status.phase");
        let detail = match (deleting, phase) {
            (false, phase) if phase != "Active" => "may only be 'Active' if `deletionTimestamp` is empty",
            (true, phase) if phase != "Terminating" => "may only be 'Terminating' if `deletionTimestamp` is not empty",
            _ => return errors,
        };
        errors.push(FieldError::invalid("status.Phase", phase, detail));
        errors
    }

    /// API-220.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let name = text(doc, "metadata.name").to_owned();
        let mut fields = meta::fields(doc, Scope::Cluster);
        fields.extend([("name", name), ("status.phase", text(doc, "status.phase").to_owned())]);
        fields
    }

    /// API-292.
    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let phase = text(doc, "status.phase");
        vec![json!(text(doc, "metadata.name")), json!(phase), json!(printing::age_of(doc, now))]
    }
}

fn name_label(doc: &mut Value) {
    let name = text(doc, "metadata.name").to_owned();
    let labels = as_object(object(doc, "metadata").entry("labels").or_insert(Value::Null));
    if !name.is_empty() {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
}

fn finalizers(doc: &Value) -> Vec<FieldError> {
    let names = items(doc, "spec.finalizers").iter().filter_map(Value::as_str);
    names.flat_map(|name| meta::finalizer_name(name, "spec.finalizers")).collect()
}
