//! Pods nobody will end any more, and finished ones beyond a number (TC §5).
//!
//! Decides: which pods are removed, and whether they are called failed first.
//! Never: whether a missing node is really gone; that is looked up in the API
//! by whoever drives this, after a quarantine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ambient::{Mono, Now};
use objects::api::core::v1::{Node, Pod};
use objects::placement::conditions::{OUT_OF_SERVICE, Readiness};

use crate::nodes::is_terminal;

/// TC-153: time between two passes.
pub const PERIOD: Duration = Duration::from_secs(20);
/// TC-158: a node is missed this long before its absence is believed.
const QUARANTINE: Duration = Duration::from_secs(40);
/// TC-153: `terminated-pod-gc-threshold`
pub const TERMINATED_MAX: usize = 12_500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Terminated,
    OutOfService,
    Orphaned,
    Unscheduled,
}

/// TC-161: first the status, if it must change, then deletion without grace.
#[derive(Debug, Clone, PartialEq)]
pub struct Removal {
    pub pod: Arc<Pod>,
    pub why: Why,
}

impl Removal {
    /// TC-161: whether the pod must be shown as failed before it goes.
    pub fn fails(&self) -> bool {
        !is_terminal(&self.pod)
    }

    /// TC-162: whether it is shown that a disruption ended it.
    pub fn is_disrupted(&self) -> bool {
        self.why == Why::Orphaned && self.fails()
    }
}

#[derive(Debug)]
pub struct PodGc {
    /// `None`: finished pods stay.
    terminated_max: Option<usize>,
    /// Nodes that pods name and nobody knows, and since when.
    missed: BTreeMap<String, Mono>,
}

impl PodGc {
    pub fn new(terminated_max: Option<usize>) -> Self {
        Self { terminated_max, missed: BTreeMap::new() }
    }

    /// TC-158: nodes to be looked up now; those that are definitely not there
    /// go into [`Self::plan`].
    pub fn suspects(&mut self, nodes: &[Arc<Node>], pods: &[Arc<Pod>], now: Now) -> Vec<String> {
        let present: BTreeSet<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        let named: BTreeSet<&str> = pods.iter().filter_map(|pod| node_of(pod)).collect();
        let missing = || named.iter().filter(|name| !present.contains(*name));
        self.missed.retain(|name, _| missing().any(|missing| missing == name));
        for name in missing() {
            self.missed.entry((*name).to_owned()).or_insert(now.mono);
        }
        let is_due = |since: &Mono| now.mono.since(*since) >= QUARANTINE;
        self.missed.iter().filter(|(_, since)| is_due(since)).map(|(name, _)| name.clone()).collect()
    }

    /// TC-157, TC-163: in this order, every pod once.
    pub fn plan(&self, nodes: &[Arc<Node>], pods: &[Arc<Pod>], gone: &BTreeSet<String>) -> Vec<Removal> {
        let out_of_service: BTreeSet<&str> = nodes.iter().filter_map(|node| out_of_service(node)).collect();
        let is_on = |pod: &Pod, nodes: &dyn Fn(&str) -> bool| node_of(pod).is_some_and(nodes);
        let mut seen = BTreeSet::new();
        let mut removals = Vec::new();
        let mut remove = |pod: &Arc<Pod>, why: Why| {
            if seen.insert(pod.metadata.uid.clone()) {
                removals.push(Removal { pod: pod.clone(), why });
            }
        };
        self.surplus(pods).into_iter().for_each(|pod| remove(pod, Why::Terminated));
        // TC-159
        let stuck = |pod: &&Arc<Pod>| is_terminating(pod) && is_on(pod, &|name| out_of_service.contains(name));
        pods.iter().filter(stuck).for_each(|pod| remove(pod, Why::OutOfService));
        pods.iter().filter(|pod| is_on(pod, &|name| gone.contains(name))).for_each(|pod| remove(pod, Why::Orphaned));
        // TC-160
        let lost = |pod: &&Arc<Pod>| is_terminating(pod) && node_of(pod).is_none();
        pods.iter().filter(lost).for_each(|pod| remove(pod, Why::Unscheduled));
        removals
    }

    /// TC-153 to TC-156: who is one too many.
    fn surplus<'a>(&self, pods: &'a [Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
        let Some(max) = self.terminated_max else { return Vec::new() };
        let mut ended: Vec<_> = pods.iter().filter(|pod| is_ended(pod)).collect();
        let surplus = ended.len().saturating_sub(max);
        ended.sort_by_key(|pod| {
            let made_at = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (!is_evicted(pod), made_at, pod.metadata.name.clone())
        });
        ended.truncate(surplus);
        ended
    }
}

/// TC-155: no phase at all is not yet `Pending`.
fn is_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    !matches!(phase, "" | "Pending" | "Running" | "Unknown")
}

/// TC-154.
fn is_evicted(pod: &Pod) -> bool {
    let of = |status: &objects::api::core::v1::PodStatus| {
        status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some("Evicted")
    };
    pod.status.as_ref().is_some_and(of)
}

/// TC-159: the name of a node that is known to be off.
fn out_of_service(node: &Node) -> Option<&str> {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_off = taints.any(|taint| taint.key == OUT_OF_SERVICE) && Readiness::of(node) != Readiness::Ready;
    node.metadata.name.as_deref().filter(|_| is_off)
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
