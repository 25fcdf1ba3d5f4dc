//! What the node and its pods use (TC-230, TC-242).
//!
//! Decides: nothing; it counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cri::{ContainerStats, CriError, DiskUsage, SandboxStats};
use lifecycle::node::{ContainerUsage, Measurement, PodUsage, Reading, Signal};
use objects::api::core::v1::{Pod, PodSpec};

use crate::config::Config;
use crate::ctx::Ctx;

/// How much of the disk is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Of pods that have a limit to exceed.
    Limited,
    /// Of every pod: somebody may have to go.
    Whole,
}

/// Volumes that are made of the node's own disk.
const LOCAL_VOLUMES: [&str; 3] = ["kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~downward-api"];
/// Files the agent makes and containers may write: `/etc/hosts`, and what they
/// leave as their last words (CVE-2020-8557).
const OWN_FILES: [&str; 2] = ["etc-hosts", "containers"];
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

pub(crate) async fn measure(ctx: &Arc<Ctx>, pods: Vec<Arc<Pod>>, depth: Depth) -> Result<Measurement, CriError> {
    let sandboxes = offered(ctx.runtime.sandbox_stats(None).await)?;
    let containers = offered(ctx.runtime.container_stats(None).await)?;
    let imagefs = ctx.runtime.image_fs().await.ok().map(|fs| fs.mount_point);
    let runs = |pod: &Pod| sandboxes.iter().any(|stats| Some(&stats.pod_uid) == pod.metadata.uid.as_ref());
    let walks = pods.iter().filter(|pod| runs(pod) && is_walked(pod, depth)).filter_map(|pod| {
        let (ctx, of) = (ctx.clone(), pod.clone());
        Some((pod.metadata.uid.clone()?, move || Walked::of(&ctx.config, &of)))
    });
    // A pod whose files take long to count holds up neither the others nor the signals.
    let walked = ctx.walks.figures(walks.collect()).await;
    let ctx = ctx.clone();
    let look = move || {
        let mut signals = ctx.gauge.read(&ctx.config.root, imagefs.as_deref());
        signals.insert(Signal::AllocatableMemoryAvailable, left_for_pods(&ctx.config, &sandboxes));
        let books = Books { ctx: &ctx, sandboxes, containers, walked };
        let pods = pods.iter().filter_map(|pod| Some((pod.metadata.uid.clone()?, books.usage(pod)?))).collect();
        Measurement { signals, pods }
    };
    tokio::task::spawn_blocking(look).await.map_err(|error| CriError::Failed(error.to_string()))
}

/// A runtime that does not count leaves pods unknown.
fn offered<T>(stats: Result<Vec<T>, CriError>) -> Result<Vec<T>, CriError> {
    match stats {
        Err(CriError::Unsupported(_)) => Ok(Vec::new()),
        stats => stats,
    }
}

/// TC-230: of what all pods together may use, which is more than the Node's
/// allocatable by what a hard threshold keeps free.
fn left_for_pods(config: &Config, sandboxes: &[SandboxStats]) -> Reading {
    let total = signed(config.capacity.memory_bytes);
    let kept = config.settings.thresholds.iter().find(|it| it.signal == Signal::MemoryAvailable && it.grace.is_none());
    let capacity = signed(config.allocatable.memory_bytes) + kept.map_or(0, |threshold| threshold.value.of(total));
    let used: u64 = sandboxes.iter().map(|stats| stats.usage.memory_working_set_bytes).sum();
    Reading { available: capacity.saturating_sub(signed(used)), capacity }
}

struct Books<'a> {
    ctx: &'a Ctx,
    sandboxes: Vec<SandboxStats>,
    containers: Vec<ContainerStats>,
    /// By UID.
    walked: BTreeMap<String, Walked>,
}

