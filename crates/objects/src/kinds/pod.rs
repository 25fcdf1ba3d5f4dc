//! Pod: descriptor and rules.

use crate::Typed;
use crate::api::core::v1::Pod;
use crate::decode::Schema;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};

pub static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Pod",
    list_kind: "PodList",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    scope: Scope::Namespaced,
    subresources: &[Subresource::Status, Subresource::Binding, Subresource::Log],
    columns: &[Column::NAME, Column::AGE],
    ops: &PodOps,
};

struct PodOps;

impl KindOps for PodOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Pod>::NEW
    }
}
