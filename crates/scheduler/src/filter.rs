//! Whether one node can take the pod, and if not, why.

use objects::placement::{Taint, is_tolerated};

use crate::claims::{self, Reach};
use crate::snapshot::Usage;
use crate::{Node, PodToPlace};

/// Why a node will not have the pod, in the words users see (TC-331).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Cordoned,
    OtherName,
    Tainted,
    NotWished,
    PortTaken,
    TooManyPods,
    Insufficient(String),
    NoVolume,
    VolumeElsewhere,
    /// LC-159: features the node does not declare.
    LacksFeatures(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cordoned => "node(s) were unschedulable",
            Self::OtherName => "node(s) didn't match the requested node name",
            Self::Tainted => "node(s) had untolerated taint(s)",
            Self::NotWished => "node(s) didn't match Pod's node affinity/selector",
            Self::PortTaken => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient(resource) => return write!(f, "Insufficient {resource}"),
            Self::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Self::VolumeElsewhere => "node(s) didn't match PersistentVolume's node affinity",
            Self::LacksFeatures(features) => {
                return write!(f, "node declared features check failed - unsatisfied requirements: {features}");
            }
        })
    }
}

impl Reason {
    /// Whether a pod leaving a node can make this reason go away.
    pub(crate) fn yields_to_room(&self) -> bool {
        match self {
            Self::Cordoned
            | Self::OtherName
            | Self::Tainted
            | Self::NotWished
            | Self::NoVolume
            | Self::VolumeElsewhere
            | Self::LacksFeatures(_) => false,
            Self::PortTaken | Self::TooManyPods | Self::Insufficient(_) => true,
        }
    }
}

/// The answer of one node that refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub reasons: Vec<Reason>,
    /// Whether removing pods from the node could change the answer.
    pub is_resolvable: bool,
}

impl Rejection {
    fn for_good(reason: Reason) -> Option<Self> {
        Some(Self { reasons: vec![reason], is_resolvable: false })
    }
}

/// What a pod asks of a node, with the volumes behind its claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) pod: &'a PodToPlace,
    pub(crate) reach: &'a Reach<'a>,
}

/// TC-331: the filters in upstream's order; the first that objects speaks for
/// the node. `None`: the pod fits.
pub(crate) fn objection(node: &Node, usage: &Usage, Ask { pod, reach }: Ask<'_>) -> Option<Rejection> {
    if node.is_cordoned && !is_tolerated(&Taint::no_schedule(CORDON), &pod.tolerations) {
        return Rejection::for_good(Reason::Cordoned);
    }
    if pod.node_name.as_ref().is_some_and(|name| *name != node.name) {
        return Rejection::for_good(Reason::OtherName);
    }
    if let Some(features) = lacking(node, pod) {
        return Rejection::for_good(Reason::LacksFeatures(features));
    }
    if node.taints.iter().any(|taint| taint.effect.repels() && !is_tolerated(taint, &pod.tolerations)) {
        return Rejection::for_good(Reason::Tainted);
    }
    if !pod.wishes.are_met_by(node.face()) {
        return Rejection::for_good(Reason::NotWished);
    }
    if usage.has_port_conflict(&pod.ports) {
        return Some(Rejection { reasons: vec![Reason::PortTaken], is_resolvable: true });
    }
    shortage(node, usage, pod).or_else(|| Rejection::for_good(claims::objection(node, reach)?))
}

/// LC-159: what the node would have to declare.
fn lacking(node: &Node, pod: &PodToPlace) -> Option<String> {
    let lacking: Vec<&str> = pod.features.difference(&node.features).map(String::as_str).collect();
    (!lacking.is_empty()).then(|| lacking.join(", "))
}

/// Everything that is too little, because users fix requests in one go.
fn shortage(node: &Node, usage: &Usage, pod: &PodToPlace) -> Option<Rejection> {
    let mut reasons = Vec::new();
    let mut is_resolvable = true;
    if usage.pod_count + 1 > node.pods_max {
        reasons.push(Reason::TooManyPods);
    }
    for (resource, wanted) in pod.requests.iter() {
        let allocatable = node.allocatable.of(resource);
        if wanted > allocatable.saturating_sub(usage.requests.of(resource)) {
            reasons.push(Reason::Insufficient(resource.to_owned()));
            is_resolvable &= wanted <= allocatable;
        }
    }
    (!reasons.is_empty()).then_some(Rejection { reasons, is_resolvable })
}

const CORDON: &str = "node.kubernetes.io/unschedulable";
