//! Directories in which something is made, or waits to be removed. Each is
//! locked by who works there: what is not locked was left by one that was
//! killed, and goes.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::downloads::{is_at, lock};

/// Removed with all that is in it at the end.
pub(super) struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    pub(super) fn new(directory: &Path) -> io::Result<Scratch> {
        for number in 0_u64.. {
            let path = directory.join(format!("{}-{number}", std::process::id()));
            // Somebody may take it for left behind before we have it.
            if make(&path)?
                && let Some(scratch) = Self::take(path)?
            {
                return Ok(scratch);
            }
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// For one at a time. `None`: somebody else has it.
    pub(super) fn at(path: PathBuf) -> io::Result<Option<Scratch>> {
        make(&path)?;
        Self::take(path)
    }

    fn take(path: PathBuf) -> io::Result<Option<Scratch>> {
        Ok(try_lock(&path)?.map(|lock| Scratch { path, _lock: lock }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = trees::remove(&self.path) {
            tracing::warn!(%error, "what is not needed any more stays until the next try");
        }
    }
}

/// False: it is there.
fn make(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// `None`: somebody else has it, or it is gone.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        locked => locked.map(|()| is_at(&file, path).then_some(file)),
    }
}

/// Removes what nobody works in.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if let Some(_ours) = try_lock(&path)? {
            trees::remove(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_works_in_stays_and_the_rest_goes() {
        let directory = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(directory.path()).unwrap().count();
        let (one, two) = (Scratch::new(directory.path()).unwrap(), Scratch::new(directory.path()).unwrap());
        assert_ne!(one.path(), two.path());
        fs::create_dir_all(directory.path().join("left/behind")).unwrap();
        fs::write(directory.path().join("file"), "left").unwrap();
        assert_eq!(names(), 4);
        clear(directory.path()).unwrap();
        assert_eq!(names(), 2);
        assert!(one.path().exists() && two.path().exists());
        fs::write(one.path().join("file"), "x").unwrap();
        assert!(Scratch::at(one.path().to_owned()).unwrap().is_none(), "somebody has it");
        let path = one.path().to_owned();
        drop(one);
        assert_eq!(names(), 1);
        assert!(Scratch::at(path).unwrap().is_some());
    }
}
