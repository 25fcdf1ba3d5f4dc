//! A pod's directories and volumes on disk: made before its sandbox, removed
//! after its end (LC-317).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cri::{Mount, Propagation};
use lifecycle::Lack;
use objects::Quantity;
use objects::api::core::v1::{Container, EmptyDirVolumeSource, HostPathVolumeSource, Pod, Volume, VolumeMount};

use crate::config::Config;
use crate::ctx::Ctx;
use crate::payload;
use crate::sandbox;

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
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        set_up(ctx, pod, &dir, volume).await.map_err(|error| {
            (Lack::Volume, format!("MountVolume.SetUp failed for volume \"{}\" : {error}", volume.name))
        })?;
    }
    Ok(())
}

/// LC-013: volumes and directories of this UID are gone for good.
pub(crate) async fn tear_down(config: &Config, namespace: &str, name: &str, uid: &str) -> io::Result<()> {
    let (dir, log_dir) = (config.pod_dir(uid), config.pod_log_dir(namespace, name, uid));
    blocking(move || {
        unmount_below(&dir)?;
        remove_tree(&dir)?;
        remove_tree(&log_dir)
    })
    .await
}

/// Everything mounted into one instance: volumes, `/etc/hosts`, the message file.
pub(crate) async fn mounts(
    ctx: &Ctx,
    pod: &Pod,
    container: &Container,
    instance: Instance,
) -> Result<Vec<Mount>, String> {
    let dir = ctx.config.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let volume = volumes.into_iter().find(|volume| volume.name == mount.name);
        let volume = volume.ok_or_else(|| format!("volume {} is not defined", mount.name))?;
        let (source, kind) = (path_of(&dir, volume), Source::of(volume));
        let below = mount.sub_path.as_deref().or(mount.sub_path_expr.as_deref()).filter(|path| !path.is_empty());
        let (host_path, sub_path) = match (below, kind) {
            (None, _) => (source, None),
            // What the agent wrote itself cannot be swapped for a symlink by a container.
            (Some(below), Source::Payload) if is_plain(below) => (source.join("..data").join(below), None),
            // Containers write here: the runtime looks where links lead.
            (Some(below), _) if is_plain(below) && mount.sub_path.is_some() => (source, Some(PathBuf::from(below))),
            (Some(below), _) => return Err(format!("volume {}: subPath {below:?} is not supported", mount.name)),
        };
        let readonly = mount.read_only == Some(true) || kind == Source::Payload;
        let recursive_readonly = is_recursive_readonly(ctx, mount).await?;
        let propagation = propagation(mount);
        let whole = Mount::new(host_path, &mount.mount_path, readonly);
        mounts.push(Mount { sub_path, recursive_readonly, propagation, ..whole });
    }
    let Instance { attempt, pod_ips } = instance;
    let is_taken = |path: &str| container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == path);
    let message_path = container.termination_message_path.as_deref().unwrap_or_default();
    let message_file = message_file(&dir, &container.name, attempt);
    let hosts = (!is_taken("/etc/hosts")).then(|| hosts(pod, &pod_ips));
    if hosts.is_some() {
        mounts.push(mount(dir.join("etc-hosts"), "/etc/hosts"));
    }
    if !message_path.is_empty() {
        mounts.push(mount(message_file.clone(), message_path));
    }
    let has_message = !message_path.is_empty();
    blocking(move || write_own_files(&dir, hosts, has_message.then_some(message_file)))
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

pub(crate) struct Instance {
    pub(crate) attempt: u32,
    pub(crate) pod_ips: Vec<String>,
}

/// LC-090, by attempt, so that a restarted agent finds it.
pub(crate) fn message_file(pod_dir: &Path, container: &str, attempt: u32) -> PathBuf {
    pod_dir.join("containers").join(container).join(attempt.to_string())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    EmptyDir,
    HostPath,
    /// Written by the agent: config maps, secrets, downward API, projections.
    Payload,
}

impl Source {
    fn of(volume: &Volume) -> Self {
        match volume {
            Volume { host_path: Some(_), .. } => Self::HostPath,
            volume if payload::is_payload(volume) => Self::Payload,
            _ => Self::EmptyDir,
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

async fn set_up(ctx: &Ctx, pod: &Pod, pod_dir: &Path, volume: &Volume) -> Result<(), String> {
    let path = path_of(pod_dir, volume);
    match Source::of(volume) {
        Source::HostPath => {
            let source = volume.host_path.clone().unwrap_or_default();
            blocking(move || host_path(&source)).await.map_err(|error| error.to_string())
        }
        Source::Payload => {
            let files = payload::files(ctx, pod, volume).await?;
            let is_secret = payload::is_secret(volume);
            let write = move || {
                // Secrets stay off the disk, where they would outlive the pod.
                if is_secret {
                    memory_mount(&path, SECRET_BYTES_MAX)?;
                }
                write_payload(&path, &files)
            };
            blocking(write).await.map_err(|error| error.to_string())
        }
        Source::EmptyDir => {
            let (source, group) = (volume.empty_dir.clone().unwrap_or_default(), fs_group(pod));
            let limit = ctx.config.capacity.memory_bytes;
            blocking(move || empty_dir(&path, &source, group, limit)).await.map_err(|error| error.to_string())
        }
    }
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    context.fs_group.and_then(|group| u32::try_from(group).ok())
}

fn make_pod_dirs(dir: &Path, log_dir: &Path) -> io::Result<()> {
    for (path, mode) in
        [(dir, 0o750), (&dir.join("volumes"), 0o750), (&dir.join("containers"), 0o750), (log_dir, 0o755)]
    {
        fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
    }
    Ok(())
}

/// LC-318. Existing content of this UID is kept.
fn empty_dir(path: &Path, source: &EmptyDirVolumeSource, group: Option<u32>, node_memory: u64) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path)?;
    if source.medium.as_deref() == Some("Memory") {
        let wanted = source.size_limit.as_ref().and_then(|limit| Quantity::parse(&limit.0).ok());
        let wanted = wanted.and_then(|limit| u64::try_from(limit.value()).ok()).filter(|&bytes| bytes > 0);
        memory_mount(path, wanted.map_or(node_memory, |bytes| bytes.min(node_memory)))?;
    }
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    if group.is_some() {
        std::os::unix::fs::chown(path, None, group)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Far above what config objects can hold (1 MiB each), far below harm.
const SECRET_BYTES_MAX: u64 = 64 << 20;

/// A tmpfs of this size, unless one is there already.
fn memory_mount(path: &Path, bytes_max: u64) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path)?;
    if is_mount_point(path)? {
        return Ok(());
    }
    let options = std::ffi::CString::new(format!("size={bytes_max},mode=0755")).map_err(io::Error::other)?;
    let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
    Ok(rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(options.as_c_str()))?)
}

