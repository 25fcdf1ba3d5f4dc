//! The node's images: pulled from registries or taken in from archives,
//! unpacked once per layer, looked up by name.
//!
//! Never: mounts anything (`rootfs.rs` and the shim do).
//! Read next: `images/pull.rs` (from a registry to the disk) and
//! `images/layer.rs`, which keeps hostile layers inside their directory.
//!
//! ```text
//! <root>/index.json            references, ids, configurations
//! <root>/lock                  held by whoever changes the index or the layers, never while strangers decide how long
//! <root>/holds                 shared by those who build on layers, exclusive to those who delete them
//! <root>/layers/<hex digest>/  one unpacked layer, complete and never changed
//! <root>/downloads/<hex>       layers being fetched, each locked by its fetcher; resumed by the next pull
//! <root>/used/<hex id>         its time says when the image was last used
//! <root>/merged/<hex id>/      an image of several layers as one directory, for volumes
//! <root>/merging/<hex id>/     one that is being made, locked by its maker
//! <root>/tmp/<name>/           layers being unpacked or removed, locked by who does; others are left over, and go
//! ```
//!
//! Everything here blocks on files: async callers use `spawn_blocking`, except
//! for `resolve` and `list`, which cost one `stat` when nothing changed.

mod archive;
mod config;
mod downloads;
mod error;
mod flights;
#[cfg(fuzzing)]
pub mod fuzzing;
mod incoming;
mod index;
mod layer;
mod limits;
mod manifest;
mod merged;
mod object;
mod pull;
mod read;
mod reference;
mod registry;
mod scratch;
mod tarball;
#[cfg(test)]
pub(crate) mod testing;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub use config::ImageConfig;
pub use error::ImageError;
pub use pull::{LayerProgress, PullOptions, Watcher};
pub use registry::{ProxyConfig, RegistryConfig};
pub use usage::{Hold, StoredImage};

use shim::crash;

use crate::rootfs::copy::free_bytes;

use archive::Archive;
use flights::Flights;
use incoming::Incoming;
use index::{Index, IndexFile, LayerSize, Origin, Record, WriteLock, sync_directory};
use limits::{LIMITS, Limits};
use read::{Hashing, Limited, Sharing, Slice, decompress, read_error};
use reference::{Reference, is_digest, is_hex, is_hex64};
use registry::{Names, PATIENCE, Patience};
use scratch::Scratch;

