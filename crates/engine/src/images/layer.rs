//! Applies one layer's tar stream to an empty directory of its own.
//!
//! A layer is hostile until proven otherwise. Invariants, one test each:
//! 1. Nothing outside the layer's directory is created, changed or read. All
//!    work is relative to descriptors the kernel resolved inside that root.
//! 2. No device node other than overlayfs whiteouts comes into being.
//! 3. A layer cannot smuggle overlayfs' own markers in as extended attributes.
//! 4. Bytes, inodes and memory are bounded (`limits.rs`).
//!
//! Read next: `rootfs.rs`, which stacks the results.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::ImageError;
use super::limits::{DIRECTORY_NAME_BYTES_MAX, Limits};
use super::read::read_error;
use super::tarball::{Kind, Member, Tarball};

/// Unpacks `source` into the existing, empty directory `root` and returns the
/// source, of which only what follows the archive is left, and how many
/// entries were made.
pub(super) fn unpack<R: Read>(source: R, root: &Path, limits: &Limits) -> Result<(R, u64), ImageError> {
    let root = fs::open(root, DIRECTORY, Mode::empty()).map_err(ImageError::io("layer directory"))?;
    let mut tarball = Tarball::new(source);
    let mut applier = Applier {
        root,
        entries_left: limits.layer_entries_max,
        name_bytes_left: DIRECTORY_NAME_BYTES_MAX,
        limits: *limits,
        mtimes: Vec::new(),
    };
    while let Some(member) = tarball.next()? {
        applier.apply(&member, &mut tarball)?;
    }
    let entries = limits.layer_entries_max - applier.entries_left;
    applier.finish()?;
    Ok((tarball.into_inner(), entries))
}

struct Applier {
    root: OwnedFd,
    entries_left: u64,
    name_bytes_left: u64,
    limits: Limits,
    /// Directory times, set last: each file put into one would change it again.
    mtimes: Vec<(PathBuf, Timestamps)>,
}