/// LC-324: types that create, and types that must already be so.
fn host_path(source: &HostPathVolumeSource) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let path = Path::new(&source.path);
    let wrong =
        |wanted: &str| Err(io::Error::other(format!("hostPath type check failed: {} is not a {wanted}", source.path)));
    let is = |test: fn(&fs::FileType) -> bool| fs::metadata(path).is_ok_and(|found| test(&found.file_type()));
    match source.type_.as_deref().unwrap_or_default() {
        "DirectoryOrCreate" => fs::DirBuilder::new().recursive(true).mode(0o755).create(path),
        "FileOrCreate" => fs::OpenOptions::new().append(true).create(true).mode(0o644).open(path).map(drop),
        "Directory" if !is(fs::FileType::is_dir) => wrong("directory"),
        "File" if !is(fs::FileType::is_file) => wrong("file"),
        "Socket" if !is(fs::FileType::is_socket) => wrong("socket file"),
        "CharDevice" if !is(fs::FileType::is_char_device) => wrong("character device"),
        "BlockDevice" if !is(fs::FileType::is_block_device) => wrong("block device"),
        _ => Ok(()),
    }
}

/// LC-319: a new directory, then one switch of `..data`, so that readers see
/// the old or the new content and nothing in between.
fn write_payload(path: &Path, files: &BTreeMap<String, payload::File>) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    let data = path.join("..data");
    let old = fs::read_link(&data).ok();
    let generation =
        old.as_ref().and_then(|old| old.to_str()?.strip_prefix("..")?.parse::<u64>().ok()).unwrap_or(0) + 1;
    let fresh = format!("..{generation}");
    let _ = fs::remove_dir_all(path.join(&fresh));
    for (name, file) in files {
        let target = path.join(&fresh).join(name);
        let parent = target.parent().unwrap_or(path);
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        fs::write(&target, &file.content)?;
        fs::set_permissions(&target, fs::Permissions::from_mode(file.mode))?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path.join(&fresh))?;
    let switch = path.join("..data_tmp");
    let _ = fs::remove_file(&switch);
    symlink(&fresh, &switch)?;
    fs::rename(&switch, &data)?;
    for name in files.keys() {
        let first = Path::new(name).components().next();
        let Some(first) = first else { continue };
        let link = path.join(first);
        if link.symlink_metadata().is_err() {
            symlink(Path::new("..data").join(first), link)?;
        }
    }
    old.map_or(Ok(()), |old| fs::remove_dir_all(path.join(old)))
}

fn write_own_files(dir: &Path, hosts: Option<String>, message: Option<PathBuf>) -> io::Result<()> {
    if let Some(hosts) = hosts {
        write_with_mode(&dir.join("etc-hosts"), hosts.as_bytes(), 0o644)?;
    }
    if let Some(message) = message {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(message.parent().unwrap_or(dir))?;
        // LC-090: any user in the container may write it, whatever our umask is.
        write_with_mode(&message, b"", 0o666)?;
    }
    Ok(())
}

fn write_with_mode(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// LC-326.
fn hosts(pod: &Pod, pod_ips: &[String]) -> String {
    let none = Default::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let mut text = if spec.host_network == Some(true) {
        let own = fs::read_to_string("/etc/hosts").unwrap_or_default();
        format!("# Kubernetes-managed hosts file (host network).\n{own}")
    } else {
        let name = sandbox::hostname(spec, pod.metadata.name.as_deref().unwrap_or_default());
        let entries: String = pod_ips.iter().map(|ip| format!("{ip}\t{name}\n")).collect();
        format!("{HOSTS}{entries}")
    };
    let aliases: Vec<_> = spec.host_aliases.iter().flatten().collect();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    text
}

const HOSTS: &str = "# Kubernetes-managed hosts file.\n\
    127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

fn mount(host_path: PathBuf, container_path: &str) -> Mount {
    Mount::new(host_path, container_path, false)
}

fn is_plain(path: &str) -> bool {
    Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

fn is_mount_point(path: &Path) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(path);
    Ok(fs::metadata(path)?.dev() != fs::metadata(parent)?.dev())
}

/// Only what we mount ourselves: memory volumes, one level below their plugin.
fn unmount_below(pod_dir: &Path) -> io::Result<()> {
    for plugin in entries(&pod_dir.join("volumes"))? {
        for volume in entries(&plugin)? {
            if is_mount_point(&volume)? {
                rustix::mount::unmount(&volume, rustix::mount::UnmountFlags::NOFOLLOW)?;
            }
        }
    }
    Ok(())
}

/// The directories in a directory; none where there is none.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let listed = match fs::read_dir(directory) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut directories = Vec::new();
    for entry in listed {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Disk work leaves the async threads alone.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
