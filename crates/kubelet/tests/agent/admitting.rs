//! Who may run on this node, and what those are told who may not.

use std::time::Duration;

use cri::fake::Run;
use serde_json::{Value, json};

use crate::support::{Node, is_ready, pod};

fn asking(name: &str, requests: Value) -> Value {
    let container = json!([{"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": requests}}]);
    pod(name, json!({"containers": container}))
}

fn is_failed(pod: Option<&Value>) -> bool {
    pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")
}

#[tokio::test(start_paused = true)]
async fn lc_373_a_pod_the_node_has_no_room_for_is_rejected_and_never_started() {
    let node = Node::started();
    node.api.create("pods", asking("first", json!({"cpu": "1500m"})));
    node.api.until("first", is_ready).await;
    node.api.create("pods", asking("second", json!({"cpu": "1"})));
    let rejected = node.api.until("second", is_failed).await;
    let message = "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000";
    assert_eq!(rejected["status"]["reason"], "OutOfcpu");
    assert_eq!(rejected["status"]["message"], format!("Pod was rejected: {message}"));
    // LC-101
    assert_eq!(rejected["status"]["conditions"].as_array().map_or(0, Vec::len), 0, "{rejected:#}");
    let told = format!("Warning OutOfcpu {message}");
    node.api.until_world(|api| api.events("second").contains(&told)).await;
    assert!(!node.runtime.calls().contains(&"run_sandbox second/0".to_owned()), "{:?}", node.runtime.calls());
}

#[tokio::test(start_paused = true)]
async fn lc_101_a_new_agent_leaves_what_was_said_about_a_rejected_pod() {
    let mut node = Node::started();
    node.api.create("pods", asking("large", json!({"cpu": "5"})));
    node.api.until("large", is_failed).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let said = node.api.pod("large").unwrap()["status"].clone();
    node.stop_agent().await;
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.api.pod("large").unwrap()["status"], said);
}

#[tokio::test(start_paused = true)]
async fn lc_372_labels_and_taints_of_the_node_object_count() {
    let node = Node::started();
    node.api.until_world(|api| api.get("nodes", "", "n1").is_some()).await;
    node.api.create("pods", pod("picky", json!({"nodeSelector": {"disk": "ssd"}})));
    let rejected = node.api.until("picky", is_failed).await;
    assert_eq!(rejected["status"]["reason"], "NodeAffinity");
    let message = "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    assert_eq!(rejected["status"]["message"], message);
    let mut labelled = node.api.get("nodes", "", "n1").unwrap();
    labelled["metadata"]["labels"]["disk"] = json!("ssd");
    labelled["spec"]["taints"] = json!([{"key": "maintenance", "effect": "NoExecute"}]);
    node.api.create("nodes", labelled);
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.api.create("pods", pod("content", json!({"nodeSelector": {"disk": "ssd"}})));
    let rejected = node.api.until("content", is_failed).await;
    assert_eq!(rejected["status"]["reason"], "TaintToleration");
    let tolerant = json!({"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]});
    node.api.create("pods", pod("tolerant", tolerant));
    node.api.until("tolerant", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn lc_375_a_batch_is_admitted_oldest_first() {
    let mut node = Node::new();
    let mut young = asking("a-young", json!({"memory": "5Gi"}));
    young["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    node.api.create("pods", young);
    node.api.create("pods", asking("z-old", json!({"memory": "5Gi"})));
    node.start_agent();
    node.api.until("z-old", is_ready).await;
    assert_eq!(node.api.until("a-young", is_failed).await["status"]["reason"], "OutOfmemory");
}

#[tokio::test(start_paused = true)]
async fn tc_277_a_running_pod_the_node_no_longer_has_room_for_is_ended_after_a_restart() {
    let mut node = Node::started();
    node.api.create("pods", asking("web", json!({"cpu": "1500m"})));
    node.api.until("web", is_ready).await;
    node.stop_agent().await;
    node.config.allocatable.cpu_milli = 1000;
    node.start_agent();
    let rejected = node.api.until("web", is_failed).await;
    assert_eq!(rejected["status"]["reason"], "OutOfcpu");
    assert!(node.runtime.calls().iter().any(|call| call.starts_with("stop app/0")), "{:?}", node.runtime.calls());
}

#[tokio::test(start_paused = true)]
async fn tc_246_a_critical_pod_starts_once_its_victim_has_stopped() {
    let node = Node::started();
    node.runtime.script("app", Run::stubborn());
    let mut modest = asking("modest", json!({"cpu": "1500m"}));
    modest["spec"]["terminationGracePeriodSeconds"] = json!(5);
    node.api.create("pods", modest);
    node.api.until("modest", is_ready).await;
    let begin = node.now();
    let mut vital = asking("vital", json!({"cpu": "1"}));
    vital["spec"]["priority"] = json!(2_000_001_000);
    node.api.create("pods", vital);
    let preempted = node.api.until("modest", is_failed).await;
    assert_eq!(preempted["status"]["reason"], "Preempting");
    assert_eq!(preempted["status"]["message"], "Preempted in order to admit critical pod");
    node.api.until("vital", is_ready).await;
    assert!((5..=8).contains(&node.now().duration_since(begin).as_secs()), "it waited for the victim's grace");
    let calls = node.runtime.calls();
    let place = |call: &str| calls.iter().position(|made| made == call).unwrap();
    assert!(place("stop app/0 5s") < place("run_sandbox vital/0"), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_room_can_be_deleted() {
    let node = Node::started();
    node.runtime.script("app", Run::stubborn());
    let mut modest = asking("modest", json!({"cpu": "1500m"}));
    modest["spec"]["terminationGracePeriodSeconds"] = json!(600);
    node.api.create("pods", modest);
    node.api.until("modest", is_ready).await;
    let mut vital = asking("vital", json!({"cpu": "1"}));
    vital["spec"]["priority"] = json!(2_000_001_000);
    node.api.create("pods", vital);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let begin = node.now();
    node.api.delete_pod("vital", 30);
    node.api.until("vital", |pod| pod.is_none()).await;
    assert!(node.now().duration_since(begin).as_secs() < 5, "nothing of it ever ran");
}

#[tokio::test(start_paused = true)]
async fn lc_372_a_profile_reaches_the_runtime_where_the_kernel_has_app_armor() {
    let confined = || {
        let spec = json!({"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "mine"}}});
        pod("confined", spec)
    };
    let without = Node::started();
    without.api.create("pods", confined());
    let rejected = without.api.until("confined", is_failed).await;
    assert_eq!(rejected["status"]["reason"], "AppArmor");
    let mut with = Node::new();
    with.config.settings.has_app_armor = true;
    with.start_agent();
    with.api.create("pods", confined());
    with.api.until("confined", is_ready).await;
    let profile = with.runtime.config_of("app").unwrap().security.apparmor;
    assert_eq!(profile, Some(cri::AppArmor::Localhost("mine".into())));
}
