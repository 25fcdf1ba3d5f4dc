//! Where a pod wants to run, and next to whom (API-554 to API-557).

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError};
use crate::meta::{self, invalid_each};
use crate::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn all(errors: &mut Errors, spec: &Value) {
    node(errors, at(spec, "affinity.nodeAffinity"));
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (affinity, path) = (at(at(spec, "affinity"), kind), format!("spec.affinity.{kind}"));
        for (index, term) in items(affinity, REQUIRED).iter().enumerate() {
            pod_term(errors, term, &format!("{path}.{REQUIRED}[{index}]"));
        }
        for (index, weighted) in items(affinity, PREFERRED).iter().enumerate() {
            let path = format!("{path}.{PREFERRED}[{index}]");
            weight(errors, weighted, &path);
            pod_term(errors, at(weighted, "podAffinityTerm"), &format!("{path}.podAffinityTerm"));
        }
    }
    let constraints = items(spec, "topologySpreadConstraints");
    let mut same: HashMap<[&str; 2], usize> = HashMap::new();
    for constraint in constraints {
        *same.entry(spread_key(constraint)).or_default() += 1;
    }
    for (index, constraint) in constraints.iter().enumerate() {
        let later = same.entry(spread_key(constraint)).or_default();
        *later -= 1;
        spread(errors, constraint, *later > 0, &format!("spec.topologySpreadConstraints[{index}]"));
    }
}

/// API-554.
fn node(errors: &mut Errors, affinity: &Value) {
    let path = "spec.affinity.nodeAffinity";
    let required = at(affinity, REQUIRED);
    if !required.is_null() {
        let (path, terms) = (format!("{path}.{REQUIRED}.nodeSelectorTerms"), items(required, "nodeSelectorTerms"));
        if terms.is_empty() {
            errors.push(FieldError::required(&path, "must have at least one node selector term"));
        }
        for (index, term) in terms.iter().enumerate() {
            node_term(errors, term, &format!("{path}[{index}]"));
        }
    }
    for (index, weighted) in items(affinity, PREFERRED).iter().enumerate() {
        let path = format!("{path}.{PREFERRED}[{index}]");
        weight(errors, weighted, &path);
        node_term(errors, at(weighted, "preference"), &format!("{path}.preference"));
    }
}

/// API-555.
fn weight(errors: &mut Errors, weighted: &Value, path: &str) {
    let weight = at(weighted, "weight").as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(format!("{path}.weight"), weight, "must be in the range 1-100"));
    }
}

fn node_term(errors: &mut Errors, term: &Value, path: &str) {
    for (index, expression) in items(term, "matchExpressions").iter().enumerate() {
        node_expression(errors, expression, &format!("{path}.matchExpressions[{index}]"));
    }
    for (index, field) in items(term, "matchFields").iter().enumerate() {
        node_field(errors, field, &format!("{path}.matchFields[{index}]"));
    }
}

fn node_expression(errors: &mut Errors, expression: &Value, path: &str) {
    let values = items(expression, "values");
    let value_path = format!("{path}.values");
    match text(expression, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&value_path, detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&value_path, detail));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(&value_path, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(FieldError::invalid(format!("{path}.operator"), other, "not a valid selector operator")),
    }
    let key = text(expression, "key");
    invalid_each(&mut errors.0, &format!("{path}.key"), key, names::qualified_name(key));
    for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
        invalid_each(&mut errors.0, &format!("{value_path}[{index}]"), value, names::label_value(value));
    }
}

/// Nodes have one field that can be selected by: their name.
fn node_field(errors: &mut Errors, field: &Value, path: &str) {
    let (values, key) = (items(field, "values"), text(field, "key"));
    match text(field, "operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(format!("{path}.values"), detail));
        }
        "In" | "NotIn" => {}
        other => errors.push(FieldError::invalid(format!("{path}.operator"), other, "not a valid selector operator")),
    }
    if key != "metadata.name" {
        errors.push(FieldError::invalid(format!("{path}.key"), key, "not a valid field selector key"));
        return;
    }
    for (index, name) in values.iter().filter_map(Value::as_str).enumerate() {
        invalid_each(&mut errors.0, &format!("{path}.values[{index}]"), name, names::dns_subdomain(name));
    }
}

