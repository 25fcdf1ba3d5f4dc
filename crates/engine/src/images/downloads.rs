//! Blobs on their way from a registry: one file each, locked by its fetcher,
//! kept when a fetch breaks off so that the next one goes on from there.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::ImageError;
use super::read::Slice;

/// Whoever has it is the only one to fetch this blob, on this machine.
#[derive(Clone)]
pub(super) struct Download {
    /// None: it has no name.
    path: Option<PathBuf>,
    /// Locked; the lock goes with the last clone.
    file: Arc<File>,
}

impl Download {
    /// Nothing while somebody else fetches the blob. Whoever needs several
    /// takes them in the order of their digests, or two could wait for each other.
    pub(super) fn open(directory: &Path, digest: &str) -> Result<Option<Download>, ImageError> {
        let path = directory.join(digest.trim_start_matches("sha256:"));
        let open = || -> io::Result<Option<File>> {
            loop {
                let file = options().open(&path)?;
                match lock(&file, FlockOperation::NonBlockingLockExclusive) {
                    // Its last holder may have removed it since we opened it.
                    Ok(()) if !is_at(&file, &path) => {}
                    Ok(()) => return Ok(Some(file)),
                    Err(err) if err.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    Err(err) => return Err(err),
                }
            }
        };
        let file = open().map_err(ImageError::io(path.display().to_string()))?;
        Ok(file.map(|file| Download { path: Some(path), file: Arc::new(file) }))
    }

    /// One that nobody else finds; gone with its last clone.
    pub(super) fn of_our_own(directory: &Path) -> Result<Download, ImageError> {
        let open = || options().create(false).custom_flags(libc::O_TMPFILE).open(directory);
        let file = open().map_err(ImageError::io(directory.display().to_string()))?;
        Ok(Download { path: None, file: Arc::new(file) })
    }

    pub(super) fn len(&self) -> Result<u64, ImageError> {
        Ok(self.file.metadata().map_err(self.failed())?.len())
    }

    pub(super) fn write_at(&self, bytes: &[u8], position: u64) -> Result<(), ImageError> {
        self.file.write_all_at(bytes, position).map_err(self.failed())
    }

    /// Starts anew.
    pub(super) fn clear(&self) -> Result<(), ImageError> {
        self.file.set_len(0).map_err(self.failed())
    }

    pub(super) fn content(&self) -> Result<Slice, ImageError> {
        Ok(Slice::new(self.file.clone(), 0, self.len()?))
    }

    /// It has served its purpose.
    pub(super) fn remove(&self) -> Result<(), ImageError> {
        self.path.as_ref().map_or(Ok(()), fs::remove_file).map_err(self.failed())
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> ImageError {
        ImageError::io(self.path.as_ref().map_or_else(|| "image layer".to_owned(), |path| path.display().to_string()))
    }
}

fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

/// Removes what nobody fetches at the moment; returns how many.
pub(super) fn clear(directory: &Path) -> Result<usize, ImageError> {
    let mut cleared = 0;
    for path in super::children(directory)? {
        let failed = || ImageError::io(path.display().to_string());
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
            Err(err) => return Err(failed()(err)),
        };
        match lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => {
                fs::remove_file(&path).map_err(failed())?;
                cleared += 1;
            }
            Ok(()) => {}
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            Err(err) => return Err(failed()(err)),
        }
    }
    Ok(cleared)
}

pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let same = |one: &fs::Metadata, other: &fs::Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    matches!((&file.metadata(), &fs::metadata(path)), (Ok(one), Ok(other)) if same(one, other))
}

pub(super) fn lock(file: &File, how: FlockOperation) -> io::Result<()> {
    loop {
        match rustix::fs::flock(file, how) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_has_one_fetcher_and_survives_it() {
        let directory = tempfile::tempdir().unwrap();
        let digest = format!("sha256:{}", "a".repeat(64));
        let open = || Download::open(directory.path(), &digest).unwrap();
        let first = open().unwrap();
        first.write_at(b"half", 0).unwrap();
        assert_eq!(clear(directory.path()).unwrap(), 0, "somebody fetches it");
        assert!(open().is_none(), "nobody waits for it here");
        let own = Download::of_our_own(directory.path()).unwrap();
        own.write_at(b"other", 0).unwrap();
        assert_eq!((first.len().unwrap(), own.len().unwrap()), (4, 5));
        own.remove().unwrap();
        first.remove().unwrap();
        assert_eq!(open().unwrap().len().unwrap(), 0, "the removed file is not taken for the new one");
        drop(first);

        open().unwrap().write_at(b"half", 0).unwrap();
        assert_eq!(open().unwrap().len().unwrap(), 4);
        assert_eq!(clear(directory.path()).unwrap(), 1);
        assert!(super::super::children(directory.path()).unwrap().is_empty());
    }
}
