//! CronJob: descriptor and rules.

use serde_json::{Value, json};

use crate::api::batch::v1::CronJob;
use crate::cron::{self, Schedule};
use crate::doc::{at, drop_zero, items, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource, job, pod, workload};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-047.
pub static KIND: Kind = Kind {
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[Subresource::Status],
    columns: COLUMNS,
    ..Kind::new("batch", ["CronJob", "CronJobList", "cronjobs", "cronjob"], Scope::Namespaced, &CronOps)
};

/// API-249.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Schedule", "When a job is started."),
    Column::text("Timezone", "By the clock of which place."),
    Column { type_: "boolean", ..Column::text("Suspend", "Whether no more jobs are started.") },
    Column::integer("Active", "How many jobs are running."),
    Column::text("Last Schedule", "When a job was last started."),
    Column::AGE,
    workload::CONTAINERS,
    workload::IMAGES,
    workload::SELECTOR_COLUMN,
];

const JOB: &str = "spec.jobTemplate";
const TEMPLATE: &str = "spec.jobTemplate.spec.template";
/// Jobs are called `<name>-<eight digits of minutes>`, and their names are
/// labels.
const NAME_MAX: usize = 52;

struct CronOps;

impl KindOps for CronOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<CronJob>::NEW
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

    /// API-728. The job's own defaults are filled in when it is made.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let spec = object(doc, "spec");
        drop_zero(spec, &["concurrencyPolicy"]);
        set_default(spec, "schedule", "");
        set_default(spec, "concurrencyPolicy", "Allow");
        set_default(spec, "suspend", false);
        set_default(spec, "successfulJobsHistoryLimit", 3);
        set_default(spec, "failedJobsHistoryLimit", 1);
        pod::template::default(doc, TEMPLATE);
        job::failure_defaults(doc, "spec.jobTemplate.spec");
        set_default(object(&mut doc["spec"], "jobTemplate"), "metadata", json!({}));
        object(doc, "status");
    }

    fn validate_create(&self, doc: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(spec(doc, &Value::Null, gates));
        let name = text(doc, "metadata.name");
        if name.len() > NAME_MAX {
            let detail = format!("must be no more than {NAME_MAX} characters");
            errors.push(FieldError::invalid("metadata.name", name, detail));
        }
        errors
    }

    /// API-365: nothing is settled for good.
    fn validate_update(&self, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(spec(doc, old, gates));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let [containers, images] = workload::container_cells(at(doc, TEMPLATE));
        let last = match text(doc, "status.lastScheduleTime") {
            "" => "<none>".to_owned(),
            time => printing::since(time, now),
        };
        // API-285.
        let suspend = match at(doc, "spec.suspend").as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        vec![
            json!(text(doc, "metadata.name")),
            json!(text(doc, "spec.schedule")),
            json!(printing::or_none(text(doc, "spec.timeZone"))),
            json!(suspend),
            json!(items(doc, "status.active").len()),
            json!(last),
            json!(printing::age_of(doc, now)),
            containers,
            images,
            json!(workload::selector_cell(at(doc, "spec.jobTemplate.spec.selector"))),
        ]
    }
}

/// API-750.
fn spec(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = schedule(doc, old);
    errors.extend(workload::non_negative(doc, &["spec.startingDeadlineSeconds"]));
    if old.is_null() || at(old, "spec.timeZone") != at(doc, "spec.timeZone") {
        errors.extend(time_zone(doc));
    }
    let (policy, known) = (text(doc, "spec.concurrencyPolicy"), ["Allow", "Forbid", "Replace"]);
    if !known.contains(&policy) {
        errors.push(FieldError::not_supported("spec.concurrencyPolicy", policy, &known));
    }
    let jobs = job::validate::without_selector(at(doc, JOB), at(old, JOB), gates);
    errors.extend(jobs.into_iter().map(|error| error.under(JOB)));
    let selector = at(doc, "spec.jobTemplate.spec.selector");
    if !selector.is_null() {
        let detail = "`selector` will be auto-generated";
        errors.push(FieldError::invalid("spec.jobTemplate.spec.selector", selector.clone(), detail));
    }
    if at(doc, "spec.jobTemplate.spec.manualSelector") == true {
        let path = "spec.jobTemplate.spec.manualSelector";
        errors.push(FieldError::not_supported(path, true, &["nil", "false"]));
    }
    errors.extend(workload::non_negative(doc, &["spec.successfulJobsHistoryLimit", "spec.failedJobsHistoryLimit"]));
    errors
}

/// A zone within the schedule is tolerated where it is stored already.
fn schedule(doc: &Value, old: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.schedule";
    let schedule = text(doc, PATH);
    if schedule.is_empty() {
        return vec![FieldError::required(PATH, "")];
    }
    let mut errors = Vec::new();
    if let Err(problem) = Schedule::parse(schedule) {
        errors.push(FieldError::invalid(PATH, schedule, problem.to_string()));
    }
    let is_old = text(old, PATH).contains("TZ");
    let detail = match (schedule.contains("TZ"), is_old) {
        (true, false) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        (true, true) if !at(doc, "spec.timeZone").is_null() => {
            "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        }
        _ => return errors,
    };
    errors.push(FieldError::invalid(PATH, schedule, detail));
    errors
}

fn time_zone(doc: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.timeZone";
    let zone = at(doc, PATH).as_str()?;
    let is_local = zone.eq_ignore_ascii_case("Local");
    let detail = match zone {
        "" => "timeZone must be nil or non-empty string".to_owned(),
        _ if is_local => {
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned()
        }
        zone if cron::time_zone(zone).is_none() => format!("unknown time zone {zone}"),
        _ => return None,
    };
    Some(FieldError::invalid(PATH, zone, detail))
}
