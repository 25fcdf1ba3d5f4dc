//! The verbs about limits and usage: update, statistics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ambient::Clock;
use cri::{
    Container, ContainerId, ContainerStats, CriError, DiskUsage, NamespaceMode, NetworkUsage, Resources, SandboxId,
    SandboxState, SandboxStats, Tally,
};
use shim::crash;
use shim::record;

use crate::cgroups::Devices;
use crate::engine::{Inner, blocking};
use crate::etc;
use crate::network::SANDBOX_INTERFACE;
use crate::records::{self, ContainerRecord};
use crate::table::{ContainerEntry, Table};

/// What pods take of the disk, by sandbox. Their files are theirs, so a walk
/// may take as long as they like.
pub(crate) struct Disks {
    running: Tally<BTreeMap<ContainerId, DiskUsage>>,
    left_over: Tally<DiskUsage>,
}

impl Disks {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { running: Tally::new(clock.clone()), left_over: Tally::new(clock.clone()) }
    }
}

impl Inner {
    /// New limits while it runs. Remembered first: a record that asks for more
    /// than the cgroup has only changes how the cgroup's values are spelled.
    pub(crate) async fn update_container(
        self: &Arc<Self>,
        id: &ContainerId,
        resources: Resources,
    ) -> Result<(), CriError> {
        let (record, cgroup) = {
            let mut table = self.table();
            let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
            let entry = table.containers.get_mut(id).ok_or_else(missing)?;
            if entry.is_over() {
                return Err(CriError::NotRunning { id: id.0.clone() });
            }
            entry.record.resources = merged(&entry.record.resources, &resources);
            let record = entry.record.clone();
            let cgroup = self.container_cgroup(&table, &record)?;
            (record, cgroup)
        };
        let (inner, dir) = (self.clone(), self.dirs.container(&record.sandbox, id));
        let updated = blocking(move || {
            record::write(&dir, records::CONTAINER, &record)?;
            crash::point("limits.container-recorded");
            inner.cgroups.limit(&cgroup, &resources)
        });
        updated.await?.map_err(|error| CriError::Failed(format!("failed to update container {id}: {error}")))
    }

    /// The same for the pod as a whole.
    pub(crate) async fn update_sandbox(self: &Arc<Self>, id: &SandboxId, resources: Resources) -> Result<(), CriError> {
        let record = {
            let mut table = self.table();
            let missing = || CriError::NotFound { what: "sandbox", id: id.0.clone() };
            let entry = table.sandboxes.get_mut(id).ok_or_else(missing)?;
            if entry.record.state != SandboxState::Ready {
                return Err(CriError::Failed(format!("sandbox {id} is not ready")));
            }
            entry.record.config.resources = merged(&entry.record.config.resources, &resources);
            entry.record.clone()
        };
        let cgroup = self.pod_cgroup(&record.config)?;
        let (inner, dir) = (self.clone(), self.dirs.sandbox(id));
        let updated = blocking(move || {
            record::write(&dir, records::SANDBOX, &record)?;
            crash::point("limits.sandbox-recorded");
            inner.cgroups.limit_pod(&cgroup, &resources, |name| {
                let id = ContainerId(name.to_string_lossy().into_owned());
                inner.table().containers.get(&id).is_some_and(ContainerEntry::is_over)
            })
        });
        updated.await?.map_err(|error| CriError::Failed(format!("failed to update sandbox {id}: {error}")))
    }

    /// LC-334: the cgroup around the pods of a class. Nothing is recorded:
    /// whoever starts again says it again.
    pub(crate) async fn update_class(self: &Arc<Self>, class: &str, resources: Resources) -> Result<(), CriError> {
        let cgroup = self.cgroups.pod(class).map_err(|error| CriError::Invalid(error.to_string()))?;
        let inner = self.clone();
        let updated = blocking(move || inner.cgroups.create(&cgroup, &resources, Devices::Inherit));
        updated.await?.map_err(|error| CriError::Failed(format!("failed to update pods of class {class}: {error}")))
    }

    /// All containers, the running ones with what their cgroups are set to (LC-082).
    pub(crate) async fn containers(self: &Arc<Self>, pod_uid: Option<&str>) -> Result<Vec<Container>, CriError> {
        let (mut shown, running) = {
            let table = self.table();
            (table.containers(pod_uid), self.running(&table, pod_uid))
        };
        if running.is_empty() {
            return Ok(shown);
        }
        let inner = self.clone();
        let read = move |(record, cgroup): (ContainerRecord, PathBuf)| {
            let resources = inner.cgroups.limits(&cgroup, &record.resources);
            (record.id, resources)
        };
        let limits: Vec<_> = blocking(move || running.into_iter().map(read).collect()).await?;
        for (id, resources) in limits {
            if let Some(container) = shown.iter_mut().find(|container| container.id == id) {
                container.resources = Some(resources);
            }
        }
        Ok(shown)
    }

