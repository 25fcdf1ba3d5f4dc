//! Which pods are removed, in which order, and what is shown of it first.

use serde_json::{Value, json};

use super::*;

fn parse<T: serde::de::DeserializeOwned>(document: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(document).unwrap())
}

fn node(name: &str, ready: &str, taints: Value) -> Arc<Node> {
    parse(json!({"metadata": {"name": name}, "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
}

fn pod(name: &str, node: &str, phase: &str, more: Value) -> Arc<Pod> {
    let mut meta = json!({"name": name, "namespace": "default", "uid": name});
    meta.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    parse(json!({"metadata": meta, "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}}))
}

fn deleting() -> Value {
    json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})
}

fn told(removals: &[Removal]) -> Vec<String> {
    let words = |removal: &Removal| {
        let fails = if removal.fails() { " failed" } else { "" };
        let disrupted = if removal.is_disrupted() { " disrupted" } else { "" };
        format!("{} {:?}{fails}{disrupted}", removal.pod.metadata.name.as_deref().unwrap(), removal.why)
    };
    removals.iter().map(words).collect()
}

#[test]
fn tc_152_tc_156_finished_pods_beyond_the_number_go_evicted_and_oldest_first() {
    let made = |time: &str| json!({"creationTimestamp": format!("2026-01-01T00:00:{time}Z")});
    let mut evicted = pod("evicted", "a", "Failed", made("30"));
    Arc::make_mut(&mut evicted).status.get_or_insert_default().reason = Some("Evicted".to_owned());
    let pods = [
        pod("young", "a", "Succeeded", made("20")),
        pod("b-old", "a", "Failed", made("10")),
        pod("a-old", "a", "Succeeded", made("10")),
        evicted,
        pod("runs", "a", "Running", made("01")),
        pod("pending", "", "Pending", made("01")),
        pod("unknown", "a", "Unknown", made("01")),
        pod("new", "", "", made("01")),
    ];
    let nodes = [node("a", "True", json!([]))];
    let removed = |max| told(&PodGc::new(max).plan(&nodes, &pods, &BTreeSet::new()));
    assert_eq!(removed(Some(1)), ["evicted Terminated", "a-old Terminated", "b-old Terminated"]);
    assert_eq!(removed(Some(3)), ["evicted Terminated"]);
    assert_eq!(removed(Some(4)), [""; 0]);
    assert_eq!(removed(None), [""; 0]);
    assert_eq!(TERMINATED_MAX, 12_500);
}

#[test]
fn tc_158_tc_193_tc_202_pods_of_a_vanished_node_go_after_a_quarantine() {
    let start = ambient::Clock::manual().now();
    let mut gc = PodGc::new(None);
    let pods = [
        pod("runs", "lost", "Running", json!({})),
        pod("done", "lost", "Succeeded", json!({})),
        pod("well", "a", "Running", json!({})),
    ];
    let nodes = [node("a", "True", json!([]))];
    let mut suspects = |nodes: &[Arc<Node>], at| gc.suspects(nodes, &pods, start.after(Duration::from_secs(at)));
    assert_eq!(suspects(&nodes, 0), [""; 0]);
    assert_eq!(suspects(&nodes, 20), [""; 0]);
    assert_eq!(suspects(&nodes, 40), ["lost"]);
    // It came back and went again: the quarantine starts over.
    assert_eq!(suspects(&[node("lost", "True", json!([])), nodes[0].clone()], 60), [""; 0]);
    assert_eq!(suspects(&nodes, 80), [""; 0]);
    assert_eq!(suspects(&nodes, 120), ["lost"]);
    assert_eq!(told(&gc.plan(&nodes, &pods, &BTreeSet::new())), [""; 0], "not looked up yet");
    let gone = BTreeSet::from(["lost".to_owned()]);
    assert_eq!(told(&gc.plan(&nodes, &pods, &gone)), ["runs Orphaned failed disrupted", "done Orphaned"]);
}

#[test]
fn tc_157_tc_159_tc_197_pods_that_leave_a_node_out_of_service_go() {
    let pods = [pod("leaving", "off", "Running", deleting()), pod("stays", "off", "Running", json!({}))];
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoSchedule"}]);
    let removed = |node| told(&PodGc::new(None).plan(&[node], &pods, &BTreeSet::new()));
    assert_eq!(removed(node("off", "Unknown", taint.clone())), ["leaving OutOfService failed"]);
    assert_eq!(removed(node("off", "True", taint)), [""; 0]);
    assert_eq!(removed(node("off", "Unknown", json!([]))), [""; 0]);
}

#[test]
fn tc_160_tc_163_each_pod_once_in_the_order_of_the_steps() {
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    let nodes = [node("off", "False", taint)];
    let pods = [
        pod("nowhere", "", "Pending", deleting()),
        pod("orphan", "lost", "Running", json!({})),
        pod("leaving", "off", "Running", deleting()),
        pod("done", "lost", "Failed", json!({})),
        pod("waits", "", "Pending", json!({})),
    ];
    let gone = BTreeSet::from(["lost".to_owned()]);
    assert_eq!(
        told(&PodGc::new(Some(0)).plan(&nodes, &pods, &gone)),
        [
            "done Terminated",
            "leaving OutOfService failed",
            "orphan Orphaned failed disrupted",
            "nowhere Unscheduled failed",
        ]
    );
}
