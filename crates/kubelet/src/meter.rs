//! What the agent counts about its own work, for whoever scrapes it.
//!
//! Never: what pods and containers use; the runtime knows that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ambient::{Mono, Timestamp};
use client::{Change, Subscription};
use lifecycle::{ProbeKind, ProbeResult};
use objects::api::core::v1::Pod;

use crate::ctx::Ctx;
use crate::observe::PodRef;

/// Upper bounds in seconds, as upstream has them for the start of pods …
const START_BUCKETS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// … and for probes.
const PROBE_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<Counts>);

#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) starts: Histogram,
    pub(crate) probes: BTreeMap<ProbeSeries, ProbeCounts>,
    /// By method and first word of the path: few, because only known ones count.
    pub(crate) requests: BTreeMap<(String, &'static str), u64>,
    rates: BTreeMap<String, Rate>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            starts: Histogram::new(START_BUCKETS),
            probes: BTreeMap::new(),
            requests: BTreeMap::new(),
            rates: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProbeSeries {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) container: String,
    pub(crate) kind: &'static str,
}

#[derive(Debug)]
pub(crate) struct ProbeCounts {
    pub(crate) successful: u64,
    pub(crate) failed: u64,
    pub(crate) unknown: u64,
    pub(crate) duration: Histogram,
}

impl Default for ProbeCounts {
    fn default() -> Self {
        Self { successful: 0, failed: 0, unknown: 0, duration: Histogram::new(PROBE_BUCKETS) }
    }
}

/// The last two looks at a counter of CPU time.
#[derive(Debug, Clone, Copy)]
struct Rate {
    at: Timestamp,
    nanoseconds: u64,
    nano_cores: Option<u64>,
}

impl Meter {
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// LC-271.
    pub(crate) fn probed(&self, pod: &PodRef, container: &str, kind: ProbeKind, result: &ProbeResult, took: Duration) {
        let kind = match kind {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        };
        let PodRef { namespace, name: pod, uid } = pod.clone();
        let series = ProbeSeries { namespace, pod, uid, container: container.to_owned(), kind };
        let mut counts = self.counts();
        let counts = counts.probes.entry(series).or_default();
        match result {
            ProbeResult::Success | ProbeResult::Warning(_) => counts.successful += 1,
            ProbeResult::Failure(_) => counts.failed += 1,
            ProbeResult::Unknown(_) => counts.unknown += 1,
        }
        counts.duration.observe(took.as_secs_f64());
    }

    pub(crate) fn asked(&self, method: &str, path: &'static str) {
        *self.counts().requests.entry((method.to_owned(), path)).or_default() += 1;
    }

    /// How much of a core `who` uses, by what it had used when last asked
    /// about; `None` the first time.
    pub(crate) fn nano_cores(&self, who: &str, at: Timestamp, nanoseconds: u64) -> Option<u64> {
        let mut counts = self.counts();
        let Some(last) = counts.rates.get_mut(who) else {
            counts.rates.insert(who.to_owned(), Rate { at, nanoseconds, nano_cores: None });
            return None;
        };
        let took = u64::try_from(at.duration_since(last.at).as_nanos()).unwrap_or(0);
        // Two scrapers at once see the same rate, not noise.
        if took >= RATE_WINDOW_MIN {
            let used = u128::from(nanoseconds.saturating_sub(last.nanoseconds));
            let rate = used * 1_000_000_000 / u128::from(took);
            *last = Rate { at, nanoseconds, nano_cores: u64::try_from(rate).ok() };
        }
        last.nano_cores
    }

    /// Forgets what is about pods that are gone.
    pub(crate) fn forget(&self, uids: &BTreeSet<String>, known: &BTreeSet<String>) {
        let mut counts = self.counts();
        counts.probes.retain(|series, _| uids.contains(&series.uid));
        counts.rates.retain(|who, _| known.contains(who));
    }
}

const RATE_WINDOW_MIN: u64 = 1_000_000_000;