impl Applier {
    fn apply<R: Read>(&mut self, member: &Member, content: &mut Tarball<R>) -> Result<(), ImageError> {
        self.count_entry()?;
        let path = inner_path(&member.path).map_err(refuse(member))?;
        let Some(name) = path.file_name().map(OsStr::to_owned) else { return self.apply_root(member) };
        // Nodes of the layer's own: containers get their devices from the
        // runtime, and a layer must not bring a way to the host's disks.
        if member.kind == Kind::Device {
            return Ok(());
        }
        let parent = self.parent(&path, member)?;
        if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) {
            let is_below_root = path.components().count() > 1;
            return self.apply_whiteout(member, &parent, OsStr::from_bytes(hidden), is_below_root);
        }
        match member.kind {
            Kind::Directory => self.apply_directory(member, &parent, &path, &name),
            Kind::File => apply_file(member, &parent, &name, content),
            Kind::Symlink => apply_symlink(member, &parent, &name),
            Kind::HardLink => self.apply_hard_link(member, &parent, &name),
            Kind::Fifo => apply_fifo(member, &parent, &name),
            Kind::Device => Ok(()),
        }
    }

    fn count_entry(&mut self) -> Result<(), ImageError> {
        let limit = self.limits.layer_entries_max;
        let too_many = || ImageError::TooLarge { what: "number of layer entries", limit };
        self.entries_left = self.entries_left.checked_sub(1).ok_or_else(too_many)?;
        Ok(())
    }

    /// `./`: only says what the root directory itself looks like.
    fn apply_root(&mut self, member: &Member) -> Result<(), ImageError> {
        if member.kind != Kind::Directory {
            return Err(refuse(member)("names the root but is no directory"));
        }
        set_attributes(member, &self.root)?;
        self.remember_time(Path::new("."), member)
    }

    /// The directory a member goes into. Symbolic links on the way are
    /// followed as the container would see them: inside the layer's root.
    /// Directories the layer forgot to mention are made.
    fn parent(&mut self, path: &Path, member: &Member) -> Result<OwnedFd, ImageError> {
        let parent = path.parent().unwrap_or(Path::new(""));
        match self.open_directory(parent) {
            Ok(directory) => return Ok(directory),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(err) => return Err(unresolvable(member, err)),
        }
        let mut current = self.open_directory(Path::new("")).map_err(|err| unresolvable(member, err))?;
        let mut walked = PathBuf::new();
        for component in parent.components() {
            walked.push(component);
            current = match self.open_directory(&walked) {
                Ok(directory) => directory,
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    self.count_entry()?;
                    make_directory(member, &current, component.as_os_str(), Existing::Refuse)?
                }
                Err(err) => return Err(unresolvable(member, err)),
            };
        }
        Ok(current)
    }

    fn open_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        // The kernel asks to try again when a rename elsewhere on the machine
        // got in the way of checking a `..` of some link.
        let mut outcome = Err(Errno::AGAIN);
        for _ in 0..RESOLVE_TRIES_MAX {
            outcome = fs::openat2(&self.root, path, DIRECTORY, Mode::empty(), inside);
            if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
        }
        outcome
    }

    fn apply_directory(
        &mut self,
        member: &Member,
        parent: &OwnedFd,
        path: &Path,
        name: &OsStr,
    ) -> Result<(), ImageError> {
        let directory = make_directory(member, parent, name, Existing::Replace)?;
        set_attributes(member, &directory)?;
        self.remember_time(path, member)
    }

    fn remember_time(&mut self, path: &Path, member: &Member) -> Result<(), ImageError> {
        let too_long = || ImageError::TooLarge { what: "names of directories", limit: DIRECTORY_NAME_BYTES_MAX };
        let length = path.as_os_str().len() as u64;
        self.name_bytes_left = self.name_bytes_left.checked_sub(length).ok_or_else(too_long)?;
        self.mtimes.push((path.to_owned(), times(member)));
        Ok(())
    }

    /// OCI whiteouts become overlayfs' own. They hide what lower layers have,
    /// never what this layer itself brings, whichever comes first in the tar.
    fn apply_whiteout(
        &mut self,
        member: &Member,
        parent: &OwnedFd,
        hidden: &OsStr,
        is_below_root: bool,
    ) -> Result<(), ImageError> {
        if hidden.as_bytes() == OPAQUE_SUFFIX {
            // overlayfs merges the roots of layers whatever they are marked with.
            if !is_below_root {
                return Err(refuse(member)("hides the whole root, which is not supported"));
            }
            return mark_opaque(member, parent);
        }
        if hidden.as_bytes().starts_with(WHITEOUT) {
            // Bookkeeping of aufs, never content.
            return Ok(());
        }
        if matches!(hidden.as_bytes(), b"" | b"." | b"..") {
            return Err(refuse(member)("whiteout of an impossible name"));
        }
        match fs::statat(parent, hidden, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => fs::mknodat(parent, hidden, FileType::CharacterDevice, Mode::empty(), 0)
                .map_err(failed(member, "make whiteout")),
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                let directory = open_plain_directory(parent, hidden).map_err(failed(member, "open"))?;
                mark_opaque(member, &directory)
            }
            Ok(_) => Ok(()),
            Err(err) => Err(failed(member, "stat")(err)),
        }
    }

    fn apply_hard_link(&mut self, member: &Member, parent: &OwnedFd, name: &OsStr) -> Result<(), ImageError> {
        let target = inner_path(&member.link).map_err(refuse(member))?;
        let Some(target_name) = target.file_name() else { return Err(refuse(member)("hard link to the root")) };
        let target_parent = self
            .open_directory(target.parent().unwrap_or(Path::new("")))
            .map_err(|_| refuse(member)("hard link to something the layer does not hold"))?;
        // The target itself may be a symbolic link; it is linked, not followed.
        match fs::statat(&target_parent, target_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                return Err(refuse(member)("hard link to a directory"));
            }
            // A link to itself: clearing the way first would destroy it.
            Ok(stat) if is_same_file(&stat, parent, name) => return Ok(()),
            Ok(_) => {}
            Err(_) => return Err(refuse(member)("hard link to something the layer does not hold")),
        }
        clear_way(member, parent, name)?;
        fs::linkat(&target_parent, target_name, parent, name, AtFlags::empty()).map_err(failed(member, "link"))
    }

    fn finish(self) -> Result<(), ImageError> {
        for (path, times) in self.mtimes.iter().rev() {
            // A later member may have replaced it; then its time is moot.
            if let Ok(directory) = self.open_directory(path) {
                fs::futimens(&directory, times)
                    .map_err(ImageError::io(format!("layer directory {}", path.display())))?;
            }
        }
        Ok(())
    }
}

