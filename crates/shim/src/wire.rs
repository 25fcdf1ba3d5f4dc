//! What engine and shim say to each other: length-prefixed JSON over a unix
//! socket.
//!
//! A shim outlives the agent that started it, so every change here must be
//! readable by the other side's previous version, or raise [`VERSION`].

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of this protocol, told by the shim in [`Reply::Ready`].
///
/// 1 ends the connection when it hears a request it does not know; from 2 on
/// such a request is answered with [`Fault::Unsupported`]. 3 knows streams,
/// inputs, terminals, log limits and PID namespaces of pods. 4 knows kernel
/// settings, devices, parts of volumes and how mounts behave. 5 knows mounts
/// that reach the node, seccomp profiles and users of pods. 6 knows PID
/// namespaces of other containers. 7 knows AppArmor profiles and SELinux labels.
pub const VERSION: u32 = 7;

/// The first version that knows [`Request::Exec`].
pub const EXEC_SINCE: u32 = 2;
/// The first version that knows [`Request::Stream`] and [`Request::Attach`],
/// and what a [`ContainerSpec`] says of input and terminal.
pub const STREAMS_SINCE: u32 = 3;
/// The first version that knows what a [`ContainerSpec`] says of devices and
/// `/proc`, a [`User`] of groups and a [`BindMount`] of parts and propagation.
pub const CONFINEMENT_SINCE: u32 = 4;

/// The first version that knows [`BindMount::reaches_node`] and [`Setup::users`].
pub const ISOLATION_SINCE: u32 = 5;

/// The first version that knows [`PidNamespace::Of`].
pub const TARGET_SINCE: u32 = 6;

/// The first version that knows [`ContainerSpec::labels`].
pub const LABELS_SINCE: u32 = 7;

/// The first version that checks [`User::not_root`] and [`BindMount::source_readonly`].
pub const CHECKS_SINCE: u32 = 7;

/// What is kept of each output of a command (CVE-2022-31030).
pub const EXEC_OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Longest message either side accepts. The kernel's limit on arguments and
/// environment of one program is 2 MiB.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// One question; `seq` comes back with its answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    pub seq: u64,
    pub request: Request,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first one, once: become the monitor of this sandbox.
    Setup(Setup),
    /// Is anybody there, and what do you have?
    State,
    Create(Box<ContainerSpec>),
    /// Executes a created container's program. Recorded before it happens.
    Start {
        container: String,
    },
    /// Signal now, KILL to the whole container after `grace_ms` (TC-066). A
    /// later call can only bring the deadline forward. Answered at once; the
    /// end is an [`Message::Exited`].
    Stop {
        container: String,
        signal: i32,
        grace_ms: u64,
    },
    /// To process 1 of the container.
    Signal {
        container: String,
        signal: i32,
    },
    /// Kills a container if need be and forgets it; answered when it is over.
    Forget {
        container: String,
    },
    /// Opens the log file anew, after someone has renamed it.
    ReopenLog {
        container: String,
    },
    /// Runs a command in a running container, as if the container's own
    /// process had; answered with [`Reply::Executed`] when it has ended. It is
    /// killed when `timeout_ms` has passed, when the container ends and when
    /// this connection does.
    Exec {
        container: String,
        command: Vec<String>,
        timeout_ms: Option<u64>,
        /// For `Abort`: a number this connection has not used yet.
        exec: u64,
    },
    /// Kills a command of this connection; nobody waits for it any more.
    Abort {
        exec: u64,
    },
    /// Runs a command as `Exec` does, without a timeout, and connects it to
    /// descriptors that come with this request: the command's ends of those
    /// pipes that `streams` names, in its order. With a terminal there is
    /// one: a socket, over which the terminal's master side comes back.
    /// Bytes never pass through the shim.
    ///
    /// Asked on a connection of its own: the command is killed when that ends,
    /// and nothing else is told there.
    Stream {
        container: String,
        command: Vec<String>,
        streams: Streams,
    },
    /// Copies what a container says from now on into pipes that come with this
    /// request, as far as `streams` names outputs, in its order. The last
    /// descriptor is a socket, over which comes back what the container's
    /// input is written to (or its terminal's master side); it is closed
    /// without one where there is none (any more). Asked as `Stream` is.
    Attach {
        container: String,
        streams: Streams,
    },
    /// The client attached with this connection has nothing more to say.
    CloseInput,
    /// Kills what runs, records the exits, answers and ends.
    Shutdown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    pub sandbox: String,
    /// A network namespace of its own.
    pub network: bool,
    /// An IPC namespace of its own.
    pub ipc: bool,
    /// `Some`: a UTS namespace of its own with this host name.
    pub hostname: Option<String>,
    /// A PID namespace that all its containers share.
    #[serde(default)]
    pub pid: bool,
    /// Paths below `/proc/sys` with their values, of its own namespaces only.
    #[serde(default)]
    pub sysctls: Vec<(String, String)>,
    /// A user namespace of its own, which owns the others.
    #[serde(default)]
    pub users: Option<IdRange>,
}

