//! A pod's own users (`hostUsers: false`): the user namespace that owns its
//! other namespaces. Root of the pod is nobody in particular on the node.
//!
//! The shim stays who it is and outside of that namespace; it only lives in
//! the network, IPC and UTS namespaces that a child made in there.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Gid, Pid, Uid, pipe2, setgroups, setresgid, setresuid};

use crate::sys;
use crate::wire::IdRange;

#[derive(Debug)]
pub(crate) struct Users {
    pub(crate) namespace: OwnedFd,
    pub(crate) range: IdRange,
}

impl IdRange {
    /// Whose number on the node this one of the pod is.
    pub(crate) fn on_node(self, id: u32) -> u32 {
        self.first.saturating_add(id)
    }

    pub(crate) fn has(self, id: u32) -> bool {
        id < self.length
    }
}

/// Makes the user namespace, in it the namespaces of `kinds`, does `furnish`
/// in them as their root, and enters all but the first.
pub(crate) fn enter(range: IdRange, kinds: CloneFlags, furnish: impl FnOnce() -> io::Result<()>) -> io::Result<Users> {
    let (report, report_end) = pipe2(OFlag::O_CLOEXEC)?;
    let (go, go_end) = pipe2(OFlag::O_CLOEXEC)?;
    let (mut report, mut report_end) = (File::from(report), File::from(report_end));
    let (mut go, go_end) = (File::from(go), File::from(go_end));
    let child = sys::fork(|| {
        // Or our own end of it would keep us waiting.
        let told = sys::close_all_but(&[report_end.as_raw_fd(), go.as_raw_fd()]);
        let outcome = told.and_then(|()| make(kinds, furnish, &mut report_end, &mut go));
        let told = match outcome {
            Ok(()) => report_end.write_all(READY),
            Err(error) => report_end.write_all(error.to_string().as_bytes()),
        };
        // Its namespaces are taken while it lives.
        i32::from(told.and_then(|()| go.read(&mut [0])).is_err())
    })?;
    drop(report_end);
    let entered = join(child, range, kinds, &mut report, go_end);
    if entered.is_err() {
        let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
    }
    entered
}

const MADE: &[u8] = b"?";
const READY: &[u8] = b"+";

/// In the child.
fn make(
    kinds: CloneFlags,
    furnish: impl FnOnce() -> io::Result<()>,
    report: &mut File,
    go: &mut File,
) -> io::Result<()> {
    sys::prctl(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.unsigned_abs()))?;
    unshare(CloneFlags::CLONE_NEWUSER)?;
    report.write_all(MADE)?;
    go.read_exact(&mut [0])?;
    become_root()?;
    unshare(kinds)?;
    furnish()
}

/// In the shim.
fn join(child: Pid, range: IdRange, kinds: CloneFlags, report: &mut File, mut go: File) -> io::Result<Users> {
    let said = |report: &mut File| -> io::Result<Vec<u8>> {
        let mut said = vec![0; 1024];
        let length = report.read(&mut said)?;
        said.truncate(length);
        Ok(said)
    };
    let refused = |said: Vec<u8>| io::Error::other(String::from_utf8_lossy(&said).into_owned());
    match said(report)? {
        made if made == MADE => {}
        other => return Err(refused(other)),
    }
    let map = format!("0 {} {}\n", range.first, range.length);
    for file in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{child}/{file}"), &map)?;
    }
    go.write_all(b"g")?;
    match said(report)? {
        ready if ready == READY => {}
        other => return Err(refused(other)),
    }
    let namespace = File::open(format!("/proc/{child}/ns/user"))?.into();
    setns(sys::pidfd(child)?, kinds)?;
    Ok(Users { namespace, range })
}

impl Users {
    /// From here on we are root of the pod's users, and nobody on the node.
    pub(crate) fn become_their_root(&self) -> io::Result<()> {
        setns(&self.namespace, CloneFlags::CLONE_NEWUSER)?;
        become_root()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}

/// Of the user namespace we are in.
pub(crate) fn become_root() -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}
