//! What the shim does with a container's cgroup: enter it, list it, kill it.
//! Making it is the engine's work.
//!
//! How it is entered decides what a start costs: moving a whole process, as
//! `cgroup.procs` does, waits for every CPU of the machine (8 ms here). Being
//! born there does not, nor does moving a single thread
//! (docs/decisions/0017).

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wire::Cgroup;

/// Where the next process of the container is to be born: version 2 only.
/// `own` is a cgroup below the container's, for this process alone.
pub(crate) fn cradle(cgroup: &Cgroup, own: Option<&Path>) -> io::Result<Option<OwnedFd>> {
    if cgroup.is_version_1() {
        return Ok(None);
    }
    File::open(own.unwrap_or(&cgroup.members)).map(|dir| Some(dir.into()))
}

/// Brings this process, which has one thread, to where it was not born:
/// version 1 only. Every hierarchy, so that each limit of the container holds.
pub(crate) fn enter(cgroup: &Cgroup, own: Option<&Path>) -> io::Result<()> {
    if !cgroup.is_version_1() {
        return Ok(());
    }
    if cgroup.every.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "container was made by an earlier version"));
    }
    for dir in &cgroup.every {
        let dir = own.filter(|_| *dir == cgroup.members).unwrap_or(dir);
        fs::write(dir.join("tasks"), "0")?;
    }
    Ok(())
}

/// SIGKILL to every process of the cgroup and those below it (TC-066).
/// Returns how many there were.
pub(crate) fn kill_all(members: &Path) -> usize {
    // Version 2 kills the whole tree at once, forks included.
    let _ = fs::write(members.join("cgroup.kill"), "1");
    let pids = pids(members);
    for pid in &pids {
        // A process that is gone by now is what we want.
        let _ = kill(*pid, Signal::SIGKILL);
    }
    pids.len()
}

/// The processes of the cgroup and those below it; none if it is gone.
fn pids(members: &Path) -> Vec<Pid> {
    let mut pids: Vec<Pid> = fs::read_to_string(members.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        // Zero is how the kernel shows a process of a namespace we cannot see.
        .filter(|pid| *pid > 0)
        .map(Pid::from_raw)
        .collect();
    let Ok(entries) = fs::read_dir(members) else { return pids };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        pids.extend(self::pids(&entry.path()));
    }
    pids
}
