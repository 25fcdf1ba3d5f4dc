//! Pod: descriptor and rules. Defaults, validation, status rules and table
//! cells have a file each.

use serde_json::{Value, json};

use crate::Typed;
use crate::api::core::v1::{Pod, PodSpec};
use crate::doc::{self, as_object, items, text};
use crate::errors::FieldError;
use crate::gates::Gates;
use crate::kinds::{Column, Kind, KindOps, Scope, Subresource};
use crate::reasons::{condition, phase};
use crate::schema::Schema;
use crate::{meta, qos};

mod app_armor;
mod defaults;
mod ephemeral;
mod features;
mod labels;
mod resize;
mod status;
mod table;
pub(super) mod template;
mod update;
mod validate;
mod warnings;

/// API-034.
pub static KIND: Kind = Kind {
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource::Attach,
        Subresource::Binding,
        Subresource::EphemeralContainers,
        Subresource::Eviction,
        Subresource::Exec,
        Subresource::Log,
        Subresource::PortForward,
        Subresource::Proxy,
        Subresource::Resize,
        Subresource::Status,
    ],
    columns: COLUMNS,
    ..Kind::new("", ["Pod", "PodList", "pods", "pod"], Scope::Namespaced, &PodOps)
};

/// API-237.
const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
    Column::text("Status", "The aggregate status of the containers in this pod."),
    Column::text(
        "Restarts",
        "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
    ),
    Column::AGE,
    Column::wide(
        "IP",
        "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated.",
    ),
    Column::wide("Node", "NodeName indicates in which node this pod is scheduled."),
    Column::wide(
        "Nominated Node",
        "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods.",
    ),
    Column::wide("Readiness Gates", "If specified, all readiness gates will be evaluated for pod readiness."),
];

pub use table::{Cells, cells};

use features::Features;
pub(super) use update::difference;
pub(super) use validate::{amounts, tolerate};

struct PodOps;

impl KindOps for PodOps {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn schema(&self) -> &'static dyn Schema {
        &Typed::<Pod>::NEW
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, doc: &mut Value) {
        self.schema().canonicalise(doc);
        defaults::pod(doc);
    }

    /// API-490 to API-492.
    fn prepare_create(&self, doc: &mut Value, gates: &Gates) {
        meta::prepare_create(doc, true);
        Features::of_new(gates).drop_unavailable(doc);
        labels::resolve_keys(doc);
        app_armor::fill(doc);
        let mut status = json!({"phase": phase::PENDING, "qosClass": qos_class(doc)});
        if !items(doc, "spec.schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": condition::POD_SCHEDULED,
                "status": "False",
                "reason": condition::SCHEDULING_GATED,
                "message": condition::SCHEDULING_GATED_MESSAGE,
            }]);
        }
        as_object(doc).insert("status".to_owned(), status);
    }

    /// API-180.
    fn prepare_update(&self, doc: &mut Value, old: &Value, gates: &Gates) {
        Features::of_stored(gates, old).drop_unavailable(doc);
        doc::keep(as_object(doc), old, "status");
        meta::prepare_update(doc, old, true);
    }

    fn prepare_status_update(&self, doc: &mut Value, old: &Value) {
        meta::prepare_status_update(doc, old);
        status::keep_what_was_cleared(doc, old);
    }

    fn prepare_part(&self, part: Subresource, doc: &mut Value, old: &Value, gates: &Gates) {
        match part {
            Subresource::EphemeralContainers => ephemeral::keep_everything_else(doc, old),
            Subresource::Resize => resize::keep_everything_else(doc, old),
            _ => {}
        }
        self.prepare_update(doc, old, gates);
    }

    fn validate_create(&self, doc: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_create(doc, Scope::Namespaced, self.name_format());
        errors.extend(validate::annotations::all(doc, "metadata.annotations"));
        errors.extend(validate::spec(doc, &Features::of_new(gates)));
        errors.extend(validate::own_claims(doc));
        errors.extend(validate::images(doc));
        errors.extend(validate::create(doc));
        errors
    }

    fn validate_update(&self, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(validate::spec(doc, &Features::of_stored(gates, old)));
        errors.extend(validate::own_claims(doc));
        errors.extend(validate::images(doc));
        errors.extend(update::validate(doc, old));
        errors
    }

    fn validate_part(&self, part: Subresource, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let own = match part {
            Subresource::EphemeralContainers => ephemeral::validate(doc, old),
            Subresource::Resize => resize::validate(doc, old),
            _ => return self.validate_update(doc, old, gates),
        };
        let mut errors = meta::validate_update(doc, old);
        errors.extend(validate::spec(doc, &Features::of_stored(gates, old)));
        errors.extend(validate::own_claims(doc));
        errors.extend(validate::images(doc));
        errors.extend(own);
        errors
    }

    fn validate_status_update(&self, doc: &Value, old: &Value, gates: &Gates) -> Vec<FieldError> {
        let mut errors = meta::validate_update(doc, old);
        errors.extend(status::validate(doc, old, gates));
        errors
    }

    fn warnings(&self, doc: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() {
            return Vec::new();
        }
        warnings::host_name(doc).into_iter().chain(warnings::all(doc, "")).collect()
    }

    /// API-218.
    fn fields(&self, doc: &Value) -> Vec<(&'static str, String)> {
        let mut fields = meta::fields(doc, Scope::Namespaced);
        for path in [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ] {
            fields.push((path, text(doc, path).to_owned()));
        }
        fields.push(("spec.host", text(doc, "spec.nodeName").to_owned()));
        fields.push(("spec.hostNetwork", doc::at(doc, "spec.hostNetwork").as_bool().unwrap_or(false).to_string()));
        let first_ip = items(doc, "status.podIPs").first().map_or("", |address| text(address, "ip"));
        fields.push(("status.podIPs", first_ip.to_owned()));
        fields
    }

    fn row(&self, doc: &Value, now: ambient::Now) -> Vec<Value> {
        table::row(doc, now)
    }
}

/// The class of a document's spec; a spec that does not decode has none yet.
fn qos_class(doc: &Value) -> &'static str {
    let spec: Option<PodSpec> = doc.get("spec").and_then(|spec| serde::Deserialize::deserialize(spec).ok());
    qos::of(&spec.unwrap_or_default()).as_str()
}

#[cfg(test)]
pub(super) mod tests;