/// The path as seen from the layer's root. Absolute ones are taken from there.
fn inner_path(raw: &[u8]) -> Result<PathBuf, &'static str> {
    let mut path = PathBuf::new();
    for component in raw.split(|b| *b == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err("climbs out of its directory"),
            component => path.push(OsStr::from_bytes(component)),
        }
    }
    Ok(path)
}

fn apply_file<R: Read>(
    member: &Member,
    parent: &OwnedFd,
    name: &OsStr,
    content: &mut Tarball<R>,
) -> Result<(), ImageError> {
    clear_way(member, parent, name)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed(member, "create"))?;
    let mut file = std::fs::File::from(file);
    io::copy(content, &mut file).map_err(read_error("layer file"))?;
    set_attributes(member, &file)?;
    fs::futimens(&file, &times(member)).map_err(failed(member, "set time"))
}

fn apply_symlink(member: &Member, parent: &OwnedFd, name: &OsStr) -> Result<(), ImageError> {
    if member.link.is_empty() {
        return Err(refuse(member)("symbolic link without a target"));
    }
    clear_way(member, parent, name)?;
    fs::symlinkat(OsStr::from_bytes(&member.link), parent, name).map_err(failed(member, "link"))?;
    set_owner_and_time(member, parent, name)
}

fn apply_fifo(member: &Member, parent: &OwnedFd, name: &OsStr) -> Result<(), ImageError> {
    clear_way(member, parent, name)?;
    fs::mknodat(parent, name, FileType::Fifo, Mode::empty(), 0).map_err(failed(member, "create"))?;
    set_owner_and_time(member, parent, name)?;
    // Safe without NOFOLLOW: the name was made just now, in a private directory.
    fs::chmodat(parent, name, Mode::from_raw_mode(member.mode), AtFlags::empty()).map_err(failed(member, "set mode"))
}

fn set_owner_and_time(member: &Member, parent: &OwnedFd, name: &OsStr) -> Result<(), ImageError> {
    let (uid, gid) = owner(member);
    fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(failed(member, "set owner"))?;
    fs::utimensat(parent, name, &times(member), AtFlags::SYMLINK_NOFOLLOW).map_err(failed(member, "set time"))
}

/// Owner first: changing it clears the set-user-id bits and capabilities.
fn set_attributes(member: &Member, file: impl AsFd) -> Result<(), ImageError> {
    let (uid, gid) = owner(member);
    fs::fchown(&file, uid, gid).map_err(failed(member, "set owner"))?;
    fs::fchmod(&file, Mode::from_raw_mode(member.mode)).map_err(failed(member, "set mode"))?;
    for (name, value) in &member.xattrs {
        if !is_allowed_xattr(name) {
            continue;
        }
        match fs::fsetxattr(&file, name.as_slice(), value, XattrFlags::empty()) {
            // Not every filesystem keeps user attributes; none needs them to work.
            Err(Errno::NOTSUP | Errno::PERM) if name.starts_with(b"user.") => {}
            outcome => outcome.map_err(failed(member, "set attribute"))?,
        }
    }
    Ok(())
}

