//! ServiceCIDR and IPAddress: descriptors and rules. Podium's own addresses of
//! Services come from its configuration; these kinds are for controllers that
//! expect them.

use serde_json::{Value, json};

use super::GROUP;
use crate::api::networking::v1::{IPAddress, ServiceCIDR};
use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::addresses;
use crate::kinds::plain::Plain;
use crate::kinds::{Column, Kind, Scope, Subresource};
use crate::names::{self, NameFormat};
use crate::schema::Typed;

/// API-059.
pub static SERVICE_CIDR: Kind = Kind {
    subresources: &[Subresource::Status],
    columns: &[
        Column::NAME,
        Column::text(
            "CIDRs",
            "CIDRs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which to assign service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is immutable.",
        ),
        Column::AGE,
    ],
    ..Kind::new(GROUP, ["ServiceCIDR", "ServiceCIDRList", "servicecidrs", "servicecidr"], Scope::Cluster, &CIDR_OPS)
};

pub static IP_ADDRESS: Kind = Kind {
    short_names: &["ip"],
    columns: &[
        Column::NAME,
        Column::text(
            "ParentRef",
            "ParentRef references the resource that an IPAddress is attached to. An IPAddress must reference a parent object.",
        ),
        Column::AGE,
    ],
    ..Kind::new(GROUP, ["IPAddress", "IPAddressList", "ipaddresses", "ipaddress"], Scope::Cluster, &ADDRESS_OPS)
};

static CIDR_OPS: Plain = Plain {
    check: cidrs,
    check_update: change,
    cells: |doc| {
        let blocks: Vec<&str> = items(doc, "spec.cidrs").iter().filter_map(Value::as_str).collect();
        vec![json!(blocks.join(","))]
    },
    ..Plain::of(&SERVICE_CIDR, &Typed::<ServiceCIDR>::NEW)
};

static ADDRESS_OPS: Plain = Plain {
    name_format: NameFormat::Address,
    check: parent,
    check_update: |errors, doc, old| errors.immutable(doc, old, "spec.parentRef"),
    cells: |doc| vec![json!(owner(doc))],
    ..Plain::of(&IP_ADDRESS, &Typed::<IPAddress>::NEW)
};

const PATH: &str = "spec.cidrs";

fn cidrs(errors: &mut Errors, doc: &Value) {
    let blocks = items(doc, PATH);
    if blocks.is_empty() {
        return errors.push(FieldError::required(PATH, "at least one CIDR required"));
    }
    if blocks.len() > 2 {
        return errors.push(FieldError::invalid(PATH, at(doc, "spec").clone(), "may only hold up to 2 values"));
    }
    let blocks: Vec<&str> = blocks.iter().filter_map(Value::as_str).collect();
    for (index, block) in blocks.iter().enumerate() {
        errors.0.extend(addresses::strict_block(&format!("{PATH}[{index}]"), block));
    }
    if let [one, other] = blocks[..]
        && let (Some(one), Some(other)) = (addresses::Block::parse(one), addresses::Block::parse(other))
        && one.address.is_ipv4() == other.address.is_ipv4()
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(FieldError::invalid(PATH, json!(blocks), detail));
    }
}

/// A second family may be added; what is there stays.
fn change(errors: &mut Errors, doc: &Value, old: &Value) {
    let (new, old) = (items(doc, PATH), items(old, PATH));
    if new.len() != old.len() && (old.len(), new.len()) != (1, 2) {
        return errors.push(FieldError::invalid(PATH, json!(new), "field is immutable"));
    }
    for (index, (new, _)) in new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old) {
        errors.push(FieldError::invalid(format!("{PATH}[{index}]"), new.clone(), "field is immutable"));
    }
    if new.len() > old.len() {
        cidrs(errors, doc);
    }
}

fn parent(errors: &mut Errors, doc: &Value) {
    let parent = at(doc, "spec.parentRef");
    if parent.is_null() {
        return errors.push(FieldError::required("spec.parentRef", ""));
    }
    errors.optional("spec.parentRef.group", text(parent, "group"), names::dns_subdomain);
    errors.name("spec.parentRef.resource", text(parent, "resource"), names::path_segment);
    errors.name("spec.parentRef.name", text(parent, "name"), names::path_segment);
    errors.optional("spec.parentRef.namespace", text(parent, "namespace"), names::path_segment);
}

fn owner(doc: &Value) -> String {
    let parent = at(doc, "spec.parentRef");
    if parent.is_null() {
        return "<none>".to_owned();
    }
    let [group, resource, namespace, name] = ["group", "resource", "namespace", "name"].map(|part| text(parent, part));
    let mut shown =
        if group.is_empty() { resource.to_lowercase() } else { format!("{resource}.{group}").to_lowercase() };
    for part in [namespace, name].into_iter().filter(|part| !part.is_empty()) {
        shown.push('/');
        shown.push_str(part);
    }
    shown
}
