//! Layers laid over each other by copying: a container's root where overlayfs
//! cannot be used, and what an image brings for its volumes.
//!
//! Both sides are private directories that nobody else changes meanwhile;
//! symbolic links are copied, never followed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

/// The whole of an image. `target` exists and is empty.
pub(crate) fn copy_layers(layers: &[PathBuf], target: &Path) -> io::Result<()> {
    layers.iter().try_for_each(|layer| merge(layer, target, 0, &mut Links::new()))
}

/// What the image has in its directory `inner`, with that directory's mode and
/// owner; nothing if there is no such directory. `target` exists and is empty.
pub(crate) fn copy_directory(layers: &[PathBuf], inner: &Path, target: &Path) -> io::Result<()> {
    for layer in layers {
        match find(layer, inner)? {
            Found::Untouched => {}
            Found::Hidden => clear(target)?,
            Found::Directory { path, hides_lower } => {
                if hides_lower {
                    clear(target)?;
                }
                merge(&path, target, 0, &mut Links::new())?;
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
            Ok(metadata) if metadata.is_dir() => hides_lower |= is_opaque(&path)?,
            Ok(_) => return Ok(Found::Hidden),
            Err(err) if err.kind() == io::ErrorKind::NotFound && hides_lower => return Ok(Found::Hidden),
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Found::Untouched),
            Err(err) => return Err(err),
        }
    }
    Ok(Found::Directory { path, hides_lower })
}

/// Where a file of the layer with several names was put first.
type Links = HashMap<(u64, u64), PathBuf>;

fn merge(source: &Path, target: &Path, depth: usize, links: &mut Links) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!("{}: directories are nested too deeply", source.display())));
    }
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        let metadata = fs::symlink_metadata(&from)?;
        if metadata.is_dir() {
            make_way_for_directory(&from, &to)?;
            merge(&from, &to, depth + 1, links)?;
        } else {
            remove(&to)?;
            copy_entry(&from, &to, &metadata, links)?;
        }
    }
    set_attributes(source, target, &fs::symlink_metadata(source)?)
}

fn make_way_for_directory(from: &Path, to: &Path) -> io::Result<()> {
    let is_directory = fs::symlink_metadata(to).is_ok_and(|there| there.is_dir());
    if !is_directory || is_opaque(from)? {
        remove(to)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(to) {
        Err(err) if err.kind() != io::ErrorKind::AlreadyExists => Err(err),
        _ => Ok(()),
    }
}

fn copy_entry(from: &Path, to: &Path, metadata: &Metadata, links: &mut Links) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() {
        let key = (metadata.dev(), metadata.ino());
        if let Some(first) = links.get(&key) {
            return fs::hard_link(first, to);
        }
        let mut source = File::options().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(from)?;
        let mut copy = File::options().write(true).create_new(true).mode(0o600).open(to)?;
        io::copy(&mut source, &mut copy)?;
        if metadata.nlink() > 1 {
            links.insert(key, to.to_owned());
        }
        return set_attributes(from, to, metadata);
    }
    if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
        return set_owner_and_time(to, metadata);
    }
    if kind.is_fifo() {
        rustix::fs::mknodat(CWD, to, FileType::Fifo, Mode::from_raw_mode(metadata.mode() & 0o7777), 0)?;
        return set_owner_and_time(to, metadata);
    }
    // What is left are whiteouts: they have done their work.
    Ok(())
}

fn set_attributes(from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
    // Owner first: changing it clears the set-user-id bits and capabilities.
    let owner = (Some(Uid::from_raw(metadata.uid())), Some(Gid::from_raw(metadata.gid())));
    rustix::fs::chown(to, owner.0, owner.1)?;
    rustix::fs::chmod(to, Mode::from_raw_mode(metadata.mode() & 0o7777))?;
    copy_xattrs(from, to)?;
    set_owner_and_time(to, metadata)
}

/// Those a layer may have; overlayfs' own marks mean nothing here.
fn copy_xattrs(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::llistxattr(from, &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    let names = names[..length].split(|byte| *byte == 0);
    for name in names.filter(|name| *name == b"security.capability" || name.starts_with(b"user.")) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = rustix::fs::lgetxattr(from, name, &mut value[..])?;
        rustix::fs::lsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn set_owner_and_time(to: &Path, metadata: &Metadata) -> io::Result<()> {
    let is_link = fs::symlink_metadata(to)?.is_symlink();
    if is_link {
        std::os::unix::fs::lchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    let time = Timespec { tv_sec: metadata.mtime(), tv_nsec: metadata.mtime_nsec() };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn is_opaque(directory: &Path) -> io::Result<bool> {
    let mut value = [0; 1];
    match rustix::fs::lgetxattr(directory, "trusted.overlay.opaque", &mut value[..]) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(err) => Err(err.into()),
    }
}

fn clear(directory: &Path) -> io::Result<()> {
    fs::read_dir(directory)?.try_for_each(|entry| remove(&entry?.path()))
}

/// Whatever it is; what is not there is removed already.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(err) => Err(err),
    };
    match removed {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => Ok(()),
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

/// Far beyond what real images have; each level costs stack.
const DEPTH_MAX: usize = 256;
/// The kernel's own limit for names and for one value.
const XATTR_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
