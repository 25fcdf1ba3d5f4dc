//! What containers left in an `emptyDir` for others' environment. They may have
//! left anything: no link is followed, nothing is waited for, and what is too
//! large is not read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::blocking;
use crate::ctx::Ctx;
use crate::env::{FileAt, FileText};

/// Upstream's limit.
const BYTES_MAX: u64 = 64 << 10;

pub(crate) async fn left_files(ctx: &Ctx, uid: &str, wanted: Vec<FileAt>) -> BTreeMap<FileAt, FileText> {
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let volumes = ctx.config.pod_dir(uid).join("volumes").join("kubernetes.io~empty-dir");
    let read = move || {
        let text = |file: FileAt| {
            let text = read(&volumes.join(&file.volume), Path::new(&file.path)).map_err(|error| error.to_string());
            (file, text)
        };
        Ok(wanted.into_iter().map(text).collect())
    };
    blocking(read).await.unwrap_or_default()
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
}
