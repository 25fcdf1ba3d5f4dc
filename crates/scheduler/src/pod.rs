//! A pod as the scheduler needs it: parsed once per change.

use std::collections::BTreeSet;

use objects::api::core::v1 as core;
use objects::placement::{HostPort, Toleration, Wishes, host_ports};

use crate::claims::{ClaimKey, claims_of};
use crate::{NodeName, Resources};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodUid(String);

impl PodUid {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for PodUid {
    fn from(uid: &str) -> Self {
        Self(uid.to_owned())
    }
}

/// Which pod: its name may be reused, its UID never is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
    pub uid: PodUid,
}

impl std::fmt::Display for PodKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a watch says about one pod, reduced to what placement depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSeen {
    pub key: PodKey,
    pub(crate) scheduler_name: String,
    pub(crate) node: Option<NodeName>,
    pub(crate) generation: Option<i64>,
    pub(crate) is_gated: bool,
    pub(crate) is_terminating: bool,
    pub(crate) is_terminal: bool,
    /// The `PodScheduled=False` it already carries.
    pub(crate) shown: Option<Shown>,
    pub(crate) wants: PodToPlace,
}

/// A failure the pod's status already tells: reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// What a pod asks of a node. Equal values mean an equal decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodToPlace {
    pub(crate) priority: i32,
    pub(crate) may_preempt: bool,
    pub(crate) node_name: Option<NodeName>,
    pub(crate) wishes: Wishes,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) requests: Resources,
    /// TC-335: requests as scoring sees them.
    pub(crate) scored: Resources,
    pub(crate) ports: BTreeSet<HostPort>,
    pub(crate) claims: BTreeSet<ClaimKey>,
    /// What a node must declare to run it.
    pub(crate) features: BTreeSet<String>,
}

pub fn parse_pod(pod: &core::Pod) -> PodSeen {
    let empty = core::PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let status = pod.status.as_ref();
    PodSeen {
        key: PodKey {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: PodUid(pod.metadata.uid.clone().unwrap_or_default()),
        },
        scheduler_name: spec.scheduler_name.clone().unwrap_or_default(),
        node: bound_node(spec),
        generation: pod.metadata.generation,
        is_gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        is_terminating: pod.metadata.deletion_timestamp.is_some(),
        is_terminal: matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed")),
        shown: status.and_then(parse_shown),
        wants: parse_wants(pod, spec),
    }
}

fn parse_shown(status: &core::PodStatus) -> Option<Shown> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    Some(Shown {
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    })
}

fn bound_node(spec: &core::PodSpec) -> Option<NodeName> {
    spec.node_name.as_deref().filter(|name| !name.is_empty()).map(NodeName::from)
}

/// LC-159.
fn features_of(spec: &core::PodSpec) -> BTreeSet<String> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
    let restarts_all = rules.any(|rule| rule.action == "RestartAllContainers");
    restarts_all.then(|| "RestartAllContainersOnContainerExits".to_owned()).into_iter().collect()
}

fn parse_wants(pod: &core::Pod, spec: &core::PodSpec) -> PodToPlace {
    PodToPlace {
        priority: spec.priority.unwrap_or_default(),
        may_preempt: spec.preemption_policy.as_deref() != Some("Never"),
        node_name: bound_node(spec),
        wishes: Wishes::parse(spec),
        tolerations: spec.tolerations.iter().flatten().map(Toleration::parse).collect(),
        requests: Resources::parse_requests(pod),
        scored: Resources::parse_scored(spec),
        ports: host_ports(spec),
        claims: claims_of(pod, spec),
        features: features_of(spec),
    }
}
