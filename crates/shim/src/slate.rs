//! What a child tells the shim without a descriptor: a piece of memory that
//! both have, and nobody whom the child gives birth to. Those are visible to
//! containers, which could take a pipe from them and speak in our name.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Written once, by the child, and read after its end.
#[derive(Debug)]
pub(crate) struct Slate {
    memory: NonNull<u8>,
}

/// The length stands before what is said.
const LENGTH_BYTES: usize = size_of::<AtomicUsize>();
const BYTES: usize = 64 << 10;
/// What fits on it.
pub(crate) const SAID_BYTES_MAX: usize = BYTES - LENGTH_BYTES;

impl Slate {
    pub(crate) fn new() -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: asks for memory anywhere; the result is checked.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("no memory"))?;
        let slate = Self { memory };
        slate.keep_to_ourselves()?;
        Ok(slate)
    }

    /// Whoever is forked meanwhile has it too, and calls `keep_to_ourselves` first.
    pub(crate) fn shared<T>(&self, fork: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.advise(libc::MADV_DOFORK)?;
        let forked = fork();
        self.keep_to_ourselves()?;
        forked
    }

    /// Children of this process do not have it.
    pub(crate) fn keep_to_ourselves(&self) -> io::Result<()> {
        self.advise(libc::MADV_DONTFORK)
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the whole of our own mapping; what is in it does not change.
        let result = unsafe { libc::madvise(self.memory.as_ptr().cast::<c_void>(), BYTES, advice) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Needs no system call, so that no filter stands in the way.
    pub(crate) fn write(&self, said: &[u8]) {
        let said = &said[..said.len().min(SAID_BYTES_MAX)];
        // SAFETY: it fits, as checked above; `said` is not on the slate, and
        // nobody reads there until the length is set.
        unsafe { std::ptr::copy_nonoverlapping(said.as_ptr(), self.memory.as_ptr().add(LENGTH_BYTES), said.len()) };
        self.length().store(said.len(), Ordering::Release);
    }

    /// Nothing if nothing was written, or not all of it.
    pub(crate) fn read(&self) -> Vec<u8> {
        let length = self.length().load(Ordering::Acquire).min(SAID_BYTES_MAX);
        // SAFETY: inside of our mapping, and written before the length was.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(LENGTH_BYTES), length) }.to_vec()
    }

    fn length(&self) -> &AtomicUsize {
        // SAFETY: mappings begin at pages, so it is aligned; it lives as long
        // as we do, and is only used as an atomic.
        unsafe { AtomicUsize::from_ptr(self.memory.as_ptr().cast()) }
    }
}

impl Drop for Slate {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;

    /// In a child that a test forked, which must not allocate.
    fn has(slate: &Slate) -> bool {
        slate.advise(libc::MADV_NORMAL).is_ok()
    }

    fn end_of(child: nix::unistd::Pid) -> i32 {
        match nix::sys::wait::waitpid(child, None).unwrap() {
            nix::sys::wait::WaitStatus::Exited(_, code) => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_child_it_is_for_has_it() {
        let (slate, other) = (Slate::new().unwrap(), Slate::new().unwrap());
        let child = slate.shared(|| {
            sys::fork(|| {
                if has(&other) || !has(&slate) || slate.keep_to_ourselves().is_err() {
                    return 1;
                }
                let Ok(born) = sys::fork(|| i32::from(has(&slate))) else { return 2 };
                if !matches!(nix::sys::wait::waitpid(born, None), Ok(nix::sys::wait::WaitStatus::Exited(_, 0))) {
                    return 3;
                }
                slate.write(b"said");
                0
            })
        });
        assert_eq!(end_of(child.unwrap()), 0);
        assert_eq!((slate.read(), other.read()), (b"said".to_vec(), Vec::new()));
        let later = sys::fork(|| i32::from(has(&slate))).unwrap();
        assert_eq!(end_of(later), 0, "who is forked later does not have it");
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let slate = Slate::new().unwrap();
        slate.write(&vec![7; BYTES * 2]);
        assert_eq!(slate.read(), vec![7; SAID_BYTES_MAX]);
    }
}
