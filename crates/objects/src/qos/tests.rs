//! QoS classes by example.

use serde_json::{Value, json};

use super::*;

fn class(spec: Value) -> &'static str {
    of(&serde_json::from_value(spec).unwrap()).as_str()
}

fn container(requests: Value, limits: Value) -> Value {
    json!({"name": "a", "resources": {"requests": requests, "limits": limits}})
}

#[test]
fn lc_327_the_class_follows_cpu_and_memory_of_app_and_init_containers() {
    let both = || json!({"cpu": "1", "memory": "1Gi"});
    let full = || container(both(), both());
    assert_eq!(class(json!({"containers": [{"name": "a"}]})), "BestEffort");
    assert_eq!(
        class(json!({"containers": [container(json!({"cpu": "0"}), json!({"example.com/x": "1"}))]})),
        "BestEffort"
    );
    assert_eq!(class(json!({"containers": [full()]})), "Guaranteed");
    assert_eq!(
        class(json!({"containers": [container(json!({"cpu": "1000m", "memory": "1024Mi"}), both())]})),
        "Guaranteed"
    );
    assert_eq!(class(json!({"containers": [full()], "initContainers": [{"name": "i"}]})), "Burstable");
    assert_eq!(class(json!({"containers": [full(), container(json!({}), json!({"cpu": "1"}))]})), "Burstable");
    assert_eq!(class(json!({"containers": [container(json!({"cpu": "1"}), json!({}))]})), "Burstable");
    assert_eq!(class(json!({"containers": [full()], "ephemeralContainers": [{"name": "e"}]})), "Guaranteed");
}

#[test]
fn lc_328_pod_level_resources_decide_alone() {
    let both = || json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(
        class(json!({"containers": [{"name": "a"}], "resources": {"requests": both(), "limits": both()}})),
        "Guaranteed"
    );
    assert_eq!(class(json!({"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "1"}}})), "Burstable");
    assert_eq!(class(json!({"containers": [container(both(), both())], "resources": {}})), "BestEffort");
}
