//! The cluster as far as placement depends on it, kept current change by
//! change; no change costs more than the objects it touches.

use std::collections::{BTreeMap, BTreeSet};

use objects::placement::HostPort;

use crate::claims::Claims;
use crate::{Node, NodeName, PodToPlace, PodUid, Resources};

/// Nodes, and what the pods on them take. Pods may be known before their
/// node is and may outlive it; such a place is no node yet.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    places: BTreeMap<NodeName, Place>,
    homes: BTreeMap<PodUid, NodeName>,
    node_count: usize,
    pub(crate) claims: Claims,
}

/// Whether a change to the snapshot changed anything a decision reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Nothing,
    Something,
}

impl Changed {
    pub(crate) fn when(is_changed: bool) -> Self {
        if is_changed { Self::Something } else { Self::Nothing }
    }
}

/// What one pod takes from its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedPod {
    pub(crate) priority: i32,
    pub(crate) requests: Resources,
    pub(crate) scored: Resources,
    pub(crate) ports: BTreeSet<HostPort>,
}

impl From<&PodToPlace> for PlacedPod {
    fn from(pod: &PodToPlace) -> Self {
        Self {
            priority: pod.priority,
            requests: pod.requests.clone(),
            scored: pod.scored.clone(),
            ports: pod.ports.clone(),
        }
    }
}

impl Snapshot {
    pub fn upsert_node(&mut self, node: Node) -> Changed {
        let place = self.places.entry(node.name.clone()).or_default();
        if place.node.as_ref() == Some(&node) {
            return Changed::Nothing;
        }
        self.node_count += usize::from(place.node.is_none());
        place.node = Some(node);
        Changed::Something
    }

    pub fn remove_node(&mut self, name: &NodeName) {
        let Some(place) = self.places.get_mut(name) else { return };
        self.node_count -= usize::from(place.node.take().is_some());
        if place.pods.is_empty() {
            self.places.remove(name);
        }
    }

    /// Puts the pod on the node, moving it there if it was elsewhere.
    pub fn upsert_pod(&mut self, uid: PodUid, node: &NodeName, pod: PlacedPod) -> Changed {
        let known = self.homes.get(&uid) == Some(node);
        if known && self.places.get(node).is_some_and(|place| place.pods.get(&uid) == Some(&pod)) {
            return Changed::Nothing;
        }
        self.remove_pod(&uid);
        let place = self.places.entry(node.clone()).or_default();
        place.usage.add(&pod);
        place.pods.insert(uid.clone(), pod);
        self.homes.insert(uid, node.clone());
        Changed::Something
    }

    pub fn remove_pod(&mut self, uid: &PodUid) -> Changed {
        let Some(name) = self.homes.remove(uid) else { return Changed::Nothing };
        let place = self.places.get_mut(&name).expect("a pod's home is a place: both are written together");
        let pod = place.pods.remove(uid).expect("a home lists its pods: both are written together");
        place.usage.subtract(&pod);
        if place.pods.is_empty() && place.node.is_none() {
            self.places.remove(&name);
        }
        Changed::Something
    }

    pub(crate) fn has_pod(&self, uid: &PodUid) -> bool {
        self.homes.contains_key(uid)
    }

    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// Nodes in the order of their names, with what is taken from them.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Node, &Place)> {
        self.places.values().filter_map(|place| Some((place.node.as_ref()?, place)))
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    node: Option<Node>,
    pods: BTreeMap<PodUid, PlacedPod>,
    usage: Usage,
}

impl Place {
    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What would be taken if all pods below `priority` were gone; `None` if
    /// there are none such.
    pub(crate) fn usage_above(&self, priority: i32) -> Option<Usage> {
        let mut usage = None;
        for pod in self.pods.values().filter(|pod| pod.priority < priority) {
            usage.get_or_insert_with(|| self.usage.clone()).subtract(pod);
        }
        usage
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) pod_count: u64,
    pub(crate) requests: Resources,
    pub(crate) scored: Resources,
    /// How many pods hold the port; more than one only where pods were bound
    /// past this scheduler.
    ports: BTreeMap<HostPort, u32>,
}

