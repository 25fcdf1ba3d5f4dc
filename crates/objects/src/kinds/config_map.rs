//! ConfigMap: descriptor and rules.

use crate::Typed;
use crate::api::core::v1::ConfigMap;
use crate::decode::Schema;
use crate::kinds::{Column, Kind, KindOps, Scope};

pub static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    list_kind: "ConfigMapList",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    columns: &[Column::NAME, Column::AGE],
    ops: &ConfigMapOps,
};

struct ConfigMapOps;

impl KindOps for ConfigMapOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ConfigMap>::NEW
    }
}
