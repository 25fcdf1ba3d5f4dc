//! What the fuzz targets feed; in no build but theirs.

use std::path::Path;

pub use super::registry::fuzzing as registry;

use super::archive::Archive;
use super::incoming::Description;
use super::limits::{LIMITS, Limits};
use super::manifest::{self, Descriptor, Document};
use super::read::{Hashing, Limited, decompress, read_error};
use super::reference::Reference;
use super::{ImageConfig, ImageError, layer, pull};

/// What one layer may come to.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub entries: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    pub digest: String,
    pub bytes: u64,
    pub entries: u64,
}

/// Unpacks a layer, compressed or not, into an empty directory.
pub fn unpack(layer: &[u8], root: &Path, bounds: Bounds) -> Result<Unpacked, String> {
    let limits = Limits { layer_entries_max: bounds.entries, ..LIMITS };
    let unpack = || -> Result<Unpacked, ImageError> {
        let layer = Limited::new(decompress(layer)?, "image layer", bounds.bytes);
        let (layer, entries) = layer::unpack(Hashing::new(layer), root, &limits)?;
        let (digest, bytes) = layer.finish().map_err(read_error("image layer"))?;
        Ok(Unpacked { digest, bytes, entries })
    };
    unpack().map_err(|error| error.to_string())
}

/// A document of a registry, as far as it would be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// Which of its images is for this machine, by position.
    Index { digests: Vec<String>, chosen: Option<usize> },
    /// What would be fetched: digests and sizes.
    Manifest { config: String, layers: Vec<(String, u64)> },
}

pub fn manifest(document: &[u8]) -> Result<Followed, String> {
    match manifest::read(document)? {
        Document::Index(manifests) => {
            let chosen = manifest::choose(&manifests);
            let is_it = |one: &Descriptor| chosen.is_some_and(|chosen| std::ptr::eq(one, chosen));
            let chosen = manifests.iter().position(is_it);
            Ok(Followed::Index { digests: manifests.into_iter().map(|one| one.digest).collect(), chosen })
        }
        Document::Manifest { config, layers } => {
            pull::acceptable(&config, &layers, &LIMITS).map_err(|error| error.to_string())?;
            let layers = layers.into_iter().map(|layer| (layer.digest, layer.size)).collect();
            Ok(Followed::Manifest { config: config.digest, layers })
        }
    }
}

/// An image's own description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    pub id: String,
    pub config: ImageConfig,
    pub user: Option<cri::ImageUser>,
    pub diff_ids: Vec<String>,
}

pub fn description(document: &[u8]) -> Result<Described, String> {
    let Description { id, config, diff_ids } =
        Description::read(document, &LIMITS).map_err(|error| error.to_string())?;
    Ok(Described { id, user: config.image_user(), config, diff_ids })
}

/// An image of an archive, not unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub id: String,
    pub names: Vec<String>,
    pub manifest_digest: Option<String>,
    pub size_bytes: u64,
    pub layers: Vec<String>,
}

/// The images of a docker-archive or an OCI layout; `directory` lends its filesystem.
pub fn archive(bytes: &[u8], directory: &Path) -> Result<Vec<Found>, String> {
    let limits = Limits { import_bytes_max: 1 << 20, documents_bytes_max: 4 << 20, ..LIMITS };
    let images = || Archive::spool(bytes, directory, &limits)?.images();
    let found = images().map_err(|error: ImageError| error.to_string())?;
    let found = found.into_iter().map(|image| Found {
        id: image.id,
        names: image.names.iter().map(ToString::to_string).collect(),
        manifest_digest: image.manifest_digest,
        size_bytes: image.size_bytes,
        layers: image.layers.into_iter().map(|(digest, _)| digest).collect(),
    });
    Ok(found.collect())
}

/// The name of an image in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub repository: String,
    pub tag: Option<String>,
    pub digest: Option<String>,
    /// As it is told.
    pub told: String,
}

pub fn reference(text: &str) -> Option<Named> {
    let reference = Reference::parse(text).ok()?;
    let told = reference.to_string();
    let Reference { repository, tag, digest } = reference;
    Some(Named { repository, tag, digest, told })
}
