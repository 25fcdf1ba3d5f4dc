//! The nouns of the runtime contract.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use ambient::Timestamp;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.to_owned())
            }
        }
    };
}

id!(
    /// Names one sandbox for as long as the runtime knows it.
    SandboxId
);
id!(
    /// Names one container instance; a restart makes a new one.
    ContainerId
);

/// Which pod a sandbox belongs to, and its how-manieth sandbox it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodMeta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    /// 0 for the pod's first sandbox, then one more for each that replaces it.
    pub attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// One namespace for the whole pod.
    #[default]
    Pod,
    /// One namespace per container (meaningful for PID only).
    Container,
    /// The node's own.
    Node,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxConfig {
    pub meta: PodMeta,
    /// Empty: the node's host name (host network).
    pub hostname: String,
    /// The pod's log directory; container log paths are relative to it.
    pub log_directory: PathBuf,
    /// The pod's cgroup below the instance's root, e.g. `burstable/pod<uid>`.
    pub cgroup_parent: String,
    /// Limits of the pod's cgroup as a whole.
    pub resources: Resources,
    pub dns: DnsConfig,
    pub network: NamespaceMode,
    pub pid: NamespaceMode,
    pub ipc: NamespaceMode,
    /// Users of the pod's own; `None`: the node's.
    #[serde(default)]
    pub user_namespace: Option<IdRange>,
    /// Which of the runtime's ways to run pods; empty: its usual one.
    #[serde(default)]
    pub runtime_handler: String,
    #[serde(default)]
    pub host_ports: Vec<HostPort>,
    /// Kernel settings of the pod's namespaces, e.g. `net.core.somaxconn`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// How long its containers' logs may become.
    #[serde(default)]
    pub log_limits: LogLimits,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// A pod's users and groups 0, 1, 2 … are these of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub first: u32,
    pub length: u32,
}

/// A port of the node that leads into the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    pub protocol: Protocol,
    pub container_port: u16,
    pub host_port: u16,
    /// `None`: every address of the node.
    pub host_ip: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// When a log begins a new file, and how many files of it are kept. Runtimes
/// that leave this to the agent ignore it (`Runtime::reopen_log`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    pub file_bytes_max: u64,
    /// With the one being written.
    pub files_max: u32,
}

/// `containerLogMaxSize` and `containerLogMaxFiles` of an unconfigured kubelet.
impl Default for LogLimits {
    fn default() -> Self {
        Self { file_bytes_max: 10 << 20, files_max: 5 }
    }
}

/// What goes into `/etc/resolv.conf`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DnsConfig {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxState {
    Ready,
    NotReady,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub id: SandboxId,
    pub meta: PodMeta,
    pub state: SandboxState,
    pub created_at: Timestamp,
    pub network: NamespaceMode,
    /// Empty for host network, and before the network is set up.
    pub ips: Vec<IpAddr>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

/// cgroup values; `None` leaves the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resources {
    pub cpu_shares: Option<u64>,
    /// Microseconds per `cpu_period`.
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub memory_limit_bytes: Option<i64>,
    pub pids_limit: Option<i64>,
    pub oom_score_adj: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Empty if an image is mounted.
    pub host_path: PathBuf,
    /// The content of this image, by name or id. It must be here already, and
    /// is always read-only.
    #[serde(default)]
    pub image: Option<String>,
    /// Only this part of `host_path`, or of the image. The runtime resolves it so that no
    /// symbolic link in it leads outside (CVE-2017-1002101, CVE-2021-25741).
    #[serde(default)]
    pub sub_path: Option<PathBuf>,
    pub container_path: PathBuf,
    pub readonly: bool,
    /// Nothing may be made in `host_path`: a `sub_path` that is missing is an error.
    #[serde(default)]
    pub source_readonly: bool,
    /// Of what is mounted below as well; only with `readonly`.
    #[serde(default)]
    pub recursive_readonly: bool,
    #[serde(default)]
    pub propagation: Propagation,
}

impl Mount {
    /// The whole of `host_path`, private.
    pub fn new(host_path: impl Into<PathBuf>, container_path: impl Into<PathBuf>, readonly: bool) -> Self {
        Self {
            host_path: host_path.into(),
            image: None,
            sub_path: None,
            container_path: container_path.into(),
            readonly,
            source_readonly: false,
            recursive_readonly: false,
            propagation: Propagation::default(),
        }
    }
}

/// Whether later mounts below are seen on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

/// A device of the node that a container may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub host_path: PathBuf,
    pub container_path: PathBuf,
    /// Of `r`, `w` and `m`.
    pub permissions: String,
}

/// Who the process is. Absent values come from the image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SecurityContext {
    pub run_as_user: Option<u32>,
    /// A name to be looked up in the image; only without `run_as_user`.
    #[serde(default)]
    pub run_as_username: Option<String>,
    /// `runAsNonRoot`: the runtime refuses whoever turns out to be 0. (Not of
    /// the CRI: who asks another runtime checks by itself.)
    #[serde(default)]
    pub run_as_non_root: bool,
    pub run_as_group: Option<u32>,
    pub supplemental_groups: Vec<u32>,
    /// Only `supplemental_groups`, none of the image's `/etc/group`.
    #[serde(default)]
    pub strict_groups: bool,
    pub readonly_rootfs: bool,
    pub privileged: bool,
    pub no_new_privileges: bool,
    pub capabilities_add: Vec<String>,
    pub capabilities_drop: Vec<String>,
    pub seccomp: Seccomp,
    /// `None`: what is usual on the node.
    #[serde(default)]
    pub apparmor: Option<AppArmor>,
    #[serde(default)]
    pub selinux: Option<SeLinuxOptions>,
    /// Not of privileged containers: nothing is kept from those.
    #[serde(default)]
    pub guarded: GuardedPaths,
    /// Lives among the processes of this other container of the pod, where
    /// each has its own (LC-363).
    #[serde(default)]
    pub pid_of: Option<ContainerId>,
}

