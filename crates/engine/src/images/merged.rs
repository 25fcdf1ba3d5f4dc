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

use shim::crash;

use super::index::{Index, sync_directory};
use super::scratch::{self, Scratch};
use super::{ImageError, Images, LayerSize, ResolvedImage, children, io_at};
use crate::rootfs::copy::{Budget, copy_layers};

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

    /// Makes what `whole` named, unless it is there. The image is in use by
    /// one that is recorded, so nobody takes away what this is made of. False:
    /// somebody else makes it at the moment.
    pub(crate) fn merge(&self, place: &Path, layers: &[PathBuf]) -> Result<bool, ImageError> {
        if place.exists() {
            return Ok(true);
        }
        let name = self.root.join(MERGING).join(place.file_name().unwrap_or_default());
        let Some(scratch) = Scratch::at(name.clone()).map_err(io_at(&name))? else { return Ok(false) };
        // Somebody else may just have made it.
        if !place.exists() {
            self.check_room(layers)?;
            self.make_whole(&scratch.path().join("whole"), place, layers)?;
        }
        Ok(true)
    }

    fn make_whole(&self, made: &Path, place: &Path, layers: &[PathBuf]) -> Result<(), ImageError> {
        // One who was killed may have left half of it.
        trees::remove(made).map_err(io_at(made))?;
        fs::DirBuilder::new().mode(0o755).create(made).map_err(io_at(made))?;
        fs::set_permissions(made, fs::Permissions::from_mode(0o755)).map_err(io_at(made))?;
        copy_layers(layers, made, &mut self.budget(layers, made)?).map_err(io_at(made))?;
        crash::point("images.merged");
        let directory = File::open(made).map_err(io_at(made))?;
        rustix::fs::syncfs(&directory).map_err(io_at(made))?;
        fs::rename(made, place).map_err(io_at(place))?;
        sync_directory(&self.root.join(MERGED)).map_err(io_at(place))
    }

    /// For copies of these layers, or of parts of them, made at `place`.
    pub(crate) fn budget(&self, layers: &[PathBuf], place: &Path) -> Result<Budget, ImageError> {
        let index = self.index.current()?;
        let size = |layer: &PathBuf| {
            let digest = format!("sha256:{}", layer.file_name().unwrap_or_default().to_string_lossy());
            // Older stores do not know.
            index.layers.get(&digest).map_or_else(|| trees::usage(layer).bytes, |size| size.bytes)
        };
        Ok(Budget::new(layers.iter().map(size).sum(), place))
    }

    /// Before anything is copied.
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

    /// All there are.
    pub(super) fn all_merged(&self) -> Result<Vec<PathBuf>, ImageError> {
        children(&self.root.join(MERGED))
    }

    /// What was never finished, and nobody is at.
    pub(super) fn clear_unfinished(&self) -> Result<(), ImageError> {
        let place = self.root.join(MERGING);
        scratch::clear(&place).map_err(io_at(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::testing::{TestTar, docker_archive, root_or_return};

    #[test]
    fn who_makes_one_image_whole_does_not_keep_others_from_theirs() {
        root_or_return!();
        let directory = tempfile::tempdir().unwrap();
        let images = Images::open(directory.path()).unwrap();
        let layers = |name: &str| ["x", "y"].map(|file| TestTar::default().file(file, name.as_bytes()).end());
        let [one, two] = ["one", "two"].map(|name| {
            images.import(&docker_archive(&[name], &layers(name))[..], None).unwrap();
            images.resolve(name).unwrap().unwrap()
        });
        let merge = |image: &ResolvedImage| images.merge(&images.whole(image), &image.layers).unwrap();
        let name = images.whole(&one).file_name().unwrap().to_owned();
        let somebody = Scratch::at(directory.path().join(MERGING).join(&name)).unwrap().unwrap();
        fs::write(somebody.path().join("half"), "x").unwrap();
        assert!(!merge(&one), "somebody is at it");
        images.clear_unfinished().unwrap();
        assert!(somebody.path().join("half").exists(), "and nobody takes it away");
        assert!(merge(&two));
        assert_eq!(fs::read_to_string(images.whole(&two).join("y")).unwrap(), "two");
        assert!(!images.whole(&one).exists());
        drop(somebody);
        assert!(merge(&one) && merge(&one));
        assert_eq!(fs::read_to_string(images.whole(&one).join("x")).unwrap(), "one");
        assert_eq!(fs::read_dir(directory.path().join(MERGING)).unwrap().count(), 0);
    }
}
