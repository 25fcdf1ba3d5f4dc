//! PodDisruptionBudget: descriptor and rules. What it allows is asked by the
//! API server when a pod is evicted.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::plain::Plain;
use crate::api::policy::v1::PodDisruptionBudget;
use crate::decode::NO_TIME;
use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::{Column, Kind, Scope, Subresource, workload};
use crate::names;
use crate::schema::Typed;

/// API-051, API-257.
pub static KIND: Kind = Kind {
    short_names: &["pdb"],
    subresources: &[Subresource::Status],
    columns: &[
        Column::NAME,
        Column::text("Min Available", "How many pods must stay available after an eviction."),
        Column::text("Max Unavailable", "How many pods may be unavailable after an eviction."),
        Column::integer("Allowed Disruptions", "How many pods may be evicted now."),
        Column::AGE,
    ],
    ..Kind::new(
        "policy",
        ["PodDisruptionBudget", "PodDisruptionBudgetList", "poddisruptionbudgets", "poddisruptionbudget"],
        Scope::Namespaced,
        &OPS,
    )
};

/// API-178, API-189, API-740, API-776.
static OPS: Plain = Plain {
    has_generation: true,
    updates_unconditionally: false,
    first_status: || json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
    check: spec,
    check_update: |errors, doc, _| spec(errors, doc),
    check_status: status,
    // API-290.
    cells: |doc| {
        let bound = |path: &str| match at(doc, path) {
            Value::Null => json!("N/A"),
            Value::String(percent) => json!(percent),
            number => json!(number.to_string()),
        };
        let allowed = workload::count(doc, "status.disruptionsAllowed");
        vec![bound("spec.minAvailable"), bound("spec.maxUnavailable"), allowed]
    },
    ..Plain::of(&KIND, &Typed::<PodDisruptionBudget>::NEW)
};

/// API-760.
fn spec(errors: &mut Errors, doc: &Value) {
    let bounds = ["spec.minAvailable", "spec.maxUnavailable"];
    if bounds.iter().all(|path| !at(doc, path).is_null()) {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", at(doc, "spec").clone(), detail));
    }
    for path in bounds {
        errors.0.extend(workload::int_or_percent(at(doc, path), path));
        errors.0.extend(workload::at_most_all(at(doc, path), path));
    }
    errors.0.extend(crate::meta::label_selector(at(doc, "spec.selector"), "spec.selector"));
    let (policy, known) = (at(doc, "spec.unhealthyPodEvictionPolicy"), ["AlwaysAllow", "IfHealthyBudget"]);
    if !policy.is_null() && !policy.as_str().is_some_and(|policy| known.contains(&policy)) {
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy.clone(), &known));
    }
}

fn status(errors: &mut Errors, doc: &Value, _old: &Value) {
    const REASON_MAX: usize = 1024;
    const MESSAGE_MAX: usize = 32 * 1024;
    let mut seen = HashSet::new();
    for (index, condition) in items(doc, "status.conditions").iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let (kind, reason) = (text(condition, "type"), text(condition, "reason"));
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), kind));
        }
        crate::meta::invalid_each(&mut errors.0, &format!("{path}.type"), kind, names::qualified_name(kind));
        let (status, known) = (text(condition, "status"), ["False", "True", "Unknown"]);
        if !known.contains(&status) {
            errors.push(FieldError::not_supported(format!("{path}.status"), status, &known));
        }
        for field in ["lastTransitionTime", "reason"] {
            if matches!(text(condition, field), "" | NO_TIME) {
                errors.push(FieldError::required(format!("{path}.{field}"), "must be set"));
            }
        }
        for (field, length, max) in
            [("reason", reason.len(), REASON_MAX), ("message", text(condition, "message").len(), MESSAGE_MAX)]
        {
            if length > max {
                errors.push(FieldError::too_long(format!("{path}.{field}"), max));
            }
        }
    }
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        let path = format!("status.{field}");
        errors.non_negative(&path, at(doc, &path));
    }
}
