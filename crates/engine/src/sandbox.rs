//! The verbs on sandboxes: run, stop, remove.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use cri::{CriError, IdRange, NamespaceMode, SandboxConfig, SandboxId, SandboxState};
use shim::crash;
use shim::record;
use shim::wire::{self, Reply, Request};
use tokio::sync::Mutex;

use crate::cgroups::Devices;
use crate::engine::{Inner, NAME, blocking};
use crate::network::NetworkError;
use crate::records::{self, SandboxRecord};
use crate::shim_client::{self, Shim, Told};
use crate::table::SandboxEntry;
use crate::{etc, sysctls};

impl Inner {
    pub(crate) async fn run_sandbox(self: &Arc<Self>, config: SandboxConfig) -> Result<SandboxId, CriError> {
        refuse_ipv6_ports(&config)?;
        refuse_handlers(&config)?;
        check_users(&config)?;
        sysctls::settings(&config)?;
        let cgroup = self.pod_cgroup(&config)?;
        let id = SandboxId(self.ids.hex64());
        self.network.check_ports(&config.host_ports).await.map_err(|error| network_refusal(&id, &error))?;
        let pod_uid = config.meta.uid.clone();
        match self.make_sandbox(&id, config, cgroup.clone()).await {
            Ok((record, shim)) => {
                crash::point("sandbox.recorded");
                let has_ports = !record.config.host_ports.is_empty();
                let entry = SandboxEntry { record, shim: Some(shim), gate: Arc::new(Mutex::new(())) };
                self.table().sandboxes.insert(id.clone(), entry);
                if has_ports && let Err(error) = self.publish_ports().await {
                    self.table().sandboxes.remove(&id);
                    self.unmake_sandbox(&id, Some(cgroup)).await;
                    return Err(network_refusal(&id, &error));
                }
                crash::point("sandbox.published");
                self.announce(&pod_uid);
                Ok(id)
            }
            Err(error) => {
                self.unmake_sandbox(&id, Some(cgroup)).await;
                Err(error)
            }
        }
    }

    pub(crate) fn pod_cgroup(&self, config: &SandboxConfig) -> Result<PathBuf, CriError> {
        self.cgroups.pod(&config.cgroup_parent).map_err(|error| CriError::Invalid(error.to_string()))
    }

    async fn make_sandbox(
        self: &Arc<Self>,
        id: &SandboxId,
        config: SandboxConfig,
        cgroup: PathBuf,
    ) -> Result<(SandboxRecord, Shim), CriError> {
        let (inner, resources) = (self.clone(), config.resources.clone());
        let limited = blocking(move || inner.cgroups.create(&cgroup, &resources, Devices::Inherit));
        let is_host_network = config.network == NamespaceMode::Node;
        let hostname = if config.hostname.is_empty() { node_name() } else { config.hostname.clone() };
        let setup = wire::Setup {
            sandbox: id.0.clone(),
            network: !is_host_network,
            ipc: config.ipc != NamespaceMode::Node,
            hostname: (!is_host_network).then(|| hostname.clone()),
            pid: config.pid == NamespaceMode::Pod,
            sysctls: sysctls::settings(&config)?,
            users: config.user_namespace.map(|range| wire::IdRange { first: range.first, length: range.length }),
        };
        let (limited, shim) = tokio::join!(limited, self.start_shim(id, setup));
        let (shim, shim_pid) = shim?;
        limited?.map_err(|error| CriError::NoCgroup(error.to_string()))?;
        let ips = if is_host_network { Vec::new() } else { self.connect(id, &config, shim_pid).await? };
        let record = SandboxRecord {
            id: id.clone(),
            config,
            state: SandboxState::Ready,
            created_at: self.clock.now().wall,
            ips,
            hostname,
            shim_pid,
            shim_version: wire::VERSION,
        };
        let (dirs, written) = (self.dirs.clone(), record.clone());
        let stored = blocking(move || {
            let dir = dirs.sandbox(&written.id);
            fs::create_dir_all(dir.join("containers"))?;
            crash::point("sandbox.directory");
            etc::write(&dir, &written.config, &written.hostname, &written.ips)?;
            crash::point("sandbox.files");
            record::write(&dir, records::SANDBOX, &written)?;
            record::sync_dir(dirs.sandboxes())
        });
        stored.await?.map_err(|error| CriError::Failed(format!("failed to record sandbox: {error}")))?;
        Ok((record, shim))
    }

    async fn start_shim(self: &Arc<Self>, id: &SandboxId, setup: wire::Setup) -> Result<(Shim, i32), CriError> {
        let failed = |error: std::io::Error| CriError::Failed(format!("failed to start sandbox monitor: {error}"));
        let stream = shim_client::spawn(&self.program, id.as_str(), &self.dirs.run(id)).map_err(failed)?;
        let shim = self.listen(id, stream).map_err(failed)?;
        match shim.call(Request::Setup(setup)).await? {
            Reply::Ready { pid, version: wire::VERSION } => {
                crash::point("shim.ready");
                Ok((shim, pid))
            }
            other => Err(CriError::Failed(format!("sandbox monitor gave an unexpected answer: {other:?}"))),
        }
    }

