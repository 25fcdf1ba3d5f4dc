//! Process 1 of a PID namespace that the containers of a pod share
//! (`shareProcessNamespace`): takes every orphan's end, and does nothing else.
//!
//! Containers see it, and one with CAP_SYS_PTRACE may even take it over. So it
//! owns nothing: no descriptor, no file, no capability, and the filter that
//! containers have.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::SigSet;
use nix::unistd::{chdir, pipe2, pivot_root};

use crate::users::Users;
use crate::wire::Seccomp;
use crate::{seccomp, sys};

/// Starts it. The namespace lives as long as it does, and it as long as the shim.
pub(crate) fn start(users: Option<&Users>) -> io::Result<OwnedFd> {
    match users {
        Some(users) => start_theirs(users),
        None => start_ours(),
    }
}

/// In a namespace that belongs to the pod's users. Only a process that has
/// become one of them can make that, and cannot come back: a child does.
fn start_theirs(users: &Users) -> io::Result<OwnedFd> {
    let (report, report_end) = pipe2(OFlag::O_CLOEXEC)?;
    let (hold, hold_end) = pipe2(OFlag::O_CLOEXEC)?;
    let mut report_end = File::from(report_end);
    let helper = sys::fork(|| {
        let born = sys::close_all_but(&[report_end.as_raw_fd(), hold.as_raw_fd(), users.fd().as_raw_fd()])
            .and_then(|()| users.become_their_root())
            .and_then(|()| Ok(unshare(CloneFlags::CLONE_NEWPID)?))
            .and_then(|()| sys::fork_sibling(|| live(&report_end)));
        if let Err(error) = born {
            let _ = report_end.write_all(error.to_string().as_bytes());
        }
        // The shim reads to its end. Ours is when the namespace was taken.
        let _ = sys::close_all_but(&[hold.as_raw_fd()]);
        i32::from(File::from(hold).read(&mut [0]).is_err())
    })?;
    drop(report_end);
    let mut said = String::new();
    File::from(report).read_to_string(&mut said)?;
    let namespace = File::open(format!("/proc/{helper}/ns/pid_for_children"));
    drop(hold_end);
    if said == "+" { Ok(namespace?.into()) } else { Err(io::Error::other(said)) }
}

fn start_ours() -> io::Result<OwnedFd> {
    let own = File::open("/proc/self/ns/pid")?;
    let (report, report_end) = pipe2(OFlag::O_CLOEXEC)?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    let forked = sys::fork(|| live(&File::from(report_end)));
    let namespace = File::open("/proc/self/ns/pid_for_children");
    if let Err(error) = setns(&own, CloneFlags::CLONE_NEWPID) {
        // Whatever we made from now on would be born in the wrong namespace.
        eprintln!("shim: own PID namespace is lost: {error}");
        std::process::abort();
    }
    forked?;
    let mut said = String::new();
    // Ends when the child has let go of it.
    File::from(report).read_to_string(&mut said)?;
    if said == "+" { Ok(namespace?.into()) } else { Err(io::Error::other(said)) }
}

/// Of process 1; returns only if it cannot live.
fn live(mut report: &File) -> i32 {
    match isolate(report) {
        // When the shim has died meanwhile, nobody hears this.
        Ok(()) if report.write_all(b"+").is_ok() && sys::close_all_but(&[]).is_ok() => sys::reap_for_ever(),
        Ok(()) => {}
        Err(error) => {
            let _ = report.write_all(error.to_string().as_bytes());
        }
    }
    1
}

fn isolate(report: &File) -> io::Result<()> {
    let filters = seccomp::filters(&Seccomp::Default, &[]).map_err(io::Error::other)?;
    sys::close_all_but(&[report.as_raw_fd()])?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stderr(&null)?;
    drop(null);
    nix::unistd::setsid()?;
    // Process 1 ends by KILL from outside only; CHLD is waited for.
    SigSet::all().thread_block()?;
    empty_root()?;
    sys::prctl_ambient_clear()?;
    for number in (0..64).filter(|number| sys::has_capability_number(*number)) {
        sys::prctl(libc::PR_CAPBSET_DROP, number)?;
    }
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    sys::set_capabilities(0)?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    sys::prctl(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.unsigned_abs()))?;
    filters.programs.iter().try_for_each(|program| sys::install_seccomp(program, filters.flags))
}

/// A root directory with nothing in it.
fn empty_root() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    // Any directory that is there for sure; only we see this.
    mount(Some("tmpfs"), "/proc", Some("tmpfs"), flags, Some("mode=555,size=4k"))?;
    chdir("/proc")?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    Ok(())
}
