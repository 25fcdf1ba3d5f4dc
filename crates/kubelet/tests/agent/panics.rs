//! A broken assumption costs one pod, and not for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cri::fake::Fake;
use cri::{
    Container, ContainerConfig, ContainerId, CriError, ExecRequest, ExecResult, Image, RegistryAuth, Runtime,
    RuntimeEvent, RuntimeVersion, Sandbox, SandboxConfig, SandboxId, Session, Streaming,
};
use futures::stream::BoxStream;
use serde_json::json;

use crate::serving::{API_SERVER, Served, websocket};
use crate::support::{Node, is_ready, pod};

/// Panics when asked for the containers of one pod, so many times.
struct Treacherous {
    inner: Fake,
    uid: &'static str,
    left: AtomicUsize,
}

#[async_trait]
impl Runtime for Treacherous {
    async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<Container>, CriError> {
        let has_turn = |left: usize| left.checked_sub(1);
        let is_turn = || self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, has_turn).is_ok();
        assert!(!(pod_uid == Some(self.uid) && is_turn()), "a broken assumption");
        self.inner.containers(pod_uid).await
    }
    async fn version(&self) -> Result<RuntimeVersion, CriError> {
        self.inner.version().await
    }
    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId, CriError> {
        self.inner.run_sandbox(config).await
    }
    async fn stop_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        self.inner.stop_sandbox(id).await
    }
    async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        self.inner.remove_sandbox(id).await
    }
    async fn sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<Sandbox>, CriError> {
        self.inner.sandboxes(pod_uid).await
    }
    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId, CriError> {
        self.inner.create_container(sandbox, config).await
    }
    async fn start_container(&self, id: &ContainerId) -> Result<(), CriError> {
        self.inner.start_container(id).await
    }
    async fn stop_container(&self, id: &ContainerId, timeout: Duration) -> Result<(), CriError> {
        self.inner.stop_container(id, timeout).await
    }
    async fn remove_container(&self, id: &ContainerId) -> Result<(), CriError> {
        self.inner.remove_container(id).await
    }
    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        self.inner.events()
    }
    async fn image(&self, reference: &str) -> Result<Option<Image>, CriError> {
        self.inner.image(reference).await
    }
    async fn images(&self) -> Result<Vec<Image>, CriError> {
        self.inner.images().await
    }
    async fn pull_image(&self, reference: &str, auth: Option<RegistryAuth>) -> Result<Image, CriError> {
        self.inner.pull_image(reference, auth).await
    }
    async fn remove_image(&self, reference: &str) -> Result<(), CriError> {
        self.inner.remove_image(reference).await
    }
    async fn exec_sync(&self, _: &ContainerId, _: Vec<String>, _: Option<Duration>) -> Result<ExecResult, CriError> {
        panic!("a command nobody can wait for");
    }
    async fn exec(&self, _: &ContainerId, _: ExecRequest) -> Result<Streaming<Session>, CriError> {
        let exit = Box::pin(async { panic!("a stream that breaks") });
        Ok(Streaming::Here(Session { stdin: None, stdout: None, stderr: None, resize: None, exit }))
    }
}

fn node(uid: &'static str, panics: usize) -> Node {
    let mut node = Node::new();
    let runtime = Treacherous { inner: node.runtime.clone(), uid, left: AtomicUsize::new(panics) };
    let agent = node.agent(Arc::new(runtime));
    node.run(agent);
    node
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_is_rebuilt() {
    let node = node("uid-web", 2);
    node.api.create("pods", pod("web", json!({})));
    node.api.until("web", is_ready).await;
}

#[tokio::test(start_paused = true)]
async fn three_panics_park_the_pod_with_an_event_until_its_deletion() {
    let node = node("uid-web", 3);
    node.api.create("pods", pod("web", json!({})));
    node.api.create("pods", pod("other", json!({})));
    node.api.until("other", is_ready).await;
    node.api.until_world(|api| !api.events("web").is_empty()).await;
    let events = node.api.events("web");
    assert!(events[0].starts_with("Warning FailedSync "), "{events:?}");
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(node.api.pod("web").unwrap()["status"]["phase"], "Pending", "it rests");
    node.api.delete_pod("web", 30);
    node.api.until("web", |pod| pod.is_none()).await;
}

#[tokio::test]
async fn requests_and_streams_that_panic_are_answered_and_counted() {
    let node = Node::new();
    let runtime = Treacherous { inner: node.runtime.clone(), uid: "none", left: AtomicUsize::new(0) };
    let served = Served::with(node, Arc::new(runtime)).await;
    served.node.api.create("pods", pod("web", json!({})));
    served.node.api.until("web", is_ready).await;
    let run = http::Request::post("/run/default/web/app?cmd=ls");
    assert_eq!(served.ask(API_SERVER, run).await.status(), 500);
    let mut response = served.ask(API_SERVER, websocket("/exec/default/web/app?output=1&command=ls")).await;
    assert_eq!(response.status(), 101);
    let mut stream = hyper_util::rt::TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    // The connection is simply over.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut Vec::new()).await;
    let (_, metrics) = served.text("/metrics").await;
    for line in [
        "podium_task_panics_total{task=\"connection\"} 0\n",
        "podium_task_panics_total{task=\"request\"} 1\n",
        "podium_task_panics_total{task=\"stream\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}
