//! Making one container, in a short-lived child of the shim.
//!
//! The child is in the container's cgroup and in a mount namespace of its own,
//! so the host never sees the container's root and nothing can leak. It takes
//! hold of everything that only the node can give, then gives birth to the
//! container's process, which waits for the shim's word and executes the
//! program. In a PID namespace of its own that process furnishes its own world;
//! where others live already, it enters a finished one, as the user it will be
//! (docs/decisions/0040). The child tells the shim the pid and ends; the
//! process is the shim's from the beginning.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Pid, Uid, pipe2};
use serde::{Deserialize, Serialize};

use crate::executor::{Launch, RUNS_AS_ROOT, START_ERROR};
use crate::furnish::{self, Furniture};
use crate::inroot::Identity;
use crate::processes::Processes;
use crate::profile::Profile;
use crate::slate::{SAID_BYTES_MAX, Slate};
use crate::sys::mount::{self as mounts, Change, SAFE};
use crate::users::Users;
use crate::wire::{ContainerSpec, IdRange, PidNamespace};
use crate::{cgroup, crash, inroot, labels, parcel, sys, volumes};

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

    /// In this process.
    pub(crate) fn connect(&self) -> io::Result<()> {
        if let Some(end) = &self.stdin {
            nix::unistd::dup2_stdin(end)?;
        }
        if let Some(end) = &self.stdout {
            nix::unistd::dup2_stdout(end)?;
        }
        if let Some(end) = &self.stderr {
            nix::unistd::dup2_stderr(end)?;
        }
        Ok(())
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
    pub(crate) processes: Option<&'a Processes>,
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
    pub(crate) processes: Option<Processes>,
    /// Those of the pod's own, if it has any.
    pub(crate) users: Option<Users>,
}

/// The pod's `/dev/shm`.
#[derive(Debug)]
pub(crate) enum SharedMemory {
    /// The node's, for pods in its IPC namespace.
    Node,
    /// One for all containers of the pod: see [`mounts::house`].
    Pod(OwnedFd),
}

impl SharedMemory {
    pub(crate) fn of_pod(users: Option<IdRange>) -> io::Result<Self> {
        let owner = CString::new(users.map_or(0, |range| range.first).to_string())?;
        let options = [(c"mode", c"1777"), (c"size", c"65536k"), (c"uid", &*owner), (c"gid", &*owner)];
        let memory = mounts::detached(c"tmpfs", &options, SAFE)?;
        mounts::house(memory.as_fd()).map(Self::Pod)
    }

    /// To be mounted in one more container.
    fn take(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Node => {
                let again = mounts::duplicate(File::open("/dev/shm")?.as_fd())?;
                let change = Change { set: SAFE, propagation: libc::MS_PRIVATE, ..Change::default() };
                mounts::change(again.as_fd(), &change).map(|()| again)
            }
            Self::Pod(house) => mounts::duplicate_housed(house.as_fd()),
        }
    }
}

/// What the child says before it ends.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Made { pid: i32, identity: Identity },
    Failed(String),
}

const MESSAGE_BYTES_MAX: usize = 3 << 10;
/// So that they fit as well: eleven bytes each.
const GROUPS_MAX: usize = 4096;
const _: () = assert!(GROUPS_MAX * 11 + MESSAGE_BYTES_MAX < SAID_BYTES_MAX);

/// Starts making a container. `report` takes one [`Outcome`].
pub(crate) fn spawn(container: &ContainerSpec, place: Place<'_>, ends: Ends, report: &Slate) -> io::Result<Pid> {
    let cradle = cgroup::cradle(&container.cgroup, None)?;
    let child = move || {
        // Closed with all the others, before anybody sees us.
        let ends = std::mem::ManuallyDrop::new(ends);
        let outcome = match build(container, place, &ends, report) {
            Ok((pid, identity)) => Outcome::Made { pid, identity },
            Err(mut message) => {
                message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
                Outcome::Failed(message)
            }
        };
        let told = serde_json::to_vec(&outcome).map(|outcome| report.write(&outcome));
        i32::from(told.is_err())
    };
    report.shared(|| sys::fork_in(cradle.as_ref().map(AsFd::as_fd), child))
}

