//! What can be done to a pod, in the imperative. A closed list.
//!
//! Actions are idempotent: the driver may drop a plan, crash in the middle or
//! do an action twice, and the pod ends in the same place.

use std::time::Duration;

use ambient::Mono;

use crate::resources::CgroupValues;
use crate::spec::{HookKind, ProbeKind};

/// What should happen now, and when to ask again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    pub actions: Vec<Planned>,
    /// The next moment at which `plan` or `render` would answer differently
    /// without any new fact.
    pub wake_at: Option<Mono>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub action: Action,
    pub cause: Cause,
}

/// Why: the requirement that decided and the fact that triggered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `LC-197`, `TC-051`, …
    pub rule: &'static str,
    /// In words: `container app exited with code 1`.
    pub because: String,
}

impl Cause {
    pub(crate) fn new(rule: &'static str, because: impl Into<String>) -> Self {
        Self { rule, because: because.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Namespaces, network and pod-level cgroup, after volumes and directories.
    CreateSandbox { attempt: u32 },
    /// Make sure an image that a container needs is here, by its pull policy:
    /// its own, or that of a volume it mounts (LC-315).
    PullImage { container: String, image: String, policy: PullPolicy },
    /// Configure, create and start one instance.
    StartContainer { container: String, attempt: u32 },
    /// Stop signal, then KILL after `grace`. The same kill with a shorter
    /// grace re-arms the one in flight (TC-047).
    KillContainer { container: String, id: String, grace: Duration },
    /// One run of a probe, when it is due. Timing and thresholds are decided
    /// here; the mechanism is `PodSpec::probe`. Ends with `Outcome::Probed`.
    RunProbe { container: String, id: String, probe: ProbeKind },
    /// Runs a hook of an instance (`PodSpec::hook`); abandoned after `timeout`
    /// or when the instance is gone. Ends with `Done` or `Failed`.
    RunHook { container: String, id: String, hook: HookKind, timeout: Option<Duration> },
    /// How much memory the pod and its containers use, before a limit shrinks
    /// (LC-350). Ends with `Outcome::Measured`.
    MeasureMemory,
    /// Sets what `limits` names and leaves the rest as it is (LC-349).
    UpdateResources { container: String, id: String, limits: CgroupValues },
    /// The same for the cgroup of the whole pod.
    UpdatePodResources { limits: CgroupValues },
    /// Forget a dead instance.
    RemoveContainer { container: String, id: String },
    /// Kill what is left in it and release the network.
    StopSandbox { id: String },
    /// Forget it and everything in it.
    RemoveSandbox { id: String },
    /// Volumes, pod directories, logs, pod cgroup: gone for good. Planned only
    /// for pods that are deleted or evicted; one that completed keeps them until
    /// then.
    TearDown,
    /// The final delete at the API: grace 0, guarded by the UID (LC-278).
    DeleteObject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}
