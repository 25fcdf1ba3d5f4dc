//! One decision: a node for one pod, or the reasons why none.

use std::collections::BTreeMap;

use crate::filter::{Ask, objection};
use crate::message::Preemption;
use crate::score::scores;
use crate::snapshot::Place;
use crate::{Node, NodeName, PodToPlace, Reason, Rejection, Snapshot};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Place(NodeName),
    Nowhere(Nowhere),
}

/// Why no node will have the pod; `message()` is what users read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nowhere {
    pub node_count: usize,
    /// What stands in the way whatever the node (TC-326: prefilter text).
    pub obstacle: Option<String>,
    /// How many nodes gave each reason.
    pub reasons: BTreeMap<Reason, usize>,
    pub preemption: Preemption,
}

impl Nowhere {
    fn blocked(node_count: usize, obstacle: String, pod: &PodToPlace) -> Self {
        let preemption = Preemption::not_asked(node_count, pod);
        Self { node_count, obstacle: Some(obstacle), reasons: BTreeMap::new(), preemption }
    }

    /// TC-341: whether a pod leaving its node may help.
    pub(crate) fn yields_to_room(&self) -> bool {
        self.reasons.keys().any(Reason::yields_to_room)
    }
}

/// Chooses the best node. Among equals `draw` decides (TC-329): a random
/// number spreads, a constant is reproducible.
pub fn plan(snapshot: &Snapshot, pod: &PodToPlace, draw: u64) -> Decision {
    let reach = match snapshot.claims.reach(&pod.claims) {
        Ok(reach) => reach,
        Err(obstacle) => return Decision::Nowhere(Nowhere::blocked(snapshot.node_count(), obstacle, pod)),
    };
    let ask = Ask { pod, reach: &reach };
    let mut fitting: Vec<(&Node, &Place)> = Vec::new();
    let mut refusing: Vec<(&Node, &Place, Rejection)> = Vec::new();
    for (node, place) in snapshot.nodes() {
        match objection(node, place.usage(), ask) {
            None => fitting.push((node, place)),
            Some(rejection) => refusing.push((node, place, rejection)),
        }
    }
    match best(&fitting, pod, draw) {
        Some(node) => Decision::Place(node.name.clone()),
        None => Decision::Nowhere(explain(snapshot.node_count(), &refusing, ask)),
    }
}

fn best<'a>(fitting: &[(&'a Node, &Place)], pod: &PodToPlace, draw: u64) -> Option<&'a Node> {
    if let [] | [_] = fitting {
        return fitting.first().map(|(node, _)| *node);
    }
    let scores = scores(fitting, pod);
    let highest = scores.iter().max()?;
    let winners: Vec<_> =
        fitting.iter().zip(&scores).filter(|(_, score)| *score == highest).map(|((node, _), _)| *node).collect();
    let index = draw % u64::try_from(winners.len()).ok()?;
    winners.get(usize::try_from(index).ok()?).copied()
}

fn explain(node_count: usize, refusing: &[(&Node, &Place, Rejection)], ask: Ask<'_>) -> Nowhere {
    assert_eq!(node_count, refusing.len(), "a node neither fits nor refuses");
    let mut reasons = BTreeMap::new();
    for reason in refusing.iter().flat_map(|(_, _, rejection)| &rejection.reasons) {
        *reasons.entry(reason.clone()).or_default() += 1;
    }
    Nowhere { node_count, obstacle: None, reasons, preemption: Preemption::consider(refusing, ask) }
}
