//! What pods find in their volumes, from before their start to their end.

use std::path::PathBuf;
use std::time::Duration;

use cri::Runtime as _;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use crate::support::{Node, is_ready, pod};

/// A place below the volumes of pod `web`.
fn volume(node: &Node, path: &str) -> PathBuf {
    node.root.path().join("kubelet/pods/uid-web/volumes").join(path)
}

fn settings(value: &str) -> Value {
    json!({"metadata": {"name": "settings", "namespace": "default"}, "data": {"mode": value}})
}

/// Waits for a file to have this content.
async fn until_file(path: &std::path::Path, content: &str) {
    for _ in 0..1000 {
        if std::fs::read_to_string(path).is_ok_and(|found| found == content) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{} never was {content:?}; it is {:?}", path.display(), std::fs::read_to_string(path));
}

/// Mounts made from here on are seen by nobody else and end with the test.
/// False where we may not.
fn in_own_mounts() -> bool {
    unshare(CloneFlags::CLONE_NEWNS).is_ok()
        && mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).is_ok()
}

fn gets(node: &Node) -> usize {
    let wanted = "GET /api/v1/namespaces/default/configmaps/settings";
    node.api.requests().iter().filter(|request| *request == wanted).count()
}

#[tokio::test(start_paused = true)]
async fn lc_319_a_running_pod_sees_what_became_of_a_config_map() {
    let mut node = Node::started();
    node.api.create("configmaps", settings("slow"));
    let volumes = json!([{"name": "conf", "configMap": {"name": "settings"}}]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    node.api.until("web", is_ready).await;
    let file = volume(&node, "kubernetes.io~configmap/conf/mode");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "slow");
    node.api.change("configmaps", "settings", |map| map["data"] = json!({"mode": "fast", "more": "x"}));
    until_file(&file, "fast").await;
    assert_eq!(std::fs::read_to_string(file.with_file_name("more")).unwrap(), "x");

    // Nothing is polled.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = gets(&node);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(gets(&node), before, "ten minutes in which nothing happened cost nothing");

    // What changed while the agent was away is seen when it is back.
    node.stop_agent().await;
    node.api.change("configmaps", "settings", |map| map["data"] = json!({"mode": "away"}));
    node.start_agent();
    until_file(&file, "away").await;
    assert!(!file.with_file_name("more").exists());
}

#[tokio::test(start_paused = true)]
async fn lc_319_immutable_objects_are_not_followed() {
    let node = Node::started();
    let mut fixed = settings("slow");
    fixed["immutable"] = json!(true);
    node.api.create("configmaps", fixed);
    let volumes = json!([{"name": "conf", "configMap": {"name": "settings"}}]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    node.api.until("web", is_ready).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = gets(&node);
    node.api.change("configmaps", "settings", |map| map["data"] = json!({"mode": "fast"}));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(gets(&node), before);
    let file = volume(&node, "kubernetes.io~configmap/conf/mode");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "slow");
}

#[tokio::test(start_paused = true)]
async fn lc_319_files_of_a_pods_own_fields_follow_it() {
    let node = Node::started();
    let items = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "app", "resource": "limits.cpu", "divisor": "1m"}}]);
    node.api.create("pods", pod("web", json!({"volumes": [{"name": "info", "downwardAPI": {"items": items}}]})));
    node.api.until("web", is_ready).await;
    let file = volume(&node, "kubernetes.io~downward-api/info/labels");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    assert_eq!(std::fs::read_to_string(file.with_file_name("cpu")).unwrap(), "2000");
    node.api.change_pod("web", |pod| pod["metadata"]["labels"] = json!({"tier": "front"}));
    until_file(&file, "tier=\"front\"").await;
}

