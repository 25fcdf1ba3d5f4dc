//! Endpoints: descriptor and rules.

use serde_json::{Value, json};

use crate::api::core::v1::Endpoints;
use crate::doc::{as_object, at, items, items_mut, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::service::PROTOCOLS;
use crate::kinds::{Column, Kind, KindOps, Scope, addresses};
use crate::meta::{self, invalid_each};
use crate::schema::{Schema, Typed};
use crate::{names, printing};

pub static KIND: Kind = Kind {
    short_names: &["ep"],
    // API-242
    columns: &[
        Column::NAME,
        Column::text("Endpoints", "The set of all endpoints is the union of all subsets."),
        Column::AGE,
    ],
    ..Kind::new("", ["Endpoints", "EndpointsList", "endpoints", "endpoints"], Scope::Namespaced, &EndpointsOps)
};

struct EndpointsOps;

impl KindOps for EndpointsOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Endpoints>::NEW
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        for subset in items_mut(doc, "subsets") {
            for port in items_mut(subset, "ports") {
                set_default(as_object(port), "protocol", "TCP");
            }
        }
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(subsets(doc));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(subsets(doc));
        errors
    }

    /// API-278.
    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let listed = few(all(doc), count(doc));
        vec![json!(text(doc, "metadata.name")), json!(printing::or_none(&listed)), json!(printing::age_of(doc, now))]
    }
}

/// Every ready address with every port.
fn all(doc: &Value) -> impl Iterator<Item = String> {
    items(doc, "subsets").iter().flat_map(|subset| {
        let ips = || items(subset, "addresses").iter().map(|address| text(address, "ip"));
        let ports = items(subset, "ports");
        let bare = ips().filter(|_| ports.is_empty()).map(str::to_owned);
        let numbers = ports.iter().filter_map(|port| at(port, "port").as_i64());
        let join =
            |ip: &str, port: i64| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
        bare.chain(numbers.flat_map(move |port| ips().map(move |ip| join(ip, port))))
    })
}

/// How many they are, without making them.
fn count(doc: &Value) -> usize {
    let of_subset = |subset: &Value| {
        let ports = items(subset, "ports");
        let numbers = ports.iter().filter(|port| at(port, "port").is_i64()).count();
        items(subset, "addresses").len() * if ports.is_empty() { 1 } else { numbers }
    };
    items(doc, "subsets").iter().map(of_subset).sum()
}

const SHOWN_MAX: usize = 3;

/// API-278: the first three, and how many more there are.
pub(super) fn few(first: impl Iterator<Item = String>, count: usize) -> String {
    let shown = first.take(SHOWN_MAX).collect::<Vec<_>>().join(",");
    match count.saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// API-754.
fn subsets(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, subset) in items(doc, "subsets").iter().enumerate() {
        let path = format!("subsets[{index}]");
        if items(subset, "addresses").is_empty() && items(subset, "notReadyAddresses").is_empty() {
            errors.push(FieldError::required(path.clone(), "must specify `addresses` or `notReadyAddresses`"));
        }
        for list in ["addresses", "notReadyAddresses"] {
            for (index, address) in items(subset, list).iter().enumerate() {
                errors.extend(endpoint_address(address, &format!("{path}.{list}[{index}]")));
            }
        }
        let ports = items(subset, "ports");
        for (index, port) in ports.iter().enumerate() {
            errors.extend(endpoint_port(port, ports.len() > 1, &format!("{path}.ports[{index}]")));
        }
    }
    errors
}

fn endpoint_address(address: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = addresses::endpoint(&format!("{path}.ip"), text(address, "ip"));
    for (field, check) in
        [("hostname", names::dns_label as fn(&str) -> Vec<String>), ("nodeName", names::dns_subdomain)]
    {
        let name = text(address, field);
        if !name.is_empty() {
            invalid_each(&mut errors, &format!("{path}.{field}"), name, check(name));
        }
    }
    errors
}

fn endpoint_port(port: &Value, needs_name: bool, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match text(port, "name") {
        "" if needs_name => errors.push(FieldError::required(format!("{path}.name"), "")),
        "" => {}
        name => invalid_each(&mut errors, &format!("{path}.name"), name, names::dns_label(name)),
    }
    let number = at(port, "port").as_i64().unwrap_or(0);
    let problems = names::port_number(number).into_iter();
    errors.extend(problems.map(|problem| FieldError::invalid(format!("{path}.port"), number, problem)));
    let protocol = text(port, "protocol");
    if !PROTOCOLS.contains(&protocol) {
        errors.push(FieldError::not_supported(format!("{path}.protocol"), protocol, &PROTOCOLS));
    }
    if let Some(protocol) = at(port, "appProtocol").as_str() {
        invalid_each(&mut errors, &format!("{path}.appProtocol"), protocol, names::qualified_name(protocol));
    }
    errors
}
