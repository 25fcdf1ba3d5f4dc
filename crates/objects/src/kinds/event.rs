//! Event: descriptor and rules.

use crate::Typed;
use crate::api::core::v1::Event;
use crate::decode::Schema;
use crate::kinds::{Column, Kind, KindOps, Scope};

pub static KIND: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Event",
    list_kind: "EventList",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    categories: &[],
    scope: Scope::Namespaced,
    subresources: &[],
    columns: &[Column::NAME, Column::AGE],
    ops: &EventOps,
};

struct EventOps;

impl KindOps for EventOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Event>::NEW
    }
}
