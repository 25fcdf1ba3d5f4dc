//! The node's table of images: one file, replaced as a whole.
//!
//! Writers hold the lock file; readers need none, as a rename never shows
//! them half a table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use shim::crash;

use super::ImageError;
use super::config::ImageConfig;
use super::downloads::lock;
use super::limits::INDEX_BYTES_MAX;

/// Invariant: a tag or digest reference belongs to one image at most.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Index {
    version: u32,
    /// By image id.
    pub(super) images: BTreeMap<String, Record>,
    /// By digest: what unpacked layers take.
    #[serde(default)]
    pub(super) layers: BTreeMap<String, LayerSize>,
    /// By digest: who may have an unpacked layer without bringing it.
    #[serde(default)]
    origins: BTreeMap<String, Origins>,
}

/// Where the content of a layer came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// Put here by whoever runs the node.
    Archive,
    /// Given by a registry, without credentials of a pod's own or with them.
    Registry { repository: String, is_public: bool },
}

/// For whom a layer that is here may be used: as `imagePullCredentialsVerificationPolicy`
/// has it for images, only for those to whom the registry would give it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Origins {
    /// For everybody.
    is_public: bool,
    /// For whoever was given an image of one of these. Registries decide by repository.
    repositories: BTreeSet<String>,
}

/// Of a layer as it lies on the disk, without the filesystem's own overhead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerSize {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) tags: BTreeSet<String>,
    pub(super) digests: BTreeSet<String>,
    pub(super) size_bytes: u64,
    pub(super) config: ImageConfig,
    /// Digests of the uncompressed layers, bottom first.
    pub(super) layers: Vec<String>,
}

impl Index {
    /// Adds the record; its references leave whichever image had them before.
    pub(super) fn insert(&mut self, id: &str, new: Record) {
        for record in self.images.values_mut() {
            record.tags.retain(|tag| !new.tags.contains(tag));
            record.digests.retain(|digest| !new.digests.contains(digest));
        }
        let record = self.images.entry(id.to_owned()).or_default();
        let tags = std::mem::take(&mut record.tags);
        let digests = std::mem::take(&mut record.digests);
        *record = new;
        record.tags.extend(tags);
        record.digests.extend(digests);
    }
}

impl Index {
    pub(super) fn note_origin(&mut self, diff_id: &str, origin: &Origin) {
        let known = self.origins.entry(diff_id.to_owned()).or_default();
        match origin {
            Origin::Archive | Origin::Registry { is_public: true, .. } => known.is_public = true,
            Origin::Registry { repository, .. } => drop(known.repositories.insert(repository.clone())),
        }
    }

    /// Whether who was given an image of this repository may have the layer as
    /// it is here. One whose origin nobody noted has to be brought again.
    pub(super) fn may_reuse(&self, diff_id: &str, repository: &str) -> bool {
        self.origins.get(diff_id).is_some_and(|known| known.is_public || known.repositories.contains(repository))
    }

    /// Whether who comes from there may have the layer without bringing it.
    pub(super) fn is_given(&self, diff_id: &str, origin: &Origin) -> bool {
        matches!(origin, Origin::Registry { repository, .. } if self.may_reuse(diff_id, repository))
    }

    /// Forgets the layers that are not kept; true if there were any.
    pub(super) fn keep_layers(&mut self, is_kept: impl Fn(&str) -> bool) -> bool {
        let before = self.layers.len() + self.origins.len();
        self.layers.retain(|digest, _| is_kept(digest));
        self.origins.retain(|digest, _| is_kept(digest));
        self.layers.len() + self.origins.len() != before
    }

    pub(super) fn named(&self, name: &str) -> Option<&str> {
        let has_it = |record: &Record| record.tags.contains(name) || record.digests.contains(name);
        self.images.iter().find(|(_, record)| has_it(record)).map(|(id, _)| id.as_str())
    }
}

