//! An in-memory runtime: containers are records, exits are scripted.
//!
//! Sleeps only with `tokio::time`, so a paused clock governs it; timestamps
//! come from the given `Clock`. Behaves as the contract in `runtime.rs` says,
//! unless a fault was ordered with [`Fake::fail_next`].
//!
//! ```
//! # use ambient::{Clock, Ids, Rng};
//! use cri::fake::{Fake, Run};
//! let runtime = Fake::new(Clock::manual(), Ids::new(Rng::seeded(1)));
//! runtime.add_image("busybox:1.36");
//! runtime.script("app", Run::exits(std::time::Duration::from_secs(3), 1));
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ambient::{Clock, Ids, Timestamp};
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::{broadcast, watch};

use crate::{
    AttachRequest, Connection, Container, ContainerConfig, ContainerId, ContainerState, ContainerStats, CriError,
    ExecRequest, ExecResult, Image, ImageFs, NamespaceMode, RegistryAuth, Resources, Runtime, RuntimeEvent,
    RuntimeVersion, Sandbox, SandboxConfig, SandboxId, SandboxState, SandboxStats, Session, Streaming,
};

mod exec;
mod images;
mod streams;
mod usage;

pub use exec::Exec;
use images::{image_named, is_named};

/// How one instance of a container behaves once started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Ends by itself this long after its start, with this code.
    pub exit: Option<(Duration, i32)>,
    /// Time it takes to end after the stop signal; `None` ignores the signal.
    pub stops_in: Option<Duration>,
    /// Its exit code when the stop signal ended it.
    pub stop_code: i32,
    /// Not even KILL ends it, as nothing ends a process that waits for a broken disk.
    pub survives_kill: bool,
}

impl Run {
    /// Runs until stopped, and stops at once.
    pub fn forever() -> Self {
        Self { exit: None, stops_in: Some(Duration::ZERO), stop_code: 143, survives_kill: false }
    }

    /// Ends by itself.
    pub fn exits(after: Duration, code: i32) -> Self {
        Self { exit: Some((after, code)), ..Self::forever() }
    }

    /// Runs until killed.
    pub fn stubborn() -> Self {
        Self { stops_in: None, ..Self::forever() }
    }

    /// Runs until [`Fake::exit`].
    pub fn deathless() -> Self {
        Self { survives_kill: true, ..Self::stubborn() }
    }
}

/// The verbs that can be told to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Version,
    RunSandbox,
    StopSandbox,
    RemoveSandbox,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    Exec,
    ReopenLog,
    List,
    Image,
    PullImage,
}

/// The runtime itself. Clones share one world, so a test can keep one end.
#[derive(Clone)]
pub struct Fake {
    clock: Clock,
    ids: Ids,
    world: Arc<Mutex<World>>,
    events: broadcast::Sender<RuntimeEvent>,
}

#[derive(Default)]
struct World {
    sandboxes: Vec<Sandbox>,
    log_directories: BTreeMap<SandboxId, PathBuf>,
    containers: Vec<Held>,
    images: BTreeMap<String, Image>,
    pullable: Option<Vec<String>>,
    endless: Vec<String>,
    scripts: BTreeMap<String, VecDeque<Run>>,
    execs: BTreeMap<String, VecDeque<Exec>>,
    faults: BTreeMap<Verb, VecDeque<CriError>>,
    calls: Vec<String>,
    addresses_given: u8,
    is_silent: bool,
    handlers: Vec<String>,
}

struct Held {
    record: Container,
    config: ContainerConfig,
    run: Run,
    over: watch::Sender<bool>,
}

/// Wake-up calls a slow listener may fall behind; a missed one is harmless.
const EVENT_BUFFER: usize = 4096;

impl Fake {
    pub fn new(clock: Clock, ids: Ids) -> Self {
        Self { clock, ids, world: Arc::default(), events: broadcast::channel(EVENT_BUFFER).0 }
    }

    /// Makes an image present.
    pub fn add_image(&self, reference: &str) {
        let image = image_named(reference);
        self.world().images.insert(reference.to_owned(), image);
    }

    /// From now on only these references can be pulled (default: all).
    pub fn pullable(&self, references: &[&str]) {
        self.world().pullable = Some(references.iter().map(|&reference| reference.to_owned()).collect());
    }

    /// From now on a pull of this reference never ends by itself.
    pub fn pulls_for_ever(&self, reference: &str) {
        self.world().endless.push(reference.to_owned());
    }

    /// Scripts the next start of a container of this name; starts without a
    /// script run for ever.
    pub fn script(&self, container: &str, run: Run) {
        self.world().scripts.entry(container.to_owned()).or_default().push_back(run);
    }

    /// Lets the next call of `verb` fail.
    pub fn fail_next(&self, verb: Verb, error: CriError) {
        self.world().faults.entry(verb).or_default().push_back(error);
    }

