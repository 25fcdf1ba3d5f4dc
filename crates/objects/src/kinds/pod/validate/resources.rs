//! Requests, limits and resize policies (API-527, API-528, API-530).

use std::collections::BTreeSet;

use serde_json::Value;

use super::Errors;
use crate::Quantity;
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::kinds::resource_names::{self, is_huge};

pub(super) fn container(errors: &mut Errors, container: &Value, path: &str, spec: &Value) {
    let resources = at(container, "resources");
    let path_of = format!("{path}.resources");
    list(errors, at(resources, "limits"), &format!("{path_of}.limits"));
    list(errors, at(resources, "requests"), &format!("{path_of}.requests"));
    requests_within_limits(errors, resources, &path_of);
    let names = || {
        ["limits", "requests"].into_iter().flat_map(|list| at(resources, list).as_object()).flat_map(|map| map.keys())
    };
    if names().any(|name| is_huge(name)) && !names().any(|name| name == "cpu" || name == "memory") {
        errors.push(FieldError::forbidden(&path_of, "HugePages require cpu or memory"));
    }
    resize(errors, container, path, spec);
}

pub(in crate::kinds) fn list(errors: &mut Errors, list: &Value, path: &str) {
    for (name, amount) in list.as_object().into_iter().flatten() {
        let path = format!("{path}[{name}]");
        resource_names::container(errors, &path, name);
        let quantity = Quantity::parse(amount.as_str().unwrap_or_default()).unwrap_or_default();
        if quantity.is_negative() {
            errors.push(FieldError::invalid(&path, quantity.to_string(), "must be greater than or equal to 0"));
        }
        if name.contains('/') && !quantity.is_integer() {
            errors.push(FieldError::invalid(&path, quantity.to_string(), "must be an integer"));
        }
    }
}

/// API-528.
pub(super) fn requests_within_limits(errors: &mut Errors, resources: &Value, path: &str) {
    let amount = |value: &Value| Quantity::parse(value.as_str().unwrap_or_default()).unwrap_or_default();
    for (name, request) in at(resources, "requests").as_object().into_iter().flatten() {
        let exact = is_huge(name) || name.contains('/');
        let Some(limit) = at(resources, "limits").get(name) else {
            if exact {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{path}.limits"), detail));
            }
            continue;
        };
        let (request, limit) = (amount(request), amount(limit));
        let detail = match exact {
            true if request != limit => format!("must be equal to {name} limit of {limit}"),
            false if request > limit => format!("must be less than or equal to {name} limit of {limit}"),
            _ => continue,
        };
        errors.push(FieldError::invalid(format!("{path}.requests"), request.to_string(), detail));
    }
}

/// API-530.
fn resize(errors: &mut Errors, container: &Value, path: &str, spec: &Value) {
    let mut seen = BTreeSet::new();
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        let path = format!("{path}.resizePolicy[{index}]");
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        errors.one_of(&format!("{path}.resourceName"), resource, &["cpu", "memory"]);
        errors.one_of(&format!("{path}.restartPolicy"), restart, &["NotRequired", "RestartContainer"]);
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(path.as_str(), resource));
        }
        if text(spec, "restartPolicy") == "Never" && restart == "RestartContainer" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path, restart, detail));
        }
    }
}
