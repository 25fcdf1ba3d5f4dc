//! What drivers of the Container Storage Interface say about themselves:
//! CSINode, CSIDriver, CSIStorageCapacity, VolumeAttachment and
//! VolumeAttributesClass. Podium drives no such volumes itself, but a kubelet
//! ends that can not make its CSINode (API-689).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::plain::Plain;
use crate::Quantity;
use crate::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment, VolumeAttributesClass};
use crate::doc::{at, by, items, object, set_default, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::{Column, Kind, Scope, Subresource};
use crate::meta::invalid_each;
use crate::names;
use crate::printing::or_none;
use crate::schema::Typed;
use crate::selectors::typed;

const GROUP: &str = "storage.k8s.io";

/// API-057, API-267.
pub static NODE: Kind = Kind {
    columns: &[
        Column::NAME,
        Column::integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node"),
        Column::AGE,
    ],
    ..Kind::new(GROUP, ["CSINode", "CSINodeList", "csinodes", "csinode"], Scope::Cluster, &NODE_OPS)
};

/// API-189.
static NODE_OPS: Plain = Plain {
    updates_unconditionally: false,
    check: drivers,
    check_update: |errors, doc, old| {
        drivers(errors, doc);
        same_drivers(errors, doc, old);
    },
    cells: |doc| vec![json!(items(doc, "spec.drivers").len())],
    ..Plain::of(&NODE, &Typed::<CSINode>::NEW)
};

fn drivers(errors: &mut Errors, doc: &Value) {
    const ID_MAX: usize = 256;
    let mut seen = BTreeSet::new();
    for (index, driver) in items(doc, "spec.drivers").iter().enumerate() {
        let (path, name, id) = (format!("spec.drivers[{index}]"), text(driver, "name"), text(driver, "nodeID"));
        driver_name(errors, &format!("{path}.name"), name);
        if id.is_empty() {
            errors.push(FieldError::required(format!("{path}.nodeID"), ""));
        } else if id.len() > ID_MAX {
            let detail = format!("must be {ID_MAX} characters or less");
            errors.push(FieldError::invalid(format!("{path}.nodeID"), id, detail));
        }
        errors.non_negative(&format!("{path}.allocatable.count"), at(driver, "allocatable.count"));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        let mut keys = BTreeSet::new();
        for key in items(driver, "topologyKeys").iter().filter_map(Value::as_str) {
            if key.is_empty() {
                errors.push(FieldError::required(&path, ""));
            }
            if !keys.insert(key) {
                errors.push(FieldError::duplicate(&path, key));
            }
            invalid_each(&mut errors.0, &path, key, names::qualified_name(key));
        }
    }
}

fn driver_name(errors: &mut Errors, path: &str, name: &str) {
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    errors.name(path, name, |name| names::dns_subdomain(&name.to_lowercase()));
}

/// A registered driver changes only how many volumes it can have.
fn same_drivers(errors: &mut Errors, doc: &Value, old: &Value) {
    let fixed = |driver: &Value| ["nodeID", "topologyKeys"].map(|field| at(driver, field).clone());
    let before = by(items(old, "spec.drivers"), "name");
    for new in items(doc, "spec.drivers") {
        let known = before.get(text(new, "name"));
        if known.is_some_and(|known| fixed(known) != fixed(new)) {
            errors.push(FieldError::invalid("spec.drivers", new.clone(), "field is immutable"));
        }
    }
}

pub static DRIVER: Kind = Kind {
    columns: &[
        Column::NAME,
        Column::boolean("AttachRequired", "Whether volumes of this driver are attached before they are mounted."),
        Column::boolean("PodInfoOnMount", "Whether the driver is told for which pod it mounts."),
        Column::boolean("StorageCapacity", "Whether the driver reports its capacity in CSIStorageCapacity objects."),
        Column::text("TokenRequests", "The audiences of the tokens the driver is given."),
        Column::boolean("RequiresRepublish", "Whether the driver publishes volumes again and again."),
        Column::text("Modes", "The kinds of volumes this driver supports."),
        Column::AGE,
    ],
    ..Kind::new(GROUP, ["CSIDriver", "CSIDriverList", "csidrivers", "csidriver"], Scope::Cluster, &DRIVER_OPS)
};

static DRIVER_OPS: Plain = Plain {
    updates_unconditionally: false,
    default: default_driver,
    check: driver,
    check_update: |errors, doc, old| {
        driver(errors, doc);
        if at(doc, "spec.attachRequired") != at(old, "spec.attachRequired") {
            // Upstream names the field like this.
            let value = at(doc, "spec.attachRequired").clone();
            errors.push(FieldError::invalid("spec.attachedRequired", value, "field is immutable"));
        }
        errors.immutable(doc, old, "spec.volumeLifecycleModes");
    },
    cells: |doc| {
        let flag = |path: &str| json!(at(doc, path).as_bool().unwrap_or(false));
        let listed = |path: &str, part: &str| {
            let items = items(doc, path).iter();
            let texts: Vec<&str> =
                items.filter_map(|item| if part.is_empty() { item.as_str() } else { Some(text(item, part)) }).collect();
            texts.join(",")
        };
        let tokens = match at(doc, "spec.tokenRequests") {
            Value::Null => "<unset>".to_owned(),
            _ => listed("spec.tokenRequests", "audience"),
        };
        vec![
            json!(at(doc, "spec.attachRequired").as_bool().unwrap_or(true)),
            flag("spec.podInfoOnMount"),
            flag("spec.storageCapacity"),
            json!(tokens),
            flag("spec.requiresRepublish"),
            json!(or_none(&listed("spec.volumeLifecycleModes", ""))),
        ]
    },
    ..Plain::of(&DRIVER, &Typed::<CSIDriver>::NEW)
};

/// API-738.
fn default_driver(doc: &mut Value) {
    let spec = object(doc, "spec");
    for (field, value) in [
        ("attachRequired", json!(true)),
        ("podInfoOnMount", json!(false)),
        ("storageCapacity", json!(false)),
        ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
        ("volumeLifecycleModes", json!(["Persistent"])),
        ("requiresRepublish", json!(false)),
        ("seLinuxMount", json!(false)),
    ] {
        set_default(spec, field, value);
    }
}

fn driver(errors: &mut Errors, doc: &Value) {
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    errors.one_of("spec.fsGroupPolicy", text(doc, "spec.fsGroupPolicy"), &policies);
    let mut audiences = BTreeSet::new();
    for (index, request) in items(doc, "spec.tokenRequests").iter().enumerate() {
        let path = format!("spec.tokenRequests[{index}]");
        let audience = text(request, "audience");
        if !audiences.insert(audience) {
            errors.push(FieldError::duplicate(format!("{path}.audience"), audience));
            continue;
        }
        let path = format!("{path}.expirationSeconds");
        match at(request, "expirationSeconds").as_i64() {
            Some(seconds) if seconds < 600 => {
                let detail = "may not specify a duration less than 10 minutes";
                errors.push(FieldError::invalid(path, seconds, detail));
            }
            Some(seconds) if seconds > 1 << 32 => {
                let detail = "may not specify a duration larger than 2^32 seconds";
                errors.push(FieldError::invalid(path, seconds, detail));
            }
            _ => {}
        }
    }
    for mode in items(doc, "spec.volumeLifecycleModes").iter().filter_map(Value::as_str) {
        errors.one_of("spec.volumeLifecycleModes", mode, &["Persistent", "Ephemeral"]);
    }
    if let Some(period) = at(doc, "spec.nodeAllocatableUpdatePeriodSeconds").as_i64().filter(|period| *period < 10) {
        let detail = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail));
    }
}

