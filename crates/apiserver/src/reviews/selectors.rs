//! Selectors in questions about accesses (API-676): what narrows the question,
//! and what does not make sense. What a newer client says and we do not know
//! is ignored, and told: the question only becomes broader by that.

use objects::{FieldError, FieldSelector, LabelSelector};
use serde_json::Value;

use super::texts;
use crate::object;

const PATH: &str = "spec.resourceAttributes";

fn requirements(selector: &Value) -> &[Value] {
    selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What is wrong with either selector.
pub(super) fn problems(attributes: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, is_label) in [("fieldSelector", false), ("labelSelector", true)] {
        let (selector, path) = (&attributes[name], format!("{PATH}.{name}"));
        if selector.is_null() {
            continue;
        }
        let (raw, requirements) = (object::text(selector, &["rawSelector"]), requirements(selector));
        if !raw.is_empty() && !requirements.is_empty() {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, detail));
        }
        if raw.is_empty() && requirements.is_empty() {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), detail));
        }
        for (index, requirement) in requirements.iter().enumerate() {
            errors.extend(of_requirement(requirement, &format!("{path}.requirements[{index}]"), is_label));
        }
    }
    errors
}

fn of_requirement(requirement: &Value, path: &str, is_label: bool) -> Vec<FieldError> {
    let (key, values) = (object::text(requirement, &["key"]), texts(&requirement["values"]));
    let mut errors = Vec::new();
    if !is_label && key.is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
    }
    match object::text(requirement, &["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(format!("{path}.values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{path}.values"), detail));
        }
        _ => {}
    }
    if is_label {
        let wrong = |path: String, value: &str, details: Vec<String>| {
            let value = value.to_owned();
            details.into_iter().map(move |detail| FieldError::invalid(path.clone(), value.as_str(), detail))
        };
        errors.extend(wrong(format!("{path}.key"), key, objects::names::qualified_name(key)));
        for (index, value) in values.iter().enumerate() {
            errors.extend(wrong(format!("{path}.values[{index}]"), value, objects::names::label_value(value)));
        }
    }
    errors
}

/// What is left of a selector of fields, and whether all of it is.
pub(super) fn fields(selector: &Value) -> (FieldSelector, bool) {
    let raw = object::text(selector, &["rawSelector"]);
    if !raw.is_empty() {
        let parsed = FieldSelector::parse(raw);
        return (parsed.clone().unwrap_or_default(), parsed.is_ok());
    }
    let of = |requirement: &Value| {
        let (key, values) = (object::text(requirement, &["key"]), texts(&requirement["values"]));
        match (object::text(requirement, &["operator"]), &values[..]) {
            ("In", [value]) => Some(format!("{key}={value}")),
            ("NotIn", [value]) => Some(format!("{key}!={value}")),
            _ => None,
        }
    };
    let all = requirements(selector);
    let terms: Vec<String> = all.iter().filter_map(of).collect();
    let parsed = FieldSelector::parse(&terms.join(","));
    (parsed.clone().unwrap_or_default(), parsed.is_ok() && terms.len() == all.len())
}

/// How many requirements of a selector of labels we understand, and whether that is all.
fn labels(selector: &Value) -> (usize, bool) {
    let raw = object::text(selector, &["rawSelector"]);
    if !raw.is_empty() {
        return (0, LabelSelector::parse(raw).is_ok());
    }
    let all = requirements(selector);
    let is_known = |requirement: &&Value| {
        let operator = object::text(requirement, &["operator"]);
        ["In", "NotIn", "Exists", "DoesNotExist"].contains(&operator)
    };
    let known = all.iter().filter(is_known).count();
    (known, known == all.len())
}

/// What is said about selectors that were not understood.
pub(super) fn ignored(attributes: &Value) -> String {
    let (of_fields, of_labels) = (&attributes["fieldSelector"], &attributes["labelSelector"]);
    let (fields, is_all) = fields(of_fields);
    let (known, is_every) = labels(of_labels);
    let told = |name: &str, is_partly: bool| {
        let how = if is_partly { "partially ignored" } else { "ignored" };
        format!("{PATH}.{name} {how} due to parse error")
    };
    let mut all = Vec::new();
    if !is_all {
        all.push(told("fieldSelector", !fields.is_empty()));
    }
    if !is_every {
        all.push(told("labelSelector", known > 0));
    }
    all.join("; ")
}
