//! A directory that others may fill, and a neighbour that they should not even
//! look at.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

pub struct Jail {
    top: PathBuf,
    before: Vec<String>,
}

/// Where files may be made: `scripts/fuzz` names a place in memory and removes it.
pub fn scratch(name: &str) -> PathBuf {
    let place = std::env::var_os("PODIUM_FUZZ_SCRATCH").map_or_else(std::env::temp_dir, PathBuf::from);
    let scratch = place.join(format!("podium-fuzz-{name}-{}", std::process::id()));
    fs::create_dir_all(&scratch).expect("a directory");
    scratch
}

impl Jail {
    pub fn new(name: &str) -> Self {
        let top = scratch(name);
        for name in ["outside", "outside/inner"] {
            fs::create_dir(top.join(name)).expect("a directory");
        }
        fs::write(top.join("outside/secret"), "secret").expect("a file");
        fs::set_permissions(top.join("outside/secret"), fs::Permissions::from_mode(0o600)).expect("a mode");
        // The kernel notes a read where the last one was before the last change.
        let file = fs::File::options().write(true).open(top.join("outside/secret")).expect("a file");
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        file.set_times(fs::FileTimes::new().set_accessed(long_ago)).expect("times");
        let mut jail = Self { top, before: Vec::new() };
        jail.before = jail.neighbours();
        jail
    }

    /// The path of what nobody should reach.
    pub fn secret(&self) -> PathBuf {
        self.top.join("outside/secret")
    }

    /// A new, empty directory.
    pub fn cell(&self) -> PathBuf {
        let cell = self.top.join("root");
        fs::create_dir(&cell).expect("what was there was removed");
        fs::set_permissions(&cell, fs::Permissions::from_mode(0o755)).expect("a mode");
        cell
    }

    /// Fails if anything but the cell was changed, made or read.
    pub fn must_be_untouched(&self) {
        assert_eq!(self.neighbours(), self.before, "something outside was reached");
    }

    fn neighbours(&self) -> Vec<String> {
        let mut found = Vec::new();
        for name in ["", "outside", "outside/inner"] {
            let directory = self.top.join(name);
            let mut entries: Vec<PathBuf> =
                fs::read_dir(&directory).expect("it is there").flatten().map(|entry| entry.path()).collect();
            entries.sort();
            let told = entries.iter().filter(|path| path.file_name().is_some_and(|name| name != "root"));
            found.extend(told.map(|path| marks(path)));
        }
        found
    }
}

/// All that tells that somebody was here.
fn marks(path: &Path) -> String {
    let it = path.symlink_metadata().expect("it is there");
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let times = (it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec());
    // Looking at directories is what we do ourselves.
    let read = if it.is_dir() { (0, 0) } else { (it.atime(), it.atime_nsec()) };
    format!("{name} {:o} {}:{} {} {} {times:?} {read:?}", it.mode(), it.uid(), it.gid(), it.nlink(), it.size())
}

/// What was found under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: FileType,
    pub mode: u32,
    pub owner: (u32, u32),
    pub device: u64,
    pub size: u64,
    pub content: Vec<u8>,
    /// Of what has a time of its own.
    pub mtime: Option<(i64, u64)>,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first name of the same file.
    pub same_as: Vec<u8>,
    /// As `du` counts.
    pub blocks: u64,
}

/// Everything below, by path. Walks by descriptors: paths may be longer than
/// the kernel takes.
pub fn tree(root: &Path) -> BTreeMap<Vec<u8>, Node> {
    let root = rustix::fs::openat(CWD, root, DIRECTORY, Mode::empty()).expect("it is there");
    let mut found = BTreeMap::new();
    add(&mut found, &mut BTreeMap::new(), &root, b"");
    found
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn add(found: &mut BTreeMap<Vec<u8>, Node>, names: &mut BTreeMap<u64, Vec<u8>>, directory: &OwnedFd, above: &[u8]) {
    let entries = Dir::read_from(directory).expect("it can be listed");
    let mut entries: Vec<_> = entries.map(|entry| entry.expect("it can be listed").file_name().to_owned()).collect();
    entries.retain(|name| !matches!(name.to_bytes(), b"." | b".."));
    entries.sort();
    for name in entries {
        let path = [above, b"/", name.to_bytes()].concat();
        let stat = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW).expect("it is there");
        let same_as = names.entry(stat.st_ino).or_insert_with(|| path.clone()).clone();
        let mut node = node(&stat, same_as);
        let open = |flags| rustix::fs::openat(directory, &name, flags, Mode::empty()).expect("it can be opened");
        match node.kind {
            FileType::Directory => {
                let inner = open(DIRECTORY);
                node.attributes = attributes(&inner);
                add(found, names, &inner, &path);
            }
            FileType::RegularFile => {
                let file = open(OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC);
                node.attributes = attributes(&file);
                std::io::Read::read_to_end(&mut fs::File::from(file), &mut node.content).expect("it can be read");
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, &name, Vec::new()).expect("it can be read");
                node.content = target.into_bytes();
            }
            _ => {}
        }
        found.insert(path, node);
    }
}

fn node(stat: &Stat, same_as: Vec<u8>) -> Node {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let has_time = matches!(kind, FileType::RegularFile | FileType::Symlink | FileType::Fifo);
    Node {
        kind,
        mode: stat.st_mode & 0o7777,
        owner: (stat.st_uid, stat.st_gid),
        device: stat.st_rdev,
        size: if kind == FileType::RegularFile { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 },
        content: Vec::new(),
        mtime: has_time.then_some((stat.st_mtime, stat.st_mtime_nsec)),
        attributes: Vec::new(),
        same_as,
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
    }
}

fn attributes(file: &OwnedFd) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::flistxattr(file, &mut names[..]).unwrap_or(0);
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::fgetxattr(file, name, &mut value[..]).unwrap_or(0);
        value.truncate(length);
        value
    };
    let mut found: Vec<_> = names.map(|name| (name.to_vec(), value(name))).collect();
    found.sort();
    found
}
