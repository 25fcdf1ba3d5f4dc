//! From our container request to the OCI runtime configuration that
//! libcontainer reads, with the defaults of Docker and containerd.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::inroot::Identity;
use crate::wire::{CAPABILITIES, ContainerSpec, Device};

/// What a container is put into.
pub(crate) struct Around<'a> {
    /// Where its root is mounted.
    pub(crate) root: &'a Path,
    /// The directory its `/dev/shm` shows.
    pub(crate) shm: Option<&'a Path>,
    /// Its PID namespace if it is not the node's; empty: a new one.
    pub(crate) pid: Option<&'a Path>,
    /// Its user namespace if it is not the node's.
    pub(crate) users: Option<&'a Path>,
    /// What capabilities we have to give.
    pub(crate) available: u64,
}

/// The OCI configuration of a container.
pub(crate) fn oci(spec: &ContainerSpec, identity: &Identity, around: &Around<'_>) -> Value {
    let Around { root, shm, pid, users, available } = *around;
    // Some more than the program will have: the executor needs them to install
    // the filter, to give the rest up, itself included, and to stand where the
    // user may not go.
    let more =
        ["CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_DAC_READ_SEARCH"].map(bit).into_iter().fold(0, |all, one| all | one);
    let mask = (mask(&spec.capabilities) | more) & available;
    let capabilities = names(mask);
    let mut namespaces = vec![json!({"type": "mount"}), json!({"type": "cgroup"})];
    if let Some(path) = pid {
        let is_new = path.as_os_str().is_empty();
        namespaces.push(if is_new { json!({"type": "pid"}) } else { json!({"type": "pid", "path": path}) });
    }
    if let Some(path) = users {
        namespaces.push(json!({"type": "user", "path": path}));
    }
    // Whoever has users of its own cannot make any; they come as volumes.
    let devices: &[Device] = if users.is_some() { &[] } else { &spec.devices };
    let (masked, mut readonly) = guarded(spec);
    if !spec.privileged && !spec.cgroup.hierarchies.is_empty() {
        // The hierarchies' mount points had to be made first.
        readonly.push(CGROUP_PATH);
    }
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": identity.uid, "gid": identity.gid, "additionalGids": identity.groups },
            "args": spec.args,
            // The volumes are not there yet; the executor goes where it shall.
            "cwd": "/",
            "terminal": spec.tty,
            "noNewPrivileges": spec.no_new_privileges,
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
                "inheritable": [], "ambient": [],
            },
        },
        // Read-only once the volumes have their places.
        "root": { "path": root, "readonly": false },
        "mounts": mounts(spec, shm),
        "linux": {
            "cgroupsPath": spec.cgroup.path,
            "namespaces": namespaces,
            "maskedPaths": masked,
            "readonlyPaths": readonly,
            "devices": devices.iter().map(device).collect::<Vec<_>>(),
        },
    })
}

fn device(device: &Device) -> Value {
    json!({
        "path": device.path, "type": if device.is_block { "b" } else { "c" }, "major": device.major,
        "minor": device.minor, "fileMode": device.mode, "uid": device.uid, "gid": device.gid,
    })
}

/// All but the volumes.
fn mounts(spec: &ContainerSpec, shm: Option<&Path>) -> Vec<Value> {
    let access = if spec.privileged { "rw" } else { "ro" };
    let mount = |destination: &str, kind: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": kind, "options": options});
    let mut mounts = vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", access]),
    ];
    mounts.extend(cgroup_mounts(spec, access));
    let safe = ["nosuid", "noexec", "nodev"];
    match shm {
        Some(source) => mounts.push(json!({
            "destination": SHM_PATH, "type": "bind", "source": source,
            "options": [safe[0], safe[1], safe[2], "bind", "rprivate", "rw"],
        })),
        None => mounts.push(mount(SHM_PATH, "tmpfs", &[&safe[..], &["mode=1777", "size=65536k"]].concat())),
    }
    mounts
}

/// Read-only, or a container could lift its own limits (CVE-2023-25809). On
/// version 1 that takes bind mounts of ours: libcontainer's own mounts of the
/// hierarchies are writable whatever is asked.
fn cgroup_mounts(spec: &ContainerSpec, access: &str) -> Vec<Value> {
    let mount = |destination: &str, kind: &str, source: &Path, options: &[&str]| {
        let options = [&["nosuid", "noexec", "nodev"], options].concat();
        json!({"destination": destination, "type": kind, "source": source, "options": options})
    };
    if spec.cgroup.hierarchies.is_empty() {
        return vec![mount(CGROUP_PATH, "cgroup", Path::new("cgroup"), &["relatime", access])];
    }
    let root = mount(CGROUP_PATH, "tmpfs", Path::new("tmpfs"), &["mode=755", "size=64k"]);
    let bind = |(name, source): &(String, PathBuf)| {
        mount(&format!("{CGROUP_PATH}/{name}"), "bind", source, &["bind", "rprivate", access])
    };
    [root].into_iter().chain(spec.cgroup.hierarchies.iter().map(bind)).collect()
}

const SHM_PATH: &str = "/dev/shm";
const CGROUP_PATH: &str = "/sys/fs/cgroup";

/// The program's search path, from its own environment.
pub(crate) fn search_path(env: &[String]) -> String {
    let last = env.iter().rev().find_map(|entry| entry.strip_prefix("PATH="));
    last.unwrap_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").to_owned()
}

/// Capability names as a bit mask; unknown names have no bit.
pub(crate) fn mask(names: &[String]) -> u64 {
    names.iter().fold(0, |mask, name| mask | bit(name))
}

pub(crate) fn bit(name: &str) -> u64 {
    CAPABILITIES.iter().position(|known| *known == name).map_or(0, |number| 1 << number)
}

fn names(mask: u64) -> Vec<&'static str> {
    CAPABILITIES.iter().enumerate().filter(|(number, _)| mask & (1 << number) != 0).map(|(_, name)| *name).collect()
}

/// What to hide, and what to make read-only.
fn guarded(spec: &ContainerSpec) -> (Vec<&str>, Vec<&str>) {
    match &spec.guarded {
        _ if spec.privileged => (Vec::new(), Vec::new()),
        Some(given) => {
            (given.masked.iter().map(String::as_str).collect(), given.readonly.iter().map(String::as_str).collect())
        }
        None => (MASKED_PATHS.to_vec(), READONLY_PATHS.to_vec()),
    }
}

/// Where the mounts of a container under construction live, below its
/// directory: in a mount namespace that only it sees.
pub(crate) fn stage(spec: &ContainerSpec) -> PathBuf {
    spec.dir.join("mount")
}

const MASKED_PATHS: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const READONLY_PATHS: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_names_and_numbers_agree_with_the_kernel() {
        assert_eq!(mask(&["CAP_SYS_ADMIN".into(), "CAP_CHOWN".into(), "CAP_NOPE".into()]), (1 << 21) | 1);
        assert_eq!(names((1 << 27) | (1 << 40)), ["CAP_MKNOD", "CAP_CHECKPOINT_RESTORE"]);
    }

    #[test]
    fn the_last_path_of_the_environment_wins() {
        assert_eq!(search_path(&["PATH=/a".into(), "X=1".into(), "PATH=/b:/c".into()]), "/b:/c");
        assert!(search_path(&[]).contains("/usr/bin"));
    }
}
