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
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{Gid, Pid, Uid};
use serde::{Deserialize, Serialize};

use crate::executor::Launch;
use crate::inroot::{Identity, Kind};
use crate::profile::Profile;
use crate::sys::mount::Change;
use crate::volumes::Volume;
use crate::wire::{ContainerSpec, PidNamespace};
use crate::{inroot, parcel, spec, sys, volumes};

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
        sys::mount::detached_tmpfs(&[(c"mode", c"1777"), (c"size", c"65536k")]).map(Self::Pod)
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
    let failed = |error: io::Error| format!("error preparing container process: {error}");
    isolate(container, shared, &ends, report).map_err(failed)?;
    let volumes = volumes::take(&container.mounts)?;
    own_mounts().map_err(failed)?;
    let stage = spec::stage(container);
    mount_root(container, &stage)?;
    let shm = shared_memory(&shared.memory, &stage);
    let pid = pid_namespace(container, shared)?;
    let root_path = stage.join("root");
    let root = File::open(&root_path).map_err(|error| format!("error opening container root: {error}"))?;
    let identity = inroot::identify(root.as_fd(), &container.user)?;
    if identity.groups.len() > GROUPS_MAX {
        return Err(format!("more than {GROUPS_MAX} supplementary groups"));
    }
    let available = sys::permitted_capabilities().map_err(|error| format!("error reading capabilities: {error}"))?;
    ends.give_to(&identity).map_err(|error| format!("error giving the user its streams: {error}"))?;
    let around = spec::Around { root: &root_path, shm: shm.as_deref(), pid: pid.as_deref(), available };
    let config = spec::oci(container, &identity, &around);
    fs::write(stage.join("config.json"), config.to_string()).map_err(|error| format!("error writing spec: {error}"))?;
    let profile = Profile::of(container);
    let launch = profile.launch(&container.args, &identity, available, ends.sync.as_raw_fd())?;
    drop(root);
    let pid = run_libcontainer(container, &stage, launch, ends)?;
    let failed = |error: io::Error| format!("error releasing container process: {error}");
    let mut gate = gate(&stage, &container.id).map_err(failed)?;
    furnish(container, &volumes, pid)?;
    // Lets process 1 go on to our executor, which waits for the shim.
    gate.write_all(b"start container").map_err(failed)?;
    Ok((pid, identity))
}

/// Leaves behind what belongs to the shim: descriptors, signal settings.
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
    sys::set_oom_score(container.oom_score_adj)
}

/// From here on nobody sees what we mount.
fn own_mounts() -> io::Result<()> {
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

/// Where to find the pod's `/dev/shm`; `None` means each container has its own,
/// which is what kernels leave us that cannot show one mount twice.
fn shared_memory(memory: &SharedMemory, stage: &Path) -> Option<PathBuf> {
    match memory {
        SharedMemory::Node => Some(PathBuf::from("/dev/shm")),
        SharedMemory::Pod(shm) => {
            let target = stage.join("shm");
            let show = || {
                fs::create_dir(&target)?;
                let again = sys::mount::duplicate(shm.as_fd())?;
                sys::mount::place(again.as_fd(), File::open(&target)?.as_fd())
            };
            show().ok().map(|()| target)
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

/// What process 1 waits at.
fn gate(stage: &Path, id: &str) -> io::Result<UnixStream> {
    // The path of a socket is limited to 108 bytes, that of a container is not.
    nix::unistd::chdir(&stage.join("state").join(id))?;
    UnixStream::connect("notify.sock")
}

/// Enters the container's mount namespace, where the volumes get their places
/// and the working directory is made. Nobody can see anything of this yet but
/// what other containers of the pod do to volumes they share.
fn furnish(container: &ContainerSpec, volumes: &[Volume], pid: i32) -> Result<(), String> {
    let failed = |error: io::Error| format!("error entering container mounts: {error}");
    let init = sys::pidfd(Pid::from_raw(pid)).map_err(failed)?;
    setns(&init, CloneFlags::CLONE_NEWNS).map_err(io::Error::from).map_err(failed)?;
    let root = File::open("/").map_err(failed)?;
    volumes::put(volumes, root.as_fd())?;
    inroot::make(root.as_fd(), &container.cwd, Kind::Directory)
        .map_err(|error| format!("error creating working directory {:?}: {error}", container.cwd))?;
    if container.readonly_rootfs {
        let readonly = Change { set: libc::MOUNT_ATTR_RDONLY, ..Change::default() };
        let changed = sys::mount::change(root.as_fd(), &readonly);
        changed.map_err(|error| format!("error making the root read-only: {error}"))?;
    }
    Ok(())
}
