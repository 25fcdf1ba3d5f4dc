//! The agent at work: real workers, real client, fake runtime, virtual time.

#![expect(clippy::unwrap_used, reason = "helpers of tests may do what tests may")]

mod admitting;
mod evicting;
mod handlers;
mod log_files;
mod nodes;
mod panics;
mod power;
mod preparing;
mod serving;
mod sources;
mod statics;
mod support;
mod volumes;

use std::time::Duration;

use base64::Engine as _;
use cri::fake::{Run, Verb};
use cri::{CriError, Runtime as _};
use kubelet::PullLimits;
use serde_json::json;
use support::{Node, condition, is_ready, pod};

#[tokio::test(start_paused = true)]
async fn lc_306_a_pod_starts_and_tells_about_it() {
    let node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    let ready = node.api.until("web", is_ready).await;
    let status = &ready["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["hostIP"], "192.0.2.1");
    assert_eq!(status["podIP"], "10.88.0.1");
    assert_eq!(status["containerStatuses"][0]["ready"], true);
    // DEC-2
    assert!(status["containerStatuses"][0]["containerID"].as_str().unwrap().starts_with("podium://"));
    assert_eq!(node.runtime.calls(), ["run_sandbox web/0", "create app/0", "start app/0"]);
    node.api.until_world(|api| api.events("web").len() >= 3).await;
    assert_eq!(
        node.api.events("web"),
        [
            "Normal Pulled Container image \"busybox:1.36\" already present on machine and can be accessed by the pod",
            "Normal Created Container created",
            "Normal Started Container started",
        ]
    );
    let events = node.api.list("events");
    let event = events.iter().find(|event| event["involvedObject"]["kind"] == "Pod").unwrap();
    assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{app}");
    assert_eq!((&event["source"]["component"], &event["source"]["host"]), (&json!("kubelet"), &json!("n1")));
}

#[tokio::test(start_paused = true)]
async fn a_container_gets_its_environment_mounts_and_limits() {
    let node = Node::started();
    node.api
        .create("configmaps", json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"k": "v"}}));
    let container = json!([{
        "name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", "$(WHO) $(X)"],
        "env": [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "conf", "mountPath": "/conf"}],
        "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "500m", "memory": "64Mi"}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    }]);
    let volumes = json!([{"name": "data", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "settings"}}]);
    node.api.create("pods", pod("web", json!({"containers": container, "volumes": volumes})));
    node.api.until("web", is_ready).await;
    let config = node.runtime.config_of("app").unwrap();
    assert_eq!(config.command, ["sh", "-c", "web $(X)"]);
    let expected = [("WHO", "web"), ("KEY", "v"), ("IP", "10.88.0.1")];
    let expected: Vec<_> = expected.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(config.envs, expected);
    let places: Vec<_> =
        config.mounts.iter().map(|mount| (mount.container_path.to_str().unwrap(), mount.readonly)).collect();
    assert_eq!(places, [("/data", false), ("/conf", true), ("/etc/hosts", false), ("/dev/termination-log", false)]);
    assert!(config.mounts.iter().all(|mount| mount.host_path.exists()));
    assert_eq!(std::fs::read_to_string(config.mounts[1].host_path.join("k")).unwrap(), "v");
    assert_eq!((config.resources.cpu_quota, config.resources.memory_limit_bytes), (Some(50_000), Some(64 << 20)));
    assert_eq!(config.log_path.to_str(), Some("app/0.log"));
}

