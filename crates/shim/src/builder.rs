//! Making one container, in a short-lived child of the shim.
//!
//! The child enters a mount namespace of its own and mounts the container's
//! root there, so the host never sees the mount and nothing can leak. It runs
//! libcontainer, tells the shim the pid of the container's process 1 and ends;
//! process 1 then belongs to the shim.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
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
use crate::users::Users;
use crate::volumes::Volume;
use crate::wire::{ContainerSpec, IdRange, Overlay, PidNamespace};
use crate::{crash, inroot, parcel, spec, sys, volumes};

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
    pub(crate) fn give_to(&self, identity: &Identity, users: Option<IdRange>) -> io::Result<()> {
        let on_node = |id: u32| users.map_or(id, |range| range.on_node(id));
        let (uid, gid) = (Uid::from_raw(on_node(identity.uid)), Gid::from_raw(on_node(identity.gid)));
        for end in [&self.stdin, &self.stdout, &self.stderr].into_iter().flatten() {
            nix::unistd::fchown(end, Some(uid), Some(gid))?;
        }
        Ok(())
    }
}

/// What a container finds when it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) memory: &'a SharedMemory,
    /// The PID namespace it joins, if it joins one.
    pub(crate) pid: Option<BorrowedFd<'a>>,
    /// Those of the pod's own, if it has any.
    pub(crate) users: Option<&'a Users>,
}

impl Place<'_> {
    pub(crate) fn range(&self) -> Option<IdRange> {
        self.users.map(|users| users.range)
    }
}

