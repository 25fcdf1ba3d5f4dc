//! Lease: descriptor and rules.

use crate::Typed;
use crate::api::coordination::v1::Lease;
use crate::decode::Schema;
use crate::kinds::{Column, Kind, KindOps, Scope};

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
    columns: &[Column::NAME, Column::AGE],
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
}
