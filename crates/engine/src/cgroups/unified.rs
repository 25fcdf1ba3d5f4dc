//! Version 2: handing controllers down the tree, and what is set on every
//! container there.
//!
//! A cgroup that hands controllers to its children can have no processes of its
//! own. Ours never do; the root has some where we live in a container and what
//! we see as the root is the container's.

use std::fs;
use std::io;
use std::path::Path;

use super::limits::{set, write};
use super::make;

/// Without these no pod can be kept within its limits. Memory first: a cgroup
/// with processes may hand down the others, and is then one of threads, which
/// can neither hand down memory nor take processes below it.
const NEEDED: [&str; 3] = ["memory", "cpu", "pids"];
/// Programs like to see these.
const WELCOME: [&str; 2] = ["cpuset", "io"];

/// Processes of a root that is not the machine's move here, below it.
const LEAF: &str = "podium-init";

/// How often processes that are born meanwhile are moved, too.
const EVACUATIONS_MAX: usize = 100;

/// Can limits be set at all below `root`?
pub(super) fn check(root: &Path) -> io::Result<()> {
    let offered = fs::read_to_string(root.join("cgroup.controllers"))?;
    let missing: Vec<&str> = NEEDED.into_iter().filter(|controller| !has(&offered, controller)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "cgroup controllers are missing: {missing} (the kernel has them off, or this container is not given them)"
        ),
    ))
}

/// Makes the cgroup `path` with all above it, each with every controller we use.
pub(super) fn create(root: &Path, path: &Path) -> io::Result<()> {
    let mut parent = root.to_owned();
    for component in path.components() {
        hand_down(&parent)?;
        parent = parent.join(component);
        make(&parent)?;
    }
    Ok(())
}

/// LC-339, LC-340: out of memory, all of a container's processes are killed.
/// LC-341: nothing of it is swapped out. Kernels without swap have no such file.
pub(super) fn set_for_container(dir: &Path) -> io::Result<()> {
    for (file, value) in [("memory.oom.group", "1"), ("memory.swap.max", "0")] {
        match set(&dir.join(file), value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    Ok(())
}

/// One by one: one that is missing must not cost the others.
fn hand_down(dir: &Path) -> io::Result<()> {
    let given = fs::read_to_string(dir.join(CONTROL))?;
    for controller in NEEDED.into_iter().filter(|controller| !has(&given, controller)) {
        enable(dir, controller)?;
    }
    let offered = fs::read_to_string(dir.join("cgroup.controllers"))?;
    for controller in WELCOME.into_iter().filter(|controller| has(&offered, controller) && !has(&given, controller)) {
        if let Err(error) = enable(dir, controller) {
            tracing::debug!(%error, controller, "pods do without a cgroup controller");
        }
    }
    Ok(())
}

fn enable(dir: &Path, controller: &str) -> io::Result<()> {
    let enable = || set(&dir.join(CONTROL), &format!("+{controller}"));
    let mut result = enable();
    for _ in 0..EVACUATIONS_MAX {
        match result {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => evacuate(dir)?,
            result => return result,
        }
        result = enable();
    }
    result
}

/// Moves all processes of `dir` into a cgroup of their own below it.
fn evacuate(dir: &Path) -> io::Result<()> {
    let leaf = dir.join(LEAF);
    make(&leaf)?;
    let procs = fs::read_to_string(dir.join(PROCESSES))?;
    // 0 stands for a process that we cannot see, and written for ourselves.
    for process in procs.lines().filter(|process| *process != "0") {
        match write(&leaf.join(PROCESSES), process) {
            // It has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            result => result?,
        }
    }
    Ok(())
}

fn has(list: &str, controller: &str) -> bool {
    list.split_whitespace().any(|known| known == controller)
}

const CONTROL: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lives_where_cgroups_begin_moves_into_one() {
        let dir = tempfile::tempdir().unwrap();
        let (root, leaf) = (dir.path(), dir.path().join(LEAF));
        fs::create_dir(&leaf).unwrap();
        fs::write(leaf.join(PROCESSES), "").unwrap();
        fs::write(root.join(PROCESSES), "17\n").unwrap();
        evacuate(root).unwrap();
        assert_eq!(fs::read_to_string(leaf.join(PROCESSES)).unwrap(), "17");
    }
}
