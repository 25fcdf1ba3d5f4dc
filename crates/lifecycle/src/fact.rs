//! What can happen to a pod, in the past tense. A closed list.
//!
//! Facts may arrive twice, late, out of order or for an older attempt; the
//! rules that absorb them must not mind.

use std::net::IpAddr;

use ambient::{Mono, Timestamp};

use crate::action::Action;
use crate::node::{Eviction, Rejection};
use crate::resize::{Allocation, MemoryUse, Refusal};
use crate::resources::CgroupValues;
use crate::spec::PodSpec;

#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// The API object is new, or any part of it changed.
    PodChanged(Box<PodSpec>),
    /// The API object vanished from its source.
    PodGone,
    /// What the runtime holds for this pod right now, complete. The driver
    /// observes again before it reports the end of a runtime action, so an
    /// `Ended` never precedes what it caused.
    Observed(Observation),
    /// The driver started an action; it is in flight until it ended.
    Begun(Action),
    /// An action is over, well or badly.
    Ended(Action, Outcome),
    /// The node lets the pod run with these resources (LC-344). A driver that
    /// never says so runs it with what the spec asks for; one that does begins
    /// with `PodState::awaiting_admission`.
    Admitted(Allocation),
    /// The node gave the pod another size (LC-347).
    Resized(Allocation),
    /// The node could not give what a resize asks for (LC-345).
    ResizeRefused(Refusal),
    /// The node does not run the pod (LC-372).
    Rejected(Rejection),
    /// The node ends the pod: pressure, storage limits, a critical pod's need,
    /// shutdown (LC-301).
    Evicted(Eviction),
}

/// A snapshot of the runtime, newest first in both lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// When the look began. One that is older than another that was absorbed
    /// already says nothing.
    pub taken_at: Option<Mono>,
    pub sandboxes: Vec<SandboxSeen>,
    pub instances: Vec<Instance>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSeen {
    pub id: String,
    pub attempt: u32,
    pub is_ready: bool,
    pub is_host_network: bool,
    pub ips: Vec<IpAddr>,
    pub created_at: Timestamp,
}

/// One runtime container; a restart of a named container makes a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// With its runtime's prefix, as `containerID` shows it: `podium://…`.
    pub id: String,
    pub name: String,
    /// The restart count it was born with.
    pub attempt: u32,
    pub sandbox: String,
    pub state: InstanceState,
    /// Hash of what, when changed, forces a restart (LC-086).
    pub spec_hash: String,
    pub image: String,
    pub image_id: String,
    pub created_at: Timestamp,
    /// The signal that stops it, if the runtime tells (LC-288): `SIGUSR1`.
    pub stop_signal: Option<String>,
    /// Of its first process, if the runtime tells (LC-083).
    pub user: Option<UserSeen>,
    /// What its cgroup is set to, if the runtime tells (LC-081).
    pub limits: Option<CgroupValues>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSeen {
    pub uid: i64,
    pub gid: i64,
    pub supplemental_groups: Vec<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    Created,
    Running { started_at: Timestamp },
    Exited { started_at: Option<Timestamp>, finished_at: Timestamp, code: i32, reason: String, message: String },
    Unknown,
}

/// How an action ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// For `PullImage`: the image is here.
    Image(ImageUse),
    /// For `PullImage`: it is not. `reason` is a waiting reason (`ErrImagePull`,
    /// `ErrImageNeverPull`, `InvalidImageName`, `ImageInspectError`, …).
    NoImage {
        reason: String,
        message: String,
    },
    /// For `CreateSandbox`: what it needs is not there (LC-184).
    NotPrepared {
        lacks: Lack,
        message: String,
    },
    /// For `StartContainer`: how far it got and why it stopped.
    NotStarted {
        stage: StartStage,
        message: String,
    },
    /// For `RunProbe`: how the container answered.
    Probed(ProbeResult),
    /// For `RunHook`: done, but an HTTPS request was answered in plain HTTP and
    /// repeated without TLS (LC-226).
    FellBackToHttp {
        host: String,
    },
    /// For `MeasureMemory`.
    Measured(MemoryUse),
    /// For everything else: the error text.
    Failed(String),
}

/// LC-245, LC-254.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    Success,
    /// A success worth a warning: a redirect to another host (LC-248). The
    /// text is the response body.
    Warning(String),
    /// With upstream's message.
    Failure(String),
    /// All attempts of this run errored (LC-246): counts for nothing.
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUse {
    AlreadyPresent,
    Pulled { took_ms: u64, waited_ms: u64, size_bytes: u64 },
}

impl Outcome {
    pub(crate) fn lacks_volumes(&self) -> bool {
        matches!(self, Self::NotPrepared { lacks: Lack::Volumes(_), .. })
    }
}

/// What a sandbox needs before it can be made; each lack has its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// The network of the node (LC-018).
    Network,
    /// The cgroup of the pod (LC-186).
    Cgroup,
    /// The directories of the pod.
    Directories,
    /// Volumes, each with the reason why it is not there (LC-320).
    Volumes(Vec<MissingVolume>),
}

/// A volume that could not be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingVolume {
    pub name: String,
    pub message: String,
}

/// The step of starting a container that failed; each has its waiting reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartStage {
    /// `CreateContainerConfigError`
    Configure,
    /// `CreateContainerError`
    Create,
    /// `RunContainerError`
    Start,
}
