//! What the four kinds of `rbac.authorization.k8s.io` share: rules, subjects
//! and references to roles.

use serde_json::{Value, json};

use crate::doc::{as_object, at, items, items_mut, object, set_default, text};
use crate::errors::FieldError;
use crate::names;

pub mod binding;
pub mod role;

pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Rules of a role. Those of a namespace can not speak of paths.
fn check_rules(doc: &Value, is_namespaced: bool) -> Vec<FieldError> {
    let rules = items(doc, "rules").iter().enumerate();
    rules.flat_map(|(index, rule)| check_rule(rule, is_namespaced, &format!("rules[{index}]"))).collect()
}

fn check_rule(rule: &Value, is_namespaced: bool, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let is_empty = |key: &str| items(rule, key).is_empty();
    if is_empty("verbs") {
        errors.push(FieldError::required(format!("{path}.verbs"), "verbs must contain at least one value"));
    }
    if !is_empty("nonResourceURLs") {
        let mut refuse = |detail: &str| {
            let value = at(rule, "nonResourceURLs").clone();
            errors.push(FieldError::invalid(format!("{path}.nonResourceURLs"), value, detail));
        };
        if is_namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].into_iter().any(|key| !is_empty(key)) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return errors;
    }
    for (key, detail) in [
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ] {
        if is_empty(key) {
            errors.push(FieldError::required(format!("{path}.{key}"), detail));
        }
    }
    errors
}

/// API-741.
fn default_binding(doc: &mut Value) {
    let role = object(doc, "roleRef");
    if role.get("apiGroup").is_none_or(|group| group == "") {
        role.insert("apiGroup".to_owned(), json!(GROUP));
    }
    for subject in items_mut(doc, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set_default(as_object(subject), "apiGroup", GROUP);
        }
    }
}

/// The role and the subjects of a binding.
fn check_binding(doc: &Value, roles: &[&str], is_namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (group, kind, name) = (text(doc, "roleRef.apiGroup"), text(doc, "roleRef.kind"), text(doc, "roleRef.name"));
    if group != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", group, &[GROUP]));
    }
    if !roles.contains(&kind) {
        errors.push(FieldError::not_supported("roleRef.kind", kind, roles));
    }
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    errors.extend(names::path_segment(name).into_iter().map(|text| FieldError::invalid("roleRef.name", name, text)));
    for (index, subject) in items(doc, "subjects").iter().enumerate() {
        errors.extend(check_subject(subject, is_namespaced, &format!("subjects[{index}]")));
    }
    errors
}

fn check_subject(subject: &Value, is_namespaced: bool, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (kind, name, group) = (text(subject, "kind"), text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                let problems = names::dns_subdomain(name).into_iter();
                errors.extend(problems.map(|text| FieldError::invalid(format!("{path}.name"), name, text)));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), group, &[""]));
            }
            if !is_namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" if group == GROUP => {}
        "User" | "Group" => {
            errors.push(FieldError::not_supported(format!("{path}.apiGroup"), group, &[GROUP]));
        }
        other => {
            let known = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(format!("{path}.kind"), other, &known));
        }
    }
    errors
}

/// API-375: whoever wants another role deletes the binding.
fn check_same_role(doc: &Value, old: &Value) -> Option<FieldError> {
    let (new, old) = (at(doc, "roleRef"), at(old, "roleRef"));
    (new != old).then(|| FieldError::invalid("roleRef", new.clone(), "cannot change roleRef"))
}

/// Subjects of one kind, as a cell shows them.
fn subjects_of(doc: &Value, kind: &str) -> String {
    let of_kind = items(doc, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
    let shown = of_kind.map(|subject| match (kind, text(subject, "namespace"), text(subject, "name")) {
        ("ServiceAccount", namespace, name) => format!("{namespace}/{name}"),
        (_, _, name) => name.to_owned(),
    });
    shown.collect::<Vec<_>>().join(", ")
}
