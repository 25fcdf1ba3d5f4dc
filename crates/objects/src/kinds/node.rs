//! Node: descriptor and rules.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::core::v1::Node;
use crate::doc::{at, items, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource, addresses};
use crate::meta::{self, invalid_each};
use crate::schema::{Schema, Typed};
use crate::{names, printing};

/// API-035.
pub static KIND: Kind = Kind {
    short_names: &["no"],
    subresources: &[Subresource::Proxy, Subresource::Status],
    columns: COLUMNS,
    ..Kind::new("", ["Node", "NodeList", "nodes", "node"], Scope::Cluster, &NodeOps)
};

/// API-238.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Status", "The status of the node"),
    Column::text("Roles", "The roles of the node"),
    Column::AGE,
    Column::text("Version", "Kubelet Version reported by the node."),
    Column::wide("Internal-IP", "List of addresses reachable to the node."),
    Column::wide("External-IP", "List of addresses reachable to the node."),
    Column::wide("OS-Image", "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy))."),
    Column::wide("Kernel-Version", "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64)."),
    Column::wide(
        "Container-Runtime",
        "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).",
    ),
];

struct NodeOps;

impl KindOps for NodeOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Node>::NEW
    }

    /// API-732.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let capacity = at(doc, "status.capacity").clone();
        if capacity.as_object().is_some_and(|capacity| !capacity.is_empty()) {
            set_default(object(doc, "status"), "allocatable", capacity);
        }
    }

    /// API-352: a node agent registers with a filled status.
    fn prepare_create(&self, doc: &mut Value, _gates: &Gates) {
        meta::prepare_create(doc, false);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Cluster, self.name_format());
        errors.extend(spec(doc));
        errors.extend(reachable(doc));
        errors
    }

    /// What was stored before it was checked may stay as it is.
    fn validate_status_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        if ["status.addresses", "status.daemonEndpoints"].iter().any(|path| at(doc, path) != at(old, path)) {
            errors.extend(reachable(doc));
        }
        errors
    }

    /// API-370.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(spec(doc));
        if !items(old, "spec.podCIDRs").is_empty() && at(doc, "spec.podCIDRs") != at(old, "spec.podCIDRs") {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.push(FieldError::forbidden("spec.podCIDRs", detail));
        }
        if !text(old, "spec.providerID").is_empty() && text(doc, "spec.providerID") != text(old, "spec.providerID") {
            let detail = "node updates may not change providerID except from \"\" to valid";
            errors.push(FieldError::forbidden("spec.providerID", detail));
        }
        errors
    }

    /// API-219.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Cluster);
        fields.push(("spec.unschedulable", (at(doc, "spec.unschedulable") == true).to_string()));
        fields
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let info = |field: &str| match text(doc, &format!("status.nodeInfo.{field}")) {
            "" => "<unknown>".to_owned(),
            value => value.to_owned(),
        };
        vec![
            json!(text(doc, "metadata.name")),
            json!(status(doc)),
            json!(roles(doc)),
            json!(printing::age_of(doc, now)),
            json!(text(doc, "status.nodeInfo.kubeletVersion")),
            json!(address(doc, "InternalIP")),
            json!(address(doc, "ExternalIP")),
            json!(info("osImage")),
            json!(info("kernelVersion")),
            json!(info("containerRuntimeVersion")),
        ]
    }
}

/// API-273.
fn status(doc: &Value) -> String {
    let ready = items(doc, "status.conditions").iter().find(|condition| text(condition, "type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(doc, "spec.unschedulable") == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

/// API-274.
fn roles(doc: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in at(doc, "metadata.labels").as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.insert(role),
            None if key == "kubernetes.io/role" && !value.is_empty() => roles.insert(value),
            _ => false,
        };
    }
    printing::or_none(&roles.into_iter().collect::<Vec<_>>().join(",")).to_owned()
}

/// API-275.
fn address<'a>(doc: &'a Value, kind: &str) -> &'a str {
    let found = items(doc, "status.addresses").iter().find(|address| text(address, "type") == kind);
    printing::or_none(found.map_or("", |address| text(address, "address")))
}

/// Others connect to where a node says that it is: that must be a host and a
/// port, and nothing else.
fn reachable(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, address) in items(doc, "status.addresses").iter().enumerate() {
        let path = format!("status.addresses[{index}].address");
        let host = text(address, "address");
        match text(address, "type") {
            "InternalIP" | "ExternalIP" => errors.extend(addresses::valid(&path, host)),
            _ if host.parse::<std::net::IpAddr>().is_ok() => {}
            _ => invalid_each(&mut errors, &path, host, names::dns_subdomain(&host.to_ascii_lowercase())),
        }
    }
    let path = "status.daemonEndpoints.kubeletEndpoint.Port";
    if let Some(port) = at(doc, path).as_i64().filter(|port| !(0..=65535).contains(port)) {
        errors.push(FieldError::invalid(path, port, "must be between 0 and 65535, inclusive"));
    }
    errors
}

/// API-758.
fn spec(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, taint) in items(doc, "spec.taints").iter().enumerate() {
        let path = format!("spec.taints[{index}]");
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        invalid_each(&mut errors, &format!("{path}.key"), key, names::qualified_name(key));
        invalid_each(&mut errors, &format!("{path}.value"), value, names::label_value(value));
        match effect {
            "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
            "" => errors.push(FieldError::required(format!("{path}.effect"), "")),
            other => {
                let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
                errors.push(FieldError::not_supported(format!("{path}.effect"), other, &supported));
            }
        }
        if !seen.insert((key, effect)) {
            let mut error = FieldError::duplicate(path, taint.clone());
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
        }
    }
    errors
}
