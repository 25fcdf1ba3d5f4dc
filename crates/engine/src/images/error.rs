//! Why an image cannot be had, taken in or given up.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No image can ever have this name.
    #[error("couldn't parse image name {reference:?}: {detail}")]
    InvalidReference { reference: String, detail: String },
    /// The user has to give more digits.
    #[error("image id prefix {prefix:?} matches more than one image")]
    AmbiguousId { prefix: String },
    /// It may work later, or after an import.
    #[error(
        "failed to pull and unpack image {reference:?}: failed to resolve reference {reference:?}: \
         registry cannot be reached: pulling is not available yet, load the image with \"podium image import\""
    )]
    RegistryUnreachable { reference: String },
    /// The archive is not what it should be; another archive is needed.
    #[error("image archive: {detail}")]
    InvalidArchive { detail: String },
    /// The layer tries something no honest layer does.
    #[error("image layer: entry {path:?}: {detail}")]
    UnsafeLayer { path: String, detail: &'static str },
    /// Damaged on the way, or forged.
    #[error("{what}: digest is {actual}, expected {expected}")]
    DigestMismatch { what: &'static str, expected: String, actual: String },
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge { what: &'static str, limit: u64 },
    /// The store itself is damaged; its owner has to look.
    #[error("image index {path}: {detail}", path = path.display())]
    CorruptIndex { path: PathBuf, detail: String },
    #[error("{what}")]
    Io { what: String, source: io::Error },
}

impl ImageError {
    /// For `map_err`: an I/O error with the object it happened to.
    pub(super) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> ImageError {
        let what = what.into();
        move |source| {
            let source = source.into();
            ImageError::Io { what: format!("{what}: {source}"), source }
        }
    }

    pub(super) fn archive(detail: impl Into<String>) -> ImageError {
        ImageError::InvalidArchive { detail: detail.into() }
    }
}
