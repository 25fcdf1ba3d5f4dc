//! Cgroups that pods leave behind. Runtimes remove a container's own, and
//! nobody but the agent the one above, unless systemd does.

use std::fs;
use std::path::{Path, PathBuf};

/// Removes one pod's cgroup from every hierarchy, as far as it is empty.
pub(super) fn remove(cgroup: &str) {
    for mount in hierarchies() {
        // In use: another sandbox of the pod will remove it. Gone: fine.
        let _ = fs::remove_dir(below(&mount, cgroup));
    }
}

/// Removes a cgroup with all that are below it, as far as they are empty.
pub(super) fn remove_tree(cgroup: &str) {
    for mount in hierarchies() {
        remove_empty(&below(&mount, cgroup));
    }
}

fn below(mount: &Path, cgroup: &str) -> PathBuf {
    mount.join(cgroup.trim_start_matches('/'))
}

fn remove_empty(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

fn hierarchies() -> Vec<PathBuf> {
    mounts_of_cgroups(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

fn mounts_of_cgroups(mounts: &str) -> Vec<PathBuf> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(place))
    });
    mounts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hierarchy_is_found_and_only_what_is_empty_goes() {
        let mounts = "tmpfs /t tmpfs rw 0 0\ncgroup /c/cpu cgroup rw 0 0\ncgroup2 /c/unified cgroup2 rw 0 0\n";
        assert_eq!(mounts_of_cgroups(mounts), [PathBuf::from("/c/cpu"), PathBuf::from("/c/unified")]);
        let dir = tempfile::tempdir().unwrap();
        let root = below(dir.path(), "/podium-1");
        fs::create_dir_all(root.join("burstable/pod-1")).unwrap();
        fs::create_dir_all(root.join("pod-2")).unwrap();
        fs::write(root.join("pod-2/busy"), "").unwrap();
        remove_empty(&root);
        assert!(!root.join("burstable").exists());
        assert!(root.join("pod-2/busy").exists());
    }
}