    /// Every changing call so far: `run_sandbox web/0`, `start app/1`, …
    pub fn calls(&self) -> Vec<String> {
        self.world().calls.clone()
    }

    /// The configuration the newest instance of a container was created with.
    pub fn config_of(&self, container: &str) -> Option<ContainerConfig> {
        self.world().containers.iter().find(|held| held.record.name == container).map(|held| held.config.clone())
    }

    /// Ends the running instance of a container from outside.
    pub fn exit(&self, container: &str, code: i32) {
        let id = self.world().running(container);
        if let Some(id) = id {
            self.finish(&id, code);
        }
    }

    /// Another way to run pods, besides the usual one.
    pub fn add_handler(&self, name: &str) {
        self.world().handlers.push(name.to_owned());
    }

    /// Wake-up calls are lost from now on.
    pub fn be_silent(&self) {
        self.world().is_silent = true;
    }

    /// The node rebooted: nothing runs any more, records remain.
    pub fn reboot(&self) {
        let ids: Vec<_> = self.world().containers.iter().map(|held| held.record.id.clone()).collect();
        for id in ids {
            self.finish(&id, 255);
        }
        for sandbox in &mut self.world().sandboxes {
            sandbox.state = SandboxState::NotReady;
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("the fake world is never poisoned: no code panics while holding it")
    }

    fn wall(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn announce(&self, pod_uid: &str) {
        // Nobody listening is fine: whoever comes later takes a snapshot.
        if !self.world().is_silent {
            let _ = self.events.send(RuntimeEvent { pod_uid: pod_uid.to_owned() });
        }
    }

    fn finish(&self, id: &ContainerId, code: i32) {
        let wall = self.wall();
        let pod_uid = {
            let mut world = self.world();
            let Some(held) = world.held(id) else { return };
            if held.record.state != ContainerState::Running {
                return;
            }
            held.record.state = ContainerState::Exited;
            held.record.finished_at = Some(wall);
            held.record.exit_code = code;
            held.record.reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
            held.over.send_replace(true);
            held.record.pod_uid.clone()
        };
        self.announce(&pod_uid);
    }

    fn finish_later(&self, id: &ContainerId, after: Duration, code: i32) {
        if after.is_zero() {
            return self.finish(id, code);
        }
        let (fake, id) = (self.clone(), id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            fake.finish(&id, code);
        });
    }
}

impl World {
    fn held(&mut self, id: &ContainerId) -> Option<&mut Held> {
        self.containers.iter_mut().find(|held| held.record.id == *id)
    }

    fn running(&self, name: &str) -> Option<ContainerId> {
        let is_it = |held: &&Held| held.record.name == name && held.record.state == ContainerState::Running;
        self.containers.iter().find(is_it).map(|held| held.record.id.clone())
    }

    fn fault(&mut self, verb: Verb) -> Result<(), CriError> {
        self.faults.get_mut(&verb).and_then(VecDeque::pop_front).map_or(Ok(()), Err)
    }

    fn address(&mut self, network: NamespaceMode) -> Vec<IpAddr> {
        if network == NamespaceMode::Node {
            return Vec::new();
        }
        self.addresses_given = self.addresses_given.wrapping_add(1);
        vec![IpAddr::V4(Ipv4Addr::new(10, 88, 0, self.addresses_given))]
    }
}

#[async_trait]
impl Runtime for Fake {
    async fn version(&self) -> Result<RuntimeVersion, CriError> {
        self.world().fault(Verb::Version)?;
        Ok(RuntimeVersion { name: "podium".to_owned(), version: "fake".to_owned() })
    }

    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId, CriError> {
        let id = SandboxId(self.ids.hex64());
        let created_at = self.wall();
        let uid = config.meta.uid.clone();
        {
            let mut world = self.world();
            world.calls.push(format!("run_sandbox {}/{}", config.meta.name, config.meta.attempt));
            world.fault(Verb::RunSandbox)?;
            let handler = &config.runtime_handler;
            if !handler.is_empty() && !world.handlers.contains(handler) {
                return Err(CriError::Invalid(format!("no runtime for {handler:?} is configured")));
            }
            let ips = world.address(config.network);
            world.log_directories.insert(id.clone(), config.log_directory);
            let sandbox = Sandbox {
                id: id.clone(),
                meta: config.meta,
                state: SandboxState::Ready,
                created_at,
                network: config.network,
                ips,
                labels: config.labels,
                annotations: config.annotations,
            };
            world.sandboxes.insert(0, sandbox);
        }
        self.announce(&uid);
        Ok(id)
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        let (inside, uid) = {
            let mut world = self.world();
            world.calls.push("stop_sandbox".to_owned());
            world.fault(Verb::StopSandbox)?;
            let inside: Vec<_> = world
                .containers
                .iter()
                .filter(|held| held.record.sandbox == *id)
                .map(|held| held.record.id.clone())
                .collect();
            let Some(sandbox) = world.sandboxes.iter_mut().find(|sandbox| sandbox.id == *id) else { return Ok(()) };
            sandbox.state = SandboxState::NotReady;
            (inside, sandbox.meta.uid.clone())
        };
        for container in inside {
            self.finish(&container, 137);
        }
        self.announce(&uid);
        Ok(())
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        self.stop_sandbox(id).await?;
        let mut world = self.world();
        world.calls.push("remove_sandbox".to_owned());
        world.fault(Verb::RemoveSandbox)?;
        world.sandboxes.retain(|sandbox| sandbox.id != *id);
        world.containers.retain(|held| held.record.sandbox != *id);
        Ok(())
    }

