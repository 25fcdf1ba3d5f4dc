//! Scale: how many pods a controller is to have, as a view of the controller
//! itself (API-608). There are no objects of this kind, only the subresource.

use serde_json::{Value, json};

use crate::api::autoscaling::v1::Scale;
use crate::doc::{at, keep, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::workload::{self, SELECTOR};
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// Not in the table of kinds.
pub static KIND: Kind = Kind {
    columns: COLUMNS,
    ..Kind::new("autoscaling", ["Scale", "", "scales", "scale"], Scope::Namespaced, &ScaleOps)
};

/// API-266.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Desired", "How many pods are wanted."),
    Column::integer("Available", "How many pods there are."),
    Column::AGE,
];

struct ScaleOps;

impl KindOps for ScaleOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Scale>::NEW
    }

    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let spec = object(doc, "spec");
        crate::doc::drop_zero(spec, &["replicas"]);
        set_default(object(doc, "status"), "replicas", 0);
    }

    fn validate_update(&self, doc: &Value, _old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(workload::non_negative(doc, &["spec.replicas"]));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        vec![
            json!(text(doc, "metadata.name")),
            workload::count(doc, "spec.replicas"),
            workload::count(doc, "status.replicas"),
            json!(printing::age_of(doc, now)),
        ]
    }
}

/// The scale of a controller.
pub fn of(doc: &Value) -> Value {
    let mut scale = json!({"kind": KIND.kind, "apiVersion": KIND.api_version(), "metadata": {}, "spec": {}});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        keep(object(&mut scale, "metadata"), at(doc, "metadata"), key);
    }
    let replicas = at(doc, "spec.replicas").as_i64().unwrap_or(0);
    if replicas != 0 {
        scale["spec"]["replicas"] = json!(replicas);
    }
    scale["status"] = json!({"replicas": workload::count(doc, "status.replicas")});
    let selector = selector_text(doc);
    if !selector.is_empty() {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

/// The one of a ReplicationController is a map, all others are label selectors.
fn selector_text(doc: &Value) -> String {
    if text(doc, "kind") == "ReplicationController" {
        let selector = at(doc, SELECTOR);
        return if selector.is_null() { String::new() } else { workload::labels_cell(selector) };
    }
    workload::selector_of(doc).map(|selector| selector.to_string()).unwrap_or_default()
}

/// The controller with the number of pods its scale asks for.
pub fn apply(doc: &Value, scale: &Value) -> Value {
    let mut doc = doc.clone();
    object(&mut doc, "spec").insert("replicas".to_owned(), workload::count(scale, "spec.replicas"));
    doc
}
