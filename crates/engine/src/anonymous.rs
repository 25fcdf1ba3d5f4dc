//! Volumes that an image declares (`VOLUME`): directories of the container's
//! own, filled with what the image has there, gone with the container.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cri::Mount;

use crate::rootfs::copy::{Budget, copy_directory, inside};

pub(crate) struct AnonymousVolume {
    pub(crate) source: PathBuf,
    pub(crate) destination: PathBuf,
    /// Where others lie in it: seen from here, what the image has there is
    /// theirs.
    others: Vec<PathBuf>,
}

/// Those the pod does not mount something at itself. The image's word only
/// chooses where inside the container (CVE-2022-23648).
pub(crate) fn anonymous_volumes(dir: &Path, declared: &[String], mounts: &[Mount]) -> Vec<AnonymousVolume> {
    let taken = |inner: &Path| mounts.iter().any(|mount| inside(&mount.container_path) == inner);
    let mut inner: Vec<PathBuf> = declared.iter().map(|path| inside(Path::new(path))).collect();
    // Parents before what lies in them.
    inner.sort();
    inner.dedup();
    inner.retain(|path| !path.as_os_str().is_empty() && !taken(path));
    inner.truncate(VOLUMES_MAX);
    let below = |outer: &PathBuf| {
        let others = inner.iter().filter(|other| *other != outer);
        others.filter_map(|other| other.strip_prefix(outer).ok().map(Path::to_owned)).collect()
    };
    let place = |(number, inner): (usize, &PathBuf)| AnonymousVolume {
        source: dir.join("volumes").join(number.to_string()),
        destination: Path::new("/").join(inner),
        others: below(inner),
    };
    inner.iter().enumerate().map(place).collect()
}

impl AnonymousVolume {
    /// With what the image has at its place.
    pub(crate) fn fill(&self, layers: &[PathBuf], budget: &mut Budget) -> io::Result<()> {
        fs::create_dir_all(&self.source)?;
        fs::set_permissions(&self.source, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        copy_directory(layers, (&inside(&self.destination), &self.others), &self.source, budget)
    }
}

/// Volumes one image may declare; real ones have a handful.
const VOLUMES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::testing::root_or_return;

    #[test]
    fn volumes_in_each_other_hold_everything_once() {
        root_or_return!();
        let place = tempfile::tempdir().unwrap();
        let layer = place.path().join("layer");
        let chain: Vec<String> = (1..=VOLUMES_MAX).map(|depth| "/d".repeat(depth)).collect();
        let lowest = layer.join(&chain[VOLUMES_MAX - 1][1..]);
        fs::create_dir_all(&lowest).unwrap();
        fs::write(lowest.join("large"), vec![1; 1 << 16]).unwrap();
        fs::write(layer.join("d/small"), "x").unwrap();
        let volumes = anonymous_volumes(place.path(), &chain, &[]);
        assert_eq!(volumes.len(), VOLUMES_MAX);
        let mut budget = Budget::new((1 << 16) + 1, place.path());
        for volume in &volumes {
            volume.fill(std::slice::from_ref(&layer), &mut budget).unwrap();
        }
        let files = |volume: &AnonymousVolume| {
            let mut names: Vec<_> = fs::read_dir(&volume.source).unwrap().map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(files(&volumes[0]), ["d", "small"], "with a place for the next");
        assert_eq!(fs::read_dir(volumes[0].source.join("d")).unwrap().count(), 0);
        assert_eq!(files(&volumes[1]), ["d"]);
        assert_eq!(files(&volumes[VOLUMES_MAX - 1]), ["large"]);
    }

    #[test]
    fn volumes_take_no_more_than_their_image() {
        root_or_return!();
        let place = tempfile::tempdir().unwrap();
        let layer = place.path().join("layer");
        // One file, in each of them by another name.
        let names: Vec<String> = (0..4).map(|number| format!("/v{number}")).collect();
        fs::create_dir_all(&layer).unwrap();
        fs::write(layer.join("large"), vec![1; 1 << 16]).unwrap();
        for name in &names {
            fs::create_dir(layer.join(&name[1..])).unwrap();
            fs::hard_link(layer.join("large"), layer.join(&name[1..]).join("link")).unwrap();
        }
        let volumes = anonymous_volumes(place.path(), &names, &[]);
        let mut budget = Budget::new(3 << 16, place.path());
        let filled: Vec<_> =
            volumes.iter().map(|volume| volume.fill(std::slice::from_ref(&layer), &mut budget)).collect();
        assert!(filled[..3].iter().all(Result::is_ok), "{filled:?}");
        assert!(filled[3].as_ref().is_err_and(|error| error.to_string().contains("more than the image")), "{filled:?}");
    }
}
