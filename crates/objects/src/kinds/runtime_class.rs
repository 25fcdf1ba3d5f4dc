//! RuntimeClass: descriptor and rules.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::plain::Plain;
use crate::api::node::v1::RuntimeClass;
use crate::doc::{at, items, text};
use crate::errors::{Errors, FieldError};
use crate::kinds::{Column, Kind, Scope, pod};
use crate::schema::Typed;
use crate::{meta, names};

/// API-053, API-259.
pub static KIND: Kind = Kind {
    columns: &[Column::NAME, Column::text("Handler", ""), Column::AGE],
    ..Kind::new(
        "node.k8s.io",
        ["RuntimeClass", "RuntimeClassList", "runtimeclasses", "runtimeclass"],
        Scope::Cluster,
        &OPS,
    )
};

/// API-188, API-189, API-372, API-762.
static OPS: Plain = Plain {
    creates_on_update: true,
    updates_unconditionally: false,
    check: class,
    check_update: |errors, doc, old| errors.immutable(doc, old, "handler"),
    cells: |doc| vec![json!(text(doc, "handler"))],
    ..Plain::of(&KIND, &Typed::<RuntimeClass>::NEW)
};

fn class(errors: &mut Errors, doc: &Value) {
    errors.name("handler", text(doc, "handler"), names::dns_label);
    // Upstream checks them as if they were limits, and says so.
    pod::amounts(errors, at(doc, "overhead.podFixed"), "overhead.limits");
    errors.0.extend(meta::labels(at(doc, "scheduling.nodeSelector"), "scheduling.nodeSelector"));
    let tolerations = items(doc, "scheduling.tolerations");
    for (index, toleration) in tolerations.iter().enumerate() {
        pod::tolerate(errors, toleration, &format!("scheduling.tolerations[{index}]"));
    }
    let mut seen = HashSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|part| text(toleration, part))) {
            errors.push(FieldError::duplicate(format!("scheduling.tolerations[{index}]"), toleration.clone()));
        }
    }
}