/// File capabilities and the user's own. Above all not `trusted.overlay.*`,
/// with which a layer could redirect lookups to other directories.
fn is_allowed_xattr(name: &[u8]) -> bool {
    name == b"security.capability" || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
}

/// Creates the directory or takes the one that is there. One that replaces a
/// whiteout of this layer hides what lower layers have under its name.
fn make_directory(member: &Member, parent: &OwnedFd, name: &OsStr, existing: Existing) -> Result<OwnedFd, ImageError> {
    let mut was_whiteout = false;
    match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            return open_plain_directory(parent, name).map_err(failed(member, "open"));
        }
        Ok(stat) if existing == Existing::Replace || is_whiteout(&stat) => {
            was_whiteout = is_whiteout(&stat);
            fs::unlinkat(parent, name, AtFlags::empty()).map_err(failed(member, "replace"))?;
        }
        Ok(_) => return Err(refuse(member)("its parent is not a directory")),
        Err(Errno::NOENT) => {}
        Err(err) => return Err(failed(member, "stat")(err)),
    }
    fs::mkdirat(parent, name, Mode::RWXU).map_err(failed(member, "make directory"))?;
    let directory = open_plain_directory(parent, name).map_err(failed(member, "open"))?;
    fs::fchmod(&directory, Mode::from_raw_mode(0o755)).map_err(failed(member, "set mode"))?;
    if was_whiteout {
        mark_opaque(member, &directory)?;
    }
    Ok(directory)
}

/// What to do with something else of the directory's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    /// The member says that it is a directory now.
    Replace,
    /// The member only needs it as a parent.
    Refuse,
}

fn open_plain_directory(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// Of two members with one name the later wins, as everywhere.
fn clear_way(member: &Member, parent: &OwnedFd, name: &OsStr) -> Result<(), ImageError> {
    match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            Err(refuse(member)("replaces a directory of the same layer"))
        }
        Ok(_) => fs::unlinkat(parent, name, AtFlags::empty()).map_err(failed(member, "replace")),
        Err(Errno::NOENT) => Ok(()),
        Err(err) => Err(failed(member, "stat")(err)),
    }
}

fn mark_opaque(member: &Member, directory: &OwnedFd) -> Result<(), ImageError> {
    fs::fsetxattr(directory, "trusted.overlay.opaque", b"y", XattrFlags::empty()).map_err(failed(member, "hide"))
}

fn is_whiteout(stat: &fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

fn is_same_file(stat: &fs::Stat, parent: &OwnedFd, name: &OsStr) -> bool {
    fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|other| other.st_ino == stat.st_ino)
}

fn owner(member: &Member) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(member.uid)), Some(Gid::from_raw(member.gid)))
}

fn times(member: &Member) -> Timestamps {
    let (seconds, nanos) = member.mtime;
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanos) };
    Timestamps { last_access: time, last_modification: time }
}

fn refuse(member: &Member) -> impl FnOnce(&'static str) -> ImageError {
    let path = member.name();
    move |detail| ImageError::UnsafeLayer { path, detail }
}

fn unresolvable(member: &Member, err: Errno) -> ImageError {
    match err {
        Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG => refuse(member)("its parent cannot be resolved"),
        err => failed(member, "open parent")(err),
    }
}

fn failed(member: &Member, what: &'static str) -> impl FnOnce(Errno) -> ImageError {
    let path = member.name();
    move |err| ImageError::io(format!("layer entry {path:?}: {what}"))(err)
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const RESOLVE_TRIES_MAX: usize = 128;
const WHITEOUT: &[u8] = b".wh.";
/// What follows the prefix in `.wh..wh..opq`.
const OPAQUE_SUFFIX: &[u8] = b".wh..opq";

#[cfg(test)]
mod tests;
