//! The system calls that no safe wrapper offers. Nothing here decides.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The program shims are made from, seen through a read-only mount of its own.
///
/// A container can make the kernel execute `/proc/self/exe` while that is
/// still our binary, and open it for writing later (CVE-2019-5736). Through
/// this mount nobody can write it, and nothing has to be copied.
#[derive(Debug)]
pub(crate) struct SealedProgram {
    fd: OwnedFd,
}

impl SealedProgram {
    pub(crate) fn open(program: &Path) -> io::Result<Self> {
        let path = CString::new(program.as_os_str().as_bytes())?;
        let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
        // SAFETY: `path` is a valid string for the duration of the call.
        let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel has just given us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let attributes =
            libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
        // SAFETY: an empty path with AT_EMPTY_PATH means the descriptor itself;
        // `attributes` is valid for the call and its size is given.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                fd.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                &raw const attributes,
                size_of::<libc::mount_attr>(),
            )
        };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(Self { fd }) }
    }

    /// What to execute; valid in this process and its children until they execute it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

/// One step of a program for the kernel's virtual machine, as it wants it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the lower half, source in the upper.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) value: i32,
}

/// The beginning of `union bpf_attr`, for loading a program.
#[repr(C)]
struct Load {
    kind: u32,
    length: u32,
    steps: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

/// The same, for attaching one.
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// From now on the kernel asks `program` which devices the processes of a
/// cgroup may use, besides the programs of those above.
pub(crate) fn filter_devices(cgroup: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let load = Load {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        length: u32::try_from(program.len()).map_err(io::Error::other)?,
        steps: program.as_ptr().addr() as u64,
        license: c"".as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
    };
    // SAFETY: `load` is valid for the call, its size is given, and what it
    // points to outlives it; the kernel only reads.
    let loaded = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    if loaded == -1 {
        return Err(io::Error::last_os_error());
    }
    let loaded = RawFd::try_from(loaded).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given us this descriptor.
    let loaded = unsafe { OwnedFd::from_raw_fd(loaded) };
    let number = |fd: RawFd| u32::try_from(fd).map_err(io::Error::other);
    let attach = Attach {
        target: number(cgroup.as_raw_fd())?,
        program: number(loaded.as_raw_fd())?,
        kind: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: `attach` is valid for the call and its size is given.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_ATTACH, &raw const attach, size_of::<Attach>()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// From linux/bpf.h.
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// Tells whatever runs on a terminal how large it is now.
pub(crate) fn set_terminal_size(master: &OwnedFd, columns: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one winsize, which is valid for the call.
    let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
