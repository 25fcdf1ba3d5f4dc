//! What a pod asks for as a whole: claims of devices, resources of the pod,
//! overhead (API-529, API-564 to API-566).

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::resources;
use crate::Quantity;
use crate::api::core::v1::PodSpec;
use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError, clipped};
use crate::kinds::resource_names::is_huge;
use crate::meta::invalid_each;
use crate::names;

pub(super) fn all(errors: &mut Errors, spec: &Value) {
    claims(errors, spec);
    // API-564: checked as if it were limits, and upstream says so.
    resources::list(errors, at(spec, "overhead"), "spec.overhead.limits");
    if !at(spec, "resources").is_null() {
        pod_level(errors, spec);
    }
}

/// API-566.
fn claims(errors: &mut Errors, spec: &Value) {
    let mut seen = BTreeSet::new();
    for (index, claim) in items(spec, "resourceClaims").iter().enumerate() {
        let (path, name) = (format!("spec.resourceClaims[{index}]"), text(claim, "name"));
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        } else {
            errors.name(&format!("{path}.name"), name, names::dns_label);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let given: Vec<&str> = sources.into_iter().filter(|field| !at(claim, field).is_null()).collect();
        let detail = match given.len() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        if !detail.is_empty() {
            errors.push(FieldError::invalid(&path, claim.clone(), detail));
        }
        for field in given {
            let name = text(claim, field);
            invalid_each(&mut errors.0, &format!("{path}.{field}"), name, names::dns_subdomain(name));
        }
    }
}

/// How much of the names that could have been meant is told.
const NAMES_BYTES_MAX: usize = 1_024;

/// API-529: the claims one container uses are among those of its pod.
pub(super) fn of_container(errors: &mut Errors, container: &Value, path: &str, spec: &Value) {
    let mut known: Vec<&str> = items(spec, "resourceClaims").iter().map(|claim| text(claim, "name")).collect();
    known.sort_unstable();
    known.dedup();
    let names = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
    let names = clipped(&names, NAMES_BYTES_MAX);
    // By claim: which requests of it.
    let mut seen: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (index, claim) in items(container, "resources.claims").iter().enumerate() {
        let path = format!("{path}.resources.claims[{index}]");
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        errors.optional(&format!("{path}.request"), request, names::dns_label);
        // All of a claim is more than one request of it.
        let others = seen.entry(name).or_default();
        let is_alone = others.is_empty();
        let overlaps = others.contains("") || request.is_empty() || others.contains(request);
        others.insert(request);
        if !is_alone && overlaps {
            let value = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
            errors.push(FieldError::duplicate(&path, value));
        }
        if known.binary_search(&name).is_err() {
            let detail = "must be one of the names in pod.spec.resourceClaims";
            errors.push(FieldError { detail: format!("{detail}{names}"), ..FieldError::not_found(path, name) });
        }
    }
}

/// API-565.
fn pod_level(errors: &mut Errors, spec: &Value) {
    const PATH: &str = "spec.resources";
    if text(spec, "os.name") == "windows" {
        errors.push(FieldError::forbidden(PATH, "may not be set for a windows pod"));
        return;
    }
    let own = at(spec, "resources");
    if !items(own, "claims").is_empty() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.push(FieldError::forbidden(format!("{PATH}.claims"), detail));
    }
    for kind in ["limits", "requests"] {
        for (name, _) in at(own, kind).as_object().into_iter().flatten() {
            if !matches!(name.as_str(), "cpu" | "memory") && !is_huge(name) {
                let known = ["cpu", "hugepages-", "memory"];
                errors.push(FieldError::not_supported(format!("{PATH}.{kind}[{name}]"), name.as_str(), &known));
            }
        }
    }
    resources::requests_within_limits(errors, own, PATH);
    let amount = |list: &Value, name: &str| Quantity::parse(list.get(name)?.as_str()?).ok();
    let typed: PodSpec = serde::Deserialize::deserialize(spec).unwrap_or_default();
    for (name, summed) in crate::requests::of_containers(&typed) {
        if let Some(wanted) = amount(at(own, "requests"), &name).filter(|wanted| summed > *wanted) {
            let detail = format!("must be greater than or equal to aggregate container requests of {summed}");
            errors.push(FieldError::invalid(format!("{PATH}.requests[{name}]"), wanted.to_string(), detail));
        }
    }
    for (index, container) in items(spec, "containers").iter().enumerate() {
        for name in at(container, "resources.limits").as_object().into_iter().flatten().map(|(name, _)| name) {
            let (limit, most) = (amount(at(container, "resources.limits"), name), amount(at(own, "limits"), name));
            if let (Some(limit), Some(most)) = (limit, most)
                && limit > most
            {
                // Upstream's path, odd as it is.
                let path = format!("{PATH}.containers[{index}][{name}].limits");
                let detail = format!("must be less than or equal to pod limits of {most}");
                errors.push(FieldError::invalid(path, limit.to_string(), detail));
            }
        }
    }
}
