//! PriorityClass: descriptor and rules.

use serde_json::{Value, json};

use crate::api::scheduling::v1::PriorityClass;
use crate::doc::{as_object, at, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-052.
pub static KIND: Kind = Kind {
    short_names: &["pc"],
    columns: COLUMNS,
    ..Kind::new(
        "scheduling.k8s.io",
        ["PriorityClass", "PriorityClassList", "priorityclasses", "priorityclass"],
        Scope::Cluster,
        &ClassOps,
    )
};

/// API-258.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::integer("Value", "value represents the integer value of this priority class."),
    Column {
        type_: "boolean",
        ..Column::text(
            "Global-Default",
            "globalDefault specifies whether this PriorityClass should be considered as the default priority for pods that do not have any priority class.",
        )
    },
    Column::AGE,
    Column::text("PreemptionPolicy", "preemptionPolicy is the Policy for preempting pods with lower priority."),
];

/// API-711: the classes every cluster has, and their values.
pub const SYSTEM: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
/// API-761.
const USER_VALUE_MAX: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";

struct ClassOps;

impl KindOps for ClassOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<PriorityClass>::NEW
    }

    /// API-739.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        set_default(as_object(doc), "preemptionPolicy", "PreemptLowerPriority");
    }

    /// API-178: the generation is always 1.
    fn prepare_create(&self, doc: &mut Value, _gates: &Gates) {
        meta::prepare_create(doc, true);
    }

    fn prepare_update(&self, doc: &mut Value, old: &Value, _gates: &Gates) {
        meta::prepare_update(doc, old, false);
        object(doc, "metadata").insert("generation".to_owned(), json!(1));
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Cluster, self.name_format());
        errors.extend(class(doc));
        errors
    }

    /// API-371.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        if at(doc, "value") != at(old, "value") {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        let policy = |doc: &Value| at(doc, "preemptionPolicy").clone();
        errors.extend(meta::immutable("preemptionPolicy", &policy(doc), &policy(old)));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        vec![
            json!(text(doc, "metadata.name")),
            json!(at(doc, "value").as_i64().unwrap_or(0)),
            json!(at(doc, "globalDefault").as_bool().unwrap_or(false)),
            json!(printing::age_of(doc, now)),
            json!(text(doc, "preemptionPolicy")),
        ]
    }
}

/// API-761.
fn class(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, value) = (text(doc, "metadata.name"), at(doc, "value").as_i64().unwrap_or(0));
    if name.starts_with(SYSTEM_PREFIX) {
        match SYSTEM.iter().find(|(known, _)| *known == name) {
            None => {
                let detail = format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {name} is not a known system priority class"
                );
                errors.push(FieldError::forbidden("metadata.name", detail));
            }
            Some((_, own)) if *own != value => {
                let detail = format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: value of {name} PriorityClass must be {own}"
                );
                errors.push(FieldError::forbidden("metadata.name", detail));
            }
            Some(_) => {}
        }
    } else if value > USER_VALUE_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}");
        errors.push(FieldError::forbidden("value", detail));
    }
    let policy = text(doc, "preemptionPolicy");
    let known = ["Never", "PreemptLowerPriority"];
    if !known.contains(&policy) {
        errors.push(FieldError::not_supported("preemptionPolicy", policy, &known));
    }
    errors
}
