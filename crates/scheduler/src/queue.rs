//! When each waiting pod is tried (again): order, back-off, what wakes whom.
//!
//! ```text
//! enqueue ──► active ──pop──► in flight ──park──► parked ──wake──► early or active
//!               ▲                 │                  └── after 5 min ──► active
//!               └── back-off over ◄── retry
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ambient::{Mono, Now};

use crate::PodUid;

/// What happened in the cluster that may help pods nobody would have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relief {
    /// A node came or changed in a way placement depends on.
    NodeChanged,
    /// A claim, a volume or a class came or changed.
    StorageChanged,
    /// A pod left a node or takes less of it.
    RoomMade,
}

/// TC-339: the places of waiting pods. Every pod is in exactly one.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: BTreeMap<PodUid, Entry>,
    /// To be tried now: highest priority first, then first come.
    active: BTreeSet<(Reverse<i32>, u64, PodUid)>,
    /// Backing off after an error; tried when the time has come.
    waiting: BTreeSet<(Mono, PodUid)>,
    /// Backing off although something relieved them; tried when nobody else is (TC-340).
    early: BTreeSet<(Mono, PodUid)>,
    /// Refused by all nodes; by the time at which they are tried regardless.
    parked: BTreeSet<(Mono, PodUid)>,
    /// Those of the parked that a leaving pod may help.
    wants_room: BTreeSet<PodUid>,
    arrivals: u64,
}

#[derive(Debug)]
struct Entry {
    priority: i32,
    spot: Spot,
    /// TC-340: refusals and errors are counted separately.
    refusals: u32,
    errors: u32,
    backoff_end: Mono,
}

#[derive(Debug, Clone, Copy)]
enum Spot {
    Active { priority: i32, arrival: u64 },
    Waiting,
    Early,
    Parked { until: Mono },
    InFlight,
}

impl Queue {
    pub(crate) fn contains(&self, uid: &PodUid) -> bool {
        self.entries.contains_key(uid)
    }

    /// A pod that is new, or that changed: tried at once. A pod in flight is
    /// left alone; its outcome comes as `park`, `retry` or `forget`.
    pub(crate) fn enqueue(&mut self, uid: &PodUid, priority: i32, now: Now) {
        match self.entries.get_mut(uid) {
            Some(Entry { spot: Spot::InFlight, .. }) => return,
            Some(entry) => entry.priority = priority,
            None => {
                let fresh = Entry { priority, spot: Spot::InFlight, refusals: 0, errors: 0, backoff_end: now.mono };
                self.entries.insert(uid.clone(), fresh);
            }
        }
        self.leave_spot(uid);
        self.activate(uid);
    }

    /// The pod to try now. It stays in flight until its outcome is told.
    pub(crate) fn pop(&mut self, now: Now) -> Option<PodUid> {
        self.promote(now);
        let first = self.active.first().map(|(_, _, uid)| uid).or_else(|| self.early.first().map(|(_, uid)| uid));
        let uid = first?.clone();
        self.leave_spot(&uid);
        Some(uid)
    }

    /// TC-341: all nodes refused; wait for relief, at most `PARKED_MAX`.
    pub(crate) fn park(&mut self, uid: &PodUid, wants_room: bool, now: Now) {
        self.leave_spot(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.refusals += 1;
        entry.backoff_end = backoff_end(entry.refusals, now);
        let until = now.mono + PARKED_MAX;
        entry.spot = Spot::Parked { until };
        self.parked.insert((until, uid.clone()));
        if wants_room {
            self.wants_room.insert(uid.clone());
        }
    }

    /// TC-342: an error; try again after the back-off.
    pub(crate) fn retry(&mut self, uid: &PodUid, now: Now) {
        self.leave_spot(uid);
        let Some(entry) = self.entries.get_mut(uid) else { return };
        entry.errors += 1;
        entry.backoff_end = backoff_end(entry.errors, now);
        entry.spot = Spot::Waiting;
        self.waiting.insert((entry.backoff_end, uid.clone()));
    }

    /// The pod in flight was not tried after all: its turn again.
    pub(crate) fn resume(&mut self, uid: &PodUid) {
        if self.entries.get(uid).is_some_and(|entry| matches!(entry.spot, Spot::InFlight)) {
            self.activate(uid);
        }
    }

    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.leave_spot(uid);
        self.entries.remove(uid);
    }

