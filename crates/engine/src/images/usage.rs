//! What images take, when they were used, and getting rid of what nobody needs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ambient::Timestamp;
use cri::{DiskUsage, ImageFs};
use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW};
use shim::crash;

use super::downloads::{self, lock};
use super::index::{Index, WriteLock};
use super::scratch::Scratch;
use super::{ImageError, Images, children, describe, io_at};

/// An image with what decides whether it may go.
#[derive(Debug, Clone)]
pub struct StoredImage {
    pub image: cri::Image,
    /// When it was taken in or a container was last made of it.
    pub last_used: Timestamp,
    /// Unpacked layers, bottom first: what containers stand on.
    pub layers: Vec<PathBuf>,
}

/// While somebody has one, no layer is deleted.
#[derive(Debug)]
pub struct Hold {
    _file: File,
}

impl Images {
    /// For whoever makes a container, from looking the image up until the
    /// container is recorded. `None`: layers are being deleted at the moment,
    /// wait with `hold`.
    pub fn try_hold(&self) -> Result<Option<Hold>, ImageError> {
        self.try_lock_holds(FlockOperation::NonBlockingLockShared)
    }

    fn try_lock_holds(&self, how: FlockOperation) -> Result<Option<Hold>, ImageError> {
        match self.lock_holds(how) {
            Err(ImageError::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }

    /// Waits while layers are being deleted.
    pub fn hold(&self) -> Result<Hold, ImageError> {
        self.lock_holds(FlockOperation::LockShared)
    }

    fn lock_holds(&self, how: FlockOperation) -> Result<Hold, ImageError> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.root.join("holds");
        let open = || -> io::Result<Hold> {
            let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            lock(&file, how)?;
            Ok(Hold { _file: file })
        };
        open().map_err(io_at(&path))
    }

    /// A container is made of it.
    pub fn mark_used(&self, id: &str) {
        let path = self.used_path(id);
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let marked = File::options().create(true).truncate(false).write(true).open(&path);
        let marked = marked.and_then(|file| Ok(rustix::fs::futimens(&file, &times)?));
        if let Err(error) = marked {
            // It only may be collected too early.
            tracing::warn!(%error, id, "cannot note that an image is used");
        }
    }

    fn used_path(&self, id: &str) -> PathBuf {
        self.root.join("used").join(id.trim_start_matches("sha256:"))
    }

    /// All images with their last use, ordered by id.
    pub fn stock(&self) -> Result<Vec<StoredImage>, ImageError> {
        let index = self.index.current()?;
        let stored = index.images.iter().map(|(id, record)| StoredImage {
            image: describe(id, record),
            last_used: modified(&self.used_path(id)),
            layers: record.layers.iter().map(|digest| self.layer_path(digest)).collect(),
        });
        Ok(stored.collect())
    }

    /// Where images are and what they take. Two images that share a layer
    /// count it once.
    pub fn file_system(&self) -> Result<ImageFs, ImageError> {
        let index = self.index.current()?;
        let add = |sum: DiskUsage, size: &super::LayerSize| DiskUsage {
            bytes: sum.bytes + size.bytes,
            inodes: sum.inodes + size.inodes,
        };
        let merged = self.merged_sizes(&index)?;
        let used = index.layers.values().chain(merged).fold(DiskUsage { bytes: 0, inodes: 0 }, add);
        Ok(ImageFs { mount_point: self.root.clone(), used })
    }

    /// Deletes layers that belong to no image and are not among those
    /// `in_use` (paths as `resolve` gave them; asked when no container can be
    /// in the making), and what broken pulls left. Returns how many layers went.
    /// Waits for those who build on layers, and nobody else waits for it.
    pub fn sweep(&self, in_use: impl FnOnce() -> io::Result<Vec<PathBuf>>) -> Result<usize, ImageError> {
        self.sweep_without(self.lock_holds(FlockOperation::LockExclusive)?, in_use)
    }

    /// The same at once. `None`: somebody builds on layers at the moment.
    pub fn try_sweep(&self, in_use: impl FnOnce() -> io::Result<Vec<PathBuf>>) -> Result<Option<usize>, ImageError> {
        let alone = self.try_lock_holds(FlockOperation::NonBlockingLockExclusive)?;
        alone.map(|alone| self.sweep_without(alone, in_use)).transpose()
    }

    fn sweep_without(
        &self,
        nobody_builds: Hold,
        in_use: impl FnOnce() -> io::Result<Vec<PathBuf>>,
    ) -> Result<usize, ImageError> {
        let scratch = self.scratch()?;
        let swept = {
            let lock = self.index.lock()?;
            let in_use = in_use().map_err(ImageError::io("layers in use"))?;
            self.set_aside(in_use.into_iter().collect(), &scratch, &lock)?
        };
        drop(nobody_builds);
        drop(scratch);
        self.empty_scratch()?;
        self.clear_unfinished()?;
        downloads::clear(&self.root.join("downloads"))?;
        Ok(swept)
    }

    /// Renames what goes, which is fast: a layer is complete or not there.
    fn set_aside(&self, mut keep: BTreeSet<PathBuf>, scratch: &Scratch, lock: &WriteLock) -> Result<usize, ImageError> {
        let mut index = Index::clone(&*self.index.current()?);
        keep.extend(index.images.values().flat_map(|record| &record.layers).map(|digest| self.layer_path(digest)));
        let mut swept = 0;
        for layer in children(&self.root.join("layers"))?.into_iter().chain(self.all_merged()?) {
            if !keep.contains(&layer) {
                // An image and a layer may have the same digest.
                fs::rename(&layer, scratch.path().join(swept.to_string())).map_err(io_at(&layer))?;
                crash::point("images.aside");
                swept += 1;
            }
        }
        if index.keep_layers(|digest| keep.contains(&self.layer_path(digest))) {
            self.index.replace(&index, lock)?;
        }
        for mark in children(&self.root.join("used"))? {
            let name = mark.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !index.images.contains_key(&format!("sha256:{name}")) {
                fs::remove_file(&mark).map_err(io_at(&mark))?;
            }
        }
        Ok(swept)
    }

    /// At the start of a node: what an earlier process left half done goes,
    /// layers that no image has and nobody uses included. Does not wait for
    /// those who are at work; their successors clean up.
    pub fn clear_leftovers(&self, in_use: impl FnOnce() -> io::Result<Vec<PathBuf>>) -> Result<(), ImageError> {
        if let Some(lock) = self.index.try_lock()? {
            self.index.clear_leftovers(&lock)?;
            if let Some(_nobody_builds) = self.try_lock_holds(FlockOperation::NonBlockingLockExclusive)? {
                let in_use = in_use().map_err(ImageError::io("layers in use"))?;
                self.set_aside(in_use.into_iter().collect(), &self.scratch()?, &lock)?;
            }
        }
        self.empty_scratch()?;
        self.clear_unfinished()?;
        downloads::clear(&self.root.join("downloads")).map(|_| ())
    }
}

/// The beginning of time where there is no mark.
fn modified(path: &Path) -> Timestamp {
    use std::os::unix::fs::MetadataExt;
    let seconds = fs::metadata(path).map_or(0, |metadata| metadata.mtime());
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