    /// Serves a shim's connection. The connection does not keep the engine alive.
    pub(crate) fn listen(
        self: &Arc<Self>,
        id: &SandboxId,
        stream: std::os::unix::net::UnixStream,
    ) -> std::io::Result<Shim> {
        let (inner, id) = (Arc::downgrade(self), id.clone());
        Shim::over(stream, self.panics.clone(), move |told| {
            let Some(inner) = inner.upgrade() else { return };
            match told {
                Told::Exited { container, exit } => inner.on_exit(&cri::ContainerId(container), exit),
                Told::Lost => {
                    let id = id.clone();
                    tokio::spawn(async move { inner.settle_loss(&id).await });
                }
            }
        })
    }

    async fn connect(&self, id: &SandboxId, config: &SandboxConfig, shim_pid: i32) -> Result<Vec<IpAddr>, CriError> {
        let netns = PathBuf::from(format!("/proc/{shim_pid}/ns/net"));
        self.network.attach(id, config, &netns).await.map_err(|error| network_refusal(id, &error))
    }

    /// Of a sandbox that is no longer ready.
    pub(crate) async fn disconnect(&self, id: &SandboxId) -> Result<(), NetworkError> {
        // No port may lead to an address that can be somebody else's.
        self.publish_ports().await?;
        crash::point("sandbox.unpublished");
        self.network.detach(id).await
    }

    /// Leads the node's ports to the pods that are up.
    pub(crate) async fn publish_ports(&self) -> Result<(), NetworkError> {
        self.network.publish(|| self.table().published()).await
    }

    /// Whatever of it was made goes; used for sandboxes nobody knows of.
    pub(crate) async fn unmake_sandbox(self: &Arc<Self>, id: &SandboxId, cgroup: Option<PathBuf>) {
        let run = self.dirs.run(id);
        if let Ok(stream) = shim_client::reconnect(&run)
            && let Ok(shim) = Shim::over(stream, self.panics.clone(), |_| {})
        {
            // Not set up yet: it ends by itself when nobody is connected any more.
            let _ = shim.call(Request::Shutdown).await;
        }
        if let Err(error) = self.network.detach(id).await {
            tracing::warn!(%error, sandbox = %id, "network of an unfinished sandbox stays until the next start");
        }
        if let Some(cgroup) = cgroup
            && !self.shares_cgroup(id, &cgroup)
            && let Err(error) = self.clear_cgroup(&cgroup).await
        {
            tracing::warn!(%error, sandbox = %id, "cgroup of an unfinished sandbox stays until the next start");
        }
        for dir in [run, self.dirs.sandbox(id)] {
            let shown = dir.display().to_string();
            if let Ok(Err(error)) = blocking(move || trees::remove(&dir)).await {
                tracing::warn!(%error, directory = shown, "an unfinished sandbox stays until the next start");
            }
        }
    }

    /// Does another sandbox (of the same pod) live in this cgroup?
    fn shares_cgroup(&self, id: &SandboxId, cgroup: &std::path::Path) -> bool {
        let table = self.table();
        let others = table.sandboxes.values().filter(|entry| entry.record.id != *id);
        others.into_iter().any(|entry| self.pod_cgroup(&entry.record.config).is_ok_and(|other| other == cgroup))
    }

    /// TC-053, TC-065: kills what still runs, records it, gives the network back.
    pub(crate) async fn stop_sandbox(self: &Arc<Self>, id: &SandboxId) -> Result<(), CriError> {
        let Some(gate) = self.gate(id) else { return Ok(()) };
        let _alone = gate.lock().await;
        self.stop_sandbox_alone(id).await
    }

    pub(crate) fn gate(&self, id: &SandboxId) -> Option<Arc<Mutex<()>>> {
        self.table().sandboxes.get(id).map(|entry| entry.gate.clone())
    }

    async fn stop_sandbox_alone(self: &Arc<Self>, id: &SandboxId) -> Result<(), CriError> {
        // Taken away first: that its connection ends is no news then.
        let shim = self.table().sandboxes.get_mut(id).and_then(|entry| entry.shim.take());
        if let Some(shim) = shim {
            // Every exit is told before the answer. A shim that is gone is handled as such.
            let mut ended = shim.call(Request::Shutdown).await;
            if ended.is_err()
                && shim.is_lost()
                && let Ok(stream) = shim_client::reconnect_when_free(&self.dirs.run(id)).await
                && let Ok(again) = self.listen(id, stream)
            {
                ended = again.call(Request::Shutdown).await;
            }
            if let Err(error) = ended {
                tracing::error!(%error, sandbox = %id, "the sandbox's monitor process could not be shut down");
                self.lose(id).await;
            }
        }
        crash::point("sandbox.shut-down");
        self.close_sandbox(id).await?;
        crash::point("sandbox.closed");
        let disconnected = self.disconnect(id).await;
        disconnected.map_err(|error| CriError::Failed(format!("failed to tear down network: {error}")))
    }

