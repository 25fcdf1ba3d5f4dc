//! Making one container, in a short-lived child of the shim.
//!
//! The child enters a mount namespace of its own and mounts the container's
//! root there, so the host never sees the mount and nothing can leak. It runs
//! libcontainer, tells the shim the pid of the container's process 1 and ends;
//! process 1 then belongs to the shim.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{Gid, Pid, Uid};
use serde::{Deserialize, Serialize};

use crate::executor::Launch;
use crate::inroot::Identity;
use crate::profile::Profile;
use crate::wire::{BindMount, ContainerSpec, PidNamespace};
use crate::{inroot, parcel, spec, sys};

/// A program's ends of what it is connected to.
pub(crate) struct Ends {
    /// Where there is none, it has `/dev/null`.
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    /// A terminal instead of the three: its master side goes here.
    pub(crate) console: Option<OwnedFd>,
    /// See [`Launch::sync`].
    pub(crate) sync: OwnedFd,
}

impl Ends {
    pub(crate) fn numbers(&self) -> Vec<RawFd> {
        let optional = [&self.stdin, &self.stdout, &self.stderr, &self.console].into_iter().flatten();
        optional.chain([&self.sync]).map(AsRawFd::as_raw_fd).collect()
    }

    /// So that the user can open its own `/dev/stdout`.
    pub(crate) fn give_to(&self, identity: &Identity) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        for end in [&self.stdin, &self.stdout, &self.stderr].into_iter().flatten() {
            nix::unistd::fchown(end, Some(uid), Some(gid))?;
        }
        Ok(())
    }
}