    pub(crate) async fn container_stats(
        self: &Arc<Self>,
        pod_uid: Option<&str>,
    ) -> Result<Vec<ContainerStats>, CriError> {
        let running = self.running(&self.table(), pod_uid);
        let (inner, at) = (self.clone(), self.clock.now().wall);
        let usages: Vec<_> = blocking(move || {
            // One that ended meanwhile has no figures any more.
            let used =
                |(record, cgroup): (ContainerRecord, PathBuf)| Some((record, inner.cgroups.usage(&cgroup, at).ok()?));
            running.into_iter().filter_map(used).collect::<Vec<(ContainerRecord, cri::Usage)>>()
        })
        .await?;
        // Those of a pod one after the other: none has more of the node for it.
        let mut places: BTreeMap<SandboxId, Vec<(ContainerId, PathBuf)>> = BTreeMap::new();
        for (record, _) in &usages {
            let dir = self.dirs.container(&record.sandbox, &record.id);
            places.entry(record.sandbox.clone()).or_default().push((record.id.clone(), dir));
        }
        let walks = places.into_iter().map(|(sandbox, places)| {
            let walk = move || places.into_iter().map(|(id, dir)| (id, written(&dir))).collect();
            (sandbox.0, walk)
        });
        let disks = self.disks.running.figures(walks.collect()).await;
        let disk_of = |record: &ContainerRecord| disks.get(&record.sandbox.0)?.get(&record.id).copied();
        let stats = usages.into_iter().map(|(record, usage)| {
            let writable_layer = disk_of(&record).unwrap_or_default();
            ContainerStats { id: record.id, pod_uid: record.pod_uid, name: record.name, usage, writable_layer }
        });
        Ok(stats.collect())
    }

    pub(crate) async fn sandbox_stats(self: &Arc<Self>, pod_uid: Option<&str>) -> Result<Vec<SandboxStats>, CriError> {
        let running: Arc<BTreeSet<String>>;
        let ready: Vec<_> = {
            let table = self.table();
            let ids = table.containers.values().filter(|entry| entry.is_running()).map(|it| it.record.id.0.clone());
            running = Arc::new(ids.collect());
            let records = table.sandboxes.values().map(|entry| &entry.record);
            let ready = records.filter(|record| record.state == SandboxState::Ready);
            ready.filter(|record| pod_uid.is_none_or(|uid| record.config.meta.uid == uid)).cloned().collect()
        };
        let walks = ready.iter().map(|record: &records::SandboxRecord| {
            let (dir, running) = (self.dirs.sandbox(&record.id), running.clone());
            (record.id.0.clone(), move || left_over(&dir, &running))
        });
        let disks = self.disks.left_over.figures(walks.collect()).await;
        let (inner, at) = (self.clone(), self.clock.now().wall);
        let stats_of = move |record: records::SandboxRecord| {
            let usage = inner.cgroups.usage(&inner.pod_cgroup(&record.config).ok()?, at).ok()?;
            let is_own = record.config.network != NamespaceMode::Node;
            let network = is_own.then(|| network_usage(record.shim_pid)).flatten();
            let disk = disks.get(&record.id.0).copied().unwrap_or_default();
            Some(SandboxStats { id: record.id, pod_uid: record.config.meta.uid, usage, network, disk })
        };
        blocking(move || ready.into_iter().filter_map(stats_of).collect()).await
    }

    /// With their cgroups.
    fn running(&self, table: &Table, pod_uid: Option<&str>) -> Vec<(ContainerRecord, PathBuf)> {
        let is_wanted =
            |entry: &&ContainerEntry| entry.is_running() && pod_uid.is_none_or(|uid| entry.record.pod_uid == uid);
        let entries = table.containers.values().filter(is_wanted);
        let placed =
            entries.filter_map(|entry| Some((entry.record.clone(), self.container_cgroup(table, &entry.record).ok()?)));
        placed.collect()
    }

