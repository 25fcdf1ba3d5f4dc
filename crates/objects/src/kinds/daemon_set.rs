//! DaemonSet: descriptor and rules.

use serde_json::{Value, json};

use crate::api::apps::v1::DaemonSet;
use crate::doc::{at, drop_zero, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::workload::{self, SELECTOR, TEMPLATE};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource, deployment, pod};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-046.
pub static KIND: Kind = Kind {
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[Subresource::Status],
    columns: COLUMNS,
    ..Kind::new("apps", ["DaemonSet", "DaemonSetList", "daemonsets", "daemonset"], Scope::Namespaced, &SetOps)
};

/// API-247.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Desired", "How many nodes should run the pod."),
    Column::integer("Current", "How many nodes that should run the pod have it."),
    Column::integer("Ready", "On how many of them the pod is ready."),
    Column::integer("Up-to-date", "On how many of them the pod is made from the current template."),
    Column::integer("Available", "On how many of them the pod has been ready for at least minReadySeconds."),
    Column::text("Node Selector", "Which nodes can run the pod."),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

/// API-775: always shown.
const COUNTERS: [&str; 4] = ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];

struct SetOps;

impl KindOps for SetOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<DaemonSet>::NEW
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn template(&self) -> Option<&'static str> {
        Some(TEMPLATE)
    }

    fn first_status(&self) -> Option<Value> {
        Some(COUNTERS.into_iter().map(|field| (field.to_owned(), json!(0))).collect())
    }

    /// API-725.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let spec = object(doc, "spec");
        drop_zero(spec, &["minReadySeconds"]);
        deployment::rolling_defaults(spec, "updateStrategy", &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
        set_default(spec, "revisionHistoryLimit", 10);
        let status = object(doc, "status");
        drop_zero(status, &["observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"]);
        COUNTERS.iter().for_each(|field| set_default(status, field, 0));
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
        errors.extend(meta::immutable(SELECTOR, at(doc, SELECTOR), at(old, SELECTOR)));
        errors.extend(spec(doc, old, gates));
        errors
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        let counters = [
            "status.currentNumberScheduled",
            "status.numberMisscheduled",
            "status.desiredNumberScheduled",
            "status.numberReady",
            "status.observedGeneration",
            "status.updatedNumberScheduled",
            "status.numberAvailable",
            "status.numberUnavailable",
            "status.collisionCount",
        ];
        errors.extend(workload::non_negative(doc, &counters));
        errors.extend(workload::collisions(doc, old));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let [containers, images] = workload::container_cells(at(doc, TEMPLATE));
        vec![
            json!(text(doc, "metadata.name")),
            workload::count(doc, "status.desiredNumberScheduled"),
            workload::count(doc, "status.currentNumberScheduled"),
            workload::count(doc, "status.numberReady"),
            workload::count(doc, "status.updatedNumberScheduled"),
            workload::count(doc, "status.numberAvailable"),
            json!(workload::labels_cell(at(doc, "spec.template.spec.nodeSelector"))),
            json!(printing::age_of(doc, now)),
            containers,
            images,
            json!(workload::selector_cell(at(doc, SELECTOR))),
        ]
    }
}

/// API-747. A missing selector is not named, but matches no template.
fn spec(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let (selector, template) = (at(doc, SELECTOR), at(doc, TEMPLATE));
    let mut errors = meta::label_selector(selector, SELECTOR);
    let matched = workload::selector_of(doc);
    errors.extend(matched.and_then(|selector| workload::selects_template(&selector, template, TEMPLATE)));
    if !selector.is_null() {
        errors.extend(workload::not_empty(selector, "daemonset"));
    }
    errors.extend(workload::template(doc, old, gates));
    errors.extend(workload::runs_forever(template, "DaemonSet"));
    errors.extend(workload::non_negative(doc, &["spec.minReadySeconds"]));
    errors.extend(strategy(at(doc, "spec.updateStrategy"), "spec.updateStrategy"));
    errors.extend(workload::non_negative(doc, &["spec.revisionHistoryLimit"]));
    errors
}

fn strategy(strategy: &Value, path: &str) -> Vec<FieldError> {
    match text(strategy, "type") {
        "OnDelete" => return Vec::new(),
        "RollingUpdate" => {}
        _ => return vec![FieldError::not_supported(path, strategy.clone(), &["RollingUpdate", "OnDelete"])],
    }
    let rolling = at(strategy, "rollingUpdate");
    let steps =
        ["maxUnavailable", "maxSurge"].map(|field| (at(rolling, field), format!("{path}.rollingUpdate.{field}")));
    let mut errors = Vec::new();
    errors.extend(steps.iter().flat_map(|(step, path)| workload::int_or_percent(step, path)));
    errors.extend(steps.iter().filter_map(|(step, path)| workload::at_most_all(step, path)));
    let [(unavailable, unavailable_path), (surge, surge_path)] = &steps;
    match (workload::is_zero(unavailable), workload::is_zero(surge)) {
        (false, false) => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(FieldError::invalid(surge_path, (*surge).clone(), detail));
        }
        (true, true) => errors.push(FieldError::required(unavailable_path, "cannot be 0 when maxSurge is 0")),
        _ => {}
    }
    errors
}
