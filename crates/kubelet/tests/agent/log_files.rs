//! Logs of a runtime that leaves them to the agent.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cri::fake::Verb;
use cri::{CriError, Runtime as _};
use serde_json::json;

use crate::support::{Node, is_ready, pod};

/// A pod that has written this much; its log.
async fn talker(node: &Node, bytes: usize) -> PathBuf {
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
    let log = node.runtime.containers(None).await.unwrap().remove(0).log_path;
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    fs::write(&log, vec![b'x'; bytes]).unwrap();
    log
}

fn reopened(node: &Node) -> usize {
    node.runtime.calls().iter().filter(|call| *call == "reopen_log app/0").count()
}

fn older(log: &std::path::Path) -> Vec<String> {
    let names = fs::read_dir(log.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("0.log.")).collect()
}

#[tokio::test(start_paused = true)]
async fn lc_088_a_log_that_is_too_long_is_renamed_and_its_writer_told() {
    let node = Node::started();
    let log = talker(&node, 10 << 20).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((reopened(&node), older(&log)), (0, vec![]), "as long as it may be");
    fs::write(&log, vec![b'x'; (10 << 20) + 1]).unwrap();
    node.api.until_world(|_| reopened(&node) == 1).await;
    assert_eq!(older(&log).len(), 1);
    assert!(!log.exists(), "the writer has not made a new one here");
}

#[tokio::test(start_paused = true)]
async fn a_log_whose_writer_cannot_be_told_keeps_its_name() {
    let node = Node::started();
    node.runtime.fail_next(Verb::ReopenLog, CriError::Failed("connection refused".into()));
    let log = talker(&node, (10 << 20) + 1).await;
    node.api.until_world(|_| reopened(&node) == 1 && log.exists()).await;
    assert_eq!(older(&log), Vec::<String>::new());
    // And is tried again.
    node.api.until_world(|_| reopened(&node) == 2).await;
    assert_eq!(older(&log).len(), 1);
}