/// Users and groups 0, 1, 2 … of a pod are these of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub first: u32,
    pub length: u32,
}

/// What somebody is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    /// Instead of pipes. For `Attach` the container's creation has decided it.
    pub tty: bool,
}

/// Everything needed to make one container; paths are the host's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub id: String,
    /// Its records and its mount point; must exist.
    pub dir: PathBuf,
    pub overlay: Overlay,
    pub log: PathBuf,
    pub args: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    pub cwd: PathBuf,
    pub user: User,
    pub mounts: Vec<BindMount>,
    pub readonly_rootfs: bool,
    pub privileged: bool,
    pub no_new_privileges: bool,
    /// `CAP_…` names: bounding, permitted and effective set.
    pub capabilities: Vec<String>,
    pub seccomp: Seccomp,
    #[serde(default)]
    pub labels: Labels,
    pub cgroup: Cgroup,
    pub pid: PidNamespace,
    pub oom_score_adj: i32,
    #[serde(default)]
    pub log_limits: Option<LogLimits>,
    #[serde(default)]
    pub input: Input,
    /// A terminal instead of pipes.
    #[serde(default)]
    pub tty: bool,
    /// What is hidden or read-only; `None`: the usual paths.
    #[serde(default)]
    pub guarded: Option<Guarded>,
    #[serde(default)]
    pub devices: Vec<Device>,
}

/// What the kernel's security modules shall know its processes by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Labels {
    /// The name of an AppArmor profile that is loaded.
    pub apparmor: Option<String>,
    /// An SELinux label, `user:role:type:level`.
    pub selinux: Option<String>,
    /// And that of the files that are made for it.
    pub selinux_files: Option<String>,
}

/// Paths in the container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Guarded {
    pub masked: Vec<String>,
    pub readonly: Vec<String>,
}

/// A device node to be made in a container; the cgroup decides who opens it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Below `/dev`.
    pub path: PathBuf,
    /// Where the node has it.
    #[serde(default)]
    pub source: PathBuf,
    pub is_block: bool,
    pub major: u32,
    pub minor: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of `r`, `w` and `m`.
    pub permissions: String,
}

/// When a log begins a new file, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    pub file_bytes_max: u64,
    /// With the one being written.
    pub files_max: u32,
}

/// What a container reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Input {
    #[default]
    Null,
    /// From whoever is attached.
    Open,
    /// The same, and it ends with the first who was.
    Once,
}

/// The mount that is a container's root: an overlay, or where `options` is
/// empty the directory `base` itself, a copy for this container alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Where to stand while mounting: names of layers are relative to it.
    pub base: PathBuf,
    pub options: String,
    /// With users of the pod's own: the layers that `options` calls `0`, `1` …,
    /// each to be shown as theirs.
    #[serde(default)]
    pub layers: Vec<PathBuf>,
}

