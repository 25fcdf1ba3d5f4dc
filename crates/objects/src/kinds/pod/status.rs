//! Pod status written through the API: what may not be lost or undone.

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::doc::{self, as_object, at, by, items, object, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::meta::invalid_each;
use crate::names;

use super::features;

/// LC-055, LC-102: clearing the class or an observed generation restores it.
pub(super) fn keep_what_was_cleared(doc: &mut Value, old: &Value) {
    let old_conditions = by(items(old, "status.conditions"), "type");
    for condition in doc::items_mut(doc, "status.conditions") {
        if let Some(known) = old_conditions.get(text(condition, "type")) {
            restore(as_object(condition), known, "observedGeneration");
        }
    }
    let old_status = at(old, "status");
    let status = object(doc, "status");
    restore(status, old_status, "qosClass");
    restore(status, old_status, "observedGeneration");
}

fn restore(new: &mut serde_json::Map<String, Value>, old: &Value, key: &str) {
    if new.get(key).is_none_or(|value| value.is_null() || value == "" || value == 0) {
        doc::keep(new, old, key);
    }
}

/// API-593.
pub(super) fn validate(doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if at(doc, "status.qosClass") != at(old, "status.qosClass") {
        errors.push(FieldError::invalid("status.qosClass", at(doc, "status.qosClass").clone(), "field is immutable"));
    }
    errors.extend(nominated_node(doc, old));
    for list in ["container", "initContainer", "ephemeralContainer"] {
        errors.extend(restarts(doc, old, list, gates));
    }
    for (index, condition) in items(doc, "status.conditions").iter().enumerate() {
        let kind = text(condition, "type");
        invalid_each(&mut errors, &format!("status.conditions[{index}].type"), kind, names::qualified_name(kind));
    }
    errors.extend(addresses(doc, "podIPs"));
    errors.extend(addresses(doc, "hostIPs"));
    let host = items(doc, "status.hostIPs").first().map(|address| text(address, "ip"));
    if let Some(first) = host.filter(|first| *first != text(doc, "status.hostIP")) {
        errors.push(FieldError::invalid("status.hostIPs[0].ip", first, "must be equal to `hostIP`"));
    }
    if at(doc, "status.observedGeneration").as_i64().is_some_and(|generation| generation < 0) {
        let value = at(doc, "status.observedGeneration").clone();
        errors.push(FieldError::invalid("status.observedGeneration", value, "must be greater than or equal to 0"));
    }
    errors
}

fn nominated_node(doc: &Value, old: &Value) -> Vec<FieldError> {
    const PATH: &str = "status.nominatedNodeName";
    let mut errors = Vec::new();
    let node = text(doc, PATH);
    if node.is_empty() {
        return errors;
    }
    invalid_each(&mut errors, PATH, node, names::dns_subdomain(node));
    if !text(old, "spec.nodeName").is_empty() && text(old, PATH).is_empty() {
        errors.push(FieldError::forbidden(PATH, "may not be set on pods that are already bound to a node"));
    }
    errors
}

fn addresses(doc: &Value, list: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (mut v4, mut v6) = (0, 0);
    for (index, address) in items(doc, &format!("status.{list}")).iter().enumerate() {
        let ip = text(address, "ip");
        match ip.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => v4 += 1,
            Ok(IpAddr::V6(_)) => v6 += 1,
            Err(_) => {
                let path = format!("status.{list}[{index}]");
                errors.push(FieldError::invalid(
                    path,
                    ip,
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ));
            }
        }
    }
    if v4 > 1 || v6 > 1 {
        let value = at(doc, &format!("status.{list}")).clone();
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(format!("status.{list}"), value, detail));
    }
    errors
}

/// LC-072: a terminated container may only come back where it can restart.
/// `list` is `container`, `initContainer` or `ephemeralContainer`.
fn restarts(doc: &Value, old: &Value, list: &str, gates: &Gates) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let statuses = format!("status.{list}Statuses");
    let new = items(doc, &statuses);
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (index, after) in new.iter().enumerate() {
        places.entry(text(after, "name")).or_insert(index);
    }
    let specs = by(items(old, &format!("spec.{list}s")), "name");
    let restarts_all = gates.enabled("RestartAllContainersOnContainerExits") && features::uses_restart_all(old);
    for before in items(old, &statuses) {
        let Some(exit) = before.pointer("/state/terminated") else { continue };
        let name = text(before, "name");
        let Some(&index) = places.get(name) else { continue };
        if new[index].pointer("/state/terminated").is_some() {
            continue;
        }
        let code = at(exit, "exitCode").as_i64().unwrap_or(0);
        let may_restart =
            |spec: &&Value| (restarts_all && list != "ephemeralContainer") || may_restart(spec, old, list, code, gates);
        if !specs.get(name).is_some_and(may_restart) {
            errors.push(FieldError::forbidden(
                format!("{statuses}[{index}].state"),
                "may not be transitioned to non-terminated state",
            ));
        }
    }
    errors
}

/// LC-136: rules first, then the container's policy, then the pod's; ephemeral
/// containers never. A completed init container of a pod that can restart may
/// run again after the pod's sandbox was lost.
fn may_restart(container: &Value, pod: &Value, list: &str, code: i64, gates: &Gates) -> bool {
    if list == "ephemeralContainer" {
        return false;
    }
    let own = match text(container, "restartPolicy") {
        "Always" if list == "initContainer" => "Always",
        own if gates.enabled("ContainerRestartRules") => own,
        _ => "",
    };
    let policy = if own.is_empty() { text(pod, "spec.restartPolicy") } else { own };
    match policy {
        _ if !own.is_empty() && restarts_by_rule(container, code) => true,
        "Never" => false,
        "OnFailure" => code != 0 || list == "initContainer",
        _ => true,
    }
}

/// LC-133: the first rule that matches decides. LC-135: here a pod's rules that
/// restart all are of a feature that is off, so they decide nothing.
fn restarts_by_rule(container: &Value, code: i64) -> bool {
    let matches = |rule: &&Value| {
        let is_listed = items(rule, "exitCodes.values").iter().any(|value| value.as_i64() == Some(code));
        match text(rule, "exitCodes.operator") {
            "In" => is_listed,
            "NotIn" => !is_listed,
            _ => false,
        }
    };
    let first = items(container, "restartPolicyRules").iter().find(matches);
    first.is_some_and(|rule| text(rule, "action") == "Restart")
}
