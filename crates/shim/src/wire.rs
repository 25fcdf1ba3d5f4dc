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
pub const VERSION: u32 = 1;

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
    /// Forgets a container that is over.
    Forget {
        container: String,
    },
    /// Opens the log file anew, after someone has renamed it.
    ReopenLog {
        container: String,
    },
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
    pub cgroup: Cgroup,
    pub pid: PidNamespace,
    pub oom_score_adj: i32,
}

/// The overlay mount that is a container's root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Where to stand while mounting: names of layers are relative to it.
    pub base: PathBuf,
    pub options: String,
}

/// Who runs the program. Numbers beat the name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct User {
    /// As images give it: empty, `user`, `uid`, `user:group`, `uid:gid`.
    pub name: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindMount {
    pub source: PathBuf,
    pub destination: PathBuf,
    pub readonly: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    Default,
    Unconfined,
    /// A profile in the format of Docker and the kubelet.
    Profile(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidNamespace {
    Own,
    Host,
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
}

/// What the shim says: an answer, or that something ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    Reply { seq: u64, reply: Reply },
    Exited { container: String, exit: Exit },
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
    /// The program could not be executed; the container has exited with 128.
    Start(String),
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
    let Some(prefix) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*prefix) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    let Some(body) = buffer.get(4..4 + length) else { return Ok(None) };
    let message = serde_json::from_slice(body)?;
    buffer.drain(..4 + length);
    Ok(Some(message))
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
    fn an_announced_length_beyond_the_limit_is_refused_before_it_is_read() {
        let mut buffer = u32::MAX.to_le_bytes().to_vec();
        assert!(take::<Message>(&mut buffer).is_err());
        assert!(read::<Message>(&mut &buffer[..]).is_err());
    }
}
