//! PersistentVolume: descriptor and rules.

use serde_json::{Map, Value, json};

use crate::api::core::v1::PersistentVolume;
use crate::doc::{as_object, at, items, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::storage::{access_modes, modes_cell, or_unset, phase, storage, volume_mode};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-041.
pub static KIND: Kind = Kind {
    short_names: &["pv"],
    subresources: &[Subresource::Status],
    columns: COLUMNS,
    ..Kind::new(
        "",
        ["PersistentVolume", "PersistentVolumeList", "persistentvolumes", "persistentvolume"],
        Scope::Cluster,
        &VolumeOps,
    )
};

/// API-253.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Capacity", "capacity is the description of the persistent volume's resources and capacity."),
    Column::text("Access Modes", "accessModes contains all ways the volume can be mounted."),
    Column::text(
        "Reclaim Policy",
        "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim.",
    ),
    Column::text("Status", "phase indicates if a volume is available, bound to a claim, or released by a claim."),
    Column::text(
        "Claim",
        "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim.",
    ),
    Column::text(
        "StorageClass",
        "storageClassName is the name of StorageClass to which this persistent volume belongs.",
    ),
    Column::text("VolumeAttributesClass", "Name of VolumeAttributesClass to which this persistent volume belongs."),
    Column::text(
        "Reason",
        "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display in the CLI.",
    ),
    Column::AGE,
    Column::wide(
        "VolumeMode",
        "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block state.",
    ),
];

struct VolumeOps;

impl KindOps for VolumeOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<PersistentVolume>::NEW
    }

    /// API-736.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        let spec = object(doc, "spec");
        set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
        set_default(spec, "volumeMode", "Filesystem");
        if let Some(host) = spec.get_mut("hostPath").and_then(Value::as_object_mut) {
            set_default(host, "type", "");
        }
        set_default(object(doc, "status"), "phase", "Pending");
    }

    fn prepare_create(&self, doc: &mut Value, _gates: &Gates) {
        as_object(doc).insert("status".to_owned(), json!({"phase": "Pending"}));
        meta::prepare_create(doc, false);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Cluster, self.name_format());
        errors.extend(spec(doc));
        errors
    }

    /// API-374.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(spec(doc));
        if source(doc) != source(old) {
            let detail = "spec.persistentvolumesource is immutable after creation";
            errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
        }
        errors.extend(meta::immutable("spec.volumeMode", at(doc, "spec.volumeMode"), at(old, "spec.volumeMode")));
        let affinity = at(old, "spec.nodeAffinity");
        if !affinity.is_null() {
            errors.extend(meta::immutable("spec.nodeAffinity", at(doc, "spec.nodeAffinity"), affinity));
        }
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let claim = match text(doc, "spec.claimRef.name") {
            "" => String::new(),
            name => format!("{}/{name}", text(doc, "spec.claimRef.namespace")),
        };
        vec![
            json!(text(doc, "metadata.name")),
            json!(text(doc, "spec.capacity.storage")),
            json!(modes_cell(items(doc, "spec.accessModes"))),
            json!(text(doc, "spec.persistentVolumeReclaimPolicy")),
            json!(phase(doc)),
            json!(claim),
            json!(text(doc, "spec.storageClassName")),
            json!(or_unset(at(doc, "spec.volumeAttributesClassName"))),
            json!(text(doc, "status.reason")),
            json!(printing::age_of(doc, now)),
            json!(or_unset(at(doc, "spec.volumeMode"))),
        ]
    }
}

/// Fields of the spec that say nothing about where the data is.
const OTHERS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn source(doc: &Value) -> Map<String, Value> {
    let mut spec = at(doc, "spec").as_object().cloned().unwrap_or_default();
    spec.retain(|key, _| !OTHERS.contains(&key.as_str()));
    spec
}

/// API-763.
fn spec(doc: &Value) -> Vec<FieldError> {
    let mut errors = access_modes(doc);
    errors.extend(storage(doc, "spec.capacity"));
    errors.extend(volume_mode(doc));
    let sources: Vec<String> = source(doc).into_iter().map(|(key, _)| key).collect();
    match &sources[..] {
        [] => errors.push(FieldError::required("spec", "must specify a volume type")),
        [_] => {}
        [_, more @ ..] => {
            let forbidden = |name: &String| {
                FieldError::forbidden(format!("spec.{name}"), "may not specify more than 1 volume type")
            };
            errors.extend(more.iter().map(forbidden));
        }
    }
    for path in ["spec.hostPath.path", "spec.local.path"] {
        let parent = path.trim_end_matches(".path");
        if at(doc, parent).is_object() && text(doc, path).is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if text(doc, path).split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(path, text(doc, path), "must not contain '..'"));
        }
    }
    if at(doc, "spec.local").is_object() && at(doc, "spec.nodeAffinity.required").is_null() {
        errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
    }
    let policy = text(doc, "spec.persistentVolumeReclaimPolicy");
    if !["Delete", "Recycle", "Retain"].contains(&policy) {
        let known = ["Delete", "Recycle", "Retain"];
        errors.push(FieldError::not_supported("spec.persistentVolumeReclaimPolicy", policy, &known));
    }
    errors
}
