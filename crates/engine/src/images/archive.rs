//! Finds the images in a docker-archive or an OCI layout packed as tar.
//!
//! The archive is first copied to an unnamed file, because its table of
//! contents comes last as often as first and the source may be a pipe.
//! Members are then looked up in memory: names and links of the archive
//! never reach the filesystem.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ImageError;
use super::incoming::{Description, Found, Incoming};
use super::limits::{DOCUMENT_BYTES_MIN, INDEX_DEPTH_MAX, JSON_BYTES_MAX, Limits};
use super::manifest::{self, Descriptor, Document, Platform, architecture};
use super::object::only_objects;
use super::read::{Hashing, Limited, Slice, decompress, read_error};
use super::reference::{Reference, is_digest};
use super::tarball::{Kind, Tarball};

pub(super) struct Archive {
    members: BTreeMap<String, Content>,
    limits: Limits,
    /// What documents may still be read: they lead to each other, and to one
    /// of them many ways may lead.
    documents_left: Cell<u64>,
    /// Digests of blobs that were found to be what they are called.
    checked: RefCell<BTreeSet<String>>,
}

enum Content {
    File(Slice),
    /// Another member's name.
    Link(String),
}

impl Archive {
    /// `directory` only lends its filesystem; nothing is left in it.
    pub(super) fn spool(source: impl Read, directory: &Path, limits: &Limits) -> Result<Archive, ImageError> {
        let mut source = Limited::new(decompress(source)?, "image archive", limits.import_bytes_max);
        let mut spool = unnamed_file(directory)?;
        io::copy(&mut source, &mut spool).map_err(read_error("image archive"))?;
        let length = spool.metadata().map_err(ImageError::io("image archive"))?.len();
        let spool = Slice::new(Arc::new(spool), 0, length);

        let mut members = BTreeMap::new();
        let mut tarball = Tarball::new(io::BufReader::new(spool.clone()));
        while let Some(member) = tarball.next()? {
            let content = match member.kind {
                Kind::File => Content::File(spool.part(member.offset, member.size)),
                Kind::Symlink => Content::Link(join(parent(&member.name()), &String::from_utf8_lossy(&member.link))),
                Kind::HardLink => Content::Link(join("", &String::from_utf8_lossy(&member.link))),
                Kind::Directory | Kind::Fifo | Kind::Device => continue,
            };
            members.insert(join("", &member.name()), content);
            if members.len() > limits.members_max {
                let limit = limits.members_max as u64;
                return Err(ImageError::TooLarge { what: "number of archive members", limit });
            }
        }
        let (documents_left, checked) = (Cell::new(limits.documents_bytes_max), RefCell::default());
        Ok(Archive { members, limits: *limits, documents_left, checked })
    }

    pub(super) fn images(&self) -> Result<Vec<Incoming>, ImageError> {
        // Docker writes both tables of contents; its own has the names in full.
        let images = if self.members.contains_key("manifest.json") {
            self.docker_images()?
        } else if self.members.contains_key("index.json") {
            self.oci_images()?
        } else {
            return Err(ImageError::archive("has neither manifest.json nor index.json"));
        };
        self.check_count(images.len())?;
        match images.is_empty() {
            true => Err(ImageError::archive(format!("has no image for linux/{}", architecture()))),
            false => Ok(images),
        }
    }

    fn check_count(&self, count: usize) -> Result<(), ImageError> {
        match count > self.limits.images_max {
            true => Err(ImageError::TooLarge { what: "number of images", limit: self.limits.images_max as u64 }),
            false => Ok(()),
        }
    }

    fn docker_images(&self) -> Result<Vec<Incoming>, ImageError> {
        let manifests: Vec<DockerManifest> = parse("manifest.json", &self.document("manifest.json")?)?;
        self.check_count(manifests.len())?;
        manifests.into_iter().map(|manifest| self.docker_image(manifest)).collect()
    }

    fn docker_image(&self, manifest: DockerManifest) -> Result<Incoming, ImageError> {
        let document = self.document(&manifest.config)?;
        let layers = manifest.layers.iter().map(|path| self.member(path)).collect::<Result<Vec<_>, _>>()?;
        let names = manifest.repo_tags.unwrap_or_default();
        let names = names.iter().map(|name| Reference::parse(name)).collect::<Result<Vec<_>, _>>()?;
        self.incoming(&document, layers, names, None)
    }

    fn oci_images(&self) -> Result<Vec<Incoming>, ImageError> {
        let index: OciIndex = parse("index.json", &self.document("index.json")?)?;
        let mut images = Vec::new();
        for descriptor in &index.manifests {
            let names = oci_names(descriptor)?;
            self.collect_oci(descriptor, &names, INDEX_DEPTH_MAX, &mut images)?;
        }
        Ok(images)
    }

