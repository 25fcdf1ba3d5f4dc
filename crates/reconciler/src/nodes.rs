//! Drives `controllers::nodes`: nodes, leases and pods in, conditions, taints
//! and Events out.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ambient::Clock;
use client::{About, ApiError, Cache, Client, Patch, Recorder, Scope, Severity};
use controllers::nodes::{MONITOR_PERIOD, Nodes, Settings, Snapshot, Write};
use objects::api::coordination::v1::Lease;
use objects::api::core::v1::{Node, Pod};
use objects::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::disruption::pod_patch;

const LEASES: &str = "kube-node-lease";

struct Driver {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    nodes: Arc<Cache<Node>>,
    leases: Arc<Cache<Lease>>,
    pods: Arc<Cache<Pod>>,
}

/// Never returns. Everything is known before the first look, so that nobody is
/// called lost who was merely not seen yet.
pub(crate) async fn run(client: Client, clock: Clock, settings: Settings) -> Infallible {
    let driver = Driver {
        recorder: Recorder::start(client.clone(), "node-controller", ""),
        nodes: client.cache(Scope::everywhere()),
        leases: client.cache(Scope { namespace: LEASES.to_owned(), ..Scope::default() }),
        pods: client.cache(Scope::everywhere()),
        client,
        clock,
    };
    driver.nodes.synced().await;
    driver.leases.synced().await;
    driver.pods.synced().await;
    let mut changes = driver.nodes.subscribe();
    let mut nodes = Nodes::new(settings);
    loop {
        while changes.try_next().is_some() {}
        for write in driver.examine(&mut nodes) {
            if let Err(error) = driver.perform(&write).await {
                tracing::debug!(write = %Brief(&write), %error, "not written");
                nodes.failed(&write);
            }
        }
        let now = driver.clock.now().mono;
        let rest = nodes.wake_at().map_or(MONITOR_PERIOD, |at| at.since(now).min(MONITOR_PERIOD));
        tokio::select! {
            biased;
            _ = changes.next() => {}
            () = tokio::time::sleep(rest.max(TICK)) => {}
        }
    }
}

/// TC-177: turns are tried this often.
const TICK: Duration = Duration::from_millis(100);

impl Driver {
    fn examine(&self, nodes: &mut Nodes) -> Vec<Write> {
        let (seen, leases, pods) = (self.nodes.snapshot(), self.leases.snapshot(), self.pods.snapshot());
        nodes.examine(&Snapshot { nodes: &seen, leases: &leases, pods: &pods }, self.clock.now())
    }

    async fn perform(&self, write: &Write) -> Result<(), ApiError> {
        tracing::debug!(write = %Brief(write), "acting");
        let now = self.clock.now();
        match write {
            Write::Tell { node, reason, message } => {
                self.recorder.record(About::object(&**node), Severity::Normal, reason, message, now);
                Ok(())
            }
            Write::ShowConditions { node, conditions } => {
                let patch = json!({"metadata": as_seen(node), "status": {"conditions": conditions}});
                self.client.patch_status::<Node>("", name(node), &Patch::Strategic(patch)).await.map(drop)
            }
            Write::SetTaints { node, taints } => {
                let patch = json!({"metadata": as_seen(node), "spec": {"taints": taints}});
                self.client.patch::<Node>("", name(node), &Patch::Merge(patch)).await.map(drop)
            }
            Write::UnreadyPod { pod } => {
                let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(now.wall)});
                self.change_pod(pod, json!({"conditions": [condition]})).await?;
                let about = About::object(&**pod);
                self.recorder.record(about, Severity::Warning, "NodeNotReady", "Node is not ready", now);
                Ok(())
            }
            Write::FailPod { pod, message } => {
                self.change_pod(pod, json!({"phase": "Failed", "reason": "NodeLost", "message": message})).await
            }
        }
    }

    /// A pod that is gone needs nothing any more.
    async fn change_pod(&self, pod: &Pod, status: serde_json::Value) -> Result<(), ApiError> {
        match pod_patch(&self.client, pod, status).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// For the log: what is written to whom, without the objects themselves.
struct Brief<'a>(&'a Write);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Write::Tell { node, reason, .. } => write!(out, "Event {reason} of node {}", name(node)),
            Write::ShowConditions { node, conditions } => {
                write!(out, "conditions of node {}:", name(node))?;
                conditions.iter().try_for_each(|it| write!(out, " {}={}", it.type_, it.status))
            }
            Write::SetTaints { node, taints } => {
                write!(out, "taints of node {}:", name(node))?;
                taints.iter().try_for_each(|it| write!(out, " {}:{}", it.key, it.effect))
            }
            Write::UnreadyPod { pod } => write!(out, "pod {} is not ready", path(pod)),
            Write::FailPod { pod, .. } => write!(out, "pod {} is lost", path(pod)),
        }
    }
}

fn path(pod: &Pod) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", part(&pod.metadata.namespace), part(&pod.metadata.name))
}

/// Only the very object that was seen.
fn as_seen(node: &Node) -> serde_json::Value {
    json!({"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version})
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use objects::api::core::v1::{NodeCondition, Taint};

    #[test]
    fn the_log_names_who_is_written_and_nothing_more() {
        let mut node = Node::default();
        node.metadata.name = Some("n".into());
        let node = Arc::new(node);
        let mut pod = Pod::default();
        (pod.metadata.namespace, pod.metadata.name) = (Some("default".into()), Some("web".into()));
        let pod = Arc::new(pod);
        let ready = NodeCondition { type_: "Ready".into(), status: "Unknown".into(), ..NodeCondition::default() };
        let taint = Taint { key: "k".into(), effect: "NoExecute".into(), ..Taint::default() };
        let brief = |write: &Write| Brief(write).to_string();
        let told = Write::Tell { node: node.clone(), reason: "RegisteredNode", message: "long".into() };
        assert_eq!(brief(&told), "Event RegisteredNode of node n");
        let shown = Write::ShowConditions { node: node.clone(), conditions: vec![ready] };
        assert_eq!(brief(&shown), "conditions of node n: Ready=Unknown");
        assert_eq!(brief(&Write::SetTaints { node, taints: vec![taint] }), "taints of node n: k:NoExecute");
        assert_eq!(brief(&Write::UnreadyPod { pod: pod.clone() }), "pod default/web is not ready");
        assert_eq!(brief(&Write::FailPod { pod, message: "long".into() }), "pod default/web is lost");
    }
}
