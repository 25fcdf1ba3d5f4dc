//! Pods as a client sees them: created and deleted over HTTPS, their readiness
//! and end timed on a watch.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::sync::mpsc;

/// Longer than anything measured here may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the watch says about a pod, in the order in which it says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sight {
    Ready,
    Gone,
}

struct Seen {
    name: String,
    sight: Sight,
    at: Instant,
}

pub(super) struct Pods {
    api: Api<Pod>,
    seen: mpsc::UnboundedReceiver<Seen>,
    watching: tokio::task::JoinHandle<()>,
}

pub(super) async fn connect(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).context("the kubeconfig cannot be read")?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.read_timeout = None;
    Ok(Client::try_from(config)?)
}

pub(super) async fn has_ready_node(client: &Client) -> Result<bool> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let is_ready = |node: Node| {
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    Ok(nodes.items.into_iter().any(is_ready))
}

impl Pods {
    pub(super) async fn watch(client: Client) -> Result<Self> {
        let api = Api::<Pod>::namespaced(client, "default");
        let list = api.list(&ListParams::default()).await?;
        let (tell, seen) = mpsc::unbounded_channel();
        let version = list.metadata.resource_version.unwrap_or_default();
        let watching = tokio::spawn(follow(api.clone(), version, tell));
        Ok(Self { api, seen, watching })
    }

    /// Time from the first request until the watch has shown all pods ready.
    pub(super) async fn create(&mut self, names: &[String]) -> Result<Duration> {
        let start = Instant::now();
        let pods: Vec<Pod> = names.iter().map(|name| sleeper(name)).collect();
        let params = PostParams::default();
        let requests = pods.iter().map(|pod| self.api.create(&params, pod));
        futures::future::try_join_all(requests).await.context("a pod was refused")?;
        self.all(names, &Sight::Ready, start).await
    }

    /// Time from the first request until the watch has shown all pods gone.
    pub(super) async fn delete(&mut self, names: &[String]) -> Result<Duration> {
        let start = Instant::now();
        let params = DeleteParams::default();
        let requests = names.iter().map(|name| self.api.delete(name, &params));
        futures::future::try_join_all(requests).await.context("a deletion was refused")?;
        self.all(names, &Sight::Gone, start).await
    }

    async fn all(&mut self, names: &[String], wanted: &Sight, start: Instant) -> Result<Duration> {
        let mut missing: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut end = start;
        while !missing.is_empty() {
            let next = tokio::time::timeout(PATIENCE, self.seen.recv()).await;
            let seen = next
                .with_context(|| format!("pods are still not {wanted:?}: {missing:?}"))?
                .context("the watch ended")?;
            if seen.sight == *wanted && missing.remove(seen.name.as_str()) {
                end = seen.at;
            }
        }
        Ok(end - start)
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Watches on from where the server ended the stream, until nobody listens.
async fn follow(api: Api<Pod>, mut version: String, tell: mpsc::UnboundedSender<Seen>) {
    while !tell.is_closed() {
        let Ok(stream) = api.watch(&WatchParams::default(), &version).await else { return };
        let mut stream = stream.into_stream().boxed();
        while let Ok(Some(event)) = stream.try_next().await {
            let at = Instant::now();
            let (pod, sight) = match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    let sight = is_ready(&pod).then_some(Sight::Ready);
                    (pod, sight)
                }
                WatchEvent::Deleted(pod) => (pod, Some(Sight::Gone)),
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(_) => return,
            };
            version = pod.metadata.resource_version.unwrap_or(version);
            let name = pod.metadata.name.unwrap_or_default();
            if sight.is_some_and(|sight| tell.send(Seen { name, sight, at }).is_err()) {
                return;
            }
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Sleeps, and exits at once when told to: what is timed is the system.
fn sleeper(name: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": "busybox:1.36",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
            }],
        },
    });
    serde_json::from_value(pod).expect("the pod is written right above")
}
