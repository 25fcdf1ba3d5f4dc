//! One instance of the engine: opening it, the verbs of the contract, taking
//! everything down.

use std::fs::DirBuilder;
use std::future::Future;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ambient::{Clock, Ids, Panics};
use async_trait::async_trait;
use cri::{
    AttachRequest, Connection, Container, ContainerConfig, ContainerId, ContainerStats, CriError, ExecRequest,
    ExecResult, Image, ImageFs, RegistryAuth, Resources, Runtime, RuntimeEvent, RuntimeVersion, Sandbox, SandboxConfig,
    SandboxId, SandboxStats, Session, Streaming,
};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast;

use crate::cgroups::Cgroups;
use crate::config::{Config, EngineError, io_at};
use crate::images::{ImageError, Images, PullOptions};
use crate::network::NetworkError;
use crate::pod_network::PodNetwork;
use crate::records::{Dirs, addresses_in_use, layers_in_use};
use crate::rootfs::Snapshots;
use crate::sys::SealedProgram;
use crate::table::Table;
use crate::usage::Disks;

/// The embedded runtime. Dropping it leaves every pod running.
pub struct Engine {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) dirs: Dirs,
    pub(crate) cgroups: Cgroups,
    pub(crate) images: Arc<Images>,
    pub(crate) snapshots: Snapshots,
    pub(crate) network: PodNetwork,
    pub(crate) program: SealedProgram,
    pub(crate) disks: Disks,
    pub(crate) panics: Panics,
    table: Mutex<Table>,
    events: broadcast::Sender<RuntimeEvent>,
}

/// Events a slow listener may be behind before it is told to look at everything.
const EVENTS_MAX: usize = 1024;

pub(crate) const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

impl Engine {
    /// Opens an instance and takes up what an earlier engine left: running
    /// pods are found again, half-made ones are cleared away. Call it within
    /// a tokio runtime.
    pub async fn open(config: Config, clock: Clock, ids: Ids) -> Result<Arc<Engine>, EngineError> {
        let dirs = Dirs::new(&config.root, &config.run_dir);
        for dir in [&config.root, &config.run_dir, dirs.sandboxes(), dirs.runs()] {
            private_dir(dir)?;
        }
        let cgroups = Cgroups::detect(Path::new(CGROUP_MOUNT), &config.cgroup_root).map_err(io_at(CGROUP_MOUNT))?;
        let images = Images::open(config.root.join("images")).map_err(EngineError::Images)?;
        let in_use = || Ok(layers_in_use(&config.root)?.into_iter().flatten().collect());
        if let Err(error) = images.clear_leftovers(in_use) {
            tracing::warn!(%error, "unfinished images stay until the next start");
        }
        let images = Arc::new(images.with_registries(config.registries.clone()));
        let snapshots = config.snapshots.decide(&config.root);
        let network = open_network(&config, &dirs)?;
        let inner = Arc::new(Inner {
            disks: Disks::new(&clock),
            clock,
            ids,
            dirs,
            cgroups,
            images,
            snapshots,
            network,
            program: SealedProgram::open(&config.shim_exe).map_err(io_at(&config.shim_exe))?,
            panics: Panics::default(),
            table: Mutex::new(Table::default()),
            events: broadcast::Sender::new(EVENTS_MAX),
        });
        inner.recover().await?;
        Ok(Arc::new(Engine { inner }))
    }

    /// The store of images: to import, pull and look them up.
    pub fn images(&self) -> &Arc<Images> {
        &self.inner.images
    }

    /// Of the engine's own tasks, for whoever shows them.
    pub fn panics(&self) -> &Panics {
        &self.inner.panics
    }

    /// Ends everything of this instance and removes its traces outside
    /// `root`: pods, cgroups, run directory, bridge. For `podium down`.
    pub async fn destroy(&self) -> Result<(), EngineError> {
        let inner = &self.inner;
        let ids: Vec<SandboxId> = inner.table().sandboxes.keys().cloned().collect();
        let removals = ids.iter().map(|id| inner.remove_sandbox(id));
        for failure in futures::future::join_all(removals).await.into_iter().filter_map(Result::err) {
            tracing::warn!(%failure, "sandbox could not be removed in an orderly way");
        }
        let path = inner.cgroups.instance().to_owned();
        inner.clear_cgroup(&path).await.map_err(io_at(&path))?;
        inner.network.destroy().await.map_err(EngineError::Network)?;
        for dir in [inner.dirs.runs(), inner.dirs.sandboxes()] {
            trees::remove(dir).map_err(io_at(dir))?;
        }
        Ok(())
    }
}