/// Who runs the program. Numbers beat the name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct User {
    /// As images give it: empty, `user`, `uid`, `user:group`, `uid:gid`.
    pub name: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Vec<u32>,
    /// None of the image's `/etc/group` besides.
    #[serde(default)]
    pub only_groups: bool,
    /// Whoever it turns out to be must not be 0. (See [`CHECKS_SINCE`].)
    #[serde(default)]
    pub not_root: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BindMount {
    pub source: PathBuf,
    /// Only this part of `source`, which somebody may be changing meanwhile.
    #[serde(default)]
    pub sub_path: Option<PathBuf>,
    pub destination: PathBuf,
    pub readonly: bool,
    /// What is mounted below as well.
    #[serde(default)]
    pub recursive_readonly: bool,
    /// Later mounts of the node below are seen.
    #[serde(default)]
    pub follows_node: bool,
    /// Mounts made in the container are seen on the node, and the other way round.
    #[serde(default)]
    pub reaches_node: bool,
    /// Nothing in it can be run. (Older shims do not know it.)
    #[serde(default)]
    pub noexec: bool,
    /// Nothing is made in the source either: a part that is missing is an
    /// error. (See [`CHECKS_SINCE`].)
    #[serde(default)]
    pub source_readonly: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    Default,
    Unconfined,
    /// The text of a profile in the format of Docker and the OCI runtime
    /// specification. (Shims before [`ISOLATION_SINCE`] refuse it.)
    Profile(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidNamespace {
    Own,
    /// See [`Setup::pid`].
    Pod,
    Host,
    /// That of another container of this sandbox, by its id.
    Of(String),
}

/// Where the container's cgroup is. The engine has made it and set its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Below the root of every hierarchy, starting with `/`.
    pub path: PathBuf,
    /// The directory whose `cgroup.procs` lists the container's processes.
    pub members: PathBuf,
    /// The file with an `oom_kill N` line.
    pub oom: Option<PathBuf>,
    /// Version 1: what the container sees below `/sys/fs/cgroup`, by name.
    /// Empty means version 2.
    pub hierarchies: Vec<(String, PathBuf)>,
    /// Its directory in every hierarchy: what a process that joins the
    /// container later has to enter, one by one.
    #[serde(default)]
    pub every: Vec<PathBuf>,
}

impl Cgroup {
    pub(crate) fn is_version_1(&self) -> bool {
        !self.hierarchies.is_empty()
    }
}

/// What the shim says: an answer, or that something ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    Reply {
        seq: u64,
        reply: Reply,
    },
    Exited {
        container: String,
        exit: Exit,
    },
    /// To an attached client, only: it was too slow, and is not attached any more.
    Lagged,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To `Setup`.
    Ready {
        version: u32,
        pid: i32,
    },
    /// To `State`.
    State(Vec<ContainerState>),
    /// To `Start`.
    Started {
        at_ns: u64,
        #[serde(default)]
        user: Option<RanAs>,
    },
    /// To `Exec`, and to `Stream` (without output).
    Executed {
        /// 128 + n when signal n ended it.
        code: i32,
        #[serde(with = "bytes")]
        stdout: Vec<u8>,
        #[serde(with = "bytes")]
        stderr: Vec<u8>,
    },
    Done,
    Failed(Fault),
}

/// Why the shim said no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// No such container here.
    Unknown,
    /// The request does not fit the container's state.
    State(String),
    /// The program could not be executed; a container has exited with 128.
    Start(String),
    /// To `Exec`: the container's process is gone, or has not been started.
    NotRunning,
    /// To `Exec`: it took too long and was killed.
    TimedOut,
    /// This shim is too old for the request.
    Unsupported,
    /// Making the container or sandbox failed.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    pub id: String,
    pub state: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    Creating,
    Created,
    Running { pid: i32, started_at_ns: u64 },
    Exited(Exit),
}

/// The start of a container, recorded before its program is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub at_ns: u64,
    #[serde(default)]
    pub user: Option<RanAs>,
}

/// Who a container's first process was started as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanAs {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// The end of a container; the content of its exit record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 128 + n when signal n ended it.
    pub code: i32,
    pub oom_killed: bool,
    /// `None`: its program was never executed.
    pub started_at_ns: Option<u64>,
    pub finished_at_ns: u64,
    /// Why it could not be executed.
    pub start_error: Option<String>,
}

/// Capability names by number, as the kernel counts them.
pub const CAPABILITIES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// Name of the start record in [`ContainerSpec::dir`].
pub const START_RECORD: &str = "start.json";
/// Name of the exit record in [`ContainerSpec::dir`].
pub const EXIT_RECORD: &str = "exit.json";

/// A message with its length before it.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "message too long"));
    }
    let prefix = u32::try_from(length).map_err(io::Error::other)?.to_le_bytes();
    bytes[..4].copy_from_slice(&prefix);
    Ok(bytes)
}

/// Takes one whole message off the front of `buffer`, if there is one.
pub fn take<T: DeserializeOwned>(buffer: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(body) = first(buffer)? else { return Ok(None) };
    let length = body.len();
    let message = serde_json::from_slice(body)?;
    buffer.drain(..4 + length);
    Ok(Some(message))
}

/// Takes one call off the front of `buffer`, if there is a whole one. `Err`
/// inside with its number when it asks for something this version does not know.
pub fn take_call(buffer: &mut Vec<u8>) -> io::Result<Option<Result<Call, u64>>> {
    #[derive(Deserialize)]
    struct Unknown {
        seq: u64,
    }
    let Some(body) = first(buffer)? else { return Ok(None) };
    let length = body.len();
    let call = match serde_json::from_slice::<Call>(body) {
        Ok(call) => Ok(call),
        Err(error) => Err(serde_json::from_slice::<Unknown>(body).map_err(|_| error)?.seq),
    };
    buffer.drain(..4 + length);
    Ok(Some(call))
}

