//! The system calls that no safe wrapper offers. Nothing here decides.

pub(crate) mod mount;

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::unistd::Pid;

/// Wall time in nanoseconds since 1970.
pub(crate) fn wall_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Time since some fixed moment, never set back.
pub(crate) fn mono() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the duration of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Forks this process. The child runs `child` and ends with its result.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: the shim has one thread, so the child may allocate and lock.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => end_with(child),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Forks this process as [`fork`] does; the child's parent is our own.
pub(crate) fn fork_sibling(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: a fork in all but the parent, without a stack of its own; this
    // process has one thread, so the child may allocate and lock.
    match unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        0 => end_with(child),
        pid => Ok(Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?)),
    }
}

fn end_with(child: impl FnOnce() -> i32) -> ! {
    let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
    // SAFETY: ends the process without running the parent's exit handlers.
    unsafe { libc::_exit(code) }
}

/// Forks this process as [`fork`] does; the child is born in the cgroup of
/// version 2 whose directory is open here, if one is given.
pub(crate) fn fork_in(cgroup: Option<BorrowedFd<'_>>, child: impl FnOnce() -> i32) -> io::Result<Pid> {
    let Some(cgroup) = cgroup else { return fork(child) };
    // SAFETY: all-zero arguments are valid ones.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    arguments.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    // SAFETY: a fork in all but the cgroup, without a stack of its own; the
    // arguments are valid and their size is given. This process has one
    // thread, so the child may allocate and lock.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) } {
        -1 => Err(io::Error::last_os_error()),
        0 => end_with(child),
        pid => Ok(Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?)),
    }
}

/// From linux/sched.h; does not fit the C library's type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A descriptor for a child that has not been reaped.
pub(crate) fn pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: takes two numbers; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How early the kernel chooses this process when memory is short. Lowering it
/// takes CAP_SYS_RESOURCE, which a machine may withhold: then the container is
/// killed earlier than wished, which is no reason not to run it.
pub(crate) fn set_oom_score(value: i32) -> io::Result<()> {
    match std::fs::write("/proc/self/oom_score_adj", value.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

/// The end of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) pid: Pid,
    /// Its exit code, or 128 + n when signal n ended it (TC-069).
    pub(crate) code: i32,
    pub(crate) by_signal: bool,
}

/// One ended child; `None` when no more have ended.
pub(crate) fn reap_one() -> Option<End> {
    let mut status = 0;
    // SAFETY: `status` is a valid, writable int for the duration of the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    let by_signal = libc::WIFSIGNALED(status);
    let code = if by_signal { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    (pid > 0).then(|| End { pid: Pid::from_raw(pid), code, by_signal })
}

/// Whether this is a child of ours that has not been reaped.
pub(crate) fn is_child(pid: Pid) -> bool {
    look_at(pid).is_some()
}

/// Whether this is a child of ours that has not ended.
pub(crate) fn is_running(pid: Pid) -> bool {
    look_at(pid) == Some(false)
}

/// Whether a child of ours has ended; it is not reaped. `None`: it is none.
fn look_at(pid: Pid) -> Option<bool> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: an all-zero siginfo is a valid one, and writable for the call;
    // its pid is set, to 0 if nothing has ended.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let result = libc::waitid(libc::P_PID, pid.as_raw().unsigned_abs(), &raw mut info, flags);
        (result == 0).then(|| info.si_pid() != 0)
    }
}

/// Closes every descriptor from 3 up except those to keep.
pub(crate) fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut keep: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if first < fd {
            // SAFETY: closes descriptors this process will not use again; the caller keeps the rest.
            let result = unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
            if result == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        first = fd.saturating_add(1);
    }
    Ok(())
}

/// Moves descriptor 0 somewhere above 2 and puts a null device in its place and
/// in that of descriptor 1. Not the node's: containers get it as their input,
/// and could change its mode and owner for everybody.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    // SAFETY: duplicates descriptor 0; the new one is owned by nobody else.
    let listener = unsafe {
        let fd = libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3);
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let null = open_in_root(mount::blank()?.as_fd(), Path::new(mount::BLANK_FILE), libc::O_RDWR)?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    Ok(listener)
}

