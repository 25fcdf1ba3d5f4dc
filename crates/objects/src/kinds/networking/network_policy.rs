//! NetworkPolicy: descriptor and rules.

use serde_json::{Value, json};

use super::GROUP;
use crate::api::networking::v1::NetworkPolicy;
use crate::doc::{as_object, at, items, items_mut, object, set_default, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::plain::Plain;
use crate::kinds::{Column, Kind, Scope, addresses};
use crate::names;
use crate::schema::Typed;
use crate::selectors::typed;

/// API-059, API-265.
pub static KIND: Kind = Kind {
    short_names: &["netpol"],
    columns: &[
        Column::NAME,
        Column::text(
            "Pod-Selector",
            "podSelector selects the pods to which this NetworkPolicy object applies. The array of rules is applied to any pods selected by this field. An empty selector matches all pods in the policy's namespace. Multiple network policies can select the same set of pods. In this case, the ingress rules for each are combined additively. This field is optional. If it is not specified, it defaults to an empty selector.",
        ),
        Column::AGE,
    ],
    ..Kind::new(
        GROUP,
        ["NetworkPolicy", "NetworkPolicyList", "networkpolicies", "networkpolicy"],
        Scope::Namespaced,
        &OPS,
    )
};

static OPS: Plain = Plain {
    has_generation: true,
    default,
    check: spec,
    check_update: |errors, doc, _| spec(errors, doc),
    cells: |doc| vec![json!(typed::shown(at(doc, "spec.podSelector")))],
    ..Plain::of(&KIND, &Typed::<NetworkPolicy>::NEW)
};

/// Ports are of TCP; a policy is about what comes in, and about what goes out if it says something about that.
fn default(doc: &mut Value) {
    for list in ["spec.ingress", "spec.egress"] {
        for rule in items_mut(doc, list) {
            items_mut(rule, "ports").iter_mut().for_each(|port| set_default(as_object(port), "protocol", "TCP"));
        }
    }
    let types = if items(doc, "spec.egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
    let spec = object(doc, "spec");
    set_default(spec, "policyTypes", types);
    set_default(spec, "podSelector", json!({}));
}

fn spec(errors: &mut Errors, doc: &Value) {
    typed::check(errors, "spec.podSelector", at(doc, "spec.podSelector"));
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(at(doc, "spec"), list).iter().enumerate() {
            let path = format!("spec.{list}[{index}]");
            for (index, port) in items(rule, "ports").iter().enumerate() {
                check_port(errors, &format!("{path}.ports[{index}]"), port);
            }
            for (index, peer) in items(rule, peers).iter().enumerate() {
                check_peer(errors, &format!("{path}.{peers}[{index}]"), peer);
            }
        }
    }
    let types = items(doc, "spec.policyTypes");
    if types.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        return errors.push(FieldError::invalid("spec.policyTypes", json!(types), detail));
    }
    for (index, name) in types.iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(&format!("spec.policyTypes[{index}]"), name, &["Ingress", "Egress"]);
    }
}

fn check_port(errors: &mut Errors, path: &str, port: &Value) {
    errors.one_of(&format!("{path}.protocol"), text(port, "protocol"), &["TCP", "UDP", "SCTP"]);
    let end = at(port, "endPort").as_i64();
    let (path, end_path) = (format!("{path}.port"), format!("{path}.endPort"));
    match at(port, "port") {
        Value::Null => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is not specified";
                errors.push(FieldError::invalid(end_path, end, detail));
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.push(FieldError::invalid(end_path, end, detail));
            }
            errors.0.extend(names::port_name(name).into_iter().map(|it| FieldError::invalid(&path, name.as_str(), it)));
        }
        number => {
            let number = number.as_i64().unwrap_or(0);
            let mut check = |path: &str, number: i64| {
                errors.0.extend(names::port_number(number).into_iter().map(|it| FieldError::invalid(path, number, it)));
            };
            check(&path, number);
            if let Some(end) = end {
                check(&end_path, end);
                if end < number {
                    let detail = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(end_path, end, detail));
                }
            }
        }
    }
}

fn check_peer(errors: &mut Errors, path: &str, peer: &Value) {
    let has = |key: &str| !at(peer, key).is_null();
    for key in ["podSelector", "namespaceSelector"].into_iter().filter(|key| has(key)) {
        typed::check(errors, &format!("{path}.{key}"), at(peer, key));
    }
    match (has("podSelector") || has("namespaceSelector"), has("ipBlock")) {
        (false, false) => errors.push(FieldError::required(path, "must specify a peer")),
        (true, true) => {
            check_block(errors, &format!("{path}.ipBlock"), at(peer, "ipBlock"));
            errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
        }
        (false, true) => check_block(errors, &format!("{path}.ipBlock"), at(peer, "ipBlock")),
        (true, false) => {}
    }
}

fn check_block(errors: &mut Errors, path: &str, block: &Value) {
    let whole = text(block, "cidr");
    if whole.is_empty() {
        return errors.push(FieldError::required(format!("{path}.cidr"), ""));
    }
    errors.0.extend(addresses::block(&format!("{path}.cidr"), whole));
    let Some(whole) = addresses::Block::parse(whole) else { return };
    for (index, except) in items(block, "except").iter().filter_map(Value::as_str).enumerate() {
        let path = format!("{path}.except[{index}]");
        errors.0.extend(addresses::block(&path, except));
        if addresses::Block::parse(except).is_some_and(|except| !whole.has_within(&except)) {
            errors.push(FieldError::invalid(path, except, "must be a strict subset of `cidr`"));
        }
    }
}
