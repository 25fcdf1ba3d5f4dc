//! Feature gates: a table with the 1.35 defaults and the switches set by the
//! operator (LC-392).
//!
//! Never: a global. `Gates` is built once and passed as configuration; rules
//! read a named field of their own settings.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Alpha,
    Beta,
    /// Always on; switching it off is an error.
    Locked,
    Deprecated,
}

/// One switchable feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    pub stage: Stage,
    pub default: bool,
}

const fn gate(name: &'static str, stage: Stage, default: bool) -> Gate {
    Gate { name, stage, default }
}

/// Every known gate, in the order of LC §19, then of TC §14.5.
pub static ALL: &[Gate] = &[
    gate("ContainerRestartRules", Stage::Beta, true),
    gate("RestartAllContainersOnContainerExits", Stage::Alpha, false),
    gate("ReduceDefaultCrashLoopBackOffDecay", Stage::Alpha, false),
    gate("KubeletCrashLoopBackOffMax", Stage::Beta, true),
    gate("PodReadyToStartContainersCondition", Stage::Beta, true),
    gate("InPlacePodVerticalScaling", Stage::Locked, true),
    gate("InPlacePodLevelResourcesVerticalScaling", Stage::Alpha, false),
    gate("PodLevelResources", Stage::Beta, true),
    gate("ContainerStopSignals", Stage::Alpha, false),
    gate("ChangeContainerStatusOnKubeletRestart", Stage::Deprecated, false),
    gate("SidecarContainers", Stage::Locked, true),
    gate("PodLifecycleSleepAction", Stage::Locked, true),
    gate("PodLifecycleSleepActionAllowZero", Stage::Locked, true),
    gate("PodObservedGenerationTracking", Stage::Locked, true),
    gate("PodSchedulingReadiness", Stage::Locked, true),
    gate("ExecProbeTimeout", Stage::Locked, true),
    gate("NodeDeclaredFeatures", Stage::Alpha, false),
    gate("ImageVolume", Stage::Beta, true),
    gate("KubeletEnsureSecretPulledImages", Stage::Beta, true),
    gate("PreventStaticPodAPIReferences", Stage::Beta, true),
    gate("HostnameOverride", Stage::Beta, true),
    gate("EnvFiles", Stage::Beta, true),
    gate("SupplementalGroupsPolicy", Stage::Locked, true),
    gate("RecursiveReadOnlyMounts", Stage::Locked, true),
    gate("ResourceHealthStatus", Stage::Alpha, false),
    gate("MemoryQoS", Stage::Alpha, false),
    gate("NodeSwap", Stage::Locked, true),
    gate("CPUCFSQuotaPeriod", Stage::Alpha, false),
    gate("GracefulNodeShutdown", Stage::Beta, true),
    gate("GracefulNodeShutdownBasedOnPodPriority", Stage::Beta, true),
    // TC-427
    gate("ClearingNominatedNodeNameAfterBinding", Stage::Beta, true),
    gate("DeploymentReplicaSetTerminatingReplicas", Stage::Beta, true),
    gate("JobBackoffLimitPerIndex", Stage::Locked, true),
    gate("JobManagedBy", Stage::Locked, true),
    gate("JobPodReplacementPolicy", Stage::Locked, true),
    gate("JobSuccessPolicy", Stage::Locked, true),
    gate("MaxUnavailableStatefulSet", Stage::Beta, false),
    gate("NominatedNodeNameForExpectation", Stage::Beta, true),
    gate("OrderedNamespaceDeletion", Stage::Beta, true),
    gate("PodDeletionCost", Stage::Beta, true),
    gate("SchedulerAsyncPreemption", Stage::Beta, true),
    gate("SchedulerPopFromBackoffQ", Stage::Beta, true),
    gate("SchedulerQueueingHints", Stage::Locked, true),
    gate("SeparateTaintEvictionController", Stage::Locked, true),
];

/// Gates that need others to be on.
static NEEDS: &[(&str, &[&str])] = &[
    ("RestartAllContainersOnContainerExits", &["ContainerRestartRules", "NodeDeclaredFeatures"]),
    (
        "InPlacePodLevelResourcesVerticalScaling",
        &["InPlacePodVerticalScaling", "PodLevelResources", "NodeDeclaredFeatures"],
    ),
];

/// Which features are on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    /// One entry per row of [`ALL`].
    on: Vec<bool>,
}

/// A gate setting that can not be honoured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateError {
    Unknown(String),
    /// No `=`, or a value other than true and false.
    Malformed(String),
    Locked(&'static str),
    Needs {
        gate: &'static str,
        other: &'static str,
    },
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => match similar(name) {
                Some(known) => write!(f, "unrecognized feature gate: {name}; did you mean {known}?"),
                None => write!(f, "unrecognized feature gate: {name}"),
            },
            Self::Malformed(setting) => write!(f, "invalid value of {setting}, use Name=true or Name=false"),
            Self::Locked(name) => write!(f, "cannot set feature gate {name} to false, feature is locked to true"),
            Self::Needs { gate, other } => write!(f, "feature gate {gate} needs {other}=true as well"),
        }
    }
}

