//! From a registry to the disk: resolve the name, fetch what is missing,
//! verify everything, unpack.
//!
//! Nothing a registry says counts before its digest does. A pull that ends at
//! any point leaves complete layers, resumable downloads, or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cri::RegistryAuth;
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use shim::crash;

use super::downloads::Download;
use super::flights::{Key, Outcome};
use super::incoming::{Description, Found};
use super::index::Origin;
use super::limits::{DOWNLOAD_ATTEMPTS_MAX, FRUITLESS_ATTEMPTS_MAX, INDEX_DEPTH_MAX, Limits, PARALLEL_DOWNLOADS};
use super::manifest::{self, Descriptor, Document, architecture};
use super::read::{Hashing, digest_of, read_error};
use super::reference::{Reference, is_digest};
use super::registry::{Endpoint, Session, Trouble, verified};
use super::{ImageError, Images};

/// What the one who asks for an image may say besides its name.
#[derive(Clone, Default)]
pub struct PullOptions {
    pub auth: Option<RegistryAuth>,
    /// Is told how far each layer is.
    pub watcher: Option<Watcher>,
}

/// Gets the digest of a layer as the registry knows it, and how far it is.
pub type Watcher = Arc<dyn Fn(&str, LayerProgress) + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerProgress {
    /// It was here before.
    Present,
    /// So many of so many bytes are here.
    Received {
        bytes: u64,
        of: u64,
    },
    /// Complete and what it should be.
    Verified,
    Unpacked,
}

impl Images {
    /// Fetches an image, whether it is here or not; layers that are here are
    /// not fetched again. A second call for the same joins the first.
    pub async fn pull(self: &Arc<Self>, reference: &str, options: PullOptions) -> Outcome {
        let reference = Reference::parse(reference)?;
        let key = Key { reference: reference.to_string(), auth: options.auth.clone() };
        self.flights.join(key, || pull(self.clone(), reference, options).boxed()).await
    }
}

async fn pull(images: Arc<Images>, reference: Reference, options: PullOptions) -> Result<cri::Image, ImageError> {
    let name = reference.to_string();
    let is_public = options.auth.is_none();
    let session = {
        let (images, reference) = (images.clone(), reference.clone());
        blocking(move || Session::new(&reference, &images.registries, options.auth, images.patience, &images.names))
            .await
    };
    let watcher = options.watcher.unwrap_or_else(|| Arc::new(|_, _| ()));
    let failed = |source, mirrors| ImageError::Pull { reference: name, source: Box::new(source), mirrors };
    match session {
        Ok(session) => {
            let pull = Pull { images, reference, session, watcher, is_public };
            pull.run().await.map_err(|source| failed(source, pull.session.complaints()))
        }
        Err(err) => Err(failed(err, String::new())),
    }
}

struct Pull {
    images: Arc<Images>,
    reference: Reference,
    session: Session,
    watcher: Watcher,
    /// Asked for without credentials: anybody would be given it.
    is_public: bool,
}

/// A layer in its two forms.
struct Layer {
    /// As the registry holds it.
    blob: Descriptor,
    /// Digest of what is in it.
    diff_id: String,
}

impl Pull {
    async fn run(&self) -> Result<cri::Image, ImageError> {
        for _ in 0..VANISHED_MAX {
            match self.attempt().await {
                // Collected as garbage between our look and our lock.
                Err(ImageError::LayerVanished) => {}
                other => return other,
            }
        }
        self.attempt().await
    }

    async fn attempt(&self) -> Result<cri::Image, ImageError> {
        let name = self.reference.name_in_repository();
        // Most of the time nothing is new; asking for the digest only is
        // cheap, and does not count against limits on pulls.
        if let Some(digest) = self.session.digest_of_tag(name).await.filter(|digest| is_digest(digest))
            && self.reference.digest.as_ref().is_none_or(|wanted| *wanted == digest)
            && let Some(image) = self.adopt(&digest).await?
        {
            return Ok(image);
        }
        let wanted = self.reference.digest.as_deref();
        let document = self.session.manifest(name, |document| check_manifest(wanted, document)).await;
        let document = document.map_err(|trouble| self.refused(trouble))?;
        let digest = digest_of(&document);
        if let Some(image) = self.adopt(&digest).await? {
            return Ok(image);
        }
        let (config, blobs) = self.find_manifest(&document).await?;
        crash::point("pull.resolved");
        self.fetch(digest, config, blobs).await
    }

    async fn adopt(&self, digest: &str) -> Result<Option<cri::Image>, ImageError> {
        let (images, reference, digest) = (self.images.clone(), self.reference.clone(), digest.to_owned());
        blocking(move || images.adopt(&reference, &digest)).await
    }

