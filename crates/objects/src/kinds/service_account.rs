//! ServiceAccount: descriptor and rules.

use crate::Typed;
use crate::api::core::v1::ServiceAccount;
use crate::decode::Schema;
use crate::kinds::{Column, Kind, KindOps, Scope};

pub static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ServiceAccount",
    list_kind: "ServiceAccountList",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    columns: &[Column::NAME, Column::AGE],
    ops: &ServiceAccountOps,
};

struct ServiceAccountOps;

impl KindOps for ServiceAccountOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ServiceAccount>::NEW
    }
}
