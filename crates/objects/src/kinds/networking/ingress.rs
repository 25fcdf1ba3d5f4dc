//! Ingress and IngressClass: descriptors and rules.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::GROUP;
use crate::api::networking::v1::{Ingress, IngressClass};
use crate::doc::{as_object, at, items, set_default, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::plain::Plain;
use crate::kinds::{Column, Kind, Scope, Subresource, addresses};
use crate::meta::invalid_each;
use crate::names;
use crate::printing::or_none;
use crate::schema::Typed;

/// API-059, API-265.
pub static INGRESS: Kind = Kind {
    short_names: &["ing"],
    subresources: &[Subresource::Status],
    columns: &[
        Column::NAME,
        Column::text("Class", "The name of the IngressClass resource that should be used for additional configuration"),
        Column::text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
        Column::text("Address", "Address is a list containing ingress points for the load-balancer"),
        Column::text("Ports", "Ports of TLS configurations that open"),
        Column::AGE,
    ],
    ..Kind::new(GROUP, ["Ingress", "IngressList", "ingresses", "ingress"], Scope::Namespaced, &INGRESS_OPS)
};

pub static CLASS: Kind = Kind {
    columns: &[
        Column::NAME,
        Column::text("Controller", "Controller that is responsible for handling this class"),
        Column::text("Parameters", "A reference to a resource with additional parameters"),
        Column::AGE,
    ],
    ..Kind::new(
        GROUP,
        ["IngressClass", "IngressClassList", "ingressclasses", "ingressclass"],
        Scope::Cluster,
        &CLASS_OPS,
    )
};

/// Marks the class of ingresses that name none.
pub const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";

/// Whether this class is for ingresses that name none.
pub fn is_default(doc: &Value) -> bool {
    at(doc, "metadata.annotations").get(DEFAULT_ANNOTATION).is_some_and(|value| value == "true")
}

static INGRESS_OPS: Plain = Plain {
    has_generation: true,
    check: create,
    check_update: |errors, doc, _| spec(errors, doc),
    check_status: |errors, doc, _| status(errors, doc),
    first_status: || json!({"loadBalancer": {}}),
    cells: |doc| {
        let ports = if items(doc, "spec.tls").is_empty() { "80" } else { "80, 443" };
        vec![
            json!(or_none(text(doc, "spec.ingressClassName"))),
            json!(hosts(doc)),
            json!(addresses_of(doc)),
            json!(ports),
        ]
    },
    ..Plain::of(&INGRESS, &Typed::<Ingress>::NEW)
};

static CLASS_OPS: Plain = Plain {
    has_generation: true,
    default: |doc| {
        if let Some(parameters) = doc.pointer_mut("/spec/parameters").filter(|it| !it.is_null()) {
            set_default(as_object(parameters), "scope", "Cluster");
        }
    },
    check: class,
    check_update: |errors, doc, old| {
        errors.immutable(doc, old, "spec.controller");
        class(errors, doc);
    },
    is_default,
    cells: |doc| vec![json!(text(doc, "spec.controller")), json!(parameters(doc))],
    ..Plain::of(&CLASS, &Typed::<IngressClass>::NEW)
};

fn create(errors: &mut Errors, doc: &Value) {
    const OLD_WAY: &str = "kubernetes.io/ingress.class";
    spec(errors, doc);
    let old_way = at(doc, "metadata.annotations").get(OLD_WAY).and_then(Value::as_str);
    let class = at(doc, "spec.ingressClassName").as_str();
    if let (Some(old_way), Some(class)) = (old_way, class)
        && old_way != class
    {
        let detail = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(format!("annotations.{OLD_WAY}"), old_way, detail));
    }
}

