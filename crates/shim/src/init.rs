//! Process 1 of a PID namespace that the containers of a pod share
//! (`shareProcessNamespace`): takes every orphan's end, and does nothing else.
//!
//! Containers see it, and one with CAP_SYS_PTRACE may even take it over. So it
//! owns nothing: no descriptor, no file, no capability, and the filter that
//! containers have.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::SigSet;
use nix::unistd::{chdir, pipe2, pivot_root};

use crate::processes::{Processes, Shown};
use crate::sys::mount::{self as mounts, SAFE};
use crate::users::Users;
use crate::wire::Seccomp;
use crate::{parcel, seccomp, sys};

/// Starts it. The namespace lives as long as it does, and it as long as the shim.
pub(crate) fn start(users: Option<&Users>) -> io::Result<Processes> {
    let (namespace, proc) = match users {
        Some(users) => start_theirs(users),
        None => start_ours(),
    }?;
    Ok(Processes { namespace, shown: Shown::House(mounts::house(proc.as_fd())?) })
}

/// In a namespace that belongs to the pod's users. Only a process that has
/// become one of them can make that, and cannot come back: a child does.
fn start_theirs(users: &Users) -> io::Result<(OwnedFd, OwnedFd)> {
    let (report, mut report_end) = UnixStream::pair()?;
    let (hold, hold_end) = pipe2(OFlag::O_CLOEXEC)?;
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
    let proc = hear(&report);
    let namespace = File::open(format!("/proc/{helper}/ns/pid_for_children"));
    drop(hold_end);
    Ok((namespace?.into(), proc?))
}

fn start_ours() -> io::Result<(OwnedFd, OwnedFd)> {
    let own = File::open("/proc/self/ns/pid")?;
    let (report, report_end) = UnixStream::pair()?;
    unshare(CloneFlags::CLONE_NEWPID)?;
    let forked = sys::fork(|| live(&report_end));
    drop(report_end);
    let namespace = File::open("/proc/self/ns/pid_for_children");
    if let Err(error) = setns(&own, CloneFlags::CLONE_NEWPID) {
        // Whatever we made from now on would be born in the wrong namespace.
        eprintln!("shim: own PID namespace is lost: {error}");
        std::process::abort();
    }
    forked?;
    Ok((namespace?.into(), hear(&report)?))
}

/// The namespace's `/proc`, once process 1 has let go of everything.
fn hear(report: &UnixStream) -> io::Result<OwnedFd> {
    let mut said = [0; 1024];
    let (length, fds) = parcel::receive(report, &mut said)?;
    let refused = || io::Error::other(String::from_utf8_lossy(&said[..length]).into_owned());
    let proc = fds.into_iter().next().ok_or_else(refused)?;
    // Only its end comes now.
    parcel::receive(report, &mut [0]).map(|_| proc)
}

/// Of process 1; returns only if it cannot live.
fn live(mut report: &UnixStream) -> i32 {
    match isolate(report) {
        // When the shim has died meanwhile, nobody hears this.
        Ok(proc) if parcel::hand_over(report, &proc).is_ok() => {
            // With the others, below.
            std::mem::forget(proc);
            if sys::close_all_but(&[]).is_ok() {
                sys::reap_for_ever()
            }
        }
        Ok(_) => {}
        Err(error) => {
            let _ = report.write_all(error.to_string().as_bytes());
        }
    }
    1
}

/// Returns the `/proc` of the namespace, which only somebody inside can mount.
fn isolate(report: &UnixStream) -> io::Result<OwnedFd> {
    let filters = seccomp::filters(&Seccomp::Default, &[]).map_err(io::Error::other)?;
    sys::close_all_but(&[report.as_raw_fd()])?;
    // Where its errors would go belongs to the node.
    nix::unistd::dup2_stderr(io::stdout())?;
    nix::unistd::setsid()?;
    // Process 1 ends by KILL from outside only; CHLD is waited for.
    SigSet::all().thread_block()?;
    let proc = empty_root()?;
    sys::prctl_ambient_clear()?;
    for number in (0..64).filter(|number| sys::has_capability_number(*number)) {
        sys::prctl(libc::PR_CAPBSET_DROP, number)?;
    }
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    sys::set_capabilities(0)?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    sys::prctl(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.unsigned_abs()))?;
    filters.programs.iter().try_for_each(|program| sys::install_seccomp(program, filters.flags))?;
    Ok(proc)
}

/// A root directory with nothing in it. Returns what `/proc` would be.
fn empty_root() -> io::Result<OwnedFd> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    // While the node's is in sight, as the kernel demands of users of a pod's own.
    let proc = mounts::detached(c"proc", &[], SAFE)?;
    // Any directory that is there for sure; only we see this.
    mount(Some("tmpfs"), "/proc", Some("tmpfs"), flags, Some("mode=555,size=4k"))?;
    chdir("/proc")?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    Ok(proc)
}
