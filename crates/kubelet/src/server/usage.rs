//! What pods and containers use, with the names of their pods.

use std::collections::{BTreeMap, BTreeSet};

use cri::{Container, ContainerState, ContainerStats, CriError, PodMeta, Sandbox, SandboxState, SandboxStats};

use crate::ctx::Ctx;

/// One look at the runtime.
pub(super) struct Usages {
    pub(super) sandboxes: Vec<Sandbox>,
    pub(super) containers: Vec<Container>,
    pods: Vec<SandboxStats>,
    of_containers: Vec<ContainerStats>,
}

impl Usages {
    pub(super) async fn take(ctx: &Ctx) -> Result<Self, CriError> {
        let runtime = ctx.runtime.as_ref();
        let (sandboxes, containers, pods, of_containers) = tokio::try_join!(
            runtime.sandboxes(None),
            runtime.containers(None),
            runtime.sandbox_stats(None),
            runtime.container_stats(None),
        )?;
        let usages = Self { sandboxes, containers, pods, of_containers };
        let uids: BTreeSet<String> = usages.sandboxes.iter().map(|sandbox| sandbox.meta.uid.clone()).collect();
        let counted = usages.of_containers.iter().map(|stats| stats.id.to_string());
        let counted = counted.chain(uids.iter().cloned()).chain([NODE.to_owned()]).collect();
        ctx.meter.forget(&uids, &counted);
        Ok(usages)
    }

    /// Pods that run, by namespace and name.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&Sandbox, &SandboxStats)> {
        let ready = ready(&self.sandboxes);
        let with = ready.into_values().filter_map(|sandbox| {
            let stats = self.pods.iter().find(|stats| stats.pod_uid == sandbox.meta.uid)?;
            Some((sandbox, stats))
        });
        with.collect::<Vec<_>>().into_iter()
    }

    /// Containers that run, by namespace, pod and name.
    pub(super) fn containers(&self) -> impl Iterator<Item = Used<'_>> {
        let ready = ready(&self.sandboxes);
        let mut all: Vec<Used<'_>> = Vec::new();
        for stats in &self.of_containers {
            let container = self.containers.iter().find(|container| container.id == stats.id);
            let sandbox = ready.values().find(|sandbox| sandbox.meta.uid == stats.pod_uid);
            if let (Some(container), Some(sandbox)) = (container, sandbox)
                && container.state == ContainerState::Running
            {
                all.push(Used { pod: &sandbox.meta, container, stats });
            }
        }
        all.sort_by_key(|used| (&used.pod.namespace, &used.pod.name, &used.container.name));
        all.into_iter()
    }
}

/// The name under which the node's own rate is remembered; no UID looks like it.
pub(super) const NODE: &str = "/";

pub(super) struct Used<'a> {
    pub(super) pod: &'a PodMeta,
    pub(super) container: &'a Container,
    pub(super) stats: &'a ContainerStats,
}

fn ready(sandboxes: &[Sandbox]) -> BTreeMap<(&str, &str), &Sandbox> {
    let ready = sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready);
    ready.map(|sandbox| ((sandbox.meta.namespace.as_str(), sandbox.meta.name.as_str()), sandbox)).collect()
}
