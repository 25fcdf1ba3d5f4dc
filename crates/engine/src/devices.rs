//! Devices of the node that a container may use.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use cri::{ContainerConfig, CriError, Device};
use shim::wire;

/// Those that are asked for, and for a privileged container all there are.
pub(crate) fn given(config: &ContainerConfig) -> Result<Vec<wire::Device>, CriError> {
    let mut given = Vec::new();
    if config.security.privileged {
        // What disappears while we look is not there.
        for path in below(Path::new(DEV)) {
            given.extend(node(&path, &path, "rwm"));
        }
    }
    for device in &config.devices {
        check(device)?;
        let found = found(device);
        if found.is_empty() {
            return Err(CriError::Invalid(format!("device {:?}: no device is there", device.host_path)));
        }
        given.retain(|known| found.iter().all(|new| new.path != known.path));
        given.extend(found);
    }
    Ok(given)
}

/// As the device controller of version 1 wants it.
pub(crate) fn rule(device: &wire::Device) -> String {
    let kind = if device.is_block { 'b' } else { 'c' };
    format!("{kind} {}:{} {}", device.major, device.minor, device.permissions)
}

fn check(device: &Device) -> Result<(), CriError> {
    let Device { container_path, permissions, .. } = device;
    let inner = container_path.strip_prefix(DEV).ok();
    let is_plain = |inner: &Path| inner.components().all(|part| matches!(part, Component::Normal(_)));
    if !inner.is_some_and(|inner| !inner.as_os_str().is_empty() && is_plain(inner)) {
        return Err(CriError::Invalid(format!("device {container_path:?}: containerPath must be below /dev")));
    }
    if permissions.is_empty() || !permissions.chars().all(|letter| "rwm".contains(letter)) {
        return Err(CriError::Invalid(format!(
            "device {container_path:?}: permissions {permissions:?} must be of r, w, m"
        )));
    }
    Ok(())
}

/// The device itself, or those in a directory.
fn found(device: &Device) -> Vec<wire::Device> {
    let Device { host_path, container_path, permissions } = device;
    if !host_path.is_dir() {
        return node(host_path, container_path, permissions).into_iter().collect();
    }
    let place = |path: PathBuf| {
        let inner = path.strip_prefix(host_path).ok()?.to_owned();
        node(&path, &container_path.join(inner), permissions)
    };
    below(host_path).into_iter().filter_map(place).collect()
}

fn node(host_path: &Path, path: &Path, permissions: &str) -> Option<wire::Device> {
    let metadata = fs::metadata(host_path).ok()?;
    let kind = metadata.file_type();
    (kind.is_block_device() || kind.is_char_device()).then(|| wire::Device {
        path: path.to_owned(),
        source: host_path.to_owned(),
        is_block: kind.is_block_device(),
        major: rustix::fs::major(metadata.rdev()),
        minor: rustix::fs::minor(metadata.rdev()),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        permissions: permissions.to_owned(),
    })
}

/// Everything below a directory that is neither link nor directory, without
/// what each container has of its own.
fn below(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut dirs) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            match kind {
                Ok(kind) if kind.is_dir() && !OWN.iter().any(|own| path == Path::new(own)) => dirs.push(path),
                Ok(kind) if !kind.is_dir() && !kind.is_symlink() && path != Path::new(CONSOLE) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

const DEV: &str = "/dev";
const CONSOLE: &str = "/dev/console";
const OWN: [&str; 4] = ["/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/fd"];

#[cfg(test)]
mod tests {
    use super::*;

    fn device(host: &str, container: &str, permissions: &str) -> Device {
        Device { host_path: host.into(), container_path: container.into(), permissions: permissions.into() }
    }

    #[test]
    fn only_plain_places_below_dev_and_known_permissions_are_taken() {
        for path in ["/etc/x", "/dev", "/dev/../etc/x", "dev/x"] {
            assert!(check(&device("/dev/null", path, "rw")).is_err(), "{path}");
        }
        for permissions in ["", "x", "rwx"] {
            assert!(check(&device("/dev/null", "/dev/x", permissions)).is_err(), "{permissions}");
        }
        assert_eq!(check(&device("/dev/null", "/dev/x/y", "rwm")), Ok(()));
    }

    #[test]
    fn a_device_is_known_by_its_numbers() {
        let found = found(&device("/dev/zero", "/dev/nothing", "r"));
        assert_eq!(rule(&found[0]), "c 1:5 r");
        assert_eq!(found[0].path, Path::new("/dev/nothing"));
        assert!(super::found(&device("/etc/passwd", "/dev/x", "r")).is_empty());
    }
}
