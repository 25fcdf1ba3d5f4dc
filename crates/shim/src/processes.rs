//! A PID namespace that containers share, and the `/proc` that shows it.
//!
//! Only a process inside of a PID namespace can mount the `/proc` that shows
//! it, and whoever is inside is visible to the containers there, with all it
//! has. So containers that come later are given one that was mounted before
//! (docs/decisions/0040).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::stat::fstat;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use crate::sys::mount::{self, Change, SAFE};

#[derive(Debug)]
pub(crate) struct Processes {
    pub(crate) namespace: OwnedFd,
    pub(crate) shown: Shown,
}

/// Where the namespace's `/proc` is mounted.
#[derive(Debug)]
pub(crate) enum Shown {
    /// Mounted by its process 1: see [`mount::house`].
    House(OwnedFd),
    /// In the mount namespace of a container that is inside, and may have done
    /// anything to it.
    Container(OwnedFd),
}

impl Processes {
    pub(crate) fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        let (Shown::House(shown) | Shown::Container(shown)) = &self.shown;
        [self.namespace.as_fd(), shown.as_fd()]
    }

    /// One more mount of its `/proc`, mounted nowhere yet.
    pub(crate) fn show(&self) -> io::Result<OwnedFd> {
        let namespace = match &self.shown {
            Shown::House(house) => return mount::duplicate_housed(house.as_fd()),
            Shown::Container(namespace) => namespace,
        };
        let proc = mount::duplicate_from(namespace.as_fd(), c"/proc")?;
        if !self.is_shown_by(proc.as_fd())? {
            return Err(io::Error::other("the target container's /proc is not its own any more"));
        }
        let change = Change { set: SAFE, propagation: libc::MS_PRIVATE, ..Change::default() };
        mount::change(proc.as_fd(), &change).map(|()| proc)
    }

    /// By its process 1, who nobody else can be.
    fn is_shown_by(&self, proc: BorrowedFd<'_>) -> io::Result<bool> {
        if fstatfs(proc)?.filesystem_type() != PROC_SUPER_MAGIC {
            return Ok(false);
        }
        let own = format!("pid:[{}]", fstat(&self.namespace)?.st_ino);
        Ok(nix::fcntl::readlinkat(proc, "1/ns/pid").is_ok_and(|shown| shown == *own))
    }
}
