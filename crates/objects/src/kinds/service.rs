//! Service: descriptor, defaults, and what its addresses depend on. The
//! addresses themselves are given out by the API server.
//!
//! Read next: `service/validate.rs`, `service/update.rs` (what a change keeps).

use serde_json::{Map, Value, json};

use crate::api::core::v1::Service;
use crate::doc::{as_object, at, items, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};
use crate::meta;
use crate::names::NameFormat;
use crate::schema::{Schema, Typed};

mod table;
mod update;
mod validate;

pub(super) use validate::PROTOCOLS;
/// Problems of the addresses and families among themselves.
pub use validate::cluster_ips as address_problems;

/// API-038.
pub static KIND: Kind = Kind {
    short_names: &["svc"],
    categories: &["all"],
    subresources: &[Subresource::Proxy, Subresource::Status],
    columns: COLUMNS,
    ..Kind::new("", ["Service", "ServiceList", "services", "service"], Scope::Namespaced, &ServiceOps)
};

/// API-241.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Type", "type determines how the Service is exposed."),
    Column::text("Cluster-IP", "clusterIP is the IP address of the service and is usually assigned randomly."),
    Column::text(
        "External-IP",
        "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.",
    ),
    Column::text("Port(s)", "The list of ports that are exposed by this service."),
    Column::AGE,
    Column::wide("Selector", "Route service traffic to pods with label keys and values matching this selector."),
];

/// Says that a Service wants no address of its own.
pub const HEADLESS: &str = "None";

/// Its name resolves to its pods instead of one address.
pub fn is_headless(doc: &Value) -> bool {
    items(doc, "spec.clusterIPs").first().is_some_and(|ip| ip == HEADLESS) || text(doc, "spec.clusterIP") == HEADLESS
}

/// The kinds of Services that have an address in the cluster.
pub fn needs_cluster_ip(doc: &Value) -> bool {
    matches!(text(doc, "spec.type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Reachable by ports of every node.
pub fn needs_node_ports(doc: &Value) -> bool {
    match text(doc, "spec.type") {
        "NodePort" => true,
        "LoadBalancer" => at(doc, "spec.allocateLoadBalancerNodePorts") != false,
        _ => false,
    }
}

/// Load balancers ask at this port whether a node has endpoints.
pub fn needs_health_port(doc: &Value) -> bool {
    text(doc, "spec.type") == "LoadBalancer" && text(doc, "spec.externalTrafficPolicy") == "Local"
}

/// Called from outside of the cluster.
fn is_external(doc: &Value) -> bool {
    match text(doc, "spec.type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !items(doc, "spec.externalIPs").is_empty(),
        _ => false,
    }
}

struct ServiceOps;

impl KindOps for ServiceOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Service>::NEW
    }

    /// API-171.
    fn name_format(&self) -> NameFormat {
        NameFormat::Label1035
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    /// API-730, API-777.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let is_external = {
            set_default(object(doc, "spec"), "type", "ClusterIP");
            is_external(doc)
        };
        let kind = text(doc, "spec.type").to_owned();
        let spec = object(doc, "spec");
        set_default(spec, "sessionAffinity", "None");
        affinity_defaults(spec);
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port_defaults(as_object(port));
        }
        if is_external {
            set_default(spec, "externalTrafficPolicy", "Cluster");
        }
        if ["ClusterIP", "NodePort", "LoadBalancer"].contains(&kind.as_str()) {
            set_default(spec, "internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            set_default(spec, "allocateLoadBalancerNodePorts", true);
        }
        // The two forms of the address say the same.
        if let Some(ip) = spec.get("clusterIP").filter(|ip| *ip != "").cloned() {
            set_default(spec, "clusterIPs", json!([ip]));
        }
        set_default(object(doc, "status"), "loadBalancer", json!({}));
    }

    fn prepare_create(&self, doc: &mut Value, _gates: &Gates) {
        as_object(doc).insert("status".to_owned(), json!({"loadBalancer": {}}));
        meta::prepare_create(doc, false);
    }

    /// API-354.
    fn prepare_update(&self, doc: &mut Value, old: &Value, _gates: &Gates) {
        crate::doc::keep(as_object(doc), old, "status");
        meta::prepare_update(doc, old, false);
        update::carry_over(doc, old);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(validate::spec(doc));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(update::validate(doc, old));
        errors.extend(validate::spec(doc));
        errors
    }

    /// API-223.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Namespaced);
        fields.push(("spec.clusterIP", text(doc, "spec.clusterIP").to_owned()));
        fields.push(("spec.type", text(doc, "spec.type").to_owned()));
        fields
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        table::row(doc, now)
    }
}

/// Clients that are to come back to the same pod do so for three hours.
fn affinity_defaults(spec: &mut Map<String, Value>) {
    const TIMEOUT_SECONDS: i64 = 10_800;
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            spec.shift_remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            let config = as_object(spec.entry("sessionAffinityConfig").or_insert(Value::Null));
            let client = as_object(config.entry("clientIP").or_insert(Value::Null));
            set_default(client, "timeoutSeconds", TIMEOUT_SECONDS);
        }
        _ => {}
    }
}

fn port_defaults(port: &mut Map<String, Value>) {
    set_default(port, "protocol", "TCP");
    // Zero is none, and not shown.
    if port.get("nodePort").is_some_and(|number| *number == 0) {
        port.shift_remove("nodePort");
    }
    let is_unset = port.get("targetPort").is_none_or(|target| target.is_null() || *target == "" || *target == 0);
    if let (true, Some(number)) = (is_unset, port.get("port").cloned()) {
        port.insert("targetPort".to_owned(), number);
    }
}

/// API-753: what this Service holds and no other may have: addresses of the
/// cluster, and ports of the nodes by protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    pub ips: Vec<std::net::IpAddr>,
    pub ports: Vec<(String, u16)>,
}

impl Held {
    pub fn of(doc: &Value) -> Self {
        if !needs_cluster_ip(doc) {
            return Self::default();
        }
        let ips = items(doc, "spec.clusterIPs").iter().filter_map(|ip| ip.as_str()?.parse().ok()).collect();
        let number = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        let nodes = items(doc, "spec.ports").iter();
        let nodes = nodes.filter_map(|port| Some((text(port, "protocol").to_owned(), number(at(port, "nodePort"))?)));
        let health = number(at(doc, "spec.healthCheckNodePort")).map(|port| ("TCP".to_owned(), port));
        Self { ips, ports: nodes.chain(health).collect() }
    }
}

#[cfg(test)]
mod tests;
