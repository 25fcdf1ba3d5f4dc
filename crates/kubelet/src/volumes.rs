//! A pod's directories and volumes on disk: made before its sandbox, kept
//! current while it lives, removed after its end (LC-317).
//!
//! One file per kind of volume; `live` follows what running pods were given.

mod claim;
mod empty_dir;
mod host_path;
mod image;
mod left_files;
mod live;
mod own_files;
mod ownership;
mod payload_dir;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use cri::{Mount, Propagation};
use lifecycle::{Lack, MissingVolume};
use objects::api::core::v1::{Container, Pod, Volume, VolumeMount};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::ctx::Ctx;
use crate::env::expand::expand_path;
use crate::payload;
use crate::sandbox;
use ownership::Owner;

pub use empty_dir::unmount_volumes;
pub(crate) use left_files::left_files;
pub(crate) use live::keep_current;
pub(crate) use own_files::message_file;

/// LC-184, LC-185: everything a sandbox needs on disk.
pub(crate) async fn prepare(ctx: &Ctx, pod: &Pod) -> Result<(), (Lack, String)> {
    let meta = sandbox::meta_of(pod, 0);
    let dir = ctx.config.pod_dir(&meta.uid);
    let log_dir = ctx.config.pod_log_dir(&meta.namespace, &meta.name, &meta.uid);
    let made = blocking({
        let dir = dir.clone();
        move || make_pod_dirs(&dir, &log_dir)
    });
    made.await.map_err(|error| (Lack::Directories, error.to_string()))?;
    let _turn = ctx.turns.of(&meta.uid).await;
    let (mut missing, mut room) = (Vec::new(), payload::Room::new());
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        if let Err(error) = set_up(ctx, pod, &dir, volume, &mut room).await {
            let message = format!("MountVolume.SetUp failed for volume \"{}\" : {error}", volume.name);
            missing.push(MissingVolume { name: volume.name.clone(), message });
        }
    }
    match missing.first().map(|first| first.message.clone()) {
        None => Ok(()),
        Some(message) => Err((Lack::Volumes(missing), message)),
    }
}

/// LC-013: volumes and directories of this UID are gone for good.
pub(crate) async fn tear_down(ctx: &Ctx, namespace: &str, name: &str, uid: &str) -> io::Result<()> {
    let (dir, log_dir) = (ctx.config.pod_dir(uid), ctx.config.pod_log_dir(namespace, name, uid));
    let _turn = ctx.turns.of(uid).await;
    ctx.tokens.forget(uid);
    blocking(move || remove(&dir, &[log_dir])).await
}

/// The same for a pod of which only the UID is known.
pub(crate) async fn tear_down_unknown(ctx: &Ctx, uid: &str) -> io::Result<()> {
    let (dir, log_root, wanted) = (ctx.config.pod_dir(uid), ctx.config.log_root.clone(), uid.to_owned());
    let _turn = ctx.turns.of(uid).await;
    ctx.tokens.forget(uid);
    blocking(move || {
        let logs = log_dirs(&log_root)?.into_iter().filter(|(uid, _)| *uid == wanted).map(|(_, path)| path);
        remove(&dir, &logs.collect::<Vec<_>>())
    })
    .await
}

/// The log directories of pods, by UID; neither namespaces nor names have a `_`.
pub(crate) fn log_dirs(log_root: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(log_root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('_');
        if let (Some(_), Some(_), Some(uid), None) = (parts.next(), parts.next(), parts.next(), parts.next()) {
            found.push((uid.to_owned(), entry.path()));
        }
    }
    Ok(found)
}

fn remove(dir: &Path, log_dirs: &[PathBuf]) -> io::Result<()> {
    empty_dir::unmount_below(dir)?;
    trees::remove(dir)?;
    log_dirs.iter().try_for_each(|logs| trees::remove(logs))
}

/// Everything mounted into one instance: volumes, `/etc/hosts`, the message file.
pub(crate) async fn mounts(
    ctx: &Ctx,
    pod: &Pod,
    container: &Container,
    instance: Instance<'_>,
) -> Result<Vec<Mount>, String> {
    let dir = ctx.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let Instance { attempt, pod_ips, variables } = instance;
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let volume = volumes.into_iter().find(|volume| volume.name == mount.name);
        let missing = || format!("cannot find volume {:?} to mount into container {:?}", mount.name, container.name);
        let volume = volume.ok_or_else(missing)?;
        if let Some(source) = &volume.image {
            mounts.push(image::mount(ctx, source, mount, part(mount, variables)?).await?);
            continue;
        }
        let whole = volume_mount(&dir, volume, mount, variables)?;
        let recursive_readonly = is_recursive_readonly(ctx, mount).await?;
        mounts.push(Mount { recursive_readonly, propagation: propagation(mount), ..whole });
    }
    let is_taken = |path: &str| container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == path);
    let message_path = container.termination_message_path.as_deref().unwrap_or_default();
    let message_file = message_file(&dir, &container.name, attempt);
    let hosts = (!is_taken("/etc/hosts")).then(|| own_files::hosts(pod, &pod_ips));
    if hosts.is_some() {
        mounts.push(Mount::new(dir.join("etc-hosts"), "/etc/hosts", false));
    }
    if !message_path.is_empty() {
        mounts.push(Mount::new(message_file.clone(), message_path, false));
    }
    let has_message = !message_path.is_empty();
    blocking(move || own_files::write(&dir, hosts, has_message.then_some(message_file)))
        .await
        .map_err(|error| format!("error making container files: {error}"))?;
    Ok(mounts)
}

