//! `podium node shutdown`: stops the pods of a node in order before its
//! machine stops (TC-254).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use client::{Cache, Client, Scope};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use objects::api::core::v1::{Node, Pod};

use crate::cli::Shutdown;
use crate::instance;

/// What `podium up` listens to.
pub(crate) const ANNOUNCE: Signal = Signal::SIGUSR1;
pub(crate) const CANCEL: Signal = Signal::SIGUSR2;

/// The node says so as soon as it begins.
const BEGIN_MAX: Duration = Duration::from_secs(10);
const MESSAGE: &str = "node is shutting down";

pub(crate) fn run(args: &Shutdown) -> Result<()> {
    let places = args.place.places();
    let pid = instance::running_pid(&places)
        .with_context(|| format!("nothing runs in {}: start podium with `podium up`", places.data.display()))?;
    let signal = if args.cancel { CANCEL } else { ANNOUNCE };
    kill(Pid::from_raw(pid), signal).context("cannot reach `podium up`")?;
    if args.cancel {
        return Ok(());
    }
    let kubeconfig = places.kubeconfig();
    let waiting = wait(&kubeconfig);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime
        .block_on(async { tokio::time::timeout(args.timeout, waiting).await })
        .with_context(|| format!("pods still run after {:?}; `kubectl get pods -A` shows which", args.timeout))?
}

async fn wait(kubeconfig: &Path) -> Result<()> {
    let client = Client::from_kubeconfig(kubeconfig).await?;
    let nodes = client.cache::<Node>(Scope::everywhere());
    let begun = tokio::time::timeout(BEGIN_MAX, until(&nodes, |nodes| nodes.iter().any(|node| is_ending(node)))).await;
    if begun.is_err() {
        bail!("the node does not shut down: set shutdownGracePeriod in a KubeletConfiguration (docs/configuration.md)");
    }
    let pods = client.cache::<Pod>(Scope::everywhere());
    until(&pods, |pods| pods.iter().all(|pod| has_ended(pod))).await;
    println!("every pod has stopped");
    Ok(())
}

/// Waits until all objects together look so.
async fn until<K: client::Kind>(cache: &Cache<K>, wanted: impl Fn(&[std::sync::Arc<K>]) -> bool) {
    cache.synced().await;
    let mut changes = cache.subscribe();
    while !wanted(&cache.snapshot()) {
        changes.next().await;
    }
}

fn is_ending(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|it| it.type_ == "Ready" && it.message.as_deref().is_some_and(|text| text.contains(MESSAGE)))
}

/// Bound to no node: nothing of it runs.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref().is_some_and(|name| !name.is_empty()));
    !is_bound || matches!(phase, Some("Succeeded" | "Failed"))
}
