//! The controllers of lost nodes against an API server double, in virtual time:
//! which requests go out, and when.

use std::time::Duration;

use ambient::Clock;
use client::Client;
use reconciler::{Controllers, ControllersConfig, NodeSettings, StorageConfig};
use serde_json::{Value, json};

use crate::api::{Api, node, pod};

/// Runs `script` beside the controllers.
async fn check<F: Future<Output = ()>>(api: &Api, script: F) {
    api.tell_patches();
    let clock = Clock::manual();
    let ticking = clock.clone();
    let ticks = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ticking.advance(Duration::from_millis(100));
        }
    });
    let root = std::env::temp_dir().join("podium-no-volumes");
    let config = ControllersConfig {
        certificate: String::new(),
        storage: Some(StorageConfig { node_name: "a".into(), root }),
        nodes: NodeSettings::upstream(),
        terminated_pods_max: Some(1),
        signer: None,
    };
    Controllers::new(Client::new(api.service()), clock, config).run(script).await;
    ticks.abort();
}

fn on(node: &str, name: &str, more: Value) -> Value {
    let mut doc = pod(name);
    doc["spec"]["nodeName"] = json!(node);
    doc["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        doc[field] = value.clone();
    }
    doc
}

fn tolerating(seconds: u32) -> Value {
    let toleration =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    json!([toleration("node.kubernetes.io/unreachable"), toleration("node.kubernetes.io/not-ready")])
}

/// The lease of a node, renewed at some second.
fn lease(name: &str, second: u32) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "uid": format!("uid-lease-{name}")},
        "spec": {"renewTime": format!("2026-01-01T00:{:02}:{:02}.000000Z", second / 60, second % 60)},
    })
}

/// The next write about something, and how many seconds passed until then.
async fn next_about(api: &Api, what: &str) -> (u64, String) {
    let start = tokio::time::Instant::now();
    loop {
        let [line] = api.next_writes_within(Duration::from_secs(3600)).await;
        if line.contains(what) {
            return (start.elapsed().as_secs(), line);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tc_174_tc_187_tc_191_a_silent_node_loses_its_pods_after_their_toleration() {
    let mut lonely = on("a", "web", json!({}));
    lonely["spec"]["tolerations"] = tolerating(300);
    let api = Api::with([node("a"), node("b"), lonely, lease("a", 0), lease("b", 0)]);
    check(&api, async {
        let living = async {
            for second in (10..3000).step_by(10) {
                tokio::time::sleep(Duration::from_secs(10)).await;
                api.apply(lease("b", second));
            }
        };
        let seen = async {
            let (after, unknown) = next_about(&api, "nodes/a status").await;
            assert!((50..=56).contains(&after), "{after}");
            assert!(unknown.contains(r#""status":"Unknown","type":"Ready""#), "{unknown}");
            let (_, taints) = next_about(&api, "nodes/a spec").await;
            assert!(taints.contains("unreachable") && taints.contains("NoExecute"), "{taints}");
            let (_, unready) = next_about(&api, "pods/web status").await;
            assert!(unready.contains(r#""type":"Ready","status":"False""#), "{unready}");
            let (after, told) = next_about(&api, "TaintManagerEviction").await;
            assert!((299..=301).contains(&after), "{after}");
            assert!(told.ends_with("taint-eviction-controller: Marking for deletion Pod default/web"), "{told}");
            let (_, marked) = next_about(&api, "pods/web status").await;
            assert!(marked.contains(r#""message":"Taint manager: deleting due to NoExecute taint""#), "{marked}");
            assert!(marked.contains(r#""reason":"DeletionByTaintManager""#), "{marked}");
            assert_eq!(next_about(&api, "delete").await.1, "delete web uid-web grace None");
        };
        tokio::select! {
            () = living => panic!("nothing happened"),
            () = seen => {}
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn tc_158_tc_161_tc_162_pods_of_a_deleted_node_are_failed_and_removed() {
    let api = Api::with([node("a"), node("b"), on("a", "web", json!({})), on("b", "stays", json!({}))]);
    check(&api, async {
        next_about(&api, "RegisteredNode").await;
        api.remove("nodes", "a");
        let (after, failed) = next_about(&api, "pods/web status").await;
        assert!((40..=80).contains(&after), "{after}");
        assert!(failed.contains(r#""phase":"Failed""#), "{failed}");
        assert!(failed.contains(r#""message":"PodGC: node no longer exists""#), "{failed}");
        assert_eq!(next_about(&api, "delete").await.1, "delete web uid-web grace Some(0)");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn tc_153_finished_pods_beyond_the_threshold_are_removed() {
    let ended = |name: &str| on("a", name, json!({"status": {"phase": "Succeeded"}}));
    let api = Api::with([node("a"), ended("one"), ended("two"), on("a", "runs", json!({}))]);
    check(&api, async {
        assert_eq!(next_about(&api, "delete").await.1, "delete one uid-one grace Some(0)");
    })
    .await;
}
