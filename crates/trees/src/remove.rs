//! Removing whole trees. Nothing is made for it, so a full disk does not
//! matter; nothing is read that was not just found to be a directory with
//! something in it; what is mounted somewhere below stays and is an error.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::{Entry, Ladder, Resume, Walk};

/// How often in a row a directory may be found to have something in it again.
/// More than once is due to others who write there, or to file systems that
/// lose their place when something is removed.
const VISITS_MAX: u32 = 1000;

/// Whatever it is; what is not there is removed already.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_at(CWD, path).map_err(|error| at(path, error))
}

/// The same below a directory; for names, not for paths that others can bend.
pub fn remove_at(directory: impl AsFd, name: impl Arg + Copy) -> io::Result<()> {
    let directory = directory.as_fd();
    for _ in 0..VISITS_MAX {
        let refusal = match unlink(directory, name, true)? {
            Unlinked::Gone => return Ok(()),
            Unlinked::Has => None,
            Unlinked::Mounted => Some(Errno::BUSY),
        };
        let flags = rustix::fs::OFlags::RDONLY
            | rustix::fs::OFlags::DIRECTORY
            | rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::CLOEXEC;
        match rustix::fs::openat(directory, name, flags, rustix::fs::Mode::empty()) {
            Ok(top) => empty(Ladder::new(top)?)?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
        // Somebody's mount is emptied when it is asked for by name, and stays.
        if let Some(refusal) = refusal {
            return Err(refusal.into());
        }
    }
    Err(busy())
}

/// All that is in a directory.
pub fn empty(top: Ladder) -> io::Result<()> {
    let mut walk = Walk::new(top);
    let (mut last, mut visits) = (None, 0);
    loop {
        let Some(entry) = walk.next_entry()? else {
            if !walk.leave()? {
                return Ok(());
            }
            continue;
        };
        if is_gone(&walk, &entry)? {
            continue;
        }
        // Back here after a visit, and still not empty.
        let place = Some((walk.depth(), entry.name.clone()));
        visits = if place == last { visits + 1 } else { 0 };
        if visits > VISITS_MAX {
            return Err(busy());
        }
        last = place;
        walk.enter(&entry, Resume::Again)?;
    }
}

fn is_gone(walk: &Walk, entry: &Entry) -> io::Result<bool> {
    match unlink(walk.here(), entry.name.as_c_str(), entry.is_directory())? {
        Unlinked::Gone => Ok(true),
        Unlinked::Has => Ok(false),
        Unlinked::Mounted => Err(at(Path::new(&*entry.name.to_string_lossy()), Errno::BUSY.into())),
    }
}

enum Unlinked {
    Gone,
    /// A directory with something in it.
    Has,
    /// Something is mounted on it.
    Mounted,
}

/// It may have become something else since it was read.
fn unlink(directory: impl AsFd, name: impl Arg + Copy, is_directory: bool) -> io::Result<Unlinked> {
    let as_directory = || rustix::fs::unlinkat(directory.as_fd(), name, AtFlags::REMOVEDIR);
    let as_file = || rustix::fs::unlinkat(directory.as_fd(), name, AtFlags::empty());
    let first = if is_directory { as_directory() } else { as_file() };
    let outcome = match first {
        Err(Errno::NOTDIR) if is_directory => as_file(),
        Err(Errno::ISDIR) if !is_directory => as_directory(),
        outcome => outcome,
    };
    match outcome {
        Ok(()) | Err(Errno::NOENT) => Ok(Unlinked::Gone),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Unlinked::Has),
        Err(Errno::BUSY) => Ok(Unlinked::Mounted),
        Err(error) => Err(error.into()),
    }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot remove {}: {error}", path.display()))
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "somebody keeps writing there")
}
