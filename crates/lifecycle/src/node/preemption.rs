//! Who makes room for a critical pod (TC §7.5).

use std::collections::BTreeMap;
use std::time::Duration;

use ambient::{Mono, Now};
use objects::qos::QosClass;

use crate::node::admission::Shortage;
use crate::node::seats::{Seat, Standing};
use crate::node::{Eviction, EvictionCause, Node};
use crate::resources::{CPU, MEMORY};
use crate::spec::PodSpec;

/// What is missing, by resource.
type Missing = BTreeMap<String, i64>;

impl Node {
    /// TC-245: the guaranteed pods that are needed even if all others went,
    /// then burstable, then best-effort ones. TC-247: or why nobody helps.
    pub(super) fn victims(&self, critical: &PodSpec, shortages: &[Shortage]) -> Result<Vec<String>, String> {
        let missing: Missing = shortages.iter().map(|it| (it.resource.clone(), it.missing())).collect();
        let of = |class: QosClass| -> Vec<&Seat> {
            let yields = |seat: &&Seat| seat.spec.class() == class && may_preempt(critical, &seat.spec);
            self.active().filter(|seat| seat.standing == Standing::Admitted).filter(yields).collect()
        };
        let (guaranteed, burstable, best_effort) =
            (of(QosClass::Guaranteed), of(QosClass::Burstable), of(QosClass::BestEffort));
        let everyone = [best_effort.as_slice(), &burstable, &guaranteed].concat();
        let unmet = without(&missing, &everyone);
        if !unmet.is_empty() {
            let list: String = unmet.iter().map(|(resource, q)| format!("(res: {resource}, q: {q}), ")).collect();
            return Err(format!(
                "Unexpected error while attempting to recover from admission failure: preemption: error finding a \
                 set of pods to preempt: no set of running pods found to reclaim resources: [{list}]"
            ));
        }
        let first = nearest(guaranteed, without(&missing, &[best_effort.as_slice(), &burstable].concat()));
        let second = nearest(burstable, without(&missing, &[best_effort.as_slice(), &first].concat()));
        let third = nearest(best_effort, without(&missing, &[second.as_slice(), &first].concat()));
        Ok([third, second, first].concat().iter().map(|seat| seat.spec.uid.clone()).collect())
    }

    /// Pods whose object is gone and who still run, if their room is enough: the
    /// scheduler counts them no longer, so what it sent here waits for them
    /// instead of being rejected for good. With the longest grace any of them has.
    pub(super) fn leaving(&self, shortages: &[Shortage]) -> Option<(Vec<String>, Duration)> {
        let missing: Missing = shortages.iter().map(|it| (it.resource.clone(), it.missing())).collect();
        let gone: Vec<&Seat> = self.active().filter(|seat| seat.is_gone).collect();
        let is_enough = !gone.is_empty() && without(&missing, &gone).is_empty();
        let grace = gone.iter().map(|seat| seat.spec.grace).max().unwrap_or_default();
        is_enough.then(|| (gone.iter().map(|seat| seat.spec.uid.clone()).collect(), grace))
    }

    /// TC-246: with their own grace.
    pub(super) fn preempt(&mut self, victims: &[String]) {
        for uid in victims {
            let message = "Preempted in order to admit critical pod".to_owned();
            let cause = EvictionCause::Preemption;
            self.evict(uid, Eviction { cause, message, grace: None, annotations: BTreeMap::new() });
        }
    }

    /// Once the last victim stopped, the pod that waited is judged again.
    pub(super) fn admit_waiting(&mut self, stopped: &str, now: Now) {
        let mut ready = Vec::new();
        for (uid, seat) in &mut self.seats {
            if let Standing::Waiting { victims } = &mut seat.standing {
                victims.retain(|victim| victim != stopped);
                if victims.is_empty() {
                    ready.push(uid.clone());
                }
            }
        }
        self.admit_again(ready, now);
    }

    /// A pod that runs on although its object is gone, e.g. in an uninterruptible
    /// sleep, keeps nobody Pending for ever.
    pub(super) fn end_waiting(&mut self, now: Now) {
        let is_late = |seat: &Seat| seat.waits_until().is_some_and(|until| until <= now.mono);
        let late = self.seats.iter().filter(|(_, seat)| is_late(seat)).map(|(uid, _)| uid.clone()).collect();
        self.admit_again(late, now);
    }

    pub(super) fn next_end_of_waiting(&self) -> Option<Mono> {
        self.seats.values().filter_map(Seat::waits_until).min()
    }

    fn admit_again(&mut self, pods: Vec<String>, now: Now) {
        for uid in pods {
            if let Some(seat) = self.seats.remove(&uid) {
                self.admit(seat, now);
            }
        }
    }
}

fn may_preempt(critical: &PodSpec, other: &PodSpec) -> bool {
    !other.needs.is_critical || other.needs.priority < critical.needs.priority
}

/// What is still missing when these pods are gone.
fn without(missing: &Missing, gone: &[&Seat]) -> Missing {
    let mut left = missing.clone();
    for seat in gone {
        left = left.into_iter().map(|(name, amount)| (name.clone(), amount - freed(seat, &name))).collect();
    }
    left.retain(|_, amount| *amount > 0);
    left
}

fn freed(seat: &Seat, resource: &str) -> i64 {
    if resource == "pods" { 1 } else { seat.request(resource) }
}

/// The nearest pod goes, until nothing is missing; ties go to the smaller one.
fn nearest(mut pods: Vec<&Seat>, mut missing: Missing) -> Vec<&Seat> {
    let mut chosen = Vec::new();
    while !missing.is_empty() && !pods.is_empty() {
        let mut best = 0;
        for index in 1..pods.len() {
            let (distance, record) = (distance(&missing, pods[index]), distance(&missing, pods[best]));
            if distance < record || (distance == record && is_smaller(pods[index], pods[best])) {
                best = index;
            }
        }
        let seat = pods.swap_remove(best);
        missing = without(&missing, &[seat]);
        chosen.push(seat);
    }
    chosen
}

/// 0: frees everything; each resource adds at most 1.
fn distance(missing: &Missing, seat: &Seat) -> f64 {
    let part = |(name, amount): (&String, &i64)| {
        let left = (amount - freed(seat, name)).max(0);
        #[expect(clippy::cast_precision_loss, reason = "distances only compare")]
        let ratio = left as f64 / *amount as f64;
        ratio * ratio
    };
    missing.iter().map(part).sum()
}

fn is_smaller(one: &Seat, other: &Seat) -> bool {
    for resource in [MEMORY, CPU] {
        let (a, b) = (one.request(resource), other.request(resource));
        if a != b {
            return a < b;
        }
    }
    true
}
