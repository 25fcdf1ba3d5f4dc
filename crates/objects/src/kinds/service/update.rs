//! What a change of a Service keeps, drops and may not touch (API-366).

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::{is_external, is_headless, needs_cluster_ip, needs_health_port, needs_node_ports};
use crate::doc::{at, items, items_mut, object, text};
use crate::errors::FieldError;

/// Fields that a client left out because the server had filled them in are
/// filled in again; those that the new type has no use for vanish if the client
/// only left them as they were.
pub(super) fn carry_over(doc: &mut Value, old: &Value) {
    sync_addresses(doc, old);
    keep_allocated(doc, old);
    drop_useless(doc, old);
}

/// A client that changed one of the two forms of the address means both.
fn sync_addresses(doc: &mut Value, old: &Value) {
    let (new, before) = (text(doc, "spec.clusterIP").to_owned(), text(old, "spec.clusterIP"));
    if new == before || at(doc, "spec.clusterIPs") != at(old, "spec.clusterIPs") {
        return;
    }
    let spec = object(doc, "spec");
    if new.is_empty() {
        spec.shift_remove("clusterIPs");
    } else {
        spec.insert("clusterIPs".to_owned(), json!([new]));
    }
}

fn keep_allocated(doc: &mut Value, old: &Value) {
    if needs_cluster_ip(doc) && needs_cluster_ip(old) {
        let is_empty = text(doc, "spec.clusterIP").is_empty();
        if is_empty && items(doc, "spec.clusterIPs").is_empty() {
            keep(doc, old, &["clusterIP", "clusterIPs"]);
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if at(doc, &format!("spec.{field}")).is_null() {
                keep(doc, old, &[field]);
            }
        }
    }
    if needs_node_ports(doc) && needs_node_ports(old) {
        let key = |port: &Value| (at(port, "port").as_i64(), text(port, "protocol").to_owned());
        let mut known = HashMap::new();
        for port in items(old, "spec.ports") {
            known.entry(key(port)).or_insert_with(|| at(port, "nodePort").clone());
        }
        let used: HashSet<Option<i64>> =
            items(doc, "spec.ports").iter().map(|port| at(port, "nodePort").as_i64()).collect();
        for port in items_mut(doc, "spec.ports").iter_mut().filter(|port| is_zero(at(port, "nodePort"))) {
            let number = known.get(&key(port));
            if let Some(number) = number.filter(|number| !is_zero(number) && !used.contains(&number.as_i64())) {
                port["nodePort"] = number.clone();
            }
        }
    }
    if needs_health_port(doc) && needs_health_port(old) && is_zero(at(doc, "spec.healthCheckNodePort")) {
        keep(doc, old, &["healthCheckNodePort"]);
    }
}

fn drop_useless(doc: &mut Value, old: &Value) {
    let is_same = |doc: &Value, field: &str| at(doc, &format!("spec.{field}")) == at(old, &format!("spec.{field}"));
    let drop_same = |doc: &mut Value, fields: &[&str]| {
        for field in fields {
            if is_same(doc, field) {
                object(doc, "spec").shift_remove(*field);
            }
        }
    };
    if needs_cluster_ip(old) && !needs_cluster_ip(doc) {
        drop_same(doc, &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if needs_node_ports(old) && !needs_node_ports(doc) && node_ports(old) == node_ports(doc) {
        for port in items_mut(doc, "spec.ports") {
            if let Some(port) = port.as_object_mut() {
                port.shift_remove("nodePort");
            }
        }
    }
    if needs_health_port(old) && !needs_health_port(doc) {
        drop_same(doc, &["healthCheckNodePort"]);
    }
    let is_balanced = |doc: &Value| text(doc, "spec.type") == "LoadBalancer";
    if is_balanced(old) && !is_balanced(doc) {
        drop_same(doc, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_external(old) && !is_external(doc) {
        drop_same(doc, &["externalTrafficPolicy"]);
    }
    if text(doc, "spec.type") == "ExternalName" {
        drop_same(doc, &["internalTrafficPolicy"]);
    }
}

fn keep(doc: &mut Value, old: &Value, fields: &[&str]) {
    for field in fields {
        crate::doc::keep(object(doc, "spec"), at(old, "spec"), field);
    }
}

fn node_ports(doc: &Value) -> Vec<i64> {
    items(doc, "spec.ports").iter().map(|port| at(port, "nodePort").as_i64().unwrap_or(0)).collect()
}

fn is_zero(number: &Value) -> bool {
    number.as_i64().unwrap_or(0) == 0
}

/// API-366. Services that come from or become a mere name are free to change.
pub(super) fn validate(doc: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if needs_cluster_ip(doc) && needs_cluster_ip(old) {
        if !(is_headless(doc) && is_headless(old)) {
            errors.extend(settled(doc, old, "clusterIPs", "clusterIP"));
        }
        errors.extend(settled(doc, old, "ipFamilies", "ipFamily"));
    }
    let class = |doc: &Value| at(doc, "spec.loadBalancerClass").clone();
    let is_balanced = |doc: &Value| text(doc, "spec.type") == "LoadBalancer";
    if is_balanced(doc) && is_balanced(old) && class(doc) != class(old) {
        errors.push(FieldError::invalid("spec.loadBalancerClass", class(doc), "may not change once set"));
    }
    let health = |doc: &Value| at(doc, "spec.healthCheckNodePort").as_i64().unwrap_or(0);
    if needs_health_port(doc) && needs_health_port(old) && health(old) != 0 && health(doc) != health(old) {
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
    errors
}

/// The first of a list stays; a second one may come and go.
fn settled(doc: &Value, old: &Value, list: &str, one: &str) -> Option<FieldError> {
    let path = format!("spec.{list}");
    let (new, before) = (items(doc, &path), items(old, &path));
    match (new.first(), before.first()) {
        (None, Some(_)) => {
            let detail = format!("primary {one} can not be unset");
            Some(FieldError::invalid(format!("{path}[0]"), json!(new), detail))
        }
        (Some(new_first), Some(first)) if new_first != first => {
            Some(FieldError::invalid(format!("{path}[0]"), json!(new), "may not change once set"))
        }
        _ => None,
    }
}
