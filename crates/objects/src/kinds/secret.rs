//! Secret: descriptor and rules.

use crate::Typed;
use crate::api::core::v1::Secret;
use crate::decode::Schema;
use crate::kinds::{Column, Kind, KindOps, Scope};

pub static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Secret",
    list_kind: "SecretList",
    plural: "secrets",
    singular: "secret",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    columns: &[Column::NAME, Column::AGE],
    ops: &SecretOps,
};

struct SecretOps;

impl KindOps for SecretOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Secret>::NEW
    }
}