/// One of the `prctl` options that take a number.
pub(crate) fn prctl(option: i32, value: u64) -> io::Result<()> {
    // SAFETY: only called with options whose arguments are plain numbers.
    let result = unsafe { libc::prctl(option, value, 0, 0, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the other side of a new terminal be opened.
pub(crate) fn unlock_terminal(master: BorrowedFd<'_>) -> io::Result<()> {
    let unlocked: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int, which is valid for the call.
    let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK as _, &raw const unlocked) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The other side of a terminal, without a look at any path.
pub(crate) fn terminal_peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes a number; the result is checked and owned once.
    unsafe { owned(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER as _, flags).into()) }
}

/// Makes a terminal the one of this session, which must have none.
pub(crate) fn set_controlling_terminal(peer: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    let result = unsafe { libc::ioctl(peer.as_raw_fd(), libc::TIOCSCTTY as _, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits for the end of any child and takes it.
pub(crate) fn reap_for_ever() -> ! {
    loop {
        // SAFETY: no status is asked for; nothing of ours is touched.
        if unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } == -1 {
            // Nobody there: until a signal comes. CHLD is blocked, and taken here.
            let mut signals = nix::sys::signal::SigSet::empty();
            signals.add(nix::sys::signal::Signal::SIGCHLD);
            let _ = signals.wait();
        }
    }
}

/// Gives memory that is not used any more back to the machine.
pub(crate) fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: only touches memory that the allocator knows to be free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The name process lists show.
pub(crate) fn set_name(name: &CStr) -> io::Result<()> {
    // SAFETY: PR_SET_NAME reads at most 16 bytes of a terminated string.
    let result = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Brings the loopback device of the current network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: a plain socket call; the result is checked and owned once.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: an all-zero ifreq is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = i8::try_from(b'l').unwrap_or(0) as libc::c_char;
    request.ifr_name[1] = i8::try_from(b'o').unwrap_or(0) as libc::c_char;
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    // SAFETY: `request` is a valid ifreq naming an interface, as SIOCSIFFLAGS expects.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens `path` as if `root` were the root directory, links and `..` included.
pub(crate) fn open_in_root(root: BorrowedFd<'_>, path: &Path, flags: i32) -> io::Result<OwnedFd> {
    open_at(root, path, flags, libc::RESOLVE_IN_ROOT)
}

/// The same, but what is opened may be a link itself, and no other is followed.
pub(crate) fn open_link_in_root(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    open_at(root, path, libc::O_PATH | libc::O_NOFOLLOW, libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_SYMLINKS)
}

/// Opens `path` below `dir`; a link that leads out of it is an error (`EXDEV`).
pub(crate) fn open_beneath(dir: BorrowedFd<'_>, path: &Path, flags: i32) -> io::Result<OwnedFd> {
    open_at(dir, path, flags, libc::RESOLVE_BENEATH)
}

fn open_at(root: BorrowedFd<'_>, path: &Path, flags: i32, resolve: u64) -> io::Result<OwnedFd> {
    let path = c_string(path.as_os_str())?;
    // SAFETY: an all-zero open_how is a valid one.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).unsigned_abs());
    how.resolve = resolve | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: `path` and `how` are valid for the call and `how`'s size is given.
    // The result is checked and owned once.
    unsafe {
        let size = size_of::<libc::open_how>();
        owned(libc::syscall(libc::SYS_openat2, root.as_raw_fd(), path.as_ptr(), &raw const how, size))
    }
}

/// # Safety
/// `fd` is the result of a call that gives a new descriptor or -1.
unsafe fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: by this function's contract nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Installs a seccomp filter without touching `no_new_privs`.
pub(crate) fn install_seccomp(filter: &[seccompiler::sock_filter], flags: u64) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `program` describes `filter`, whose elements have the kernel's
    // sock_filter layout; the kernel only reads it.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Sets effective and permitted capabilities; the inheritable set becomes
/// empty, always (B5: inheritable capabilities have been a CVE in every runtime).
pub(crate) fn set_capabilities(mask: u64) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = CapHeader { version: VERSION_3, pid: 0 };
    let half = |bits: u64| u32::try_from(bits & 0xFFFF_FFFF).unwrap_or(0);
    let data = [half(mask), half(mask >> 32)].map(|bits| CapData { effective: bits, permitted: bits, inheritable: 0 });
    // SAFETY: header and both data elements are valid and laid out as version 3 wants them.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the kernel knows this capability number.
pub(crate) fn has_capability_number(number: u64) -> bool {
    prctl_answer(libc::PR_CAPBSET_READ, number) >= 0
}

fn prctl_answer(option: i32, value: u64) -> i32 {
    // SAFETY: PR_CAPBSET_READ takes a number and only reads.
    unsafe { libc::prctl(option, value, 0, 0, 0) }
}

/// Gives every signal its default meaning again: ignored ones would stay
/// ignored in the program, those the C library hides from us included.
pub(crate) fn default_signals() {
    // Handler, flags, restorer and mask of the kernel's own structure.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        // SAFETY: installs the default disposition; `default` is at least as
        // large as the kernel's structure and the set is 8 bytes long. KILL
        // and STOP are refused, which is harmless.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8) };
    }
}

pub(crate) fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "contains a NUL byte"))
}

/// Empties the ambient capability set.
pub(crate) fn prctl_ambient_clear() -> io::Result<()> {
    // SAFETY: PR_CAP_AMBIENT_CLEAR_ALL takes no further arguments.
    let result = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// This process's permitted capabilities as a bit mask.
pub(crate) fn permitted_capabilities() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no CapPrm in /proc/self/status"))
}
