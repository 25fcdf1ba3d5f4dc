//! Mounts by descriptor: no path is looked up twice, so none can be changed
//! between a look and a mount.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mkdirat, mknodat, umask};

use super::owned;

/// `nosuid`, `nodev`, `noexec`.
pub(crate) const SAFE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;

/// A new file system that is mounted nowhere and lives as long as its
/// descriptor; `attributes` are `MOUNT_ATTR_…`.
pub(crate) fn detached(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> io::Result<OwnedFd> {
    // SAFETY: the string is valid for the call; the result is checked and owned once.
    let context = unsafe { owned(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC))? };
    let configure = |command: u32, key: *const libc::c_char, value: *const libc::c_char| {
        // SAFETY: key and value are null or valid strings, as the command wants them.
        let result = unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key, value, 0) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    for (key, value) in options {
        let command = if value.is_empty() { FSCONFIG_SET_FLAG } else { FSCONFIG_SET_STRING };
        configure(command, key.as_ptr(), if value.is_empty() { std::ptr::null() } else { value.as_ptr() })?;
    }
    configure(FSCONFIG_CMD_CREATE, std::ptr::null(), std::ptr::null())?;
    // SAFETY: takes numbers only; the result is checked and owned once.
    unsafe { owned(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes)) }
}

/// A file system of our own, mounted nowhere yet, with things that stand for
/// nothing: [`BLANK_FILE`] and [`BLANK_DIRECTORY`]. It is read-only, so that
/// whoever is shown them changes neither mode nor owner.
pub(crate) fn blank() -> io::Result<OwnedFd> {
    let set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    let blank = detached(c"tmpfs", &[(c"mode", c"755"), (c"size", c"4k")], set)?;
    let usual = umask(Mode::empty());
    let directory = Mode::from_bits_truncate(0o755);
    let made = mkdirat(&blank, BLANK_DIRECTORY, directory)
        .and_then(|()| mkdirat(&blank, "dev", directory))
        .and_then(|()| mknodat(&blank, BLANK_FILE, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 3)));
    umask(usual);
    made?;
    change(blank.as_fd(), &Change { set: libc::MOUNT_ATTR_RDONLY, ..Change::default() })?;
    Ok(blank)
}

/// The null device, at the place that its readers expect.
pub(crate) const BLANK_FILE: &str = "dev/null";
pub(crate) const BLANK_DIRECTORY: &str = "nothing";

/// One more mount of what a descriptor opens, mounted nowhere yet. Kernels
/// before 6.15 refuse where the descriptor's own mount is mounted nowhere.
pub(crate) fn duplicate(source: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_tree(source, 0)
}

/// A mount namespace with nothing in it but `lodger`, which must be mounted
/// nowhere. From there every kernel duplicates it: [`duplicate_housed`].
pub(crate) fn house(lodger: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    and_back(|| {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let house = File::open(OWN_NAMESPACE)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>)?;
        place(lodger, File::open("/proc")?.as_fd())?;
        nix::unistd::fchdir(lodger)?;
        // The old root goes where the new one is, and from there away with all that is mounted in it.
        nix::unistd::pivot_root(".", ".")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        Ok(house.into())
    })
}

/// One more mount of what lives in `house`, mounted nowhere yet.
pub(crate) fn duplicate_housed(house: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    and_back(|| {
        setns(house, CloneFlags::CLONE_NEWNS)?;
        duplicate(File::open("/")?.as_fd())
    })
}

/// One more mount of what lies at `path` in another mount namespace, without
/// what is mounted below it.
pub(crate) fn duplicate_from(namespace: BorrowedFd<'_>, path: &CStr) -> io::Result<OwnedFd> {
    and_back(|| {
        setns(namespace, CloneFlags::CLONE_NEWNS)?;
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        duplicate(open(path, flags, Mode::empty())?.as_fd())
    })
}

/// Does something that ends in another mount namespace, and returns to our own.
fn and_back<T>(visit: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = File::open(OWN_NAMESPACE)?;
    let result = visit();
    if let Err(error) = setns(&own, CloneFlags::CLONE_NEWNS) {
        // No path would mean any more what it did.
        eprintln!("shim: own mount namespace is lost: {error}");
        std::process::abort();
    }
    result
}

const OWN_NAMESPACE: &str = "/proc/self/ns/mnt";

/// The same with everything that is mounted below it.
pub(crate) fn duplicate_tree(source: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_tree(source, AT_RECURSIVE)
}

fn open_tree(source: BorrowedFd<'_>, more: u32) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | EMPTY_PATH | more;
    // SAFETY: an empty path means the descriptor itself; the result is checked and owned once.
    unsafe { owned(libc::syscall(libc::SYS_open_tree, source.as_raw_fd(), c"".as_ptr(), flags)) }
}

/// What becomes different about a mount.
#[derive(Default)]
pub(crate) struct Change<'a> {
    /// `MOUNT_ATTR_…`
    pub(crate) set: u64,
    /// `MS_PRIVATE`, `MS_SLAVE`; 0: as it is.
    pub(crate) propagation: u64,
    /// What is mounted below as well.
    pub(crate) recursive: bool,
    /// Owners are shown as users of this namespace. Only before it is mounted.
    pub(crate) users: Option<BorrowedFd<'a>>,
}

pub(crate) fn change(mount: BorrowedFd<'_>, change: &Change<'_>) -> io::Result<()> {
    let users = change.users.map_or(0, |users| u64::from(users.as_raw_fd().unsigned_abs()));
    let attributes = libc::mount_attr {
        attr_set: change.set | if change.users.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: change.propagation,
        userns_fd: users,
    };
    let flags = EMPTY_PATH | if change.recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: an empty path means the descriptor itself; `attributes` is valid
    // for the call and its size is given.
    let result = unsafe {
        let size = size_of::<libc::mount_attr>();
        libc::syscall(libc::SYS_mount_setattr, mount.as_raw_fd(), c"".as_ptr(), flags, &raw const attributes, size)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Shows owners of a mount that is mounted nowhere yet as users of a namespace.
pub(crate) fn show_to(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    change(mount, &Change { users: Some(users), ..Change::default() }).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => io::Error::other("its file system cannot be shown to users of a pod's own"),
        _ => error,
    })
}

/// Mounts what is mounted nowhere yet on what `target` opens.
pub(crate) fn place(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: empty paths mean the descriptors themselves.
    let result = unsafe {
        let (from, to) = (mount.as_raw_fd(), target.as_raw_fd());
        libc::syscall(libc::SYS_move_mount, from, c"".as_ptr(), to, c"".as_ptr(), flags)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number by which `/proc/self/mountinfo` knows the mount a descriptor lies on.
pub(crate) fn id(file: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: an all-zero statx is a valid one.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty path means the descriptor itself; `status` is valid and writable.
    let result = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_MNT_ID, &raw mut status)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(status.stx_mnt_id) }
}

const EMPTY_PATH: u32 = libc::AT_EMPTY_PATH.unsigned_abs();
// From linux/mount.h; not every C library has them.
const AT_RECURSIVE: u32 = 0x8000;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