    async fn sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<Sandbox>, CriError> {
        let mut world = self.world();
        world.fault(Verb::List)?;
        let is_wanted = |sandbox: &&Sandbox| pod_uid.is_none_or(|uid| sandbox.meta.uid == uid);
        Ok(world.sandboxes.iter().filter(is_wanted).cloned().collect())
    }

    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId, CriError> {
        let id = ContainerId(self.ids.hex64());
        let created_at = self.wall();
        let mut world = self.world();
        world.calls.push(format!("create {}/{}", config.name, config.attempt));
        world.fault(Verb::CreateContainer)?;
        let missing = || CriError::NotFound { what: "sandbox", id: sandbox.0.clone() };
        let owner = world.sandboxes.iter().find(|known| known.id == *sandbox).ok_or_else(missing)?;
        if owner.state != SandboxState::Ready {
            return Err(CriError::Failed(format!("sandbox {sandbox} is not ready")));
        }
        let pod_uid = owner.meta.uid.clone();
        let no_image = || CriError::NotFound { what: "image", id: config.image.clone() };
        let image = world.images.get(&config.image).cloned().ok_or_else(no_image)?;
        let run = world.scripts.get_mut(&config.name).and_then(VecDeque::pop_front).unwrap_or_else(Run::forever);
        let mut record = created(&id, sandbox, pod_uid, &config, &image, created_at);
        record.log_path =
            world.log_directories.get(sandbox).map_or_else(PathBuf::new, Clone::clone).join(record.log_path);
        let uid = record.pod_uid.clone();
        world.containers.insert(0, Held { record, config, run, over: watch::Sender::new(false) });
        drop(world);
        self.announce(&uid);
        Ok(id)
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), CriError> {
        let wall = self.wall();
        let (run, uid) = {
            let mut world = self.world();
            let fault = world.fault(Verb::StartContainer);
            let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
            let held = world.held(id).ok_or_else(missing)?;
            if held.record.state != ContainerState::Created {
                return Err(CriError::Invalid(format!("container {id} is not in created state")));
            }
            let call = format!("start {}/{}", held.record.name, held.record.attempt);
            if let Err(error) = fault {
                not_started(&mut held.record, wall, &error);
                world.calls.push(call);
                return Err(error);
            }
            held.record.state = ContainerState::Running;
            held.record.started_at = Some(wall);
            let told = (held.run.clone(), held.record.pod_uid.clone());
            world.calls.push(call);
            told
        };
        self.announce(&uid);
        if let Some((after, code)) = run.exit {
            self.finish_later(id, after, code);
        }
        Ok(())
    }

