//! Job: descriptor, defaults and the selector it makes for itself.
//!
//! Read next: `job/validate.rs` (also for the jobs of a CronJob),
//! `job/update.rs`, `job/status.rs`.

use serde_json::{Map, Value, json};

use crate::api::batch::v1::Job as TypedJob;
use crate::doc::{as_object, at, drop_zero, items_mut, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::workload::{self, SELECTOR, TEMPLATE};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource, pod};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

mod indexes;
mod status;
mod update;
pub(super) mod validate;

/// API-047.
pub static KIND: Kind = Kind {
    categories: &["all"],
    subresources: &[Subresource::Status],
    columns: COLUMNS,
    ..Kind::new("batch", ["Job", "JobList", "jobs", "job"], Scope::Namespaced, &JobOps)
};

/// API-248.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Status", "Status of the job."),
    Column::text("Completions", "How many pods have succeeded, of how many wanted."),
    Column::text("Duration", "Time required to complete the job."),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const UID_LABELS: [&str; 2] = ["controller-uid", UID_LABEL];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

struct JobOps;

impl KindOps for JobOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<TypedJob>::NEW
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn template(&self) -> Option<&'static str> {
        Some(TEMPLATE)
    }

    /// API-781.
    fn first_status(&self) -> Option<Value> {
        Some(json!({}))
    }

    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let labels = at(doc, "spec.template.metadata.labels").clone();
        let metadata = object(doc, "metadata");
        if labels.is_object() && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty) {
            metadata.insert("labels".to_owned(), labels);
        }
        spec_defaults(object(doc, "spec"));
        failure_defaults(doc, "spec");
        let counters = ["active", "succeeded", "failed", "completedIndexes"];
        drop_zero(object(doc, "status"), &counters);
        pod::template::default(doc, TEMPLATE);
    }

    /// API-727: the pods of a job are those with its uid, unless it says
    /// otherwise.
    fn complete_create(&self, doc: &mut Value) {
        if at(doc, "spec.manualSelector") == true {
            return;
        }
        let (name, uid) = (text(doc, "metadata.name").to_owned(), text(doc, "metadata.uid").to_owned());
        let spec = object(doc, "spec");
        let template = as_object(spec.entry("template").or_insert(Value::Null));
        let metadata = as_object(template.entry("metadata").or_insert(Value::Null));
        let labels = as_object(metadata.entry("labels").or_insert(Value::Null));
        // Labels that are there already are judged by `validate`.
        NAME_LABELS.iter().for_each(|label| set_default(labels, label, name.as_str()));
        UID_LABELS.iter().for_each(|label| set_default(labels, label, uid.as_str()));
        let selector = as_object(spec.entry("selector").or_insert(Value::Null));
        set_default(as_object(selector.entry("matchLabels").or_insert(Value::Null)), UID_LABEL, uid.as_str());
    }

    fn validate_create(&self, doc: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(validate::generated(doc));
        errors.extend(validate::spec(doc, &Value::Null, gates));
        errors.extend(validate::host_names(doc));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(validate::spec(doc, old, gates));
        errors.extend(update::validate(doc, old));
        errors.extend(validate::host_names(doc));
        errors
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(status::validate(doc, old));
        errors
    }

    /// API-226.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Namespaced);
        fields.push(("status.successful", at(doc, "status.succeeded").as_i64().unwrap_or(0).to_string()));
        fields
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let [containers, images] = workload::container_cells(at(doc, TEMPLATE));
        vec![
            json!(text(doc, "metadata.name")),
            json!(status::cell(doc)),
            json!(completions(doc)),
            json!(duration(doc, now)),
            json!(printing::age_of(doc, now)),
            containers,
            images,
            json!(workload::selector_cell(at(doc, SELECTOR))),
        ]
    }
}

/// API-726.
fn spec_defaults(spec: &mut Map<String, Value>) {
    if ["completions", "parallelism"].iter().all(|field| !spec.contains_key(*field)) {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let is_indexed = spec.contains_key("backoffLimitPerIndex");
    set_default(spec, "backoffLimit", if is_indexed { i64::from(i32::MAX) } else { 6 });
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    let replacement = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set_default(spec, "podReplacementPolicy", replacement);
    set_default(spec, "manualSelector", false);
}

/// API-726: also of the jobs a CronJob makes, whose spec is at `path`.
pub(super) fn failure_defaults(doc: &mut Value, path: &str) {
    for rule in items_mut(doc, &format!("{path}.podFailurePolicy.rules")) {
        for pattern in items_mut(rule, "onPodConditions") {
            let pattern = as_object(pattern);
            drop_zero(pattern, &["status"]);
            set_default(pattern, "status", "True");
        }
    }
}

/// API-284.
fn completions(doc: &Value) -> String {
    let number = |path: &str| at(doc, path).as_i64().unwrap_or(0);
    let succeeded = number("status.succeeded");
    match (at(doc, "spec.completions").as_i64(), number("spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// API-284.
fn duration(doc: &Value, now: ambient::Now) -> String {
    let time = |path: &str| text(doc, path).parse::<jiff::Timestamp>().ok();
    let Some(start) = time("status.startTime") else { return String::new() };
    printing::human_duration(time("status.completionTime").unwrap_or(now.wall).duration_since(start))
}