#[tokio::test(start_paused = true)]
async fn lc_323_tokens_are_bound_to_the_pod_and_renewed_before_they_end() {
    if !in_own_mounts() {
        return;
    }
    let mut node = Node::started();
    let sources = json!([{"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "vault"}}]);
    let spec = json!({"serviceAccountName": "robot", "volumes": [{"name": "auth", "projected": {"sources": sources}}]});
    node.api.create("pods", pod("web", spec));
    node.api.until("web", is_ready).await;
    let file = volume(&node, "kubernetes.io~projected/auth/token");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "token-1");
    let request = &node.api.tokens()[0]["spec"];
    assert_eq!((&request["audiences"], &request["expirationSeconds"]), (&json!(["vault"]), &json!(600)));
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": "uid-web"});
    assert_eq!(request["boundObjectRef"], bound);
    tokio::time::sleep(Duration::from_secs(470)).await;
    assert_eq!(node.api.tokens().len(), 1, "not before four fifths of its life");
    tokio::time::sleep(Duration::from_secs(30)).await;
    until_file(&file, "token-2").await;
    assert_eq!(node.api.tokens().len(), 2);
    // While the API is away the old one stays.
    node.api.set_away(true);
    tokio::time::sleep(Duration::from_secs(550)).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "token-2");
    node.api.set_away(false);
    until_file(&file, "token-3").await;
    node.api.delete_pod("web", 1);
    node.api.until("web", |pod| pod.is_none()).await;
    assert!(!file.exists());
    node.stop_agent().await;
}

#[tokio::test(start_paused = true)]
async fn lc_317_volumes_live_as_long_as_the_pod() {
    let mut node = Node::started();
    let containers = json!([{"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "subPathExpr": "logs/$(POD)"}]}]);
    let spec = json!({"containers": containers, "volumes": [{"name": "scratch", "emptyDir": {}}]});
    node.api.create("pods", pod("web", spec));
    node.api.until("web", is_ready).await;
    let scratch = volume(&node, "kubernetes.io~empty-dir/scratch");
    let mount = node.runtime.config_of("app").unwrap().mounts.remove(0);
    assert_eq!((&mount.host_path, mount.sub_path), (&scratch, Some("logs/web".into())));
    std::fs::write(scratch.join("f"), "mine").unwrap();
    node.runtime.exit("app", 1);
    let restarted = |pod: Option<&Value>| {
        is_ready(pod) && pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    };
    node.api.until("web", restarted).await;
    node.stop_agent().await;
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(std::fs::read_to_string(scratch.join("f")).unwrap(), "mine");
    node.api.delete_pod("web", 1);
    node.api.until("web", |pod| pod.is_none()).await;
    assert!(!scratch.exists());
}

#[tokio::test(start_paused = true)]
async fn tc_288_a_reboot_leaves_what_is_on_disk_and_takes_what_was_in_memory() {
    if !in_own_mounts() {
        return;
    }
    let mut node = Node::started();
    let volumes = json!([{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    node.api.until("web", is_ready).await;
    let disk = volume(&node, "kubernetes.io~empty-dir/disk");
    let memory = volume(&node, "kubernetes.io~empty-dir/memory");
    for path in [&disk, &memory] {
        std::fs::write(path.join("f"), "mine").unwrap();
    }
    node.stop_agent().await;
    node.runtime.reboot();
    // No mount outlives the kernel that made it.
    kubelet::unmount_volumes(&node.root.path().join("kubelet")).unwrap();
    node.start_agent();
    let restarted = |pod: Option<&Value>| {
        is_ready(pod) && pod.is_some_and(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    };
    node.api.until("web", restarted).await;
    assert_eq!(std::fs::read_to_string(disk.join("f")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(&memory).unwrap().count(), 0);
    let device = |path: &std::path::Path| std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(path).unwrap());
    assert_ne!(device(&memory), device(&disk), "it is memory again");
    node.api.delete_pod("web", 1);
    node.api.until("web", |pod| pod.is_none()).await;
    assert!(!disk.exists() && !memory.exists());
}

#[tokio::test(start_paused = true)]
async fn lc_321_a_container_starts_once_its_configuration_is_there() {
    let node = Node::started();
    let containers = json!([{"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "envFrom": [{"prefix": "SET_", "configMapRef": {"name": "settings"}}]}]);
    node.api.create("pods", pod("web", json!({"containers": containers})));
    let waits = |pod: Option<&Value>| {
        pod.is_some_and(|pod| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"] == "configmap \"settings\" not found"
        })
    };
    node.api.until("web", waits).await;
    node.api.create("configmaps", settings("slow"));
    node.api.until("web", is_ready).await;
    let envs = node.runtime.config_of("app").unwrap().envs;
    assert_eq!(envs, [("SET_mode".to_owned(), "slow".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn lc_320_all_that_is_missing_is_told_and_optional_things_are_not_missed() {
    let node = Node::started();
    let volumes = json!([
        {"name": "conf", "configMap": {"name": "settings", "items": [{"key": "mode", "path": "deep/mode", "mode": 0o400}]}},
        {"name": "maybe", "configMap": {"name": "nowhere", "optional": true}},
        {"name": "share", "nfs": {"server": "s", "path": "/"}},
    ]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    let told = |volume: &str, error: &str| {
        format!("Warning FailedMount MountVolume.SetUp failed for volume \"{volume}\" : {error}")
    };
    let missing = told("conf", "configmap \"settings\" not found");
    let unknown = told("share", "no volume plugin matched: volumes of type nfs are not supported");
    node.api.until_world(|api| api.events("web").contains(&missing) && api.events("web").contains(&unknown)).await;
    assert!(!node.api.events("web").iter().any(|event| event.contains("maybe")));
    assert!(volume(&node, "kubernetes.io~configmap/maybe/..data").exists());
}

#[tokio::test(start_paused = true)]
async fn lc_315_images_of_volumes_are_pulled_and_mounted_by_their_id() {
    let node = Node::started();
    let mounts = json!([{"name": "models", "mountPath": "/all"},
        {"name": "models", "mountPath": "/part", "subPath": "a/b", "mountPropagation": "HostToContainer"}]);
    let container = json!([{"name": "app", "image": "app:1", "volumeMounts": mounts}]);
    let volumes = json!([{"name": "models", "image": {"reference": "models", "pullPolicy": "Always"}}]);
    node.api.create("pods", pod("web", json!({"containers": container, "volumes": volumes})));
    node.api.until("web", is_ready).await;
    assert_eq!(node.runtime.calls().iter().filter(|call| *call == "pull models:latest").count(), 1);
    let id = node.runtime.image("models:latest").await.unwrap().unwrap().id;
    let made = node.runtime.containers(None).await.unwrap();
    let mounted: Vec<_> = made[0].mounts.iter().filter(|mount| mount.image.as_deref() == Some(&id)).collect();
    let shown = |mount: &&cri::Mount| (mount.container_path.clone(), mount.sub_path.clone(), mount.readonly);
    let expected = [("/all".into(), None, true), ("/part".into(), Some("a/b".into()), true)];
    assert_eq!(mounted.iter().map(shown).collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn lc_320_pods_do_not_wait_for_what_the_api_leaves_others_waiting_for() {
    let node = Node::started();
    node.api.leave_unanswered("/configmaps/slow");
    let stuck = json!([{"name": "conf", "configMap": {"name": "slow"}}]);
    for number in 0..20 {
        node.api.create("pods", pod(&format!("stuck-{number}"), json!({"volumes": stuck})));
    }
    let asking = |api: &crate::support::api::Api| {
        api.requests().iter().filter(|request| request.ends_with("/configmaps/slow")).count()
    };
    node.api.until_world(|api| asking(api) >= 8).await;
    let own = json!([{"fieldRef": {"fieldPath": "metadata.name"}, "path": "name"}]);
    let volumes = json!([{"name": "own", "downwardAPI": {"items": own}}]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    node.api.until("web", is_ready).await;
    let told = "timed out reading from the API server what volume \"conf\" shows";
    node.api.until_world(|api| api.events("stuck-0").iter().any(|event| event.contains(told))).await;
}

#[tokio::test(start_paused = true)]
async fn lc_320_an_object_is_read_once_however_often_it_is_shown() {
    let node = Node::started();
    node.api.create("configmaps", settings("fast"));
    let source = |number: u32| {
        let items = json!([{"key": "mode", "path": format!("mode-{number}")}]);
        json!({"configMap": {"name": "settings", "items": items}})
    };
    let sources: Vec<Value> = (0..50).map(source).collect();
    let volumes = json!([{"name": "all", "projected": {"sources": sources}}]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    node.api.until("web", is_ready).await;
    let last = volume(&node, "kubernetes.io~projected/all/mode-49");
    assert_eq!(std::fs::read_to_string(last).unwrap(), "fast");
    // Once when it starts, and once when somebody looks whether it changed meanwhile.
    assert!(gets(&node) <= 2, "{}", gets(&node));
}