/// The first whole message in `buffer`.
fn first(buffer: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some(prefix) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*prefix) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    Ok(buffer.get(4..4 + length))
}

/// Bytes as text, a character for each: short for what is text already, and
/// nothing is lost of what is not.
mod bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        bytes.iter().map(|byte| char::from(*byte)).collect::<String>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.chars().map(|c| u8::try_from(c).map_err(D::Error::custom)).collect()
    }
}

/// Reads one message from a blocking stream.
pub fn read<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix)?;
    let length = u32::from_le_bytes(prefix) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Writes one message to a blocking stream.
pub fn write(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&frame(message)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire_in_pieces() {
        let message = Message::Exited {
            container: "c".into(),
            exit: Exit { code: 143, oom_killed: false, started_at_ns: Some(1), finished_at_ns: 2, start_error: None },
        };
        let bytes = frame(&message).unwrap();
        let mut buffer = Vec::new();
        for (index, byte) in bytes.iter().enumerate() {
            assert_eq!(take::<Message>(&mut buffer).unwrap(), None, "complete after {index} bytes");
            buffer.push(*byte);
        }
        assert_eq!(take::<Message>(&mut buffer).unwrap(), Some(message));
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_request_of_a_later_version_is_heard_as_such_and_ends_nothing() {
        let mut buffer = Vec::new();
        for text in [r#"{"seq":7,"request":{"Dance":{"with":"me"}}}"#, r#"{"seq":8,"request":"State"}"#] {
            buffer.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            buffer.extend(text.as_bytes());
        }
        assert_eq!(take_call(&mut buffer).unwrap().unwrap().unwrap_err(), 7);
        let known = take_call(&mut buffer).unwrap().unwrap().unwrap();
        assert_eq!((known.seq, known.request), (8, Request::State));
        assert!(take_call(&mut buffer).unwrap().is_none());
    }

    #[test]
    fn what_version_2_says_and_hears_is_still_understood() {
        // Without what came later, as an agent of version 2 writes it.
        let spec = r#"{"seq":1,"request":{"Create":{"id":"c","dir":"/d","overlay":{"base":"/","options":""},
            "log":"/l","args":["a"],"env":[],"cwd":"/","user":{"name":"","uid":null,"gid":null,"groups":[]},
            "mounts":[],"readonly_rootfs":false,"privileged":false,"no_new_privileges":false,"capabilities":[],
            "seccomp":"Default","cgroup":{"path":"/c","members":"/m","oom":null,"hierarchies":[]},
            "pid":"Own","oom_score_adj":0}}}"#;
        let Call { request: Request::Create(spec), .. } = serde_json::from_str(spec).unwrap() else { panic!() };
        assert_eq!((spec.tty, spec.input, spec.log_limits), (false, Input::Null, None));
        let setup = r#"{"sandbox":"s","network":true,"ipc":true,"hostname":null}"#;
        assert!(!serde_json::from_str::<Setup>(setup).unwrap().pid);
        let started = serde_json::from_str::<Reply>(r#"{"Started":{"at_ns":7}}"#).unwrap();
        assert_eq!(started, Reply::Started { at_ns: 7, user: None });
        // What it hears: only fields were added to the answers it knows.
        #[derive(Debug, PartialEq, Deserialize)]
        enum Version2 {
            Started { at_ns: u64 },
        }
        let user = Some(RanAs { uid: 1, gid: 2, groups: vec![3] });
        let said = serde_json::to_string(&Reply::Started { at_ns: 7, user }).unwrap();
        assert_eq!(serde_json::from_str::<Version2>(&said).unwrap(), Version2::Started { at_ns: 7 });
    }

    #[test]
    fn every_byte_of_a_commands_output_survives_the_wire() {
        let stdout: Vec<u8> = (0..=255).collect();
        let reply = Reply::Executed { code: 3, stdout, stderr: b"plain".to_vec() };
        let mut buffer = frame(&reply).unwrap();
        assert!(String::from_utf8_lossy(&buffer).contains("\"plain\""));
        assert_eq!(take::<Reply>(&mut buffer).unwrap(), Some(reply));
    }

    #[test]
    fn an_announced_length_beyond_the_limit_is_refused_before_it_is_read() {
        let mut buffer = u32::MAX.to_le_bytes().to_vec();
        assert!(take::<Message>(&mut buffer).is_err());
        assert!(read::<Message>(&mut &buffer[..]).is_err());
    }
}
