//! The scheduling driver against an API server double: which requests go out,
//! how often, and when.

use std::time::Duration;

use ambient::{Clock, Rng};
use client::Client;
use reconciler::Reconciler;
use serde_json::json;

use crate::api::{Api, node, pod};

/// Runs `script` beside a reconciler in virtual time.
async fn check<F: Future<Output = ()>>(api: &Api, script: F) {
    let client = Client::new(api.service());
    let reconciler = Reconciler::new(client, Clock::manual(), Rng::seeded(2));
    reconciler.run(script).await;
}

#[tokio::test(start_paused = true)]
async fn tc_317_tc_327_a_new_pod_is_bound_by_uid_and_announced() {
    let api = Api::with([node("n1")]);
    check(&api, async {
        api.apply(pod("web"));
        assert_eq!(
            api.next_writes().await,
            [
                "bind default/web uid-web to n1",
                "event Normal Scheduled default/web default-scheduler: Successfully assigned default/web to n1",
            ]
        );
        api.expect_silence(Duration::from_secs(600)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn tc_324_pods_that_exist_at_start_are_bound_once_both_lists_are_in() {
    let api = Api::with([node("n1"), pod("a"), pod("b")]);
    check(&api, async {
        assert_eq!(
            api.next_writes().await,
            [
                "bind default/a uid-a to n1",
                "bind default/b uid-b to n1",
                "event Normal Scheduled default/a default-scheduler: Successfully assigned default/a to n1",
                "event Normal Scheduled default/b default-scheduler: Successfully assigned default/b to n1",
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn tc_325_tc_341_an_unschedulable_pod_is_explained_and_bound_when_a_node_comes() {
    let api = Api::with([]);
    check(&api, async {
        api.apply(pod("web"));
        assert_eq!(
            api.next_writes().await,
            [
                "event Warning FailedScheduling default/web default-scheduler: no nodes available to schedule pods",
                "status default/web uid-web PodScheduled=False Unschedulable at 2026-01-01T00:00:00Z: \
             no nodes available to schedule pods",
            ]
        );
        api.expect_silence(Duration::from_secs(60)).await;
        api.apply(node("n1"));
        assert_eq!(api.next_writes().await, ["bind default/web uid-web to n1"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn tc_328_a_refused_binding_is_tried_again() {
    let api = Api::with([node("n1")]);
    api.refuse_next_binding(409, "Conflict");
    check(&api, async {
        api.apply(pod("web"));
        assert_eq!(
            api.next_writes().await,
            [
                "bind default/web uid-web to n1",
                "event Warning FailedScheduling default/web default-scheduler: \
             binding rejected: running Bind plugin \"DefaultBinder\": refused",
            ]
        );
        api.expect_silence(Duration::from_millis(500)).await;
        // The manual clock stands still, so the back-off never ends; a change
        // of the pod itself does not wait for it.
        let mut changed = pod("web");
        changed["spec"]["priority"] = json!(5);
        api.apply(changed);
        assert_eq!(
            api.next_writes().await,
            [
                "bind default/web uid-web to n1",
                "event Normal Scheduled default/web default-scheduler: Successfully assigned default/web to n1",
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lc_023_a_gated_pod_causes_no_request() {
    let api = Api::with([node("n1")]);
    check(&api, async {
        let mut gated = pod("web");
        gated["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]);
        api.apply(gated);
        api.expect_silence(Duration::from_secs(600)).await;
        api.apply(pod("web"));
        let [bind, _] = api.next_writes().await;
        assert_eq!(bind, "bind default/web uid-web to n1");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn tc_324_a_crowd_is_bound_completely_and_each_pod_once() {
    let api = Api::with([node("n1"), node("n2")]);
    check(&api, async {
        for index in 0..150 {
            api.apply(pod(&format!("p{index}")));
        }
        // One binding and one Event each; the double refuses second bindings.
        let writes: [String; 300] = api.next_writes().await;
        assert_eq!(writes.iter().filter(|line| line.starts_with("bind")).count(), 150);
    })
    .await;
}
