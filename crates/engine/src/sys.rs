//! The system calls that no safe wrapper offers. Nothing here decides.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
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

/// Tells whatever runs on a terminal how large it is now.
pub(crate) fn set_terminal_size(master: &OwnedFd, columns: u16, rows: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads one winsize, which is valid for the call.
    let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
