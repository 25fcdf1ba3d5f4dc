//! The scheduler's memory: which pods wait, which are assumed on a node, and
//! what is to be done about the next one.
//!
//! Decides: whose turn it is, where it goes, what users are told.
//! Never: binds or writes (`reconciler` does), reads a clock.
//! Read next: `plan.rs` for one placement, `queue.rs` for when to try.
//!
//! Invariants, checked in `tests/scenarios.rs`:
//! 1. At most one binding of a pod is in flight.
//! 2. From the decision on, a pod counts on its node until it is seen bound,
//!    is gone, or its binding failed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ambient::{Mono, Now};

use crate::claims::{Claim, ClaimKey, Claims, Volume};
use crate::plan::{Decision, Nowhere, plan};
use crate::pod::{PodSeen, Shown};
use crate::queue::{Queue, Relief};
use crate::snapshot::Changed;
use crate::{Node, NodeName, PlacedPod, PodKey, PodUid, Snapshot};

/// What happened, as far as placement is concerned.
#[derive(Debug, Clone)]
pub enum Fact {
    NodeSeen(Node),
    NodeGone(NodeName),
    PodSeen(Box<PodSeen>),
    PodGone(PodUid),
    ClaimSeen(Claim),
    ClaimGone(ClaimKey),
    VolumeSeen(Volume),
    VolumeGone(String),
    /// Whether its claims wait for a pod.
    ClassSeen {
        name: String,
        waits: bool,
    },
    ClassGone(String),
    /// The API server accepted a binding.
    Bound {
        pod: PodKey,
        node: NodeName,
    },
    BindFailed(PodUid, BindFailure),
    /// A failure was written into the status, or nobody is there to read it.
    Shown(PodUid),
    /// A failure could not be written into the status.
    ShowFailed(PodUid),
}

/// How a binding failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindFailure {
    /// There is no such pod any more.
    PodGone,
    /// Someone else was quicker, or the answer got lost: the pod may be bound,
    /// the watch will tell. Binding again is safe, the API server refuses it.
    Unsettled(String),
    /// The pod is certainly not bound.
    Refused(String),
}

/// What is to be done. A `Bind` is answered by `Fact::Bound` or
/// `Fact::BindFailed`, a `ShowFailure` by `Fact::Shown` or `Fact::ShowFailed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// POST the binding, with the UID as precondition (TC-317).
    Bind { pod: PodKey, node: NodeName },
    /// PATCH condition `PodScheduled=False` into the status.
    ShowFailure(Failure),
    /// Record an Event about the pod.
    Record { pod: PodKey, is_warning: bool, reason: &'static str, message: String },
}

/// Why the pod has no node yet, as its status is to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub pod: PodKey,
    pub generation: Option<i64>,
    pub reason: FailureReason,
    pub message: String,
    /// Whether the status told of no failure before.
    pub is_new: bool,
}

/// TC-325: rejected by every node, or an error on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureReason {
    Unschedulable,
    SchedulerError,
}

impl FailureReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::SchedulerError => "SchedulerError",
        }
    }
}

#[derive(Debug)]
pub struct Scheduler {
    name: String,
    snapshot: Snapshot,
    queue: Queue,
    /// Pods of ours without a node, as last seen.
    pending: BTreeMap<PodUid, PodSeen>,
    /// Pods decided about but not yet seen bound.
    assumed: BTreeMap<PodUid, NodeName>,
    /// Pods whose status is being written; a binding now could be overtaken by
    /// the older word that there is no place.
    showing: BTreeSet<PodUid>,
    /// Those of them whose turn came meanwhile.
    deferred: BTreeSet<PodUid>,
    outbox: VecDeque<Action>,
}