fn build(container: &ContainerSpec, place: Place<'_>, ends: &Ends, report: &Slate) -> Result<(i32, Identity), String> {
    let failed = |error: io::Error| format!("error preparing container process: {error}");
    report.keep_to_ourselves().map_err(failed)?;
    isolate(container, place, ends).map_err(failed)?;
    let users = place.users;
    let volumes = volumes::take(container, users)?;
    let devices = users.map(|_| volumes::take_devices(container)).transpose()?;
    let memory = place.memory.take().map_err(|error| format!("error mounting /dev/shm: {error}"))?;
    let joined = if matches!(container.pid, PidNamespace::Pod | PidNamespace::Of(_)) { place.processes } else { None };
    let proc = joined.map(Processes::show).transpose().map_err(|error| format!("error mounting /proc: {error}"))?;
    own_mounts().map_err(failed)?;
    crash::point("builder.isolated");
    let root = take_root(container, users).map_err(|error| format!("error mounting container root: {error}"))?;
    crash::point("builder.mounted");
    let identity = inroot::identify(root.as_fd(), &container.user)?;
    check_identity(&identity, container.user.not_root, place.range())?;
    let profile = Profile::of(container, place.range());
    let available = profile.available().map_err(|error| format!("error reading capabilities: {error}"))?;
    ends.give_to(&identity, place.range()).map_err(|error| format!("error giving the user its streams: {error}"))?;
    let launch = profile.launch(&container.args, &identity, available, ends.sync.as_raw_fd())?;
    labels::apply(&container.labels)?;
    furnish::blanks().map_err(failed)?;
    let furniture = Furniture { container, root, memory, proc, devices, volumes };
    enter_namespaces(container, place)?;
    let pid = match container.pid {
        PidNamespace::Own => give_birth(furniture, &launch, ends)?,
        PidNamespace::Pod | PidNamespace::Of(_) | PidNamespace::Host => send_out(furniture, &launch, ends)?,
    };
    crash::point("builder.made");
    Ok((pid, identity))
}

/// Leaves behind what belongs to the shim: descriptors, signal settings.
fn isolate(container: &ContainerSpec, place: Place<'_>, ends: &Ends) -> io::Result<()> {
    let mut keep = ends.numbers();
    keep.extend(place.processes.into_iter().flat_map(Processes::descriptors).map(|fd| fd.as_raw_fd()));
    keep.extend(place.users.map(|users| users.fd().as_raw_fd()));
    if let SharedMemory::Pod(house) = place.memory {
        keep.push(house.as_raw_fd());
    }
    sys::close_all_but(&keep)?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    sys::default_signals();
    sys::prctl(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.unsigned_abs()))?;
    sys::set_oom_score(container.oom_score_adj)?;
    cgroup::enter(&container.cgroup, None)
}

/// From here on nobody sees what we mount.
fn own_mounts() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_SLAVE | MsFlags::MS_REC, None::<&str>)?;
    Ok(())
}

/// The container's root, mounted nowhere (yet).
fn take_root(container: &ContainerSpec, users: Option<&Users>) -> io::Result<OwnedFd> {
    let overlay = &container.overlay;
    if overlay.options.is_empty() {
        return shown(&overlay.base, users);
    }
    let mut base = overlay.base.clone();
    if !overlay.layers.is_empty() {
        // Layers can be shown to users of the pod's own, an overlay as a whole
        // cannot. They need places, which nobody else sees either.
        base = container.dir.join("layers");
        fs::create_dir(&base).or_else(|error| if base.is_dir() { Ok(()) } else { Err(error) })?;
        mount(Some("tmpfs"), &base, Some("tmpfs"), MsFlags::empty(), Some("mode=711,size=1m"))?;
    }
    for (number, layer) in overlay.layers.iter().enumerate() {
        let place = base.join(number.to_string());
        fs::create_dir(&place)?;
        let shown = shown(layer, users)?;
        // Others stand on it as well.
        mounts::change(shown.as_fd(), &Change { set: libc::MOUNT_ATTR_RDONLY, ..Change::default() })?;
        mounts::place(shown.as_fd(), File::open(place)?.as_fd())?;
    }
    // The layers are named from here, which keeps the options short. The
    // directory of the container is not needed as such any more.
    nix::unistd::chdir(&base)?;
    mount(Some("overlay"), &container.dir, Some("overlay"), MsFlags::empty(), Some(overlay.options.as_str()))?;
    nix::unistd::chdir("/")?;
    mounts::duplicate(File::open(&container.dir)?.as_fd())
}

/// One directory, to be mounted at another place as well.
fn shown(directory: &Path, users: Option<&Users>) -> io::Result<OwnedFd> {
    let shown = mounts::duplicate(File::open(directory)?.as_fd())?;
    users.map_or(Ok(()), |users| mounts::show_to(shown.as_fd(), users.fd()))?;
    Ok(shown)
}

fn check_identity(identity: &Identity, not_root: bool, users: Option<IdRange>) -> Result<(), String> {
    let Identity { uid, gid, groups, .. } = identity;
    if not_root && *uid == 0 {
        return Err(RUNS_AS_ROOT.into());
    }
    if groups.len() > GROUPS_MAX {
        return Err(format!("more than {GROUPS_MAX} supplementary groups"));
    }
    let mut ids = [uid, gid].into_iter().chain(groups);
    match users.and_then(|range| ids.find(|id| !range.has(**id)).map(|id| (id, range.length))) {
        Some((id, length)) => Err(format!("user or group {id}: with hostUsers: false a pod has 0 to {}", length - 1)),
        None => Ok(()),
    }
}