/// One node's store. Several processes may have it open; each sees what the
/// others did.
pub struct Images {
    root: PathBuf,
    index: IndexFile,
    limits: Limits,
    registries: RegistryConfig,
    patience: Patience,
    names: Names,
    flights: Flights,
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
        for name in ["", "layers", "tmp", "downloads", "used", "merged", "merging"] {
            let directory = root.join(name);
            private_directory(&directory).map_err(ImageError::io(directory.display().to_string()))?;
        }
        let index = IndexFile::new(&root);
        index.current()?;
        let (registries, flights) = (RegistryConfig::default(), Flights::default());
        Ok(Images { root, index, limits: LIMITS, registries, patience: PATIENCE, names: Names::default(), flights })
    }

    /// How to reach registries from now on.
    pub fn with_registries(self, registries: RegistryConfig) -> Images {
        Images { registries, ..self }
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

        let take_in = || self.take_in(&incoming, &Origin::Archive, &|_| ());
        // Something may be collected while we look: then all of it is unpacked.
        take_in().or_else(|error| if matches!(error, ImageError::LayerVanished) { take_in() } else { Err(error) })
    }

    /// Durable when it returns; after a failure all is as it was.
    fn take_in(
        &self,
        incoming: &[Incoming],
        origin: &Origin,
        unpacked: &dyn Fn(&str),
    ) -> Result<Vec<cri::Image>, ImageError> {
        self.empty_scratch()?;
        let scratch = self.scratch()?;
        let sizes = self.unpack_layers(incoming, &scratch, unpacked)?;
        let lock = self.index.lock()?;
        let mut index = Index::clone(&*self.index.current()?);
        let known = |diff_id: &str| sizes.contains_key(diff_id) || index.is_given(diff_id, origin);
        self.place_layers(incoming, &scratch, known, &lock)?;
        crash::point("images.unpacked");
        index.layers.extend(sizes);
        for image in incoming {
            index.insert(&image.id, record(image));
            image.layers.iter().for_each(|(diff_id, _)| index.note_origin(diff_id, origin));
        }
        self.index.replace(&index, &lock)?;
        let ids: BTreeSet<&str> = incoming.iter().map(|image| image.id.as_str()).collect();
        ids.iter().for_each(|id| self.mark_used(id));
        Ok(ids.into_iter().filter_map(|id| Some(describe(id, index.images.get(id)?))).collect())
    }

    /// The image a registry's digest stands for, if it is here; the reference
    /// moves to it.
    fn adopt(&self, reference: &Reference, digest: &str) -> Result<Option<cri::Image>, ImageError> {
        let name = reference.with_digest(digest);
        if self.index.current()?.named(&name).is_none() {
            return Ok(None);
        }
        let lock = self.index.lock()?;
        let mut index = Index::clone(&*self.index.current()?);
        let Some(id) = index.named(&name).map(str::to_owned) else { return Ok(None) };
        if reference.digest.is_none() && index.named(&reference.tagged()) != Some(&id) {
            let record = Record { tags: [reference.tagged()].into(), ..index.images[&id].clone() };
            index.insert(&id, record);
            self.index.replace(&index, &lock)?;
        }
        self.mark_used(&id);
        Ok(index.images.get(&id).map(|record| describe(&id, record)))
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

    /// LC-074: what a container of the image shows: the tag it was asked for
    /// by, or one it has, whichever way it was asked for.
    pub(crate) fn shown_name(asked: &str, image: &cri::Image) -> String {
        let tag = Reference::parse(asked).ok().map(|reference| reference.tagged());
        let tag = tag.filter(|tag| image.repo_tags.contains(tag));
        let known = image.repo_tags.first().or(image.repo_digests.first());
        tag.or_else(|| known.cloned()).unwrap_or_else(|| asked.to_owned())
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

    /// Unpacks what is not here yet, where nobody else looks; one flush for all.
    /// Whoever made the layers decides how long this takes, so others are not
    /// kept from the store meanwhile.
    fn unpack_layers(
        &self,
        incoming: &[Incoming],
        scratch: &Scratch,
        done: &dyn Fn(&str),
    ) -> Result<BTreeMap<String, LayerSize>, ImageError> {
        let mut bytes_left = self.limits.import_bytes_max;
        let mut unpacked = BTreeMap::new();
        let mut known: BTreeMap<&str, Vec<&Slice>> = BTreeMap::new();
        for (diff_id, content) in incoming.iter().flat_map(|image| &image.layers) {
            // An image may name one layer five hundred times.
            let known = known.entry(diff_id).or_default();
            if content.as_ref().is_some_and(|content| known.iter().any(|one| one.is_same(content))) {
                continue;
            }
            known.extend(content);
            let is_here = self.layer_path(diff_id).exists() || unpacked.contains_key(diff_id);
            match content {
                // Who brings a layer that others have must bring all of it:
                // its digest alone gives nobody what is in it.
                Some(content) if is_here => {
                    bytes_left = bytes_left.saturating_sub(self.verify_layer(diff_id, content.clone(), bytes_left)?);
                }
                Some(content) => {
                    let place = in_scratch(scratch, diff_id);
                    fs::DirBuilder::new().mode(0o755).create(&place).map_err(io_at(&place))?;
                    // Whatever the umask said: containers see this mode on their root.
                    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).map_err(io_at(&place))?;
                    crash::point("images.scratch");
                    let size = self.unpack_layer(diff_id, content.clone(), &place, bytes_left)?;
                    crash::point("images.layer");
                    bytes_left = bytes_left.saturating_sub(size.bytes);
                    unpacked.insert(diff_id.clone(), size);
                }
                // Whether it may be had is seen with the lock.
                None => {}
            }
            done(diff_id);
        }
        if !unpacked.is_empty() {
            let directory = fs::File::open(scratch.path()).map_err(io_at(scratch.path()))?;
            rustix::fs::syncfs(&directory).map_err(io_at(scratch.path()))?;
        }
        Ok(unpacked)
    }

    /// The renames that make layers count. Others may have brought the same
    /// meanwhile, or collected what was here. One that was not brought has to
    /// be `known` to those who want it.
    fn place_layers(
        &self,
        incoming: &[Incoming],
        scratch: &Scratch,
        known: impl Fn(&str) -> bool,
        _lock: &WriteLock,
    ) -> Result<(), ImageError> {
        let layers = self.root.join("layers");
        let mut is_changed = false;
        for (diff_id, content) in incoming.iter().flat_map(|image| &image.layers) {
            let (place, target) = (in_scratch(scratch, diff_id), self.layer_path(diff_id));
            if content.is_none() && !known(diff_id) {
                return Err(ImageError::LayerVanished);
            }
            if !target.exists() {
                if !place.exists() {
                    return Err(ImageError::LayerVanished);
                }
                fs::rename(&place, &target).map_err(io_at(&target))?;
                is_changed = true;
                crash::point("images.renamed");
            }
        }
        if is_changed { sync_directory(&layers).map_err(io_at(&layers)) } else { Ok(()) }
    }

    /// Unpacks one layer and checks that it is the one the image means.
    fn unpack_layer(
        &self,
        diff_id: &str,
        content: Slice,
        scratch: &Path,
        bytes_left: u64,
    ) -> Result<LayerSize, ImageError> {
        let free = self.free_bytes()?;
        let layer = Limited::new(decompress(content)?, "image layer", self.limits.layer_bytes_max);
        let layer = Limited::new(layer, "image", bytes_left);
        let layer = Limited::new(layer, DISK, free);
        // Others write at the same time.
        let layer = Sharing::new(layer, DISK, || self.free_bytes().map_err(io::Error::other));
        let (layer, inodes) =
            layer::unpack(Hashing::new(layer), scratch, &self.limits).map_err(|err| self.name_the_disk(err))?;
        let (actual, bytes) =
            layer.finish().map_err(read_error("image layer")).map_err(|err| self.name_the_disk(err))?;
        is_it(diff_id, actual)?;
        Ok(LayerSize { bytes, inodes })
    }

    /// The same without unpacking it; how many bytes that took to read.
    fn verify_layer(&self, diff_id: &str, content: Slice, bytes_left: u64) -> Result<u64, ImageError> {
        let layer = Limited::new(decompress(content)?, "image layer", self.limits.layer_bytes_max);
        let layer = Limited::new(layer, "image", bytes_left);
        let (actual, bytes) = Hashing::new(layer).finish().map_err(read_error("image layer"))?;
        is_it(diff_id, actual)?;
        Ok(bytes)
    }

    /// What images may still take of the filesystem they are on.
    fn free_bytes(&self) -> Result<u64, ImageError> {
        free_bytes(&self.root).map_err(io_at(&self.root))
    }

    fn name_the_disk(&self, err: ImageError) -> ImageError {
        match err {
            ImageError::TooLarge { what: DISK, limit } => ImageError::NoSpace { path: self.root.clone(), free: limit },
            other => other,
        }
    }

    fn scratch(&self) -> Result<Scratch, ImageError> {
        let place = self.root.join("tmp");
        Scratch::new(&place).map_err(io_at(&place))
    }

    /// What those left behind who were killed.
    fn empty_scratch(&self) -> Result<(), ImageError> {
        let place = self.root.join("tmp");
        scratch::clear(&place).map_err(io_at(&place))
    }

    fn layer_path(&self, digest: &str) -> PathBuf {
        self.root.join("layers").join(digest.trim_start_matches("sha256:"))
    }
}

fn in_scratch(scratch: &Scratch, digest: &str) -> PathBuf {
    scratch.path().join(digest.trim_start_matches("sha256:"))
}

fn is_it(diff_id: &str, actual: String) -> Result<(), ImageError> {
    match actual == diff_id {
        true => Ok(()),
        false => Err(ImageError::DigestMismatch { what: "image layer", expected: diff_id.to_owned(), actual }),
    }
}

fn record(image: &Incoming) -> Record {
    let digests = match &image.manifest_digest {
        Some(digest) => image.names.iter().map(|name| name.with_digest(digest)).collect(),
        None => BTreeSet::new(),
    };
    Record {
        // A reference with a digest names that one image, and no tag.
        tags: image.names.iter().filter(|name| name.digest.is_none()).map(Reference::tagged).collect(),
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
        user: record.config.image_user(),
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
            if let Some(id) = index.named(&reference.to_string()) {
                return Ok(Some(id.to_owned()));
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

/// Marks the limit that is not ours but the disk's.
const DISK: &str = "free disk space";

/// Fewer digits could as well be a name: a pod that asks for `cafe` must not
/// get whatever image happens to start with it.
const ID_DIGITS_MIN: usize = 8;

#[cfg(test)]
mod tests;