impl Usage {
    pub(crate) fn add(&mut self, pod: &PlacedPod) {
        self.pod_count += 1;
        self.requests.add(&pod.requests);
        self.scored.add(&pod.scored);
        for port in &pod.ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
    }

    fn subtract(&mut self, pod: &PlacedPod) {
        self.pod_count -= 1;
        self.requests.subtract(&pod.requests);
        self.scored.subtract(&pod.scored);
        for port in &pod.ports {
            let holders = self.ports.get_mut(port).expect("a placed pod's ports were counted");
            *holders -= 1;
            if *holders == 0 {
                self.ports.remove(port);
            }
        }
    }

    pub(crate) fn has_port_conflict(&self, wanted: &BTreeSet<HostPort>) -> bool {
        !wanted.is_empty() && self.ports.keys().any(|held| wanted.iter().any(|port| port.conflicts_with(held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_node;

    fn pod(cpu: &str) -> PlacedPod {
        let requests: Resources = [("cpu", cpu.parse().expect("a quantity"))].into_iter().collect();
        PlacedPod { priority: 0, scored: requests.clone(), requests, ports: BTreeSet::new() }
    }

    fn node(name: &str) -> Node {
        let mut node = objects::api::core::v1::Node::default();
        node.metadata.name = Some(name.to_owned());
        parse_node(&node)
    }

    fn cpu_taken(snapshot: &Snapshot) -> Vec<(&str, u64, u128)> {
        snapshot
            .nodes()
            .map(|(node, place)| (node.name.as_str(), place.usage.pod_count, place.usage.requests.of("cpu")))
            .collect()
    }

    #[test]
    fn pods_count_on_their_node_whichever_is_seen_first_and_when_they_move() {
        let (one, two) = (PodUid::from("1"), PodUid::from("2"));
        let mut snapshot = Snapshot::default();
        snapshot.upsert_pod(one.clone(), &"n1".into(), pod("500m"));
        assert_eq!(cpu_taken(&snapshot), []);
        snapshot.upsert_node(node("n1"));
        snapshot.upsert_node(node("n2"));
        snapshot.upsert_pod(two.clone(), &"n1".into(), pod("1"));
        assert_eq!(cpu_taken(&snapshot), [("n1", 2, 1500), ("n2", 0, 0)]);
        snapshot.upsert_pod(two.clone(), &"n2".into(), pod("2"));
        assert_eq!(cpu_taken(&snapshot), [("n1", 1, 500), ("n2", 1, 2000)]);
        snapshot.remove_node(&"n1".into());
        assert_eq!((cpu_taken(&snapshot), snapshot.node_count()), (vec![("n2", 1, 2000)], 1));
        snapshot.upsert_node(node("n1"));
        snapshot.remove_pod(&two);
        assert_eq!(cpu_taken(&snapshot), [("n1", 1, 500), ("n2", 0, 0)]);
        snapshot.remove_pod(&one);
        snapshot.remove_node(&"n1".into());
        snapshot.remove_node(&"n2".into());
        assert!(snapshot.places.is_empty() && snapshot.homes.is_empty() && snapshot.node_count() == 0);
    }

    #[test]
    fn a_change_that_changes_nothing_says_so() {
        let mut snapshot = Snapshot::default();
        assert_eq!(snapshot.upsert_node(node("n1")), Changed::Something);
        assert_eq!(snapshot.upsert_node(node("n1")), Changed::Nothing);
        assert_eq!(snapshot.upsert_pod("1".into(), &"n1".into(), pod("1")), Changed::Something);
        assert_eq!(snapshot.upsert_pod("1".into(), &"n1".into(), pod("1")), Changed::Nothing);
        assert_eq!(snapshot.remove_pod(&"2".into()), Changed::Nothing);
    }
}
