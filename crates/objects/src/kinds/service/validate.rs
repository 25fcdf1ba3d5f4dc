//! What a Service must look like (API-752), in upstream's order and words.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::{is_external, is_headless, needs_health_port};
use crate::doc::{at, items, text};
use crate::errors::FieldError;
use crate::kinds::addresses;
use crate::meta::{self, invalid_each};
use crate::names;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
pub(in crate::kinds) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
/// Load balancers must not lead to the node agent.
const KUBELET_PORT: i64 = 10_250;
const AFFINITY_SECONDS_MAX: i64 = 86_400;

pub(super) fn spec(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(doc, "spec.type");
    if items(doc, "spec.ports").is_empty() && !is_headless(doc) && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    errors.extend(of_type(doc));
    errors.extend(ports(doc));
    errors.extend(meta::labels(at(doc, "spec.selector"), "spec.selector"));
    errors.extend(affinity(doc));
    errors.extend(cluster_ips(doc));
    for (index, ip) in items(doc, "spec.externalIPs").iter().filter_map(Value::as_str).enumerate() {
        errors.extend(addresses::endpoint(&format!("spec.externalIPs[{index}]"), ip));
    }
    errors.extend(choice("spec.type", kind, &TYPES));
    if kind == "ClusterIP" {
        errors.extend(no_node_ports(doc));
    }
    errors.extend(duplicates(doc));
    errors.extend(load_balancer(doc));
    errors.extend(external_traffic(doc));
    if kind != "ExternalName" {
        errors.extend(choice(
            "spec.internalTrafficPolicy",
            text(doc, "spec.internalTrafficPolicy"),
            &["Cluster", "Local"],
        ));
    }
    let distribution = text(doc, "spec.trafficDistribution");
    let known = ["PreferClose", "PreferSameNode", "PreferSameZone"];
    if !distribution.is_empty() && !known.contains(&distribution) {
        errors.push(FieldError::not_supported("spec.trafficDistribution", distribution, &known));
    }
    errors
}

/// One of `supported`, and not nothing.
fn choice(path: &str, value: &str, supported: &[&str]) -> Option<FieldError> {
    match value {
        "" => Some(FieldError::required(path, "")),
        value if !supported.contains(&value) => Some(FieldError::not_supported(path, value, supported)),
        _ => None,
    }
}

fn of_type(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(doc, "spec.type");
    match kind {
        "LoadBalancer" | "NodePort" => {
            if kind == "LoadBalancer" {
                errors.extend(kubelet_ports(doc));
            }
            if is_headless(doc) {
                let detail = format!("may not be set to 'None' for {kind} services");
                errors.push(FieldError::invalid("spec.clusterIPs[0]", super::HEADLESS, detail));
            }
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let path = format!("spec.{field}");
                if !at(doc, &path).is_null() {
                    errors.push(FieldError::forbidden(path, "may not be set for ExternalName services"));
                }
            }
            // The name may end with a dot: it is whole then.
            match text(doc, "spec.externalName").trim_end_matches('.') {
                "" => errors.push(FieldError::required("spec.externalName", "")),
                name => invalid_each(&mut errors, "spec.externalName", name, names::dns_subdomain(name)),
            }
        }
        _ => {}
    }
    errors
}

fn kubelet_ports(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, port) in items(doc, "spec.ports").iter().enumerate() {
        if at(port, "port") == KUBELET_PORT {
            let detail = format!("may not expose port {KUBELET_PORT} externally since it is used by kubelet");
            errors.push(FieldError::invalid(format!("spec.ports[{index}]"), KUBELET_PORT, detail));
        }
    }
    errors
}