fn spec(errors: &mut Errors, doc: &Value) {
    let (rules, backend) = (items(doc, "spec.rules"), at(doc, "spec.defaultBackend"));
    if rules.is_empty() && backend.is_null() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", Value::Null, detail));
    }
    if !backend.is_null() {
        check_backend(errors, "spec.defaultBackend", backend);
    }
    for (index, rule) in rules.iter().enumerate() {
        check_rule(errors, &format!("spec.rules[{index}]"), rule);
    }
    for (index, tls) in items(doc, "spec.tls").iter().enumerate() {
        let path = format!("spec.tls[{index}]");
        for (index, host) in items(tls, "hosts").iter().filter_map(Value::as_str).enumerate() {
            check_host(errors, &format!("{path}.hosts[{index}]"), host);
        }
        errors.optional(&format!("{path}.secretName"), text(tls, "secretName"), names::dns_subdomain);
    }
    errors.optional("spec.ingressClassName", text(doc, "spec.ingressClassName"), names::dns_subdomain);
}

fn check_host(errors: &mut Errors, path: &str, host: &str) {
    let problems = if host.contains('*') { names::wildcard_subdomain(host) } else { names::dns_subdomain(host) };
    invalid_each(&mut errors.0, path, host, problems);
}

fn check_rule(errors: &mut Errors, path: &str, rule: &Value) {
    let host = text(rule, "host");
    if !host.is_empty() {
        let path = format!("{path}.host");
        no_address(errors, &path, host);
        check_host(errors, &path, host);
    }
    if at(rule, "http").is_null() {
        return;
    }
    let paths = items(rule, "http.paths");
    if paths.is_empty() {
        errors.push(FieldError::required(format!("{path}.http.paths"), ""));
    }
    for (index, item) in paths.iter().enumerate() {
        check_path(errors, &format!("{path}.http.paths[{index}]"), item);
    }
}

fn no_address(errors: &mut Errors, path: &str, host: &str) {
    if host.parse::<IpAddr>().is_ok() {
        errors.push(FieldError::invalid(path, host, "must be a DNS name, not an IP address"));
    }
}

fn check_path(errors: &mut Errors, path: &str, item: &Value) {
    let (kind, route, at_path) = (text(item, "pathType"), text(item, "path"), format!("{path}.path"));
    let is_exact = matches!(kind, "Exact" | "Prefix");
    match kind {
        "" => {
            return errors.push(FieldError::required(format!("{path}.pathType"), "pathType must be specified"));
        }
        "Exact" | "Prefix" | "ImplementationSpecific" => {
            if !route.starts_with('/') && (is_exact || !route.is_empty()) {
                errors.push(FieldError::invalid(&at_path, route, "must be an absolute path"));
            }
        }
        _ => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(FieldError::not_supported(format!("{path}.pathType"), kind, &known));
        }
    }
    if is_exact {
        for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| route.contains(part)) {
            errors.push(FieldError::invalid(&at_path, route, format!("must not contain '{part}'")));
        }
        for end in ["/..", "/."].into_iter().filter(|end| route.ends_with(end)) {
            errors.push(FieldError::invalid(&at_path, route, format!("cannot end with '{end}'")));
        }
    }
    check_backend(errors, &format!("{path}.backend"), at(item, "backend"));
}

fn check_backend(errors: &mut Errors, path: &str, backend: &Value) {
    let (resource, service) = (at(backend, "resource"), at(backend, "service"));
    match (resource.is_null(), service.is_null()) {
        (false, false) => errors.push(FieldError::invalid(path, "", "cannot set both resource and service backends")),
        (true, true) => errors.push(FieldError::invalid(path, "", "resource or service backend is required")),
        (false, true) => super::reference(errors, &format!("{path}.resource"), resource),
        (true, false) => {
            errors.name(&format!("{path}.service.name"), text(service, "name"), names::dns_1035_label);
            let (name, number) = (text(service, "port.name"), at(service, "port.number").as_i64().unwrap_or(0));
            match (name, number) {
                ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
                (name, 0) => errors.optional(&format!("{path}.service.port.name"), name, names::port_name),
                ("", number) => {
                    let path = format!("{path}.service.port.number");
                    let problems = names::port_number(number).into_iter();
                    errors.0.extend(problems.map(|problem| FieldError::invalid(&path, number, problem)));
                }
                _ => errors.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
            }
        }
    }
}

