//! Layers laid over each other by copying: a container's root where overlayfs
//! cannot be used, what an image brings for its volumes, and images of several
//! layers that are mounted as volumes.
//!
//! Both sides are private directories that nobody else changes meanwhile;
//! symbolic links are copied, never followed. A layer may be nested deeper
//! than any path is long, so everything goes by descriptor (`trees`).

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use trees::{Entry, Ladder, Resume, Walk};

/// What copies may still take.
pub(crate) struct Budget {
    /// Of the image: hard links and volumes must not multiply it.
    bytes_left: u64,
    /// Of the disk this is on.
    place: PathBuf,
    /// Until the next look at the disk.
    until_look: u64,
}

impl Budget {
    pub(crate) fn new(bytes: u64, place: &Path) -> Budget {
        Budget { bytes_left: bytes, place: place.to_owned(), until_look: 0 }
    }

    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let too_much = || io::Error::other("copies would take more than the image itself");
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_much)?;
        if self.until_look < bytes {
            let free = free_bytes(&self.place)?;
            if free < bytes {
                let message = format!("{free} bytes are free for copies of the image");
                return Err(io::Error::new(io::ErrorKind::StorageFull, message));
            }
            self.until_look = LOOK_BYTES.max(bytes);
        }
        self.until_look -= bytes;
        Ok(())
    }
}

/// The whole of an image. `target` exists and is empty.
pub(crate) fn copy_layers(layers: &[PathBuf], target: &Path, budget: &mut Budget) -> io::Result<()> {
    layers.iter().try_for_each(|layer| merge(layer, &[], target, budget))
}

/// What the image has in its directory `inner`, with that directory's mode and
/// owner; nothing if there is no such directory. Of the directories named
/// `except` (seen from there) only themselves. `target` exists and is empty.
pub(crate) fn copy_directory(
    layers: &[PathBuf],
    (inner, except): (&Path, &[PathBuf]),
    target: &Path,
    budget: &mut Budget,
) -> io::Result<()> {
    for layer in layers {
        match find(layer, inner)? {
            Found::Untouched => {}
            Found::Hidden => trees::empty(Ladder::at(target)?)?,
            Found::Directory { path, hides_lower } => {
                if hides_lower {
                    trees::empty(Ladder::at(target)?)?;
                }
                merge(&path, except, target, budget)?;
            }
        }
    }
    Ok(())
}

/// What a layer does to a directory of those below it.
enum Found {
    Untouched,
    /// Removed, or something else stands in its way.
    Hidden,
    Directory {
        path: PathBuf,
        hides_lower: bool,
    },
}

fn find(layer: &Path, inner: &Path) -> io::Result<Found> {
    let mut path = layer.to_owned();
    let mut hides_lower = false;
    for component in inner.components() {
        let Component::Normal(name) = component else { continue };
        path.push(name);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => hides_lower |= is_opaque(Ladder::at(&path)?.here())?,
            Ok(_) => return Ok(Found::Hidden),
            Err(err) if err.kind() == io::ErrorKind::NotFound && hides_lower => return Ok(Found::Hidden),
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Found::Untouched),
            Err(err) => return Err(err),
        }
    }
    Ok(Found::Directory { path, hides_lower })
}

fn merge(source: &Path, except: &[PathBuf], target: &Path, budget: &mut Budget) -> io::Result<()> {
    // Where we are, as long as something below is left out.
    let mut above: Vec<Vec<&Path>> = vec![except.iter().map(PathBuf::as_path).collect()];
    let mut links = Links { place: target.with_file_name("links"), directory: None };
    let (mut from, mut to) = (Walk::new(Ladder::at(source)?), Ladder::at(target)?);
    loop {
        match from.next_entry()? {
            Some(entry) if entry.is_directory() => {
                enter(&mut from, &mut to, &entry)?;
                let left_out = above.last().map(|paths| below(paths, &entry.name)).unwrap_or_default();
                if left_out.iter().any(|path| path.as_os_str().is_empty()) {
                    set_attributes(from.here(), to.here(), &rustix::fs::fstat(from.here())?)?;
                    from.leave()?;
                    to.leave()?;
                } else {
                    above.push(left_out);
                }
            }
            Some(entry) => {
                trees::remove_at(to.here(), entry.name.as_c_str())?;
                copy_entry(from.here(), to.here(), &entry.name, (&mut links, budget))?;
            }
            None => {
                // Now that nothing more is made in it.
                set_attributes(from.here(), to.here(), &rustix::fs::fstat(from.here())?)?;
                if !from.leave()? {
                    return links.remove();
                }
                to.leave()?;
                above.pop();
            }
        }
        if from.depth() != to.depth() {
            return Err(io::Error::other(format!("{} changed while it was copied", source.display())));
        }
    }
}

/// Those of the paths that begin with a name, seen from there.
fn below<'a>(paths: &[&'a Path], name: &CStr) -> Vec<&'a Path> {
    let name = Path::new(OsStr::from_bytes(name.to_bytes()));
    paths.iter().filter_map(|path| path.strip_prefix(name).ok()).collect()
}

