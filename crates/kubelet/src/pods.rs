//! All pods of this node: one worker each, kept alive, and what runs without
//! belonging to anyone.
//!
//! Never: decides about a pod; that is its worker's `lifecycle`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ambient::Mono;
use client::{About, Change, Severity};
use cri::Sandbox;
use lifecycle::node::NodeFact;
use lifecycle::{Fact, PodSpec, is_mirror, is_mirror_of, is_of_node, is_static};
use objects::api::core::v1::{Node, Pod};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use crate::ctx::Ctx;
use crate::mailbox::replace_of_kind;
use crate::mirror::{self, Key, Mirrors};
use crate::orphan;
use crate::steward::Steward;
use crate::worker::{Lines, Worker, last_facts};

/// Panics of one pod's worker within the window that park the pod.
const PANICS_MAX: usize = 3;
const PANIC_WINDOW: Duration = Duration::from_secs(600);

/// What is known of this node's pods, for those who answer questions about them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sight {
    /// Those that run or end, as the node's own sources say.
    pub(crate) statics: Vec<Arc<Pod>>,
    /// Every source has spoken.
    pub(crate) is_complete: bool,
}

pub(crate) struct Pods {
    ctx: Arc<Ctx>,
    connections: watch::Receiver<u64>,
    steward: Steward,
    /// What files ask for, by UID.
    statics: BTreeMap<String, Arc<Pod>>,
    mirrors: Mirrors,
    /// Static pods that an earlier agent left running, by UID.
    left: BTreeMap<String, Key>,
    sight: watch::Sender<Sight>,
    /// The API said all it knows.
    is_synced: bool,
    /// Every source did: who is unknown now is nobody's.
    is_complete: bool,
    seats: BTreeMap<String, Seat>,
    tasks: JoinSet<()>,
    /// Which pod a task works for.
    owners: BTreeMap<Id, String>,
}

/// The place of one pod UID.
struct Seat {
    lines: Lines,
    work: Work,
    panics: Vec<Mono>,
    /// What the node decided, one of a kind; a new worker hears it again.
    verdicts: Vec<Fact>,
}

enum Work {
    /// A worker lives.
    Pod(Arc<Pod>),
    /// Its worker panicked too often, or it makes no sense; it rests until its deletion.
    Parked,
    /// Nobody knows this pod; it is being cleaned up. If it was static, its
    /// name is taken until then.
    Orphan(Option<Key>),
}

impl Seat {
    fn without_worker(work: Work) -> Self {
        Self { lines: Lines::default(), work, panics: Vec::new(), verdicts: Vec::new() }
    }

    fn pod(&self) -> Option<&Arc<Pod>> {
        match &self.work {
            Work::Pod(pod) => Some(pod),
            Work::Parked | Work::Orphan(_) => None,
        }
    }

    fn former_static(&self) -> Option<&Key> {
        match &self.work {
            Work::Orphan(key) => key.as_ref(),
            Work::Pod(_) | Work::Parked => None,
        }
    }
}

impl Pods {
    pub(crate) fn new(
        ctx: Arc<Ctx>,
        connections: watch::Receiver<u64>,
        steward: Steward,
        sight: watch::Sender<Sight>,
    ) -> Self {
        let (statics, mirrors) = (BTreeMap::new(), Mirrors::new(ctx.clone()));
        let (seats, owners) = (BTreeMap::new(), BTreeMap::new());
        Self {
            ctx,
            connections,
            steward,
            statics,
            mirrors,
            left: BTreeMap::new(),
            sight,
            is_synced: false,
            is_complete: false,
            seats,
            tasks: JoinSet::new(),
            owners,
        }
    }