    /// Goes down from an index to the manifest for this machine.
    async fn find_manifest(&self, document: &Bytes) -> Result<(Descriptor, Vec<Descriptor>), ImageError> {
        let mut document = document.clone();
        for _ in 0..=INDEX_DEPTH_MAX {
            let manifests = match manifest::read(&document).map_err(nonsense)? {
                Document::Manifest { config, layers } => return Ok((config, layers)),
                Document::Index(manifests) => manifests,
            };
            let child = manifest::choose(&manifests).ok_or_else(|| {
                nonsense(format!(
                    "no match for platform in manifest: the image is not built for linux/{}",
                    architecture()
                ))
            })?;
            checked(child)?;
            let check = |document: &[u8]| check_manifest(Some(&child.digest), document);
            let found = self.session.manifest(&child.digest, check).await;
            document = found.map_err(|trouble| self.refused(trouble))?;
        }
        Err(nonsense("too many nested indexes".to_owned()))
    }

    async fn fetch(
        &self,
        manifest_digest: String,
        config: Descriptor,
        blobs: Vec<Descriptor>,
    ) -> Result<cri::Image, ImageError> {
        acceptable(&config, &blobs, &self.images.limits)?;
        let document = self.session.small_blob(&config.digest, "image configuration").await;
        let document = document.map_err(|trouble| self.broken(trouble))?;
        let description = Description::read(&document, &self.images.limits)?;
        let size_bytes = document.len() as u64 + blobs.iter().map(|blob| blob.size).sum::<u64>();
        if description.diff_ids.len() != blobs.len() {
            return Err(nonsense("manifest and configuration disagree about the layers".to_owned()));
        }
        let diff_ids = description.diff_ids.iter().cloned();
        let layers: Vec<Layer> =
            blobs.into_iter().zip(diff_ids).map(|(blob, diff_id)| Layer { blob, diff_id }).collect();
        let downloads = self.fetch_layers(&layers).await?;
        let contents: Result<Vec<_>, ImageError> =
            layers.iter().map(|layer| downloads.get(&layer.blob.digest).map(Download::content).transpose()).collect();
        let found = Found {
            names: vec![self.reference.clone()],
            manifest_digest: Some(manifest_digest),
            size_bytes,
            layers: contents?,
        };
        let incoming = description.with(found)?;
        let (images, watcher) = (self.images.clone(), self.watcher.clone());
        let origin = Origin::Registry { repository: self.reference.repository.clone(), is_public: self.is_public };
        blocking(move || {
            let unpacked = |diff_id: &str| {
                let layer = layers.iter().find(|layer| layer.diff_id == diff_id);
                layer.inspect(|layer| watcher(&layer.blob.digest, LayerProgress::Unpacked));
            };
            let taken_in = images.take_in(&[incoming], &origin, &unpacked);
            crash::point("pull.taken-in");
            // What could not be unpacked is not worth its space, except where
            // it is needed in a moment.
            if !matches!(taken_in, Err(ImageError::LayerVanished)) {
                downloads.values().try_for_each(Download::remove)?;
            }
            taken_in?.pop().ok_or(ImageError::LayerVanished)
        })
        .await
    }

    /// What is not here yet, complete and verified, by digest.
    async fn fetch_layers(&self, layers: &[Layer]) -> Result<BTreeMap<String, Download>, ImageError> {
        // What the registry gave for this repository, or to anybody, is given
        // to who was just given a manifest of it. Anything else has to come again.
        let is_here = |layer: &Layer| -> Result<bool, ImageError> {
            let is_theirs = self.images.index.current()?.may_reuse(&layer.diff_id, &self.reference.repository);
            Ok(is_theirs && self.images.layer_path(&layer.diff_id).exists())
        };
        // One blob may be said to be several layers: then it is checked against each.
        let mut missing: BTreeMap<String, Vec<&Layer>> = BTreeMap::new();
        for layer in layers {
            match is_here(layer)? {
                true => (self.watcher)(&layer.blob.digest, LayerProgress::Present),
                false => missing.entry(layer.blob.digest.clone()).or_default().push(layer),
            }
        }
        let mut downloads: BTreeMap<String, (Descriptor, Download)> = BTreeMap::new();
        // In the order of digests, see `Download::open`.
        for (digest, layers) in missing {
            let download = self.open_download(&digest).await?;
            crash::point("pull.opened");
            let mut wanted = None;
            for layer in layers {
                if !is_here(layer)? {
                    wanted = Some(layer.blob.clone());
                }
            }
            match wanted {
                Some(blob) => drop(downloads.insert(digest, (blob, download))),
                // Somebody else fetched it while we waited.
                None => {
                    (self.watcher)(&digest, LayerProgress::Present);
                    download.remove()?;
                }
            }
        }
        self.check_space(downloads.values().map(|(blob, _)| blob.size).sum())?;
        let fetches: Vec<_> =
            downloads.values().map(|(blob, download)| self.fetch_layer(blob, download).boxed()).collect();
        let fetched = stream::iter(fetches).buffer_unordered(PARALLEL_DOWNLOADS).try_collect::<()>().await;
        if let Err(ImageError::Io { .. }) = fetched {
            // The disk may be full; halves of layers must not keep it so.
            downloads.values().try_for_each(|(_, download)| download.remove())?;
        }
        fetched?;
        Ok(downloads.into_iter().map(|(digest, (_, download))| (digest, download)).collect())
    }