impl Scheduler {
    /// Serves pods whose `spec.schedulerName` is `name` (TC-324).
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            snapshot: Snapshot::default(),
            queue: Queue::default(),
            pending: BTreeMap::new(),
            assumed: BTreeMap::new(),
            showing: BTreeSet::new(),
            deferred: BTreeSet::new(),
            outbox: VecDeque::new(),
        }
    }

    pub fn absorb(&mut self, fact: Fact, now: Now) {
        match fact {
            Fact::NodeSeen(node) => {
                if self.snapshot.upsert_node(node) == Changed::Something {
                    self.queue.relieve(Relief::NodeChanged, now);
                }
            }
            Fact::NodeGone(name) => self.snapshot.remove_node(&name),
            Fact::PodSeen(pod) => self.on_pod_seen(*pod, now),
            Fact::PodGone(uid) => self.release(&uid, now),
            Fact::ClaimSeen(claim) => self.on_storage(|claims| claims.upsert_claim(claim), now),
            Fact::ClaimGone(key) => self.on_storage(|claims| claims.remove_claim(&key), now),
            Fact::VolumeSeen(volume) => self.on_storage(|claims| claims.upsert_volume(volume), now),
            Fact::VolumeGone(name) => self.on_storage(|claims| claims.remove_volume(&name), now),
            Fact::ClassSeen { name, waits } => self.on_storage(|claims| claims.upsert_class(name, waits), now),
            Fact::ClassGone(name) => self.on_storage(|claims| claims.remove_class(&name), now),
            Fact::Bound { pod, node } => self.on_bound(pod, &node),
            Fact::BindFailed(uid, failure) => self.on_bind_failed(&uid, failure, now),
            Fact::Shown(uid) => self.on_shown(&uid),
            Fact::ShowFailed(uid) => self.on_show_failed(&uid, now),
        }
    }

    /// TC-341: claims and volumes may be what somebody waits for.
    fn on_storage(&mut self, change: impl FnOnce(&mut Claims) -> Changed, now: Now) {
        if change(&mut self.snapshot.claims) == Changed::Something {
            self.queue.relieve(Relief::StorageChanged, now);
        }
    }

    /// The next thing to do now, if any. `draw` chooses among equal nodes.
    pub fn next(&mut self, now: Now, draw: u64) -> Option<Action> {
        if let Some(action) = self.outbox.pop_front() {
            return Some(action);
        }
        let mut uid = self.queue.pop(now)?;
        while self.showing.contains(&uid) {
            self.deferred.insert(uid);
            uid = self.queue.pop(now)?;
        }
        let pod = self.pending.get(&uid).expect("who queues is pending: both end together");
        match plan(&self.snapshot, &pod.wants, draw) {
            Decision::Place(node) => Some(self.assume(&uid, node)),
            Decision::Nowhere(nowhere) => {
                self.on_nowhere(&uid, &nowhere, now);
                self.outbox.pop_front()
            }
        }
    }

    /// When `next` may have something although no fact was absorbed.
    pub fn wake_at(&self) -> Option<Mono> {
        self.queue.wake_at()
    }

    /// TC-324: from here on the pod counts on the node.
    fn assume(&mut self, uid: &PodUid, node: NodeName) -> Action {
        let pod = self.pending.get(uid).expect("only pending pods are placed");
        assert!(!self.assumed.contains_key(uid), "a second binding while one is in flight");
        self.snapshot.upsert_pod(uid.clone(), &node, PlacedPod::from(&pod.wants));
        self.assumed.insert(uid.clone(), node.clone());
        Action::Bind { pod: pod.key.clone(), node }
    }

    fn on_nowhere(&mut self, uid: &PodUid, nowhere: &Nowhere, now: Now) {
        self.queue.park(uid, nowhere.yields_to_room(), now);
        self.tell_failure(uid, FailureReason::Unschedulable, nowhere.message());
    }

    fn on_pod_seen(&mut self, pod: PodSeen, now: Now) {
        let uid = pod.key.uid.clone();
        if pod.is_terminal {
            // TC-333: a pod that ended takes nothing, whatever it once took.
            return self.release(&uid, now);
        }
        match &pod.node {
            Some(node) => self.on_seen_bound(&pod, node, now),
            None => self.on_seen_unbound(pod, now),
        }
    }

    fn on_seen_bound(&mut self, pod: &PodSeen, node: &NodeName, now: Now) {
        let uid = &pod.key.uid;
        self.assumed.remove(uid);
        let was_there = self.snapshot.has_pod(uid);
        self.queue.forget(uid);
        self.pending.remove(uid);
        let changed = self.snapshot.upsert_pod(uid.clone(), node, PlacedPod::from(&pod.wants));
        // A pod that takes another amount than before, or turned up elsewhere
        // than assumed, may have made room.
        if changed == Changed::Something && was_there {
            self.queue.relieve(Relief::RoomMade, now);
        }
    }

    fn on_seen_unbound(&mut self, pod: PodSeen, now: Now) {
        let uid = pod.key.uid.clone();
        if pod.scheduler_name != self.name {
            return;
        }
        if self.assumed.contains_key(&uid) {
            self.pending.insert(uid, pod);
            return;
        }
        if pod.is_terminating {
            return self.on_seen_terminating(&pod);
        }
        // LC-023, TC-322: gated pods are not tried and nothing is written; the
        // update that removes the last gate brings them here as new.
        if pod.is_gated {
            self.queue.forget(&uid);
            self.pending.remove(&uid);
            return;
        }
        let priority = pod.wants.priority;
        let former = self.pending.insert(uid.clone(), pod);
        let is_same = former.is_some_and(|former| former.wants == self.pending[&uid].wants);
        if !is_same || !self.queue.contains(&uid) {
            self.queue.enqueue(&uid, priority, now);
        }
    }

    /// TC-343: whoever waits in the queue and is to be deleted leaves it.
    fn on_seen_terminating(&mut self, pod: &PodSeen) {
        self.queue.forget(&pod.key.uid);
        if self.pending.remove(&pod.key.uid).is_some() {
            self.record_failure(&pod.key, format!("skip schedule deleting pod: {}", pod.key));
        }
    }

    /// Forgets the pod and what it took (H87: also while a binding is in flight).
    fn release(&mut self, uid: &PodUid, now: Now) {
        self.queue.forget(uid);
        self.pending.remove(uid);
        self.assumed.remove(uid);
        if self.snapshot.remove_pod(uid) == Changed::Something {
            self.queue.relieve(Relief::RoomMade, now);
        }
    }

    /// TC-327. The pod stays assumed until the watch shows it bound, which may
    /// have happened already.
    fn on_bound(&mut self, pod: PodKey, node: &NodeName) {
        let message = format!("Successfully assigned {pod} to {node}");
        self.outbox.push_back(Action::Record { pod, is_warning: false, reason: "Scheduled", message });
    }

    /// TC-328: the room is free again and the pod tries later.
    fn on_bind_failed(&mut self, uid: &PodUid, failure: BindFailure, now: Now) {
        if self.assumed.remove(uid).is_none() {
            // Seen bound or gone in the meantime: the watch has the last word.
            return;
        }
        self.snapshot.remove_pod(uid);
        self.queue.relieve(Relief::RoomMade, now);
        let pod = self.pending.get(uid).expect("an assumed pod is pending: both end together");
        let (key, is_terminating) = (pod.key.clone(), pod.is_terminating);
        let text = |error: String| format!("binding rejected: running Bind plugin \"DefaultBinder\": {error}");
        match failure {
            BindFailure::PodGone => self.release(uid, now),
            BindFailure::Unsettled(_) | BindFailure::Refused(_) if is_terminating => self.release(uid, now),
            BindFailure::Unsettled(error) => {
                self.queue.retry(uid, now);
                self.record_failure(&key, text(error));
            }
            BindFailure::Refused(error) => {
                self.queue.retry(uid, now);
                self.tell_failure(uid, FailureReason::SchedulerError, text(error));
            }
        }
    }

    fn on_shown(&mut self, uid: &PodUid) {
        self.showing.remove(uid);
        if self.deferred.remove(uid) {
            self.queue.resume(uid);
        }
    }

    /// TC-342: the next attempt tells again; it comes after the back-off
    /// although the cluster may not change.
    fn on_show_failed(&mut self, uid: &PodUid, now: Now) {
        self.showing.remove(uid);
        self.deferred.remove(uid);
        let Some(pod) = self.pending.get_mut(uid) else { return };
        pod.shown = None;
        if !self.assumed.contains_key(uid) {
            self.queue.retry(uid, now);
        }
    }

    /// TC-325: condition and event with the same text; the condition only
    /// where it says something new.
    fn tell_failure(&mut self, uid: &PodUid, reason: FailureReason, message: String) {
        let Some(pod) = self.pending.get_mut(uid) else { return };
        let key = pod.key.clone();
        let shown = Shown { reason: reason.as_str().to_owned(), message: message.clone() };
        if pod.shown.as_ref() != Some(&shown) {
            let is_new = pod.shown.replace(shown).is_none();
            let (generation, message) = (pod.generation, message.clone());
            self.showing.insert(uid.clone());
            self.outbox.push_back(Action::ShowFailure(Failure {
                pod: key.clone(),
                generation,
                reason,
                message,
                is_new,
            }));
        }
        self.record_failure(&key, message);
    }

    fn record_failure(&mut self, pod: &PodKey, message: String) {
        let (pod, message) = (pod.clone(), cut(message));
        self.outbox.push_back(Action::Record { pod, is_warning: true, reason: "FailedScheduling", message });
    }
}

/// TC-325: Event messages end after 1024 bytes.
fn cut(mut message: String) -> String {
    const MESSAGE_BYTES_MAX: usize = 1024;
    const ELLIPSIS: &str = " ...";
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX - ELLIPSIS.len()));
        message.push_str(ELLIPSIS);
    }
    message
}