fn ports(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    let list = items(doc, "spec.ports");
    for (index, port) in list.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        match text(port, "name") {
            "" if list.len() > 1 => errors.push(FieldError::required(format!("{path}.name"), "")),
            "" => {}
            name => {
                invalid_each(&mut errors, &format!("{path}.name"), name, names::dns_label(name));
                if !seen.insert(name) {
                    errors.push(FieldError::duplicate(format!("{path}.name"), name));
                }
            }
        }
        errors.extend(number(&format!("{path}.port"), at(port, "port")));
        errors.extend(choice(&format!("{path}.protocol"), text(port, "protocol"), &PROTOCOLS));
        match at(port, "targetPort") {
            Value::String(name) => {
                invalid_each(&mut errors, &format!("{path}.targetPort"), name, names::port_name(name));
            }
            target => errors.extend(number(&format!("{path}.targetPort"), target)),
        }
        if let Some(protocol) = at(port, "appProtocol").as_str() {
            let path = format!("{path}.appProtocol");
            invalid_each(&mut errors, &path, protocol, names::qualified_name(protocol));
        }
    }
    errors
}

fn number(path: &str, value: &Value) -> Vec<FieldError> {
    let number = value.as_i64().unwrap_or(0);
    names::port_number(number).into_iter().map(|problem| FieldError::invalid(path, number, problem)).collect()
}

fn affinity(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(doc, "spec.sessionAffinity");
    errors.extend(choice("spec.sessionAffinity", kind, &["ClientIP", "None"]));
    const TIMEOUT: &str = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    match kind {
        "ClientIP" => match at(doc, TIMEOUT).as_i64() {
            None => errors.push(FieldError::required(TIMEOUT, "when session affinity type is ClientIP")),
            Some(seconds) if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds) => {
                let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                errors.push(FieldError::invalid(TIMEOUT, seconds, detail));
            }
            Some(_) => {}
        },
        "None" if !at(doc, "spec.sessionAffinityConfig").is_null() => {
            let detail = "must not be set when session affinity is None";
            errors.push(FieldError::forbidden("spec.sessionAffinityConfig", detail));
        }
        _ => {}
    }
    errors
}

/// The addresses and families among themselves; whether this cluster has such
/// families is for those who give addresses out.
pub fn cluster_ips(doc: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.clusterIPs";
    if text(doc, "spec.type") == "ExternalName" {
        return Vec::new();
    }
    let ips: Vec<&str> = items(doc, PATH).iter().filter_map(Value::as_str).collect();
    let mut errors = Vec::new();
    match (text(doc, "spec.clusterIP"), ips.first()) {
        ("", Some(_)) => {
            errors.push(FieldError::invalid(PATH, json!(ips), "must be empty when `clusterIP` is not specified"));
        }
        ("", None) => {}
        (_, None) => errors.push(FieldError::required(PATH, "")),
        (ip, Some(first)) if ip != *first => {
            errors.push(FieldError::invalid(PATH, json!(ips), "first value must match `clusterIP`"));
        }
        _ => {}
    }
    errors.extend(families(doc));
    let policy = text(doc, "spec.ipFamilyPolicy");
    if !policy.is_empty() && !FAMILY_POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", policy, &FAMILY_POLICIES));
    }
    let bad = bad_ips(&ips);
    let is_bad = !bad.is_empty();
    errors.extend(bad);
    if ips.len() > 2 {
        errors.push(FieldError::invalid(PATH, json!(ips), "may only hold up to 2 values"));
    }
    if !is_bad {
        errors.extend(fitting_families(doc, &ips));
    }
    errors
}

fn families(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, family) in items(doc, "spec.ipFamilies").iter().filter_map(Value::as_str).enumerate() {
        let path = format!("spec.ipFamilies[{index}]");
        if !FAMILIES.contains(&family) {
            errors.push(FieldError::not_supported(path.clone(), family, &FAMILIES));
        }
        if !seen.insert(family) {
            errors.push(FieldError::duplicate(path, family));
        }
    }
    errors
}

fn bad_ips(ips: &[&str]) -> Vec<FieldError> {
    if let [super::HEADLESS, _, ..] = ips {
        return vec![FieldError::invalid("spec.clusterIPs", json!(ips), "'None' must be the first and only value")];
    }
    let checked = ips.iter().enumerate().filter(|(index, ip)| *index > 0 || **ip != super::HEADLESS);
    checked.filter_map(|(index, ip)| addresses::valid(&format!("spec.clusterIPs[{index}]"), ip)).collect()
}

