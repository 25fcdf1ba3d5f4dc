//! What the engine remembers on disk, so that a new one knows what the old one did.
//!
//! `<root>/sandboxes/<id>/sandbox.json` and, below it,
//! `containers/<id>/container.json`. The shim adds `start.json` and
//! `exit.json`. A directory without its record was never finished and goes.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ambient::Timestamp;
use cri::{ContainerConfig, ContainerId, Mount, Resources, SandboxConfig, SandboxId, SandboxState};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) id: SandboxId,
    pub(crate) config: SandboxConfig,
    pub(crate) state: SandboxState,
    pub(crate) created_at: Timestamp,
    pub(crate) ips: Vec<IpAddr>,
    /// The host name its containers see.
    pub(crate) hostname: String,
    pub(crate) shim_pid: i32,
    /// Which protocol its shim speaks: a shim stays as it is when the agent
    /// is replaced by a later version.
    #[serde(default = "first_version")]
    pub(crate) shim_version: u32,
}

/// What was spoken before versions were recorded.
fn first_version() -> u32 {
    1
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) id: ContainerId,
    pub(crate) sandbox: SandboxId,
    pub(crate) pod_uid: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) created_at: Timestamp,
    /// As it is shown.
    pub(crate) image: String,
    pub(crate) image_ref: String,
    pub(crate) log_path: PathBuf,
    #[serde(default)]
    pub(crate) mounts: Vec<Mount>,
    /// Of images mounted as volumes; empty in records of older versions.
    #[serde(default)]
    pub(crate) volume_layers: Vec<Vec<PathBuf>>,
    pub(crate) stop_signal: i32,
    #[serde(default)]
    pub(crate) stdin: bool,
    #[serde(default)]
    pub(crate) tty: bool,
    /// Its input outlives its clients: no `stdinOnce`, or a terminal.
    #[serde(default)]
    pub(crate) input_stays: bool,
    /// As last asked for.
    #[serde(default)]
    pub(crate) resources: Resources,
    /// Unpacked layers it stands on; they must stay while it does.
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl ContainerRecord {
    /// The parts that come straight from the configuration.
    pub(crate) fn of(
        id: ContainerId,
        sandbox: &SandboxRecord,
        config: &ContainerConfig,
        created_at: Timestamp,
    ) -> ContainerRecord {
        ContainerRecord {
            id,
            sandbox: sandbox.id.clone(),
            pod_uid: sandbox.config.meta.uid.clone(),
            name: config.name.clone(),
            attempt: config.attempt,
            created_at,
            image: config.image.clone(),
            image_ref: String::new(),
            log_path: sandbox.config.log_directory.join(&config.log_path),
            mounts: config.mounts.clone(),
            volume_layers: Vec::new(),
            stop_signal: crate::signals::TERM,
            stdin: false,
            tty: false,
            input_stays: false,
            resources: config.resources.clone(),
            layers: Vec::new(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
        }
    }
}

impl ContainerRecord {
    /// The layers of its image, and of each image that is mounted into it.
    pub(crate) fn stands_on(&self) -> Vec<Vec<PathBuf>> {
        std::iter::once(&self.layers).chain(&self.volume_layers).cloned().collect()
    }
}

/// What every recorded container stands on, one list each: for those who
/// clean up beside a running engine, or without one. Read it while no
/// container can be in the making (`Images::sweep`).
pub fn layers_in_use(engine_root: &Path) -> io::Result<Vec<Vec<PathBuf>>> {
    let mut in_use = Vec::new();
    for sandbox in directories(&engine_root.join("sandboxes"))? {
        for container in directories(&sandbox.join("containers"))? {
            let record = shim::record::read::<ContainerRecord>(&container, CONTAINER).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", container.join(CONTAINER).display()))
            })?;
            in_use.extend(record.into_iter().flat_map(|record| record.stands_on()));
        }
    }
    Ok(in_use)
}

/// Which sandbox has which address, as far as records can be read.
pub(crate) fn addresses_in_use(dirs: &Dirs) -> BTreeMap<IpAddr, SandboxId> {
    let places = directories(dirs.sandboxes()).unwrap_or_default();
    let records = places.iter().filter_map(|dir| shim::record::read::<SandboxRecord>(dir, SANDBOX).ok().flatten());
    let ready = records.filter(|record| record.state == SandboxState::Ready);
    ready.flat_map(|record| record.ips.into_iter().map(move |ip| (ip, record.id.clone()))).collect()
}

/// None if there is no such place; it may go while we look.
fn directories(place: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(place) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(crate) const SANDBOX: &str = "sandbox.json";
pub(crate) const CONTAINER: &str = "container.json";

/// Where things of one sandbox are.
#[derive(Debug, Clone)]
pub(crate) struct Dirs {
    root: PathBuf,
    run: PathBuf,
}

impl Dirs {
    pub(crate) fn new(root: &Path, run: &Path) -> Self {
        Self { root: root.join("sandboxes"), run: run.join("shims") }
    }

    pub(crate) fn sandboxes(&self) -> &Path {
        &self.root
    }

    pub(crate) fn runs(&self) -> &Path {
        &self.run
    }

    pub(crate) fn sandbox(&self, id: &SandboxId) -> PathBuf {
        self.root.join(id.as_str())
    }

    pub(crate) fn containers(&self, sandbox: &SandboxId) -> PathBuf {
        self.sandbox(sandbox).join("containers")
    }

    pub(crate) fn container(&self, sandbox: &SandboxId, id: &ContainerId) -> PathBuf {
        self.containers(sandbox).join(id.as_str())
    }

    /// Its socket's directory.
    pub(crate) fn run(&self, id: &SandboxId) -> PathBuf {
        self.run.join(id.as_str())
    }
}
