//! Does another size fit this node? (LC-345, LC-346, TC-300…TC-303)

use std::cmp::Reverse;
use std::time::Duration;

use ambient::{Mono, Now, Timestamp};
use objects::qos::QosClass;

use crate::fact::Fact;
use crate::node::seats::{Seat, Standing, amount};
use crate::node::{Node, NodeInfo};
use crate::resize::{Allocation, Refusal, Verdict};
use crate::resources::{CPU, MEMORY, requests_of};
use crate::spec::{ContainerSpec, PodSpec};

/// TC-302.
pub(super) const RETRY_FIRST: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_secs(180);

/// The last answer to a resize.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    refusal: Refusal,
    since: Timestamp,
}

impl Node {
    /// When deferred resizes are tried without any other reason.
    pub(super) fn next_resize_retry(&self) -> Option<Mono> {
        let is_deferred = |seat: &Seat| {
            let verdict = seat.resize.as_ref().map(|judgement| judgement.refusal.verdict);
            seat.standing == Standing::Admitted && verdict == Some(Verdict::Deferred)
        };
        self.seats.values().any(is_deferred).then_some(self.resize_retry_at)
    }

    /// LC-346, TC-303: all of them in order; one that fails blocks nobody.
    pub(super) fn retry_resizes(&mut self, now: Now) {
        let mut waiting: Vec<&Seat> = self.seats.values().filter(|seat| wants_resize(seat)).collect();
        if waiting.is_empty() {
            return;
        }
        self.resize_retry_at = now.mono + RETRY_AFTER;
        let since = |seat: &Seat| seat.resize.as_ref().map_or(now.wall, |judgement| judgement.since);
        waiting.sort_by_key(|seat| {
            let is_guaranteed = seat.spec.class() == QosClass::Guaranteed;
            (grows(seat), Reverse(seat.spec.needs.priority), !is_guaranteed, since(seat))
        });
        let order: Vec<String> = waiting.iter().map(|seat| seat.spec.uid.clone()).collect();
        for uid in order {
            self.judge_resize(&uid, now);
        }
    }

    /// TC-300.
    fn judge_resize(&mut self, uid: &str, now: Now) {
        let Some(seat) = self.seats.get(uid) else { return };
        let generation = seat.spec.generation;
        let desired = Allocation::desired(&seat.spec);
        let refuse = |verdict: Verdict, message: String| Refusal { verdict, message, generation };
        let larger = Seat { allocation: desired.clone(), ..seat.clone() };
        let refusal = match self.infeasible(&larger, &seat.allocation) {
            Some(message) => Some(refuse(Verdict::Infeasible, message)),
            None => self.objection(&larger).map(|it| refuse(Verdict::Deferred, it.rejection().message)),
        };
        let Some(seat) = self.seats.get_mut(uid) else { return };
        let Some(refusal) = refusal else {
            seat.allocation = desired.clone();
            seat.resize = None;
            return self.tell(uid, Fact::Resized(desired));
        };
        let same = seat.resize.as_ref().filter(|before| before.refusal.verdict == refusal.verdict);
        let since = same.map_or(now.wall, |before| before.since);
        if seat.resize.as_ref().is_some_and(|before| before.refusal == refusal) {
            return;
        }
        seat.resize = Some(Judgement { refusal: refusal.clone(), since });
        self.tell(uid, Fact::ResizeRefused(refusal));
    }

    /// LC-345: what this node can never give.
    fn infeasible(&self, larger: &Seat, current: &Allocation) -> Option<String> {
        let pod = &larger.spec;
        if pod.is_static {
            return Some("In-place resize of static-pods is not supported".to_owned());
        }
        if self.settings.uses_swap && changes_swap(pod, current) {
            return Some("In-place resize of containers with swap is not supported".to_owned());
        }
        if pod.class() == QosClass::Guaranteed {
            for (is_static, policy) in
                [(self.settings.has_static_cpu, "CPU"), (self.settings.has_static_memory, "Memory")]
            {
                if is_static {
                    let text =
                        format!("Resize is infeasible for Guaranteed Pods alongside {policy} Manager static policy");
                    return Some(text);
                }
            }
        }
        self.info.as_ref().and_then(|info| beyond_capacity(larger, info))
    }
}

/// Memory speaks first.
fn beyond_capacity(larger: &Seat, info: &NodeInfo) -> Option<String> {
    [MEMORY, CPU].into_iter().find_map(|resource| {
        let (requested, capacity) = (larger.request(resource), amount(resource, info.allocatable.get(resource)?));
        let message =
            format!("Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}");
        (requested > capacity).then_some(message)
    })
}

/// TC-311: a pod that ends is not resized; one that was refused for good is
/// judged again only when its spec changed.
fn wants_resize(seat: &Seat) -> bool {
    let is_refused = |judgement: &Judgement| {
        judgement.refusal.verdict == Verdict::Infeasible && judgement.refusal.generation == seat.spec.generation
    };
    seat.standing == Standing::Admitted
        && seat.spec.deletion.is_none()
        && !seat.allocation.is_desired_by(&seat.spec)
        && !seat.resize.as_ref().is_some_and(is_refused)
}

fn grows(seat: &Seat) -> bool {
    let (old, new) = (seat.requests(), requests_of(&seat.spec, &Allocation::desired(&seat.spec)));
    [CPU, MEMORY].into_iter().any(|resource| new.get(resource) > old.get(resource))
}

/// A memory request that decides about swap changes without a restart.
fn changes_swap(pod: &PodSpec, current: &Allocation) -> bool {
    let changes = |container: &ContainerSpec| {
        current.demand(container).requests.get(MEMORY) != container.demand.requests.get(MEMORY)
    };
    pod.containers().any(|container| changes(container) && !container.resize_policy.memory_restarts)
}
