//! Pseudo terminals of containers.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::Uid;

use crate::sys;

/// `DEVPTS_SUPER_MAGIC`.
const DEVPTS: FsType = FsType(0x1cd1);

/// A new terminal of the container we are in: master and the other side.
///
/// Everything in `/dev` may be a trick of the container's (CVE-2025-52565), so
/// what was opened is looked at, and no path is used after that.
fn open_inside() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let master = open("/dev/pts/ptmx", flags, Mode::empty())?;
    let node = fstat(&master)?;
    let is_device = SFlag::from_bits_truncate(node.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFCHR;
    let is_master = is_device && (major(node.st_rdev), minor(node.st_rdev)) == (5, 2);
    if !is_master || fstatfs(&master)?.filesystem_type() != DEVPTS {
        return Err(io::Error::other("/dev/pts/ptmx of the container is no terminal device"));
    }
    sys::unlock_terminal(master.as_fd())?;
    let peer = sys::terminal_peer(master.as_fd())?;
    Ok((master, peer))
}

/// A new terminal of the container we are in, this user's: master and the other
/// side, which becomes our input and output.
pub(crate) fn take(owner: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    let (master, peer) = open_inside()?;
    nix::unistd::fchown(&peer, Some(Uid::from_raw(owner)), None)?;
    nix::unistd::dup2_stdin(&peer)?;
    nix::unistd::dup2_stdout(&peer)?;
    nix::unistd::dup2_stderr(&peer)?;
    Ok((master, peer))
}

/// A session of our own, whose terminal is our input if that is one.
pub(crate) fn begin_session(has_terminal: bool) -> io::Result<()> {
    let begun = nix::unistd::setsid();
    if has_terminal {
        begun?;
        sys::set_controlling_terminal(io::stdin().as_fd())?;
    }
    // Others run without: a seccomp profile may refuse it.
    Ok(())
}