fn fitting_families(doc: &Value, ips: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let is_v6 = |ip: &&str| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    let six = ips.iter().filter(|ip| is_v6(ip)).count();
    if ips.len() > 1 && (six == 0 || six == ips.len()) {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid("spec.clusterIPs", json!(ips), detail));
    }
    if is_headless(doc) {
        return errors;
    }
    for (index, (ip, family)) in ips.iter().zip(items(doc, "spec.ipFamilies")).enumerate() {
        let is_fitting = (family == "IPv6") == is_v6(ip);
        if !is_fitting && let Some(family) = family.as_str() {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), *ip, detail));
        }
    }
    errors
}

fn no_node_ports(doc: &Value) -> Vec<FieldError> {
    let ports = items(doc, "spec.ports").iter().enumerate();
    let used = ports.filter(|(_, port)| at(port, "nodePort").as_i64().is_some_and(|number| number != 0));
    let forbid = |(index, _): (usize, &Value)| {
        let detail = "may not be used when `type` is 'ClusterIP'";
        FieldError::forbidden(format!("spec.ports[{index}].nodePort"), detail)
    };
    used.map(forbid).collect()
}

fn duplicates(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    let ports = || items(doc, "spec.ports").iter().enumerate();
    for (index, port) in ports() {
        let number = at(port, "nodePort").as_i64().unwrap_or(0);
        if number != 0 && !seen.insert((text(port, "protocol"), number)) {
            errors.push(FieldError::duplicate(format!("spec.ports[{index}].nodePort"), number));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports() {
        let (protocol, number) = (text(port, "protocol"), at(port, "port").as_i64().unwrap_or(0));
        if !seen.insert((protocol, number)) {
            let value = json!({"protocol": protocol, "port": number, "targetPort": 0});
            errors.push(FieldError::duplicate(format!("spec.ports[{index}]"), value));
        }
    }
    errors
}

fn load_balancer(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let is_balanced = text(doc, "spec.type") == "LoadBalancer";
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let ranges = items(doc, "spec.loadBalancerSourceRanges");
    // Upstream spells the path like the Go field.
    const RANGES: &str = "spec.LoadBalancerSourceRanges";
    if !ranges.is_empty() && !is_balanced {
        errors.push(FieldError::forbidden(RANGES, ONLY));
    }
    for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
        if !addresses::is_cidr(range.trim()) {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(format!("{RANGES}[{index}]"), range, detail));
        }
    }
    let allocates = at(doc, "spec.allocateLoadBalancerNodePorts");
    match (is_balanced, allocates.is_null()) {
        (true, true) => errors.push(FieldError::required("spec.allocateLoadBalancerNodePorts", "")),
        (false, false) => errors.push(FieldError::forbidden("spec.allocateLoadBalancerNodePorts", ONLY)),
        _ => {}
    }
    let class = text(doc, "spec.loadBalancerClass");
    if !class.is_empty() {
        if !is_balanced {
            errors.push(FieldError::forbidden("spec.loadBalancerClass", ONLY));
        }
        invalid_each(&mut errors, "spec.loadBalancerClass", class, names::qualified_name(class));
    }
    errors
}

fn external_traffic(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = text(doc, "spec.externalTrafficPolicy");
    if is_external(doc) {
        errors.extend(choice("spec.externalTrafficPolicy", policy, &["Cluster", "Local"]));
    } else if !policy.is_empty() {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid("spec.externalTrafficPolicy", policy, detail));
    }
    const HEALTH: &str = "spec.healthCheckNodePort";
    let health = at(doc, HEALTH).as_i64().unwrap_or(0);
    if needs_health_port(doc) {
        errors.extend(number(HEALTH, at(doc, HEALTH)));
    } else if health != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid(HEALTH, health, detail));
    }
    errors
}
