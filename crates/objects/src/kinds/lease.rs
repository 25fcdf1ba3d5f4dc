//! Lease: descriptor and rules.

use serde_json::{Value, json};

use crate::api::coordination::v1::Lease;
use crate::decode::{Schema, Typed};
use crate::doc::{at, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::{meta, printing};

pub static KIND: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    list_kind: "LeaseList",
    plural: "leases",
    singular: "lease",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    columns: &[
        Column::NAME,
        Column::text("Holder", "holderIdentity contains the identity of the holder of a current lease."),
        Column::AGE,
    ],
    ops: &LeaseOps,
};

struct LeaseOps;

impl KindOps for LeaseOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Lease>::NEW
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn updates_unconditionally(&self) -> bool {
        false
    }

    fn validate_create(&self, doc: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(spec(doc));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, _gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(spec(doc));
        errors
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        let holder = text(doc, "spec.holderIdentity");
        vec![json!(text(doc, "metadata.name")), json!(holder), json!(printing::age_of(doc, now))]
    }
}

/// API-759.
fn spec(doc: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut at_least = |path: &str, least: i64, detail: &str| {
        if at(doc, path).as_i64().is_some_and(|number| number < least) {
            errors.push(FieldError::invalid(path, at(doc, path).clone(), detail));
        }
    };
    at_least("spec.leaseDurationSeconds", 1, "must be greater than 0");
    at_least("spec.leaseTransitions", 0, "must be greater than or equal to 0");
    errors
}
