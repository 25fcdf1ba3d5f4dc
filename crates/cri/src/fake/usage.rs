//! What the fake's pods use, always the same, and what they may use.

use super::{Fake, Held};
use crate::{
    ContainerId, ContainerState, ContainerStats, CriError, DiskUsage, ImageFs, NamespaceMode, NetworkUsage, Resources,
    Sandbox, SandboxId, SandboxState, SandboxStats, Usage,
};

impl Fake {
    pub(super) fn used_by_containers(&self, pod_uid: Option<&str>) -> Vec<ContainerStats> {
        let usage = self.usage();
        let is_wanted = |held: &&Held| {
            held.record.state == ContainerState::Running && pod_uid.is_none_or(|uid| held.record.pod_uid == uid)
        };
        let stats = |held: &Held| ContainerStats {
            id: held.record.id.clone(),
            pod_uid: held.record.pod_uid.clone(),
            name: held.record.name.clone(),
            usage,
            writable_layer: DiskUsage { bytes: 4096, inodes: 1 },
        };
        self.world().containers.iter().filter(is_wanted).map(stats).collect()
    }

    pub(super) fn used_by_sandboxes(&self, pod_uid: Option<&str>) -> Vec<SandboxStats> {
        let usage = self.usage();
        let is_wanted = |sandbox: &&Sandbox| {
            sandbox.state == SandboxState::Ready && pod_uid.is_none_or(|uid| sandbox.meta.uid == uid)
        };
        let stats = |sandbox: &Sandbox| SandboxStats {
            id: sandbox.id.clone(),
            pod_uid: sandbox.meta.uid.clone(),
            usage,
            network: (sandbox.network != NamespaceMode::Node).then(|| NetworkUsage {
                interface: "eth0".to_owned(),
                received_bytes: 1000,
                received_errors: 0,
                sent_bytes: 1000,
                sent_errors: 0,
            }),
            disk: DiskUsage { bytes: 4096, inodes: 1 },
        };
        self.world().sandboxes.iter().filter(is_wanted).map(stats).collect()
    }

    pub(super) fn used_by_images(&self) -> ImageFs {
        let bytes = self.world().images.values().map(|image| image.size_bytes).sum();
        ImageFs { mount_point: "/fake".into(), used: DiskUsage { bytes, inodes: 0 } }
    }

    fn usage(&self) -> Usage {
        Usage {
            at: self.clock.now().wall,
            cpu_nanoseconds: 1_000_000,
            memory_usage_bytes: 2 << 20,
            memory_working_set_bytes: 1 << 20,
            memory_rss_bytes: 1 << 20,
            page_faults: 100,
            major_page_faults: 0,
            processes: 1,
            oom_kills: 0,
        }
    }

    pub(super) fn limit_container(&self, id: &ContainerId, resources: Resources) -> Result<(), CriError> {
        let mut world = self.world();
        let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
        let held = world.held(id).ok_or_else(missing)?;
        let old = held.record.resources.get_or_insert_default();
        old.cpu_shares = resources.cpu_shares.or(old.cpu_shares);
        old.cpu_quota = resources.cpu_quota.or(old.cpu_quota);
        old.cpu_period = resources.cpu_period.or(old.cpu_period);
        old.memory_limit_bytes = resources.memory_limit_bytes.or(old.memory_limit_bytes);
        old.pids_limit = resources.pids_limit.or(old.pids_limit);
        let call = format!("update {}/{}", held.record.name, held.record.attempt);
        world.calls.push(call);
        Ok(())
    }

    pub(super) fn limit_sandbox(&self, id: &SandboxId, resources: &Resources) -> Result<(), CriError> {
        let mut world = self.world();
        let missing = || CriError::NotFound { what: "sandbox", id: id.0.clone() };
        let sandbox = world.sandboxes.iter().find(|sandbox| sandbox.id == *id).ok_or_else(missing)?;
        let memory = resources.memory_limit_bytes;
        let call = format!("update_sandbox {}/{} memory {memory:?}", sandbox.meta.name, sandbox.meta.attempt);
        world.calls.push(call);
        Ok(())
    }
}