    /// Follows indexes down to the manifests for this machine.
    fn collect_oci(
        &self,
        descriptor: &Descriptor,
        names: &[Reference],
        depth_left: usize,
        images: &mut Vec<Incoming>,
    ) -> Result<(), ImageError> {
        if !descriptor.platform.as_ref().is_none_or(Platform::is_ours) {
            return Ok(());
        }
        let document = self.blob_document(&descriptor.digest)?;
        match manifest::read(&document).map_err(ImageError::archive)? {
            Document::Index(manifests) => {
                let depth_left =
                    depth_left.checked_sub(1).ok_or_else(|| ImageError::archive("has too many nested indexes"))?;
                for child in &manifests {
                    // A layout need not hold the images of other platforms.
                    if self.members.contains_key(&blob_path(&child.digest)?) {
                        self.collect_oci(child, names, depth_left, images)?;
                    }
                }
                Ok(())
            }
            Document::Manifest { config, layers } => {
                let config = self.blob_document(&config.digest)?;
                let layers = layers.iter().map(|layer| self.blob(&layer.digest)).collect::<Result<Vec<_>, _>>()?;
                images.push(self.incoming(&config, layers, names.to_vec(), Some(descriptor.digest.clone()))?);
                self.check_count(images.len())
            }
        }
    }

    fn incoming(
        &self,
        document: &[u8],
        layers: Vec<Slice>,
        names: Vec<Reference>,
        manifest_digest: Option<String>,
    ) -> Result<Incoming, ImageError> {
        let size_bytes = document.len() as u64 + layers.iter().map(Slice::len).sum::<u64>();
        let description = Description::read(document, &self.limits)?;
        let layers = layers.into_iter().map(Some).collect();
        description.with(Found { names, manifest_digest, size_bytes, layers })
    }

    fn member(&self, name: &str) -> Result<Slice, ImageError> {
        let mut name = join("", name);
        for _ in 0..LINK_HOPS_MAX {
            match self.members.get(&name) {
                Some(Content::File(slice)) => return Ok(slice.clone()),
                Some(Content::Link(target)) => name = target.clone(),
                None => return Err(ImageError::archive(format!("has no member {name:?}"))),
            }
        }
        Err(ImageError::archive(format!("too many links at {name:?}")))
    }

    fn document(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let member = self.member(name)?;
        if member.len() > JSON_BYTES_MAX {
            return Err(ImageError::TooLarge { what: "JSON document", limit: JSON_BYTES_MAX });
        }
        let left = self.documents_left.get().checked_sub(member.len().max(DOCUMENT_BYTES_MIN));
        let limit = self.limits.documents_bytes_max;
        let too_many = || ImageError::TooLarge { what: "JSON documents together", limit };
        self.documents_left.set(left.ok_or_else(too_many)?);
        let mut bytes = Vec::new();
        member.clone().read_to_end(&mut bytes).map_err(read_error("image archive"))?;
        Ok(bytes)
    }

    /// A blob of an OCI layout, after checking that it is what its name says.
    fn blob(&self, digest: &str) -> Result<Slice, ImageError> {
        let blob = self.member(&blob_path(digest)?)?;
        if self.checked.borrow().contains(digest) {
            return Ok(blob);
        }
        let (actual, _) = Hashing::new(blob.clone()).finish().map_err(read_error("image archive"))?;
        if actual != digest {
            return Err(ImageError::DigestMismatch { what: "blob", expected: digest.to_owned(), actual });
        }
        self.checked.borrow_mut().insert(actual);
        Ok(blob)
    }

    fn blob_document(&self, digest: &str) -> Result<Vec<u8>, ImageError> {
        self.blob(digest)?;
        self.document(&blob_path(digest)?)
    }
}

fn blob_path(digest: &str) -> Result<String, ImageError> {
    if !is_digest(digest) {
        return Err(ImageError::archive(format!("unsupported digest {digest:?}")));
    }
    Ok(format!("blobs/{}", digest.replace(':', "/")))
}

/// containerd's annotation has the full name; the standard one may have a tag
/// only, which names nothing by itself.
fn oci_names(descriptor: &Descriptor) -> Result<Vec<Reference>, ImageError> {
    let annotation = |key: &str| descriptor.annotations.as_ref().and_then(|all| all.get(key));
    let name = annotation("io.containerd.image.name")
        .or_else(|| annotation("org.opencontainers.image.ref.name").filter(|name| name.contains(['/', ':'])));
    name.map(|name| Reference::parse(name)).into_iter().collect()
}

fn parse<T: DeserializeOwned>(what: &str, document: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(document).map_err(|err| ImageError::archive(format!("{what}: {err}")))
}

/// A member's canonical name; `..` stays inside the archive.
fn join(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Gone with its last descriptor, however we end.
fn unnamed_file(directory: &Path) -> Result<File, ImageError> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(directory, flags, Mode::RUSR | Mode::WUSR).map_err(ImageError::io("image spool file"))?;
    Ok(File::from(file))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", remote = "Self")]
struct DockerManifest {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct OciIndex {
    manifests: Vec<Descriptor>,
}

only_objects!(DockerManifest, OciIndex);

const LINK_HOPS_MAX: usize = 8;
