//! ReplicaSet: descriptor and rules.

use serde_json::{Value, json};

use crate::api::apps::v1::ReplicaSet;
use crate::doc::{at, drop_zero, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::workload::{self, SELECTOR, TEMPLATE};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource, pod};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-045.
pub static KIND: Kind = Kind {
    short_names: &["rs"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    columns: COLUMNS,
    ..Kind::new("apps", ["ReplicaSet", "ReplicaSetList", "replicasets", "replicaset"], Scope::Namespaced, &SetOps)
};

/// API-245.
pub(super) const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Desired", "How many pods are wanted."),
    Column::integer("Current", "How many pods there are."),
    Column::integer("Ready", "How many pods are ready."),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

struct SetOps;

impl KindOps for SetOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ReplicaSet>::NEW
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn template(&self) -> Option<&'static str> {
        Some(TEMPLATE)
    }

    /// API-775.
    fn first_status(&self) -> Option<Value> {
        Some(json!({"replicas": 0}))
    }

    /// API-723.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        default_counts(doc);
        pod::template::default(doc, TEMPLATE);
    }

    fn validate_create(&self, doc: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(spec(doc, &Value::Null, gates));
        errors
    }

    /// API-362.
    fn validate_update(&self, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(spec(doc, old, gates));
        errors.extend(meta::immutable(SELECTOR, at(doc, SELECTOR), at(old, SELECTOR)));
        errors
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(status(doc));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        row(doc, &workload::selector_cell(at(doc, SELECTOR)), now)
    }
}

/// Shared with ReplicationController: numbers that are left out when zero.
pub(super) fn default_counts(doc: &mut Value) {
    let spec = object(doc, "spec");
    drop_zero(spec, &["minReadySeconds"]);
    set_default(spec, "replicas", 1);
    let status = object(doc, "status");
    drop_zero(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"]);
    set_default(status, "replicas", 0);
}

/// API-745.
fn spec(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = workload::non_negative(doc, &["spec.replicas", "spec.minReadySeconds"]);
    errors.extend(workload::replicated(doc, old, gates));
    errors
}

/// Shared with ReplicationController.
pub(super) fn status(doc: &Value) -> Vec<FieldError> {
    const READY: &str = "status.readyReplicas";
    const AVAILABLE: &str = "status.availableReplicas";
    const LABELED: &str = "status.fullyLabeledReplicas";
    let counters =
        ["status.replicas", LABELED, READY, AVAILABLE, "status.observedGeneration", "status.terminatingReplicas"];
    let mut errors = workload::non_negative(doc, &counters);
    let parts = [LABELED, READY, AVAILABLE];
    errors.extend(workload::at_most(doc, &parts, "status.replicas", workload::ABOVE_REPLICAS));
    errors.extend(workload::at_most(doc, &[AVAILABLE], READY, "cannot be greater than readyReplicas"));
    errors
}

/// Shared with ReplicationController.
pub(super) fn row(doc: &Value, selector: &str, now: ambient::Now) -> Vec<Value> {
    let [containers, images] = workload::container_cells(at(doc, TEMPLATE));
    vec![
        json!(text(doc, "metadata.name")),
        workload::count(doc, "spec.replicas"),
        workload::count(doc, "status.replicas"),
        workload::count(doc, "status.readyReplicas"),
        json!(printing::age_of(doc, now)),
        containers,
        images,
        json!(selector),
    ]
}
