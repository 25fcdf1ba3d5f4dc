//! StorageClass: descriptor and rules.

use serde_json::{Value, json};

use crate::api::storage::v1::StorageClass;
use crate::doc::{as_object, at, set_default, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::schema::{Schema, Typed};
use crate::{meta, printing};

pub static KIND: Kind = Kind {
    short_names: &["sc"],
    columns: COLUMNS,
    ..Kind::new(
        "storage.k8s.io",
        ["StorageClass", "StorageClassList", "storageclasses", "storageclass"],
        Scope::Cluster,
        &ClassOps,
    )
};

/// Marks the class of claims that name none.
pub const DEFAULT_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";

/// API-255.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Provisioner", "provisioner indicates the type of the provisioner."),
    Column::text(
        "ReclaimPolicy",
        "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class.",
    ),
    Column::text(
        "VolumeBindingMode",
        "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.",
    ),
    Column::text("AllowVolumeExpansion", "allowVolumeExpansion shows whether the storage class allow volume expand."),
    Column::AGE,
];

struct ClassOps;

/// Whether this class is for claims that name none.
pub fn is_default(doc: &Value) -> bool {
    let annotation = at(doc, "metadata.annotations").get(DEFAULT_ANNOTATION);
    annotation.is_some_and(|value| value == "true")
}

impl KindOps for ClassOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<StorageClass>::NEW
    }

    /// API-737.
    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        set_default(as_object(doc), "reclaimPolicy", "Delete");
        set_default(as_object(doc), "volumeBindingMode", "Immediate");
    }

    /// API-763.
    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Cluster, self.name_format());
        if text(doc, "provisioner").is_empty() {
            errors.push(FieldError::required("provisioner", ""));
        }
        for (field, known) in
            [("reclaimPolicy", ["Delete", "Retain"]), ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"])]
        {
            if !known.contains(&text(doc, field)) {
                errors.push(FieldError::not_supported(field, text(doc, field), &known));
            }
        }
        errors
    }

    /// API-377.
    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if at(doc, field) != at(old, field) {
                errors.push(FieldError::forbidden(field, format!("updates to {field} are forbidden.")));
            }
        }
        errors
    }

    /// API-289.
    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let suffix = if is_default(doc) { " (default)" } else { "" };
        vec![
            json!(format!("{}{suffix}", text(doc, "metadata.name"))),
            json!(text(doc, "provisioner")),
            json!(text(doc, "reclaimPolicy")),
            json!(text(doc, "volumeBindingMode")),
            json!(at(doc, "allowVolumeExpansion").as_bool().unwrap_or(false)),
            json!(printing::age_of(doc, now)),
        ]
    }
}