#[tokio::test(start_paused = true)]
async fn lc_168_a_crashing_container_is_restarted_with_growing_pauses() {
    let node = Node::started();
    for _ in 0..3 {
        node.runtime.script("app", Run::exits(Duration::from_secs(1), 7));
    }
    node.api.create("pods", pod("web", json!({})));
    let restarts = |count: u64| {
        move |pod: Option<&serde_json::Value>| {
            pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == count) && is_ready(pod)
        }
    };
    let begin = node.now();
    let looping = |pod: Option<&serde_json::Value>| {
        pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff")
    };
    let waiting = node.api.until("web", looping).await;
    assert_eq!(waiting["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 7);
    node.api.until("web", restarts(3)).await;
    let took = node.now().duration_since(begin).as_secs();
    assert!((30..=40).contains(&took), "10 s and 20 s of pauses and three seconds of life, not {took} s");
    assert_eq!(node.runtime.config_of("app").unwrap().log_path.to_str(), Some("app/3.log"));
}

#[tokio::test(start_paused = true)]
async fn tc_080_a_deleted_pod_is_stopped_cleaned_up_and_removed() {
    let node = Node::started();
    node.api.create("pods", pod("web", json!({"volumes": [{"name": "data", "emptyDir": {}}]})));
    node.api.until("web", is_ready).await;
    let directory = node.root.path().join("kubelet/pods/uid-web");
    assert!(directory.join("volumes/kubernetes.io~empty-dir/data").exists());
    let begin = node.now();
    node.api.delete_pod("web", 30);
    node.api.until("web", |pod| pod.is_none()).await;
    assert!(node.now().duration_since(begin).as_secs() < 2, "nothing waits for the grace period");
    assert!(!directory.exists());
    assert_eq!(node.runtime.sandboxes(None).await.unwrap(), []);
    assert!(node.runtime.calls().contains(&"stop app/0 30s".to_owned()), "{:?}", node.runtime.calls());
    assert!(node.api.requests().iter().any(|request| request == "DELETE /api/v1/namespaces/default/pods/web"));
}

#[tokio::test(start_paused = true)]
async fn tc_047_a_stubborn_container_is_killed_when_a_second_deletion_shortens_the_grace() {
    let node = Node::started();
    node.runtime.script("app", Run::stubborn());
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let begin = node.now();
    node.api.delete_pod("web", 30);
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.api.change_pod("web", |pod| pod["metadata"]["deletionGracePeriodSeconds"] = json!(3));
    node.api.until("web", |pod| pod.is_none()).await;
    let took = node.now().duration_since(begin).as_secs();
    assert!((2..=5).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn tc_066_a_pod_that_cannot_be_killed_holds_up_nobody_else() {
    let node = Node::started();
    node.runtime.script("app", Run::deathless());
    node.api.create("pods", pod("stuck", json!({})));
    node.api.until("stuck", is_ready).await;
    node.api.delete_pod("stuck", 1);
    for name in ["one", "two", "three"] {
        node.api.create("pods", pod(name, json!({})));
        node.api.until(name, is_ready).await;
        node.api.delete_pod(name, 1);
        node.api.until(name, |pod| pod.is_none()).await;
        tokio::time::sleep(Duration::from_secs(1200)).await;
    }
    assert!(node.api.pod("stuck").is_some(), "its process still runs");
    node.runtime.exit("app", 137);
    node.api.until("stuck", |pod| pod.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn lc_376_a_new_agent_adopts_running_pods_without_touching_them() {
    let mut node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    let before = node.api.until("web", is_ready).await;
    let calls = node.runtime.calls();
    node.stop_agent().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    node.start_agent();
    node.api.create("pods", pod("other", json!({})));
    node.api.until("other", is_ready).await;
    let after = node.api.pod("web").unwrap();
    assert_eq!(before["status"], after["status"], "nothing changed, nothing is written");
    let since: Vec<_> = node.runtime.calls().split_off(calls.len());
    assert_eq!(since, ["run_sandbox other/0", "create app/0", "start app/0"]);
}

#[tokio::test(start_paused = true)]
async fn tc_268_an_exit_during_the_absence_of_the_agent_is_found() {
    let mut node = Node::started();
    node.api.create("pods", pod("web", json!({"restartPolicy": "Never"})));
    node.api.until("web", is_ready).await;
    node.stop_agent().await;
    node.runtime.exit("app", 3);
    node.start_agent();
    let failed = node.api.until("web", |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")).await;
    assert_eq!(failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    assert_eq!(condition(&failed, "Ready"), "False");
}

/// LC-017: told by the runtime, before any look at it is due.
#[tokio::test(start_paused = true)]
async fn lc_017_an_exit_is_known_within_the_second_upstream_needs_to_find_it() {
    let node = Node::started();
    node.api.create("pods", pod("web", json!({"restartPolicy": "Never"})));
    node.api.until("web", is_ready).await;
    let begin = tokio::time::Instant::now();
    node.runtime.exit("app", 3);
    node.api.until("web", |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")).await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lc_015_pods_nobody_knows_are_killed_but_only_after_the_first_list() {
    let mut node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    node.stop_agent().await;
    node.api.delete_pod("web", 0);
    node.api.set_away(true);
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.runtime.sandboxes(None).await.unwrap().len(), 1, "the API has not spoken yet");
    node.api.set_away(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.runtime.sandboxes(None).await.unwrap(), []);
    assert!(!node.root.path().join("kubelet/pods/uid-web").exists());
}

#[tokio::test(start_paused = true)]
async fn lc_034_pods_go_on_while_the_api_is_away_and_status_follows_when_it_is_back() {
    let node = Node::started();
    node.runtime.script("app", Run::exits(Duration::from_secs(60), 1));
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    node.api.set_away(true);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(node.runtime.calls().contains(&"start app/1".to_owned()), "it was restarted");
    assert_eq!(node.api.pod("web").unwrap()["status"]["containerStatuses"][0]["restartCount"], 0);
    node.api.set_away(false);
    let restarted = |pod: Option<&serde_json::Value>| {
        pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    };
    node.api.until("web", restarted).await;
}

#[tokio::test(start_paused = true)]
async fn lc_310_a_missing_image_waits_with_the_reason() {
    let node = Node::started();
    node.runtime.pullable(&[]);
    let container = json!([{"name": "app", "image": "nowhere", "imagePullPolicy": "Never"}]);
    node.api.create("pods", pod("web", json!({"containers": container})));
    let reason = |reason: &'static str| {
        move |pod: Option<&serde_json::Value>| {
            pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason)
        }
    };
    let waiting = node.api.until("web", reason("ErrImageNeverPull")).await;
    let message = "Container image \"nowhere\" is not present with pull policy of Never";
    assert_eq!(waiting["status"]["containerStatuses"][0]["state"]["waiting"]["message"], message);
    let container = json!([{"name": "app", "image": "nowhere", "imagePullPolicy": "Always"}]);
    node.api.create("pods", pod("pull", json!({"containers": container})));
    node.api.until("pull", reason("ErrImagePull")).await;
    node.api.until("pull", reason("ImagePullBackOff")).await;
    // Only time passed since the failure, and still it is told at once, long before the next pull.
    let shown = node.now();
    let told = |event: &String| event.starts_with("Normal BackOff Back-off pulling image");
    node.api.until_world(|api| api.events("pull").iter().any(told)).await;
    assert!(node.now().duration_since(shown).as_secs() < 5, "told only after {}", node.now().duration_since(shown));
    node.runtime.pullable(&["nowhere:latest"]);
    node.api.until("pull", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn lc_311_a_missing_pull_secret_is_told_and_the_pull_tried() {
    let node = Node::started();
    let container = json!([{"name": "app", "image": "private", "imagePullPolicy": "Always"}]);
    let secrets = json!([{"name": "first"}, {"name": "second"}]);
    node.api.create("pods", pod("web", json!({"containers": container, "imagePullSecrets": secrets})));
    node.api.until("web", is_ready).await;
    let told = "Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (first, second); \
                attempting to pull the image may not succeed.";
    node.api.until_world(|api| api.events("web").iter().any(|event| event == told)).await;
}

#[tokio::test(start_paused = true)]
async fn lc_181_a_registry_that_is_down_has_a_reason_of_its_own() {
    let node = Node::started();
    node.runtime.fail_next(Verb::PullImage, CriError::RegistryUnavailable("no route to host".into()));
    let container = json!([{"name": "app", "image": "remote", "imagePullPolicy": "Always"}]);
    node.api.create("pods", pod("web", json!({"containers": container})));
    let is_waiting = |pod: Option<&serde_json::Value>| {
        let waiting = pod.map(|pod| &pod["status"]["containerStatuses"][0]["state"]["waiting"]);
        waiting.is_some_and(|waiting| waiting["reason"] == "RegistryUnavailable")
    };
    let waiting = node.api.until("web", is_waiting).await;
    let message = "image pull failed for remote because the registry is unavailable: no route to host";
    assert_eq!(waiting["status"]["containerStatuses"][0]["state"]["waiting"]["message"], message);
    node.api.until("web", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn lc_313_pulls_above_the_rate_fail_and_are_tried_again() {
    let mut node = Node::new();
    node.config.pulls = PullLimits { at_once: None, per_second: 1, burst: 2 };
    node.start_agent();
    for name in ["a", "b", "c"] {
        let container = json!([{"name": "app", "image": format!("remote:{name}"), "imagePullPolicy": "Always"}]);
        node.api.create("pods", pod(name, json!({"containers": container})));
    }
    for name in ["a", "b", "c"] {
        node.api.until(name, is_ready).await;
    }
    let told = |name: &str| {
        let events = node.api.events(name);
        let failed = format!("Warning Failed Failed to pull image \"remote:{name}\": pull QPS exceeded");
        events.contains(&failed) && events.contains(&"Warning Failed Error: ErrImagePull".to_owned())
    };
    node.api.until_world(|_| ["a", "b", "c"].iter().filter(|name| told(name)).count() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn lc_313_a_pull_ends_with_its_pod_and_holds_up_others_for_a_while_only() {
    let node = Node::started();
    node.runtime.pulls_for_ever("remote:endless");
    let using = |name: &str, image: &str| {
        let container = json!([{"name": "app", "image": image, "imagePullPolicy": "Always"}]);
        pod(name, json!({ "containers": container }))
    };
    let pulls = || node.runtime.calls().iter().filter(|call| *call == "pull remote:endless").count();
    node.api.create("pods", using("hostile", "remote:endless"));
    node.api.until_world(|_| pulls() == 1).await;
    let begin = node.now();
    node.api.create("pods", using("beside", "remote:a"));
    node.api.until("beside", is_ready).await;
    let waited = node.now().duration_since(begin).as_secs();
    assert!((1..60).contains(&waited), "it is one after the other, but nobody waits {waited} s");
    node.api.create("pods", using("again", "remote:endless"));
    node.api.until_world(|_| pulls() == 2).await;
    let begin = node.now();
    node.api.delete_pod("again", 0);
    node.api.create("pods", using("after", "remote:b"));
    node.api.until("after", is_ready).await;
    let waited = node.now().duration_since(begin).as_secs();
    assert!(waited < 10, "its pull is over with the pod, not after {waited} s");
}

#[tokio::test(start_paused = true)]
async fn lc_312_an_image_pulled_with_a_secret_is_not_everybodys() {
    let mut node = Node::started();
    let config = json!({"auths": {"registry.example": {"username": "u", "password": "p"}}}).to_string();
    let config = base64::engine::general_purpose::STANDARD.encode(config);
    for name in ["own", "copy"] {
        let metadata = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}")});
        let data = json!({".dockerconfigjson": config});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": metadata, "data": data});
        node.api.create("secrets", secret);
    }
    let using = |name: &str, policy: &str, secrets: &[&str]| {
        let secrets: Vec<_> = secrets.iter().map(|name| json!({ "name": name })).collect();
        let container = json!([{"name": "app", "image": "registry.example/app:v1", "imagePullPolicy": policy}]);
        pod(name, json!({"containers": container, "imagePullSecrets": secrets}))
    };
    let pulls =
        |node: &Node| node.runtime.calls().into_iter().filter(|call| call.starts_with("pull ")).collect::<Vec<_>>();
    let with = "pull registry.example/app:v1 with credentials";
    let without = "pull registry.example/app:v1";
    node.api.create("pods", using("first", "IfNotPresent", &["own"]));
    node.api.until("first", is_ready).await;
    assert_eq!(pulls(&node), [with]);
    // Who has the secret, or one that says the same, need not ask; also after a restart.
    node.api.create("pods", using("second", "IfNotPresent", &["own"]));
    node.api.until("second", is_ready).await;
    node.stop_agent().await;
    node.start_agent();
    node.api.create("pods", using("third", "Never", &["copy"]));
    node.api.until("third", is_ready).await;
    assert_eq!(pulls(&node), [with]);
    // Who has none has to ask, or does not get it.
    node.api.create("pods", using("stranger", "Never", &[]));
    let is_refused = |pod: Option<&serde_json::Value>| {
        let waiting = pod.map(|pod| &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]);
        waiting.is_some_and(|reason| reason == "ErrImageNeverPull")
    };
    node.api.until("stranger", is_refused).await;
    node.api.create("pods", using("fourth", "IfNotPresent", &[]));
    node.api.until("fourth", is_ready).await;
    assert_eq!(pulls(&node), [with, without]);
    // It was given without credentials: so it is for everybody.
    node.api.until("stranger", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn lc_192_a_failed_sandbox_is_told_and_tried_again() {
    let node = Node::started();
    node.runtime.fail_next(Verb::RunSandbox, CriError::Failed("no address left".into()));
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let events = node.api.events("web");
    assert!(
        events.contains(&"Warning FailedCreatePodSandBox Failed to create pod sandbox: no address left".to_owned()),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn lc_321_a_container_starts_once_the_object_it_refers_to_exists() {
    let node = Node::started();
    let container = json!([{"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "envFrom": [{"secretRef": {"name": "s"}}]}]);
    node.api.create("pods", pod("web", json!({"containers": container})));
    let waits = |pod: Option<&serde_json::Value>| {
        let waiting = pod.map(|pod| pod["status"]["containerStatuses"][0]["state"]["waiting"].clone());
        waiting.is_some_and(|waiting| {
            waiting["reason"] == "CreateContainerConfigError" && waiting["message"] == "secret \"s\" not found"
        })
    };
    node.api.until("web", waits).await;
    node.api.create("secrets", json!({"metadata": {"name": "s", "namespace": "default"}, "data": {"A": "MQ=="}}));
    node.api.until("web", is_ready).await;
    assert_eq!(node.runtime.config_of("app").unwrap().envs, [("A".to_owned(), "1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn tc_166_the_node_registers_and_its_heart_beats() {
    let mut node = Node::started();
    node.api.until_world(|api| api.get("leases", "kube-node-lease", "n1").is_some()).await;
    let registered = node.api.get("nodes", "", "n1").unwrap();
    let conditions = registered["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.last().unwrap()["type"], "Ready", "W17");
    assert_eq!(condition(&registered, "Ready"), "True");
    assert_eq!(registered["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
    assert_eq!(registered["status"]["capacity"]["cpu"], "2");
    assert_eq!(registered["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
    assert_eq!(registered["status"]["addresses"][0], json!({"type": "InternalIP", "address": "192.0.2.1"}));
    let lease = |node: &Node| node.api.get("leases", "kube-node-lease", "n1").unwrap()["spec"]["renewTime"].clone();
    let first = lease(&node);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_ne!(lease(&node), first, "TC-167");
    let status_writes = |node: &Node| {
        let is_write = |request: &&String| *request == "PATCH /api/v1/nodes/n1/status";
        node.api.requests().iter().filter(is_write).count()
    };
    let written = status_writes(&node);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(status_writes(&node), written, "TC-168: nothing changed, nothing is due");
    let moved =
        |node: &Node| node.api.get("nodes", "", "n1").unwrap()["status"]["conditions"][3]["lastTransitionTime"].clone();
    let before = moved(&node);
    node.stop_agent().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(moved(&node), before, "H75: a restart is not a transition");
}