/// Measures pods from when they are first seen until they run. Never returns.
pub(crate) async fn follow_starts(ctx: &Ctx, mut changes: Subscription<Pod>) {
    let mut waiting: BTreeMap<String, Mono> = BTreeMap::new();
    let mut known: BTreeSet<String> = BTreeSet::new();
    loop {
        let change = changes.next().await;
        let (pod, is_there) = match &change {
            Change::Applied(pod) => (pod, true),
            Change::Deleted(pod) => (pod, false),
        };
        let Some(uid) = pod.metadata.uid.as_deref() else { continue };
        if !is_there {
            waiting.remove(uid);
            known.remove(uid);
            continue;
        }
        let (phase, now) = (phase(pod), ctx.clock.now().mono);
        // One that runs at first sight was started by our predecessor.
        if known.insert(uid.to_owned()) && matches!(phase, "" | "Pending") {
            waiting.insert(uid.to_owned(), now);
        }
        if !matches!(phase, "" | "Pending")
            && let Some(since) = waiting.remove(uid)
        {
            ctx.meter.counts().starts.observe(now.since(since).as_secs_f64());
        }
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// How many observations were at most so large.
#[derive(Debug)]
pub(crate) struct Histogram {
    pub(crate) bounds: &'static [f64],
    /// Each counts those of the buckets before it, too.
    pub(crate) buckets: Vec<u64>,
    pub(crate) sum: f64,
    pub(crate) count: u64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, buckets: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    fn observe(&mut self, value: f64) {
        for (bucket, _) in self.buckets.iter_mut().zip(self.bounds).filter(|(_, bound)| value <= **bound) {
            *bucket += 1;
        }
        self.sum += value;
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_271_runs_are_counted_by_container_kind_and_outcome_until_the_pod_is_gone() {
        let pod = PodRef { namespace: "default".into(), name: "web".into(), uid: "u".into() };
        let meter = Meter::default();
        let probed = |container: &str, kind, result| {
            meter.probed(&pod, container, kind, &result, Duration::from_millis(20));
        };
        probed("app", ProbeKind::Liveness, ProbeResult::Success);
        probed("app", ProbeKind::Liveness, ProbeResult::Warning("elsewhere".into()));
        probed("app", ProbeKind::Liveness, ProbeResult::Failure("no".into()));
        probed("app", ProbeKind::Readiness, ProbeResult::Unknown("who knows".into()));
        probed("log", ProbeKind::Startup, ProbeResult::Failure("no".into()));
        let counted = |meter: &Meter| -> Vec<_> {
            let counts = meter.counts();
            let lines = counts.probes.iter();
            lines
                .map(|(series, it)| {
                    format!("{} {} {}/{}/{}", series.container, series.kind, it.successful, it.failed, it.unknown)
                })
                .collect()
        };
        assert_eq!(counted(&meter), ["app Liveness 2/1/0", "app Readiness 0/0/1", "log Startup 0/1/0"]);
        meter.forget(&BTreeSet::from(["u".to_owned()]), &BTreeSet::new());
        assert_eq!(counted(&meter).len(), 3);
        meter.forget(&BTreeSet::new(), &BTreeSet::new());
        assert_eq!(counted(&meter), [""; 0]);
    }

    #[test]
    fn rates_are_taken_over_at_least_a_second() {
        let meter = Meter::default();
        let at = |milliseconds: i64| Timestamp::from_millisecond(1_000_000 + milliseconds).unwrap();
        assert_eq!(meter.nano_cores("a", at(0), 0), None);
        assert_eq!(meter.nano_cores("a", at(100), 50_000_000), None);
        assert_eq!(meter.nano_cores("a", at(2000), 1_000_000_000), Some(500_000_000));
        assert_eq!(meter.nano_cores("a", at(2100), 2_000_000_000), Some(500_000_000));
    }

    #[test]
    fn buckets_count_what_is_below_them() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.5, 3.0] {
            histogram.observe(value);
        }
        assert_eq!((histogram.buckets.as_slice(), histogram.count), ([1, 2].as_slice(), 3));
        assert!((histogram.sum - 5.0).abs() < f64::EPSILON);
    }
}
