//! What users read when no node will have a pod, to the letter (TC-326).

use crate::filter::{Ask, objection};
use crate::plan::Nowhere;
use crate::snapshot::Place;
use crate::{Node, PodToPlace, Reason, Rejection};

/// Whether making room was considered, and what each node said to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preemption {
    /// TC-222: `preemptionPolicy: Never`.
    Forbidden,
    Hopeless {
        /// Nodes that refuse for reasons no removal of pods cures.
        unhelpful: usize,
        /// Nodes on which nobody may be removed for this pod.
        no_victims: usize,
        /// What still stands in the way once all lesser pods are gone.
        remaining: Vec<Reason>,
    },
}

impl Preemption {
    /// No node was asked at all.
    pub(crate) fn not_asked(node_count: usize, pod: &PodToPlace) -> Self {
        if !pod.may_preempt {
            return Self::Forbidden;
        }
        Self::Hopeless { unhelpful: node_count, no_victims: 0, remaining: Vec::new() }
    }

    pub(crate) fn consider(refusing: &[(&Node, &Place, Rejection)], ask: Ask<'_>) -> Self {
        let pod = ask.pod;
        if !pod.may_preempt {
            return Self::Forbidden;
        }
        let (mut unhelpful, mut no_victims, mut remaining) = (0, 0, Vec::new());
        for (node, place, rejection) in refusing {
            if !rejection.is_resolvable {
                unhelpful += 1;
                continue;
            }
            let still = place.usage_above(pod.priority).and_then(|usage| objection(node, &usage, ask));
            match still {
                Some(rejection) => remaining.extend(rejection.reasons),
                None => no_victims += 1,
            }
        }
        Self::Hopeless { unhelpful, no_victims, remaining }
    }

    fn message(&self, node_count: usize) -> String {
        match self {
            Self::Forbidden => "preemption: not eligible due to preemptionPolicy=Never.".to_owned(),
            Self::Hopeless { unhelpful, no_victims, remaining } => {
                let mut counts = std::collections::BTreeMap::from([
                    ("Preemption is not helpful for scheduling".to_owned(), *unhelpful),
                    ("No preemption victims found for incoming pod".to_owned(), *no_victims),
                ]);
                for reason in remaining {
                    *counts.entry(reason.to_string()).or_default() += 1;
                }
                format!("preemption: {}", sentence(node_count, counts))
            }
        }
    }
}

impl Nowhere {
    /// TC-326: counts and reasons, sorted as text, then what preemption said.
    pub fn message(&self) -> String {
        if self.node_count == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        if let Some(obstacle) = &self.obstacle {
            let preemption = self.preemption.message(self.node_count);
            return format!("0/{} nodes are available: {obstacle}. {preemption}", self.node_count);
        }
        let reasons = self.reasons.iter().map(|(reason, count)| (reason.to_string(), *count));
        format!("{} {}", sentence(self.node_count, reasons), self.preemption.message(self.node_count))
    }
}

fn sentence(node_count: usize, reasons: impl IntoIterator<Item = (String, usize)>) -> String {
    let mut items: Vec<String> = reasons
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    items.sort();
    format!("0/{node_count} nodes are available: {}.", items.join(", "))
}
