//! A node as the scheduler needs it: parsed once, compared to see whether a
//! change could matter to anyone.

use std::collections::{BTreeMap, BTreeSet};

use objects::api::core::v1 as core;
use objects::placement::conditions::{Readiness, pressures};
use objects::placement::{Effect, NodeFace, Taint};

use crate::Resources;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeName(String);

impl NodeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl std::fmt::Display for NodeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: BTreeSet<Taint>,
    pub(crate) is_cordoned: bool,
    pub(crate) allocatable: Resources,
    pub(crate) pods_max: u64,
    /// `status.declaredFeatures`
    pub(crate) features: BTreeSet<String>,
}

impl Node {
    pub(crate) fn face(&self) -> NodeFace<'_> {
        NodeFace { name: self.name.as_str(), labels: &self.labels }
    }
}

/// Reads what matters for placement; heartbeats and the like fall away here,
/// so that two equal results mean "nothing to reconsider".
pub fn parse_node(node: &core::Node) -> Node {
    let spec = node.spec.as_ref();
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let declared = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten().filter_map(declared_taint);
    Node {
        name: NodeName(node.metadata.name.clone().unwrap_or_default()),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: declared.chain(condition_taints(node)).collect(),
        is_cordoned: spec.is_some_and(|spec| spec.unschedulable == Some(true)),
        allocatable: Resources::parse_amounts(allocatable),
        pods_max: Resources::parse_pod_count(allocatable),
        features: status.iter().flat_map(|status| status.declared_features.iter().flatten()).cloned().collect(),
    }
}

fn declared_taint(taint: &core::Taint) -> Option<Taint> {
    let value = taint.value.clone().unwrap_or_default();
    Some(Taint { key: taint.key.clone(), value, effect: Effect::parse(&taint.effect)? })
}

/// TC-176: a condition counts as its taint already before a node controller
/// has written that taint, and also where none runs. A node that never
/// reported `Ready` is not ready.
fn condition_taints(node: &core::Node) -> impl Iterator<Item = Taint> {
    Readiness::of(node).taint().into_iter().chain(pressures(node)).map(Taint::no_schedule)
}
