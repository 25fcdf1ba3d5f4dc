//! The node's images: taken in from archives, unpacked once per layer, looked up by name.
//!
//! Never: talks to a registry yet, mounts anything (`rootfs.rs` and the shim do).
//! Read next: `images/layer.rs`, which keeps hostile layers inside their directory.
//!
//! ```text
//! <root>/index.json            references, ids, configurations
//! <root>/lock                  held by whoever writes
//! <root>/layers/<hex digest>/  one unpacked layer, complete and never changed
//! <root>/tmp/                  layers being unpacked; emptied by the next writer
//! ```
//!
//! Everything here blocks on files: async callers use `spawn_blocking`, except
//! for `resolve` and `list`, which cost one `stat` when nothing changed.

mod archive;
mod config;
mod error;
mod index;
mod layer;
mod limits;
mod read;
mod reference;
mod tarball;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub use config::ImageConfig;
pub use error::ImageError;

use archive::{Archive, Incoming};
use index::{Index, IndexFile, Record, WriteLock, sync_directory};
use limits::{LIMITS, Limits};
use read::{Hashing, Limited, Slice, decompress, read_error};
use reference::{Reference, is_digest, is_hex, is_hex64};

/// One node's store. Several processes may have it open; each sees what the
/// others did.
pub struct Images {
    root: PathBuf,
    index: IndexFile,
    limits: Limits,
}

/// Everything needed to run a container of the image.
#[derive(Debug, Clone)]
pub struct ResolvedImage {
    pub image: cri::Image,
    pub config: ImageConfig,
    /// Unpacked layers, bottom first.
    pub layers: Vec<PathBuf>,
}

impl Images {
    pub fn open(root: impl Into<PathBuf>) -> Result<Images, ImageError> {
        let root = root.into();
        for directory in [root.clone(), root.join("layers"), root.join("tmp")] {
            private_directory(&directory).map_err(ImageError::io(directory.display().to_string()))?;
        }
        let index = IndexFile::new(&root);
        index.current()?;
        Ok(Images { root, index, limits: LIMITS })
    }

    /// Takes in all images of a docker-archive or OCI layout, and moves their
    /// names to them. `tag_override` names the only image of an archive.
    /// Durable when it returns; after a failure all is as it was.
    pub fn import(&self, source: impl Read, tag_override: Option<&str>) -> Result<Vec<cri::Image>, ImageError> {
        let tag = tag_override.map(Reference::parse).transpose()?;
        let archive = Archive::spool(source, &self.root.join("tmp"), &self.limits)?;
        let mut incoming = archive.images()?;
        if let Some(tag) = tag {
            if incoming.len() > 1 {
                return Err(ImageError::archive("has several images, they cannot all get one name"));
            }
            incoming.iter_mut().for_each(|image| image.names = vec![tag.clone()]);
        }

        let lock = self.index.lock()?;
        if let Err(err) = self.unpack_layers(&incoming, &lock) {
            // A hostile layer may have filled the disk.
            self.empty_scratch(&lock)?;
            return Err(err);
        }
        let mut index = Index::clone(&*self.index.current()?);
        for image in &incoming {
            index.insert(&image.id, record(image));
        }
        self.index.replace(&index, &lock)?;
        let ids: BTreeSet<&str> = incoming.iter().map(|image| image.id.as_str()).collect();
        Ok(ids.into_iter().filter_map(|id| Some(describe(id, index.images.get(id)?))).collect())
    }

    /// By tag, digest reference, id, or the first digits of an id.
    pub fn resolve(&self, reference: &str) -> Result<Option<ResolvedImage>, ImageError> {
        let index = self.index.current()?;
        let Some(id) = find(&index, reference)? else { return Ok(None) };
        let Some(record) = index.images.get(&id) else { return Ok(None) };
        Ok(Some(ResolvedImage {
            image: describe(&id, record),
            config: record.config.clone(),
            layers: record.layers.iter().map(|digest| self.layer_path(digest)).collect(),
        }))
    }

