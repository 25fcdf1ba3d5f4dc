//! What the shim does with a container's cgroup: enter it, list it, kill it.
//! Making it is the engine's work.
//!
//! How it is entered decides what a start costs: moving a whole process, as
//! `cgroup.procs` does, waits for every CPU of the machine (8 ms here). Being
//! born there does not, nor does moving a single thread
//! (docs/decisions/0017).

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::fcntl::{OFlag, openat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
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

/// The processes of the cgroup and those below it; none if it is gone. Who may
/// make cgroups may nest them deeper than any path is long: so this goes step
/// by step. Cgroups are never moved, so `..` leads back.
fn pids(members: &Path) -> Vec<Pid> {
    let mut pids = Vec::new();
    let Ok(mut here) = File::open(members) else { return pids };
    let mut ahead = vec![look(&here, &mut pids)];
    while let Some(children) = ahead.last_mut() {
        let Some(child) = children.pop() else {
            ahead.pop();
            match open_at(&here, c"..", libc::O_DIRECTORY) {
                Ok(above) if !ahead.is_empty() => here = above,
                _ => break,
            }
            continue;
        };
        // It may be gone by now.
        if let Ok(below) = open_at(&here, &child, libc::O_DIRECTORY | libc::O_NOFOLLOW) {
            here = below;
            ahead.push(look(&here, &mut pids));
        }
    }
    pids
}

/// Takes the processes of one cgroup, and tells which are below it.
fn look(here: &File, pids: &mut Vec<Pid>) -> Vec<CString> {
    let mut listed = String::new();
    if let Ok(mut procs) = open_at(here, c"cgroup.procs", 0) {
        let _ = procs.read_to_string(&mut listed);
    }
    // Zero is how the kernel shows a process of a namespace we cannot see.
    let numbers = listed.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0);
    pids.extend(numbers.map(Pid::from_raw));
    // By way of the descriptor: there may be no path.
    let entries = fs::read_dir(format!("/proc/self/fd/{}", here.as_raw_fd())).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below.filter_map(|entry| CString::new(entry.file_name().into_vec()).ok()).collect()
}

fn open_at(here: &File, name: &CStr, flags: i32) -> io::Result<File> {
    let flags = OFlag::from_bits_truncate(flags) | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    Ok(openat(here, name, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_deeper_than_any_path_is_long() {
        let place = std::env::temp_dir().join(format!("podium-deep-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let mut here = File::open(&place).unwrap();
        let write = |here: &File, text: &str| {
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC;
            let file = openat(here, c"cgroup.procs", flags, Mode::S_IRUSR).unwrap();
            nix::unistd::write(&file, text.as_bytes()).unwrap();
        };
        write(&here, "1\n2\n");
        let name = CString::new("n".repeat(250)).unwrap();
        for level in 10..40 {
            for name in [c"side", name.as_c_str()] {
                nix::sys::stat::mkdirat(&here, name, Mode::S_IRWXU).unwrap();
            }
            write(&open_at(&here, c"side", libc::O_DIRECTORY).unwrap(), &format!("{level}\n0\n"));
            here = open_at(&here, &name, libc::O_DIRECTORY).unwrap();
        }
        write(&here, "3\n");
        let mut found: Vec<i32> = pids(&place).into_iter().map(Pid::as_raw).collect();
        found.sort_unstable();
        assert_eq!(found, (1..=3).chain(10..40).collect::<Vec<_>>());
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(pids(&place), []);
    }
}
