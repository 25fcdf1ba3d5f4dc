//! Making one container, in a short-lived child of the shim.
//!
//! The child enters a mount namespace of its own and mounts the container's
//! root there, so the host never sees the mount and nothing can leak. It runs
//! libcontainer, tells the shim the pid of the container's process 1 and ends;
//! process 1 then belongs to the shim.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::executor::Launch;
use crate::inroot::Identity;
use crate::profile::Profile;
use crate::wire::ContainerSpec;
use crate::{inroot, spec, sys};

/// The container's ends of its pipes.
pub(crate) struct Ends {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// See [`Launch::sync`].
    pub(crate) sync: OwnedFd,
}

/// The pod's `/dev/shm`.
#[derive(Debug)]
pub(crate) enum SharedMemory {
    /// The node's, for pods in its IPC namespace.
    Node,
    /// One for all containers of the pod, mounted nowhere else.
    Pod(OwnedFd),
}

impl SharedMemory {
    pub(crate) fn of_pod() -> io::Result<Self> {
        sys::detached_tmpfs(&[(c"mode", c"1777"), (c"size", c"65536k")]).map(Self::Pod)
    }
}

/// What the child says before it ends.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Made { pid: i32, identity: Identity },
    Failed(String),
}

/// What the child says must fit into a pipe: it is read after its end.
pub(crate) const REPORT_BYTES_MAX: usize = 60 << 10;
const MESSAGE_BYTES_MAX: usize = 3 << 10;
/// So that they fit as well.
const GROUPS_MAX: usize = 4096;

/// Starts making a container. `report` takes one [`Outcome`].
pub(crate) fn spawn(container: &ContainerSpec, memory: &SharedMemory, ends: Ends, report: OwnedFd) -> io::Result<Pid> {
    sys::fork(move || {
        let mut report = File::from(report);
        let outcome = match build(container, memory, ends, &report) {
            Ok((pid, identity)) => Outcome::Made { pid, identity },
            Err(mut message) => {
                message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
                Outcome::Failed(message)
            }
        };
        let told = serde_json::to_vec(&outcome).map(|outcome| report.write_all(&outcome));
        i32::from(!matches!(told, Ok(Ok(()))))
    })
}

fn build(
    container: &ContainerSpec,
    memory: &SharedMemory,
    ends: Ends,
    report: &File,
) -> Result<(i32, Identity), String> {
    isolate(container, memory, &ends, report).map_err(|error| format!("error preparing container process: {error}"))?;
    let stage = spec::stage(container);
    mount_root(container, &stage)?;
    let shm = shared_memory(memory, &stage);
    let root_path = stage.join("root");
    let root = File::open(&root_path).map_err(|error| format!("error opening container root: {error}"))?;
    let identity = inroot::identify(root.as_fd(), &container.user)?;
    if identity.groups.len() > GROUPS_MAX {
        return Err(format!("more than {GROUPS_MAX} supplementary groups"));
    }
    inroot::make_dirs(root.as_fd(), &container.cwd)
        .map_err(|error| format!("error creating working directory {:?}: {error}", container.cwd))?;
    let available = sys::permitted_capabilities().map_err(|error| format!("error reading capabilities: {error}"))?;
    let config = spec::oci(container, &identity, &root_path, shm.as_deref(), available);
    fs::write(stage.join("config.json"), config.to_string()).map_err(|error| format!("error writing spec: {error}"))?;
    let profile = Profile::of(container);
    let launch = profile.launch(&container.args, &identity, available, ends.sync.as_raw_fd())?;
    drop(root);
    let pid = run_libcontainer(container, &stage, launch, ends)?;
    release(&stage, &container.id).map_err(|error| format!("error releasing container process: {error}"))?;
    Ok((pid, identity))
}

/// Leaves behind what belongs to the shim: descriptors, signal settings, mounts.
fn isolate(container: &ContainerSpec, memory: &SharedMemory, ends: &Ends, report: &File) -> io::Result<()> {
    let [stdout, stderr, sync] = [&ends.stdout, &ends.stderr, &ends.sync].map(AsRawFd::as_raw_fd);
    let shm = if let SharedMemory::Pod(shm) = memory { shm.as_raw_fd() } else { sync };
    sys::close_all_but(&[stdout, stderr, sync, report.as_raw_fd(), shm])?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    sys::default_signals();
    sys::prctl(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.unsigned_abs()))?;
    sys::set_oom_score(container.oom_score_adj)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_SLAVE | MsFlags::MS_REC, None::<&str>)?;
    Ok(())
}

/// A small memory file system for libcontainer's own files, and the root below it.
fn mount_root(container: &ContainerSpec, stage: &Path) -> Result<(), String> {
    let prepare = || -> io::Result<()> {
        if !stage.is_dir() {
            fs::create_dir(stage)?;
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("tmpfs"), stage, Some("tmpfs"), flags, Some("mode=700,size=4m"))?;
        fs::create_dir(stage.join("root"))?;
        fs::create_dir(stage.join("state"))
    };
    prepare().map_err(|error| format!("error preparing mounts: {error}"))?;
    let overlay = || {
        nix::unistd::chdir(&container.overlay.base)?;
        let options = Some(container.overlay.options.as_str());
        mount(Some("overlay"), &stage.join("root"), Some("overlay"), MsFlags::empty(), options)?;
        nix::unistd::chdir("/")
    };
    overlay().map_err(|error| format!("error mounting container root: {error}"))
}

/// Where to find the pod's `/dev/shm`; `None` means each container has its own,
/// which is what kernels leave us that cannot show one mount twice.
fn shared_memory(memory: &SharedMemory, stage: &Path) -> Option<PathBuf> {
    match memory {
        SharedMemory::Node => Some(PathBuf::from("/dev/shm")),
        SharedMemory::Pod(shm) => {
            let target = stage.join("shm");
            fs::create_dir(&target).and_then(|()| sys::mount_again(shm.as_fd(), &target)).ok().map(|()| target)
        }
    }
}

fn run_libcontainer(container: &ContainerSpec, stage: &Path, launch: Launch, ends: Ends) -> Result<i32, String> {
    let made = ContainerBuilder::new(container.id.clone(), SyscallType::default())
        .with_executor(launch)
        .with_stdout(ends.stdout)
        .with_stderr(ends.stderr)
        .with_root_path(stage.join("state"))
        .and_then(|builder| builder.as_init(stage).with_systemd(false).with_detach(true).build())
        .map_err(|error| chain(&error))?;
    made.pid().map(|pid| pid.as_raw()).ok_or_else(|| "container process has no pid".into())
}

/// An error with all its causes: libcontainer's outermost messages say little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Lets process 1 go on to our executor, which waits for the shim.
fn release(stage: &Path, id: &str) -> io::Result<()> {
    // The path of a socket is limited to 108 bytes, that of a container is not.
    nix::unistd::chdir(&stage.join("state").join(id))?;
    UnixStream::connect("notify.sock")?.write_all(b"start container")
}