impl std::error::Error for GateError {}

impl Default for Gates {
    fn default() -> Self {
        Self { on: ALL.iter().map(|gate| gate.default).collect() }
    }
}

impl Gates {
    /// Reads `A=true,B=false` over the defaults.
    pub fn parse(text: &str) -> Result<Self, GateError> {
        let mut gates = Self::default();
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            gates.apply(setting)?;
        }
        for (gate, needed) in NEEDS {
            if let Some(other) = needed.iter().find(|other| gates.enabled(gate) && !gates.enabled(other)) {
                return Err(GateError::Needs { gate, other });
            }
        }
        Ok(gates)
    }

    fn apply(&mut self, setting: &str) -> Result<(), GateError> {
        let malformed = || GateError::Malformed(setting.to_owned());
        let (name, value) = setting.split_once('=').ok_or_else(malformed)?;
        let index = position(name.trim()).ok_or_else(|| GateError::Unknown(name.trim().to_owned()))?;
        let value = value.trim().to_ascii_lowercase().parse::<bool>().map_err(|_| malformed())?;
        if ALL[index].stage == Stage::Locked && !value {
            return Err(GateError::Locked(ALL[index].name));
        }
        self.on[index] = value;
        Ok(())
    }

    /// Whether the named gate is on. A name that is not in the table is a
    /// mistake in the program.
    pub fn enabled(&self, name: &str) -> bool {
        let index = position(name);
        debug_assert!(index.is_some(), "no feature gate {name}");
        index.is_some_and(|index| self.on[index])
    }

    /// The names of gates that are not at their default.
    pub fn changed(&self) -> impl Iterator<Item = &'static str> {
        ALL.iter().zip(&self.on).filter(|(gate, is_on)| gate.default != **is_on).map(|(gate, _)| gate.name)
    }
}

fn position(name: &str) -> Option<usize> {
    ALL.iter().position(|gate| gate.name == name)
}

/// A gate whose name was cut short, made longer or written in another case.
fn similar(name: &str) -> Option<&'static str> {
    const LETTERS_MIN: usize = 6;
    let name = name.to_ascii_lowercase();
    let is_similar = |known: &str| {
        let known = known.to_ascii_lowercase();
        name.len() >= LETTERS_MIN && (known.starts_with(&name) || name.starts_with(&known))
    };
    ALL.iter().map(|gate| gate.name).find(|known| is_similar(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_392_defaults_follow_the_table_and_settings_override_them() {
        let gates = Gates::parse("").unwrap();
        assert!(gates.enabled("ContainerRestartRules"));
        assert!(!gates.enabled("MemoryQoS"));
        let gates = Gates::parse("MemoryQoS=true, ContainerRestartRules=false").unwrap();
        assert!(gates.enabled("MemoryQoS"));
        assert!(!gates.enabled("ContainerRestartRules"));
        assert_eq!(gates.changed().collect::<Vec<_>>(), ["ContainerRestartRules", "MemoryQoS"]);
    }

    #[test]
    fn tc_427_gates_of_controllers_and_the_scheduler_are_known() {
        let gates = Gates::parse("MaxUnavailableStatefulSet=true,PodDeletionCost=false").unwrap();
        assert!(gates.enabled("MaxUnavailableStatefulSet"));
        assert!(!gates.enabled("PodDeletionCost"));
        assert_eq!(Gates::parse("JobManagedBy=false"), Err(GateError::Locked("JobManagedBy")));
    }

    #[test]
    fn settings_that_can_not_be_honoured_are_refused() {
        let error = |text| Gates::parse(text).unwrap_err().to_string();
        assert_eq!(error("Nope=true"), "unrecognized feature gate: Nope");
        assert_eq!(
            error("containerstopsignal=true"),
            "unrecognized feature gate: containerstopsignal; did you mean ContainerStopSignals?"
        );
        assert_eq!(error("MemoryQoS"), "invalid value of MemoryQoS, use Name=true or Name=false");
        assert_eq!(error("MemoryQoS=yes"), "invalid value of MemoryQoS=yes, use Name=true or Name=false");
        assert_eq!(
            error("SidecarContainers=false"),
            "cannot set feature gate SidecarContainers to false, feature is locked to true"
        );
        assert_eq!(
            error("RestartAllContainersOnContainerExits=true"),
            "feature gate RestartAllContainersOnContainerExits needs NodeDeclaredFeatures=true as well"
        );
    }
}