    /// Somebody else may fetch the same from a registry that takes for ever:
    /// then we do without what it has, after a while.
    async fn open_download(&self, digest: &str) -> Result<Download, ImageError> {
        for _ in 0..DOWNLOAD_LOOKS_MAX {
            // By repository: nobody goes on with what others were given.
            let name = download_name(&self.reference.repository, digest);
            let directory = self.images.root.join("downloads");
            if let Some(download) = blocking(move || Download::open(&directory, &name)).await? {
                return Ok(download);
            }
            tokio::time::sleep(self.images.patience.pause).await;
        }
        let directory = self.images.root.join("downloads");
        blocking(move || Download::of_our_own(&directory)).await
    }

    fn check_space(&self, wanted: u64) -> Result<(), ImageError> {
        let free = self.images.free_bytes()?;
        match wanted > free {
            true => Err(ImageError::NoSpace { path: self.images.root.clone(), free }),
            false => Ok(()),
        }
    }

    /// Until all bytes are here and are what they should be. Every source is
    /// asked in its turn, and goes on where the one before it ended; who
    /// answers wrongly is not asked again.
    async fn fetch_layer(&self, blob: &Descriptor, download: &Download) -> Result<(), ImageError> {
        let mut sources: Vec<&Endpoint> = self.session.sources().collect();
        let (mut fruitless, mut of_registry, mut of_mirror) = (0, None, Trouble::NotFound);
        for attempt in 1.. {
            let before = download.len()?;
            for source in std::mem::take(&mut sources) {
                let Err(trouble) = self.fetch_from(source, blob, download).await? else { return Ok(()) };
                tracing::debug!(%trouble, layer = blob.digest, "a download failed");
                self.session.note(source, &trouble);
                if matches!(trouble, Trouble::Unavailable { .. }) {
                    sources.push(source);
                }
                match source.is_mirror() {
                    true => of_mirror = trouble,
                    false => of_registry = Some(trouble),
                }
            }
            fruitless = if download.len()? > before { 0 } else { fruitless + 1 };
            if sources.is_empty() || fruitless >= FRUITLESS_ATTEMPTS_MAX || attempt >= DOWNLOAD_ATTEMPTS_MAX {
                break;
            }
            let retry_after = of_registry.as_ref().unwrap_or(&of_mirror).retry_after();
            self.session.pause(fruitless, retry_after).await;
        }
        // The registry's own word counts; what mirrors did is told besides.
        Err(self.broken(of_registry.unwrap_or(of_mirror)))
    }

    /// The outer error is ours, the inner one the source's.
    async fn fetch_from(
        &self,
        source: &Endpoint,
        blob: &Descriptor,
        download: &Download,
    ) -> Result<Result<(), Trouble>, ImageError> {
        if download.len()? > blob.size {
            download.clear()?;
        }
        let begun = download.len()?;
        if let Err(trouble) = self.download(source, blob, download).await? {
            return Ok(Err(trouble));
        }
        match self.verify(blob, download).await? {
            // What others left may be damaged: then once more from the start.
            Err(_) if begun > 0 => match self.download(source, blob, download).await? {
                Ok(()) => self.verify(blob, download).await,
                Err(trouble) => Ok(Err(trouble)),
            },
            verdict => Ok(verdict),
        }
    }

    /// What is damaged does not stay.
    async fn verify(&self, blob: &Descriptor, download: &Download) -> Result<Result<(), Trouble>, ImageError> {
        let content = download.content()?;
        let hashed = blocking(move || Hashing::new(content).finish().map_err(read_error("image layer"))).await;
        let (actual, _) = hashed?;
        if actual != blob.digest {
            download.clear()?;
            let expected = blob.digest.clone();
            return Ok(Err(Trouble::Mismatch { what: "image layer", expected, actual }));
        }
        crash::point("pull.verified");
        (self.watcher)(&blob.digest, LayerProgress::Verified);
        Ok(Ok(()))
    }

