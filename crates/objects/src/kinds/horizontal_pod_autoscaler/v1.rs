//! HorizontalPodAutoscaler of `autoscaling/v1`: another view of the same
//! objects (API-060). It knows one measure, the processor; what else is
//! measured travels in annotations, so that nothing is lost by looking.

use serde_json::{Map, Value, json};

use super::super::plain::Plain;
use super::{cells, validate};
use crate::api::autoscaling::v1::HorizontalPodAutoscaler;
use crate::doc::{as_object, at, object, set_default, text};
use crate::kinds::{Kind, View};
use crate::schema::Typed;

pub static KIND: Kind = Kind { version: "v1", ops: &OPS, ..super::KIND };

static VIEW: View = View { of: &super::KIND, to_stored, from_stored };

static OPS: Plain = Plain {
    view: Some(&VIEW),
    default: defaults,
    first_status: || json!({"currentReplicas": 0, "desiredReplicas": 0}),
    check: |errors, doc| validate::spec(errors, &stored(doc)),
    check_update: |errors, doc, _| validate::spec(errors, &stored(doc)),
    cells: |doc| cells(&stored(doc)),
    ..Plain::of(&KIND, &Typed::<HorizontalPodAutoscaler>::NEW)
};

/// `(part, field, annotation)`: what this version has no field for.
const CARRIED: [(&str, &str, &str); 4] = [
    ("spec", "metrics", "autoscaling.alpha.kubernetes.io/metrics"),
    ("spec", "behavior", "autoscaling.alpha.kubernetes.io/behavior"),
    ("status", "currentMetrics", "autoscaling.alpha.kubernetes.io/current-metrics"),
    ("status", "conditions", "autoscaling.alpha.kubernetes.io/conditions"),
];
/// `(part, list, field of a measure that says how much, our field)`.
const PROCESSOR: [(&str, &str, &str, &str); 2] = [
    ("spec", "metrics", "target", "targetCPUUtilizationPercentage"),
    ("status", "currentMetrics", "current", "currentCPUUtilizationPercentage"),
];

fn defaults(doc: &mut Value) {
    let (_, _, metrics) = CARRIED[0];
    let measures_something = at(doc, "metadata.annotations").get(metrics).is_some();
    let spec = object(doc, "spec");
    set_default(spec, "minReplicas", 1);
    if !measures_something {
        set_default(spec, "targetCPUUtilizationPercentage", super::PROCESSOR_PERCENT);
    }
}

fn stored(doc: &Value) -> Value {
    let mut doc = doc.clone();
    to_stored(&mut doc);
    super::defaults(&mut doc);
    doc
}

fn to_stored(doc: &mut Value) {
    as_object(doc).insert("apiVersion".to_owned(), json!("autoscaling/v2"));
    for (part, field, annotation) in CARRIED {
        if let Some(value) = take_annotation(doc, (part, field), annotation) {
            object(doc, part).insert(field.to_owned(), value);
        }
    }
    for (part, list, amount, ours) in PROCESSOR {
        let Some(percent) = doc.get_mut(part).and_then(|part| as_object(part).shift_remove(ours)) else { continue };
        let mut how_much = json!({"averageUtilization": percent});
        if amount == "target" {
            how_much["type"] = json!("Utilization");
        }
        let measure = json!({"type": "Resource", "resource": {"name": "cpu", amount: how_much}});
        let measures = object(doc, part).entry(list).or_insert(json!([]));
        if let Some(measures) = measures.as_array_mut() {
            measures.insert(0, measure);
        }
    }
}

