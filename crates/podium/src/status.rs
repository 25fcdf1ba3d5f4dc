//! `podium status`: does the API server answer, and is the node ready?

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use client::{Client, Scope};
use objects::api::core::v1::{Node, Pod};

use crate::cli::Status;

/// How often `--wait` looks for an API server that does not answer yet. Once
/// it answers, a watch takes over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &Status) -> Result<()> {
    let path = args.kubeconfig.clone().unwrap_or_else(|| args.place.places().kubeconfig());
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        if args.wait {
            tokio::time::timeout(args.timeout, wait_until_ready(&path)).await.map_err(|_| {
                anyhow::anyhow!("the node was not ready within {:?}: is `podium up` running?", args.timeout)
            })?;
        }
        report(&path).await
    })
}

async fn wait_until_ready(path: &Path) {
    let client = loop {
        if path.exists()
            && let Ok(client) = Client::from_kubeconfig(path).await
            && client.list::<Node>(&Scope::everywhere()).await.is_ok()
        {
            break client;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    ready_node(&client).await;
}

/// Waits for a ready node and names it.
pub(crate) async fn ready_node(client: &Client) -> String {
    ready(client, None).await
}

/// The same for a certain node, which is all that a node itself may see (API-686).
pub(crate) async fn ready(client: &Client, name: Option<&str>) -> String {
    let scope = name.map_or_else(Scope::everywhere, |name| Scope::fields(format!("metadata.name={name}")));
    let nodes = client.cache::<Node>(scope);
    let mut changes = nodes.subscribe();
    loop {
        let change = changes.next().await;
        let found = change.object().metadata.name.as_deref().unwrap_or_default();
        if change.object().is_ready() && !is_new(change.object()) {
            return found.to_owned();
        }
    }
}

/// TC-171: pods are not placed on a node before the taint it was born with is gone.
fn is_new(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == objects::placement::conditions::NOT_READY)
}

async fn report(path: &Path) -> Result<()> {
    if !path.exists() {
        bail!("{} does not exist: start podium with `podium up`", path.display());
    }
    let client = Client::from_kubeconfig(path).await?;
    let unreachable = || format!("the API server of {} does not answer: is `podium up` running?", path.display());
    let nodes = client.list::<Node>(&Scope::everywhere()).await.with_context(unreachable)?.items;
    let pods = client.list::<Pod>(&Scope::everywhere()).await?.items;
    println!("API server  ready");
    for node in &nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let here = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(name));
        let state = if node.is_ready() { "ready" } else { "not ready" };
        println!("node        {name}: {state}, {} pods", pods.iter().filter(here).count());
    }
    if !nodes.iter().any(Ready::is_ready) {
        bail!("no node is ready");
    }
    Ok(())
}

trait Ready {
    fn is_ready(&self) -> bool;
}

impl Ready for Node {
    fn is_ready(&self) -> bool {
        let conditions = self.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use apiserver::{ApiServer, Config, Identity};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn api_686_a_node_waits_for_itself_as_itself() {
        let dir = tempfile::tempdir().unwrap();
        let state = store::Embedded::open(&dir.path().join("state.redb"), store::Options::default()).unwrap();
        let ids = ambient::Ids::new(ambient::Rng::seeded(1));
        let api = ApiServer::new(Arc::new(state), Config::default(), ambient::Clock::manual(), ids);
        api.bootstrap().await.unwrap();
        let node = Client::new(api.service(Identity::node("a")));
        let document = json!({
            "metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let made: Node = serde_json::from_value(document).unwrap();
        node.create(&made).await.unwrap();
        // The taint it is born with is for others to take away.
        let admin = Client::new(api.service(Identity::admin()));
        let patch = client::Patch::Merge(json!({"spec": {"taints": null}}));
        admin.patch::<Node>("", "a", &patch).await.unwrap();
        assert_eq!(ready(&node, Some("a")).await, "a");
    }
}