/// Those of the users, who own the others, of the cgroup that we are in, and
/// that of processes, which the next child will be born into.
fn enter_namespaces(container: &ContainerSpec, place: Place<'_>) -> Result<(), String> {
    let enter = || -> io::Result<()> {
        if let Some(users) = place.users {
            users.become_their_root()?;
            unshare(CloneFlags::CLONE_NEWNS)?;
        }
        unshare(CloneFlags::CLONE_NEWCGROUP)?;
        match (&container.pid, place.processes) {
            (PidNamespace::Host, _) => {}
            (PidNamespace::Own, _) => unshare(CloneFlags::CLONE_NEWPID)?,
            (PidNamespace::Pod | PidNamespace::Of(_), Some(joined)) => {
                setns(joined.namespace(), CloneFlags::CLONE_NEWPID)?;
            }
            (PidNamespace::Pod | PidNamespace::Of(_), None) => {
                return Err(io::Error::other("there is no PID namespace to share"));
            }
        }
        Ok(())
    };
    enter().map_err(|error| format!("error making container namespaces: {error}"))
}

/// Process 1 of a new PID namespace, made and waiting. Nobody else is there:
/// it furnishes its own world, which only somebody inside can.
fn give_birth(furniture: Furniture<'_>, launch: &Launch, ends: &Ends) -> Result<i32, String> {
    let (mut answer, answer_end) = answer()?;
    let to_answer = answer_end.as_raw_fd();
    let pid = sys::fork_sibling(|| {
        let grow_up = || {
            nix::unistd::setsid().map_err(|errno| format!("error preparing container process: {errno}"))?;
            settle(furniture, launch, ends)?;
            if ends.console.is_some() {
                let controlled = sys::set_controlling_terminal(io::stdin().as_fd());
                controlled.map_err(|error| format!("error opening the container's streams: {error}"))?;
            }
            become_user(launch, &[to_answer])
        };
        wait_and_run(launch, grow_up(), answer_end, || launch.confine())
    });
    heard(&mut answer, pid)
}

/// A process among others, made and waiting. They see it: so all is done, and
/// given up, before it is there. It has nothing to say over but its start.
fn send_out(furniture: Furniture<'_>, launch: &Launch, ends: &Ends) -> Result<i32, String> {
    settle(furniture, launch, ends)?;
    let is_there = become_user(launch, &[])?;
    launch.confine()?;
    let pid = launch.bear(ends.console.is_some(), |ready| {
        let ready = ready.map_err(|error| format!("error preparing container process: {error}"));
        launch.wait_for_start();
        launch.execute_if(ready.and(is_there))
    });
    pid.map(Pid::as_raw).map_err(|error| format!("error starting container process: {error}"))
}

/// Over which a new process says that it is made.
fn answer() -> Result<(File, File), String> {
    let (answer, answer_end) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| format!("error making a pipe: {errno}"))?;
    Ok((File::from(answer), File::from(answer_end)))
}

/// What it said, once nobody can say anything any more.
fn heard(answer: &mut File, pid: io::Result<Pid>) -> Result<i32, String> {
    let failed = |error: io::Error| format!("error starting container process: {error}");
    let pid = pid.map_err(failed)?;
    let mut said = Vec::new();
    answer.read_to_end(&mut said).map_err(failed)?;
    match said.as_slice() {
        MADE => Ok(pid.as_raw()),
        [] => Err("error starting container process: it died".into()),
        problem => Err(String::from_utf8_lossy(problem).into_owned()),
    }
}

const MADE: &[u8] = b"+";

/// In the new process: tells that it is made, waits for the shim's word, and
/// does the rest. The inner result is why the program cannot start; that is
/// told when it shall.
fn wait_and_run(
    launch: &Launch,
    made: Result<Result<(), String>, String>,
    mut answer: File,
    rest: impl FnOnce() -> Result<(), String>,
) -> i32 {
    let is_there = match made {
        Ok(is_there) => is_there,
        Err(problem) => {
            let _ = answer.write_all(problem.as_bytes());
            return START_ERROR;
        }
    };
    let _ = answer.write_all(MADE);
    drop(answer);
    launch.wait_for_start();
    launch.execute_if(is_there.and_then(|()| rest()))
}

/// Moves into the finished container, with its streams.
fn settle(furniture: Furniture<'_>, launch: &Launch, ends: &Ends) -> Result<(), String> {
    // Devices have exactly the modes they are given.
    let usual = umask(Mode::empty());
    furniture.move_in()?;
    umask(usual);
    let connected = match &ends.console {
        Some(console) => {
            furnish::console(launch.identity.uid).and_then(|terminal| parcel::hand_over(console, &terminal))
        }
        None => ends.connect(),
    };
    connected.map_err(|error| format!("error opening the container's streams: {error}"))
}

/// Until its program runs it is a part of the shim inside the container:
/// nothing of the shim's may be left open but what is in `keep` (CVE-2024-21626).
fn become_user(launch: &Launch, keep: &[RawFd]) -> Result<Result<(), String>, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("error {what}: {error}");
    let keep = [&[launch.sync], keep].concat();
    sys::close_all_but(&keep).map_err(failed("closing descriptors"))?;
    launch.become_user().map_err(failed("changing user"))
}