    async fn stop_container(&self, id: &ContainerId, timeout: Duration) -> Result<(), CriError> {
        let (run, mut over) = {
            let mut world = self.world();
            let fault = world.fault(Verb::StopContainer);
            let Some(held) = world.held(id) else { return Ok(()) };
            let call = format!("stop {}/{} {}s", held.record.name, held.record.attempt, timeout.as_secs());
            let told = (held.run.clone(), held.over.subscribe());
            let is_running = held.record.state == ContainerState::Running;
            world.calls.push(call);
            fault?;
            if !is_running {
                return Ok(());
            }
            told
        };
        if let Some(stops_in) = run.stops_in {
            self.finish_later(id, stops_in, run.stop_code);
        }
        let is_over = tokio::time::timeout(timeout, over.wait_for(|is_over| *is_over)).await.is_ok();
        if !is_over && run.survives_kill {
            let _ = over.wait_for(|is_over| *is_over).await;
        } else if !is_over {
            self.finish(id, 137);
        }
        Ok(())
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), CriError> {
        self.finish(id, 137);
        let mut world = self.world();
        world.fault(Verb::RemoveContainer)?;
        if let Some(held) = world.held(id) {
            let call = format!("remove {}/{}", held.record.name, held.record.attempt);
            world.calls.push(call);
        }
        world.containers.retain(|held| held.record.id != *id);
        Ok(())
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecResult, CriError> {
        self.run_command(id, &command, timeout).await
    }

    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Streaming<Session>, CriError> {
        self.exec_session(id, &request).map(Streaming::Here)
    }

    async fn attach(&self, id: &ContainerId, request: AttachRequest) -> Result<Streaming<Session>, CriError> {
        self.attach_session(id, request).map(Streaming::Here)
    }

    async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<Streaming<Box<dyn Connection>>, CriError> {
        self.connection(id, port).map(Streaming::Here)
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), CriError> {
        self.over_if_running(id)?;
        let mut world = self.world();
        let Some(held) = world.held(id) else { return Err(CriError::NotRunning { id: id.0.clone() }) };
        let call = format!("reopen_log {}/{}", held.record.name, held.record.attempt);
        world.calls.push(call);
        world.fault(Verb::ReopenLog)
    }

    async fn update_container(&self, id: &ContainerId, resources: Resources) -> Result<(), CriError> {
        self.limit_container(id, resources)
    }

    async fn update_sandbox(&self, id: &SandboxId, resources: Resources) -> Result<(), CriError> {
        self.limit_sandbox(id, &resources)
    }

    async fn container_stats(&self, pod_uid: Option<&str>) -> Result<Vec<ContainerStats>, CriError> {
        Ok(self.used_by_containers(pod_uid))
    }

    async fn sandbox_stats(&self, pod_uid: Option<&str>) -> Result<Vec<SandboxStats>, CriError> {
        Ok(self.used_by_sandboxes(pod_uid))
    }

    async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<Container>, CriError> {
        let mut world = self.world();
        world.fault(Verb::List)?;
        let is_wanted = |held: &&Held| pod_uid.is_none_or(|uid| held.record.pod_uid == uid);
        Ok(world.containers.iter().filter(is_wanted).map(|held| held.record.clone()).collect())
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        let next = |mut events: broadcast::Receiver<RuntimeEvent>| async move {
            loop {
                match events.recv().await {
                    Ok(event) => return Some((event, events)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        };
        futures::stream::unfold(self.events.subscribe(), next).boxed()
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>, CriError> {
        let mut world = self.world();
        world.fault(Verb::Image)?;
        let found = world.images.get(reference);
        Ok(found.or_else(|| world.images.values().find(|image| is_named(image, reference))).cloned())
    }

    async fn images(&self) -> Result<Vec<Image>, CriError> {
        Ok(self.world().images.values().cloned().collect())
    }

    async fn pull_image(&self, reference: &str, auth: Option<RegistryAuth>) -> Result<Image, CriError> {
        let is_endless = {
            let mut world = self.world();
            let credentials = if auth.is_some() { " with credentials" } else { "" };
            world.calls.push(format!("pull {reference}{credentials}"));
            world.fault(Verb::PullImage)?;
            world.endless.iter().any(|endless| endless == reference)
        };
        if is_endless {
            std::future::pending::<()>().await;
        }
        let mut world = self.world();
        if world.pullable.as_ref().is_some_and(|known| !known.iter().any(|known| known == reference)) {
            return Err(CriError::NotFound { what: "image", id: reference.to_owned() });
        }
        let image = image_named(reference);
        world.images.insert(reference.to_owned(), image.clone());
        Ok(image)
    }

    async fn remove_image(&self, reference: &str) -> Result<(), CriError> {
        self.world().images.retain(|name, image| name != reference && !is_named(image, reference));
        Ok(())
    }

    async fn image_fs(&self) -> Result<ImageFs, CriError> {
        Ok(self.used_by_images())
    }
}

fn created(
    id: &ContainerId,
    sandbox: &SandboxId,
    pod_uid: String,
    config: &ContainerConfig,
    image: &Image,
    created_at: Timestamp,
) -> Container {
    Container {
        id: id.clone(),
        sandbox: sandbox.clone(),
        pod_uid,
        name: config.name.clone(),
        attempt: config.attempt,
        state: ContainerState::Created,
        created_at,
        started_at: None,
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: config.image.clone(),
        image_ref: image.repo_digests.first().unwrap_or(&image.id).clone(),
        log_path: config.log_path.clone(),
        mounts: config.mounts.clone(),
        resources: Some(config.resources.clone()),
        user: None,
        stop_signal: Some(config.stop_signal.clone().unwrap_or_else(|| "SIGTERM".to_owned())),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
    }
}

fn not_started(record: &mut Container, wall: Timestamp, error: &CriError) {
    record.state = ContainerState::Exited;
    record.finished_at = Some(wall);
    record.exit_code = 128;
    record.reason = "StartError".to_owned();
    record.message = error.to_string();
}

#[cfg(test)]
mod tests;
