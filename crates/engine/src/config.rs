//! What an instance of the engine is told at its start.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::network::{CniConfig, Entrance};

/// Plain values; whoever composes the process knows them.
#[derive(Debug, Clone)]
pub struct Config {
    /// Durable state: images, sandboxes, addresses.
    pub root: PathBuf,
    /// Sockets; may be gone after a reboot.
    pub run_dir: PathBuf,
    /// Name of this instance, unique on the machine.
    pub instance: String,
    /// This instance's cgroup below the root of every hierarchy, e.g. `podium-1a2b`.
    pub cgroup_root: String,
    /// Range of pod addresses and its prefix length.
    pub pod_cidr: (Ipv4Addr, u8),
    /// Name of this instance's bridge, at most 15 bytes.
    pub bridge: String,
    pub mtu: u32,
    /// What pods call that this machine itself answers.
    pub entrances: Vec<Entrance>,
    /// Instead of our own bridge.
    pub cni: Option<CniConfig>,
    /// The program that becomes a shim when called with `shim`.
    pub shim_exe: PathBuf,
    /// How image registries are reached.
    pub registries: crate::images::RegistryConfig,
    /// How containers get their root; `Detect` unless someone knows better.
    pub snapshots: crate::rootfs::Snapshots,
}

/// Why the engine cannot start, or cannot be taken down.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("configuration: {0}")]
    Config(String),
    #[error("images: {0}")]
    Images(#[source] crate::images::ImageError),
    #[error("network: {0}")]
    Network(#[source] crate::network::NetworkError),
}

/// For `map_err`: what was being done when an I/O call failed.
pub(crate) fn io_at<T: AsRef<std::path::Path> + ?Sized>(path: &T) -> impl FnOnce(std::io::Error) -> EngineError {
    let what = path.as_ref().display().to_string();
    move |source| EngineError::Io { what, source }
}