pub static CAPACITY: Kind = Kind {
    columns: &[
        Column::NAME,
        Column::text("StorageClassName", "The StorageClass the capacity is reported for."),
        Column::text("Capacity", "What the driver can still provision, in bytes."),
    ],
    ..Kind::new(
        GROUP,
        ["CSIStorageCapacity", "CSIStorageCapacityList", "csistoragecapacities", "csistoragecapacity"],
        Scope::Namespaced,
        &CAPACITY_OPS,
    )
};

static CAPACITY_OPS: Plain = Plain {
    check: |errors, doc| {
        typed::check(errors, "nodeTopology", at(doc, "nodeTopology"));
        let class = text(doc, "storageClassName");
        invalid_each(&mut errors.0, "storageClassName", class, names::dns_subdomain(class));
        let capacity = text(doc, "capacity");
        if Quantity::parse(capacity).is_ok_and(|capacity| capacity.is_negative()) {
            errors.push(FieldError::invalid("capacity", capacity, "must be greater than or equal to 0"));
        }
    },
    check_update: |errors, doc, old| {
        errors.immutable(doc, old, "nodeTopology");
        errors.immutable(doc, old, "storageClassName");
    },
    cells: |doc| {
        let capacity = at(doc, "capacity").as_str().unwrap_or("<unset>");
        vec![json!(text(doc, "storageClassName")), json!(capacity)]
    },
    ..Plain::of(&CAPACITY, &Typed::<CSIStorageCapacity>::NEW)
};

pub static ATTACHMENT: Kind = Kind {
    subresources: &[Subresource::Status],
    columns: &[
        Column::NAME,
        Column { format: "name", ..Column::text("Attacher", "The driver that handles this request.") },
        Column::text("PV", "persistentVolumeName represents the name of the persistent volume to attach."),
        Column::text("Node", "nodeName represents the node that the volume should be attached to."),
        Column::boolean("Attached", "Whether the volume is attached, as the attacher says."),
        Column::AGE,
    ],
    ..Kind::new(
        GROUP,
        ["VolumeAttachment", "VolumeAttachmentList", "volumeattachments", "volumeattachment"],
        Scope::Cluster,
        &ATTACHMENT_OPS,
    )
};