fn propagation(mount: &VolumeMount) -> Propagation {
    match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => Propagation::HostToContainer,
        Some("Bidirectional") => Propagation::Bidirectional,
        _ => Propagation::Private,
    }
}

/// `IfPossible` where the runtime can, `Enabled` or not at all.
async fn is_recursive_readonly(ctx: &Ctx, mount: &VolumeMount) -> Result<bool, String> {
    let must = match mount.recursive_read_only.as_deref() {
        Some("Enabled") => true,
        Some("IfPossible") => false,
        _ => return Ok(false),
    };
    let status = ctx.runtime.status().await;
    let can = status.map_err(|error| format!("failed to get runtime features: {error}"))?.features.recursive_readonly;
    if must && !can {
        let name = &mount.name;
        return Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not supported by the runtime"
        ));
    }
    Ok(can)
}

/// What differs from one instance of a container to the next.
pub(crate) struct Instance<'a> {
    pub(crate) attempt: u32,
    pub(crate) pod_ips: Vec<String>,
    /// The environment, which `subPathExpr` may refer to.
    pub(crate) variables: &'a BTreeMap<String, String>,
}

fn volume_mount(
    pod_dir: &Path,
    volume: &Volume,
    mount: &VolumeMount,
    variables: &BTreeMap<String, String>,
) -> Result<Mount, String> {
    let source = Source::of(volume)?;
    let path = match source {
        // Settled when it was set up.
        Source::Claim => claim::place(pod_dir, &volume.name)
            .map_err(|error| format!("volume {} has no place on this node: {error}", volume.name))?,
        _ => path_of(pod_dir, volume),
    };
    let (host_path, sub_path) = match (part(mount, variables)?, source) {
        (None, _) => (path, None),
        // What the agent wrote itself cannot be swapped for a symlink by a
        // container. Through `..data`: it stays what it was at the start (LC-319).
        (Some(part), Source::Payload) => (path.join("..data").join(part), None),
        // Containers write here: the runtime looks where links lead.
        (Some(part), _) => (path, Some(part)),
    };
    let is_claim_readonly = volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true));
    let readonly = mount.read_only == Some(true) || is_claim_readonly || source == Source::Payload;
    Ok(Mount { sub_path, source_readonly: is_claim_readonly, ..Mount::new(host_path, &mount.mount_path, readonly) })
}

/// The part of a volume that is wanted; nothing is the whole.
fn part(mount: &VolumeMount, variables: &BTreeMap<String, String>) -> Result<Option<PathBuf>, String> {
    let part = match mount.sub_path_expr.as_deref().filter(|text| !text.is_empty()) {
        Some(expression) => expand_path(expression, |name| variables.get(name))?,
        None => mount.sub_path.clone().unwrap_or_default(),
    };
    let path = PathBuf::from(&part);
    if path.is_absolute() {
        return Err(format!("error SubPath `{part}` must not be an absolute path"));
    }
    if path.components().any(|component| component == std::path::Component::ParentDir) {
        return Err(format!("unable to provision SubPath `{part}`: must not contain '..'"));
    }
    // `a/./b` is `a/b`.
    let plain: PathBuf = path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
    Ok((!plain.as_os_str().is_empty()).then_some(plain))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    EmptyDir,
    HostPath,
    /// Written by the agent: config maps, secrets, downward API, projections.
    Payload,
    /// A persistent volume on this node.
    Claim,
    /// LC-315: an image, which the runtime mounts.
    Image,
}

impl Source {
    /// The error names what is not supported.
    fn of(volume: &Volume) -> Result<Self, String> {
        let document = serde_json::to_value(volume).map_err(|error| error.to_string())?;
        let keys = document.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        let mut kinds = keys.filter(|key| *key != "name");
        let kind = kinds.next();
        // Whichever we took, another part of us might take the other.
        if let Some(second) = kinds.next() {
            return Err(format!("may not specify more than 1 volume type: {} and {second}", kind.unwrap_or_default()));
        }
        match kind {
            // LC-325
            None | Some("emptyDir") => Ok(Self::EmptyDir),
            Some("hostPath") => Ok(Self::HostPath),
            Some("configMap" | "secret" | "downwardAPI" | "projected") => Ok(Self::Payload),
            Some("persistentVolumeClaim" | "ephemeral") => Ok(Self::Claim),
            Some("image") => Ok(Self::Image),
            Some(other) => Err(format!("no volume plugin matched: volumes of type {other} are not supported")),
        }
    }
}

