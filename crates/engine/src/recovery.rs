//! Taking up what an earlier engine left, and what happens when a shim dies.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::{ContainerId, CriError, SandboxId, SandboxState};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use shim::record;
use shim::wire::{self, Exit, Reply, Request, Start};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::config::{EngineError, io_at};
use crate::engine::{Inner, blocking};
use crate::records::{self, ContainerRecord, SandboxRecord};
use crate::remains;
use crate::shim_client::{self, Shim};
use crate::table::{ContainerEntry, SandboxEntry, Stage, Table};

impl Inner {
    /// Reads every record, finds the shims again, learns what ended meanwhile
    /// and clears away what was never finished.
    pub(crate) async fn recover(self: &Arc<Self>) -> Result<(), EngineError> {
        let root = self.dirs.sandboxes().to_owned();
        let mut unfinished = names(self.dirs.runs()).map_err(io_at(self.dirs.runs()))?;
        let mut settling = JoinSet::new();
        for id in names(&root).map_err(io_at(&root))?.into_iter().map(SandboxId) {
            let dir = self.dirs.sandbox(&id);
            let read = readable(record::read::<SandboxRecord>(&dir, records::SANDBOX), &dir, records::SANDBOX);
            match read.map_err(io_at(&dir.join(records::SANDBOX)))? {
                Some(record) if record.id == id => {
                    unfinished.retain(|name| *name != id.0);
                    self.take_up(record, &mut settling).map_err(io_at(&dir))?;
                }
                // What cannot be read costs this pod its sandbox, not the node its pods.
                Some(_) | None => unfinished.push(id.0),
            }
        }
        // Side by side, and who takes long goes on alone: a slow monitor is not
        // a dead one, and no other pod waits for it.
        let all = async { while settling.join_next().await.is_some() {} };
        if tokio::time::timeout(SETTLE_WAIT, all).await.is_err() {
            tracing::warn!(sandboxes = settling.len(), "sandboxes whose monitors do not answer yet are taken up later");
            settling.detach_all();
        }
        self.clear_unfinished(unfinished.into_iter().map(SandboxId).collect()).await;
        self.clear_stray_cgroups().await;
        let known: Vec<SandboxId> = self.connected_sandboxes();
        self.network.reconcile(&known).await.map_err(EngineError::Network)?;
        self.publish_ports().await.map_err(EngineError::Network)
    }