/// A list of addresses that cannot be read is made again of what sandboxes have.
fn open_network(config: &Config, dirs: &Dirs) -> Result<PodNetwork, EngineError> {
    match PodNetwork::open(config) {
        Err(NetworkError::CorruptState { path, line }) => {
            tracing::error!(path = %path.display(), line, "damaged: made again of the records of sandboxes");
            let lines: String = addresses_in_use(dirs).iter().map(|(ip, id)| format!("+ {ip} {id}\n")).collect();
            std::fs::write(&path, lines).map_err(io_at(&path))?;
            PodNetwork::open(config).map_err(EngineError::Network)
        }
        opened => opened.map_err(EngineError::Network),
    }
}

/// State is nobody else's business (CVE-2021-41103): closed at every start.
fn private_dir(dir: &Path) -> Result<(), EngineError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_at(dir))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(io_at(dir))
}

impl Inner {
    /// Held only for moments, never across an await.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn announce(&self, pod_uid: &str) {
        // Nobody listening is fine: whoever comes later looks first.
        let _ = self.events.send(RuntimeEvent { pod_uid: pod_uid.to_owned() });
    }

    /// Kills what is left in a cgroup and removes it, as soon as the kernel lets go of it.
    pub(crate) async fn clear_cgroup(&self, path: &Path) -> std::io::Result<()> {
        for _ in 0..CLEAR_ATTEMPTS {
            if self.cgroups.kill_all(path) == 0
                && let Ok(()) = self.cgroups.remove(path)
            {
                return Ok(());
            }
            tokio::time::sleep(CLEAR_PAUSE).await;
        }
        self.cgroups.remove(path)
    }
}

/// A killed process leaves its cgroup within milliseconds, except where the
/// disk or the network holds it.
const CLEAR_ATTEMPTS: usize = 2000;
const CLEAR_PAUSE: Duration = Duration::from_millis(5);

/// Runs to its end even if the caller stops waiting: a verb that was begun is
/// not left half done.
async fn detached<T: Send + 'static>(
    verb: impl Future<Output = Result<T, CriError>> + Send + 'static,
) -> Result<T, CriError> {
    match tokio::spawn(verb).await {
        Ok(result) => result,
        Err(error) => Err(CriError::Failed(format!("runtime operation failed: {error}"))),
    }
}

/// Work that waits for the disk or other system calls, off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CriError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| CriError::Failed(format!("runtime operation failed: {error}")))
}

/// Of the runtime, and of the one way to run pods it has.
pub(crate) const NAME: &str = "podium";

#[async_trait]
impl Runtime for Engine {
    async fn version(&self) -> Result<RuntimeVersion, CriError> {
        Ok(RuntimeVersion { name: NAME.into(), version: env!("CARGO_PKG_VERSION").into() })
    }

    async fn run_sandbox(&self, config: SandboxConfig) -> Result<SandboxId, CriError> {
        let inner = self.inner.clone();
        detached(async move { inner.run_sandbox(config).await }).await
    }

