//! A container's volumes: opened before it is made, mounted once it is.
//!
//! By descriptor on both sides (docs/decisions/0014).

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use crate::furnish;
use crate::inroot::{self, Kind};
use crate::sys;
use crate::sys::mount::{self, Change};
use crate::users::Users;
use crate::wire::{BindMount, ContainerSpec};

/// Something to be mounted, as it will be.
pub(crate) struct Volume {
    tree: OwnedFd,
    kind: Kind,
    destination: PathBuf,
}

/// Opens what is to be mounted. Must still be in the node's mount namespace:
/// later mounts reach only a copy that was taken there.
pub(crate) fn take(container: &ContainerSpec, users: Option<&Users>) -> Result<Vec<Volume>, String> {
    let mut binds: Vec<_> = container.mounts.iter().collect();
    // Outer directories first, so that an inner mount is not hidden.
    binds.sort_by_key(|bind| bind.destination.components().count());
    let what = |bind: &BindMount| match &bind.sub_path {
        None => format!("{:?}", bind.source),
        Some(part) => format!("subPath {part:?} of {:?}", bind.source),
    };
    let taken =
        |bind: &BindMount| take_one(bind, users).map_err(|error| format!("error mounting {}: {error}", what(bind)));
    binds.into_iter().map(taken).collect()
}

/// Whoever has users of its own cannot make devices: it is shown the node's.
pub(crate) fn take_devices(container: &ContainerSpec) -> Result<Vec<Volume>, String> {
    let given = furnish::given_devices(container).map(|device| (device.source.clone(), device.path.clone()));
    let usual = furnish::usual_devices(container).map(|(name, ..)| Path::new("/dev").join(name));
    usual.map(|path| (path.clone(), path)).chain(given).map(take_device).collect()
}

fn take_device((source, destination): (PathBuf, PathBuf)) -> Result<Volume, String> {
    // Read-only: it can be written to, but its mode, owner and times are the node's.
    let bind = BindMount { source, destination, readonly: true, ..BindMount::default() };
    take_one(&bind, None).map_err(|error| format!("error mounting device {:?}: {error}", bind.source))
}

fn take_one(bind: &BindMount, users: Option<&Users>) -> io::Result<Volume> {
    let source = open_source(bind)?;
    if bind.follows_node || bind.reaches_node {
        check_propagation(bind, source.as_fd())?;
    }
    let tree = mount::duplicate_tree(source.as_fd())?;
    if let Some(users) = users {
        mount::show_to(tree.as_fd(), users.fd())?;
    }
    let propagation = match (bind.follows_node, bind.reaches_node) {
        (_, true) => None,
        (true, false) => Some(libc::MS_SLAVE),
        (false, false) => Some(libc::MS_PRIVATE),
    };
    if let Some(propagation) = propagation {
        mount::change(tree.as_fd(), &Change { propagation, recursive: true, ..Change::default() })?;
    }
    if bind.readonly {
        let recursive = bind.recursive_readonly;
        mount::change(tree.as_fd(), &Change { set: libc::MOUNT_ATTR_RDONLY, recursive, ..Change::default() })?;
    }
    if bind.noexec {
        mount::change(tree.as_fd(), &Change { set: libc::MOUNT_ATTR_NOEXEC, ..Change::default() })?;
    }
    let kind = kind(tree.as_fd())?;
    Ok(Volume { tree, kind, destination: bind.destination.clone() })
}

fn open_source(bind: &BindMount) -> io::Result<OwnedFd> {
    let whole = open(&bind.source, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let Some(part) = &bind.sub_path else { return Ok(whole) };
    let opened = match bind.source_readonly {
        true => open_fixed_part(whole.as_fd(), part),
        false => inroot::open_part(whole.as_fd(), part),
    };
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EXDEV | libc::ELOOP) => io::Error::other("a link in it leads outside of the volume"),
        Some(libc::EROFS) => io::Error::other("no such file or directory, and the volume is read-only"),
        _ => error,
    })
}

/// Looked for through a read-only mount, so that the kernel sees to it that
/// nothing is made in what others share. (Taken from the original: older
/// kernels duplicate nothing of a mount that is mounted nowhere.)
fn open_fixed_part(whole: BorrowedFd<'_>, part: &Path) -> io::Result<OwnedFd> {
    let seen = mount::duplicate(whole)?;
    mount::change(seen.as_fd(), &Change { set: libc::MOUNT_ATTR_RDONLY, ..Change::default() })?;
    inroot::open_part(seen.as_fd(), part)?;
    sys::open_beneath(whole, part, libc::O_PATH)
}

