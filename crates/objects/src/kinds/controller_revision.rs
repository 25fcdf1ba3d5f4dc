//! ControllerRevision: descriptor and rules.

use serde_json::{Value, json};

use crate::api::apps::v1::ControllerRevision;
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope, workload};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-046.
pub static KIND: Kind = Kind {
    columns: COLUMNS,
    ..Kind::new(
        "apps",
        ["ControllerRevision", "ControllerRevisionList", "controllerrevisions", "controllerrevision"],
        Scope::Namespaced,
        &RevisionOps,
    )
};

/// API-260.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Controller", "Controller of the object"),
    Column::text("Revision", "The number of the state that is kept here."),
    Column::AGE,
];

struct RevisionOps;

impl KindOps for RevisionOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ControllerRevision>::NEW
    }

    /// API-764.
    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(workload::non_negative(doc, &["revision"]));
        match at(doc, "data") {
            Value::Object(_) => {}
            Value::Null => errors.push(FieldError::required("data", "data is mandatory")),
            _ => errors.push(FieldError::required("data", "data must be a valid JSON object")),
        }
        errors
    }

    /// API-376.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(workload::non_negative(doc, &["revision"]));
        errors.extend(meta::immutable("data", at(doc, "data"), at(old, "data")));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let owner = items(doc, "metadata.ownerReferences").iter().find(|owner| at(owner, "controller") == true);
        vec![
            json!(text(doc, "metadata.name")),
            json!(owner.map_or_else(|| "<none>".to_owned(), owner_name)),
            workload::count(doc, "revision"),
            json!(printing::age_of(doc, now)),
        ]
    }
}

/// `statefulset.apps/web`, `replicationcontroller/web`.
fn owner_name(owner: &Value) -> String {
    let kind = text(owner, "kind").to_lowercase();
    match text(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "name")),
        None => format!("{kind}/{}", text(owner, "name")),
    }
}
