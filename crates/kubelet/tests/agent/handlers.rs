//! Probes and hooks from the pod's spec to the runtime and back.

use std::time::Duration;

use cri::fake::{Exec, Run};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Node, is_ready, pod};

fn app(more: Value) -> Value {
    let mut container = json!({"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent"});
    for (field, value) in more.as_object().cloned().unwrap_or_default() {
        container[field] = value;
    }
    json!({"containers": [container]})
}

#[tokio::test(start_paused = true)]
async fn lc_263_a_failed_liveness_probe_restarts_the_container() {
    let node = Node::started();
    node.runtime.script_exec("app", Exec::exits(0));
    node.runtime.script_exec("app", Exec::exits(1).saying("sick"));
    node.runtime.script_exec("app", Exec::exits(0));
    let probe = json!({"exec": {"command": ["check", "$(WHAT)"]}, "periodSeconds": 1, "failureThreshold": 1});
    let env = json!([{"name": "WHAT", "value": "health"}]);
    node.api.create("pods", pod("web", app(json!({"livenessProbe": probe, "env": env}))));
    let restarted = |pod: Option<&Value>| {
        pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(Some(pod)))
    };
    node.api.until("web", restarted).await;
    let calls = node.runtime.calls();
    let wanted = ["exec app/0 check health", "exec app/0 check health", "stop app/0 30s", "create app/1"];
    assert!(calls.windows(4).any(|some| some == wanted), "{calls:?}");
    node.api.until_world(|api| api.events("web").iter().any(|event| event.contains("Killing"))).await;
    let events = node.api.events("web");
    let has = |text: &str| events.iter().any(|event| event == text);
    assert!(has("Warning Unhealthy Liveness probe failed: sick"), "{events:?}");
    assert!(has("Normal Killing Container app failed liveness probe, will be restarted"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn lc_265_readiness_follows_the_answers() {
    let node = Node::started();
    node.runtime.script_exec("app", Exec::exits(1).saying("not yet"));
    node.runtime.script_exec("app", Exec::exits(0));
    let probe = json!({"exec": {"command": ["check"]}, "periodSeconds": 5});
    node.api.create("pods", pod("web", app(json!({"readinessProbe": probe}))));
    let pod = node.api.until("web", is_ready).await;
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    node.api
        .until_world(|api| api.events("web").contains(&"Warning Unhealthy Readiness probe failed: not yet".to_owned()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn lc_232_a_container_is_not_running_before_its_post_start_hook_is_done() {
    let node = Node::started();
    node.runtime.script_exec("app", Exec::exits(0).after(Duration::from_secs(20)));
    let begin = Instant::now();
    let hook = json!({"postStart": {"exec": {"command": ["greet"]}}});
    node.api.create("pods", pod("web", app(json!({"lifecycle": hook}))));
    node.api.until("web", is_ready).await;
    assert!(begin.elapsed() >= Duration::from_secs(20), "after {:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lc_236_lc_237_a_pre_stop_hook_that_overruns_is_given_up() {
    let node = Node::started();
    node.runtime.script("app", Run::stubborn());
    node.runtime.script_exec("app", Exec::exits(0).after(Duration::from_secs(3600)));
    let hook = json!({"preStop": {"exec": {"command": ["bye"]}}});
    node.api.create("pods", pod("web", app(json!({"lifecycle": hook}))));
    node.api.until("web", is_ready).await;
    let begin = Instant::now();
    node.api.delete_pod("web", 10);
    node.api.until("web", |pod| pod.is_none()).await;
    let took = begin.elapsed();
    assert!((Duration::from_secs(12)..Duration::from_secs(14)).contains(&took), "took {took:?}");
    let calls = node.runtime.calls();
    assert!(calls.windows(2).any(|some| some == ["exec app/0 bye", "stop app/0 2s"]), "{calls:?}");
    let events = node.api.events("web");
    assert!(!events.iter().any(|event| event.contains("FailedPreStopHook")), "{events:?}");
}

/// The kernel kills a hook with its container, and a moment before that can be seen.
#[tokio::test(start_paused = true)]
async fn lc_229_a_pre_stop_hook_whose_work_was_the_end_of_the_container_did_not_fail() {
    let node = Node::started();
    node.runtime.script("app", Run::exits(Duration::from_secs(10), 0));
    node.runtime.script_exec("app", Exec::exits(137).after(Duration::from_millis(9300)));
    let hook = json!({"preStop": {"exec": {"command": ["quit"]}}});
    node.api.create("pods", pod("web", app(json!({"lifecycle": hook}))));
    node.api.until("web", is_ready).await;
    node.api.delete_pod("web", 30);
    node.api.until("web", |pod| pod.is_none()).await;
    let events = node.api.events("web");
    assert!(!events.iter().any(|event| event.contains("FailedPreStopHook")), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn lc_229_lc_238_a_failing_pre_stop_hook_is_told_and_changes_nothing() {
    let node = Node::started();
    node.runtime.script_exec("app", Exec::exits(1).saying("secret"));
    let hook = json!({"preStop": {"exec": {"command": ["bye"]}}});
    node.api.create("pods", pod("web", app(json!({"lifecycle": hook}))));
    node.api.until("web", is_ready).await;
    node.api.delete_pod("web", 10);
    node.api.until("web", |pod| pod.is_none()).await;
    node.api
        .until_world(|api| api.events("web").contains(&"Warning FailedPreStopHook PreStopHook failed".to_owned()))
        .await;
    assert!(!node.api.events("web").iter().any(|event| event.contains("secret")));
}
