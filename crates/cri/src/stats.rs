//! What pods, containers and images use.

use std::path::PathBuf;

use ambient::Timestamp;

use crate::types::{ContainerId, SandboxId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStats {
    pub id: ContainerId,
    pub pod_uid: String,
    pub name: String,
    pub usage: Usage,
    /// Of what the container wrote into its own file system.
    pub writable_layer: DiskUsage,
}

/// Of a pod as a whole, with what its containers use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxStats {
    pub id: SandboxId,
    pub pod_uid: String,
    pub usage: Usage,
    /// `None` for host network.
    pub network: Option<NetworkUsage>,
    /// What the pod takes beside the layers of its running containers: files
    /// they share, and containers that ended.
    pub disk: DiskUsage,
}

/// As the cgroup tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub at: Timestamp,
    /// Since the cgroup was made.
    pub cpu_nanoseconds: u64,
    pub memory_usage_bytes: u64,
    /// Without what the kernel could drop at once.
    pub memory_working_set_bytes: u64,
    pub memory_rss_bytes: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    pub processes: u64,
    /// Processes that the kernel killed for want of memory, since the cgroup was
    /// made. (Other runtimes do not tell: 0.)
    pub oom_kills: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskUsage {
    pub bytes: u64,
    pub inodes: u64,
}

/// Of the pod's own interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkUsage {
    pub interface: String,
    pub received_bytes: u64,
    pub received_errors: u64,
    pub sent_bytes: u64,
    pub sent_errors: u64,
}

/// Where images are kept, and how much they take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFs {
    pub mount_point: PathBuf,
    pub used: DiskUsage,
}
