//! Deployment: descriptor and rules.

use serde_json::{Value, json};

use crate::api::apps::v1::Deployment;
use crate::doc::{as_object, at, drop_zero, keep, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::workload::{self, SELECTOR, TEMPLATE};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource, pod};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-045.
pub static KIND: Kind = Kind {
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    columns: COLUMNS,
    ..Kind::new(
        "apps",
        ["Deployment", "DeploymentList", "deployments", "deployment"],
        Scope::Namespaced,
        &DeploymentOps,
    )
};

/// API-244.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Ready", "How many pods are ready, of how many wanted."),
    Column::text("Up-to-date", "How many pods are made from the current template."),
    Column::text("Available", "How many pods have been ready for at least minReadySeconds."),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

struct DeploymentOps;

impl KindOps for DeploymentOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Deployment>::NEW
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn template(&self) -> Option<&'static str> {
        Some(TEMPLATE)
    }

    fn first_status(&self) -> Option<Value> {
        Some(json!({}))
    }

    /// API-722.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let spec = object(doc, "spec");
        drop_zero(spec, &["minReadySeconds", "paused"]);
        set_default(spec, "replicas", 1);
        set_default(spec, "revisionHistoryLimit", 10);
        set_default(spec, "progressDeadlineSeconds", 600);
        rolling_defaults(spec, "strategy", &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
        let counters = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
        ];
        drop_zero(object(doc, "status"), &counters);
        pod::template::default(doc, TEMPLATE);
    }

    /// API-178: annotations are told to the ReplicaSets, so they count, too.
    fn prepare_update(&self, doc: &mut Value, old: &Value, gates: &Gates) {
        keep(as_object(doc), old, "status");
        pod::template::drop_unavailable(doc, old, TEMPLATE, gates);
        meta::prepare_update(doc, old, true);
        let annotations = |doc: &Value| at(doc, "metadata.annotations").as_object().cloned().unwrap_or_default();
        let generation = at(old, "metadata.generation").as_i64().unwrap_or(0);
        if annotations(doc) != annotations(old) {
            object(doc, "metadata").insert("generation".to_owned(), json!(generation.saturating_add(1)));
        }
    }

    /// API-355: labels stay, too.
    fn prepare_status_update(&self, doc: &mut Value, old: &Value) {
        meta::prepare_status_update(doc, old);
        keep(object(doc, "metadata"), at(old, "metadata"), "labels");
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
        errors.extend(workload::collisions(doc, old));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let [containers, images] = workload::container_cells(at(doc, TEMPLATE));
        vec![
            json!(text(doc, "metadata.name")),
            json!(workload::ready_of(doc)),
            workload::count(doc, "status.updatedReplicas"),
            workload::count(doc, "status.availableReplicas"),
            json!(printing::age_of(doc, now)),
            containers,
            images,
            json!(workload::selector_cell(at(doc, SELECTOR))),
        ]
    }
}

/// The defaults of a strategy that replaces pods one after another; shared
/// with DaemonSet.
pub(super) fn rolling_defaults(spec: &mut serde_json::Map<String, Value>, field: &str, steps: &[(&str, Value)]) {
    let strategy = as_object(spec.entry(field).or_insert(Value::Null));
    drop_zero(strategy, &["type"]);
    set_default(strategy, "type", "RollingUpdate");
    if strategy.get("type").is_some_and(|kind| kind == "RollingUpdate") {
        let rolling = as_object(strategy.entry("rollingUpdate").or_insert(Value::Null));
        for (step, amount) in steps {
            set_default(rolling, step, amount.clone());
        }
    }
}

/// API-744.
fn spec(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    const DEADLINE: &str = "spec.progressDeadlineSeconds";
    let mut errors = workload::non_negative(doc, &["spec.replicas"]);
    errors.extend(workload::replicated(doc, old, gates));
    errors.extend(strategy(at(doc, "spec.strategy"), "spec.strategy"));
    errors.extend(workload::non_negative(doc, &["spec.minReadySeconds", "spec.revisionHistoryLimit", DEADLINE]));
    let ready = at(doc, "spec.minReadySeconds").as_i64().unwrap_or(0);
    if let Some(deadline) = at(doc, DEADLINE).as_i64().filter(|deadline| *deadline <= ready) {
        errors.push(FieldError::invalid(DEADLINE, deadline, "must be greater than minReadySeconds"));
    }
    errors
}

fn strategy(strategy: &Value, path: &str) -> Vec<FieldError> {
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "Recreate" if !rolling.is_null() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            vec![FieldError::forbidden(format!("{path}.rollingUpdate"), detail)]
        }
        "Recreate" => Vec::new(),
        "RollingUpdate" => {
            let (surge, unavailable) = (at(rolling, "maxSurge"), at(rolling, "maxUnavailable"));
            let path_of = |field: &str| format!("{path}.rollingUpdate.{field}");
            let mut errors = workload::int_or_percent(unavailable, &path_of("maxUnavailable"));
            errors.extend(workload::int_or_percent(surge, &path_of("maxSurge")));
            if workload::is_zero(unavailable) && workload::is_zero(surge) {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(path_of("maxUnavailable"), unavailable.clone(), detail));
            }
            errors.extend(workload::at_most_all(unavailable, &path_of("maxUnavailable")));
            errors
        }
        _ => vec![FieldError::not_supported(path, strategy.clone(), &["Recreate", "RollingUpdate"])],
    }
}

fn status(doc: &Value) -> Vec<FieldError> {
    const READY: &str = "status.readyReplicas";
    const AVAILABLE: &str = "status.availableReplicas";
    const UPDATED: &str = "status.updatedReplicas";
    let counters = [
        "status.observedGeneration",
        "status.replicas",
        UPDATED,
        READY,
        AVAILABLE,
        "status.unavailableReplicas",
        "status.terminatingReplicas",
        "status.collisionCount",
    ];
    let mut errors = workload::non_negative(doc, &counters);
    let parts = [UPDATED, READY, AVAILABLE];
    errors.extend(workload::at_most(doc, &parts, "status.replicas", workload::ABOVE_REPLICAS));
    errors.extend(workload::at_most(doc, &[AVAILABLE], READY, "cannot be greater than readyReplicas"));
    errors
}