impl Books<'_> {
    /// `None`: nothing of the pod runs.
    fn usage(&self, pod: &Pod) -> Option<PodUsage> {
        let uid = pod.metadata.uid.as_deref()?;
        let sandbox = self.sandboxes.iter().find(|stats| stats.pod_uid == uid)?;
        let walked = self.walked.get(uid).cloned().unwrap_or_default();
        let mut usage = PodUsage {
            memory_bytes: signed(sandbox.usage.memory_working_set_bytes),
            processes: signed(sandbox.usage.processes),
            // LC-165: what it lives from is not there any more.
            is_storage_lost: std::fs::read_dir(self.ctx.config.pod_dir(uid)).is_err(),
            empty_dirs: walked.empty_dirs,
            ..PodUsage::default()
        };
        let mut total = sandbox.disk;
        add(&mut total, walked.own);
        walked.logs.values().for_each(|used| add(&mut total, *used));
        for stats in self.containers.iter().filter(|stats| stats.pod_uid == uid) {
            let mut disk = stats.writable_layer;
            add(&mut total, disk);
            add(&mut disk, walked.logs.get(&stats.name).copied().unwrap_or_default());
            let memory_bytes = signed(stats.usage.memory_working_set_bytes);
            let own = ContainerUsage { memory_bytes, disk_bytes: signed(disk.bytes) };
            usage.containers.insert(stats.name.clone(), own);
        }
        (usage.disk_bytes, usage.inodes) = (signed(total.bytes), signed(total.inodes));
        Some(usage)
    }
}

/// What a pod takes of the node's disk besides what its runtime counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walked {
    /// By container: of all instances there were, also of containers that ended.
    logs: BTreeMap<String, DiskUsage>,
    /// Files the agent made for it, and volumes.
    own: DiskUsage,
    /// Bytes by volume.
    empty_dirs: BTreeMap<String, i64>,
}

impl Walked {
    fn of(config: &Config, pod: &Pod) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (meta, uid) = (&pod.metadata, text(&pod.metadata.uid));
        let pod_dir = config.pod_dir(&uid);
        let volumes = LOCAL_VOLUMES.iter().map(|name| pod_dir.join("volumes").join(name));
        let mut own = DiskUsage::default();
        OWN_FILES.iter().map(|name| pod_dir.join(name)).chain(volumes).for_each(|path| add(&mut own, tree(&path)));
        let logs = by_directory(&config.pod_log_dir(&text(&meta.namespace), &text(&meta.name), &uid));
        Self { logs, own, empty_dirs: empty_dirs(&pod_dir, pod) }
    }
}

fn is_walked(pod: &Pod, depth: Depth) -> bool {
    depth == Depth::Whole || pod.spec.as_ref().is_some_and(has_storage_limit)
}

fn has_storage_limit(spec: &PodSpec) -> bool {
    let limited = |resources: Option<&objects::api::core::v1::ResourceRequirements>| {
        resources.and_then(|it| it.limits.as_ref()).is_some_and(|limits| limits.contains_key(EPHEMERAL_STORAGE))
    };
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut volumes = spec.volumes.iter().flatten();
    volumes.any(|volume| volume.empty_dir.as_ref().is_some_and(|dir| dir.size_limit.is_some()))
        || limited(spec.resources.as_ref())
        || containers.any(|container| limited(container.resources.as_ref()))
}

/// By volume, also of those in memory.
fn empty_dirs(pod_dir: &Path, pod: &Pod) -> BTreeMap<String, i64> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let empty = volumes.filter(|volume| volume.empty_dir.is_some());
    let used = |name: &str| tree(&pod_dir.join("volumes/kubernetes.io~empty-dir").join(name)).bytes;
    empty.map(|volume| (volume.name.clone(), signed(used(&volume.name)))).collect()
}

/// What each directory below takes.
fn by_directory(top: &Path) -> BTreeMap<String, DiskUsage> {
    let entries = std::fs::read_dir(top).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), tree(&entry.path()))).collect()
}

/// What is mounted below is not of this disk.
fn tree(top: &Path) -> DiskUsage {
    let trees::Usage { bytes, inodes } = trees::usage(top);
    DiskUsage { bytes, inodes }
}

fn add(total: &mut DiskUsage, more: DiskUsage) {
    total.bytes += more.bytes;
    total.inodes += more.inodes;
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_of_a_log_has_its_figure() {
        let root = tempfile::tempdir().unwrap();
        for (name, bytes) in [("a/0.log", 1 << 20), ("a/1.log", 1 << 20), ("ended/0.log.gz", 1 << 20)] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![1; bytes]).unwrap();
        }
        let used = by_directory(root.path());
        let megas: Vec<(&str, u64)> = used.iter().map(|(name, used)| (name.as_str(), used.bytes >> 20)).collect();
        assert_eq!(megas, [("a", 2), ("ended", 1)]);
        assert_eq!(by_directory(&root.path().join("nowhere")), BTreeMap::new());
    }
}
