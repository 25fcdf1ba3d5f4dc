//! PersistentVolumeClaim: descriptor and rules.

use serde_json::{Value, json};

use crate::api::core::v1::PersistentVolumeClaim;
use crate::doc::{as_object, at, items, keep, object, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::storage::{access_modes, modes_cell, or_unset, phase, storage, volume_mode};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource, pod};
use crate::quantity::Quantity;
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

/// API-041.
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

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(spec(doc));
        errors.extend(settled(doc, old));
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

/// API-373: what may still change is the volume and the class while there is
/// none, and of a bound claim how much it asks for and how it is treated.
fn settled(doc: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (mut new, before) = (at(doc, "spec").clone(), at(old, "spec"));
    for once in ["volumeName", "storageClassName"] {
        if at(before, once).is_null() && !at(&new, once).is_null() {
            keep(as_object(&mut new), before, once);
        }
    }
    if text(doc, "status.phase") == "Bound" {
        keep(as_object(&mut new), before, "volumeAttributesClassName");
        if let Some(requests) = new.pointer_mut("/resources/requests") {
            keep(as_object(requests), at(before, "resources.requests"), "storage");
        }
    }
    let mut lines = Vec::new();
    pod::difference("", before, &new, &mut lines);
    if !lines.is_empty() {
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", format!("{detail}\n{}", lines.join("\n"))));
    }
    // Less than before only where more was never given: a way back from an
    // expansion that failed.
    let amount = |doc: &Value, path: &str| Quantity::parse(text(doc, path)).unwrap_or_default();
    const REQUEST: &str = "spec.resources.requests.storage";
    let asked = amount(doc, REQUEST);
    if asked < amount(old, REQUEST) && asked <= amount(old, "status.capacity.storage") {
        errors.push(FieldError::forbidden(REQUEST, "field can not be less than status.capacity"));
    }
    errors.extend(meta::immutable("volumeMode", at(doc, "spec.volumeMode"), at(old, "spec.volumeMode")));
    const CLASS: &str = "spec.volumeAttributesClassName";
    if !at(old, "status.currentVolumeAttributesClassName").is_null() && at(doc, CLASS) != at(old, CLASS) {
        let what = match at(doc, CLASS).as_str() {
            None => "nil",
            Some("") => "empty string",
            Some(_) => return errors,
        };
        let detail = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
        errors.push(FieldError::forbidden(CLASS, detail));
    }
    errors
}

/// API-763: also of the claims a StatefulSet makes.
pub(super) fn spec(doc: &Value) -> Vec<FieldError> {
    let mut errors = access_modes(doc);
    errors.extend(storage(doc, "spec.resources.requests"));
    errors.extend(volume_mode(doc));
    errors
}
