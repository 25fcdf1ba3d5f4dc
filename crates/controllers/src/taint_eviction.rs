//! Who must leave a node because of its `NoExecute` taints, and when (TC §6.3).
//!
//! Decides: which pods are deleted now, and which after how long.
//! Never: how a deleted pod ends; its node decides that, if it lives.
//!
//! Times are counted from when a pod was first seen beside the taint; they are
//! not remembered across restarts (TC-186).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ambient::{Mono, Now};
use objects::api::core::v1::{Node, Pod, Toleration as Declared};
use objects::placement::{Effect, Taint, Toleration, is_tolerated};

#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// TC-187: an Event, the condition, then an ordinary deletion.
    Delete { pod: Arc<Pod> },
    /// TC-186: an Event; nothing happens to it after all.
    TellCancelled { pod: Arc<Pod> },
}

/// All that is remembered between two looks.
#[derive(Debug, Default)]
pub struct TaintEviction {
    /// By UID: since when, and until when.
    countdowns: BTreeMap<String, Countdown>,
    /// Deletions that were asked for, by UID.
    asked: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy)]
struct Countdown {
    since: Mono,
    due_at: Mono,
}

/// How long a pod may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    Forever,
    For(Duration),
    No,
}

impl TaintEviction {
    /// Whether there is anything to do, which needs no look at pods.
    pub fn concerns(&self, nodes: &[Arc<Node>]) -> bool {
        !self.countdowns.is_empty() || !self.asked.is_empty() || nodes.iter().any(|node| !taints(node).is_empty())
    }

    pub fn examine(&mut self, nodes: &[Arc<Node>], pods: &[Arc<Pod>], now: Now) -> Vec<Write> {
        let tainted: BTreeMap<&str, Vec<Taint>> = nodes
            .iter()
            .map(|node| (node.metadata.name.as_deref().unwrap_or_default(), taints(node)))
            .filter(|(_, taints)| !taints.is_empty())
            .collect();
        let (mut writes, mut there) = (Vec::new(), BTreeSet::new());
        for pod in pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            there.insert(uid(pod));
            let leave = match tainted.get(node) {
                // Who is on the way out need not be sent away.
                Some(_) if pod.metadata.deletion_timestamp.is_some() => {
                    self.countdowns.remove(uid(pod));
                    continue;
                }
                Some(taints) => leave(taints, pod),
                None => Leave::Forever,
            };
            writes.extend(self.judge(pod, leave, now));
        }
        self.countdowns.retain(|uid, _| there.contains(uid.as_str()));
        self.asked.retain(|uid| there.contains(uid.as_str()));
        writes
    }

    pub fn wake_at(&self) -> Option<Mono> {
        self.countdowns.values().map(|countdown| countdown.due_at).min()
    }

    /// A deletion that could not be asked for is planned again.
    pub fn failed(&mut self, pod: &Pod) {
        self.asked.remove(uid(pod));
    }

    /// TC-185, TC-186.
    fn judge(&mut self, pod: &Arc<Pod>, leave: Leave, now: Now) -> Option<Write> {
        let known = self.countdowns.get(uid(pod)).copied();
        let due_at = match leave {
            Leave::Forever => {
                self.asked.remove(uid(pod));
                return self.countdowns.remove(uid(pod)).map(|_| Write::TellCancelled { pod: pod.clone() });
            }
            Leave::For(length) => known.map_or(now.mono, |countdown| countdown.since) + length,
            Leave::No => now.mono,
        };
        if due_at > now.mono {
            let since = known.map_or(now.mono, |countdown| countdown.since);
            self.countdowns.insert(uid(pod).to_owned(), Countdown { since, due_at });
            return None;
        }
        self.countdowns.remove(uid(pod));
        self.asked.insert(uid(pod).to_owned()).then(|| Write::Delete { pod: pod.clone() })
    }
}

/// TC-185: the shortest of the tolerations that are used.
fn leave(taints: &[Taint], pod: &Pod) -> Leave {
    let declared = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut shortest = None;
    for taint in taints {
        let Some(used) = declared.iter().find(|it| tolerates(it, taint)) else { return Leave::No };
        let Some(seconds) = used.toleration_seconds else { continue };
        let length = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        shortest = Some(shortest.map_or(length, |known: Duration| known.min(length)));
    }
    shortest.map_or(Leave::Forever, Leave::For)
}

fn tolerates(declared: &Declared, taint: &Taint) -> bool {
    is_tolerated(taint, &[Toleration::parse(declared)])
}

/// TC-189: whoever put them there.
fn taints(node: &Node) -> Vec<Taint> {
    let declared = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let executing = declared.filter(|taint| Effect::parse(&taint.effect) == Some(Effect::NoExecute));
    let parsed = executing.map(|taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: Effect::NoExecute,
    });
    parsed.collect()
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
