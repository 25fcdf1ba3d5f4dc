//! PersistentVolumeClaim: descriptor and rules.

use serde_json::{Value, json};

use crate::api::core::v1::PersistentVolumeClaim;
use crate::doc::{as_object, at, items, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::storage::{access_modes, modes_cell, or_unset, phase, storage, volume_mode};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

pub static KIND: Kind = Kind {
    short_names: &["pvc"],
    subresources: &[Subresource::Status],
    columns: COLUMNS,
    ..Kind::new(
        "",
        ["PersistentVolumeClaim", "PersistentVolumeClaimList", "persistentvolumeclaims", "persistentvolumeclaim"],
        Scope::Namespaced,
        &ClaimOps,
    )
};

/// API-254.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Status", "phase represents the current phase of PersistentVolumeClaim."),
    Column::text("Volume", "volumeName is the binding reference to the PersistentVolume backing this claim."),
    Column::text("Capacity", "capacity represents the actual resources of the underlying volume."),
    Column::text("Access Modes", "accessModes contains the actual access modes the volume backing the PVC has."),
    Column::text("StorageClass", "storageClassName is the name of the StorageClass required by the claim."),
    Column::text(
        "VolumeAttributesClass",
        "volumeAttributesClassName may be used to set the VolumeAttributesClass used by this claim.",
    ),
    Column::AGE,
    Column::wide("VolumeMode", "volumeMode defines what type of volume is required by the claim."),
];

struct ClaimOps;

impl KindOps for ClaimOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<PersistentVolumeClaim>::NEW
    }

    /// API-736.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        set_default(object(doc, "spec"), "volumeMode", "Filesystem");
        set_default(object(doc, "status"), "phase", "Pending");
    }

    fn prepare_create(&self, doc: &mut Value, _gates: &Gates) {
        as_object(doc).insert("status".to_owned(), json!({"phase": "Pending"}));
        meta::prepare_create(doc, false);
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(spec(doc));
        errors
    }

    /// The spec is settled, but for its volume while it has none and for a
    /// larger request.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        let (mut new, mut before) = (at(doc, "spec").clone(), at(old, "spec").clone());
        for spec in [&mut new, &mut before] {
            as_object(object(spec, "resources").entry("requests").or_insert(Value::Null)).shift_remove("storage");
        }
        if text(old, "spec.volumeName").is_empty() {
            as_object(&mut new).shift_remove("volumeName");
            as_object(&mut before).shift_remove("volumeName");
        }
        if new != before {
            let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
            errors.push(FieldError::forbidden("spec", detail));
        }
        errors.extend(storage(doc, "spec.resources.requests"));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let is_bound = !text(doc, "spec.volumeName").is_empty();
        let capacity = if is_bound { text(doc, "status.capacity.storage") } else { "" };
        let modes = if is_bound { modes_cell(items(doc, "status.accessModes")) } else { String::new() };
        vec![
            json!(text(doc, "metadata.name")),
            json!(phase(doc)),
            json!(text(doc, "spec.volumeName")),
            json!(capacity),
            json!(modes),
            json!(text(doc, "spec.storageClassName")),
            json!(or_unset(at(doc, "spec.volumeAttributesClassName"))),
            json!(printing::age_of(doc, now)),
            json!(or_unset(at(doc, "spec.volumeMode"))),
        ]
    }
}

/// API-763: also of the claims a StatefulSet makes.
pub(super) fn spec(doc: &Value) -> Vec<FieldError> {
    let mut errors = access_modes(doc);
    errors.extend(storage(doc, "spec.resources.requests"));
    errors.extend(volume_mode(doc));
    errors
}
