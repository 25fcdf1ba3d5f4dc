//! EndpointSlice: descriptor and rules.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use crate::api::discovery::v1::EndpointSlice;
use crate::doc::{as_object, at, items, items_mut, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::service::PROTOCOLS;
use crate::kinds::{Column, Kind, KindOps, Scope, addresses, endpoints};
use crate::meta::{self, invalid_each};
use crate::schema::{Schema, Typed};
use crate::{names, printing};

/// API-050.
pub static KIND: Kind = Kind {
    // API-243
    columns: &[
        Column::NAME,
        Column::text("AddressType", "addressType specifies the type of address carried by this EndpointSlice."),
        Column::text("Ports", "ports specifies the list of network ports exposed by each endpoint in this slice."),
        Column::text("Endpoints", "endpoints is a list of unique endpoints in this slice."),
        Column::AGE,
    ],
    ..Kind::new(
        "discovery.k8s.io",
        ["EndpointSlice", "EndpointSliceList", "endpointslices", "endpointslice"],
        Scope::Namespaced,
        &SliceOps,
    )
};

/// API-754.
const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const HINTS_MAX: usize = 8;

struct SliceOps;

impl KindOps for SliceOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<EndpointSlice>::NEW
    }

    fn has_generation(&self) -> bool {
        true
    }

    /// API-735. A slice without endpoints has an empty list of them.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        for port in items_mut(doc, "ports") {
            let port = as_object(port);
            set_default(port, "name", "");
            set_default(port, "protocol", "TCP");
        }
        set_default(as_object(doc), "endpoints", json!([]));
    }

    /// API-178: everything but metadata counts, and labels.
    fn prepare_update(&self, doc: &mut Value, old: &Value, _gates: &Gates) {
        meta::prepare_update(doc, old, false);
        let counted =
            |doc: &Value| ["endpoints", "ports", "addressType", "metadata.labels"].map(|path| at(doc, path).clone());
        if counted(doc) != counted(old) {
            let generation = at(old, "metadata.generation").as_i64().unwrap_or(0).saturating_add(1);
            object(doc, "metadata").insert("generation".to_owned(), json!(generation));
        }
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(slice(doc));
        errors
    }

    /// API-369.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(slice(doc));
        errors.extend(meta::immutable("addressType", at(doc, "addressType"), at(old, "addressType")));
        errors
    }

    /// API-278.
    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let port = |port: &Value| match (at(port, "port").as_i64(), at(port, "name").as_str()) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "*".to_owned(),
        };
        let ports = items(doc, "ports");
        let all = items(doc, "endpoints").iter().flat_map(|endpoint| items(endpoint, "addresses"));
        let all = all.filter_map(Value::as_str).map(str::to_owned);
        vec![
            json!(text(doc, "metadata.name")),
            json!(text(doc, "addressType")),
            json!(or_unset(endpoints::few(ports.iter().map(port), ports.len()))),
            json!(or_unset(endpoints::few(all.clone(), all.count()))),
            json!(printing::age_of(doc, now)),
        ]
    }
}

fn or_unset(text: String) -> String {
    if text.is_empty() { "<unset>".to_owned() } else { text }
}

fn slice(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = text(doc, "addressType");
    match kind {
        "" => errors.push(FieldError::required("addressType", "")),
        kind if !TYPES.contains(&kind) => errors.push(FieldError::not_supported("addressType", kind, &TYPES)),
        _ => {}
    }
    let all = items(doc, "endpoints");
    if all.len() > ENDPOINTS_MAX {
        errors.push(FieldError::too_many("endpoints", all.len(), ENDPOINTS_MAX));
        return errors;
    }
    for (index, endpoint) in all.iter().enumerate() {
        errors.extend(one(endpoint, kind, &format!("endpoints[{index}]")));
    }
    errors.extend(ports(items(doc, "ports")));
    errors
}

fn one(endpoint: &Value, kind: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = items(endpoint, "addresses");
    match list.len() {
        0 => errors.push(FieldError::required(format!("{path}.addresses"), "must contain at least 1 address")),
        n if n > ADDRESSES_MAX => {
            errors.push(FieldError::too_many(format!("{path}.addresses"), n, ADDRESSES_MAX));
        }
        _ => {}
    }
    for (index, address) in list.iter().filter_map(Value::as_str).enumerate() {
        errors.extend(address_of(kind, address, &format!("{path}.addresses[{index}]")));
    }
    let node = text(endpoint, "nodeName");
    if !node.is_empty() {
        invalid_each(&mut errors, &format!("{path}.nodeName"), node, names::dns_subdomain(node));
    }
    let hostname = text(endpoint, "hostname");
    if !hostname.is_empty() {
        invalid_each(&mut errors, &format!("{path}.hostname"), hostname, names::dns_label(hostname));
    }
    for hints in ["forZones", "forNodes"] {
        errors.extend(some_hints(endpoint, hints, &format!("{path}.hints.{hints}")));
    }
    errors
}

fn address_of(kind: &str, address: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match kind {
        "IPv4" if address.parse::<Ipv4Addr>().is_err() => {
            errors.push(FieldError::invalid(path, address, "must be a valid IPv4 address"));
        }
        "IPv6" if address.parse::<Ipv6Addr>().is_err() => {
            errors.push(FieldError::invalid(path, address, "must be a valid IPv6 address"));
        }
        "IPv4" | "IPv6" => errors.extend(addresses::endpoint(path, address)),
        "FQDN" => invalid_each(&mut errors, path, address, names::dns_subdomain(address.trim_end_matches('.'))),
        _ => {}
    }
    errors
}

fn some_hints(endpoint: &Value, list: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let hints = items(endpoint, &format!("hints.{list}"));
    if hints.len() > HINTS_MAX {
        errors.push(FieldError::too_many(path, hints.len(), HINTS_MAX));
        return errors;
    }
    let mut seen = BTreeSet::new();
    for (index, hint) in hints.iter().enumerate() {
        let (path, name) = (format!("{path}[{index}].name"), text(hint, "name"));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path, name));
        } else if list == "forNodes" {
            invalid_each(&mut errors, &path, name, names::dns_subdomain(name));
        } else {
            invalid_each(&mut errors, &path, name, names::label_value(name));
        }
    }
    errors
}

fn ports(ports: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if ports.len() > PORTS_MAX {
        errors.push(FieldError::too_many("ports", ports.len(), PORTS_MAX));
        return errors;
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let (path, name) = (format!("ports[{index}]"), text(port, "name"));
        if !name.is_empty() {
            invalid_each(&mut errors, &format!("{path}.name"), name, names::dns_label(name));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        let protocol = text(port, "protocol");
        if !PROTOCOLS.contains(&protocol) {
            errors.push(FieldError::not_supported(format!("{path}.protocol"), protocol, &PROTOCOLS));
        }
        if let Some(number) = at(port, "port").as_i64() {
            let problems = names::port_number(number).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.port"), number, problem)));
        }
        if let Some(protocol) = at(port, "appProtocol").as_str() {
            invalid_each(&mut errors, &format!("{path}.appProtocol"), protocol, names::qualified_name(protocol));
        }
    }
    errors
}
