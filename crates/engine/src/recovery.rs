//! Taking up what an earlier engine left, and what happens when a shim dies.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::{ContainerId, CriError, SandboxId, SandboxState};
use shim::record;
use shim::wire::{self, Exit, Reply, Request, Start};
use tokio::sync::Mutex;

use crate::config::{EngineError, io_at};
use crate::engine::Inner;
use crate::records::{self, ContainerRecord, SandboxRecord};
use crate::shim_client::{self, Shim};
use crate::table::{ContainerEntry, SandboxEntry, Stage};

impl Inner {
    /// Reads every record, finds the shims again, learns what ended meanwhile
    /// and clears away what was never finished.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<(), EngineError> {
        let root = self.dirs.sandboxes().to_owned();
        let mut unfinished = names(self.dirs.runs()).map_err(io_at(self.dirs.runs()))?;
        for id in names(&root).map_err(io_at(&root))?.into_iter().map(SandboxId) {
            let dir = self.dirs.sandbox(&id);
            match record::read::<SandboxRecord>(&dir, records::SANDBOX) {
                Ok(Some(record)) => {
                    unfinished.retain(|name| *name != id.0);
                    self.take_up(record).await.map_err(io_at(&dir))?;
                }
                Ok(None) => unfinished.push(id.0),
                // Never guess: a record that cannot be read is for someone to look at.
                Err(error) => return Err(io_at(&dir.join(records::SANDBOX))(error)),
            }
        }
        for id in unfinished.into_iter().map(SandboxId) {
            tracing::warn!(sandbox = %id, "removing a sandbox that was never finished");
            self.unmake_sandbox(&id, None).await;
        }
        self.clear_stray_cgroups().await;
        let known: Vec<SandboxId> = self.connected_sandboxes();
        self.network.reconcile(&known).await.map_err(EngineError::Network)?;
        self.publish_ports().await.map_err(EngineError::Network)
    }

    /// What was begun for a sandbox or a container that was never recorded.
    async fn clear_stray_cgroups(&self) {
        let (mut pods, mut containers) = (BTreeSet::new(), BTreeSet::new());
        {
            let table = self.table();
            for entry in table.sandboxes.values() {
                let Ok(pod) = self.pod_cgroup(&entry.record.config) else { continue };
                containers.extend(table.of_sandbox(&entry.record.id).iter().map(|id| pod.join(id.as_str())));
                pods.insert(pod);
            }
        }
        for stray in self.cgroups.strays(&pods, &containers) {
            if let Err(error) = self.clear_cgroup(&stray).await {
                tracing::warn!(%error, cgroup = %stray.display(), "an unfinished cgroup stays until the next start");
            }
        }
    }

    fn connected_sandboxes(&self) -> Vec<SandboxId> {
        let table = self.table();
        table.sandboxes.values().filter(|entry| entry.shim.is_some()).map(|entry| entry.record.id.clone()).collect()
    }

    async fn take_up(self: &Arc<Self>, record: SandboxRecord) -> io::Result<()> {
        let id = record.id.clone();
        let was_ready = record.state == SandboxState::Ready;
        let entry = SandboxEntry { record, shim: None, gate: Arc::new(Mutex::new(())) };
        self.table().sandboxes.insert(id.clone(), entry);
        self.read_containers(&id)?;
        if !was_ready {
            // What has no exit record lost its monitor, and was not told of it by this engine.
            self.end_lost(&id);
            self.clear_strangers(&id, Vec::new()).await;
            return Ok(());
        }
        let shim = shim_client::reconnect(&self.dirs.run(&id)).and_then(|stream| self.listen(&id, stream));
        let Ok(shim) = shim else {
            self.lose(&id).await;
            self.clear_strangers(&id, Vec::new()).await;
            return Ok(());
        };
        // Connected first, so that no exit falls between the question and the answer.
        if let Some(entry) = self.table().sandboxes.get_mut(&id) {
            entry.shim = Some(shim.clone());
        }
        match settled(&shim).await {
            Ok(states) => self.compare(&id, states).await,
            Err(_) => self.on_shim_gone(&id).await,
        }
        Ok(())
    }

    fn end_lost(&self, sandbox: &SandboxId) {
        let mut table = self.table();
        for id in table.of_sandbox(sandbox) {
            if let Some(entry) = table.containers.get_mut(&id) {
                entry.end(entry.stage.clone().lost());
            }
        }
    }

    /// Containers as the disk knows them; without an exit record they are
    /// unknown until the shim says otherwise.
    fn read_containers(&self, sandbox: &SandboxId) -> io::Result<()> {
        for id in names(&self.dirs.containers(sandbox))?.into_iter().map(ContainerId) {
            let dir = self.dirs.container(sandbox, &id);
            let Some(record) = record::read::<ContainerRecord>(&dir, records::CONTAINER)? else {
                continue;
            };
            let start = record::read::<Start>(&dir, wire::START_RECORD)?;
            let stage = match (record::read::<Exit>(&dir, wire::EXIT_RECORD)?, &start) {
                (Some(exit), _) => Stage::ended(exit),
                (None, Some(start)) => Stage::Running { started_at_ns: start.at_ns },
                (None, None) => Stage::Created,
            };
            let mut entry = ContainerEntry::new(record, stage);
            entry.user = start.and_then(|start| start.user);
            self.table().containers.insert(id, entry);
        }
        Ok(())
    }

    /// What the shim has against what the records say.
    async fn compare(self: &Arc<Self>, sandbox: &SandboxId, states: Vec<wire::ContainerState>) {
        let mut strangers = Vec::new();
        {
            let mut table = self.table();
            for id in table.of_sandbox(sandbox) {
                let Some(entry) = table.containers.get_mut(&id) else { continue };
                match states.iter().find(|state| state.id == id.0).map(|state| state.state.clone()) {
                    Some(wire::Stage::Exited(exit)) => entry.end(Stage::ended(exit)),
                    Some(wire::Stage::Running { started_at_ns, .. }) if !entry.is_over() => {
                        entry.stage = Stage::Running { started_at_ns };
                    }
                    Some(_) => {}
                    // Without a start record: the record was faster than the shim.
                    None => entry.end(entry.stage.clone().lost()),
                }
            }
            strangers.extend(states.into_iter().map(|state| ContainerId(state.id)));
            strangers.retain(|id| !table.containers.contains_key(id));
        }
        self.clear_strangers(sandbox, strangers).await;
    }

    /// What was begun of containers that were never recorded.
    async fn clear_strangers(self: &Arc<Self>, sandbox: &SandboxId, mut strangers: Vec<ContainerId>) {
        let unrecorded = names(&self.dirs.containers(sandbox)).unwrap_or_default().into_iter().map(ContainerId);
        strangers.extend(unrecorded.filter(|id| !self.table().containers.contains_key(id)));
        for id in strangers {
            tracing::warn!(container = %id, "removing a container that was never finished");
            if let Err(error) = self.drop_container(sandbox, &id).await {
                tracing::warn!(%error, container = %id, "an unfinished container could not be removed");
            }
        }
    }

    /// The shim's connection has ended. If nobody asked for that, it died.
    pub(crate) async fn on_shim_gone(self: &Arc<Self>, id: &SandboxId) {
        let lost = self.table().sandboxes.get_mut(id).and_then(|entry| entry.shim.take());
        if lost.is_some() {
            tracing::error!(sandbox = %id, "the sandbox's monitor process has died");
            self.lose(id).await;
        }
    }

    /// Without its shim a sandbox is down: what it left is ended and cleared
    /// away, and what has no exit record ended in an unknown way.
    pub(crate) async fn lose(self: &Arc<Self>, id: &SandboxId) {
        let Some(config) = self.table().sandboxes.get(id).map(|entry| entry.record.config.clone()) else { return };
        // By their directories: one that was still being made is in no table.
        let made = names(&self.dirs.containers(id)).unwrap_or_default();
        for container in &made.into_iter().map(ContainerId).collect::<Vec<_>>() {
            let cleared = match self.pod_cgroup(&config) {
                Ok(cgroup) => self.clear_cgroup(&cgroup.join(container.as_str())).await.map_err(|e| e.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = cleared {
                tracing::warn!(error, %container, "processes of a lost container may still run");
            }
            let exit = record::read::<Exit>(&self.dirs.container(id, container), wire::EXIT_RECORD);
            if let Some(entry) = self.table().containers.get_mut(container) {
                entry.end(exit.ok().flatten().map_or_else(|| entry.stage.clone().lost(), Stage::ended));
            }
        }
        if let Err(CriError::Failed(error)) = self.close_sandbox(id).await {
            tracing::error!(error, sandbox = %id, "the end of a lost sandbox could not be recorded");
        }
        if let Err(error) = self.disconnect(id).await {
            tracing::warn!(%error, sandbox = %id, "network of a lost sandbox stays until the next start");
        }
    }
}

/// What the shim has, once nothing is being made any more: an earlier engine
/// may have asked for a container right before it died.
async fn settled(shim: &Shim) -> Result<Vec<wire::ContainerState>, CriError> {
    for _ in 0..SETTLE_ATTEMPTS {
        match shim.call(Request::State).await? {
            Reply::State(states) if states.iter().any(|state| state.state == wire::Stage::Creating) => {
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
            Reply::State(states) => return Ok(states),
            other => return Err(CriError::Failed(format!("sandbox monitor gave an unexpected answer: {other:?}"))),
        }
    }
    Err(CriError::Failed("the sandbox's monitor process does not finish a container".into()))
}

/// Making a container takes milliseconds, on a machine under heavy load seconds.
const SETTLE_ATTEMPTS: usize = 12_000;
const SETTLE_PAUSE: Duration = Duration::from_millis(5);

/// Names of the directories in `dir`; none if it is not there.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}
