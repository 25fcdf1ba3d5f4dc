//! Which nodes live, and what follows for those that do not (TC §6.2).
//!
//! Decides: when a silent node becomes `Unknown`, the taints of every node, how
//! fast nodes may lose their pods, whose pods are no longer ready.
//! Never: evicts a pod; that follows from taints (`taint_eviction.rs`).
//!
//! Everything but the first step follows from what the API shows: a silent node
//! is shown as `Unknown`, and taints and pods follow when that has been seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ambient::{Mono, Now, Timestamp};
use objects::api::coordination::v1::Lease;
use objects::api::core::v1::{Node, NodeCondition, Pod, Taint};
use objects::placement::conditions::Readiness;

mod silence;
mod taints;
mod zones;

use silence::Pulse;
use zones::Zones;

/// How often all nodes are looked at, besides when one changes (TC-173).
pub const MONITOR_PERIOD: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `node-monitor-grace-period`
    pub grace: Duration,
    /// `node-startup-grace-period`: of a node that never posted its status.
    pub startup_grace: Duration,
    /// `node-eviction-rate`, in nodes a second.
    pub rate: f64,
    /// `secondary-node-eviction-rate`: in a large zone that is largely down.
    pub secondary_rate: f64,
    /// `unhealthy-zone-threshold`: the share of a zone that makes it largely down.
    pub unhealthy_share: f64,
    /// `large-cluster-size-threshold`
    pub large_zone: usize,
    /// TC-194: how long after its deadline a pod of a lost node is called failed.
    pub lost_pod_delay: Option<Duration>,
}

impl Settings {
    pub fn upstream() -> Self {
        Self {
            grace: Duration::from_secs(50),
            startup_grace: Duration::from_secs(60),
            rate: 0.1,
            secondary_rate: 0.01,
            unhealthy_share: 0.55,
            large_zone: 50,
            lost_pod_delay: Some(Duration::from_secs(60)),
        }
    }
}

/// The cluster as it is seen.
pub struct Snapshot<'a> {
    pub nodes: &'a [Arc<Node>],
    /// Those in `kube-node-lease`.
    pub leases: &'a [Arc<Lease>],
    pub pods: &'a [Arc<Pod>],
}

/// Only on the object as it was seen; what changed meanwhile is looked at again.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// An Event about the node.
    Tell { node: Arc<Node>, reason: &'static str, message: String },
    /// These conditions and no others.
    ShowConditions { node: Arc<Node>, conditions: Vec<NodeCondition> },
    /// All taints the node has from now on.
    SetTaints { node: Arc<Node>, taints: Vec<Taint> },
    /// TC-181: its `Ready` condition becomes `False`, and an Event says so.
    UnreadyPod { pod: Arc<Pod> },
    /// TC-194: phase `Failed`, reason `NodeLost`.
    FailPod { pod: Arc<Pod>, message: String },
}

/// All that is remembered between two looks.
#[derive(Debug)]
pub struct Nodes {
    settings: Settings,
    known: BTreeMap<String, Known>,
    zones: Zones,
}

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    pulse: Pulse,
    readiness: Readiness,
    /// Not ready, and its pods are not told to go yet.
    waiting_since: Option<Mono>,
    /// Pods that were told since the node is not ready.
    unreadied: BTreeSet<String>,
}

impl Nodes {
    pub fn new(settings: Settings) -> Self {
        Self { settings, known: BTreeMap::new(), zones: Zones::default() }
    }

    /// Looks at everything: every period, and when a node changed.
    pub fn examine(&mut self, seen: &Snapshot<'_>, now: Now) -> Vec<Write> {
        let mut writes = Vec::new();
        self.meet(seen.nodes, &mut writes, now);
        self.listen(seen.leases, &mut writes, now);
        self.weigh_zones(now);
        self.taint(&mut writes, now);
        self.unready_pods(seen.pods, &mut writes);
        self.fail_lost_pods(seen.pods, &mut writes, now);
        writes
    }

    /// The next moment that matters before the period is over.
    pub fn wake_at(&self) -> Option<Mono> {
        let waits = self.known.iter().filter(|(_, known)| known.waiting_since.is_some());
        waits.filter_map(|(_, known)| self.zones.free_at(&known.node)).min()
    }

    /// What could not be written is planned again.
    pub fn failed(&mut self, write: &Write) {
        match write {
            Write::UnreadyPod { pod } => {
                if let Some(known) = self.known.get_mut(node_of(pod)) {
                    known.unreadied.remove(uid(pod));
                }
            }
            Write::SetTaints { node, taints } if taints::begins_loss(node, taints) => self.zones.give_back(node),
            Write::SetTaints { .. } | Write::Tell { .. } | Write::ShowConditions { .. } | Write::FailPod { .. } => {}
        }
    }

