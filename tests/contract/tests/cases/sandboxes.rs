//! Sandboxes.

use std::collections::BTreeMap;

use cri::{ContainerState, CriError, NamespaceMode, SandboxState};
use futures::StreamExt;

use crate::subject::{LIMIT, Program, Subject};

pub(crate) async fn the_runtime_says_who_it_is_and_that_it_is_ready(subject: &Subject) {
    let version = subject.runtime.version().await.unwrap();
    assert!(!version.name.is_empty() && !version.version.is_empty(), "{version:?}");
    let status = subject.runtime.status().await.unwrap();
    assert_eq!((status.runtime, status.network), (Ok(()), Ok(())));
}

pub(crate) async fn a_sandbox_is_ready_until_it_is_stopped_and_gone_when_removed(subject: &Subject) {
    let runtime = &subject.runtime;
    let mut config = subject.sandbox_config("a");
    config.meta.attempt = 3;
    config.annotations = BTreeMap::from([("note".into(), "kept".into())]);
    let id = runtime.run_sandbox(config.clone()).await.unwrap();
    let [sandbox] = runtime.sandboxes(None).await.unwrap().try_into().unwrap();
    assert_eq!((&sandbox.id, &sandbox.meta, sandbox.state), (&id, &config.meta, SandboxState::Ready));
    assert_eq!((&sandbox.labels, &sandbox.annotations), (&config.labels, &config.annotations));
    assert_eq!((sandbox.network, sandbox.ips.len()), (NamespaceMode::Pod, 1));
    runtime.stop_sandbox(&id).await.unwrap();
    let [stopped] = runtime.sandboxes(None).await.unwrap().try_into().unwrap();
    assert_eq!((&stopped.meta, stopped.state), (&config.meta, SandboxState::NotReady));
    assert_eq!(stopped.created_at, sandbox.created_at);
    let late = runtime.create_container(&id, subject.config("late", &Program::exits(0))).await;
    assert!(matches!(late, Err(CriError::Failed(_) | CriError::Invalid(_))), "{late:?}");
    runtime.remove_sandbox(&id).await.unwrap();
    assert_eq!(runtime.sandboxes(None).await.unwrap(), []);
}

pub(crate) async fn sandboxes_are_listed_by_pod_newest_first(subject: &Subject) {
    let first = subject.sandbox("a").await;
    let other = subject.sandbox("b").await;
    subject.runtime.stop_sandbox(&first).await.unwrap();
    let mut again = subject.sandbox_config("a");
    again.meta.attempt = 1;
    let second = subject.runtime.run_sandbox(again).await.unwrap();
    let ids = |list: Vec<cri::Sandbox>| list.into_iter().map(|sandbox| sandbox.id).collect::<Vec<_>>();
    assert_eq!(ids(subject.runtime.sandboxes(Some("a")).await.unwrap()), [second.clone(), first.clone()]);
    assert_eq!(ids(subject.runtime.sandboxes(None).await.unwrap()), [second, other, first]);
    assert_eq!(subject.runtime.sandboxes(Some("c")).await.unwrap(), []);
}

pub(crate) async fn the_host_network_has_no_address_of_its_own(subject: &Subject) {
    let mut config = subject.sandbox_config("a");
    config.network = NamespaceMode::Node;
    config.hostname = String::new();
    subject.runtime.run_sandbox(config).await.unwrap();
    let [sandbox] = subject.runtime.sandboxes(None).await.unwrap().try_into().unwrap();
    assert_eq!((sandbox.network, sandbox.ips.as_slice()), (NamespaceMode::Node, [].as_slice()));
}

pub(crate) async fn a_way_to_run_pods_that_nobody_configured_is_refused(subject: &Subject) {
    let mut config = subject.sandbox_config("a");
    config.runtime_handler = "magic".into();
    let refused = subject.runtime.run_sandbox(config).await.unwrap_err().to_string();
    assert!(refused.contains("no runtime for \"magic\" is configured"), "{refused}");
    assert_eq!(subject.runtime.sandboxes(None).await.unwrap(), []);
}

pub(crate) async fn tc_053_what_is_unknown_is_stopped_and_removed(subject: &Subject) {
    let runtime = &subject.runtime;
    let (sandbox, container) = ("0".repeat(64), "1".repeat(64));
    runtime.stop_sandbox(&sandbox.as_str().into()).await.unwrap();
    runtime.remove_sandbox(&sandbox.as_str().into()).await.unwrap();
    runtime.stop_container(&container.as_str().into(), LIMIT).await.unwrap();
    runtime.remove_container(&container.as_str().into()).await.unwrap();
}

pub(crate) async fn stopping_a_sandbox_ends_its_containers(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let running = subject.start(&sandbox, "running", &Program::stubborn()).await;
    let ended = subject.start(&sandbox, "ended", &Program::exits(3)).await;
    subject.exit(&ended).await;
    subject.runtime.stop_sandbox(&sandbox).await.unwrap();
    subject.runtime.stop_sandbox(&sandbox).await.unwrap();
    let killed = subject.exit(&running).await;
    assert_eq!((killed.state, killed.exit_code), (ContainerState::Exited, 137));
    assert_eq!(subject.container(&ended).await.exit_code, 3);
}

pub(crate) async fn removing_a_sandbox_removes_its_containers(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let kept = subject.sandbox("b").await;
    subject.start(&sandbox, "running", &Program::stubborn()).await;
    subject.create(&sandbox, "created", &Program::exits(0)).await;
    let other = subject.start(&kept, "other", &Program::stubborn()).await;
    subject.runtime.remove_sandbox(&sandbox).await.unwrap();
    subject.runtime.remove_sandbox(&sandbox).await.unwrap();
    let left = subject.runtime.containers(None).await.unwrap();
    assert_eq!(left.into_iter().map(|container| container.id).collect::<Vec<_>>(), [other]);
}

pub(crate) async fn changes_wake_the_agent(subject: &Subject) {
    let mut events = subject.runtime.events();
    let mut woken = async |uid: &str| {
        let wait = async { while events.next().await.expect("the stream does not end").pod_uid != uid {} };
        tokio::time::timeout(LIMIT, wait).await.expect("nobody woke the agent");
    };
    // One that is told before anything happens, so that the first look is over.
    let sandbox = subject.sandbox("a").await;
    woken("a").await;
    let id = subject.create(&sandbox, "c", &Program::obeys()).await;
    woken("a").await;
    subject.runtime.start_container(&id).await.unwrap();
    woken("a").await;
    subject.runtime.stop_sandbox(&sandbox).await.unwrap();
    woken("a").await;
    subject.sandbox("b").await;
    woken("b").await;
}
