//! How a node stops its pods when the machine is about to stop (TC §7.6).
//!
//! Decides: the groups, their order, the grace of each pod, and when the next
//! group begins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ambient::{Mono, Now, Timestamp};

use crate::node::seats::{Seat, Standing};
use crate::node::{Eviction, EvictionCause, Node, NodeCondition};
use crate::state::Severity;

/// Pods of this priority and above, up to the next group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownGroup {
    pub priority: i32,
    pub period: Duration,
}

impl ShutdownGroup {
    /// TC-249: `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`.
    pub fn pair(total: Duration, critical: Duration) -> Vec<Self> {
        if total.is_zero() {
            return Vec::new();
        }
        vec![
            Self { priority: 0, period: total.saturating_sub(critical) },
            Self { priority: 2_000_000_000, period: critical },
        ]
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shutdown {
    None,
    /// The current group, when it must be over, and who is left of it.
    Stopping {
        group: usize,
        until: Mono,
        left: BTreeSet<String>,
        since: Timestamp,
    },
    /// Every group had its turn; the machine may stop.
    Over {
        since: Timestamp,
    },
}

impl Shutdown {
    pub(super) fn is_on(&self) -> bool {
        *self != Shutdown::None
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        match self {
            Shutdown::Stopping { until, .. } => Some(*until),
            Shutdown::None | Shutdown::Over { .. } => None,
        }
    }

    /// TC-250.
    pub(super) fn condition(&self) -> Option<NodeCondition> {
        let since = match self {
            Shutdown::None => return None,
            Shutdown::Stopping { since, .. } | Shutdown::Over { since } => *since,
        };
        Some(NodeCondition {
            kind: "Ready",
            is_true: false,
            reason: "KubeletNotReady",
            message: "node is shutting down",
            since: Some(since),
        })
    }
}

impl Node {
    /// The machine may stop: no pod is waited for any more.
    pub fn has_shut_down(&self) -> bool {
        matches!(self.shutdown, Shutdown::Over { .. })
    }

    /// TC-248: without configuration nothing happens.
    pub(super) fn on_shutdown(&mut self, now: Now) {
        if self.settings.shutdown_groups.is_empty() || self.shutdown.is_on() {
            return;
        }
        self.note(Severity::Normal, "Shutdown", "Shutdown manager detected shutdown event".to_owned());
        self.begin_group(0, now.wall, now);
    }

    /// TC-253: what was stopped stays so.
    pub(super) fn on_shutdown_cancelled(&mut self) {
        if self.shutdown.is_on() {
            self.note(Severity::Normal, "Shutdown", "Shutdown manager detected shutdown cancellation".to_owned());
        }
        self.shutdown = Shutdown::None;
    }

    /// TC-251: the next group, when this one is gone or its time is up.
    pub(super) fn advance_shutdown(&mut self, now: Now) {
        let Shutdown::Stopping { group, until, left, since } = &mut self.shutdown else { return };
        let seats = &self.seats;
        left.retain(|uid| seats.get(uid).is_some_and(Seat::takes_room));
        if left.is_empty() || *until <= now.mono {
            let (next, since) = (*group + 1, *since);
            self.begin_group(next, since, now);
        }
    }

    /// TC-250: from low to high priority; empty groups are skipped.
    fn begin_group(&mut self, first: usize, since: Timestamp, now: Now) {
        let mut groups = self.settings.shutdown_groups.clone();
        groups.sort_by_key(|group| group.priority);
        for (index, group) in groups.iter().enumerate().skip(first) {
            let members = self.members(&groups, index);
            if members.is_empty() {
                continue;
            }
            let until = now.mono + group.period;
            self.shutdown = Shutdown::Stopping { group: index, until, left: members.clone(), since };
            for uid in members {
                self.stop_for_shutdown(&uid, group.period);
            }
            return;
        }
        self.shutdown = Shutdown::Over { since };
    }

    /// A pod belongs to the highest group whose priority is not above its own;
    /// one below all of them to the lowest.
    fn members(&self, groups: &[ShutdownGroup], index: usize) -> BTreeSet<String> {
        let group_of = |seat: &Seat| {
            let own = seat.spec.needs.priority;
            groups.iter().rposition(|group| group.priority <= own).unwrap_or(0)
        };
        let members = self.active().filter(|seat| group_of(seat) == index);
        members.map(|seat| seat.spec.uid.clone()).collect()
    }

    fn stop_for_shutdown(&mut self, uid: &str, period: Duration) {
        let Some(seat) = self.seats.get(uid) else { return };
        let was_ending = seat.standing == Standing::Ending;
        let grace = Some(period.min(seat.spec.grace));
        let message = "Pod was terminated in response to imminent node shutdown.".to_owned();
        let cause = EvictionCause::Shutdown;
        debug_assert!(was_ending || seat.standing == Standing::Admitted, "only what runs is stopped");
        self.evict(uid, Eviction { cause, message, grace, annotations: BTreeMap::new() });
    }
}
