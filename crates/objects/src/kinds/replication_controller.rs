//! ReplicationController: descriptor and rules. What it does is what a
//! ReplicaSet does, with an older selector.

use serde_json::{Map, Value, json};

use crate::api::core::v1::ReplicationController;
use crate::doc::{at, object};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::workload::{self, SELECTOR, TEMPLATE};
use crate::kinds::{Kind, KindOps, Scope, Subresource, pod, replica_set};
use crate::meta;
use crate::schema::{Schema, Typed};

/// API-040.
pub static KIND: Kind = Kind {
    short_names: &["rc"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    columns: replica_set::COLUMNS,
    ..Kind::new(
        "",
        ["ReplicationController", "ReplicationControllerList", "replicationcontrollers", "replicationcontroller"],
        Scope::Namespaced,
        &ControllerOps,
    )
};

struct ControllerOps;

impl KindOps for ControllerOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ReplicationController>::NEW
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn template(&self) -> Option<&'static str> {
        Some(TEMPLATE)
    }

    fn first_status(&self) -> Option<Value> {
        Some(json!({"replicas": 0}))
    }

    /// API-729.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        replica_set::default_counts(doc);
        let labels = at(doc, "spec.template.metadata.labels").clone();
        if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            fill(object(doc, "spec"), "selector", &labels);
            fill(object(doc, "metadata"), "labels", &labels);
        }
        if !at(doc, TEMPLATE).is_null() {
            pod::template::default(doc, TEMPLATE);
        }
    }

    fn validate_create(&self, doc: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(spec(doc, &Value::Null, gates));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(spec(doc, old, gates));
        errors
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(replica_set::status(doc));
        errors
    }

    /// API-225.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Namespaced);
        fields.push(("status.replicas", at(doc, "status.replicas").as_i64().unwrap_or(0).to_string()));
        fields
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        replica_set::row(doc, &workload::labels_cell(at(doc, SELECTOR)), now)
    }
}

fn fill(holder: &mut Map<String, Value>, key: &str, labels: &Value) {
    if holder.get(key).and_then(Value::as_object).is_none_or(Map::is_empty) {
        holder.insert(key.to_owned(), labels.clone());
    }
}

/// API-751.
fn spec(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = workload::non_negative(doc, &["spec.minReadySeconds"]);
    let (selector, template) = (at(doc, SELECTOR).as_object(), at(doc, TEMPLATE));
    if selector.is_none_or(Map::is_empty) {
        errors.push(FieldError::required(SELECTOR, ""));
    }
    errors.extend(workload::non_negative(doc, &["spec.replicas"]));
    if template.is_null() {
        errors.push(FieldError::required(TEMPLATE, ""));
        return errors;
    }
    let labels = at(template, "metadata.labels");
    if !selector.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value)) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(format!("{TEMPLATE}.metadata.labels"), labels.clone(), detail));
    }
    errors.extend(workload::template(doc, old, gates));
    errors.extend(workload::runs_forever(template, "ReplicationController"));
    errors
}
