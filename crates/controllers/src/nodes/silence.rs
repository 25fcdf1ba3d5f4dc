//! Since when has nobody heard of a node? (TC-173, TC-174)

use ambient::{Mono, Now, Timestamp};
use objects::api::coordination::v1::Lease;
use objects::api::core::v1::{Node, NodeCondition};
use objects::apimachinery::pkg::apis::meta::v1::Time;

use super::Settings;

/// `Ready` comes last: clients read the last condition.
const TOLD_BY_AGENTS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];

/// Times of the node's own clock are only compared with each other, so that
/// clocks may differ between machines.
#[derive(Debug)]
pub(super) struct Pulse {
    /// By our clock.
    felt_at: Mono,
    heartbeat: Option<Timestamp>,
    renewed: Option<Timestamp>,
}

impl Pulse {
    /// A node that said something before us starts anew; one that never did
    /// has had its time since it was made.
    pub(super) fn first(node: &Node, now: Now) -> Self {
        let made_at = node.metadata.creation_timestamp.as_ref().map_or(now.wall, |time| time.0);
        let heartbeat = heartbeat(node);
        let felt_at = if heartbeat.is_some() { now.mono } else { now.mono_of(made_at) };
        Self { felt_at, heartbeat, renewed: None }
    }

    /// TC-173: either of the two is enough.
    pub(super) fn feel(&mut self, node: &Node, renewed: Option<Timestamp>, now: Now) {
        let heartbeat = heartbeat(node);
        if heartbeat != self.heartbeat || renewed > self.renewed {
            self.felt_at = now.mono;
        }
        self.heartbeat = heartbeat;
        self.renewed = self.renewed.max(renewed);
    }

    pub(super) fn restart(&mut self, now: Now) {
        self.felt_at = now.mono;
    }

    /// TC-174: what is to be shown instead of conditions nobody confirms;
    /// nothing while there is hope, and nothing twice.
    pub(super) fn unknown(&self, node: &Node, settings: &Settings, now: Now) -> Vec<NodeCondition> {
        let has_told = condition(node, "Ready").is_some();
        let grace = if has_told { settings.grace } else { settings.startup_grace };
        if now.mono.since(self.felt_at) <= grace {
            return Vec::new();
        }
        TOLD_BY_AGENTS.into_iter().filter_map(|type_| unknown(node, type_, now)).collect()
    }
}

fn unknown(node: &Node, type_: &str, now: Now) -> Option<NodeCondition> {
    let (heartbeat, reason, message) = match condition(node, type_) {
        Some(held) if held.status == "Unknown" => return None,
        Some(held) => (held.last_heartbeat_time.clone(), "NodeStatusUnknown", "Kubelet stopped posting node status."),
        None => {
            let made_at = node.metadata.creation_timestamp.clone();
            (made_at, "NodeStatusNeverUpdated", "Kubelet never posted node status.")
        }
    };
    Some(NodeCondition {
        type_: type_.to_owned(),
        status: "Unknown".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: heartbeat,
        last_transition_time: Some(Time(now.wall)),
    })
}

/// The node a lease is of, and when it was last renewed.
pub(super) fn renewal(lease: &Lease) -> Option<(&str, Timestamp)> {
    Some((lease.metadata.name.as_deref()?, lease.spec.as_ref()?.renew_time.as_ref()?.0))
}

fn heartbeat(node: &Node) -> Option<Timestamp> {
    Some(condition(node, "Ready")?.last_heartbeat_time.as_ref()?.0)
}

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == type_)
}
