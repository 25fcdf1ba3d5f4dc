//! Namespace: descriptor and rules.

use crate::Typed;
use crate::api::core::v1::Namespace;
use crate::decode::Schema;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};

pub static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Namespace",
    list_kind: "NamespaceList",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    categories: &[],
    scope: Scope::Cluster,
    subresources: &[Subresource::Status, Subresource::Finalize],
    columns: &[Column::NAME, Column::AGE],
    ops: &NamespaceOps,
};

struct NamespaceOps;

impl KindOps for NamespaceOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Namespace>::NEW
    }
}
