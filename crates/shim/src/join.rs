//! Becoming one more process of a running container.
//!
//! The child is born in the container's PID namespace. Until its program runs
//! it is part of the shim inside the container: nothing there may look into it
//! (it is not dumpable), and nothing of the shim's may be left open
//! (CVE-2016-9962, CVE-2024-21626).

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{Gid, Pid, Uid};

use crate::builder::Ends;
use crate::executor::{Launch, START_ERROR};
use crate::inroot::Identity;
use crate::profile::Profile;
use crate::wire::PidNamespace;
use crate::{parcel, spec, sys, terminal, users};

/// What joins, and where.
pub(crate) struct Entry<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) identity: &'a Identity,
    /// Process 1 of the container: its namespaces are joined.
    pub(crate) init: Pid,
    pub(crate) command: &'a [String],
    /// A cgroup below the container's, for this command alone.
    pub(crate) own_cgroup: Option<PathBuf>,
}

/// Starts the command. Why it could not be executed is said over `ends.sync`.
pub(crate) fn spawn(entry: &Entry<'_>, ends: Ends) -> io::Result<Pid> {
    let pidfd = sys::pidfd(entry.init)?;
    let child = || {
        let sync = &ends.sync;
        let Err(problem) = run(entry, &ends, &pidfd);
        let _ = nix::unistd::write(sync, problem.as_bytes());
        START_ERROR
    };
    match entry.profile.pid {
        PidNamespace::Own | PidNamespace::Pod | PidNamespace::Of(_) => sys::fork_into(pidfd.as_fd(), child),
        PidNamespace::Host => sys::fork(child),
    }
}

/// Returns only with a message that says why the command does not run.
fn run(entry: &Entry<'_>, ends: &Ends, pidfd: &OwnedFd) -> Result<std::convert::Infallible, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("error {what}: {error}");
    isolate(ends, pidfd).map_err(failed("preparing process"))?;
    ends.give_to(entry.identity, entry.profile.users).map_err(failed("giving the user its streams"))?;
    sys::set_oom_score(entry.profile.oom_score_adj).map_err(failed("setting OOM score"))?;
    let available = entry.profile.available().map_err(failed("reading capabilities"))?;
    // While the host's files can be seen: a seccomp profile is one.
    let mut launch = entry.profile.launch(entry.command, entry.identity, available, ends.sync.as_raw_fd())?;
    enter_cgroups(entry).map_err(failed("entering container cgroup"))?;
    let namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWCGROUP
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET;
    setns(pidfd, namespaces).map_err(io::Error::from).map_err(failed("joining container namespaces"))?;
    if let Some(console) = &ends.console {
        take_terminal(entry, console).map_err(failed("opening terminal"))?;
        launch.add_env(TERMINAL_KIND);
    }
    if entry.profile.users.is_some() {
        let joined =
            setns(pidfd, CloneFlags::CLONE_NEWUSER).map_err(io::Error::from).and_then(|()| users::become_root());
        joined.map_err(failed("joining the pod's users"))?;
    }
    become_user(entry, &launch)?;
    launch.confine()?;
    Err(launch.execute())
}

/// What containerd says as well, unless the container's environment knows better.
const TERMINAL_KIND: (&CStr, &CStr) = (c"TERM", c"xterm");

/// A new terminal of the container becomes that of this session. Its other
/// side goes to whoever asked.
fn take_terminal(entry: &Entry<'_>, console: &OwnedFd) -> io::Result<()> {
    let (master, peer) = terminal::open_inside()?;
    nix::unistd::fchown(&peer, Some(Uid::from_raw(entry.profile.on_node(entry.identity.uid))), None)?;
    sys::set_controlling_terminal(peer.as_fd())?;
    nix::unistd::dup2_stdin(&peer)?;
    nix::unistd::dup2_stdout(&peer)?;
    nix::unistd::dup2_stderr(&peer)?;
    parcel::hand_over(console, &master)
}

/// Leaves behind what belongs to the shim: descriptors, session, signals.
fn isolate(ends: &Ends, pidfd: &OwnedFd) -> io::Result<()> {
    // The shim's own input and output are /dev/null; its errors go to its log.
    nix::unistd::dup2_stderr(io::stdout())?;
    if let Some(end) = &ends.stdin {
        nix::unistd::dup2_stdin(end)?;
    }
    if let Some(end) = &ends.stdout {
        nix::unistd::dup2_stdout(end)?;
    }
    if let Some(end) = &ends.stderr {
        nix::unistd::dup2_stderr(end)?;
    }
    let mut keep = ends.numbers();
    keep.push(pidfd.as_raw_fd());
    sys::close_all_but(&keep)?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    sys::prctl(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.unsigned_abs()))?;
    nix::unistd::setsid()?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    sys::default_signals();
    Ok(())
}

/// Every hierarchy, so that each limit of the container holds for the command.
fn enter_cgroups(entry: &Entry<'_>) -> io::Result<()> {
    let cgroup = &entry.profile.cgroup;
    if cgroup.every.is_empty() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "container was made by an earlier version"));
    }
    for dir in &cgroup.every {
        let dir = entry.own_cgroup.as_ref().filter(|_| *dir == cgroup.members).unwrap_or(dir);
        // Version 1. Moving a single thread is quick; moving a process, as
        // `cgroup.procs` does, waits for every CPU of the machine.
        match fs::write(dir.join("tasks"), "0") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::write(dir.join("cgroup.procs"), "0")?,
            result => result?,
        }
    }
    Ok(())
}

/// The container's working directory and user. Some capabilities stay until
/// the filter is installed.
fn become_user(entry: &Entry<'_>, launch: &Launch) -> Result<(), String> {
    let failed = |error: io::Error| format!("error changing user: {error}");
    // As root first: a user may stand where it may not go (and the reverse on some file systems).
    let is_there = launch.stand();
    let switch = || -> io::Result<()> {
        let Identity { uid, gid, groups, .. } = entry.identity;
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        sys::prctl(libc::PR_SET_KEEPCAPS, 1)?;
        nix::unistd::setgroups(&groups)?;
        nix::unistd::setresgid(gid, gid, gid)?;
        nix::unistd::setresuid(uid, uid, uid)?;
        sys::set_capabilities(launch.capabilities | spec::bit("CAP_SYS_ADMIN") | spec::bit("CAP_SETPCAP"))?;
        if entry.profile.no_new_privileges {
            sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
        }
        Ok(())
    };
    switch().map_err(failed)?;
    is_there.or_else(|_| launch.stand())
}