    /// TC-183: who is new, who is gone.
    fn meet(&mut self, nodes: &[Arc<Node>], writes: &mut Vec<Write>, now: Now) {
        let mut gone = std::mem::take(&mut self.known);
        for node in nodes {
            let known = gone.remove(name(node)).filter(|known| known.node.metadata.uid == node.metadata.uid);
            if known.is_none() {
                writes.push(tell(node, "RegisteredNode", |name| format!("Registered Node {name} in Controller")));
            }
            let known = known.unwrap_or_else(|| Known {
                node: node.clone(),
                pulse: Pulse::first(node, now),
                readiness: Readiness::of(node),
                waiting_since: None,
                unreadied: BTreeSet::new(),
            });
            self.known.insert(name(node).to_owned(), Known { node: node.clone(), ..known });
        }
        for known in gone.values() {
            writes.push(tell(&known.node, "RemovingNode", |name| format!("Removing Node {name} from Controller")));
        }
    }

    /// TC-173, TC-174: a node that has been silent for too long.
    fn listen(&mut self, leases: &[Arc<Lease>], writes: &mut Vec<Write>, now: Now) {
        let renewed: BTreeMap<&str, Timestamp> = leases.iter().filter_map(|lease| silence::renewal(lease)).collect();
        for (name, known) in &mut self.known {
            known.pulse.feel(&known.node, renewed.get(name.as_str()).copied(), now);
            let conditions = known.pulse.unknown(&known.node, &self.settings, now);
            if !conditions.is_empty() {
                writes.push(Write::ShowConditions { node: known.node.clone(), conditions });
            }
            let readiness = Readiness::of(&known.node);
            // TC-181: what the agent itself reports it also tells itself.
            if known.readiness == Readiness::Ready && readiness == Readiness::Unknown {
                let message = format!("Node {name} status is now: NodeNotReady");
                writes.push(Write::Tell { node: known.node.clone(), reason: "NodeNotReady", message });
            }
            known.readiness = readiness;
        }
    }

    /// TC-179: after an outage of everything nobody is late.
    fn weigh_zones(&mut self, now: Now) {
        let nodes = self.known.values().map(|known| (&*known.node, known.readiness));
        if self.zones.weigh(nodes, &self.settings) {
            self.known.values_mut().for_each(|known| known.pulse.restart(now));
        }
    }

    fn taint(&mut self, writes: &mut Vec<Write>, now: Now) {
        let mut queue: Vec<_> = self.known.values_mut().collect();
        queue.sort_by_key(|known| (known.waiting_since.is_none(), known.waiting_since));
        for known in queue {
            let executes = match taints::no_execute(&known.node, known.readiness) {
                taints::NoExecute::Stays(key) => {
                    known.waiting_since = None;
                    // TC-178: everything is down, so it is us who are cut off.
                    key.filter(|_| !self.zones.are_all_down())
                }
                taints::NoExecute::Wants(key) => {
                    known.waiting_since.get_or_insert(now.mono);
                    self.zones.take(&known.node, now).then_some(key)
                }
            };
            if let Some(taints) = taints::changed(&known.node, known.readiness, executes, now) {
                writes.push(Write::SetTaints { node: known.node.clone(), taints });
            }
        }
    }

    /// TC-181, TC-182: once for every pod while its node is not ready; what the
    /// agent says about it after that is its own affair.
    fn unready_pods(&mut self, pods: &[Arc<Pod>], writes: &mut Vec<Write>) {
        for known in self.known.values_mut().filter(|known| known.readiness == Readiness::Ready) {
            known.unreadied.clear();
        }
        for pod in pods {
            let Some(known) = self.known.get_mut(node_of(pod)) else { continue };
            let is_lost = matches!(known.readiness, Readiness::NotReady | Readiness::Unknown);
            if is_lost && known.unreadied.insert(uid(pod).to_owned()) && is_ready(pod) {
                writes.push(Write::UnreadyPod { pod: pod.clone() });
            }
        }
    }

    /// TC-194, TC-195: a pod that should be gone on a node nobody hears of.
    fn fail_lost_pods(&self, pods: &[Arc<Pod>], writes: &mut Vec<Write>, now: Now) {
        let Some(delay) = self.settings.lost_pod_delay else { return };
        for pod in pods {
            let node = node_of(pod);
            let is_lost = self.known.get(node).is_some_and(|known| known.readiness == Readiness::Unknown);
            let Some(deadline) = pod.metadata.deletion_timestamp.as_ref() else { continue };
            let late = Duration::try_from(now.wall.duration_since(deadline.0)).unwrap_or_default();
            if is_lost && !is_terminal(pod) && late >= delay {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let message = format!("Node {node} which was running pod {name} is unresponsive");
                writes.push(Write::FailPod { pod: pod.clone(), message });
            }
        }
    }
}

fn tell(node: &Arc<Node>, reason: &'static str, what: impl Fn(&str) -> String) -> Write {
    let name = name(node);
    Write::Tell { node: node.clone(), reason, message: format!("Node {name} event: {}", what(name)) }
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Also for its neighbours: the phase is final.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests;
