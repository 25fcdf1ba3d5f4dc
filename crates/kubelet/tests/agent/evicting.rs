//! What happens when the node runs short of something, or of time.

use std::time::Duration;

use cri::Runtime as _;
use lifecycle::node::{ShutdownGroup, Signal};
use serde_json::{Value, json};

use crate::support::{Node, condition, is_ready, pod};

fn is_failed(pod: Option<&Value>) -> bool {
    pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")
}

fn pressure(node: &Node, kind: &str) -> String {
    condition(&node.api.get("nodes", "", "n1").unwrap(), kind).to_owned()
}

#[tokio::test(start_paused = true)]
async fn tc_234_a_node_short_of_memory_says_so_evicts_one_pod_and_repels_others() {
    let node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    assert_eq!(pressure(&node, "MemoryPressure"), "False");
    node.machine.set(Signal::MemoryAvailable, 50 << 20);
    let evicted = node.api.until("web", is_failed).await;
    assert_eq!(evicted["status"]["reason"], "Evicted");
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container app was \
                   using 1Mi, request is 0, has larger consumption of memory. ";
    assert_eq!(evicted["status"]["message"], message);
    assert_eq!(condition(&evicted, "DisruptionTarget"), "True");
    let told = |event: &String| event.starts_with("Warning EvictionThresholdMet") && event.ends_with("reclaim memory");
    node.api.until_world(|api| api.events("n1").iter().any(told)).await;
    node.api.until_world(|_| pressure(&node, "MemoryPressure") == "True").await;
    node.api.create("pods", pod("late", json!({})));
    let repelled = node.api.until("late", is_failed).await;
    assert_eq!(repelled["status"]["message"], "Pod was rejected: The node had condition: [MemoryPressure]. ");
    node.machine.set(Signal::MemoryAvailable, 50 << 30);
    node.api.until_world(|_| pressure(&node, "MemoryPressure") == "False").await;
}

#[tokio::test(start_paused = true)]
async fn tc_242_an_empty_dir_above_its_limit_evicts_the_pod() {
    let node = Node::started();
    let volumes = json!([{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    node.api.until("web", is_ready).await;
    let volume = node.root.path().join("kubelet/pods/uid-web/volumes/kubernetes.io~empty-dir/data");
    std::fs::write(volume.join("half"), vec![1; 1 << 19]).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(is_ready(node.api.pod("web").as_ref()), "half of it is not too much");
    std::fs::write(volume.join("more"), vec![1; 1 << 20]).unwrap();
    let evicted = node.api.until("web", is_failed).await;
    assert_eq!(evicted["status"]["reason"], "Evicted");
    assert_eq!(evicted["status"]["message"], "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ");
    let told = "Warning Evicted Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ".to_owned();
    node.api.until_world(|api| api.events("web").contains(&told)).await;
    node.api.until_world(|_| !volume.exists()).await;
}

#[tokio::test(start_paused = true)]
async fn lc_165_a_pod_whose_storage_is_lost_ends() {
    let node = Node::started();
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    std::fs::remove_dir_all(node.root.path().join("kubelet/pods/uid-web")).unwrap();
    let evicted = node.api.until("web", is_failed).await;
    assert_eq!(evicted["status"]["reason"], "Evicted");
    assert_eq!(evicted["status"]["message"], "The storage of the pod was lost. ");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_was_not_published_is_decided_again_by_the_next_agent() {
    let mut node = Node::started();
    let volumes = json!([{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]);
    node.api.create("pods", pod("web", json!({"volumes": volumes})));
    node.api.until("web", is_ready).await;
    let volume = node.root.path().join("kubelet/pods/uid-web/volumes/kubernetes.io~empty-dir/data");
    node.api.set_away(true);
    std::fs::write(volume.join("much"), vec![1; 2 << 20]).unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(node.runtime.calls().iter().any(|call| call.starts_with("stop app/0")), "{:?}", node.runtime.calls());
    node.stop_agent().await;
    node.api.set_away(false);
    assert!(is_ready(node.api.pod("web").as_ref()), "nobody was told");
    node.start_agent();
    let evicted = node.api.until("web", is_failed).await;
    assert_eq!(evicted["status"]["reason"], "Evicted");
    node.api.until_world(|_| !volume.exists()).await;
}

#[tokio::test(start_paused = true)]
async fn unused_images_go_when_the_disk_of_images_is_full_and_used_ones_stay() {
    let node = Node::started();
    node.runtime.add_image("unused:1");
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let images = async || {
        let images = node.runtime.images().await.unwrap();
        images.into_iter().flat_map(|image| image.repo_tags).collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(images().await, ["busybox:1.36", "unused:1"], "there is room");
    // 85 % is used: too much for images, not enough to evict anybody.
    node.machine.set(Signal::ImagefsAvailable, 15 << 30);
    tokio::time::sleep(Duration::from_secs(310)).await;
    assert_eq!(images().await, ["busybox:1.36"], "the one in use stays");
    let told = "Warning FreeDiskSpaceFailed Failed to garbage collect required amount of images.";
    node.api.until_world(|api| api.events("n1").iter().any(|event| event.starts_with(told))).await;
    assert!(is_ready(node.api.pod("web").as_ref()));
}

#[tokio::test(start_paused = true)]
async fn tc_251_a_shutdown_stops_the_less_important_first() {
    let mut node = Node::new();
    node.config.settings.shutdown_groups = ShutdownGroup::pair(Duration::from_secs(30), Duration::from_secs(10));
    let agent = node.agent(std::sync::Arc::new(node.runtime.clone()));
    let power = agent.power();
    node.run(agent);
    node.api.create("pods", pod("web", json!({})));
    node.api.create("pods", pod("vital", json!({"priority": 2_000_000_000})));
    node.api.until("web", is_ready).await;
    node.api.until("vital", is_ready).await;
    power.announce_shutdown();
    let ended = node.api.until("vital", is_failed).await;
    assert_eq!(ended["status"]["reason"], "Terminated");
    assert!(is_failed(node.api.pod("web").as_ref()), "it went first");
    node.api.until_world(|_| pressure(&node, "Ready") == "False").await;
    power.cancel_shutdown();
    node.api.until_world(|_| pressure(&node, "Ready") == "True").await;
    assert!(is_failed(node.api.pod("web").as_ref()), "TC-253");
}

#[tokio::test(start_paused = true)]
async fn tc_172_a_reboot_is_told_once() {
    let mut node = Node::new();
    node.config.machine.boot_id = "first".to_owned();
    node.start_agent();
    node.api.until_world(|api| api.get("leases", "kube-node-lease", "n1").is_some()).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    node.stop_agent().await;
    node.config.machine.boot_id = "second".to_owned();
    node.start_agent();
    let told = "Warning Rebooted Node n1 has been rebooted, boot id: second".to_owned();
    node.api.until_world(|api| api.events("n1").contains(&told)).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(node.api.events("n1").iter().filter(|event| event.contains("Rebooted")).count(), 1);
}
