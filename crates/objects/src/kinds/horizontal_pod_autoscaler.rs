//! HorizontalPodAutoscaler: descriptor, defaults and cells. It is stored and
//! checked; nothing scales by it yet.
//!
//! Read next: `horizontal_pod_autoscaler/validate.rs`.

use serde_json::{Map, Value, json};

use super::plain::Plain;
use crate::api::autoscaling::v2::HorizontalPodAutoscaler;
use crate::doc::{as_object, at, drop_zero, items, object, set_default, text};
use crate::kinds::{Column, Kind, Scope, Subresource, workload};
use crate::printing;
use crate::schema::Typed;

pub mod v1;
mod validate;

/// API-060, API-266.
pub static KIND: Kind = Kind {
    version: "v2",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::Status],
    columns: &[
        Column::NAME,
        Column::text("Reference", "What is scaled."),
        Column::text("Targets", "What is measured, and what it should be."),
        Column::text("MinPods", "The least number of pods."),
        Column::text("MaxPods", "The largest number of pods."),
        Column::text("Replicas", "How many pods there are."),
        Column::AGE,
    ],
    ..Kind::new(
        "autoscaling",
        [
            "HorizontalPodAutoscaler",
            "HorizontalPodAutoscalerList",
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
        ],
        Scope::Namespaced,
        &OPS,
    )
};

static OPS: Plain = Plain {
    default: defaults,
    first_status: || json!({"desiredReplicas": 0}),
    check: validate::spec,
    check_update: |errors, doc, _| validate::spec(errors, doc),
    check_status: |errors, doc, _| {
        for path in ["status.currentReplicas", "status.desiredReplicas"] {
            errors.non_negative(path, at(doc, path));
        }
    },
    cells,
    ..Plain::of(&KIND, &Typed::<HorizontalPodAutoscaler>::NEW)
};

fn cells(doc: &Value) -> Vec<Value> {
    let minimum = at(doc, "spec.minReplicas");
    let kind_and_name = ["kind", "name"].map(|field| text(at(doc, "spec.scaleTargetRef"), field));
    vec![
        json!(kind_and_name.join("/")),
        json!(targets(items(doc, "spec.metrics"), items(doc, "status.currentMetrics"))),
        json!(if minimum.is_null() { "<unset>".to_owned() } else { minimum.to_string() }),
        workload::count(doc, "spec.maxReplicas"),
        workload::count(doc, "status.currentReplicas"),
    ]
}

/// How busy the processor should be when nobody says what to measure.
const PROCESSOR_PERCENT: i64 = 80;

/// One pod at least; four fifths of the requested processor time; and rules
/// that are half said are completed.
fn defaults(doc: &mut Value) {
    let spec = object(doc, "spec");
    set_default(spec, "minReplicas", 1);
    if spec.get("metrics").is_none() {
        let target = json!({"type": "Utilization", "averageUtilization": PROCESSOR_PERCENT});
        spec.insert("metrics".to_owned(), json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    if let Some(behavior) = spec.get_mut("behavior") {
        let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
        let up = rules(as_object(behavior), "scaleUp");
        set_default(up, "stabilizationWindowSeconds", 0);
        set_default(up, "selectPolicy", "Max");
        set_default(up, "policies", json!([policy("Pods", 4), policy("Percent", 100)]));
        let down = rules(as_object(behavior), "scaleDown");
        set_default(down, "selectPolicy", "Max");
        set_default(down, "policies", json!([policy("Percent", 100)]));
    }
    if let Some(status) = doc.get_mut("status") {
        drop_zero(as_object(status), &["currentReplicas"]);
    }
}

fn rules<'a>(behavior: &'a mut Map<String, Value>, direction: &str) -> &'a mut Map<String, Value> {
    as_object(behavior.entry(direction).or_insert(Value::Null))
}

/// `cpu: 42%/80%`, the first two of them.
fn targets(metrics: &[Value], current: &[Value]) -> String {
    const SHOWN_MAX: usize = 2;
    let all: Vec<String> = metrics
        .iter()
        .enumerate()
        .map(|(index, metric)| target(metric, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    match all.len() {
        0 => "<none>".to_owned(),
        count if count > SHOWN_MAX => format!("{} + {} more...", all[..SHOWN_MAX].join(", "), count - SHOWN_MAX),
        _ => all.join(", "),
    }
}

fn target(metric: &Value, current: &Value) -> String {
    let (source, is_resource) = match text(metric, "type") {
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "External" => ("external", false),
        _ => return "<unknown type>".to_owned(),
    };
    let (target, now) = (at(at(metric, source), "target"), at(at(current, source), "current"));
    let amount = |of: &Value, field: &str, unknown: &str| match at(of, field) {
        Value::String(quantity) => quantity.clone(),
        Value::Number(percent) => format!("{percent}%"),
        _ => unknown.to_owned(),
    };
    let is_average = source == "pods" || !at(target, "averageValue").is_null();
    let field = match (is_average, is_resource) {
        (true, _) => "averageValue",
        (false, true) => "averageUtilization",
        (false, false) => "value",
    };
    let shown = format!("{}/{}", amount(now, field, "<unknown>"), amount(target, field, "<auto>"));
    match (is_resource, is_average && source != "pods") {
        (true, _) => format!("{}: {shown}", printing::or_none(text(at(metric, source), "name"))),
        (false, true) => format!("{shown} (avg)"),
        (false, false) => shown,
    }
}