    async fn stop_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        let (inner, id) = (self.inner.clone(), id.clone());
        detached(async move { inner.stop_sandbox(&id).await }).await
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), CriError> {
        let (inner, id) = (self.inner.clone(), id.clone());
        detached(async move { inner.remove_sandbox(&id).await }).await
    }

    async fn sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<Sandbox>, CriError> {
        Ok(self.inner.table().sandboxes(pod_uid))
    }

    async fn create_container(&self, sandbox: &SandboxId, config: ContainerConfig) -> Result<ContainerId, CriError> {
        let (inner, sandbox) = (self.inner.clone(), sandbox.clone());
        detached(async move { inner.create_container(&sandbox, config).await }).await
    }

    async fn start_container(&self, id: &ContainerId) -> Result<(), CriError> {
        let (inner, id) = (self.inner.clone(), id.clone());
        detached(async move { inner.start_container(&id).await }).await
    }

    async fn stop_container(&self, id: &ContainerId, timeout: Duration) -> Result<(), CriError> {
        self.inner.stop_container(id, timeout).await
    }

    async fn remove_container(&self, id: &ContainerId) -> Result<(), CriError> {
        let (inner, id) = (self.inner.clone(), id.clone());
        detached(async move { inner.remove_container(&id).await }).await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecResult, CriError> {
        self.inner.exec_sync(id, command, timeout).await
    }

    async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Streaming<Session>, CriError> {
        self.inner.exec(id, request).await.map(Streaming::Here)
    }

    async fn attach(&self, id: &ContainerId, request: AttachRequest) -> Result<Streaming<Session>, CriError> {
        self.inner.attach(id, request).await.map(Streaming::Here)
    }

    async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<Streaming<Box<dyn Connection>>, CriError> {
        let stream = self.inner.port_forward(id, port).await?;
        Ok(Streaming::Here(Box::new(stream)))
    }

    fn rotates_logs(&self) -> bool {
        true
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), CriError> {
        self.inner.reopen_log(id).await
    }

    async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<Container>, CriError> {
        self.inner.containers(pod_uid).await
    }

    async fn update_container(&self, id: &ContainerId, resources: Resources) -> Result<(), CriError> {
        let (inner, id) = (self.inner.clone(), id.clone());
        detached(async move { inner.update_container(&id, resources).await }).await
    }

    async fn update_sandbox(&self, id: &SandboxId, resources: Resources) -> Result<(), CriError> {
        let (inner, id) = (self.inner.clone(), id.clone());
        detached(async move { inner.update_sandbox(&id, resources).await }).await
    }

    async fn update_class(&self, class: &str, resources: Resources) -> Result<(), CriError> {
        self.inner.update_class(class, resources).await
    }

    async fn container_stats(&self, pod_uid: Option<&str>) -> Result<Vec<ContainerStats>, CriError> {
        self.inner.container_stats(pod_uid).await
    }

    async fn sandbox_stats(&self, pod_uid: Option<&str>) -> Result<Vec<SandboxStats>, CriError> {
        self.inner.sandbox_stats(pod_uid).await
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        let state = (self.inner.events.subscribe(), Arc::downgrade(&self.inner));
        let batches = stream::unfold(state, |(mut receiver, inner)| async move {
            let batch = match receiver.recv().await {
                Ok(event) => vec![event],
                // It missed some: every pod may have changed.
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    let pods = inner.upgrade().map(|inner| inner.table().sandboxes(None)).unwrap_or_default();
                    pods.into_iter().map(|sandbox| RuntimeEvent { pod_uid: sandbox.meta.uid }).collect()
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            Some((stream::iter(batch), (receiver, inner)))
        });
        batches.flatten().boxed()
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>, CriError> {
        Ok(self.inner.images.resolve(reference).map_err(|error| image_refusal(&error))?.map(|resolved| resolved.image))
    }

    async fn images(&self) -> Result<Vec<Image>, CriError> {
        self.inner.images.list().map_err(|error| image_refusal(&error))
    }

    async fn pull_image(&self, reference: &str, auth: Option<RegistryAuth>) -> Result<Image, CriError> {
        let options = PullOptions { auth, watcher: None };
        self.inner.images.pull(reference, options).await.map_err(|error| image_refusal(&error))
    }

    async fn remove_image(&self, reference: &str) -> Result<(), CriError> {
        let (inner, reference) = (self.inner.clone(), reference.to_owned());
        let removed = blocking(move || inner.images.remove(&reference));
        removed.await?.map_err(|error| image_refusal(&error))?;
        for _ in 0..SWEEP_TRIES_MAX {
            let inner = self.inner.clone();
            let swept = blocking(move || {
                // By their records: one that is still being made is in no table.
                let root = inner.dirs.sandboxes().parent().unwrap_or(Path::new("/"));
                inner.images.try_sweep(|| Ok(layers_in_use(root)?.into_iter().flatten().collect()))
            });
            if swept.await?.map_err(|error| image_refusal(&error))?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
        tracing::warn!("containers are being made all the time: layers that nobody needs stay until an image goes");
        Ok(())
    }

    async fn image_fs(&self) -> Result<ImageFs, CriError> {
        self.inner.images.file_system().map_err(|error| image_refusal(&error))
    }
}

/// For so long somebody may be between looking an image up and noting that it
/// is needed, which takes milliseconds.
const SWEEP_TRIES_MAX: usize = 500;
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// Where the agent acts differently on a refusal, it has a kind of its own
/// (LC-181). A registry that cannot be reached has none: containerd tells it
/// as any other failure, so users see `ErrImagePull` and not
/// `RegistryUnavailable`, which only runtimes that say that very word cause.
pub(crate) fn image_refusal(error: &ImageError) -> CriError {
    let cause = match error {
        ImageError::Pull { source, .. } => source,
        other => other,
    };
    match cause {
        ImageError::InvalidReference { .. } | ImageError::AmbiguousId { .. } => CriError::Invalid(error.to_string()),
        ImageError::NotInRegistry { .. } | ImageError::Denied { .. } => CriError::PullRefused(error.to_string()),
        _ => CriError::Failed(error.to_string()),
    }
}