/// API-357.
static ATTACHMENT_OPS: Plain = Plain {
    first_status: || json!({"attached": false}),
    check: attachment,
    check_update: |errors, doc, old| {
        attachment(errors, doc);
        errors.immutable(doc, old, "spec");
    },
    check_status: |errors, doc, _| attachment_status(errors, doc),
    cells: |doc| {
        vec![
            json!(text(doc, "spec.attacher")),
            json!(text(doc, "spec.source.persistentVolumeName")),
            json!(text(doc, "spec.nodeName")),
            json!(at(doc, "status.attached").as_bool().unwrap_or(false)),
        ]
    },
    ..Plain::of(&ATTACHMENT, &Typed::<VolumeAttachment>::NEW)
};

fn attachment(errors: &mut Errors, doc: &Value) {
    driver_name(errors, "spec.attacher", text(doc, "spec.attacher"));
    let (inline, volume) = (at(doc, "spec.source.inlineVolumeSpec"), at(doc, "spec.source.persistentVolumeName"));
    let exactly = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline, volume) {
        (Value::Null, Value::Null) => errors.push(FieldError::required("spec.source", exactly)),
        (Value::Null, Value::String(name)) if name.is_empty() => {
            let detail = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required("spec.source.persistentVolumeName", detail));
        }
        (_, Value::Null) | (Value::Null, _) => {}
        _ => errors.push(FieldError::forbidden("spec.source", exactly)),
    }
    let node = text(doc, "spec.nodeName");
    invalid_each(&mut errors.0, "spec.nodeName", node, names::dns_subdomain(node));
    errors.optional("spec.source.persistentVolumeName", volume.as_str().unwrap_or_default(), names::dns_subdomain);
}

fn attachment_status(errors: &mut Errors, doc: &Value) {
    const METADATA_MAX: usize = 256 << 10;
    const MESSAGE_MAX: usize = 1024;
    let pairs = at(doc, "status.attachmentMetadata").as_object().into_iter().flatten();
    let size: usize = pairs.map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    if size > METADATA_MAX {
        errors.push(FieldError::too_long("status.attachmentMetadata", METADATA_MAX));
    }
    for path in ["status.attachError", "status.detachError"] {
        if text(at(doc, path), "message").len() > MESSAGE_MAX {
            errors.push(FieldError::too_long(format!("{path}.message"), MESSAGE_MAX));
        }
        if let Some(code) = at(at(doc, path), "errorCode").as_i64().filter(|code| *code < 0) {
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(format!("{path}.errorCode"), code, detail));
        }
    }
}

pub static ATTRIBUTES_CLASS: Kind = Kind {
    short_names: &["vac"],
    columns: &[
        Column::NAME,
        Column::text("DriverName", "driverName is the name of the CSI driver This field is immutable."),
        Column::AGE,
    ],
    ..Kind::new(
        GROUP,
        ["VolumeAttributesClass", "VolumeAttributesClassList", "volumeattributesclasses", "volumeattributesclass"],
        Scope::Cluster,
        &ATTRIBUTES_OPS,
    )
};

static ATTRIBUTES_OPS: Plain = Plain {
    check: attributes,
    check_update: |errors, doc, old| {
        for field in ["driverName", "parameters"].into_iter().filter(|field| at(doc, field) != at(old, field)) {
            errors.push(FieldError::forbidden(field, format!("updates to {field} are forbidden.")));
        }
        attributes(errors, doc);
    },
    cells: |doc| vec![json!(text(doc, "driverName"))],
    ..Plain::of(&ATTRIBUTES_CLASS, &Typed::<VolumeAttributesClass>::NEW)
};

fn attributes(errors: &mut Errors, doc: &Value) {
    const COUNT_MAX: usize = 512;
    const SIZE_MAX: usize = 256 << 10;
    errors.name("driverName", text(doc, "driverName"), |name| names::qualified_name(&name.to_lowercase()));
    let Some(parameters) = at(doc, "parameters").as_object().filter(|it| !it.is_empty()) else {
        return errors.push(FieldError::required("parameters", "must contain at least one key/value pair"));
    };
    if parameters.len() > COUNT_MAX {
        return errors.push(FieldError::too_long("parameters", COUNT_MAX));
    }
    if parameters.contains_key("") {
        errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
    }
    let size: usize = parameters.iter().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    if size > SIZE_MAX {
        errors.push(FieldError::too_long("parameters", SIZE_MAX));
    }
}
