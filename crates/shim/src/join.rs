//! Becoming one more process of a running container.
//!
//! A child of the shim goes there from outside: it makes ready what it needs of
//! the node, closes what belongs to the shim, enters all namespaces but that of
//! processes and becomes the container's user, confined as the container is.
//! Only then it is born again, as the shim's child, among the container's
//! processes: what those see of it can do what they can, shows the container's
//! own files, and is not dumpable until its program runs (CVE-2016-9962,
//! CVE-2024-21626, docs/decisions/0040).

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
use crate::slate::Slate;
use crate::wire::PidNamespace;
use crate::{cgroup, labels, parcel, sys, terminal, users};

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
/// Returns who brings it there and then says over `report` which process it is.
pub(crate) fn spawn(entry: &Entry<'_>, ends: Ends, report: &Slate) -> io::Result<Pid> {
    let pidfd = sys::pidfd(entry.init)?;
    let cradle = cgroup::cradle(&entry.profile.cgroup, entry.own_cgroup.as_deref())?;
    let child = || {
        let kept = report.keep_to_ourselves().map_err(|error| format!("error preparing process: {error}"));
        match kept.and_then(|()| join(entry, &ends, &pidfd)) {
            Ok(pid) => {
                report.write(&pid.as_raw().to_le_bytes());
                0
            }
            Err(problem) => nix::unistd::write(&ends.sync, problem.as_bytes()).map_or(START_ERROR, |_| 0),
        }
    };
    report.shared(|| sys::fork_in(cradle.as_ref().map(AsFd::as_fd), child))
}

/// Which process `spawn` spoke of, if it did.
pub(crate) fn named(report: &Slate) -> Option<Pid> {
    report.read().try_into().ok().map(|number| Pid::from_raw(i32::from_le_bytes(number)))
}

/// From the node into the container. Nobody there sees us on the way.
fn join(entry: &Entry<'_>, ends: &Ends, pidfd: &OwnedFd) -> Result<Pid, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("error {what}: {error}");
    let available = entry.profile.available().map_err(failed("reading capabilities"))?;
    let mut launch = entry.profile.launch(entry.command, entry.identity, available, ends.sync.as_raw_fd())?;
    isolate(ends, pidfd).map_err(failed("preparing process"))?;
    ends.give_to(entry.identity, entry.profile.users).map_err(failed("giving the user its streams"))?;
    sys::set_oom_score(entry.profile.oom_score_adj).map_err(failed("setting OOM score"))?;
    labels::apply(&entry.profile.labels)?;
    let entered = cgroup::enter(&entry.profile.cgroup, entry.own_cgroup.as_deref());
    entered.map_err(failed("entering container cgroup"))?;
    let namespaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWCGROUP
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET;
    let enter = |kinds| setns(pidfd, kinds).map_err(io::Error::from);
    enter(namespaces).map_err(failed("joining container namespaces"))?;
    if let Some(console) = &ends.console {
        take_terminal(entry, console).map_err(failed("opening terminal"))?;
        launch.add_env(TERMINAL_KIND);
    }
    if entry.profile.users.is_some() {
        let joined = enter(CloneFlags::CLONE_NEWUSER).and_then(|()| users::become_root());
        joined.map_err(failed("joining the pod's users"))?;
    }
    if entry.profile.pid != PidNamespace::Host {
        // Of our children: we stay outside.
        enter(CloneFlags::CLONE_NEWPID).map_err(failed("joining container processes"))?;
    }
    sys::close_all_but(&[launch.sync]).map_err(failed("closing descriptors"))?;
    launch.become_user().map_err(failed("changing user"))??;
    launch.confine()?;
    let born = launch.bear(ends.console.is_some(), |ready| {
        // The shim's end is its end. Where a profile refuses this its cgroup has to do.
        let _ = sys::prctl(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.unsigned_abs()));
        launch.execute_if(ready.map_err(failed("preparing process")))
    });
    born.map_err(failed("starting process"))
}

/// What containerd says as well, unless the container's environment knows better.
const TERMINAL_KIND: (&CStr, &CStr) = (c"TERM", c"xterm");

/// Its other side goes to whoever asked.
fn take_terminal(entry: &Entry<'_>, console: &OwnedFd) -> io::Result<()> {
    let (master, _) = terminal::take(entry.profile.on_node(entry.identity.uid))?;
    parcel::hand_over(console, &master)
}

/// Leaves behind what belongs to the shim: descriptors, signals.
fn isolate(ends: &Ends, pidfd: &OwnedFd) -> io::Result<()> {
    // The shim's own input and output are nothing; its errors go to its log.
    nix::unistd::dup2_stderr(io::stdout())?;
    ends.connect()?;
    let mut keep = ends.numbers();
    keep.push(pidfd.as_raw_fd());
    sys::close_all_but(&keep)?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    sys::prctl(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.unsigned_abs()))?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    sys::default_signals();
    Ok(())
}
