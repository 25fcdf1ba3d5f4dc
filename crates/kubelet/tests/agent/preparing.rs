//! What a pod lacks, whose it is, and who hears of it.

use std::time::Duration;

use cri::fake::{Run, Verb};
use cri::{CriError, Runtime as _};
use serde_json::json;

use crate::support::{Node, is_ready, pod};

#[tokio::test(start_paused = true)]
async fn lc_018_only_pods_of_the_nodes_own_network_start_while_it_has_no_other() {
    let node = Node::started();
    for _ in 0..3 {
        node.runtime.fail_next(Verb::RunSandbox, CriError::NetworkNotReady("interface pod0: taken".into()));
    }
    let begin = node.now();
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let took = node.now().duration_since(begin).as_secs();
    assert!((3..10).contains(&took), "tried every second, not for {took} s");
    let told = |event: &String| {
        event.starts_with("Warning NetworkNotReady ") && event.ends_with("network is not ready: interface pod0: taken")
    };
    node.api.until_world(|api| api.events("web").iter().any(told)).await;
}

#[tokio::test(start_paused = true)]
async fn lc_186_no_container_starts_without_the_cgroup_of_its_pod() {
    let node = Node::started();
    node.runtime.fail_next(Verb::RunSandbox, CriError::NoCgroup("read-only file system".into()));
    node.api.create("pods", pod("web", json!({})));
    let event = "Warning FailedCreatePodContainer unable to ensure pod container exists: read-only file system";
    node.api.until_world(|api| api.events("web").contains(&event.to_owned())).await;
    assert_eq!(node.runtime.calls(), ["run_sandbox web/0"]);
    node.api.until("web", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn lc_320_a_volume_that_cannot_be_set_up_is_told_and_tried_again() {
    let node = Node::started();
    let volumes = json!([{"name": "conf", "configMap": {"name": "settings"}}]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    let event = "Warning FailedMount MountVolume.SetUp failed for volume \"conf\" : configmap \"settings\" not found";
    node.api.until_world(|api| api.events("web").contains(&event.to_owned())).await;
    assert_eq!(node.runtime.calls(), Vec::<String>::new(), "volumes come before the sandbox (LC-185)");
    node.api.create("configmaps", json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {}}));
    node.api.until("web", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn lc_322_an_environment_the_kernel_would_not_take_is_told_and_never_built() {
    let node = Node::started();
    let twice = |number: usize| json!({"name": format!("V{number}"), "value": format!("$(V{0})$(V{0})", number - 1)});
    let env: Vec<_> = std::iter::once(json!({"name": "V0", "value": "x"})).chain((1..60).map(twice)).collect();
    let container = json!([{"name": "app", "image": "busybox:1.36", "env": env}]);
    node.api.create("pods", pod("web", json!({ "containers": container })));
    let event = "Warning Failed Error: argument list too long: environment variable V17: more than 131072 bytes";
    node.api.until_world(|api| api.events("web").contains(&event.to_owned())).await;
    let shown = node.api.pod("web").unwrap();
    assert_eq!(shown["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "CreateContainerConfigError");
}

#[tokio::test(start_paused = true)]
async fn lc_320_one_key_under_a_thousand_paths_is_told_and_never_written() {
    let node = Node::started();
    let data = json!({"k": "x".repeat(1 << 20)});
    node.api.create("configmaps", json!({"metadata": {"name": "big", "namespace": "default"}, "data": data}));
    let items: Vec<_> = (0..1_000).map(|number| json!({"key": "k", "path": number.to_string()})).collect();
    let volumes = json!([{"name": "conf", "configMap": {"name": "big", "items": items}}]);
    node.api.create("pods", pod("web", json!({ "volumes": volumes })));
    let event = "Warning FailedMount MountVolume.SetUp failed for volume \"conf\" : no space left on device: \
                 the pod's projected files have more than 67108864 bytes";
    node.api.until_world(|api| api.events("web").contains(&event.to_owned())).await;
    assert_eq!(node.runtime.calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn lc_305_a_runtime_that_cannot_be_read_is_told_once() {
    let node = Node::started();
    // The agent itself has looked by then.
    node.api.create("pods", pod("first", json!({})));
    node.api.until("first", is_ready).await;
    for _ in 0..3 {
        node.runtime.fail_next(Verb::List, CriError::Failed("connection refused".into()));
    }
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let event = "Warning FailedSync error determining status: connection refused".to_owned();
    node.api.until_world(|api| api.events("web").contains(&event)).await;
    assert_eq!(node.api.events("web").iter().filter(|told| **told == event).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn lc_303_events_name_the_list_a_container_is_in() {
    let node = Node::started();
    let container = |name: &str| json!({"name": name, "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent"});
    node.runtime.script("setup", Run::exits(Duration::from_secs(1), 0));
    let spec = json!({"initContainers": [container("setup")], "ephemeralContainers": [container("shell")]});
    node.api.create("pods", pod("web", spec));
    node.api.until("web", is_ready).await;
    let paths = |api: &crate::support::api::Api| {
        let started = api.list("events").into_iter().filter(|event| event["reason"] == "Started");
        let mut paths: Vec<String> =
            started.map(|event| event["involvedObject"]["fieldPath"].as_str().unwrap_or_default().to_owned()).collect();
        paths.sort();
        paths
    };
    node.api.until_world(|api| paths(api).len() == 3).await;
    let expected = ["spec.containers{app}", "spec.ephemeralContainers{shell}", "spec.initContainers{setup}"];
    assert_eq!(paths(&node.api), expected);
    let events = node.api.list("events");
    let event = events.iter().find(|event| event["involvedObject"]["kind"] == "Pod").unwrap();
    assert_eq!((&event["source"]["component"], &event["source"]["host"]), (&json!("kubelet"), &json!("n1")));
    assert_eq!(event["involvedObject"]["uid"], "uid-web");
}

/// TC-096, TC-270: with two seconds, no hook and no word to the API.
#[tokio::test(start_paused = true)]
async fn tc_096_tc_270_an_orphan_gets_two_seconds_and_no_hook() {
    let mut node = Node::started();
    node.runtime.script("app", Run::stubborn());
    let container = json!([{"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "lifecycle": {"preStop": {"exec": {"command": ["save"]}}}}]);
    node.api.create("pods", pod("web", json!({"containers": container})));
    node.api.until("web", is_ready).await;
    node.stop_agent().await;
    node.api.delete_pod("web", 0);
    let (calls, requests) = (node.runtime.calls().len(), node.api.requests().len());
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.runtime.sandboxes(None).await.unwrap(), []);
    let since = node.runtime.calls().split_off(calls);
    assert_eq!(since.first().map(String::as_str), Some("stop app/0 2s"), "{since:?}");
    assert!(!since.iter().any(|call| call.starts_with("exec")), "{since:?}");
    let writes = node.api.requests().split_off(requests);
    assert!(!writes.iter().any(|request| request.contains("pods/web")), "{writes:?}");
}

/// What is found without a wake-up call, and long after the first list.
#[tokio::test(start_paused = true)]
async fn lc_017_orphans_are_looked_for_all_the_time() {
    let node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    node.runtime.be_silent();
    let ghost = json!({
        "meta": {"name": "ghost", "namespace": "default", "uid": "uid-ghost", "attempt": 0}, "hostname": "ghost",
        "log_directory": "/nowhere", "cgroup_parent": "", "resources": cri::Resources::default(),
        "dns": cri::DnsConfig::default(), "network": "Pod", "pid": "Pod", "ipc": "Pod",
        "labels": {}, "annotations": {},
    });
    node.runtime.run_sandbox(serde_json::from_value(ghost).unwrap()).await.unwrap();
    let left_over = node.root.path().join("kubelet/pods/uid-nobody");
    std::fs::create_dir_all(left_over.join("volumes")).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let left: Vec<_> = node.runtime.sandboxes(None).await.unwrap().into_iter().map(|it| it.meta.name).collect();
    assert_eq!((left, left_over.exists()), (vec!["web".to_owned()], false));
    assert!(is_ready(node.api.pod("web").as_ref()), "who belongs to somebody stays");
}

#[tokio::test(start_paused = true)]
async fn tc_087_the_final_delete_is_for_one_uid_and_after_the_terminal_phase() {
    let node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    node.api.delete_pod("web", 30);
    node.api.until("web", |pod| pod.is_none()).await;
    let deletions = node.api.deletions();
    assert_eq!(deletions.len(), 1, "{deletions:?}");
    let (options, phase) = &deletions[0];
    assert_eq!((&options["gracePeriodSeconds"], phase), (&json!(0), &json!("Failed")));
    assert_eq!(options["preconditions"], json!({"uid": "uid-web"}));
}

#[tokio::test(start_paused = true)]
async fn tc_088_a_newer_pod_of_the_same_name_is_never_written() {
    let node = Node::started();
    node.runtime.script("app", Run::stubborn());
    node.api.create("pods", pod("web", json!({"terminationGracePeriodSeconds": 5})));
    node.api.until("web", is_ready).await;
    node.api.delete_pod("web", 0);
    let mut newer = pod("web", json!({"nodeName": "n2"}));
    newer["metadata"]["uid"] = json!("uid-newer");
    node.api.create("pods", newer);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(node.runtime.sandboxes(None).await.unwrap(), [], "the old one is gone");
    let newer = node.api.pod("web").expect("the newer pod is left alone");
    assert_eq!(newer["metadata"]["uid"], "uid-newer");
    assert_eq!(newer["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    let is_write = |request: &&String| *request == "PATCH /api/v1/namespaces/default/pods/web/status";
    let writes = node.api.requests().iter().filter(is_write).count();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.api.requests().iter().filter(is_write).count(), writes, "what is dropped is not tried again");
}

/// TC-067: nobody waits for another's stop.
#[tokio::test(start_paused = true)]
async fn tc_067_a_hundred_stubborn_pods_get_their_signal_at_once() {
    let node = Node::started();
    let names: Vec<String> = (0..110).map(|index| format!("web-{index}")).collect();
    for name in &names {
        node.runtime.script("app", Run::stubborn());
        node.api.create("pods", pod(name, json!({})));
    }
    for name in &names {
        node.api.until(name, is_ready).await;
    }
    for name in &names {
        node.api.delete_pod(name, 30);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let signalled = node.runtime.calls().iter().filter(|call| *call == "stop app/0 30s").count();
    assert_eq!(signalled, names.len());
    assert_eq!(node.runtime.sandboxes(None).await.unwrap().len(), names.len(), "all of them still run");
}

#[tokio::test(start_paused = true)]
async fn lc_363_a_debugger_waits_for_the_container_it_is_to_look_at() {
    let node = Node::started();
    node.runtime.pullable(&[]);
    let container = |name: &str, image: &str| json!({"name": name, "image": image, "imagePullPolicy": "IfNotPresent"});
    let mut shell = container("shell", "busybox:1.36");
    shell["targetContainerName"] = json!("app");
    let spec = json!({"containers": [container("app", "late")], "ephemeralContainers": [shell]});
    node.api.create("pods", pod("web", spec));
    let message = |pod: Option<&serde_json::Value>| {
        pod.is_some_and(|pod| {
            let waiting = &pod["status"]["ephemeralContainerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"] == "unable to find target container app"
        })
    };
    node.api.until("web", message).await;
    node.runtime.pullable(&["late:latest"]);
    let runs = |pod: Option<&serde_json::Value>| {
        pod.is_some_and(|pod| pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object())
    };
    node.api.until("web", runs).await;
}

/// traps H81: whoever follows only what the pod needed at first never sees it.
#[tokio::test(start_paused = true)]
async fn lc_321_a_debugger_is_given_a_secret_that_nobody_used_before() {
    let node = Node::started();
    node.api.create("secrets", json!({"metadata": {"name": "s", "namespace": "default"}, "data": {"A": "MQ=="}}));
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let key = json!({"secretKeyRef": {"name": "s", "key": "A"}});
    node.api.change_pod("web", |pod| {
        pod["spec"]["ephemeralContainers"] = json!([{"name": "shell", "image": "busybox:1.36",
            "imagePullPolicy": "IfNotPresent", "env": [{"name": "A", "valueFrom": key}]}]);
    });
    let runs = |pod: Option<&serde_json::Value>| {
        pod.is_some_and(|pod| pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object())
    };
    node.api.until("web", runs).await;
    assert_eq!(node.runtime.config_of("shell").unwrap().envs, [("A".to_owned(), "1".to_owned())]);
    assert_eq!(node.runtime.config_of("app").unwrap().envs, [], "nobody else gets it");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_class_says_how_a_pod_runs_and_a_missing_one_is_waited_for() {
    let node = Node::started();
    node.runtime.add_handler("crun");
    node.api.create("pods", pod("web", json!({"runtimeClassName": "light"})));
    node.api.create("pods", pod("strange", json!({"runtimeClassName": "odd"})));
    let told = |pod: &str, problem: &str| {
        let event = format!("Warning FailedCreatePodSandBox Failed to create pod sandbox: {problem}");
        let pod = pod.to_owned();
        move |api: &crate::support::api::Api| api.events(&pod).contains(&event)
    };
    node.api.until_world(told("web", "runtimeclass.node.k8s.io \"light\" not found")).await;
    let waiting = &node.api.pod("web").unwrap()["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ContainerCreating");
    let class = |name: &str, handler: &str| json!({"metadata": {"name": name}, "handler": handler});
    node.api.create("runtimeclasses", class("light", "crun"));
    node.api.create("runtimeclasses", class("odd", "magic"));
    node.api.until("web", is_ready).await;
    node.api.until_world(told("strange", "no runtime for \"magic\" is configured")).await;
}
