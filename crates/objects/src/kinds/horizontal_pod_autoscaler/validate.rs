//! What an autoscaler's spec must look like.

use serde_json::Value;

use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::resource_names;
use crate::names;
use crate::quantity::Quantity;

const STABILIZATION_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;
const SOURCES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
/// The fields of a metric, in the order their contents are checked.
const SOURCE_FIELDS: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];

pub(super) fn spec(errors: &mut Errors, doc: &Value) {
    let minimum = at(doc, "spec.minReplicas").as_i64();
    let maximum = at(doc, "spec.maxReplicas").as_i64().unwrap_or(0);
    if let Some(minimum) = minimum.filter(|minimum| *minimum < 1) {
        errors.push(FieldError::invalid("spec.minReplicas", minimum, "must be greater than or equal to 1"));
    }
    if maximum < 1 {
        errors.push(FieldError::invalid("spec.maxReplicas", maximum, "must be greater than 0"));
    }
    if minimum.is_some_and(|minimum| maximum < minimum) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", maximum, detail));
    }
    reference(errors, at(doc, "spec.scaleTargetRef"), "spec.scaleTargetRef");
    for (index, metric) in items(doc, "spec.metrics").iter().enumerate() {
        self::metric(errors, metric, &format!("spec.metrics[{index}]"));
    }
    if minimum == Some(0)
        && !items(doc, "spec.metrics").iter().any(|metric| matches!(text(metric, "type"), "Object" | "External"))
    {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", detail));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = at(at(doc, "spec.behavior"), direction);
        if !rules.is_null() {
            scaling(errors, rules, &format!("spec.behavior.{direction}"));
        }
    }
}

fn reference(errors: &mut Errors, reference: &Value, path: &str) {
    for field in ["kind", "name"] {
        errors.name(&format!("{path}.{field}"), text(reference, field), names::path_segment);
    }
    let version = text(reference, "apiVersion");
    if version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(format!("{path}.apiVersion"), version, detail));
    }
}

fn scaling(errors: &mut Errors, rules: &Value, path: &str) {
    let (window_path, window) = (format!("{path}.stabilizationWindowSeconds"), at(rules, "stabilizationWindowSeconds"));
    match window.as_i64() {
        Some(seconds) if seconds < 0 => {
            errors.push(FieldError::invalid(window_path, seconds, "must be greater than or equal to zero"));
        }
        Some(seconds) if seconds > STABILIZATION_SECONDS_MAX => {
            let detail = format!("must be less than or equal to {STABILIZATION_SECONDS_MAX}");
            errors.push(FieldError::invalid(window_path, seconds, detail));
        }
        _ => {}
    }
    if !at(rules, "selectPolicy").is_null() {
        let (policy, known) = (text(rules, "selectPolicy"), ["Disabled", "Max", "Min"]);
        if !known.contains(&policy) {
            errors.push(FieldError::not_supported(format!("{path}.selectPolicy"), policy, &known));
        }
    }
    let policies = items(rules, "policies");
    if policies.is_empty() {
        errors.push(FieldError::required(format!("{path}.policies"), "must specify at least one Policy"));
    }
    for (index, policy) in policies.iter().enumerate() {
        step(errors, policy, &format!("{path}.policies[{index}]"));
    }
    let tolerance = at(rules, "tolerance").as_str().and_then(|text| Quantity::parse(text).ok());
    if let Some(tolerance) = tolerance.filter(Quantity::is_negative) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{path}.tolerance"), tolerance.to_string(), detail));
    }
}

fn step(errors: &mut Errors, policy: &Value, path: &str) {
    let (kind, known) = (text(policy, "type"), ["Percent", "Pods"]);
    if !known.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{path}.type"), kind, &known));
    }
    for field in ["value", "periodSeconds"] {
        let number = at(policy, field).as_i64().unwrap_or(0);
        if number <= 0 {
            errors.push(FieldError::invalid(format!("{path}.{field}"), number, "must be greater than zero"));
        }
        if field == "periodSeconds" && number > PERIOD_SECONDS_MAX {
            let detail = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
            errors.push(FieldError::invalid(format!("{path}.{field}"), number, detail));
        }
    }
}

