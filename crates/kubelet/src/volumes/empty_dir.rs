//! Volumes that begin empty (LC-318), and memory to keep things in.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use objects::api::core::v1::{EmptyDirVolumeSource, Pod};
use objects::{Quantity, requests};

/// TC-288: existing content of this UID is kept; after a reboot memory is new.
pub(super) fn set_up(path: &Path, source: &EmptyDirVolumeSource, memory_bytes_max: u64) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path)?;
    match source.medium.as_deref().unwrap_or_default() {
        "" => {}
        "Memory" => mount_memory(path, memory_bytes_max)?,
        other => return Err(io::Error::other(format!("unknown storage medium {other:?}"))),
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
}

/// LC-318: the least of the node's memory, the pod's limit and the volume's own.
pub(super) fn memory_bytes_max(pod: &Pod, source: &EmptyDirVolumeSource, node_bytes: u64) -> u64 {
    let own = source.size_limit.as_ref().and_then(|limit| Quantity::parse(&limit.0).ok());
    let of_pod = pod.spec.as_ref().and_then(|spec| requests::limits_of_pod(spec).get("memory").copied());
    let bytes = |limit: Quantity| u64::try_from(limit.value()).ok().filter(|&bytes| bytes > 0);
    [own, of_pod].into_iter().flatten().filter_map(bytes).fold(node_bytes, u64::min)
}

/// A tmpfs of this size, unless one is there already.
pub(super) fn mount_memory(path: &Path, bytes_max: u64) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path)?;
    if is_mount_point(path)? {
        return Ok(());
    }
    let options = std::ffi::CString::new(format!("size={bytes_max},mode=0755")).map_err(io::Error::other)?;
    let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
    Ok(rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(options.as_c_str()))?)
}

fn is_mount_point(path: &Path) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(path);
    Ok(fs::metadata(path)?.dev() != fs::metadata(parent)?.dev())
}

/// After the pods of an instance were stopped: no memory is left to them.
pub fn unmount_volumes(root: &Path) -> io::Result<()> {
    directories(&root.join("pods"))?.iter().try_for_each(|pod_dir| unmount_below(pod_dir))
}

/// Only what we mount ourselves: memory volumes, one level below their plugin.
pub(super) fn unmount_below(pod_dir: &Path) -> io::Result<()> {
    for plugin in directories(&pod_dir.join("volumes"))? {
        for volume in directories(&plugin)? {
            if is_mount_point(&volume)? {
                rustix::mount::unmount(&volume, rustix::mount::UnmountFlags::NOFOLLOW)?;
            }
        }
    }
    Ok(())
}

/// The directories in a directory; none where there is none.
fn directories(directory: &Path) -> io::Result<Vec<PathBuf>> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lc_318_an_empty_dir_is_for_everyone_and_keeps_its_content() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("v");
        set_up(&path, &EmptyDirVolumeSource::default(), 0).unwrap();
        fs::write(path.join("f"), "x").unwrap();
        set_up(&path, &EmptyDirVolumeSource::default(), 0).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
        assert_eq!(fs::read_to_string(path.join("f")).unwrap(), "x");
    }

    #[test]
    fn lc_318_memory_is_the_least_of_node_pod_and_volume() {
        let limit = |memory: &str| json!({"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"limits": {"memory": memory}}}]}});
        let pod = |limit: serde_json::Value| -> Pod { serde_json::from_value(limit).unwrap() };
        let unlimited = pod(json!({"metadata": {}, "spec": {"containers": [{"name": "a"}]}}));
        let source = |size: Option<&str>| -> EmptyDirVolumeSource {
            serde_json::from_value(json!({"medium": "Memory", "sizeLimit": size})).unwrap()
        };
        assert_eq!(memory_bytes_max(&unlimited, &source(None), 1 << 30), 1 << 30);
        assert_eq!(memory_bytes_max(&pod(limit("64Mi")), &source(None), 1 << 30), 64 << 20);
        assert_eq!(memory_bytes_max(&pod(limit("64Mi")), &source(Some("16Mi")), 1 << 30), 16 << 20);
        assert_eq!(memory_bytes_max(&pod(limit("4Gi")), &source(Some("2Gi")), 1 << 30), 1 << 30);
    }
}
