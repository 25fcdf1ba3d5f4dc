//! What containers left in an `emptyDir` for others' environment. They may have
//! left anything: no link is followed, nothing is waited for, and what is too
//! large is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::blocking;
use crate::ctx::Ctx;
use crate::env::{FileAt, FileText};

/// Upstream's limit.
const BYTES_MAX: u64 = 64 << 10;
/// Of all that one container's environment refers to.
const TOTAL_BYTES_MAX: usize = 4 << 20;

pub(crate) async fn left_files(ctx: &Ctx, uid: &str, wanted: BTreeSet<FileAt>) -> BTreeMap<FileAt, FileText> {
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let volumes = ctx.config.pod_dir(uid).join("volumes").join("kubernetes.io~empty-dir");
    blocking(move || Ok(read_all(&volumes, wanted))).await.unwrap_or_default()
}

fn read_all(volumes: &Path, wanted: BTreeSet<FileAt>) -> BTreeMap<FileAt, FileText> {
    let mut left = TOTAL_BYTES_MAX;
    let mut text = |file: &FileAt| {
        let text = read(&volumes.join(&file.volume), Path::new(&file.path)).map_err(|error| error.to_string())?;
        let rest = left.checked_sub(text.as_ref().map_or(0, String::len));
        left = rest.ok_or_else(|| format!("more than {TOTAL_BYTES_MAX} bytes with those before it"))?;
        Ok(text)
    };
    wanted.into_iter().map(|file| (file.clone(), text(&file))).collect()
}

fn read(volume: &Path, path: &Path) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let volume = match File::open(volume) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        volume => volume?,
    };
    let file = match rustix::fs::openat2(&volume, path, flags, Mode::empty(), inside) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        file => File::from(file?),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    // Whatever its size is said to be.
    file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("larger than {BYTES_MAX} bytes")));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_plain_files_of_the_volume_itself_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("conf");
        std::fs::create_dir_all(volume.join("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), "S='1'").unwrap();
        std::fs::write(volume.join("sub/a.env"), "A='1'").unwrap();
        std::fs::write(volume.join("large"), vec![b'#'; 65 << 10]).unwrap();
        symlink("../secret", volume.join("link")).unwrap();
        symlink("..", volume.join("up")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, volume.join("pipe"), fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let read = |path: &str| read(&volume, Path::new(path));
        assert_eq!(read("sub/a.env").unwrap().as_deref(), Some("A='1'"));
        assert_eq!(read("none").unwrap(), None);
        for path in ["link", "up/secret", "../secret", "/etc/hostname", "pipe", "sub", "large"] {
            assert!(read(path).is_err(), "{path}");
        }
    }

    #[test]
    fn files_of_one_environment_have_room_for_a_few_megabytes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("conf")).unwrap();
        let wanted: BTreeSet<FileAt> =
            (0..80).map(|n| FileAt { volume: "conf".into(), path: format!("{n:02}.env") }).collect();
        for file in &wanted {
            std::fs::write(dir.path().join("conf").join(&file.path), vec![b'#'; 64 << 10]).unwrap();
        }
        let found = read_all(dir.path(), wanted);
        assert_eq!(found.values().filter(|text| text.is_ok()).count(), TOTAL_BYTES_MAX / (64 << 10));
    }
}
