//! Images that are mounted as volumes, each as one directory.
//!
//! An image of one layer is that layer. Of several, one copy is made, at its
//! first use, and shared by all who mount the image: it belongs to the images
//! and not to any pod, and goes with the next sweep that finds nobody using it.
//! (An overlay could not be shown to users of a pod's own, nor parts of it be
//! taken by older kernels.)

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use shim::crash;

use super::downloads::lock;
use super::index::{Index, sync_directory};
use super::usage::Hold;
use super::{ImageError, Images, LayerSize, ResolvedImage, children, io_at};
use crate::rootfs::copy::copy_layers;

const MERGED: &str = "merged";
/// Those being made.
const MERGING: &str = "merging";

impl Images {
    /// Where the content of an image is as a whole, once `merge` was called.
    pub(crate) fn whole(&self, image: &ResolvedImage) -> PathBuf {
        match &image.layers[..] {
            [only] => only.clone(),
            _ => self.root.join(MERGED).join(image.image.id.trim_start_matches("sha256:")),
        }
    }

    /// Makes what `whole` named, unless it is there. With the hold nobody
    /// takes away what this is made of, nor what is being made.
    pub(crate) fn merge(&self, place: &Path, layers: &[PathBuf], _hold: &Hold) -> Result<(), ImageError> {
        if place.exists() {
            return Ok(());
        }
        // One at a time: whoever waited finds it made.
        let name = self.root.join("merge-lock");
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&name);
        let file = file.map_err(io_at(&name))?;
        lock(&file, FlockOperation::LockExclusive).map_err(io_at(&name))?;
        if place.exists() {
            return Ok(());
        }
        self.check_room(layers)?;
        let scratch = self.root.join(MERGING).join(place.file_name().unwrap_or_default());
        let made = self.make_whole(&scratch, place, layers);
        made.inspect_err(|_| {
            if let Err(error) = trees::remove(&scratch) {
                tracing::warn!(%error, "half an image volume stays until the next sweep");
            }
        })
    }

    fn make_whole(&self, scratch: &Path, place: &Path, layers: &[PathBuf]) -> Result<(), ImageError> {
        trees::remove(scratch).map_err(io_at(scratch))?;
        fs::DirBuilder::new().mode(0o755).create(scratch).map_err(io_at(scratch))?;
        fs::set_permissions(scratch, fs::Permissions::from_mode(0o755)).map_err(io_at(scratch))?;
        copy_layers(layers, scratch).map_err(io_at(scratch))?;
        crash::point("images.merged");
        let directory = File::open(scratch).map_err(io_at(scratch))?;
        rustix::fs::syncfs(&directory).map_err(io_at(scratch))?;
        fs::rename(scratch, place).map_err(io_at(place))?;
        sync_directory(&self.root.join(MERGED)).map_err(io_at(place))
    }

    fn check_room(&self, layers: &[PathBuf]) -> Result<(), ImageError> {
        let index = self.index.current()?;
        let is_part = |digest: &str| layers.contains(&self.layer_path(digest));
        let sizes = index.layers.iter().filter(|(digest, _)| is_part(digest)).map(|(_, size)| size.bytes);
        let (wanted, free) = (sizes.sum::<u64>(), self.free_bytes()?);
        match wanted > free {
            true => Err(ImageError::NoSpace { path: self.root.clone(), free }),
            false => Ok(()),
        }
    }

    /// Of those that belong to an image of the index.
    pub(super) fn merged_sizes<'a>(&self, index: &'a Index) -> Result<Vec<&'a LayerSize>, ImageError> {
        let name = |place: PathBuf| Some(format!("sha256:{}", place.file_name()?.to_str()?));
        let ids = children(&self.root.join(MERGED))?.into_iter().filter_map(name);
        let records = ids.filter_map(|id| index.images.get(&id));
        Ok(records.flat_map(|record| &record.layers).filter_map(|digest| index.layers.get(digest)).collect())
    }

    /// All there are, and what was never finished. Only while nobody has a hold.
    pub(super) fn all_merged(&self) -> Result<Vec<PathBuf>, ImageError> {
        for unfinished in children(&self.root.join(MERGING))? {
            trees::remove(&unfinished).map_err(io_at(&unfinished))?;
        }
        children(&self.root.join(MERGED))
    }
}