/// On both sides; a directory of the lower layers stays, unless it is hidden.
fn enter(from: &mut Walk, to: &mut Ladder, entry: &Entry) -> io::Result<()> {
    from.enter(entry, Resume::After)?;
    let there = rustix::fs::statat(to.here(), &entry.name, AtFlags::SYMLINK_NOFOLLOW);
    let is_directory = there.is_ok_and(|there| FileType::from_raw_mode(there.st_mode) == FileType::Directory);
    if !is_directory || is_opaque(from.here())? {
        trees::remove_at(to.here(), entry.name.as_c_str())?;
    }
    match rustix::fs::mkdirat(to.here(), &entry.name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => to.enter(&entry.name).map(drop),
        Err(error) => Err(error.into()),
    }
}

/// Files of a layer with several names: each is linked to a place beside the
/// target under its number, where the next name finds it without a path.
struct Links {
    place: PathBuf,
    /// There once it is needed.
    directory: Option<OwnedFd>,
}

impl Links {
    fn directory(&mut self) -> io::Result<BorrowedFd<'_>> {
        if self.directory.is_none() {
            trees::remove(&self.place)?;
            fs::create_dir(&self.place)?;
            self.directory = Some(File::open(&self.place)?.into());
        }
        Ok(self.directory.as_ref().expect("it was made just now").as_fd())
    }

    fn remove(self) -> io::Result<()> {
        self.directory.map_or(Ok(()), |_| trees::remove(&self.place))
    }
}

fn copy_entry(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &CStr,
    (links, budget): (&mut Links, &mut Budget),
) -> io::Result<()> {
    let found = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile if found.st_nlink > 1 => {
            let (links, number) = (links.directory()?, found.st_ino.to_string());
            match rustix::fs::linkat(links, &number, to, name, AtFlags::empty()) {
                Err(Errno::NOENT) => {}
                linked => return Ok(linked?),
            }
            copy_file(from, to, name, &found, budget)?;
            Ok(rustix::fs::linkat(to, name, links, &number, AtFlags::empty())?)
        }
        FileType::RegularFile => copy_file(from, to, name, &found, budget),
        FileType::Symlink => {
            rustix::fs::symlinkat(rustix::fs::readlinkat(from, name, Vec::new())?, to, name)?;
            set_owner_and_time(to, name, &found)
        }
        FileType::Fifo => {
            rustix::fs::mknodat(to, name, FileType::Fifo, Mode::from_raw_mode(found.st_mode & 0o7777), 0)?;
            set_owner_and_time(to, name, &found)
        }
        // What is left are whiteouts: they have done their work.
        _ => Ok(()),
    }
}

fn copy_file(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    name: &CStr,
    found: &Stat,
    budget: &mut Budget,
) -> io::Result<()> {
    budget.take(u64::try_from(found.st_size).unwrap_or(0))?;
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::openat(from, name, read, Mode::empty())?);
    let mut copy = File::from(rustix::fs::openat(to, name, make, Mode::RUSR | Mode::WUSR)?);
    io::copy(&mut source, &mut copy)?;
    set_attributes(source.as_fd(), copy.as_fd(), found)
}

fn set_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>, found: &Stat) -> io::Result<()> {
    // Owner first: changing it clears the set-user-id bits and capabilities.
    rustix::fs::fchown(to, Some(Uid::from_raw(found.st_uid)), Some(Gid::from_raw(found.st_gid)))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(found.st_mode & 0o7777))?;
    copy_xattrs(from, to)?;
    Ok(rustix::fs::futimens(to, &times(found))?)
}

/// Those a layer may have; overlayfs' own marks mean nothing here.
fn copy_xattrs(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::flistxattr(from, &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    let names = names[..length].split(|byte| *byte == 0);
    for name in names.filter(|name| *name == b"security.capability" || name.starts_with(b"user.")) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

/// Of what cannot be opened.
fn set_owner_and_time(directory: BorrowedFd<'_>, name: &CStr, found: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
    rustix::fs::chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(rustix::fs::utimensat(directory, name, &times(found), AtFlags::SYMLINK_NOFOLLOW)?)
}

fn times(found: &Stat) -> Timestamps {
    let nanoseconds = i64::try_from(found.st_mtime_nsec).unwrap_or(0);
    let time = Timespec { tv_sec: found.st_mtime, tv_nsec: nanoseconds };
    Timestamps { last_access: time, last_modification: time }
}

fn is_opaque(directory: BorrowedFd<'_>) -> io::Result<bool> {
    let mut value = [0; 1];
    match rustix::fs::fgetxattr(directory, "trusted.overlay.opaque", &mut value[..]) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(err) => Err(err.into()),
    }
}

/// `/a/../b/` and `b` are both `b`: a volume's path, seen from the root.
pub(crate) fn inside(path: &Path) -> PathBuf {
    let mut parts: Vec<&OsStr> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => drop(parts.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    parts.iter().collect()
}

/// What may be taken of the file system that `place` is on: the rest is left
/// to everybody else.
pub(crate) fn free_bytes(place: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(place)?;
    let reserve = (disk.f_blocks * disk.f_frsize / 20).min(DISK_RESERVE_BYTES_MAX);
    Ok((disk.f_bavail * disk.f_frsize).saturating_sub(reserve))
}

/// One twentieth of a disk is left free, but not more than this.
const DISK_RESERVE_BYTES_MAX: u64 = 1 << 30;
/// Between two looks at what is free.
const LOOK_BYTES: u64 = 64 << 20;

/// The kernel's own limit for names and for one value.
const XATTR_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
