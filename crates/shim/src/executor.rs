//! The last steps inside the finished container: stand where the program
//! shall, become its user, wait for the word, and execute.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Gid, Pid, Uid};

use crate::capabilities;
use crate::inroot::Identity;
use crate::seccomp::Filters;
use crate::{sys, terminal};

/// Exit code of a container whose program could not be executed (LC-063).
pub(crate) const START_ERROR: i32 = 128;

/// As the kubelet says it of images.
pub(crate) const RUNS_AS_ROOT: &str = "container has runAsNonRoot and image will run as root";

/// What to execute, and as whom.
pub(crate) struct Launch {
    pub(crate) args: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) search_path: String,
    pub(crate) not_root: bool,
    pub(crate) no_new_privileges: bool,
    /// Final capabilities as a bit mask.
    pub(crate) capabilities: u64,
    pub(crate) filters: Filters,
    /// One end of a socket pair. A byte from the shim means start; it closes
    /// with the execution, so that its end without a message means success.
    pub(crate) sync: RawFd,
}

impl Launch {
    /// Adds to the environment what it does not say already.
    pub(crate) fn add_env(&mut self, (name, value): (&CStr, &CStr)) {
        let said = [name.to_bytes(), b"="].concat();
        if !self.env.iter().any(|entry| entry.to_bytes().starts_with(&said)) {
            let entry = [&said, value.to_bytes()].concat();
            // Parts without a NUL make a whole without one.
            self.env.extend(CString::new(entry));
        }
    }

    /// Tells the shim why the program does not run.
    pub(crate) fn complain(&self, problem: &str) {
        // SAFETY: `sync` was open when this process was forked and nobody here closes it.
        let sync = unsafe { BorrowedFd::borrow_raw(self.sync) };
        let _ = nix::unistd::write(sync, problem.as_bytes());
    }

    /// Blocks until the shim says so. If the shim dies first, nothing starts.
    pub(crate) fn wait_for_start(&self) {
        // SAFETY: as in `complain`.
        let sync = unsafe { BorrowedFd::borrow_raw(self.sync) };
        let mut byte = [0];
        loop {
            match nix::unistd::read(sync, &mut byte) {
                Ok(1) => return,
                Err(Errno::EINTR) => {}
                Ok(_) | Err(_) => std::process::exit(START_ERROR),
            }
        }
    }

    /// In the working directory.
    fn stand(&self) -> Result<(), String> {
        let cwd = &self.cwd;
        change_dir(cwd).map_err(|error| format!("chdir to cwd ({cwd:?}) failed: {error}"))
    }

    /// The container's working directory and user. Some capabilities stay until
    /// the filter is installed. A directory that cannot be entered is said by
    /// the inner result: it keeps the program from starting, not from being made.
    pub(crate) fn become_user(&self) -> io::Result<Result<(), String>> {
        // As root first: a user may stand where it may not go (and the reverse on some file systems).
        let is_there = self.stand();
        let Identity { uid, gid, groups, .. } = &self.identity;
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        sys::prctl(libc::PR_SET_KEEPCAPS, 1)?;
        nix::unistd::setgroups(&groups)?;
        nix::unistd::setresgid(gid, gid, gid)?;
        nix::unistd::setresuid(uid, uid, uid)?;
        self.check_user()?;
        let more = capabilities::bit("CAP_SYS_ADMIN") | capabilities::bit("CAP_SETPCAP");
        sys::set_capabilities(self.capabilities | more)?;
        if self.no_new_privileges {
            sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
        }
        // A change of user may have undone it.
        sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
        Ok(is_there.or_else(|_| self.stand()))
    }

    /// That we are who we were to become, by the kernel's word (LC-316).
    fn check_user(&self) -> io::Result<()> {
        let (users, groups) = (nix::unistd::getresuid()?, nix::unistd::getresgid()?);
        let is = |id: u32, three: [u32; 3]| three == [id; 3];
        let users = [users.real.as_raw(), users.effective.as_raw(), users.saved.as_raw()];
        let groups = [groups.real.as_raw(), groups.effective.as_raw(), groups.saved.as_raw()];
        if !is(self.identity.uid, users) || !is(self.identity.gid, groups) {
            return Err(io::Error::other("the kernel made us somebody else"));
        }
        if self.not_root && users.contains(&0) {
            return Err(io::Error::other(RUNS_AS_ROOT));
        }
        Ok(())
    }