    /// All images, ordered by id.
    pub fn list(&self) -> Result<Vec<cri::Image>, ImageError> {
        let index = self.index.current()?;
        Ok(index.images.iter().map(|(id, record)| describe(id, record)).collect())
    }

    /// Forgets a reference, and the image with its last tag; an id forgets all
    /// its references at once. Removing what is not there succeeds (TC-053).
    ///
    /// Layers stay until `sweep`: containers may still run on them, and only
    /// the engine knows.
    pub fn remove(&self, reference: &str) -> Result<(), ImageError> {
        let lock = self.index.lock()?;
        let mut index = Index::clone(&*self.index.current()?);
        let Some(id) = find(&index, reference)? else { return Ok(()) };
        if let Ok(name) = Reference::parse(reference)
            && let Some(record) = index.images.get_mut(&id)
            && record.tags.remove(&name.to_string())
            && !record.tags.is_empty()
        {
            return self.index.replace(&index, &lock);
        }
        index.images.remove(&id);
        self.index.replace(&index, &lock)
    }

    /// Deletes layers that belong to no image and are not among `in_use`
    /// (paths as `resolve` gave them). Returns how many went.
    pub fn sweep(&self, in_use: &[PathBuf]) -> Result<usize, ImageError> {
        let lock = self.index.lock()?;
        self.empty_scratch(&lock)?;
        let index = self.index.current()?;
        let mut keep: BTreeSet<PathBuf> = in_use.iter().cloned().collect();
        keep.extend(index.images.values().flat_map(|record| &record.layers).map(|digest| self.layer_path(digest)));
        let mut swept = 0;
        for layer in children(&self.root.join("layers"))? {
            if !keep.contains(&layer) {
                self.discard_layer(&layer)?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Fetches an image from its registry: not possible yet, and says so.
    pub fn pull(&self, reference: &str) -> Result<cri::Image, ImageError> {
        let reference = Reference::parse(reference)?.to_string();
        Err(ImageError::RegistryUnreachable { reference })
    }

    /// Unpacks what is not here yet. First all of them into scratch, then one
    /// flush for all, then the renames that make them count.
    fn unpack_layers(&self, incoming: &[Incoming], lock: &WriteLock) -> Result<(), ImageError> {
        self.empty_scratch(lock)?;
        let mut bytes_left = self.limits.import_bytes_max;
        let mut unpacked: Vec<(PathBuf, PathBuf)> = Vec::new();
        for (diff_id, content) in incoming.iter().flat_map(|image| &image.layers) {
            let target = self.layer_path(diff_id);
            if target.exists() || unpacked.iter().any(|(_, other)| *other == target) {
                continue;
            }
            let scratch = self.root.join("tmp").join(target.file_name().unwrap_or_default());
            fs::DirBuilder::new().mode(0o755).create(&scratch).map_err(io_at(&scratch))?;
            // Whatever the umask said: containers see this mode on their root.
            fs::set_permissions(&scratch, fs::Permissions::from_mode(0o755)).map_err(io_at(&scratch))?;
            let written = self.unpack_layer(diff_id, content.clone(), &scratch, bytes_left)?;
            bytes_left = bytes_left.saturating_sub(written);
            unpacked.push((scratch, target));
        }
        if unpacked.is_empty() {
            return Ok(());
        }
        let layers = self.root.join("layers");
        let directory = fs::File::open(&layers).map_err(io_at(&layers))?;
        rustix::fs::syncfs(&directory).map_err(io_at(&layers))?;
        for (scratch, target) in unpacked {
            fs::rename(&scratch, &target).map_err(io_at(&target))?;
        }
        sync_directory(&layers).map_err(io_at(&layers))
    }

    /// Unpacks one layer and checks that it is the one the image means.
    fn unpack_layer(&self, diff_id: &str, content: Slice, scratch: &Path, bytes_left: u64) -> Result<u64, ImageError> {
        let layer = Limited::new(decompress(content)?, "image layer", self.limits.layer_bytes_max);
        let layer = Limited::new(layer, "image", bytes_left);
        let layer = layer::unpack(Hashing::new(layer), scratch, &self.limits)?;
        let (actual, length) = layer.finish().map_err(read_error("image layer"))?;
        if actual != diff_id {
            return Err(ImageError::DigestMismatch { what: "image layer", expected: diff_id.to_owned(), actual });
        }
        Ok(length)
    }

    /// What a writer left behind that was killed.
    fn empty_scratch(&self, _lock: &WriteLock) -> Result<(), ImageError> {
        for leftover in children(&self.root.join("tmp"))? {
            fs::remove_dir_all(&leftover).map_err(io_at(&leftover))?;
        }
        Ok(())
    }

    /// Renames first: a layer is either complete or not there.
    fn discard_layer(&self, layer: &Path) -> Result<(), ImageError> {
        let scratch = self.root.join("tmp").join(layer.file_name().unwrap_or_default());
        fs::rename(layer, &scratch).map_err(io_at(layer))?;
        fs::remove_dir_all(&scratch).map_err(io_at(&scratch))
    }

    fn layer_path(&self, digest: &str) -> PathBuf {
        self.root.join("layers").join(digest.trim_start_matches("sha256:"))
    }
}

fn record(image: &Incoming) -> Record {
    let digests = match &image.manifest_digest {
        Some(digest) => image.names.iter().map(|name| name.with_digest(digest)).collect(),
        None => BTreeSet::new(),
    };
    Record {
        tags: image.names.iter().map(Reference::tagged).collect(),
        digests,
        size_bytes: image.size_bytes,
        config: image.config.clone(),
        layers: image.layers.iter().map(|(diff_id, _)| diff_id.clone()).collect(),
    }
}

fn describe(id: &str, record: &Record) -> cri::Image {
    cri::Image {
        id: id.to_owned(),
        repo_tags: record.tags.iter().cloned().collect(),
        repo_digests: record.digests.iter().cloned().collect(),
        size_bytes: record.size_bytes,
        user: None,
        is_pinned: false,
    }
}

/// The id of the image `text` means. A name wins over the first digits of an id.
fn find(index: &Index, text: &str) -> Result<Option<String>, ImageError> {
    if is_digest(text) || is_hex64(text) {
        let id = format!("sha256:{}", text.trim_start_matches("sha256:"));
        return Ok(index.images.contains_key(&id).then_some(id));
    }
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let is_prefix = digits.len() >= ID_DIGITS_MIN && is_hex(digits);
    match Reference::parse(text) {
        Ok(reference) => {
            let name = reference.to_string();
            let named = |record: &Record| record.tags.contains(&name) || record.digests.contains(&name);
            if let Some((id, _)) = index.images.iter().find(|(_, record)| named(record)) {
                return Ok(Some(id.clone()));
            }
        }
        Err(err) if !is_prefix => return Err(err),
        Err(_) => {}
    }
    if !is_prefix {
        return Ok(None);
    }
    let prefix = format!("sha256:{digits}");
    let mut ids = index.images.keys().filter(|id| id.starts_with(&prefix));
    match (ids.next(), ids.next()) {
        (Some(_), Some(_)) => Err(ImageError::AmbiguousId { prefix: digits.to_owned() }),
        (id, _) => Ok(id.cloned()),
    }
}

fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // It may have been there, and layers hold set-user-id programs.
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

fn children(directory: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let entries = fs::read_dir(directory).map_err(io_at(directory))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(io_at(directory))).collect()
}

fn io_at<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> ImageError {
    ImageError::io(path.display().to_string())
}

/// Fewer digits could as well be a name: a pod that asks for `cafe` must not
/// get whatever image happens to start with it.
const ID_DIGITS_MIN: usize = 8;

#[cfg(test)]
mod tests;