fn metric(errors: &mut Errors, metric: &Value, path: &str) {
    let (kind, kind_path) = (text(metric, "type"), format!("{path}.type"));
    if kind.is_empty() {
        errors.push(FieldError::required(&kind_path, "must specify a metric source type"));
    }
    // Upstream says it before and after looking at the sources.
    let is_known = SOURCES.contains(&kind);
    let unknown = || FieldError::not_supported(&kind_path, kind, &SOURCES);
    if !is_known {
        errors.push(unknown());
    }
    let given: Vec<&str> = SOURCE_FIELDS.into_iter().filter(|field| !at(metric, field).is_null()).collect();
    if let Some(field) = given.first() {
        source(errors, field, at(metric, field), &format!("{path}.{field}"));
    }
    let wanted = SOURCE_FIELDS.into_iter().find(|field| field.eq_ignore_ascii_case(kind));
    match wanted {
        None => errors.push(unknown()),
        Some(wanted) if !given.contains(&wanted) => {
            let detail = "must populate information for the given metric source";
            errors.push(FieldError::required(format!("{path}.{wanted}"), detail));
        }
        Some(_) => {}
    }
    if given.len() > 1 {
        for field in given.into_iter().filter(|field| Some(*field) != wanted) {
            let detail = "must populate the given metric source only";
            errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
        }
    }
}

fn source(errors: &mut Errors, kind: &str, source: &Value, path: &str) {
    match kind {
        "resource" | "containerResource" => {
            let (name, name_path) = (text(source, "name"), format!("{path}.name"));
            if name.is_empty() {
                errors.push(FieldError::required(&name_path, "must specify a resource name"));
            } else if kind == "containerResource" {
                resource_names::container(errors, &name_path, name);
            }
            if kind == "containerResource" {
                let (name, path) = (text(source, "container"), format!("{path}.container"));
                if name.is_empty() {
                    errors.push(FieldError::required(path, "must specify a container"));
                } else {
                    errors.name(&path, name, names::dns_label);
                }
            }
        }
        _ => {
            if kind == "object" {
                reference(errors, at(source, "describedObject"), &format!("{path}.describedObject"));
            }
            let (name, path) = (text(source, "metric.name"), format!("{path}.metric.name"));
            if name.is_empty() {
                errors.push(FieldError::required(path, "must specify a metric name"));
            } else {
                errors.name(&path, name, names::path_segment);
            }
        }
    }
    target(errors, at(source, "target"), &format!("{path}.target"));
    amounts(errors, kind, at(source, "target"), &format!("{path}.target"));
}

fn target(errors: &mut Errors, target: &Value, path: &str) {
    let (kind, kind_path) = (text(target, "type"), format!("{path}.type"));
    if kind.is_empty() {
        errors.push(FieldError::required(&kind_path, "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(kind_path, kind, detail));
    }
    for field in ["value", "averageValue"] {
        let amount = at(target, field).as_str().and_then(|text| Quantity::parse(text).ok());
        if let Some(amount) = amount.filter(|amount| amount.is_zero() || amount.is_negative()) {
            errors.push(FieldError::invalid(format!("{path}.{field}"), amount.to_string(), "must be positive"));
        }
    }
    if let Some(percent) = at(target, "averageUtilization").as_i64().filter(|percent| *percent < 1) {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid(format!("{path}.averageUtilization"), percent, detail));
    }
}

/// Which amounts of a target each kind of source needs, and which exclude
/// each other.
fn amounts(errors: &mut Errors, kind: &str, target: &Value, path: &str) {
    let has = |field: &str| !at(target, field).is_null();
    let (one, missing, both) = match kind {
        "object" => ("value", ("averageValue", "must set either a target value or averageValue"), None),
        "external" => (
            "value",
            ("averageValue", "must set either a target value for metric or a per-pod target"),
            Some(("value", "may not set both a target value for metric and a per-pod target")),
        ),
        "pods" => ("averageValue", ("averageValue", "must specify a positive target averageValue"), None),
        _ => (
            "averageUtilization",
            ("averageUtilization", "must set either a target raw value or a target utilization"),
            Some(("averageValue", "may not set both a target raw value and a target utilization")),
        ),
    };
    if !has(one) && !has("averageValue") {
        let (field, detail) = missing;
        errors.push(FieldError::required(format!("{path}.{field}"), detail));
    }
    if let Some((field, detail)) = both.filter(|_| has(one) && has("averageValue")) {
        errors.push(FieldError::forbidden(format!("{path}.{field}"), detail));
    }
}