/// What of `/proc` and `/sys` is hidden from a container, or read-only in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum GuardedPaths {
    /// What runtimes usually guard.
    #[default]
    Usual,
    /// `procMount: Unmasked`.
    Nothing,
    /// As a CRI client says.
    These { masked: Vec<String>, readonly: Vec<String> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppArmor {
    RuntimeDefault,
    Unconfined,
    /// A profile that is loaded on the node, by its name.
    Localhost(String),
}

/// The parts of an SELinux label; those that are empty are the node's usual ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SeLinuxOptions {
    pub user: String,
    pub role: String,
    pub type_: String,
    pub level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Seccomp {
    #[default]
    RuntimeDefault,
    Unconfined,
    Localhost(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerConfig {
    pub name: String,
    /// The restart count this instance is born with.
    pub attempt: u32,
    /// Image reference or id, as the image verbs understand it.
    pub image: String,
    /// Replaces the image's entrypoint when not empty.
    pub command: Vec<String>,
    /// Replaces the image's arguments when not empty (or when `command` is set).
    pub args: Vec<String>,
    /// Empty: the image's working directory.
    pub working_dir: String,
    /// Appended to the image's environment; later entries win.
    pub envs: Vec<(String, String)>,
    pub mounts: Vec<Mount>,
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Below the sandbox's log directory.
    pub log_path: PathBuf,
    pub resources: Resources,
    pub security: SecurityContext,
    /// `None`: the image's, else SIGTERM.
    pub stop_signal: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub stdin: bool,
    /// Standard input ends with the first client that was attached to it.
    #[serde(default)]
    pub stdin_once: bool,
    pub tty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    /// The runtime lost track of it (its monitor died).
    Unknown,
}

/// One container instance as the runtime knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    pub pod_uid: String,
    pub name: String,
    pub attempt: u32,
    pub state: ContainerState,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// 128 + n when a signal n ended it.
    pub exit_code: i32,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, `Unknown` (LC-063).
    pub reason: String,
    pub message: String,
    /// As given at creation.
    pub image: String,
    /// Repository digest reference, or the image id where there is none.
    pub image_ref: String,
    pub log_path: PathBuf,
    /// As given at creation.
    pub mounts: Vec<Mount>,
    /// What the cgroup holds, where the runtime tells (LC-082).
    pub resources: Option<Resources>,
    /// Who its first process was started as (LC-083).
    pub user: Option<ProcessUser>,
    /// Which signal asks it to stop, e.g. `SIGTERM` (LC-084).
    pub stop_signal: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessUser {
    pub uid: u32,
    pub gid: u32,
    pub supplemental_groups: Vec<u32>,
}

/// How a command in a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecResult {
    /// 128 + n when a signal n ended it.
    pub exit_code: i32,
    /// The beginning, at most [`EXEC_OUTPUT_BYTES_MAX`]; the rest was dropped.
    pub stdout: Vec<u8>,
    /// As `stdout`.
    pub stderr: Vec<u8>,
}

/// What is kept of each output of a command, so that a container cannot make
/// the agent's memory grow (CVE-2022-31030).
pub const EXEC_OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Something changed about a pod; look again. Carries no state on purpose:
/// whoever gets one takes a fresh snapshot, so a lost or doubled event is harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    pub pod_uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// `sha256:…` of the image configuration.
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    pub size_bytes: u64,
    /// Who its process runs as unless told otherwise; `None`: root.
    #[serde(default)]
    pub user: Option<ImageUser>,
    /// Never collected as garbage.
    #[serde(default)]
    pub is_pinned: bool,
}

/// The `User` of an image: a number, or a name that only its files explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageUser {
    Uid(u32),
    Name(String),
}

/// How to prove to a registry who we are. Its `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum RegistryAuth {
    Basic {
        username: String,
        password: String,
    },
    /// A refresh token, exchanged for access tokens.
    IdentityToken(String),
    Bearer(String),
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistryAuth::Basic { username, .. } => write!(f, "Basic({username:?}, …)"),
            RegistryAuth::IdentityToken(_) => f.write_str("IdentityToken(…)"),
            RegistryAuth::Bearer(_) => f.write_str("Bearer(…)"),
        }
    }
}

/// What the runtime says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// The prefix of `containerID`, e.g. `podium`.
    pub name: String,
    pub version: String,
}

/// Whether it can run pods; why not, otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeStatus {
    pub runtime: Result<(), Unready>,
    pub network: Result<(), Unready>,
    pub features: Features,
}

/// What not every runtime can do, and would not say when it is asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// [`Mount::recursive_readonly`].
    pub recursive_readonly: bool,
    /// [`SandboxConfig::user_namespace`].
    pub user_namespaces: bool,
}

impl Features {
    pub const ALL: Self = Self { recursive_readonly: true, user_namespaces: true };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    pub reason: String,
    pub message: String,
}
