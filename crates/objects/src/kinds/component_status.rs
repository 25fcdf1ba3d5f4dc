//! ComponentStatus: how the parts of a cluster are. Made when somebody asks.

use serde_json::{Value, json};

use crate::api::core::v1::ComponentStatus;
use crate::doc::{items, text};
use crate::kinds::{Column, Kind, KindOps, Scope};
use crate::schema::{Schema, Typed};

/// API-044.
pub static KIND: Kind = Kind {
    short_names: &["cs"],
    columns: &[
        Column::NAME,
        Column::text("Status", "Status of the component conditions"),
        Column::text("Message", "Message of the component conditions"),
        Column::text("Error", "Error of the component conditions"),
    ],
    ..Kind::new(
        "",
        ["ComponentStatus", "ComponentStatusList", "componentstatuses", "componentstatus"],
        Scope::Cluster,
        &StatusOps,
    )
};

struct StatusOps;

impl KindOps for StatusOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<ComponentStatus>::NEW
    }

    fn is_stored(&self) -> bool {
        false
    }

    fn verbs(&self) -> &'static [&'static str] {
        &["get", "list"]
    }

    fn row(&self, doc: &Value, _now: ambient::Now) -> Vec<Value> {
        let healthy = items(doc, "conditions").iter().find(|condition| text(condition, "type") == "Healthy");
        let status = match healthy.map(|condition| text(condition, "status")) {
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        };
        let of = |part| json!(healthy.map_or("", |condition| text(condition, part)));
        vec![json!(text(doc, "metadata.name")), json!(status), of("message"), of("error")]
    }
}