fn path_of(pod_dir: &Path, volume: &Volume) -> PathBuf {
    let plugin = match volume {
        Volume { host_path: Some(source), .. } => return PathBuf::from(&source.path),
        Volume { config_map: Some(_), .. } => "kubernetes.io~configmap",
        Volume { secret: Some(_), .. } => "kubernetes.io~secret",
        Volume { downward_api: Some(_), .. } => "kubernetes.io~downward-api",
        Volume { projected: Some(_), .. } => "kubernetes.io~projected",
        _ => "kubernetes.io~empty-dir",
    };
    pod_dir.join("volumes").join(plugin).join(&volume.name)
}

async fn set_up(ctx: &Ctx, pod: &Pod, pod_dir: &Path, volume: &Volume, room: &mut payload::Room) -> Result<(), String> {
    let (path, owner) = (path_of(pod_dir, volume), Owner::of(pod));
    let text = |error: io::Error| error.to_string();
    match Source::of(volume)? {
        Source::HostPath => {
            let source = volume.host_path.clone().unwrap_or_default();
            blocking(move || host_path::set_up(&source)).await.map_err(text)
        }
        Source::Payload => write_payload(ctx, pod, path, volume, room).await.map(drop),
        Source::EmptyDir => {
            let source = volume.empty_dir.clone().unwrap_or_default();
            let bytes_max = empty_dir::memory_bytes_max(pod, &source, ctx.config.capacity.memory_bytes);
            let work = move || {
                empty_dir::set_up(&path, &source, bytes_max)?;
                owner.take(&path)
            };
            blocking(work).await.map_err(text)
        }
        Source::Claim => claim::set_up(ctx, pod, pod_dir, volume, owner).await,
        // It is got when a container that mounts it starts.
        Source::Image => Ok(()),
    }
}

/// The old content and the new stand side by side for a moment.
const SECRET_BYTES_MAX: u64 = 2 * payload::POD_BYTES_MAX as u64;

/// So long the API server may take for all that one volume shows.
const GATHERING_MAX: Duration = Duration::from_secs(30);

/// True: the volume has new content.
async fn write_payload(
    ctx: &Ctx,
    pod: &Pod,
    path: PathBuf,
    volume: &Volume,
    room: &mut payload::Room,
) -> Result<bool, String> {
    let owner = Owner::of(pod);
    let gathering = payload::files(ctx, pod, volume, owner.user, room);
    let gathered = tokio::time::timeout(GATHERING_MAX, gathering).await;
    let too_late = |_| format!("timed out reading from the API server what volume {:?} shows", volume.name);
    let payload::Gathered { files, place: _place } = gathered.map_err(too_late)??;
    let (is_secret, now) = (payload::is_secret(volume), ctx.clock.now().wall);
    let write = move || {
        // Secrets stay off the disk, where they would outlive the pod.
        if is_secret {
            empty_dir::mount_memory(&path, SECRET_BYTES_MAX)?;
        }
        payload_dir::write(&path, &files, owner.group, now)
    };
    blocking(write).await.map_err(|error| error.to_string())
}

fn make_pod_dirs(dir: &Path, log_dir: &Path) -> io::Result<()> {
    for (path, mode) in
        [(dir, 0o750), (&dir.join("volumes"), 0o750), (&dir.join("containers"), 0o750), (log_dir, 0o755)]
    {
        fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
    }
    Ok(())
}

/// Whose turn it is to touch the volumes of a pod: preparing, refreshing and
/// tearing down never overlap for one UID.
pub(crate) struct Turns {
    of_pods: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// Whoever holds much content of a volume in memory, at most one for each pod.
    large: Arc<Semaphore>,
}

/// Large volumes that are read from the API and written at the same time.
const LARGE_MAX: usize = 8;

impl Default for Turns {
    fn default() -> Self {
        Self { of_pods: Mutex::default(), large: Arc::new(Semaphore::new(LARGE_MAX)) }
    }
}

impl Turns {
    async fn of(&self, uid: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.of_pods.lock().expect("turns are never poisoned: nothing panics holding them");
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(uid).and_then(Weak::upgrade);
            let turn = known.unwrap_or_default();
            turns.insert(uid.to_owned(), Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }

    /// Given back when it is dropped.
    pub(crate) async fn place_for_large(&self) -> Option<OwnedSemaphorePermit> {
        self.large.clone().acquire_owned().await.ok()
    }
}

/// Disk work leaves the async threads alone.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