pub(super) struct IndexFile {
    directory: PathBuf,
    cached: Mutex<Option<Cached>>,
}

struct Cached {
    /// Held open so that its inode number cannot be given to a newer table:
    /// equal numbers then mean an unchanged table.
    file: File,
    index: Arc<Index>,
}

/// Whoever has it may change the store.
pub(super) struct WriteLock {
    _file: File,
}

impl IndexFile {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), cached: Mutex::new(None) }
    }

    /// Blocks while another process or thread writes.
    pub(super) fn lock(&self) -> Result<WriteLock, ImageError> {
        self.take_lock(FlockOperation::LockExclusive)
    }

    /// `None` while another process or thread writes.
    pub(super) fn try_lock(&self) -> Result<Option<WriteLock>, ImageError> {
        match self.take_lock(FlockOperation::NonBlockingLockExclusive) {
            Err(ImageError::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }

    fn take_lock(&self, how: FlockOperation) -> Result<WriteLock, ImageError> {
        let path = self.directory.join("lock");
        let take = || -> io::Result<WriteLock> {
            let file = private_file().read(true).open(&path)?;
            lock(&file, how)?;
            Ok(WriteLock { _file: file })
        };
        take().map_err(ImageError::io(path.display().to_string()))
    }

    /// The table as it is now, whoever wrote it.
    pub(super) fn current(&self) -> Result<Arc<Index>, ImageError> {
        let path = self.path();
        let io_failed = || ImageError::io(path.display().to_string());
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let now = match std::fs::metadata(&path) {
            Ok(now) => now,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(err) => return Err(io_failed()(err)),
        };
        if let Some(known) = &*cached {
            let then = known.file.metadata().map_err(io_failed())?;
            if (then.dev(), then.ino()) == (now.dev(), now.ino()) {
                return Ok(known.index.clone());
            }
        }
        let file = File::open(&path).map_err(io_failed())?;
        let index = Arc::new(self.parse(&file)?);
        *cached = Some(Cached { file, index: index.clone() });
        Ok(index)
    }

    /// Durable when it returns.
    pub(super) fn replace(&self, index: &Index, _lock: &WriteLock) -> Result<(), ImageError> {
        let path = self.path();
        let index = Index { version: VERSION, ..index.clone() };
        let bytes = serde_json::to_vec(&index)
            .map_err(|err| ImageError::CorruptIndex { path: path.clone(), detail: err.to_string() })?;
        let new = self.new_path();
        let write = || -> io::Result<()> {
            let mut file = private_file().truncate(true).open(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            crash::point("images.index-written");
            std::fs::rename(&new, &path)?;
            crash::point("images.index-renamed");
            sync_directory(&self.directory)
        };
        write().map_err(ImageError::io(path.display().to_string()))
    }

    /// What a writer left behind that was killed.
    pub(super) fn clear_leftovers(&self, _lock: &WriteLock) -> Result<(), ImageError> {
        match std::fs::remove_file(self.new_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ImageError::io(self.new_path().display().to_string())(error))
            }
            _ => Ok(()),
        }
    }

    fn parse(&self, file: &File) -> Result<Index, ImageError> {
        let corrupt = |detail: String| ImageError::CorruptIndex { path: self.path(), detail };
        let mut bytes = Vec::new();
        file.take(INDEX_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(ImageError::io(self.path().display().to_string()))?;
        if bytes.len() as u64 > INDEX_BYTES_MAX {
            return Err(corrupt("too large".to_owned()));
        }
        let index: Index = serde_json::from_slice(&bytes).map_err(|err| corrupt(err.to_string()))?;
        match index.version {
            VERSION => Ok(index),
            other => Err(corrupt(format!("version {other} is not version {VERSION}"))),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("index.json")
    }

    fn new_path(&self) -> PathBuf {
        self.directory.join("index.json.new")
    }
}

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn private_file() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

const VERSION: u32 = 1;
