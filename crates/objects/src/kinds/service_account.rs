//! ServiceAccount: descriptor and rules (API-757: metadata only).

use crate::decode::{Schema, Typed};
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};

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
    subresources: &[Subresource::Token],
    columns: &[Column::NAME, Column::AGE],
    ops: &ServiceAccountOps,
};

struct ServiceAccountOps;

impl KindOps for ServiceAccountOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<crate::api::core::v1::ServiceAccount>::NEW
    }
}
