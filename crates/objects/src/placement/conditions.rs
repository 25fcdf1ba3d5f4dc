//! What the state of a node means for pods: conditions and their taints (TC-176).

use crate::api::core::v1 as core;

pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Set by operators on a node that is known to be off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Condition (when `True`) and the key of its `NoSchedule` taint.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// What the `Ready` condition of a node says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    NotReady,
    /// Nobody has heard of it lately.
    Unknown,
    /// There is no such condition yet.
    NeverTold,
}

impl Readiness {
    pub fn of(node: &core::Node) -> Self {
        match status(node, "Ready") {
            Some("True") => Self::Ready,
            Some("Unknown") => Self::Unknown,
            Some(_) => Self::NotReady,
            None => Self::NeverTold,
        }
    }

    /// The key of its taint.
    pub fn taint(self) -> Option<&'static str> {
        match self {
            Self::Ready => None,
            Self::NotReady | Self::NeverTold => Some(NOT_READY),
            Self::Unknown => Some(UNREACHABLE),
        }
    }
}

/// Keys of the taints for what the node lacks, besides readiness.
pub fn pressures(node: &core::Node) -> impl Iterator<Item = &'static str> {
    PRESSURES.into_iter().filter(|(type_, _)| status(node, type_) == Some("True")).map(|(_, key)| key)
}

/// Whether a `NoSchedule` taint of this key comes from the state of the node.
pub fn is_of_state(key: &str) -> bool {
    [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key) || PRESSURES.iter().any(|(_, known)| *known == key)
}

fn status<'a>(node: &'a core::Node, type_: &str) -> Option<&'a str> {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == type_).map(|condition| condition.status.as_str())
}
