//! A place in a tree that can be left upwards again, however deep it is.
//!
//! Uppermost directories stay open. Deeper ones are found again by their `..`,
//! and believed only if that is the directory we came from: somebody may have
//! moved the one we are in. Then the way down is looked for once more.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::OPEN_MAX;

#[derive(Debug)]
pub struct Ladder {
    here: OwnedFd,
    identity: Identity,
    /// The mount that is not left.
    mount: u64,
    /// Of the directories above, the top first.
    above: Vec<Identity>,
    /// The uppermost of them.
    open: Vec<OwnedFd>,
    searches_left: u64,
}

/// Which directory, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Ladder {
    /// `top` can be read.
    pub fn new(top: OwnedFd) -> io::Result<Self> {
        let (identity, mount) = identify(top.as_fd())?;
        Ok(Self { here: top, identity, mount, above: Vec::new(), open: Vec::new(), searches_left: SEARCHES_MAX })
    }

    /// By its name; a link is no directory.
    pub fn at(path: impl Arg) -> io::Result<Self> {
        Self::new(rustix::fs::open(path, DIRECTORY, Mode::empty())?)
    }

    pub fn here(&self) -> BorrowedFd<'_> {
        self.here.as_fd()
    }

    /// Levels below the top.
    pub fn depth(&self) -> usize {
        self.above.len()
    }

    /// False: there is no such directory (any more), or something is mounted on it.
    pub fn enter(&mut self, name: impl Arg) -> io::Result<bool> {
        let below = match rustix::fs::openat(&self.here, name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            below => below?,
        };
        let (identity, mount) = identify(below.as_fd())?;
        if mount != self.mount {
            return Ok(false);
        }
        let left = std::mem::replace(&mut self.here, below);
        if self.open.len() == self.above.len() && self.open.len() < OPEN_MAX {
            self.open.push(left);
        }
        self.above.push(std::mem::replace(&mut self.identity, identity));
        Ok(true)
    }

    /// One level up, or several where directories above were moved meanwhile: to
    /// the lowest one that is still in its place. False: we are at the top.
    pub fn leave(&mut self) -> io::Result<bool> {
        let Some(&identity) = self.above.last() else { return Ok(false) };
        if self.open.len() < self.above.len() {
            let parent = rustix::fs::openat(&self.here, "..", DIRECTORY, Mode::empty())?;
            if identify(parent.as_fd())? == (identity, self.mount) {
                (self.here, self.identity) = (parent, identity);
                self.above.pop();
                return Ok(true);
            }
        }
        let Some(open) = self.open.pop() else { return Ok(false) };
        let lost = self.above.split_off(self.open.len() + 1);
        (self.here, self.identity) = (open, self.above[self.open.len()]);
        self.above.truncate(self.open.len());
        // Whoever moves directories about must not hide what lies beside them.
        for wanted in lost {
            if !self.find(wanted)? {
                break;
            }
        }
        Ok(true)
    }

    /// Into the directory that is this one, whatever it is called by now.
    fn find(&mut self, wanted: Identity) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        rustix::fs::seek(&self.here, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(self.here.as_fd(), &mut buffer);
        let name = loop {
            let Some(entry) = entries.next().transpose()? else { return Ok(false) };
            let Some(left) = self.searches_left.checked_sub(1) else { return Ok(false) };
            self.searches_left = left;
            if entry.ino() == wanted.inode && !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                break entry.file_name().to_owned();
            }
        };
        let (depth, before) = (self.depth(), self.identity);
        if !self.enter(name)? {
            return Ok(false);
        }
        if self.identity == wanted {
            return Ok(true);
        }
        // Moved once more: back to where we were.
        debug_assert_eq!(self.above.get(depth), Some(&before));
        match self.open.len() > depth {
            true => {
                self.above.pop();
                (self.here, self.identity) = (self.open.pop().expect("it is open"), before);
            }
            false => drop(self.leave()?),
        }
        Ok(false)
    }
}

/// Names that are looked at for directories that were moved, in all. Who moves
/// more of them than this takes only does not get us everywhere.
const SEARCHES_MAX: u64 = 1 << 22;
const BUFFER_BYTES: usize = 4 << 10;

/// With the number of the mount it is on. (Not the device: file systems with
/// subvolumes have several.)
fn identify(directory: BorrowedFd<'_>) -> io::Result<(Identity, u64)> {
    let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
    let found = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, wanted)?;
    Ok((Identity { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino }, found.stx_mnt_id))
}
