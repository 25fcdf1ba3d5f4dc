//! Effective requests of whole pods.

use serde_json::{Value, json};

use super::*;

fn container(name: &str, cpu: &str) -> Value {
    let (cpu, sidecar) = cpu.strip_prefix('S').map_or((cpu, false), |cpu| (cpu, true));
    let mut container = json!({"name": name, "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}});
    if sidecar {
        container["restartPolicy"] = json!("Always");
    }
    container
}

fn spec(init: &[&str], app: &[&str]) -> PodSpec {
    let named = |list: &[&str]| -> Vec<Value> { list.iter().map(|cpu| container("c", cpu)).collect() };
    serde_json::from_value(json!({"initContainers": named(init), "containers": named(app)})).unwrap()
}

#[test]
fn lc_218_effective_requests_follow_the_table() {
    for (id, init, app, expected) in [
        ("QV-01", &["500m"][..], &["100m", "200m"][..], "500m"),
        ("QV-02", &["200m"], &["100m", "200m"], "300m"),
        ("QV-03", &["S100m", "500m"], &["200m"], "600m"),
        ("QV-04", &["500m", "S100m"], &["200m"], "500m"),
        ("QV-05", &["S100m", "S200m"], &["300m"], "600m"),
        ("QV-06", &["S100m", "100m", "S50m"], &["10m"], "200m"),
    ] {
        assert_eq!(of_pod(&spec(init, app))["cpu"].to_string(), expected, "{id}");
    }
}

#[test]
fn lc_218_overhead_is_added() {
    let mut spec = spec(&[], &["100m"]);
    spec.overhead = Some([("cpu".to_owned(), Quantity::from_milli(50).into())].into());
    assert_eq!(of_pod(&spec)["cpu"].to_string(), "150m");
    assert_eq!(limits_of_pod(&spec)["cpu"].to_string(), "150m");
}

#[test]
fn lc_219_one_unlimited_container_makes_the_pod_unlimited() {
    assert_eq!(limits_of_pod(&spec(&[], &["1", "2"]))["cpu"].to_string(), "3");
    let mut spec = spec(&[], &["1", "2"]);
    spec.containers[1].resources = None;
    assert!(limits_of_pod(&spec).is_empty());
}

#[test]
fn lc_220_pod_level_resources_replace_the_aggregate() {
    let mut spec = spec(&[], &["100m"]);
    spec.resources = serde_json::from_value(json!({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}})).unwrap();
    assert_eq!(of_pod(&spec)["cpu"].to_string(), "2");
    assert_eq!(limits_of_pod(&spec)["memory"].to_string(), "1Gi");
}

#[test]
fn lc_222_tc_310_an_unfinished_resize_counts_with_the_largest_of_three() {
    let pod = |desired: &str, reason: &str| -> Pod {
        serde_json::from_value(json!({
            "spec": {"containers": [container("c", desired)], "overhead": {"cpu": "10m"}},
            "status": {
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                "containerStatuses": [{
                    "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": {"cpu": "200m"}, "resources": {"requests": {"cpu": "300m"}},
                }],
            },
        }))
        .unwrap()
    };
    for (desired, reason, expected) in
        [("100m", "Deferred", "310m"), ("500m", "Deferred", "510m"), ("500m", "Infeasible", "310m")]
    {
        assert_eq!(of_placed_pod(&pod(desired, reason))["cpu"].to_string(), expected, "{desired} {reason}");
    }
}