/// What the containers of a pod share beside what the shim lives in itself.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) memory: SharedMemory,
    /// The PID namespace, if they share one.
    pub(crate) pid: Option<OwnedFd>,
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
pub(crate) fn spawn(container: &ContainerSpec, shared: &Shared, ends: Ends, report: OwnedFd) -> io::Result<Pid> {
    sys::fork(move || {
        let mut report = File::from(report);
        let outcome = match build(container, shared, ends, &report) {
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

fn build(container: &ContainerSpec, shared: &Shared, ends: Ends, report: &File) -> Result<(i32, Identity), String> {
    isolate(container, shared, &ends, report).map_err(|error| format!("error preparing container process: {error}"))?;
    let stage = spec::stage(container);
    mount_root(container, &stage)?;
    let binds = place_binds(container, &stage)?;
    let shm = shared_memory(&shared.memory, &stage);
    let pid = pid_namespace(container, shared)?;
    let root_path = stage.join("root");
    let root = File::open(&root_path).map_err(|error| format!("error opening container root: {error}"))?;
    let identity = inroot::identify(root.as_fd(), &container.user)?;
    if identity.groups.len() > GROUPS_MAX {
        return Err(format!("more than {GROUPS_MAX} supplementary groups"));
    }
    inroot::make_dirs(root.as_fd(), &container.cwd)
        .map_err(|error| format!("error creating working directory {:?}: {error}", container.cwd))?;
    let available = sys::permitted_capabilities().map_err(|error| format!("error reading capabilities: {error}"))?;
    ends.give_to(&identity).map_err(|error| format!("error giving the user its streams: {error}"))?;
    let around = spec::Around { root: &root_path, shm: shm.as_deref(), pid: pid.as_deref(), binds: &binds, available };
    let config = spec::oci(container, &identity, &around);
    fs::write(stage.join("config.json"), config.to_string()).map_err(|error| format!("error writing spec: {error}"))?;
    let profile = Profile::of(container);
    let launch = profile.launch(&container.args, &identity, available, ends.sync.as_raw_fd())?;
    drop(root);
    let pid = run_libcontainer(container, &stage, launch, ends)?;
    release(&stage, &container.id).map_err(|error| format!("error releasing container process: {error}"))?;
    Ok((pid, identity))
}

/// Leaves behind what belongs to the shim: descriptors, signal settings, mounts.
fn isolate(container: &ContainerSpec, shared: &Shared, ends: &Ends, report: &File) -> io::Result<()> {
    let mut keep = ends.numbers();
    keep.push(report.as_raw_fd());
    keep.extend(shared.pid.as_ref().map(AsRawFd::as_raw_fd));
    if let SharedMemory::Pod(shm) = &shared.memory {
        keep.push(shm.as_raw_fd());
    }
    sys::close_all_but(&keep)?;
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
        if container.overlay.options.is_empty() {
            let (base, root) = (&container.overlay.base, stage.join("root"));
            return mount(Some(base), &root, None::<&str>, MsFlags::MS_BIND, None::<&str>);
        }
        nix::unistd::chdir(&container.overlay.base)?;
        let options = Some(container.overlay.options.as_str());
        mount(Some("overlay"), &stage.join("root"), Some("overlay"), MsFlags::empty(), options)?;
        nix::unistd::chdir("/")
    };
    overlay().map_err(|error| format!("error mounting container root: {error}"))
}

/// The volumes, with parts of them shown at places of our own: libcontainer
/// goes by path, and the path to a part may change under its hands. Where they
/// are mounted it resolves inside the root by descriptors itself.
fn place_binds(container: &ContainerSpec, stage: &Path) -> Result<Vec<BindMount>, String> {
    let place = |(number, bind): (usize, &BindMount)| match &bind.sub_path {
        None => Ok(bind.clone()),
        Some(part) => {
            let target = stage.join(format!("part{number}"));
            let placed = place_part(&bind.source, part, &target);
            placed.map_err(|error| format!("error mounting subPath {part:?} of {:?}: {error}", bind.source))?;
            Ok(BindMount { source: target, sub_path: None, ..bind.clone() })
        }
    };
    container.mounts.iter().enumerate().map(place).collect()
}

fn place_part(volume: &Path, part: &Path, target: &Path) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let base = nix::fcntl::open(volume, flags, nix::sys::stat::Mode::empty())?;
    let opened = inroot::open_part(base.as_fd(), part).map_err(|error| match error.raw_os_error() {
        Some(libc::EXDEV | libc::ELOOP) => io::Error::other("a link in it leads outside of the volume"),
        _ => error,
    })?;
    let is_dir = File::from(opened.try_clone()?).metadata()?.is_dir();
    if is_dir {
        fs::create_dir(target)?
    } else {
        drop(File::create(target)?)
    }
    sys::mount_tree(opened.as_fd(), target)
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

/// Where the container's processes are born; `None`: in the node's namespace.
fn pid_namespace(container: &ContainerSpec, shared: &Shared) -> Result<Option<PathBuf>, String> {
    match (&container.pid, &shared.pid) {
        (PidNamespace::Host, _) => Ok(None),
        (PidNamespace::Own, _) => Ok(Some(PathBuf::new())),
        // The processes that libcontainer forks have the descriptor, too.
        (PidNamespace::Pod, Some(shared)) => Ok(Some(format!("/proc/self/fd/{}", shared.as_raw_fd()).into())),
        (PidNamespace::Pod, None) => Err("the pod has no PID namespace to share".into()),
    }
}

fn run_libcontainer(container: &ContainerSpec, stage: &Path, launch: Launch, ends: Ends) -> Result<i32, String> {
    let mut builder = ContainerBuilder::new(container.id.clone(), SyscallType::default()).with_executor(launch);
    if let Some(end) = ends.stdin {
        builder = builder.with_stdin(end);
    }
    if let Some(end) = ends.stdout {
        builder = builder.with_stdout(end);
    }
    if let Some(end) = ends.stderr {
        builder = builder.with_stderr(end);
    }
    let console = ends.console.map(|end| Console::listen(stage, end)).transpose();
    let console = console.map_err(|error| format!("error preparing terminal: {error}"))?;
    let made = builder
        .with_console_socket(console.as_ref().map(|console| console.path.clone()))
        .with_root_path(stage.join("state"))
        .and_then(|builder| builder.as_init(stage).with_systemd(false).with_detach(true).build())
        .map_err(|error| chain(&error))?;
    if let Some(console) = console {
        console.pass_on().map_err(|error| format!("error opening terminal: {error}"))?;
    }
    made.pid().map(|pid| pid.as_raw()).ok_or_else(|| "container process has no pid".into())
}

/// Takes the terminal that libcontainer opens inside the container, and gives
/// it to the shim.
struct Console {
    path: PathBuf,
    listener: UnixListener,
    to: OwnedFd,
}

impl Console {
    fn listen(stage: &Path, to: OwnedFd) -> io::Result<Self> {
        // By its name alone: the path of a socket is limited to 108 bytes.
        nix::unistd::chdir(stage)?;
        let listener = UnixListener::bind(Self::NAME)?;
        nix::unistd::chdir("/")?;
        Ok(Self { path: stage.join(Self::NAME), listener, to })
    }

    const NAME: &str = "console.sock";

    /// Once the container is made, all of it is waiting here.
    fn pass_on(&self) -> io::Result<()> {
        let (from, _) = self.listener.accept()?;
        let mut name = [0; 64];
        let (_, fds) = parcel::receive(&from, &mut name)?;
        let master = fds.first().ok_or_else(|| io::Error::other("it was not handed over"))?;
        parcel::hand_over(&self.to, master)
    }
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