    /// Wakes those whom the relief may help, and nobody else.
    pub(crate) fn relieve(&mut self, relief: Relief, now: Now) {
        let helped: Vec<PodUid> = match relief {
            Relief::NodeChanged | Relief::StorageChanged => self.parked.iter().map(|(_, uid)| uid.clone()).collect(),
            Relief::RoomMade => self.wants_room.iter().cloned().collect(),
        };
        for uid in helped {
            self.leave_spot(&uid);
            let entry = self.entries.get_mut(&uid).expect("a parked pod has an entry");
            if entry.backoff_end <= now.mono {
                self.activate(&uid);
            } else {
                entry.spot = Spot::Early;
                self.early.insert((entry.backoff_end, uid));
            }
        }
    }

    /// When `pop` may have something it does not have now.
    pub(crate) fn wake_at(&self) -> Option<Mono> {
        let first = |set: &BTreeSet<(Mono, PodUid)>| set.first().map(|(at, _)| *at);
        first(&self.waiting).into_iter().chain(first(&self.parked)).min()
    }

    /// Moves those whose time has come to the active ones.
    fn promote(&mut self, now: Now) {
        let due = |set: &BTreeSet<(Mono, PodUid)>| {
            set.iter().take_while(|(at, _)| *at <= now.mono).map(|(_, uid)| uid.clone()).collect::<Vec<_>>()
        };
        let due = [due(&self.waiting), due(&self.early), due(&self.parked)];
        for uid in due.iter().flatten() {
            self.leave_spot(uid);
            self.activate(uid);
        }
    }

    fn activate(&mut self, uid: &PodUid) {
        let entry = self.entries.get_mut(uid).expect("only pods with an entry become active");
        self.arrivals += 1;
        entry.spot = Spot::Active { priority: entry.priority, arrival: self.arrivals };
        self.active.insert((Reverse(entry.priority), self.arrivals, uid.clone()));
    }

    /// Takes the pod out of the set it is in; it is in flight then.
    fn leave_spot(&mut self, uid: &PodUid) {
        let Some(entry) = self.entries.get_mut(uid) else { return };
        match std::mem::replace(&mut entry.spot, Spot::InFlight) {
            Spot::Active { priority, arrival } => self.active.remove(&(Reverse(priority), arrival, uid.clone())),
            Spot::Waiting => self.waiting.remove(&(entry.backoff_end, uid.clone())),
            Spot::Early => self.early.remove(&(entry.backoff_end, uid.clone())),
            Spot::Parked { until } => {
                self.wants_room.remove(uid);
                self.parked.remove(&(until, uid.clone()))
            }
            Spot::InFlight => return,
        };
    }
}

/// TC-340: 1 s, doubled per failure, at most 10 s, ending on a whole second so
/// that pods that failed together are tried together.
fn backoff_end(failures: u32, now: Now) -> Mono {
    let doublings = failures.saturating_sub(1).min(BACKOFF_MAX.as_secs().ilog2() + 1);
    let delay = (BACKOFF_MIN * 2_u32.pow(doublings)).min(BACKOFF_MAX);
    let end = (now.mono + delay).since(Mono::from_start(Duration::ZERO));
    Mono::from_start(Duration::from_secs(end.as_secs()))
}

/// Upstream: `podInitialBackoffSeconds`.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Upstream: `podMaxBackoffSeconds`.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Upstream: `pod-max-in-unschedulable-pods-duration`.
const PARKED_MAX: Duration = Duration::from_secs(300);

const _: () = assert!(BACKOFF_MIN.as_secs() <= BACKOFF_MAX.as_secs());

#[cfg(test)]
#[path = "queue/tests.rs"]
mod tests;
