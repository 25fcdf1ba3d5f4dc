//! Lease: descriptor and rules.

use serde_json::{Value, json};

use super::plain::Plain;
use crate::api::coordination::v1::Lease;
use crate::doc::{at, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::{Column, Kind, Scope};
use crate::schema::Typed;

/// API-049, API-256.
pub static KIND: Kind = Kind {
    columns: &[
        Column::NAME,
        Column::text("Holder", "holderIdentity contains the identity of the holder of a current lease."),
        Column::AGE,
    ],
    ..Kind::new("coordination.k8s.io", ["Lease", "LeaseList", "leases", "lease"], Scope::Namespaced, &OPS)
};

static OPS: Plain = Plain {
    creates_on_update: true,
    updates_unconditionally: false,
    check: spec,
    check_update: |errors, doc, _| spec(errors, doc),
    cells: |doc| vec![json!(text(doc, "spec.holderIdentity"))],
    ..Plain::of(&KIND, &Typed::<Lease>::NEW)
};

/// API-759.
fn spec(errors: &mut Errors, doc: &Value) {
    for (path, least, detail) in [
        ("spec.leaseDurationSeconds", 1, "must be greater than 0"),
        ("spec.leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if at(doc, path).as_i64().is_some_and(|number| number < least) {
            errors.push(FieldError::invalid(path, at(doc, path).clone(), detail));
        }
    }
}
