//! Node: descriptor and rules.

use crate::Typed;
use crate::api::core::v1::Node;
use crate::decode::Schema;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};

pub static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Node",
    list_kind: "NodeList",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    categories: &[],
    scope: Scope::Cluster,
    subresources: &[Subresource::Status],
    columns: &[Column::NAME, Column::AGE],
    ops: &NodeOps,
};

struct NodeOps;

impl KindOps for NodeOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Node>::NEW
    }
}
