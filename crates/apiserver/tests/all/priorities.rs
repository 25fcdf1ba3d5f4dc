//! Priorities of pods through the API.

use crate::fixture::{Fixture, fixture, pod};
use serde_json::{Value, json};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn class(fixture: &Fixture, name: &str, value: i64, more: Value) -> (u16, Value) {
    let mut class = json!({"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": name}, "value": value});
    class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fixture.admin.post(CLASSES, &class).await
}

async fn pod_with(fixture: &Fixture, name: &str, spec: Value) -> (u16, Value) {
    let mut doc = pod(name);
    doc["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    fixture.admin.post(PODS, &doc).await
}

#[tokio::test]
async fn api_710_a_pod_gets_the_priority_of_its_class() {
    let fixture = fixture().await;
    assert_eq!(class(&fixture, "high", 1000, json!({"preemptionPolicy": "Never"})).await.0, 201);
    let (code, made) = pod_with(&fixture, "a", json!({"priorityClassName": "high"})).await;
    assert_eq!((code, &made["spec"]["priority"]), (201, &json!(1000)));
    assert_eq!(made["spec"]["preemptionPolicy"], "Never");
    let (_, system) = pod_with(&fixture, "b", json!({"priorityClassName": "system-node-critical"})).await;
    assert_eq!(system["spec"]["priority"], 2_000_001_000);
    let (code, status) = pod_with(&fixture, "c", json!({"priorityClassName": "none"})).await;
    assert_eq!(code, 403);
    assert_eq!(status["message"], "pods \"c\" is forbidden: no PriorityClass with name none was found");
    let (_, status) = pod_with(&fixture, "d", json!({"priority": 5})).await;
    assert_eq!(
        status["message"],
        "pods \"d\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name"
    );
    let policy = json!({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"});
    let (_, status) = pod_with(&fixture, "e", policy).await;
    assert!(
        status["message"].as_str().unwrap().contains("the string value of PreemptionPolicy (PreemptLowerPriority)")
    );
}

#[tokio::test]
async fn api_711_there_is_one_default_and_the_systems_classes_stay() {
    let fixture = fixture().await;
    assert_eq!(class(&fixture, "usual", 10, json!({"globalDefault": true})).await.0, 201);
    let (code, status) = class(&fixture, "other", 20, json!({"globalDefault": true})).await;
    assert_eq!(code, 403);
    let expected = "PriorityClass usual is already marked as default. Only one default can exist";
    assert!(status["message"].as_str().unwrap().contains(expected), "{status}");
    let (_, made) = pod_with(&fixture, "a", json!({})).await;
    assert_eq!(made["spec"]["priority"], 10);
    assert_eq!(made["spec"]["priorityClassName"], "usual");
    for name in ["system-node-critical", "system-cluster-critical"] {
        let (code, status) = fixture.admin.delete(&format!("{CLASSES}/{name}"), &Value::Null).await;
        assert_eq!(code, 403);
        assert!(status["message"].as_str().unwrap().contains("this is a system priority class and cannot be deleted"));
    }
    assert_eq!(fixture.admin.delete(&format!("{CLASSES}/usual"), &Value::Null).await.0, 200);
}
