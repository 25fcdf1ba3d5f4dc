//! An image on its way in: described and checked, its layers not unpacked yet.

use super::ImageError;
use super::config::{ImageConfig, ImageDocument};
use super::limits::Limits;
use super::manifest::architecture;
use super::read::{Slice, digest_of};
use super::reference::{Reference, is_digest};

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) id: String,
    pub(super) config: ImageConfig,
    pub(super) names: Vec<Reference>,
    /// Digest of the manifest, where there is a real one.
    pub(super) manifest_digest: Option<String>,
    pub(super) size_bytes: u64,
    /// Bottom first: the digest of the uncompressed layer, and its bytes,
    /// unless it was here already.
    pub(super) layers: Vec<(String, Option<Slice>)>,
}

/// The configuration document of an image, and what it is called by.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) id: String,
    pub(super) config: ImageConfig,
    /// Bottom first.
    pub(super) diff_ids: Vec<String>,
}

/// What came with a description.
pub(super) struct Found {
    pub(super) names: Vec<Reference>,
    pub(super) manifest_digest: Option<String>,
    pub(super) size_bytes: u64,
    pub(super) layers: Vec<Option<Slice>>,
}

impl Description {
    pub(super) fn read(document: &[u8], limits: &Limits) -> Result<Description, ImageError> {
        let image: ImageDocument = serde_json::from_slice(document)
            .map_err(|err| ImageError::archive(format!("image configuration: {err}")))?;
        let os = image.os.filter(|os| !os.is_empty()).unwrap_or_else(|| "linux".into());
        let wanted = image.architecture.filter(|name| !name.is_empty()).unwrap_or_else(|| architecture().into());
        if os != "linux" || wanted != architecture() {
            let ours = architecture();
            return Err(ImageError::archive(format!("image is for {os}/{wanted}, this machine is linux/{ours}")));
        }
        let diff_ids = image.rootfs.unwrap_or_default().diff_ids;
        if diff_ids.len() > limits.layers_max {
            return Err(ImageError::TooLarge { what: "number of layers", limit: limits.layers_max as u64 });
        }
        // They become directory names.
        if !diff_ids.iter().all(|id| is_digest(id)) {
            return Err(ImageError::archive("unreadable layer digest"));
        }
        Ok(Description { id: digest_of(document), config: image.config.unwrap_or_default().into(), diff_ids })
    }

    pub(super) fn with(self, found: Found) -> Result<Incoming, ImageError> {
        if self.diff_ids.len() != found.layers.len() {
            return Err(ImageError::archive("manifest and configuration disagree about the layers"));
        }
        Ok(Incoming {
            id: self.id,
            config: self.config,
            names: found.names,
            manifest_digest: found.manifest_digest,
            size_bytes: found.size_bytes,
            layers: self.diff_ids.into_iter().zip(found.layers).collect(),
        })
    }
}