    /// All bytes that are missing. What came before trouble stays, unless it
    /// is more than there can be.
    async fn download(
        &self,
        source: &Endpoint,
        blob: &Descriptor,
        download: &Download,
    ) -> Result<Result<(), Trouble>, ImageError> {
        let from = download.len()?;
        if from == blob.size {
            return Ok(Ok(()));
        }
        let mut body = match self.session.blob(source, &blob.digest, from).await {
            Ok(body) => body,
            Err(trouble) => return Ok(Err(trouble)),
        };
        if body.starts_at == 0 {
            download.clear()?;
        }
        let mut position = body.starts_at;
        let mut pieces = BytesMut::new();
        let end = loop {
            match body.next().await {
                Ok(Some(piece)) => pieces.extend_from_slice(&piece),
                Ok(None) => break Ok(()),
                Err(trouble) => break Err(trouble),
            }
            if position + pieces.len() as u64 > blob.size {
                download.clear()?;
                return Ok(Err(Trouble::Nonsense(format!("layer {} is longer than it should be", blob.digest))));
            }
            if pieces.len() >= WRITE_BYTES {
                position = self.store(blob, download, position, pieces.split()).await?;
            }
        };
        position = self.store(blob, download, position, pieces).await?;
        Ok(match end {
            Ok(()) if position < blob.size => Err(Trouble::Unavailable {
                detail: format!("layer {} ended after {position} of {} bytes", blob.digest, blob.size),
                retry_after: None,
            }),
            other => other,
        })
    }

    async fn store(
        &self,
        blob: &Descriptor,
        download: &Download,
        position: u64,
        bytes: BytesMut,
    ) -> Result<u64, ImageError> {
        let end = position + bytes.len() as u64;
        let download = download.clone();
        blocking(move || download.write_at(&bytes, position)).await?;
        crash::point("pull.stored");
        (self.watcher)(&blob.digest, LayerProgress::Received { bytes: end, of: blob.size });
        Ok(end)
    }

    /// While asking for the image.
    fn refused(&self, trouble: Trouble) -> ImageError {
        let reference = self.reference.to_string();
        match trouble {
            Trouble::NotFound => ImageError::NotInRegistry { reference },
            Trouble::Denied(detail) => ImageError::Denied { reference, detail },
            Trouble::Unavailable { detail, .. } => ImageError::RegistryUnavailable { reference, detail },
            Trouble::Nonsense(detail) => ImageError::Nonsense { detail },
            Trouble::Mismatch { what, expected, actual } => ImageError::DigestMismatch { what, expected, actual },
        }
    }

    /// While fetching its parts: what is promised must be there.
    fn broken(&self, trouble: Trouble) -> ImageError {
        match trouble {
            Trouble::NotFound => nonsense("a part of the image is not there".to_owned()),
            other => self.refused(other),
        }
    }
}

fn download_name(repository: &str, digest: &str) -> String {
    digest_of(format!("{repository}@{digest}").as_bytes())
}

fn nonsense(detail: String) -> ImageError {
    ImageError::Nonsense { detail }
}

/// Before anything is fetched: its names are ones, and all of it must fit.
pub(super) fn acceptable(config: &Descriptor, blobs: &[Descriptor], limits: &Limits) -> Result<(), ImageError> {
    for blob in blobs.iter().chain([config]) {
        checked(blob)?;
    }
    if blobs.len() > limits.layers_max {
        return Err(ImageError::TooLarge { what: "number of layers", limit: limits.layers_max as u64 });
    }
    if blobs.iter().any(|blob| blob.size > limits.layer_bytes_max) {
        return Err(ImageError::TooLarge { what: "image layer", limit: limits.layer_bytes_max });
    }
    let total = blobs.iter().fold(0u64, |sum, blob| sum.saturating_add(blob.size));
    match total > limits.import_bytes_max {
        true => Err(ImageError::TooLarge { what: "image", limit: limits.import_bytes_max }),
        false => Ok(()),
    }
}

/// Digests become file names.
fn checked(descriptor: &Descriptor) -> Result<(), ImageError> {
    match is_digest(&descriptor.digest) {
        true => Ok(()),
        false => Err(nonsense(format!("unsupported digest {:?}", descriptor.digest))),
    }
}

/// What cannot be a manifest, or is another than the wanted one, is not taken.
fn check_manifest(wanted: Option<&str>, document: &[u8]) -> Result<(), Trouble> {
    if let Some(digest) = wanted {
        verified(digest, document, "manifest")?;
    }
    manifest::read(document).map(|_| ()).map_err(Trouble::Nonsense)
}

/// Files are waited for elsewhere.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|err| ImageError::io("image pull")(std::io::Error::other(err)))?
}

/// How often we look whether somebody else's download of the same has ended.
const DOWNLOAD_LOOKS_MAX: usize = 20;
/// How often in a row layers may be collected under our hands.
const VANISHED_MAX: usize = 3;
/// Few large writes instead of many small ones.
const WRITE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests;
