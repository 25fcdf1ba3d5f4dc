//! How namespaces end, against an API server double, in virtual time.

use std::time::Duration;

use ambient::Clock;
use client::Client;
use reconciler::{Controllers, ControllersConfig, NodeSettings};
use serde_json::{Value, json};

use crate::api::{Api, pod};

fn team() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "team", "uid": "uid-team", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"},
    })
}

fn inside(kind: &str, name: &str, finalizers: &Value) -> Value {
    let mut object = if kind == "Pod" { pod(name) } else { json!({"apiVersion": "v1", "kind": kind}) };
    object["metadata"] = json!({"name": name, "namespace": "team", "uid": format!("uid-{name}")});
    if !finalizers.is_null() {
        object["metadata"]["finalizers"] = finalizers.clone();
    }
    object
}

fn held(kind: &str, name: &str) -> Value {
    inside(kind, name, &json!(["example.com/hold"]))
}

/// Runs the controllers until the script ends; what they do then is cut off.
async fn during<F: Future<Output = ()>>(api: &Api, script: F) {
    api.tell_deletions();
    let config = ControllersConfig {
        certificate: String::new(),
        storage: None,
        nodes: NodeSettings::upstream(),
        terminated_pods_max: None,
        signer: None,
    };
    Controllers::new(Client::new(api.service()), Clock::manual(), config).run(script).await;
}

async fn next(api: &Api) -> String {
    let [line] = api.next_writes().await;
    line
}

#[tokio::test(start_paused = true)]
async fn api_193_pods_go_first_and_the_rest_waits_for_the_last_of_them() {
    let free = Value::Null;
    let api = Api::with([team(), held("Pod", "slow"), inside("Pod", "web", &free), inside("Secret", "a", &free)]);
    during(&api, async {
        assert_eq!(api.next_writes().await, ["delete pods/web", "mark pods/slow"]);
        assert_eq!(
            next(&api).await,
            "status team: Some resources are remaining: pods. has 1 resource instances; Some content in the namespace \
             has finalizers remaining: example.com/hold in 1 resource instances"
        );
        api.expect_silence(Duration::from_secs(15)).await;
        assert!(api.is_there("secrets", "a"), "API-193: nothing else goes before the last pod");
        api.remove("pods", "slow");
        assert_eq!(next(&api).await, "delete secrets/a");
        assert_eq!(next(&api).await, "status team: ");
        assert_eq!(next(&api).await, "finalize team");
        api.expect_silence(Duration::from_secs(600)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn api_197_what_others_hold_is_waited_for_and_named() {
    let api = Api::with([team(), held("ConfigMap", "m")]);
    during(&api, async {
        assert_eq!(next(&api).await, "mark configmaps/m");
        assert_eq!(
            next(&api).await,
            "status team: Some resources are remaining: configmaps. has 1 resource instances; Some content in the \
             namespace has finalizers remaining: example.com/hold in 1 resource instances"
        );
        api.expect_silence(Duration::from_secs(600)).await;
        api.remove("configmaps", "m");
        assert_eq!(next(&api).await, "status team: ");
        assert_eq!(next(&api).await, "finalize team");
    })
    .await;
}

/// A kill -9 between any two writes.
#[tokio::test(start_paused = true)]
async fn api_193_a_deletion_cut_off_anywhere_is_finished_by_the_next_run() {
    let free = Value::Null;
    for writes in 0.. {
        let api =
            Api::with([team(), inside("Pod", "web", &free), inside("Secret", "a", &free), inside("Lease", "b", &free)]);
        let mut ended = false;
        during(&api, async {
            for _ in 0..writes {
                ended = next(&api).await == "finalize team";
            }
        })
        .await;
        if ended {
            assert_eq!(writes, 5, "two kinds of content, pods, conditions, the end");
            return;
        }
        during(&api, async { while next(&api).await != "finalize team" {} }).await;
        for (plural, name) in [("namespaces", "team"), ("pods", "web"), ("secrets", "a"), ("leases", "b")] {
            assert!(!api.is_there(plural, name), "{plural}/{name} is left after a cut at {writes}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_not_marked_or_waits_for_others_is_left_alone() {
    let mut open = team();
    open["metadata"]["deletionTimestamp"] = Value::Null;
    let api = Api::with([open.clone(), inside("Secret", "a", &Value::Null)]);
    during(&api, async {
        api.expect_silence(Duration::from_secs(60)).await;
        let mut other = team();
        other["spec"]["finalizers"] = json!(["example.com/hold"]);
        api.apply(other);
        api.expect_silence(Duration::from_secs(60)).await;
        api.apply(team());
        assert_eq!(next(&api).await, "delete secrets/a");
    })
    .await;
}