    fn container_cgroup(&self, table: &Table, record: &ContainerRecord) -> Result<PathBuf, CriError> {
        let missing = || CriError::NotFound { what: "sandbox", id: record.sandbox.0.clone() };
        let sandbox = table.sandboxes.get(&record.sandbox).ok_or_else(missing)?;
        Ok(self.pod_cgroup(&sandbox.record.config)?.join(record.id.as_str()))
    }
}

/// What is not given stays. The score of a process that runs stays in any case.
fn merged(old: &Resources, new: &Resources) -> Resources {
    Resources {
        cpu_shares: new.cpu_shares.or(old.cpu_shares),
        cpu_quota: new.cpu_quota.or(old.cpu_quota),
        cpu_period: new.cpu_period.or(old.cpu_period),
        memory_limit_bytes: new.memory_limit_bytes.or(old.memory_limit_bytes),
        pids_limit: new.pids_limit.or(old.pids_limit),
        oom_score_adj: old.oom_score_adj,
    }
}

/// Of the pod's own interface, seen from its monitor, which lives in the same network.
fn network_usage(pid: i32) -> Option<NetworkUsage> {
    interface_usage(&fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?, SANDBOX_INTERFACE)
}

/// Eight columns received, then eight sent; bytes first, errors third.
fn interface_usage(text: &str, interface: &str) -> Option<NetworkUsage> {
    let columns = text.lines().find_map(|line| {
        let (name, columns) = line.split_once(':')?;
        (name.trim() == interface).then_some(columns)
    })?;
    let columns: Vec<u64> = columns.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    Some(NetworkUsage {
        interface: interface.to_owned(),
        received_bytes: *columns.first()?,
        received_errors: *columns.get(2)?,
        sent_bytes: *columns.get(8)?,
        sent_errors: *columns.get(10)?,
    })
}

/// What a container has written: into its root, and into what its image
/// declares a volume.
fn written(dir: &Path) -> DiskUsage {
    [dir.join("upper"), dir.join("volumes")].iter().map(|place| on_disk(place)).fold(DiskUsage::default(), sum)
}

/// Of what is in the way of nobody's figures: containers that ended and stay
/// for their statuses, and the files that all containers of a pod may write.
fn left_over(sandbox: &Path, running: &BTreeSet<String>) -> DiskUsage {
    let containers = fs::read_dir(sandbox.join("containers")).into_iter().flatten().flatten();
    let ended = containers.filter(|entry| !running.contains(&*entry.file_name().to_string_lossy()));
    let files = etc::NAMES.map(|name| on_disk(&sandbox.join(name)));
    ended.map(|entry| written(&entry.path())).chain(files).fold(DiskUsage::default(), sum)
}

fn sum(one: DiskUsage, other: DiskUsage) -> DiskUsage {
    DiskUsage { bytes: one.bytes + other.bytes, inodes: one.inodes + other.inodes }
}

/// A container changes it meanwhile, so what cannot be read is passed over.
fn on_disk(place: &Path) -> DiskUsage {
    let trees::Usage { bytes, inodes } = trees::usage(place);
    DiskUsage { bytes, inodes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_the_pods_own_interface() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:       9       9    9    9    9     9          9         9        9       9    9    9    9     9       9          9\n  \
            eth0: 1500      10    1    0    0     0          0         0      700       7    2    0    0     0       0          0\n";
        let usage = interface_usage(text, "eth0").unwrap();
        assert_eq!(
            (usage.received_bytes, usage.received_errors, usage.sent_bytes, usage.sent_errors),
            (1500, 1, 700, 2)
        );
        assert_eq!(interface_usage(text, "eth1"), None);
    }

    #[test]
    fn every_byte_that_a_pod_writes_is_in_somebodys_figures() {
        let dir = tempfile::tempdir().unwrap();
        let mega = vec![1; 1 << 20];
        let write = |path: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &mega).unwrap();
        };
        ["containers/a/upper/f", "containers/a/volumes/0/f", "containers/b/upper/f", "containers/b/volumes/1/f"]
            .iter()
            .for_each(|path| write(path));
        let running = BTreeSet::from(["a".to_owned()]);
        let megas = |usage: DiskUsage| usage.bytes >> 20;
        assert_eq!(megas(written(&dir.path().join("containers/a"))), 2);
        assert_eq!(megas(left_over(dir.path(), &running)), 2, "of the one that ended");
        ["hosts", "hostname", "resolv.conf"].iter().for_each(|path| write(path));
        assert_eq!(megas(left_over(dir.path(), &running)), 5);
        assert_eq!(megas(left_over(dir.path(), &BTreeSet::new())), 7);
    }
}