    /// Marks the sandbox as down, in the table and on disk.
    pub(crate) async fn close_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        let record = {
            let mut table = self.table();
            let Some(entry) = table.sandboxes.get_mut(id) else { return Ok(()) };
            entry.shim = None;
            if entry.record.state == SandboxState::NotReady {
                return Ok(());
            }
            entry.record.state = SandboxState::NotReady;
            entry.record.clone()
        };
        self.announce(&record.config.meta.uid);
        let dir = self.dirs.sandbox(id);
        // Where it cannot be recorded (the disk is full) the next engine sees that its monitor is gone.
        if let Err(error) = blocking(move || record::write(&dir, records::SANDBOX, &record)).await? {
            tracing::warn!(%error, sandbox = %id, "the end of a sandbox could not be recorded");
        }
        Ok(())
    }

    /// Stops it, then forgets it and its containers.
    pub(crate) async fn remove_sandbox(self: &Arc<Self>, id: &SandboxId) -> Result<(), CriError> {
        let Some(gate) = self.gate(id) else { return Ok(()) };
        let _alone = gate.lock().await;
        self.stop_sandbox_alone(id).await?;
        crash::point("sandbox.stopped");
        let containers = self.table().of_sandbox(id);
        for container in &containers {
            self.drop_container(id, container).await?;
        }
        let Some(config) = self.table().sandboxes.get(id).map(|entry| entry.record.config.clone()) else {
            return Ok(());
        };
        let cgroup = self.pod_cgroup(&config)?;
        if !self.shares_cgroup(id, &cgroup) {
            let cleared = self.clear_cgroup(&cgroup).await;
            cleared.map_err(|error| CriError::Failed(format!("failed to remove pod cgroup: {error}")))?;
        }
        for dir in [self.dirs.run(id), self.dirs.sandbox(id)] {
            crash::point("sandbox.removing");
            remove_dir(dir).await?;
        }
        crash::point("sandbox.removed");
        self.table().sandboxes.remove(id);
        self.announce(&config.meta.uid);
        Ok(())
    }
}

/// Users of the pod's own have no power over namespaces of the node.
fn check_users(config: &SandboxConfig) -> Result<(), CriError> {
    let Some(IdRange { first, length }) = config.user_namespace else { return Ok(()) };
    let of_node = [("hostNetwork", config.network), ("hostIPC", config.ipc), ("hostPID", config.pid)];
    if let Some((field, _)) = of_node.into_iter().find(|(_, mode)| *mode == NamespaceMode::Node) {
        return Err(CriError::Invalid(format!("{field}: true is not allowed with hostUsers: false")));
    }
    // 0 and its neighbours would be the node's own; the last number means nobody.
    if first == 0 || length == 0 || first.checked_add(length).is_none() {
        return Err(CriError::Invalid(format!("user namespace of {length} ids from {first} on cannot be")));
    }
    Ok(())
}

/// There is one way to run pods here, which a RuntimeClass may name. The words
/// are containerd's.
fn refuse_handlers(config: &SandboxConfig) -> Result<(), CriError> {
    match config.runtime_handler.as_str() {
        "" | NAME => Ok(()),
        other => Err(CriError::Invalid(format!("no runtime for {other:?} is configured"))),
    }
}

/// Pods have no IPv6 address that such a port could lead to.
fn refuse_ipv6_ports(config: &SandboxConfig) -> Result<(), CriError> {
    match config.host_ports.iter().find(|port| port.host_ip.is_some_and(|ip| ip.is_ipv6())) {
        Some(port) => {
            let port = port.host_port;
            Err(CriError::Invalid(format!("hostPort {port}: hostIP must be an IPv4 address")))
        }
        None => Ok(()),
    }
}

fn network_refusal(id: &SandboxId, error: &NetworkError) -> CriError {
    match error {
        // LC-018: of the node, not of this pod.
        NetworkError::NameTaken { .. } | NetworkError::Firewall { .. } | NetworkError::Setting { .. } => {
            CriError::NetworkNotReady(error.to_string())
        }
        error => CriError::Failed(format!("failed to setup network for sandbox {:?}: {error}", id.0)),
    }
}

/// Removes a directory; that it is gone already is fine.
pub(crate) async fn remove_dir(dir: PathBuf) -> Result<(), CriError> {
    let shown = dir.display().to_string();
    let removed = blocking(move || trees::remove(&dir)).await?;
    removed.map_err(|error| CriError::Failed(format!("failed to remove {shown}: {error}")))
}

fn node_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
