//! What the agent says about its node, and what others say about it.

use std::time::Duration;

use cri::CriError;
use cri::fake::Verb;
use serde_json::{Value, json};

use crate::support::{Node, condition};

fn shown(node: &Node) -> Value {
    node.api.get("nodes", "", "n1").unwrap()
}

fn ready(node: &Node) -> Value {
    shown(node)["status"]["conditions"].as_array().unwrap().last().unwrap().clone()
}

/// Reasons of the Events about the node.
fn told(node: &Node) -> Vec<String> {
    let about_node = |event: &&Value| event["involvedObject"]["kind"] == "Node";
    let reason = |event: &Value| event["reason"].as_str().unwrap().to_owned();
    node.api.list("events").iter().filter(about_node).map(reason).collect()
}

#[tokio::test(start_paused = true)]
async fn tc_198_a_node_that_was_called_lost_says_that_it_is_not() {
    let node = Node::started();
    node.api.until_world(|api| api.get("nodes", "", "n1").is_some()).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    node.api.change("nodes", "n1", |node| {
        for condition in node["status"]["conditions"].as_array_mut().unwrap() {
            condition["status"] = json!("Unknown");
            condition["reason"] = json!("NodeStatusUnknown");
        }
    });
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(condition(&shown(&node), "Ready"), "True");
    assert_eq!(condition(&shown(&node), "MemoryPressure"), "False");
    assert_eq!(ready(&node)["reason"], "KubeletReady");
}

#[tokio::test(start_paused = true)]
async fn tc_203_cordoning_is_told() {
    let node = Node::started();
    node.api.until_world(|api| api.get("nodes", "", "n1").is_some()).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    node.api.change("nodes", "n1", |node| node["spec"]["unschedulable"] = json!(true));
    tokio::time::sleep(Duration::from_secs(11)).await;
    node.api.change("nodes", "n1", |node| node["spec"]["unschedulable"] = Value::Null);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let told = told(&node);
    let place = |reason: &str| told.iter().position(|told| told == reason);
    assert!(place("NodeNotSchedulable") < place("NodeSchedulable"), "{told:?}");
    assert!(place("NodeNotSchedulable").is_some(), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn tc_169_a_runtime_that_does_not_answer_makes_the_node_not_ready() {
    let node = Node::started();
    node.api.until_world(|api| api.get("nodes", "", "n1").is_some()).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let good = ready(&node);
    assert_eq!(
        (&good["status"], &good["reason"], &good["message"]),
        (&json!("True"), &json!("KubeletReady"), &json!("kubelet is posting ready status"))
    );
    node.runtime.fail_next(Verb::Version, CriError::Failed("gone".into()));
    node.api.until_world(|api| condition(&api.get("nodes", "", "n1").unwrap(), "Ready") == "False").await;
    let bad = ready(&node);
    assert_eq!(bad["reason"], "KubeletNotReady");
    assert_eq!(bad["message"], "container runtime is down: gone");
    assert_ne!(bad["lastTransitionTime"], good["lastTransitionTime"]);
    node.api.until_world(|api| condition(&api.get("nodes", "", "n1").unwrap(), "Ready") == "True").await;
    node.api.until_world(|_| told(&node).ends_with(&["NodeNotReady".to_owned(), "NodeReady".to_owned()])).await;
}

#[tokio::test(start_paused = true)]
async fn tc_170_a_node_is_registered_late_reused_and_not_made_again() {
    let mut node = Node::new();
    node.api.set_away(true);
    node.start_agent();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(node.api.get("nodes", "", "n1").is_none());
    node.api.set_away(false);
    node.api.until_world(|api| api.get("nodes", "", "n1").is_some()).await;
    node.stop_agent().await;
    node.api.change("nodes", "n1", |node| {
        node["metadata"]["labels"] = json!({"mine": "stays"});
        node["status"]["capacity"] = json!({"cpu": "77"});
    });
    node.start_agent();
    node.api.until_world(|api| api.get("nodes", "", "n1").unwrap()["status"]["capacity"]["cpu"] == "2").await;
    let labels = shown(&node)["metadata"]["labels"].clone();
    assert_eq!((&labels["mine"], &labels["kubernetes.io/os"]), (&json!("stays"), &json!("linux")));
    let made = |node: &Node| node.api.requests().iter().filter(|it| *it == "POST /api/v1/nodes").count();
    let before = made(&node);
    node.api.delete_node("n1");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(made(&node), before, "only a restart registers anew");
    assert!(node.api.get("nodes", "", "n1").is_none());
    node.stop_agent().await;
    node.start_agent();
    node.api.until_world(|api| api.get("nodes", "", "n1").is_some()).await;
}

/// A machine whose kernel log is a pipe.
struct Piped(crate::support::Dials, std::path::PathBuf);

impl kubelet::Gauge for Piped {
    fn read(
        &self,
        nodefs: &std::path::Path,
        imagefs: Option<&std::path::Path>,
    ) -> std::collections::BTreeMap<lifecycle::node::Signal, lifecycle::node::Reading> {
        self.0.read(nodefs, imagefs)
    }

    fn kernel_log(&self) -> Option<std::path::PathBuf> {
        Some(self.1.clone())
    }
}

#[tokio::test]
async fn a_victim_of_the_whole_machine_is_told_by_the_node() {
    use std::io::Write as _;
    let mut node = Node::new();
    let path = node.root.path().join("kmsg");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    // Open at both ends, so that it neither waits nor ends.
    let mut kernel = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let agent = node.agent(std::sync::Arc::new(node.runtime.clone()));
    node.run(agent.with_gauge(std::sync::Arc::new(Piped(node.machine.clone(), path))));
    kernel.write_all(b"6,1,2,-;Memory cgroup out of memory: Killed process 1 (app) total-vm:1kB\n").unwrap();
    kernel.write_all(b"3,2,3,-;Out of memory: Killed process 42 (stress) total-vm:1kB\n").unwrap();
    node.api.until_world(|api| api.events("n1").iter().any(|event| event.contains("SystemOOM"))).await;
    let told: Vec<String> = node.api.events("n1").into_iter().filter(|event| event.contains("OOM")).collect();
    assert_eq!(told, ["Warning SystemOOM System OOM encountered, victim process: stress, pid: 42"]);
}