/// API-556.
fn pod_term(errors: &mut Errors, term: &Value, path: &str) {
    for field in ["labelSelector", "namespaceSelector"] {
        errors.0.extend(meta::label_selector(at(term, field), &format!("{path}.{field}")));
    }
    for name in items(term, "namespaces").iter().filter_map(Value::as_str) {
        invalid_each(&mut errors.0, &format!("{path}.namespace"), name, names::dns_label(name));
    }
    label_keys(errors, term, path);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
    }
    invalid_each(&mut errors.0, &format!("{path}.topologyKey"), key, names::qualified_name(key));
}

/// Keys whose values come from the pod itself. They are in the selector
/// already, put there before this check; twice is once too often.
fn label_keys(errors: &mut Errors, term: &Value, path: &str) {
    let selector = at(term, "labelSelector");
    let keys = |field: &str| items(term, field).iter().filter_map(Value::as_str).collect::<Vec<_>>();
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = format!("{path}.{field}");
        if !keys(field).is_empty() && selector.is_null() {
            errors.push(FieldError::forbidden(path, "must not be specified when labelSelector is not set"));
            continue;
        }
        for (index, key) in keys(field).into_iter().enumerate() {
            invalid_each(&mut errors.0, &format!("{path}[{index}]"), key, names::qualified_name(key));
        }
    }
    let matched = keys("matchLabelKeys");
    let mismatched: HashSet<&str> = keys("mismatchLabelKeys").into_iter().collect();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (index, key) in matched.iter().enumerate() {
        places.entry(key).or_insert(index);
    }
    let mut seen: HashSet<&str> =
        at(selector, "matchLabels").as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    for key in items(selector, "matchExpressions").iter().map(|expression| text(expression, "key")) {
        if let Some(index) = places.get(key).filter(|_| seen.contains(key)) {
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.push(FieldError::invalid(format!("{path}[{index}]"), key, detail));
        }
        seen.insert(key);
    }
    for (index, key) in matched.iter().enumerate().filter(|(_, key)| mismatched.contains(**key)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.push(FieldError::invalid(format!("{path}.matchLabelKeys[{index}]"), *key, detail));
    }
}

fn spread_key(constraint: &Value) -> [&str; 2] {
    ["topologyKey", "whenUnsatisfiable"].map(|field| text(constraint, field))
}

/// API-557.
fn spread(errors: &mut Errors, constraint: &Value, comes_again: bool, path: &str) {
    let positive = |errors: &mut Errors, field: &str| {
        let number = at(constraint, field).as_i64().unwrap_or(0);
        if number <= 0 {
            errors.push(FieldError::invalid(format!("{path}.{field}"), number, "must be greater than zero"));
        }
    };
    positive(errors, "maxSkew");
    let (key, when) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
    }
    let known = ["DoNotSchedule", "ScheduleAnyway"];
    if !known.contains(&when) {
        errors.push(FieldError::not_supported(format!("{path}.whenUnsatisfiable"), when, &known));
    }
    if comes_again {
        let path = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
        errors.push(FieldError::duplicate(path, format!("{{{key}, {when}}}")));
    }
    if !at(constraint, "minDomains").is_null() {
        positive(errors, "minDomains");
        if when != "DoNotSchedule" {
            let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}");
            errors.push(FieldError::invalid(
                format!("{path}.minDomains"),
                at(constraint, "minDomains").clone(),
                detail,
            ));
        }
    }
    for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let (policy, known) = (text(constraint, field), ["Honor", "Ignore"]);
        if !at(constraint, field).is_null() && !known.contains(&policy) {
            errors.push(FieldError::not_supported(format!("{path}.{field}"), policy, &known));
        }
    }
    label_keys(errors, constraint, path);
    errors.0.extend(meta::label_selector(at(constraint, "labelSelector"), &format!("{path}.labelSelector")));
}
