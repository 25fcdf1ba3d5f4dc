//! Takes away what an instance left on this machine without asking its records:
//! for `podium down`, when they cannot be read.
//!
//! Everything is found by names that derive from the instance: its cgroup, its
//! bridge, and the run directory its monitors write to. Each step is tried
//! whatever became of the others; the first problem is told at the end.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::cgroups::Cgroups;
use crate::config::{Config, EngineError, io_at};
use crate::engine::CGROUP_MOUNT;
use crate::pod_network::PodNetwork;
use crate::records::Dirs;

/// How long the kernel may take to end what was killed.
const ATTEMPTS: usize = 2000;
const PAUSE: Duration = Duration::from_millis(5);

/// Ends every process of the instance and removes its cgroups, interfaces and
/// directories. Images and logs stay.
pub async fn clear_remains(config: &Config) -> Result<(), EngineError> {
    let dirs = Dirs::new(&config.root, &config.run_dir);
    let monitors = kill_monitors(dirs.runs());
    tracing::info!(monitors, "killed the monitors of pods");
    let steps = [
        clear_cgroups(&config.cgroup_root).await,
        clear_network(config).await,
        remove_dir(dirs.runs()),
        remove_dir(dirs.sandboxes()),
    ];
    steps.into_iter().collect()
}

async fn clear_cgroups(instance: &str) -> Result<(), EngineError> {
    let cgroups = Cgroups::detect(Path::new(CGROUP_MOUNT), instance).map_err(io_at(CGROUP_MOUNT))?;
    let path = cgroups.instance().to_owned();
    for _ in 0..ATTEMPTS {
        if cgroups.kill_all(&path) == 0 && cgroups.remove(&path).is_ok() {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    cgroups.remove(&path).map_err(io_at(&path))
}

/// State that cannot be read is of pods that are gone by now.
async fn clear_network(config: &Config) -> Result<(), EngineError> {
    let network = match PodNetwork::open(config) {
        Ok(network) => network,
        Err(error) => {
            let network = config.root.join("network");
            let connected = connected_by_plugins(&network);
            tracing::warn!(%error, "what is known of the pods' network cannot be read and is dropped");
            if !connected.is_empty() {
                let containers = connected.join(" ");
                tracing::warn!(
                    containers,
                    "CNI plugins are not told that these are gone: remove what they keep for them, such as addresses"
                );
            }
            remove_dir(&network)?;
            PodNetwork::open(config).map_err(EngineError::Network)?
        }
    };
    network.destroy().await.map_err(EngineError::Network)
}

/// Ids of those that CNI plugins were asked to connect, by the names of their records.
fn connected_by_plugins(network: &Path) -> Vec<String> {
    let records = fs::read_dir(network.join("cni")).into_iter().flatten().flatten();
    let mut ids: Vec<String> = records.filter_map(|record| Some(record.path().file_stem()?.to_str()?.into())).collect();
    ids.sort();
    ids.dedup();
    ids
}

fn remove_dir(dir: &Path) -> Result<(), EngineError> {
    trees::remove(dir).map_err(io_at(dir))
}

/// Monitors say what they do in a file of their run directory, also when that
/// was removed from under them. Returns how many there were.
pub(crate) fn kill_monitors(runs: &Path) -> usize {
    let of = |entry: fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(of);
    pids.filter(|pid| kill_if_monitor(*pid, runs).is_some()).count()
}

/// The process is held first, so that it is the same one that is looked at and killed.
fn kill_if_monitor(pid: i32, runs: &Path) -> Option<()> {
    let process = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_monitor = command.split(|byte| *byte == 0).nth(1) == Some(shim::VERB.as_bytes());
    let log = fs::read_link(format!("/proc/{pid}/fd/2")).ok()?;
    (is_monitor && log.starts_with(runs)).then_some(())?;
    rustix::process::pidfd_send_signal(process, Signal::KILL).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_plugins_connected_are_named() {
        let network = tempfile::tempdir().unwrap();
        assert_eq!(connected_by_plugins(network.path()), Vec::<String>::new());
        fs::create_dir(network.path().join("cni")).unwrap();
        for name in ["b.json", "a.json", "a.request"] {
            fs::write(network.path().join("cni").join(name), "damaged").unwrap();
        }
        assert_eq!(connected_by_plugins(network.path()), ["a", "b"]);
    }
}
