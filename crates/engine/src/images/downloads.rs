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
    path: PathBuf,
    /// Locked; the lock goes with the last clone.
    file: Arc<File>,
}

impl Download {
    /// Waits until nobody else fetches the blob. Whoever needs several takes
    /// them in the order of their digests, or two could wait for each other.
    pub(super) fn open(directory: &Path, digest: &str) -> Result<Download, ImageError> {
        let path = directory.join(digest.trim_start_matches("sha256:"));
        let open = || -> io::Result<File> {
            loop {
                let file =
                    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
                lock(&file, FlockOperation::LockExclusive)?;
                // Its last holder may have removed it while we waited.
                if is_at(&file, &path) {
                    return Ok(file);
                }
            }
        };
        let file = open().map_err(ImageError::io(path.display().to_string()))?;
        Ok(Download { path, file: Arc::new(file) })
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
        fs::remove_file(&self.path).map_err(self.failed())
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> ImageError {
        ImageError::io(self.path.display().to_string())
    }
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

fn is_at(file: &File, path: &Path) -> bool {
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
        let first = Download::open(directory.path(), &digest).unwrap();
        first.write_at(b"half", 0).unwrap();
        assert_eq!(clear(directory.path()).unwrap(), 0, "somebody fetches it");
        let waiting = {
            let (path, digest) = (directory.path().to_owned(), digest.clone());
            std::thread::spawn(move || Download::open(&path, &digest).unwrap().len().unwrap())
        };
        first.remove().unwrap();
        drop(first);
        assert_eq!(waiting.join().unwrap(), 0, "the removed file is not taken for the new one");

        Download::open(directory.path(), &digest).unwrap().write_at(b"half", 0).unwrap();
        assert_eq!(Download::open(directory.path(), &digest).unwrap().len().unwrap(), 4);
        assert_eq!(clear(directory.path()).unwrap(), 1);
        assert!(super::super::children(directory.path()).unwrap().is_empty());
    }
}