/// What the containers of a pod share beside what the shim lives in itself.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) memory: SharedMemory,
    /// The PID namespace, if they share one.
    pub(crate) pid: Option<OwnedFd>,
    /// Those of the pod's own, if it has any.
    pub(crate) users: Option<Users>,
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
    pub(crate) fn of_pod(users: Option<IdRange>) -> io::Result<Self> {
        let owner = CString::new(users.map_or(0, |range| range.first).to_string())?;
        let options = [(c"mode", c"1777"), (c"size", c"65536k"), (c"uid", &*owner), (c"gid", &*owner)];
        sys::mount::detached_tmpfs(&options).map(Self::Pod)
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
pub(crate) fn spawn(container: &ContainerSpec, place: Place<'_>, ends: Ends, report: OwnedFd) -> io::Result<Pid> {
    sys::fork(move || {
        let mut report = File::from(report);
        let outcome = match build(container, place, ends, &report) {
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

fn build(container: &ContainerSpec, place: Place<'_>, ends: Ends, report: &File) -> Result<(i32, Identity), String> {
    let failed = |error: io::Error| format!("error preparing container process: {error}");
    isolate(container, place, &ends, report).map_err(failed)?;
    let users = place.users;
    let volumes = volumes::take(container, users)?;
    own_mounts().map_err(failed)?;
    crash::point("builder.isolated");
    let stage = spec::stage(container);
    mount_root(container, &stage, users)?;
    let stage = if users.is_some() { bring_to_light(&stage).map_err(failed)? } else { stage };
    crash::point("builder.mounted");
    let shm = shared_memory(place.memory, &stage);
    let pid = pid_namespace(container, place)?;
    let root_path = stage.join("root");
    let root = File::open(&root_path).map_err(|error| format!("error opening container root: {error}"))?;
    let identity = inroot::identify(root.as_fd(), &container.user)?;
    check_identity(&identity, place.range())?;
    let profile = Profile::of(container, place.range());
    let available = profile.available().map_err(|error| format!("error reading capabilities: {error}"))?;
    ends.give_to(&identity, place.range()).map_err(|error| format!("error giving the user its streams: {error}"))?;
    let own_users = users.map(named);
    let around = spec::Around {
        root: &root_path,
        shm: shm.as_deref(),
        pid: pid.as_deref(),
        users: own_users.as_deref(),
        available,
    };
    let config = spec::oci(container, &identity, &around);
    fs::write(stage.join("config.json"), config.to_string()).map_err(|error| format!("error writing spec: {error}"))?;
    let launch = profile.launch(&container.args, &identity, available, ends.sync.as_raw_fd())?;
    drop(root);
    let pid = run_libcontainer(container, &stage, launch, ends)?;
    crash::point("builder.made");
    let failed = |error: io::Error| format!("error releasing container process: {error}");
    let mut gate = gate(&stage, &container.id).map_err(failed)?;
    furnish(container, &volumes, pid, users)?;
    crash::point("builder.furnished");
    // Lets process 1 go on to our executor, which waits for the shim.
    gate.write_all(b"start container").map_err(failed)?;
    crash::point("builder.released");
    Ok((pid, identity))
}

/// Leaves behind what belongs to the shim: descriptors, signal settings.
fn isolate(container: &ContainerSpec, place: Place<'_>, ends: &Ends, report: &File) -> io::Result<()> {
    let mut keep = ends.numbers();
    keep.push(report.as_raw_fd());
    keep.extend(place.pid.map(|pid| pid.as_raw_fd()));
    keep.extend(place.users.map(|users| users.fd().as_raw_fd()));
    if let SharedMemory::Pod(shm) = place.memory {
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
fn mount_root(container: &ContainerSpec, stage: &Path, users: Option<&Users>) -> Result<(), String> {
    let prepare = || -> io::Result<()> {
        if !stage.is_dir() {
            fs::create_dir(stage)?;
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("tmpfs"), stage, Some("tmpfs"), flags, Some("mode=711,size=4m"))?;
        fs::create_dir(stage.join("root"))?;
        fs::create_dir(stage.join("state"))
    };
    prepare().map_err(|error| format!("error preparing mounts: {error}"))?;
    overlay(&container.overlay, stage, users).map_err(|error| format!("error mounting container root: {error}"))
}

/// Layers can be shown to users of the pod's own, an overlay as a whole cannot.
fn overlay(overlay: &Overlay, stage: &Path, users: Option<&Users>) -> io::Result<()> {
    let root = stage.join("root");
    if overlay.options.is_empty() {
        return show(&overlay.base, &root, users);
    }
    let mut base = overlay.base.clone();
    if !overlay.layers.is_empty() {
        base = stage.join("layers");
        fs::create_dir(&base)?;
    }
    for (number, layer) in overlay.layers.iter().enumerate() {
        let place = base.join(number.to_string());
        fs::create_dir(&place)?;
        show(layer, &place, users)?;
    }
    nix::unistd::chdir(&base)?;
    mount(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(overlay.options.as_str()))?;
    Ok(nix::unistd::chdir("/")?)
}

/// One directory at another place as well.
fn show(directory: &Path, place: &Path, users: Option<&Users>) -> io::Result<()> {
    let shown = sys::mount::duplicate(File::open(directory)?.as_fd())?;
    if let Some(users) = users {
        sys::mount::show_to(shown.as_fd(), users.fd())?;
    }
    sys::mount::place(shown.as_fd(), File::open(place)?.as_fd())
}

/// Our state is closed to others, and root of the pod's users is one of them:
/// the stage moves to the uppermost directory above it. Only we see that, and
/// nothing else below that directory is needed any more.
fn bring_to_light(stage: &Path) -> io::Result<PathBuf> {
    let top: PathBuf = stage.components().take(2).collect();
    let tree = sys::mount::duplicate_tree(File::open(stage)?.as_fd())?;
    sys::mount::place(tree.as_fd(), File::open(&top)?.as_fd())?;
    Ok(top)
}

/// As libcontainer, which goes by path, finds the namespace.
fn named(users: &Users) -> PathBuf {
    format!("/proc/self/fd/{}", users.fd().as_raw_fd()).into()
}

fn check_identity(identity: &Identity, users: Option<IdRange>) -> Result<(), String> {
    let Identity { uid, gid, groups, .. } = identity;
    if groups.len() > GROUPS_MAX {
        return Err(format!("more than {GROUPS_MAX} supplementary groups"));
    }
    let mut ids = [uid, gid].into_iter().chain(groups);
    match users.and_then(|range| ids.find(|id| !range.has(**id)).map(|id| (id, range.length))) {
        Some((id, length)) => Err(format!("user or group {id}: with hostUsers: false a pod has 0 to {}", length - 1)),
        None => Ok(()),
    }
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
fn pid_namespace(container: &ContainerSpec, place: Place<'_>) -> Result<Option<PathBuf>, String> {
    match (&container.pid, place.pid) {
        (PidNamespace::Host, _) => Ok(None),
        (PidNamespace::Own, _) => Ok(Some(PathBuf::new())),
        // The processes that libcontainer forks have the descriptor, too.
        (PidNamespace::Pod | PidNamespace::Of(_), Some(joined)) => {
            Ok(Some(format!("/proc/self/fd/{}", joined.as_raw_fd()).into()))
        }
        (PidNamespace::Pod | PidNamespace::Of(_), None) => Err("there is no PID namespace to share".into()),
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
fn furnish(container: &ContainerSpec, volumes: &[Volume], pid: i32, users: Option<&Users>) -> Result<(), String> {
    let failed = |error: io::Error| format!("error entering container mounts: {error}");
    let init = sys::pidfd(Pid::from_raw(pid)).map_err(failed)?;
    setns(&init, CloneFlags::CLONE_NEWNS).map_err(io::Error::from).map_err(failed)?;
    // What is made there belongs to its root.
    users.map_or(Ok(()), Users::become_their_root).map_err(failed)?;
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