    /// Filter and capabilities; any failure means the program does not run.
    pub(crate) fn confine(&self) -> Result<(), String> {
        if self.no_new_privileges {
            // Needs no privilege, so the filter can come last and be the tightest.
            self.set_capabilities()?;
            self.install_filters()
        } else {
            // Needs CAP_SYS_ADMIN, which goes right after.
            self.install_filters()?;
            self.set_capabilities()
        }
    }

    fn install_filters(&self) -> Result<(), String> {
        let Filters { programs, flags } = &self.filters;
        let installed = programs.iter().try_for_each(|program| sys::install_seccomp(program, *flags));
        installed.map_err(|error| format!("error installing seccomp filter: {error}"))
    }

    fn set_capabilities(&self) -> Result<(), String> {
        let apply = || -> io::Result<()> {
            sys::prctl_ambient_clear()?;
            for number in (0..64).filter(|number| self.capabilities & (1 << number) == 0) {
                if sys::has_capability_number(number) {
                    sys::prctl(libc::PR_CAPBSET_DROP, number)?;
                }
            }
            sys::set_capabilities(self.capabilities)
        };
        apply().map_err(|error| format!("error setting capabilities: {error}"))
    }

    /// One more process, in the PID namespace that was chosen for our children,
    /// and a child of our own parent. Others there see it at once and may have
    /// the power to look into it: so we have nothing by now but what the program
    /// will have, and `sync`. `live` is told whether it is ready.
    pub(crate) fn bear(&self, has_terminal: bool, live: impl FnOnce(io::Result<()>) -> i32) -> io::Result<Pid> {
        let born = sys::fork_sibling(|| live(terminal::begin_session(has_terminal)));
        born.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS) => {
                io::Error::new(error.kind(), format!("{error} (its seccomp profile must allow clone here)"))
            }
            _ => error,
        })
    }

    /// Executes the program unless there is a problem already; returns when it could not.
    pub(crate) fn execute_if(&self, ready: Result<(), String>) -> i32 {
        let problem = match ready {
            Ok(()) => self.execute(),
            Err(problem) => problem,
        };
        self.complain(&problem);
        START_ERROR
    }

    /// Returns only with a message that says why it could not.
    fn execute(&self) -> String {
        let name = self.args[0].to_string_lossy().into_owned();
        let failed = |errno: Errno| format!("exec: {name:?}: {}: unknown", describe(errno));
        let run = |path: &CString| nix::unistd::execve(path, &self.args, &self.env).unwrap_err();
        if name.contains('/') {
            return match run(&self.args[0]) {
                Errno::ENOENT if !Path::new(&name).exists() => {
                    format!("exec: {name:?}: stat {name}: no such file or directory: unknown")
                }
                errno => failed(errno),
            };
        }
        let mut denied = false;
        for dir in self.search_path.split(':') {
            let dir = if dir.is_empty() { "." } else { dir };
            let Ok(path) = CString::new(format!("{dir}/{name}")) else { continue };
            match run(&path) {
                Errno::ENOENT | Errno::ENOTDIR => {}
                Errno::EACCES => denied = true,
                errno => return failed(errno),
            }
        }
        if denied {
            failed(Errno::EACCES)
        } else {
            format!("exec: {name:?}: executable file not found in $PATH: unknown")
        }
    }
}

/// A directory outside the container's root has no path (CVE-2024-21626).
fn change_dir(path: &Path) -> io::Result<()> {
    nix::unistd::chdir(path)?;
    if nix::unistd::getcwd()?.is_absolute() {
        Ok(())
    } else {
        Err(io::Error::other("it is outside of the container's root"))
    }
}

/// The C library's words, in lower case as Go spells them.
fn describe(errno: Errno) -> String {
    errno.desc().to_lowercase()
}