    /// LC-375: the node judges a batch as a whole.
    pub(crate) fn on_changes(&mut self, changes: Vec<Change<Pod>>) {
        let mut batch: BTreeMap<String, PodSpec> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Applied(pod) if is_mirror(&pod) => self.on_mirror(pod),
                Change::Deleted(pod) if is_mirror(&pod) => self.mirrors.on_deleted(&pod),
                Change::Applied(pod) => {
                    if let Ok(spec) = PodSpec::parse(&pod) {
                        batch.insert(spec.uid.clone(), spec);
                    }
                    self.on_applied(pod);
                }
                Change::Deleted(pod) => {
                    batch.remove(pod.metadata.uid.as_deref().unwrap_or_default());
                    self.on_deleted(&pod);
                }
            }
        }
        self.steward.absorb(NodeFact::PodsChanged(batch.into_values().collect()));
    }

    /// LC-353: what the files ask for now.
    pub(crate) fn on_statics(&mut self, wanted: &[Arc<Pod>]) {
        let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone().unwrap_or_default();
        let wanted = wanted.iter().map(|pod| (uid(pod), pod.clone())).collect();
        let former = std::mem::replace(&mut self.statics, wanted);
        for (uid, pod) in &former {
            if !self.statics.contains_key(uid) {
                self.on_deleted(pod);
            }
        }
        self.end_former_versions();
        // One that names its UID may change and stay itself.
        let changed = self.statics.iter().filter(|(uid, pod)| former.get(*uid).is_some_and(|old| old != *pod));
        let changed: Vec<Arc<Pod>> = changed.map(|(_, pod)| pod.clone()).collect();
        self.seat_statics(changed.into_iter().chain(self.fresh_statics()).collect());
    }

    /// What an earlier agent left in the runtime.
    pub(crate) fn on_left(&mut self, sandboxes: &[Sandbox]) {
        let of_node = sandboxes.iter().filter(|sandbox| is_of_node(&sandbox.annotations));
        let meta = of_node.map(|sandbox| &sandbox.meta);
        self.left = meta.map(|meta| (meta.uid.clone(), (meta.namespace.clone(), meta.name.clone()))).collect();
    }

    /// LC-358: a manifest that changed while no agent was here left a pod of its
    /// name running; that one ends first. Its name is enough to know that nobody
    /// wants it, so it need not wait for the API.
    fn end_former_versions(&mut self) {
        let wanted: BTreeSet<Key> = self.statics.values().map(|pod| mirror::key(pod)).collect();
        let is_former = |(uid, key): &(&String, &Key)| {
            wanted.contains(*key) && !self.statics.contains_key(*uid) && !self.seats.contains_key(*uid)
        };
        let former: Vec<String> = self.left.iter().filter(is_former).map(|(uid, _)| uid.clone()).collect();
        former.iter().for_each(|uid| self.adopt_orphan(uid));
    }

    /// One of the same UID that is still ending comes back when it ended, one
    /// of the same name starts then.
    fn fresh_statics(&self) -> Vec<Arc<Pod>> {
        let taken: BTreeSet<&Key> = self.seats.values().filter_map(Seat::former_static).collect();
        let is_fresh =
            |(uid, pod): &(&String, &Arc<Pod>)| !self.seats.contains_key(*uid) && !taken.contains(&mirror::key(pod));
        self.statics.iter().filter(is_fresh).map(|(_, pod)| pod.clone()).collect()
    }

    fn seat_statics(&mut self, fresh: Vec<Arc<Pod>>) {
        let specs = fresh.iter().filter_map(|pod| PodSpec::parse(pod).ok()).collect();
        for pod in fresh {
            self.on_applied(pod.clone());
            if let Some(mirror) = self.mirrors.get(&mirror::key(&pod)).filter(|mirror| is_mirror_of(mirror, &pod)) {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                self.seats.get(uid).into_iter().for_each(|seat| seat.lines.mailbox.mirror(mirror.clone()));
            }
        }
        self.steward.absorb(NodeFact::PodsChanged(specs));
    }

    fn on_mirror(&mut self, mirror: Arc<Pod>) {
        let shows = |seat: &&Seat| seat.pod().is_some_and(|pod| is_mirror_of(&mirror, pod));
        if let Some(seat) = self.seats.values().find(shows) {
            seat.lines.mailbox.mirror(mirror.clone());
        }
        self.mirrors.on_applied(mirror);
    }

    /// Tells who asks what there is.
    fn show(&self) {
        let statics = self.seats.values().filter_map(Seat::pod).filter(|pod| is_static(pod));
        let fresh = Sight { statics: statics.cloned().collect(), is_complete: self.is_complete };
        self.sight.send_if_modified(|known| {
            let is_same = known.is_complete == fresh.is_complete && known.statics == fresh.statics;
            *known = fresh;
            !is_same
        });
    }

    fn tend_mirrors(&mut self) {
        let wanted = self.statics.values().map(|pod| (mirror::key(pod), pod.clone())).collect();
        let pods = self.seats.values().filter_map(Seat::pod).filter(|pod| is_static(pod));
        let ending = pods.map(|pod| mirror::key(pod)).collect();
        self.mirrors.tend(&wanted, &ending, self.is_complete);
    }

    pub(crate) fn on_node(&mut self, change: &Change<Node>) {
        self.mirrors.on_node(match change {
            Change::Applied(node) => node.metadata.uid.clone(),
            Change::Deleted(_) => None,
        });
        self.steward.on_node(match change {
            Change::Applied(node) => Some(node),
            Change::Deleted(_) => None,
        });
    }

    /// Lets the node decide, and hands its verdicts to the pods they are about.
    pub(crate) fn settle(&mut self) {
        let seats = &self.seats;
        let pods = || seats.values().filter_map(Seat::pod).cloned().collect();
        for (uid, verdict) in self.steward.settle(pods) {
            if let Some(seat) = self.seats.get_mut(&uid) {
                replace_of_kind(&mut seat.verdicts, verdict.clone());
                seat.lines.mailbox.verdict(verdict);
            }
        }
        self.show();
        if self.is_synced {
            self.tend_mirrors();
        }
    }

    /// Something happened in the runtime to this pod.
    pub(crate) fn on_runtime(&mut self, uid: &str) {
        match self.seats.get(uid) {
            Some(seat) => seat.lines.mailbox.look(),
            None if self.is_complete => self.adopt_orphan(uid),
            None => {}
        }
    }

    pub(crate) fn look_at_all(&self) {
        self.seats.values().for_each(|seat| seat.lines.mailbox.look());
    }

    /// The API's first complete list is in.
    pub(crate) fn on_synced(&mut self) {
        self.is_synced = true;
    }

    /// LC-015, TC-270: every source has spoken; nobody is killed before.
    pub(crate) fn on_complete(&mut self) {
        self.is_complete = true;
    }

    pub(crate) fn knows(&self, uid: &str) -> bool {
        self.seats.contains_key(uid)
    }

    /// Who was found and belongs to nobody. One who ended since the count was
    /// taken is looked for in vain.
    pub(crate) fn sweep(&mut self, found: &BTreeSet<String>) {
        for uid in found {
            if !self.seats.contains_key(uid) {
                self.adopt_orphan(uid);
            }
        }
    }

    /// Returns when a worker ended and was seen to, or the node has something
    /// to decide.
    pub(crate) async fn tend(&mut self) {
        tokio::select! {
            biased;
            Some(ended) = self.tasks.join_next_with_id() => match ended {
                Ok((id, ())) => self.on_end(id),
                Err(error) => self.on_panic(&error),
            },
            () = self.steward.arrival() => {}
            () = self.mirrors.over() => {}
        }
    }

    fn on_end(&mut self, id: Id) {
        if let Some(uid) = self.owners.remove(&id) {
            self.seats.remove(&uid);
            self.steward.absorb(NodeFact::PodStopped(uid.clone()));
            // LC-014: its file came back meanwhile, or waited for its name.
            let fresh = self.fresh_statics();
            if !fresh.is_empty() {
                self.seat_statics(fresh);
            }
        }
    }

    fn on_applied(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let is_dying = pod.metadata.deletion_timestamp.is_some();
        match self.seats.get_mut(&uid) {
            None => self.seat(&uid, pod, Vec::new()),
            Some(Seat { work: Work::Parked, panics, .. }) if is_dying => {
                let panics = std::mem::take(panics);
                self.seat(&uid, pod, panics);
            }
            Some(Seat { work: Work::Parked | Work::Orphan(_), .. }) => {}
            Some(Seat { work: Work::Pod(known), lines, .. }) => {
                *known = pod.clone();
                lines.mailbox.pod(pod);
            }
        }
    }

    fn on_deleted(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        match self.seats.get(uid) {
            Some(Seat { work: Work::Pod(_), lines, .. }) => lines.mailbox.gone(),
            Some(Seat { work: Work::Parked, .. }) => self.adopt_orphan(uid),
            Some(Seat { work: Work::Orphan(_), .. }) | None => {}
        }
        self.steward.absorb(NodeFact::PodGone(uid.to_owned()));
    }

    /// Gives a pod its worker. Actions of a predecessor that panicked end first.
    fn seat(&mut self, uid: &str, pod: Arc<Pod>, panics: Vec<Mono>) {
        let spec = match PodSpec::parse(&pod) {
            Ok(spec) => spec,
            Err(error) => {
                // Known all the same: what runs of it is not an orphan.
                tracing::warn!(uid, ?error, "not a pod we understand");
                let seat = Seat { panics, ..Seat::without_worker(Work::Parked) };
                self.seats.insert(uid.to_owned(), seat);
                return;
            }
        };
        let lines = Lines::default();
        let (former, verdicts) = self.seats.remove(uid).map(|seat| (seat.lines.actions, seat.verdicts)).unzip();
        let verdicts: Vec<Fact> = verdicts.unwrap_or_default();
        verdicts.iter().cloned().for_each(|verdict| lines.mailbox.verdict(verdict));
        let worker = Worker::new(self.ctx.clone(), pod.clone(), spec, lines.clone(), self.connections.clone());
        let task = async move {
            if let Some(actions) = former {
                actions.close();
                actions.wait().await;
            }
            worker.run().await;
        };
        self.start(uid, Seat { lines, work: Work::Pod(pod), panics, verdicts }, task);
    }

    fn adopt_orphan(&mut self, uid: &str) {
        let task = orphan::clean_up(self.ctx.clone(), uid.to_owned());
        let key = self.left.remove(uid);
        self.start(uid, Seat::without_worker(Work::Orphan(key)), task);
    }

    fn start(&mut self, uid: &str, seat: Seat, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.owners.insert(id, uid.to_owned());
        self.seats.insert(uid.to_owned(), seat);
    }

    /// A worker that panics is rebuilt from API and runtime; one that keeps
    /// panicking is parked, so that its pod costs nobody else anything.
    fn on_panic(&mut self, error: &JoinError) {
        let Some(uid) = self.owners.remove(&error.id()) else { return };
        let Some(mut seat) = self.seats.remove(&uid) else { return };
        let facts = last_facts(&seat.lines);
        tracing::error!(uid, %error, ?facts, "a pod worker panicked");
        let Work::Pod(pod) = &seat.work else { return };
        let (pod, now) = (pod.clone(), self.ctx.clock.now());
        seat.panics.retain(|&at| now.mono.since(at) < PANIC_WINDOW);
        seat.panics.push(now.mono);
        if seat.panics.len() < PANICS_MAX {
            let panics = std::mem::take(&mut seat.panics);
            self.seats.insert(uid.clone(), seat);
            return self.seat(&uid, pod, panics);
        }
        let message = "The node agent failed repeatedly at this pod and leaves it alone until it is deleted.";
        self.ctx.recorder.record(About::object(pod.as_ref()), Severity::Warning, "FailedSync", message, now);
        seat.work = Work::Parked;
        self.seats.insert(uid, seat);
    }
}