    /// Sandboxes that nobody knows of any more. Their monitors are not asked: no
    /// record says which process one is, and one that is stuck would stay.
    async fn clear_unfinished(self: &Arc<Self>, unfinished: BTreeSet<SandboxId>) {
        let mut clearing = JoinSet::new();
        for id in unfinished {
            tracing::warn!(sandbox = %id, "removing a sandbox that was never finished");
            let inner = self.clone();
            clearing.spawn(async move {
                let run = inner.dirs.run(&id);
                if let Ok(monitors @ 1..) = blocking(move || remains::kill_monitors(&run)).await {
                    tracing::warn!(sandbox = %id, monitors, "killed a monitor process that nobody knew of");
                }
                inner.unmake_sandbox(&id, None).await;
            });
        }
        let all = async { while clearing.join_next().await.is_some() {} };
        if tokio::time::timeout(SETTLE_WAIT, all).await.is_err() {
            tracing::warn!(sandboxes = clearing.len(), "unfinished sandboxes are still being removed");
            clearing.detach_all();
        }
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

    fn take_up(self: &Arc<Self>, record: SandboxRecord, settling: &mut JoinSet<()>) -> io::Result<()> {
        let id = record.id.clone();
        let (was_ready, shim_pid) = (record.state == SandboxState::Ready, record.shim_pid);
        let entry = SandboxEntry { record, shim: None, gate: Arc::new(Mutex::new(())) };
        self.table().sandboxes.insert(id.clone(), entry);
        self.read_containers(&id)?;
        if !was_ready {
            // What has no exit record lost its monitor, and was not told of it by this engine.
            self.end_lost(&id);
        }
        let stream = was_ready.then(|| shim_client::reconnect(&self.dirs.run(&id)));
        let is_busy = matches!(&stream, Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock);
        let shim = stream.and_then(|stream| stream.and_then(|stream| self.listen(&id, stream)).ok());
        // Connected first, so that no exit falls between the question and the answer.
        if let Some(entry) = self.table().sandboxes.get_mut(&id) {
            entry.shim = shim.clone();
        }
        let unstarted = self.unstarted(&id);
        let inner = self.clone();
        settling.spawn(async move {
            match shim {
                Some(shim) => inner.settle(&id, &shim, &unstarted).await,
                None if is_busy => inner.await_monitor(&id, &unstarted).await,
                None => {
                    match was_ready {
                        true => inner.lose(&id).await,
                        // It was given up, and may have been slow only.
                        false => {
                            kill_monitor(shim_pid, &id);
                        }
                    }
                    inner.clear_strangers(&id, Vec::new()).await;
                }
            }
        });
        Ok(())
    }

    /// It takes no connections at the moment: slow, not gone.
    async fn await_monitor(self: &Arc<Self>, id: &SandboxId, unstarted: &[ContainerId]) {
        let stream = shim_client::reconnect_when_free(&self.dirs.run(id)).await;
        let shim = stream.and_then(|stream| self.listen(id, stream));
        let Some(gate) = self.gate(id) else { return };
        let alone = gate.lock().await;
        let is_ready = |entry: &SandboxEntry| entry.record.state == SandboxState::Ready && entry.shim.is_none();
        if !self.table().sandboxes.get(id).is_some_and(is_ready) {
            return;
        }
        let Ok(shim) = shim else { return self.lose(id).await };
        if let Some(entry) = self.table().sandboxes.get_mut(id) {
            entry.shim = Some(shim.clone());
        }
        drop(alone);
        self.settle(id, &shim, unstarted).await;
    }

    /// Those that are recorded as made, or as being made.
    fn unstarted(&self, sandbox: &SandboxId) -> Vec<ContainerId> {
        let table = self.table();
        let is_unstarted = |id: &ContainerId| table.containers.get(id).is_some_and(|it| it.stage == Stage::Created);
        table.of_sandbox(sandbox).into_iter().filter(is_unstarted).collect()
    }

    /// Learns what the shim has, whenever it answers. If it dies meanwhile, its
    /// connection tells, and whoever makes a new one learns it.
    async fn settle(self: &Arc<Self>, id: &SandboxId, shim: &Shim, unstarted: &[ContainerId]) {
        let is_connected = || self.table().sandboxes.get(id).is_some_and(|entry| entry.shim.is_some());
        while is_connected() && !shim.is_lost() {
            match shim.call(Request::State).await {
                Ok(Reply::State(states)) => return self.compare(id, states, unstarted).await,
                Ok(_) => tracing::warn!(sandbox = %id, "the sandbox's monitor process gave an unexpected answer"),
                Err(error) => tracing::warn!(%error, sandbox = %id, "the sandbox's monitor process cannot be asked"),
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
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
            let record = readable(record::read::<ContainerRecord>(&dir, records::CONTAINER), &dir, records::CONTAINER)?;
            // Without a record it is a stranger, and cleared away as such.
            let Some(record) = record.filter(|record| record.id == id && record.sandbox == *sandbox) else {
                continue;
            };
            let start = readable(record::read::<Start>(&dir, wire::START_RECORD), &dir, wire::START_RECORD)?;
            let exit = readable(record::read::<Exit>(&dir, wire::EXIT_RECORD), &dir, wire::EXIT_RECORD)?;
            let stage = match (exit, &start) {
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

    /// What the shim has against what the records say. What it is still making
    /// an earlier engine asked for right before it died: nobody waits for it.
    /// Nor for what it was never asked for, of those that were `unstarted`.
    async fn compare(
        self: &Arc<Self>,
        sandbox: &SandboxId,
        states: Vec<wire::ContainerState>,
        unstarted: &[ContainerId],
    ) {
        let is_unknown = |id: &&ContainerId| !states.iter().any(|state| state.id == id.0);
        let mut strangers: Vec<ContainerId> = unstarted.iter().filter(is_unknown).cloned().collect();
        {
            let mut table = self.table();
            learn(&mut table, sandbox, &states);
            let is_stranger = |state: &wire::ContainerState| {
                state.state == wire::Stage::Creating || !table.containers.contains_key(&ContainerId(state.id.clone()))
            };
            let unknown = states.into_iter().filter(is_stranger);
            strangers.extend(unknown.map(|state| ContainerId(state.id)));
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

    /// The shim's connection has ended. If nobody asked for that, the shim has
    /// died, or it has cut us off: then there is another connection to be had.
    pub(crate) async fn settle_loss(self: &Arc<Self>, id: &SandboxId) {
        let settled = self.panics.caught("lost_monitor", self.on_shim_lost(id)).await;
        if settled.is_some() {
            return;
        }
        // Neither connected nor down would be nobody's: down, then.
        let is_lost = |shim: &mut Shim| shim.is_lost();
        let lost = self.table().sandboxes.get_mut(id).and_then(|entry| entry.shim.take_if(is_lost));
        if lost.is_some() {
            self.panics.caught("lost_monitor", self.lose(id)).await;
        }
    }

    async fn on_shim_lost(self: &Arc<Self>, id: &SandboxId) {
        let Some(gate) = self.gate(id) else { return };
        let _alone = gate.lock().await;
        let is_lost = |shim: &Shim| shim.is_lost();
        if !self.table().sandboxes.get(id).is_some_and(|entry| entry.shim.as_ref().is_some_and(is_lost)) {
            return;
        }
        for _ in 0..RECONNECTIONS_MAX {
            // The socket of a dead process refuses.
            let stream = shim_client::reconnect_when_free(&self.dirs.run(id)).await;
            let Ok(shim) = stream.and_then(|stream| self.listen(id, stream)) else { break };
            if let Ok(Reply::State(states)) = shim.call(Request::State).await {
                tracing::warn!(sandbox = %id, "the sandbox's monitor process had cut the connection; there is a new one");
                return self.take_on(id, shim, &states);
            }
        }
        let lost = self.table().sandboxes.get_mut(id).and_then(|entry| entry.shim.take());
        if lost.is_some() {
            tracing::error!(sandbox = %id, "the sandbox's monitor process has died");
            self.lose(id).await;
        }
    }

    /// A new connection, and what happened since the last one ended. Containers
    /// that were being made meanwhile are for those who make them.
    fn take_on(&self, id: &SandboxId, shim: Shim, states: &[wire::ContainerState]) {
        let mut table = self.table();
        let Some(entry) = table.sandboxes.get_mut(id) else { return };
        entry.shim = Some(shim);
        let pod_uid = entry.record.config.meta.uid.clone();
        learn(&mut table, id, states);
        drop(table);
        self.announce(&pod_uid);
    }

    /// Without its shim a sandbox is down: what it left is ended and cleared
    /// away, and what has no exit record ended in an unknown way.
    pub(crate) async fn lose(self: &Arc<Self>, id: &SandboxId) {
        let record = self.table().sandboxes.get(id).map(|entry| entry.record.clone());
        let Some(SandboxRecord { config, shim_pid, .. }) = record else { return };
        // Should it only be slow: nobody will ever ask it again.
        if kill_monitor(shim_pid, id) {
            tracing::warn!(sandbox = %id, pid = shim_pid, "killed a monitor process that could not be used");
        }
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

/// What is usual takes milliseconds; then the node begins its work.
const SETTLE_WAIT: Duration = Duration::from_secs(5);
const SETTLE_PAUSE: Duration = Duration::from_secs(1);

/// What a shim knows of its containers.
fn learn(table: &mut Table, sandbox: &SandboxId, states: &[wire::ContainerState]) {
    for id in table.of_sandbox(sandbox) {
        let Some(entry) = table.containers.get_mut(&id) else { continue };
        match states.iter().find(|state| state.id == id.0).map(|state| state.state.clone()) {
            Some(wire::Stage::Exited(exit)) => entry.end(Stage::ended(exit)),
            Some(wire::Stage::Running { started_at_ns, .. }) if !entry.is_over() => {
                entry.stage = Stage::Running { started_at_ns };
            }
            // Whoever asked for it is gone.
            Some(wire::Stage::Creating) => entry.end(entry.stage.clone().lost()),
            Some(_) => {}
            // Without a start record: the record was faster than the shim.
            None => entry.end(entry.stage.clone().lost()),
        }
    }
}

/// Connections that are tried before a shim that takes them and hangs up counts as dead.
const RECONNECTIONS_MAX: usize = 5;

/// Kills the process of this number if it is the sandbox's monitor.
fn kill_monitor(pid: i32, id: &SandboxId) -> bool {
    let Some(number) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else { return false };
    // Held before we look: a number can become somebody else's.
    let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { return false };
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_it = words.split(|byte| *byte == 0).any(|word| word == id.as_str().as_bytes());
    is_it && pidfd_send_signal(process, Signal::KILL).is_ok()
}

/// A damaged record counts as none: it costs what it was about. An error of the
/// machine (no descriptors, no memory) is not about one container.
fn readable<T>(read: io::Result<Option<T>>, dir: &Path, name: &str) -> io::Result<Option<T>> {
    match read {
        Err(error) if record::is_damage(&error) => {
            tracing::error!(%error, record = %dir.join(name).display(), "a damaged record: what it is about is lost");
            Ok(None)
        }
        read => read,
    }
}

/// Names of the directories in `dir`; none if it is not there.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_monitor_of_this_very_sandbox_is_killed() {
        let id = SandboxId("5".repeat(64));
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let number = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        assert!(!kill_monitor(number(&other), &id), "somebody else has this number now");
        other.kill().unwrap();
        other.wait().unwrap();
        for nobody in [0, -1, number(&other)] {
            assert!(!kill_monitor(nobody, &id));
        }
        let mut monitor = std::process::Command::new("sh");
        monitor.args(["-c", "echo up; read line", id.as_str()]);
        monitor.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut monitor = monitor.spawn().unwrap();
        // Its words are there once it speaks.
        std::io::Read::read_exact(monitor.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
        assert!(kill_monitor(number(&monitor), &id));
        assert!(!monitor.wait().unwrap().success());
    }
}