pub(crate) fn kind(file: BorrowedFd<'_>) -> io::Result<Kind> {
    let mode = SFlag::from_bits_truncate(fstat(file)?.st_mode & SFlag::S_IFMT.bits());
    Ok(if mode == SFlag::S_IFDIR { Kind::Directory } else { Kind::File })
}

/// Nothing travels to or from a private mount, whatever was asked for.
fn check_propagation(bind: &BindMount, source: BorrowedFd<'_>) -> io::Result<()> {
    let id = mount::id(source)?;
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let (place, is_shared, is_slave) = propagation(&table, id).ok_or_else(|| io::Error::other("its mount is gone"))?;
    let lacks = |what: &str| {
        let path = bind.source.display();
        Err(io::Error::other(format!("path {path} is mounted on {place} but it is not a {what} mount")))
    };
    match (bind.reaches_node, is_shared, is_slave) {
        (true, false, _) => lacks("shared"),
        (false, false, false) => lacks("shared or slave"),
        _ => Ok(()),
    }
}

/// Where a mount is, whether it is shared, and whether it follows another.
fn propagation(mountinfo: &str, id: u64) -> Option<(&str, bool, bool)> {
    let is_it = |line: &&str| line.split(' ').next().and_then(|first| first.parse().ok()) == Some(id);
    let fields = || mountinfo.lines().find(is_it).map(|line| line.split(' '));
    let tags = || fields().into_iter().flatten().skip(6).take_while(|field| *field != "-");
    let has = |name: &str| tags().any(|tag| tag.starts_with(name));
    Some((fields()?.nth(4)?, has("shared:"), has("master:")))
}

/// Mounts them into the container with this root. What is missing there is made.
pub(crate) fn put(volumes: &[Volume], root: BorrowedFd<'_>) -> Result<(), String> {
    for volume in volumes {
        let destination = &volume.destination;
        put_one(volume, root)
            .map_err(|error| format!("error mounting to {destination:?} of the container: {error}"))?;
    }
    Ok(())
}

fn put_one(volume: &Volume, root: BorrowedFd<'_>) -> io::Result<()> {
    let target = inroot::make(root, &volume.destination, volume.kind)?;
    if kind(target.as_fd())? != volume.kind {
        return Err(io::Error::other(match volume.kind {
            Kind::Directory => "not a directory (a directory cannot be mounted onto a file)",
            Kind::File => "is a directory (a file cannot be mounted onto a directory)",
        }));
    }
    let (there, here) = (fstat(root)?, fstat(&target)?);
    if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) {
        return Err(io::Error::other("it is the container's root"));
    }
    // By what it is, not by its name: a link may lead there (CVE-2019-19921).
    let is_proc = fstatfs(&target)?.filesystem_type() == PROC_SUPER_MAGIC;
    if is_proc && !PROC_FILES.iter().any(|path| volume.destination == Path::new(path)) {
        return Err(io::Error::other("it is inside /proc"));
    }
    mount::place(volume.tree.as_fd(), target.as_fd())
}

/// Files of `/proc` that others show a container's view of.
const PROC_FILES: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/uptime",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_in_a_source_that_others_share() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let source = std::env::temp_dir().join(format!("podium-fixed-{}", std::process::id()));
        fs::create_dir_all(source.join("there")).unwrap();
        let bind = |part: &str, source_readonly| BindMount {
            source: source.clone(),
            sub_path: Some(part.into()),
            readonly: true,
            source_readonly,
            ..BindMount::default()
        };
        let missing = open_source(&bind("a/b", true)).unwrap_err();
        assert!(missing.to_string().contains("no such file or directory"), "{missing}");
        assert!(!source.join("a").exists());
        assert_eq!(kind(open_source(&bind("there", true)).unwrap().as_fd()).unwrap(), Kind::Directory);
        // A pod's own volume gets what is missing, also where it is mounted read-only.
        open_source(&bind("a/b", false)).unwrap();
        assert!(source.join("a/b").is_dir());
        fs::remove_dir_all(&source).unwrap();
    }

    #[test]
    fn propagation_is_read_from_the_tags_of_a_mount() {
        let table = "20 1 8:1 / / rw - ext4 /dev/sda rw\n\
            21 20 0:5 / /shared rw,relatime shared:7 - tmpfs x rw\n\
            22 20 0:6 / /slave rw master:7 - tmpfs shared:not rw\n\
            23 20 0:7 / /both rw shared:9 master:7 - tmpfs x rw\n";
        assert_eq!(propagation(table, 20), Some(("/", false, false)));
        assert_eq!(propagation(table, 21), Some(("/shared", true, false)));
        assert_eq!(propagation(table, 22), Some(("/slave", false, true)));
        assert_eq!(propagation(table, 23), Some(("/both", true, true)));
        assert_eq!(propagation(table, 2), None);
    }
}
