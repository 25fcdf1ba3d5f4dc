//! ResourceQuota: descriptor and rules (API-766). What counts against it is in
//! `quota.rs`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::plain::Plain;
use super::resource_names;
use crate::Quantity;
use crate::api::core::v1::ResourceQuota;
use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::{Column, Kind, Scope, Subresource};
use crate::schema::Typed;

/// API-042, API-261.
pub static KIND: Kind = Kind {
    short_names: &["quota"],
    subresources: &[Subresource::Status],
    columns: &[
        Column::NAME,
        Column::text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
        Column::text(
            "Limit",
            "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
        ),
        Column::AGE,
    ],
    ..Kind::new("", ["ResourceQuota", "ResourceQuotaList", "resourcequotas", "resourcequota"], Scope::Namespaced, &OPS)
};

static OPS: Plain = Plain {
    check: spec,
    check_update: update,
    check_status: |errors, doc, _| {
        amounts(errors, doc, "status.hard");
        amounts(errors, doc, "status.used");
    },
    cells,
    ..Plain::of(&KIND, &Typed::<ResourceQuota>::NEW)
};

fn spec(errors: &mut Errors, doc: &Value) {
    amounts(errors, doc, "spec.hard");
    scopes(errors, doc);
    selector(errors, doc);
}

fn amounts(errors: &mut Errors, doc: &Value, path: &str) {
    for (name, amount) in at(doc, path).as_object().into_iter().flatten() {
        let path = format!("{path}[{name}]");
        resource_names::quota(errors, &path, name);
        let quantity = Quantity::parse(amount.as_str().unwrap_or_default()).unwrap_or_default();
        if quantity.is_negative() {
            errors.push(FieldError::invalid(&path, quantity.to_string(), "must be greater than or equal to 0"));
        }
        if resource_names::is_integer(name) && !quantity.is_integer() {
            errors.push(FieldError::invalid(&path, quantity.to_string(), "must be an integer"));
        }
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// Whether a scope says something about objects that need this resource.
fn fits(scope: &str, resource: &str) -> bool {
    const COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&resource),
        _ if SCOPES.contains(&scope) => resource == "pods" || COMPUTE.contains(&resource),
        _ => true,
    }
}

/// The limited resources a scope does not fit to.
fn misfits<'a>(doc: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a String> {
    let limited = at(doc, "spec.hard").as_object().into_iter().flatten().map(|(name, _)| name);
    limited.filter(move |name| resource_names::is_standard_for_quotas(name) && !fits(scope, name))
}

fn conflict(names: &BTreeSet<&str>) -> bool {
    [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]]
        .iter()
        .any(|pair| pair.iter().all(|scope| names.contains(scope)))
}

fn scopes(errors: &mut Errors, doc: &Value) {
    const PATH: &str = "spec.scopes";
    let names: Vec<&str> = items(doc, PATH).iter().filter_map(Value::as_str).collect();
    let mut refuse = |detail: &str| errors.push(FieldError::invalid(PATH, at(doc, PATH).clone(), detail));
    // Each problem shows all scopes, and so is said once for each that exists.
    let (mut seen, mut is_told) = (BTreeSet::new(), false);
    for scope in &names {
        if !SCOPES.contains(scope) && !std::mem::replace(&mut is_told, true) {
            refuse("unsupported scope");
        }
        if SCOPES.contains(scope) && seen.insert(*scope) && misfits(doc, scope).next().is_some() {
            refuse("unsupported scope applied to resource");
        }
    }
    if conflict(&names.into_iter().collect()) {
        refuse("conflicting scopes");
    }
}

fn selector(errors: &mut Errors, doc: &Value) {
    const PATH: &str = "spec.scopeSelector.matchExpressions";
    let wanted = items(doc, PATH);
    let mut seen = BTreeSet::new();
    for term in wanted {
        let (scope, operator, values) = (text(term, "scopeName"), text(term, "operator"), items(term, "values"));
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(format!("{PATH}.scopeName"), scope, "unsupported scope"));
        }
        if SCOPES.contains(&scope) && seen.insert(scope) && misfits(doc, scope).next().is_some() {
            let value = at(doc, "spec.scopeSelector").clone();
            errors.push(FieldError::invalid(PATH, value, "unsupported scope applied to resource"));
        }
        let is_yes_or_no = !["PriorityClass", "VolumeAttributesClass"].contains(&scope) && SCOPES.contains(&scope);
        if is_yes_or_no && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(format!("{PATH}.operator"), operator, detail));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(format!("{PATH}.values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(format!("{PATH}.values"), json!(values), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                errors.push(FieldError::invalid(format!("{PATH}.operator"), operator, "not a valid selector operator"));
            }
        }
    }
    if conflict(&wanted.iter().map(|term| text(term, "scopeName")).collect()) {
        errors.push(FieldError::invalid(PATH, at(doc, "spec.scopes").clone(), "conflicting scopes"));
    }
}

/// API-379: scopes stay.
fn update(errors: &mut Errors, doc: &Value, old: &Value) {
    spec(errors, doc);
    let set = |doc: &Value| -> BTreeSet<String> {
        items(doc, "spec.scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if set(doc) != set(old) {
        errors.push(FieldError::invalid("spec.scopes", at(doc, "spec.scopes").clone(), "field is immutable"));
    }
}

fn cells(doc: &Value) -> Vec<Value> {
    let mut names: Vec<&String> =
        at(doc, "status.hard").as_object().into_iter().flatten().map(|(name, _)| name).collect();
    names.sort();
    let amount = |list: &str, name: &str| at(doc, list).get(name).and_then(Value::as_str).unwrap_or("0").to_owned();
    let shown = |name: &&String| format!("{name}: {}/{}", amount("status.used", name), amount("status.hard", name));
    let (limits, requests): (Vec<&String>, Vec<&String>) =
        names.into_iter().partition(|name| name.starts_with("limits."));
    [requests, limits].map(|names| json!(names.iter().map(shown).collect::<Vec<_>>().join(", "))).into()
}
