//! What logind says and is told (TC §7.6).

use std::time::Duration;

use lifecycle::node::ShutdownGroup;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::support::logind::{Lock, Login};
use crate::support::{Node, condition, is_ready, pod};

/// A node that takes 30 s to stop, on a machine that waits `delay_seconds`.
fn node(delay_seconds: u64) -> (Node, Login, UnboundedReceiver<Lock>) {
    let mut node = Node::new();
    node.config.settings.shutdown_groups = ShutdownGroup::pair(Duration::from_secs(30), Duration::from_secs(10));
    let (login, locks) = Login::start(node.root.path(), delay_seconds);
    (node, login, locks)
}

fn start(node: &mut Node, login: &Login) {
    let agent = node.agent(std::sync::Arc::new(node.runtime.clone()));
    node.run(agent.with_logind(login.place()));
}

async fn until_node_is(node: &Node, ready: &str) {
    let shown = |node: &Node| node.api.get("nodes", "", "n1").map(|found| condition(&found, "Ready").to_owned());
    node.api.until_world(|_| shown(node).as_deref() == Some(ready)).await;
}

#[tokio::test(start_paused = true)]
async fn tc_250_tc_253_the_machine_waits_until_the_api_knows_that_pods_have_stopped() {
    let (mut node, login, mut locks) = node(60);
    start(&mut node, &login);
    let mut lock = locks.recv().await.unwrap();
    assert_eq!(lock.words, ["shutdown", "podium", "Kubelet needs time to handle node shutdown", "delay"]);
    assert_eq!(login.conf(), "", "it waits long enough as it is");
    node.api.create("pods", pod("web", json!({})));
    node.api.create("pods", pod("vital", json!({"priority": 2_000_000_000})));
    node.api.until("web", is_ready).await;
    node.api.until("vital", is_ready).await;
    assert!(lock.is_held());
    login.announce(true).await;
    lock.released().await;
    for name in ["web", "vital"] {
        let status = &node.api.pod(name).unwrap()["status"];
        assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Terminated")), "{name}");
    }
    until_node_is(&node, "False").await;
    assert!(locks.is_empty(), "nobody asks for time again");
    login.announce(false).await;
    let lock = locks.recv().await.unwrap();
    until_node_is(&node, "True").await;
    assert!(lock.is_held());
    let told = ["Shutdown manager detected shutdown event", "Shutdown manager detected shutdown cancellation"];
    node.api.until_world(|api| told.iter().all(|it| api.events("n1").contains(&format!("Normal Shutdown {it}")))).await;
}

#[tokio::test(start_paused = true)]
async fn tc_249_logind_is_told_to_wait_for_as_long_as_pods_may_take() {
    let (mut node, login, mut locks) = node(5);
    start(&mut node, &login);
    let lock = locks.recv().await.unwrap();
    assert!(lock.is_held());
    assert!(login.conf().ends_with("[Login]\nInhibitDelayMaxSec=30\n"), "{}", login.conf());
}

#[tokio::test(start_paused = true)]
async fn tc_250_less_time_than_wanted_is_better_than_none() {
    let (mut node, login, mut locks) = node(5);
    login.be_deaf();
    start(&mut node, &login);
    let mut lock = locks.recv().await.unwrap();
    login.announce(true).await;
    lock.released().await;
}

#[tokio::test(start_paused = true)]
async fn tc_250_a_lock_outlives_the_bus_until_there_is_another() {
    let (mut node, login, mut locks) = node(60);
    start(&mut node, &login);
    let mut first = locks.recv().await.unwrap();
    login.restart_bus().await;
    let mut second = locks.recv().await.unwrap();
    first.released().await;
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    // What is said while nobody is connected is heard all the same.
    login.restart_bus().await;
    login.announce(true).await;
    second.released().await;
    assert_eq!(node.api.pod("web").unwrap()["status"]["reason"], "Terminated");
    assert!(locks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn tc_248_without_time_for_pods_or_without_a_bus_nothing_happens() {
    let (mut node, login, locks) = node(60);
    node.config.settings.shutdown_groups = Vec::new();
    start(&mut node, &login);
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    assert_eq!((login.guests(), locks.len()), (0, 0));
    node.stop_agent().await;
    node.config.settings.shutdown_groups = ShutdownGroup::pair(Duration::from_secs(30), Duration::ZERO);
    let nowhere = kubelet::Logind { address: Some("unix:path=/nowhere/bus".to_owned()), ..login.place() };
    let agent = node.agent(std::sync::Arc::new(node.runtime.clone()));
    node.run(agent.with_logind(nowhere));
    node.api.create("pods", pod("next", json!({})));
    node.api.until("next", is_ready).await;
    assert_eq!(login.conf(), "");
}
