//! Becoming one more process of a running container.
//!
//! The child is born in the container's PID namespace. Until its program runs
//! it is part of the shim inside the container: nothing there may look into it
//! (it is not dumpable), and nothing of the shim's may be left open
//! (CVE-2016-9962, CVE-2024-21626).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::Pid;

use crate::builder::Ends;
use crate::executor::START_ERROR;
use crate::inroot::Identity;
use crate::profile::Profile;
use crate::wire::PidNamespace;
use crate::{cgroup, parcel, sys, terminal, users};

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
    let cradle = cgroup::cradle(&entry.profile.cgroup, entry.own_cgroup.as_deref())?;
    let cradle = cradle.as_ref().map(AsFd::as_fd);
    match entry.profile.pid {
        PidNamespace::Own | PidNamespace::Pod | PidNamespace::Of(_) => sys::fork_into(pidfd.as_fd(), cradle, child),
        PidNamespace::Host => sys::fork_in(cradle, child),
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
    let entered = cgroup::enter(&entry.profile.cgroup, entry.own_cgroup.as_deref());
    entered.map_err(failed("entering container cgroup"))?;
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
    launch.become_user().map_err(failed("changing user"))??;
    launch.run()
}

/// What containerd says as well, unless the container's environment knows better.
const TERMINAL_KIND: (&CStr, &CStr) = (c"TERM", c"xterm");

/// Its other side goes to whoever asked.
fn take_terminal(entry: &Entry<'_>, console: &OwnedFd) -> io::Result<()> {
    let (master, _) = terminal::take(entry.profile.on_node(entry.identity.uid))?;
    parcel::hand_over(console, &master)
}

/// Leaves behind what belongs to the shim: descriptors, session, signals.
fn isolate(ends: &Ends, pidfd: &OwnedFd) -> io::Result<()> {
    // The shim's own input and output are /dev/null; its errors go to its log.
    nix::unistd::dup2_stderr(io::stdout())?;
    ends.connect()?;
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