fn status(errors: &mut Errors, doc: &Value) {
    for (index, point) in items(doc, "status.loadBalancer.ingress").iter().enumerate() {
        let path = format!("status.loadBalancer.ingress[{index}]");
        let (ip, host) = (text(point, "ip"), text(point, "hostname"));
        if !ip.is_empty() {
            errors.0.extend(addresses::valid(&format!("{path}.ip"), ip));
        }
        errors.optional(&format!("{path}.hostname"), host, names::dns_subdomain);
        no_address(errors, &format!("{path}.hostname"), host);
    }
}

/// API-265: the first three, `*` for none.
fn hosts(doc: &Value) -> String {
    const SHOWN: usize = 3;
    let rules = items(doc, "spec.rules");
    let hosts: Vec<&str> = rules.iter().map(|rule| text(rule, "host")).filter(|host| !host.is_empty()).collect();
    let shown = hosts.iter().take(SHOWN).copied().collect::<Vec<_>>().join(",");
    // A rule that comes after the third host is what makes it "more", with a host or without.
    let at_third = rules.iter().enumerate().filter(|(_, rule)| !text(rule, "host").is_empty()).nth(SHOWN - 1);
    match at_third {
        _ if hosts.is_empty() => "*".to_owned(),
        Some((index, _)) if index + 1 < rules.len() => format!("{shown} + {} more...", rules.len() - SHOWN),
        _ => shown,
    }
}

/// Cut to 16 characters, as where Services show theirs.
fn addresses_of(doc: &Value) -> String {
    const WIDTH: usize = 16;
    let points = items(doc, "status.loadBalancer.ingress").iter();
    let shown: BTreeSet<&str> = points
        .map(|point| match text(point, "ip") {
            "" => text(point, "hostname"),
            ip => ip,
        })
        .filter(|shown| !shown.is_empty())
        .collect();
    let all = shown.into_iter().collect::<Vec<_>>().join(",");
    if all.len() > WIDTH { format!("{}...", &all[..all.floor_char_boundary(WIDTH - 3)]) } else { all }
}

fn class(errors: &mut Errors, doc: &Value) {
    const CONTROLLER_MAX: usize = 250;
    let controller = text(doc, "spec.controller");
    if controller.len() > CONTROLLER_MAX {
        errors.push(FieldError::too_long("spec.controller", CONTROLLER_MAX));
    }
    names::domain_path(errors, "spec.controller", controller);
    let parameters = at(doc, "spec.parameters");
    if parameters.is_null() {
        return;
    }
    super::reference(errors, "spec.parameters", parameters);
    let namespace = at(parameters, "namespace");
    match text(parameters, "scope") {
        "Namespace" if namespace.is_null() => {
            let detail = "`parameters.scope` is set to 'Namespace'";
            errors.push(FieldError::required("spec.parameters.namespace", detail));
        }
        "Namespace" => {
            let namespace = namespace.as_str().unwrap_or_default();
            invalid_each(&mut errors.0, "spec.parameters.namespace", namespace, names::dns_label(namespace));
        }
        "Cluster" if !namespace.is_null() => {
            let detail = "`parameters.scope` is set to 'Cluster'";
            errors.push(FieldError::forbidden("spec.parameters.namespace", detail));
        }
        "Cluster" => {}
        scope => errors.push(FieldError::not_supported("spec.parameters.scope", scope, &["Cluster", "Namespace"])),
    }
}

fn parameters(doc: &Value) -> String {
    let parameters = at(doc, "spec.parameters");
    let (kind, group, name) = (text(parameters, "kind"), text(parameters, "apiGroup"), text(parameters, "name"));
    match group {
        _ if parameters.is_null() => "<none>".to_owned(),
        "" => format!("{kind}/{name}"),
        group => format!("{kind}.{group}/{name}"),
    }
}