fn from_stored(doc: &mut Value) {
    as_object(doc).insert("apiVersion".to_owned(), json!("autoscaling/v1"));
    for (part, list, amount, ours) in PROCESSOR {
        let Some(measures) = doc.get_mut(part).and_then(|part| part.get_mut(list)).and_then(Value::as_array_mut) else {
            continue;
        };
        let percent =
            |measure: &Value| at(measure, "resource").get(amount).map(|it| at(it, "averageUtilization").clone());
        let is_ours = |measure: &Value| {
            text(measure, "resource.name") == "cpu" && percent(measure).is_some_and(|percent| percent.is_number())
        };
        if let Some(index) = measures.iter().position(is_ours) {
            let percent = percent(&measures.remove(index)).unwrap_or_default();
            object(doc, part).insert(ours.to_owned(), percent);
        }
    }
    for (part, field, annotation) in CARRIED {
        let Some(value) = doc.get_mut(part).and_then(|part| as_object(part).shift_remove(field)) else { continue };
        let is_empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        if !is_empty {
            let annotations = as_object(object(doc, "metadata").entry("annotations").or_insert(json!({})));
            annotations.insert(annotation.to_owned(), json!(value.to_string()));
        }
    }
}

/// What cannot be read, or does not have the types of its field, is left to
/// whoever wrote it.
fn take_annotation(doc: &mut Value, (part, field): (&str, &str), name: &str) -> Option<Value> {
    let annotations = doc.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()?;
    let value: Value = serde_json::from_str(annotations.get(name)?.as_str()?).ok()?;
    let mut alone = json!({part: {field: value}});
    super::KIND.ops.decode(&alone).ok()?;
    super::KIND.ops.schema().canonicalise(&mut alone);
    let value = alone[part][field].take();
    annotations.shift_remove(name);
    if annotations.is_empty() {
        object(doc, "metadata").shift_remove("annotations");
    }
    (!value.is_null()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_060_nothing_is_lost_by_looking_at_the_older_version() {
        let memory = json!({"type": "Resource", "resource": {"name": "memory",
            "target": {"type": "Utilization", "averageUtilization": 70}}});
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}});
        let new = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "behavior": {"scaleUp": {"selectPolicy": "Max"}}, "metrics": [cpu, memory]},
            "status": {"desiredReplicas": 1}});
        let mut old = new.clone();
        from_stored(&mut old);
        assert_eq!(old["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}));
        assert_eq!(old["apiVersion"], "autoscaling/v1");
        let mut again = old;
        to_stored(&mut again);
        assert_eq!(again["spec"]["metrics"], new["spec"]["metrics"]);
        assert_eq!((&again["spec"]["behavior"], &again["metadata"]), (&new["spec"]["behavior"], &new["metadata"]));
    }

    #[test]
    fn an_annotation_of_another_type_stays_an_annotation() {
        for text in [r#"[{"type": 1}]"#, r#"{"a": 1}"#, "[", &"[".repeat(90)] {
            let annotations = json!({"autoscaling.alpha.kubernetes.io/metrics": text});
            let mut doc = json!({"metadata": {"name": "a", "annotations": annotations}, "spec": {"maxReplicas": 3}});
            to_stored(&mut doc);
            assert_eq!(doc["metadata"]["annotations"], annotations);
            assert_eq!(doc["spec"], json!({"maxReplicas": 3}));
        }
    }

    #[test]
    fn api_060_the_processor_is_measured_when_nothing_is_said() {
        let spec = |annotations: Value| {
            let mut doc = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "a", "annotations": annotations}, "spec": {"maxReplicas": 3}});
            KIND.ops.default(&mut doc);
            doc["spec"].clone()
        };
        assert_eq!(spec(json!({}))["targetCPUUtilizationPercentage"], 80);
        let memory = json!({"autoscaling.alpha.kubernetes.io/metrics": "[]"});
        assert_eq!(spec(memory).get("targetCPUUtilizationPercentage"), None);
    }

    #[test]
    fn a_target_for_the_processor_is_a_measure() {
        let mut doc =
            json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}});
        to_stored(&mut doc);
        let target = &doc["spec"]["metrics"][0]["resource"]["target"];
        assert_eq!(target, &json!({"averageUtilization": 50, "type": "Utilization"}));
        assert_eq!(doc["spec"].get("targetCPUUtilizationPercentage"), None);
    }
}
