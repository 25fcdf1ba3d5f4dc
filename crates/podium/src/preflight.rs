//! What the machine must offer before anything is created on it. Each thing
//! missing is one sentence that says what to do.

use std::path::Path;

use anyhow::{Result, bail};

/// Checks that containers can run here at all.
pub(crate) fn check() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("containers need root here: run it with sudo");
    }
    for (namespace, option) in
        [("net", "NET_NS"), ("pid", "PID_NS"), ("ipc", "IPC_NS"), ("uts", "UTS_NS"), ("mnt", "NAMESPACES")]
    {
        if !Path::new("/proc/self/ns").join(namespace).exists() {
            bail!("this kernel has no {namespace} namespaces: use one built with CONFIG_{option}");
        }
    }
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !has_filesystem(&filesystems, "overlay") {
        bail!("this kernel does not offer overlayfs: load it with `modprobe overlay`");
    }
    if !has_cgroups(&std::fs::read_to_string("/proc/self/mounts").unwrap_or_default()) {
        bail!("no cgroup hierarchy is mounted: mount one with `mount -t cgroup2 none /sys/fs/cgroup`");
    }
    Ok(())
}

fn has_filesystem(listing: &str, name: &str) -> bool {
    listing.lines().any(|line| line.split_whitespace().next_back() == Some(name))
}

fn has_cgroups(mounts: &str) -> bool {
    mounts.lines().filter_map(|line| line.split_whitespace().nth(2)).any(|kind| matches!(kind, "cgroup" | "cgroup2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_features_are_read_from_proc() {
        assert!(has_filesystem("nodev\tproc\nnodev\toverlay\n\text4\n", "overlay"));
        assert!(!has_filesystem("nodev\tproc\n\text4\n", "overlay"));
        assert!(has_cgroups("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"));
        assert!(!has_cgroups("proc /proc proc rw 0 0\n"));
    }
}
