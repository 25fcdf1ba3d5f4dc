//! How fast may nodes lose their pods? (TC-177 to TC-180)
//!
//! Many nodes that vanish at once are more likely a broken network than broken
//! nodes, and nodes that all vanish are a broken network of ours.

use std::collections::BTreeMap;
use std::time::Duration;

use ambient::{Mono, Now};
use objects::api::core::v1::Node;
use objects::placement::conditions::Readiness;

use super::Settings;

#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<String, Zone>,
    are_all_down: bool,
}

#[derive(Debug, Default)]
struct Zone {
    ready: usize,
    lost: usize,
    /// Time between two nodes; `None`: no node at all.
    pause: Option<Duration>,
    last_at: Option<Mono>,
}

impl Zones {
    /// Counts anew; answers whether the end of an outage of everything was seen.
    pub(super) fn weigh<'a>(
        &mut self,
        nodes: impl Iterator<Item = (&'a Node, Readiness)>,
        settings: &Settings,
    ) -> bool {
        self.zones.values_mut().for_each(|zone| (zone.ready, zone.lost) = (0, 0));
        for (node, readiness) in nodes {
            let zone = self.zones.entry(zone_of(node)).or_default();
            // TC-178: what an operator takes out of the reckoning.
            if label(node, "node.kubernetes.io/exclude-disruption").is_some() {
                continue;
            }
            match readiness {
                Readiness::Ready => zone.ready += 1,
                Readiness::NotReady | Readiness::Unknown | Readiness::NeverTold => zone.lost += 1,
            }
        }
        for zone in self.zones.values_mut() {
            zone.pause = zone.pause(settings);
        }
        let counted = || self.zones.values().filter(|zone| zone.ready + zone.lost > 0);
        let are_all_down = counted().next().is_some() && counted().all(Zone::is_down);
        std::mem::replace(&mut self.are_all_down, are_all_down) && !are_all_down
    }

    pub(super) fn are_all_down(&self) -> bool {
        self.are_all_down
    }

    /// TC-177: whether it is this node's turn; if so it is used up.
    pub(super) fn take(&mut self, node: &Node, now: Now) -> bool {
        let is_free = self.free_at(node).is_some_and(|at| at <= now.mono);
        if let Some(zone) = self.zones.get_mut(&zone_of(node)).filter(|_| is_free) {
            zone.last_at = Some(now.mono);
        }
        is_free
    }

    /// The turn was of no use.
    pub(super) fn give_back(&mut self, node: &Node) {
        if let Some(zone) = self.zones.get_mut(&zone_of(node)) {
            zone.last_at = None;
        }
    }

    /// When the next node of its zone may go; `None`: not before things change.
    pub(super) fn free_at(&self, node: &Node) -> Option<Mono> {
        let zone = self.zones.get(&zone_of(node)).filter(|_| !self.are_all_down)?;
        let pause = zone.pause?;
        Some(zone.last_at.map_or(Mono::from_start(Duration::ZERO), |at| at + pause))
    }
}

impl Zone {
    fn is_down(&self) -> bool {
        self.ready == 0 && self.lost > 0
    }

    /// TC-178.
    fn pause(&self, settings: &Settings) -> Option<Duration> {
        let size = self.ready + self.lost;
        #[expect(clippy::cast_precision_loss, reason = "a share of a few nodes")]
        let share = self.lost as f64 / size.max(1) as f64;
        let is_largely_down = self.lost > 2 && share >= settings.unhealthy_share;
        let rate = match (self.is_down() || !is_largely_down, size > settings.large_zone) {
            (true, _) => settings.rate,
            (false, true) => settings.secondary_rate,
            (false, false) => 0.0,
        };
        (rate > 0.0).then(|| Duration::from_secs_f64(1.0 / rate))
    }
}

/// TC-178: nodes without labels form one zone.
fn zone_of(node: &Node) -> String {
    let part = |name: &str| label(node, name).unwrap_or_default();
    format!("{}:{}", part("topology.kubernetes.io/region"), part("topology.kubernetes.io/zone"))
}

fn label<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(name).map(String::as_str)
}
