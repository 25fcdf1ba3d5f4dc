//! The pods of a node and what each takes of it.

use ambient::{Mono, Now};
use objects::Quantity;
use objects::requests::Resources;

use crate::fact::Fact;
use crate::node::Node;
use crate::resize::Allocation;
use crate::resources::{CPU, requests_of};
use crate::spec::PodSpec;

/// One pod.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    pub(super) spec: PodSpec,
    pub(super) allocation: Allocation,
    pub(super) standing: Standing,
    /// Its object is gone.
    pub(super) is_gone: bool,
    /// Until then it may wait for others that leave by themselves.
    pub(super) room_by: Option<Mono>,
    /// The last thing said about the resize it asks for.
    pub(super) resize: Option<super::resizing::Judgement>,
}

/// How far a pod got on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Others end first: they make room for a critical pod, or are its
    /// predecessors.
    Waiting {
        victims: Vec<String>,
    },
    Admitted,
    /// The node ends it; it takes room until it stopped.
    Ending,
    Rejected,
    /// Nothing of it runs.
    Stopped,
}

impl Seat {
    /// TC-310: with what it was given.
    pub(super) fn requests(&self) -> Resources {
        requests_of(&self.spec, &self.allocation)
    }

    pub(super) fn request(&self, resource: &str) -> i64 {
        self.requests().get(resource).map_or(0, |quantity| amount(resource, quantity))
    }

    /// When its waiting ends, whoever still runs.
    pub(super) fn waits_until(&self) -> Option<Mono> {
        matches!(self.standing, Standing::Waiting { .. }).then_some(self.room_by).flatten()
    }

    /// It runs, or may.
    pub(super) fn takes_room(&self) -> bool {
        match self.standing {
            Standing::Admitted | Standing::Ending => true,
            Standing::Waiting { .. } | Standing::Rejected | Standing::Stopped => false,
        }
    }
}

/// As messages and comparisons count it: thousandths of CPUs, else units.
pub(super) fn amount(resource: &str, quantity: &Quantity) -> i64 {
    if resource == CPU { quantity.milli() } else { quantity.value() }
}

impl Node {
    pub(super) fn active(&self) -> impl Iterator<Item = &Seat> {
        self.seats.values().filter(|seat| seat.takes_room())
    }

    /// LC-375: new pods of one batch, oldest first.
    pub(super) fn on_pods(&mut self, mut pods: Vec<PodSpec>, now: Now) {
        pods.sort_by_key(|pod| pod.needs.created_at);
        for pod in pods {
            if let Some(seat) = self.seats.get_mut(&pod.uid) {
                seat.spec = pod;
                continue;
            }
            self.on_new_pod(pod, now);
        }
        // TC-302: added or updated.
        self.retry_resizes(now);
    }

    fn on_new_pod(&mut self, pod: PodSpec, now: Now) {
        let uid = pod.uid.clone();
        // TC-299: the checkpoint knows better than the API.
        let allocation = self.restored.remove(&uid).unwrap_or_else(|| Allocation::recovered(&pod));
        let is_over = pod.published.phase.is_terminal();
        let is_going = pod.deletion.is_some();
        let standing = if is_over { Standing::Stopped } else { Standing::Admitted };
        let seat = Seat { spec: pod, allocation, standing, is_gone: false, room_by: None, resize: None };
        // LC-372, TC-278: terminal and terminating pods are not admitted again.
        if is_over || is_going {
            self.seats.insert(uid, seat);
            return;
        }
        self.admit(seat, now);
    }

    pub(super) fn on_pod_gone(&mut self, uid: &str, now: Now) {
        // What runs still takes room; the driver says when it stopped.
        if self.seats.get(uid).is_some_and(|seat| !seat.takes_room()) {
            self.seats.remove(uid);
        } else if let Some(seat) = self.seats.get_mut(uid) {
            seat.standing = Standing::Ending;
            seat.is_gone = true;
        }
        self.advance_shutdown(now);
    }

    pub(super) fn on_pod_stopped(&mut self, uid: &str, now: Now) {
        let Some(seat) = self.seats.get_mut(uid) else { return };
        if seat.standing != Standing::Rejected {
            seat.standing = Standing::Stopped;
        }
        if seat.is_gone {
            self.seats.remove(uid);
        }
        self.pressure.on_stopped(uid, now);
        self.advance_shutdown(now);
        self.admit_waiting(uid, now);
        // TC-302: removed.
        self.retry_resizes(now);
    }

    pub(super) fn evict(&mut self, uid: &str, eviction: super::Eviction) {
        if let Some(seat) = self.seats.get_mut(uid) {
            seat.standing = Standing::Ending;
        }
        self.tell(uid, Fact::Evicted(eviction));
    }
}
