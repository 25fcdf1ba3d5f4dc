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
    /// The registry answered, and has no such image.
    #[error("failed to resolve reference {reference:?}: {reference}: not found")]
    NotInRegistry { reference: String },
    /// The registry does not show it to whoever we are.
    #[error(
        "failed to resolve reference {reference:?}: pull access denied, repository does not exist or may require \
         authorization: {detail}"
    )]
    Denied { reference: String, detail: String },
    /// It may work later.
    #[error("failed to resolve reference {reference:?}: {detail}")]
    RegistryUnavailable { reference: String, detail: String },
    /// The registry said something it should not have.
    #[error("registry sent something unusable: {detail}")]
    Nonsense { detail: String },
    /// `hosts.toml` or a file it names has to be repaired.
    #[error("registry configuration {path}: {detail}", path = path.display())]
    InvalidRegistryConfig { path: PathBuf, detail: String },
    /// Removed by somebody else after we had seen it; it can be fetched again.
    #[error("a layer was removed meanwhile")]
    LayerVanished,
    /// More than the disk can take; room has to be made.
    #[error(
        "image does not fit on the disk: {free} bytes of {path} are free for images, \
         remove some with \"podium image gc\"",
        path = path.display()
    )]
    NoSpace { path: PathBuf, free: u64 },
    /// What went wrong while fetching `reference`: at the registry itself, and
    /// before that at its mirrors (empty if there are none).
    #[error("failed to pull and unpack image {reference:?}: {source}{mirrors}")]
    Pull { reference: String, source: Box<ImageError>, mirrors: String },
    /// The archive is not what it should be; another archive is needed.
    #[error("image: {detail}")]
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
