//! Whose pods the agent looks after, and whose word about them counts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Node, condition, is_ready, pod};

#[tokio::test(start_paused = true)]
async fn lc_030_tc_039_only_pods_of_this_node_and_only_what_changes_them() {
    let node = Node::started();
    let mut other = pod("other", json!({"nodeName": "n2"}));
    other["metadata"]["uid"] = json!("elsewhere");
    node.api.create("pods", other);
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let calls = node.runtime.calls();
    assert_eq!(calls, ["run_sandbox web/0", "create app/0", "start app/0"]);
    // Labels and annotations are of no concern to what runs, nor is a status.
    node.api.change_pod("web", |pod| {
        pod["metadata"]["labels"] = json!({"new": "label"});
        pod["status"]["message"] = json!("somebody's");
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.runtime.calls(), calls);
    // Deleted with grace, then gone: stopped once.
    node.api.delete_pod("web", 5);
    node.api.until("web", |pod| pod.is_none()).await;
    let stops = |node: &Node| node.runtime.calls().iter().filter(|call| call.starts_with("stop app")).count();
    assert_eq!(stops(&node), 1, "{:?}", node.runtime.calls());
}

#[tokio::test(start_paused = true)]
async fn lc_032_lc_033_the_agents_word_about_its_pods_wins() {
    let node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    let own = node.api.until("web", is_ready).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    node.api.change_pod("web", |pod| {
        pod["status"]["phase"] = json!("Pending");
        pod["status"]["podIP"] = json!("203.0.113.9");
        for condition in pod["status"]["conditions"].as_array_mut().unwrap() {
            if condition["type"] == "Ready" {
                condition["status"] = json!("False");
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(12)).await;
    let held = node.api.pod("web").unwrap();
    assert_eq!(condition(&held, "Ready"), "True", "TC-198: as after a node was called lost");
    assert_eq!(
        (&held["status"]["phase"], &held["status"]["podIP"]),
        (&own["status"]["phase"], &own["status"]["podIP"])
    );
}

#[tokio::test(start_paused = true)]
async fn lc_368_lc_369_lc_370_addresses_of_pods_are_those_of_their_sandbox_or_of_the_node() {
    let mut node = Node::new();
    node.config.host_ips = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap()).to_vec();
    node.start_agent();
    node.api.create("pods", pod("web", json!({"restartPolicy": "Never"})));
    node.api.create("pods", pod("host", json!({"hostNetwork": true})));
    let (web, host) = (node.api.until("web", is_ready).await, node.api.until("host", is_ready).await);
    let of = |pod: &Value, field: &str| pod["status"][field].clone();
    let ips = |first: &str, second: &str| json!([{"ip": first}, {"ip": second}]);
    for pod in [&web, &host] {
        assert_eq!(of(pod, "hostIP"), "192.0.2.1");
        assert_eq!(of(pod, "hostIPs"), ips("192.0.2.1", "2001:db8::1"));
    }
    assert_eq!(of(&host, "podIP"), "192.0.2.1");
    assert_eq!(of(&host, "podIPs"), ips("192.0.2.1", "2001:db8::1"));
    assert_eq!(of(&web, "podIP"), of(&web, "podIPs")[0]["ip"]);
    assert!(of(&web, "podIP").as_str().unwrap().starts_with("10.88."), "{web}");
    node.api.change_pod("web", |pod| pod["spec"]["activeDeadlineSeconds"] = json!(1));
    let ended = node.api.until("web", |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")).await;
    assert_eq!(of(&ended, "podIP"), of(&web, "podIP"), "kept after the end");
}

/// One pod, and everything that makes its worker decide anew.
#[tokio::test(start_paused = true)]
async fn lc_199_a_pod_is_decided_about_whenever_something_may_have_changed() {
    let node = Node::started();
    let probe = json!({"exec": {"command": ["ok"]}, "periodSeconds": 5, "failureThreshold": 1});
    let container = json!([{"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "readinessProbe": probe}]);
    let gates = json!([{"conditionType": "example.com/gate"}]);
    let spec = json!({"containers": container, "readinessGates": gates, "activeDeadlineSeconds": 100_000});
    node.api.create("pods", pod("web", spec));
    // A result of a probe.
    let are_ready =
        |pod: Option<&serde_json::Value>| pod.is_some_and(|pod| condition(pod, "ContainersReady") == "True");
    node.api.until("web", are_ready).await;
    assert!(!is_ready(node.api.pod("web").as_ref()));
    // A foreign status that makes Ready stale.
    node.api.change_pod("web", |pod| {
        let gate = json!({"type": "example.com/gate", "status": "True"});
        pod["status"]["conditions"].as_array_mut().unwrap().push(gate);
    });
    node.api.until("web", is_ready).await;
    // A change of the spec.
    node.api.change_pod("web", |pod| pod["metadata"]["generation"] = json!(2));
    node.api.until("web", |pod| pod.is_some_and(|pod| pod["status"]["observedGeneration"] == 2)).await;
    let restarted = |count: i64| {
        move |pod: Option<&serde_json::Value>| {
            pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == count) && is_ready(pod)
        }
    };
    // A container's end, then one that nobody tells: a look that is due finds it.
    node.runtime.exit("app", 1);
    node.api.until("web", restarted(1)).await;
    node.runtime.be_silent();
    node.runtime.exit("app", 1);
    node.api.until("web", restarted(2)).await;
    // A deadline.
    node.api.change_pod("web", |pod| pod["spec"]["activeDeadlineSeconds"] = json!(600));
    let over = node.api.until("web", |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")).await;
    assert_eq!(over["status"]["reason"], "DeadlineExceeded");
}

/// LC-354: users write annotations as they like.
#[tokio::test(start_paused = true)]
async fn lc_354_a_pod_of_the_api_that_calls_itself_static_is_none() {
    let node = Node::started();
    let mut fake = pod("web", json!({"restartPolicy": "Never"}));
    fake["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "file"});
    node.api.create("pods", fake);
    node.api.until("web", is_ready).await;
    node.runtime.exit("app", 0);
    let ended = node.api.until("web", |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Succeeded")).await;
    assert_eq!(ended["metadata"]["annotations"]["kubernetes.io/config.source"], "file", "nobody else's is rewritten");
    node.api.delete_pod("web", 5);
    node.api.until("web", |pod| pod.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn an_api_that_lost_its_objects_does_not_cost_running_pods() {
    let mut node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.stop_agent().await;
    let calls = node.runtime.calls();
    node.api = crate::support::api::Api::new();
    node.api.create("nodes", json!({"metadata": {"name": "n1", "uid": "another"}}));
    node.start_agent();
    let refusal = node.agent_ended().await.unwrap_err();
    assert_eq!((refusal.count, refusal.example.as_str()), (1, "default/web"));
    assert_eq!(node.runtime.calls(), calls, "nothing was touched");
    // It registered there; that makes the pods no more its own.
    node.start_agent();
    node.agent_ended().await.unwrap_err();
    node.config.remove_unknown_pods = true;
    node.start_agent();
    while !node.runtime.calls().iter().any(|call| call.starts_with("remove_sandbox")) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // From now on this is its home.
    node.stop_agent().await;
    node.config.remove_unknown_pods = false;
    node.api.create("pods", pod("new", json!({})));
    node.start_agent();
    node.api.until("new", is_ready).await;
}
