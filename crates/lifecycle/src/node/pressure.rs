//! Is the node short of something, and since when? (TC §7.4)
//!
//! Decides: which thresholds are met, the pressure conditions, when to look
//! again, and when somebody must go (`ranking.rs` says who).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ambient::{Mono, Now, Timestamp};
use objects::Quantity;
use objects::placement::{Taint, is_tolerated};
use objects::qos::QosClass;

use crate::node::{Node, NodeAction, NodeCondition, NodePlan};
use crate::spec::PodSpec;
use crate::state::Severity;

/// TC-233.
const CHECK_PERIOD: Duration = Duration::from_secs(10);
const CLEANUP_WAIT: Duration = Duration::from_secs(30);

/// TC-230.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    AllocatableMemoryAvailable,
    NodefsAvailable,
    NodefsInodesFree,
    ImagefsAvailable,
    ImagefsInodesFree,
    ContainerfsAvailable,
    ContainerfsInodesFree,
    PidAvailable,
}

/// What a signal is about: the word in messages, and how pods are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scarce {
    Memory,
    Disk,
    Inodes,
    Processes,
}

impl Scarce {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Scarce::Memory => "memory",
            Scarce::Disk => "ephemeral-storage",
            Scarce::Inodes => "inodes",
            Scarce::Processes => "pids",
        }
    }

    /// TC-236: cleaning up can help.
    fn is_reclaimable(self) -> bool {
        match self {
            Scarce::Disk | Scarce::Inodes => true,
            Scarce::Memory | Scarce::Processes => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Memory,
    Disk,
    Pid,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Memory => "MemoryPressure",
            Kind::Disk => "DiskPressure",
            Kind::Pid => "PIDPressure",
        }
    }

    /// Reason and message, short of it and not.
    fn words(self, is_short: bool) -> (&'static str, &'static str) {
        match (self, is_short) {
            (Kind::Memory, true) => ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            (Kind::Memory, false) => ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            (Kind::Disk, true) => ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            (Kind::Disk, false) => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            (Kind::Pid, true) => ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            (Kind::Pid, false) => ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        }
    }
}

impl Signal {
    pub(super) fn scarce(self) -> Scarce {
        match self {
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => Scarce::Memory,
            Signal::NodefsAvailable | Signal::ImagefsAvailable | Signal::ContainerfsAvailable => Scarce::Disk,
            Signal::NodefsInodesFree | Signal::ImagefsInodesFree | Signal::ContainerfsInodesFree => Scarce::Inodes,
            Signal::PidAvailable => Scarce::Processes,
        }
    }

    /// TC-231.
    fn is_configurable(self) -> bool {
        !matches!(self, Signal::ContainerfsAvailable | Signal::ContainerfsInodesFree)
    }

    /// TC-234.
    fn kind(self) -> Kind {
        match self.scarce() {
            Scarce::Memory => Kind::Memory,
            Scarce::Disk | Scarce::Inodes => Kind::Disk,
            Scarce::Processes => Kind::Pid,
        }
    }
}

/// As the configuration spells it.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::MemoryAvailable => "memory.available",
            Signal::AllocatableMemoryAvailable => "allocatableMemory.available",
            Signal::NodefsAvailable => "nodefs.available",
            Signal::NodefsInodesFree => "nodefs.inodesFree",
            Signal::ImagefsAvailable => "imagefs.available",
            Signal::ImagefsInodesFree => "imagefs.inodesFree",
            Signal::ContainerfsAvailable => "containerfs.available",
            Signal::ContainerfsInodesFree => "containerfs.inodesFree",
            Signal::PidAvailable => "pid.available",
        })
    }
}

impl FromStr for Signal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = ALL.into_iter().find(|signal| signal.to_string() == text);
        found.ok_or_else(|| {
            let names: Vec<String> =
                ALL.into_iter().filter(|it| it.is_configurable()).map(|it| it.to_string()).collect();
            format!("{text:?} is not a signal; possible: {}", names.join(", "))
        })
    }
}

const ALL: [Signal; 9] = [
    Signal::MemoryAvailable,
    Signal::AllocatableMemoryAvailable,
    Signal::NodefsAvailable,
    Signal::NodefsInodesFree,
    Signal::ImagefsAvailable,
    Signal::ImagefsInodesFree,
    Signal::ContainerfsAvailable,
    Signal::ContainerfsInodesFree,
    Signal::PidAvailable,
];

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    Quantity(Quantity),
    Percent(f64),
}

impl Amount {
    pub fn of(self, capacity: i64) -> i64 {
        match self {
            Amount::Quantity(quantity) => quantity.value(),
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as upstream rounds")]
            Amount::Percent(percent) => (capacity as f64 * percent / 100.0) as i64,
        }
    }
}

/// Met while less than `value` is available.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    pub value: Amount,
    /// `None` is a hard threshold; a soft one must be met this long (TC-232).
    pub grace: Option<Duration>,
    /// `evictionMinimumReclaim`
    pub reclaim: Amount,
}

impl Threshold {
    pub fn hard(signal: Signal, value: Amount) -> Self {
        Self { signal, value, grace: None, reclaim: Amount::Quantity(Quantity::ZERO) }
    }

    fn is_met(&self, readings: &BTreeMap<Signal, Reading>, has_been: bool) -> bool {
        let Some(reading) = readings.get(&self.signal) else { return false };
        let reclaim = if has_been { self.reclaim.of(reading.capacity) } else { 0 };
        reading.available < self.value.of(reading.capacity) + reclaim
    }
}

/// TC-231: `evictionHard` as set; what is not set has no threshold, unless the
/// defaults are merged in (`mergeDefaultEvictionSettings`).
pub fn hard_thresholds(set: &[(Signal, Amount)], merges_defaults: bool) -> Result<Vec<Threshold>, String> {
    if let Some((signal, _)) = set.iter().find(|(signal, _)| !signal.is_configurable()) {
        return Err(format!("evictionHard: {signal} follows nodefs or imagefs and cannot be set; leave it out"));
    }
    if set.is_empty() {
        return Ok(defaults());
    }
    let is_set = |signal: Signal| set.iter().any(|(other, _)| *other == signal);
    let rest = defaults().into_iter().filter(|it| merges_defaults && !is_set(it.signal));
    Ok(set.iter().map(|(signal, value)| Threshold::hard(*signal, *value)).chain(rest).collect())
}

/// TC-231.
pub(super) fn defaults() -> Vec<Threshold> {
    let percent = |signal: Signal, percent: f64| Threshold::hard(signal, Amount::Percent(percent));
    vec![
        Threshold::hard(Signal::MemoryAvailable, Amount::Quantity(Quantity::from_bytes(100 << 20))),
        percent(Signal::NodefsAvailable, 10.0),
        percent(Signal::NodefsInodesFree, 5.0),
        percent(Signal::ImagefsAvailable, 15.0),
        percent(Signal::ImagefsInodesFree, 5.0),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub available: i64,
    pub capacity: i64,
}

/// What was measured at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Measurement {
    pub signals: BTreeMap<Signal, Reading>,
    /// By UID.
    pub pods: BTreeMap<String, PodUsage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodUsage {
    pub memory_bytes: i64,
    /// Writable layers, logs and local volumes.
    pub disk_bytes: i64,
    pub inodes: i64,
    pub processes: i64,
    pub containers: BTreeMap<String, ContainerUsage>,
    /// Bytes by volume.
    pub empty_dirs: BTreeMap<String, i64>,
    /// The pod's directory cannot be used any more (LC-165).
    pub is_storage_lost: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerUsage {
    pub memory_bytes: i64,
    /// Writable layer and logs.
    pub disk_bytes: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Pressure {
    /// Thresholds that are met, and since when.
    met: Vec<(Threshold, Mono)>,
    /// When each pressure was last observed.
    observed_at: BTreeMap<Kind, Mono>,
    /// Conditions that are true, and since when.
    shown: BTreeMap<Kind, Timestamp>,
    ended: BTreeMap<Kind, Timestamp>,
    check_at: Mono,
    /// Disk is being freed before anybody is evicted.
    reclaims: bool,
    /// Pods that were evicted and still hold what is scarce.
    leaving: BTreeSet<String>,
    /// It is free when they are cleared away, not already when they stop.
    is_on_disk: bool,
}

impl Pressure {
    pub(super) fn new(now: Now) -> Self {
        Self {
            met: Vec::new(),
            observed_at: BTreeMap::new(),
            shown: BTreeMap::new(),
            ended: BTreeMap::new(),
            check_at: now.mono,
            reclaims: false,
            leaving: BTreeSet::new(),
            is_on_disk: false,
        }
    }

    pub(super) fn conditions(&self) -> Vec<Kind> {
        self.shown.keys().copied().collect()
    }

    /// LC-374, TC-243: memory alone repels only who has no request and does
    /// not tolerate it.
    pub(super) fn admits(&self, pod: &PodSpec) -> bool {
        if self.conditions() != [Kind::Memory] {
            return false;
        }
        let taint = Taint::no_schedule("node.kubernetes.io/memory-pressure");
        pod.class() != QosClass::BestEffort || is_tolerated(&taint, &pod.needs.tolerations)
    }

    pub(super) fn postpone(&mut self, now: Now) {
        self.reclaims = false;
        self.check_at = now.mono + CHECK_PERIOD;
    }

    /// TC-233: the next look comes as soon as the evicted are cleaned up. A look
    /// before that finds the disk as full as it was, and takes the next one.
    pub(super) fn on_stopped(&mut self, uid: &str, now: Now) {
        if !self.is_on_disk {
            self.on_cleared(uid, now);
        }
    }

    pub(super) fn on_cleared(&mut self, uid: &str, now: Now) {
        if self.leaving.remove(uid) && self.leaving.is_empty() {
            self.check_at = self.check_at.min(now.mono);
        }
    }

    fn wait_for(&mut self, leaving: Vec<String>, is_on_disk: bool, now: Now) {
        self.is_on_disk = is_on_disk;
        self.leaving = leaving.into_iter().collect();
        self.check_at = now.mono + CLEANUP_WAIT;
    }

    /// What the readings say, and what follows for the conditions.
    fn observe(&mut self, thresholds: &[Threshold], measurement: &Measurement, transition: Duration, now: Now) {
        let since = |threshold: &Threshold, met: &[(Threshold, Mono)]| {
            met.iter().find(|(known, _)| known == threshold).map(|(_, since)| *since)
        };
        let mut met = Vec::new();
        for threshold in thresholds {
            let before = since(threshold, &self.met);
            if threshold.is_met(&measurement.signals, before.is_some()) {
                met.push((*threshold, before.unwrap_or(now.mono)));
            }
        }
        self.met = met;
        for (threshold, _) in &self.met {
            self.observed_at.insert(threshold.signal.kind(), now.mono);
        }
        // TC-234: true until it has been clear for the whole period.
        self.observed_at.retain(|_, at| now.mono.since(*at) < transition || *at == now.mono);
        for kind in [Kind::Memory, Kind::Disk, Kind::Pid] {
            if self.observed_at.contains_key(&kind) {
                self.shown.entry(kind).or_insert(now.wall);
            } else if self.shown.remove(&kind).is_some() {
                self.ended.insert(kind, now.wall);
            }
        }
    }

    /// TC-235: memory first; soft thresholds only after their grace.
    fn due(&self, now: Now) -> Vec<Threshold> {
        let is_due = |(threshold, since): &&(Threshold, Mono)| {
            threshold.grace.is_none_or(|grace| now.mono.since(*since) >= grace)
        };
        let mut due: Vec<Threshold> = self.met.iter().filter(is_due).map(|(threshold, _)| *threshold).collect();
        due.sort_by_key(|threshold| threshold.signal.scarce() != Scarce::Memory);
        due
    }
}

impl Node {
    pub(super) fn plan_pressure(&self, plan: &mut NodePlan, now: Now) {
        if self.pressure.reclaims {
            plan.actions.push(NodeAction::Reclaim);
        } else if self.pressure.check_at <= now.mono {
            plan.actions.push(NodeAction::Measure);
        } else {
            plan.wake(self.pressure.check_at);
        }
    }

    pub(super) fn on_measured(&mut self, measurement: Measurement, now: Now) {
        self.pressure.check_at = now.mono + CHECK_PERIOD;
        self.observe(&measurement, now);
        // TC-242: limits are checked in the same loop, before thresholds.
        let over = self.evict_over_limit(&measurement);
        if !over.is_empty() {
            return self.pressure.wait_for(over, true, now);
        }
        let due = self.pressure.due(now);
        let Some(first) = due.first() else { return };
        let scarce = first.signal.scarce();
        let message = format!("Attempting to reclaim {}", scarce.as_str());
        self.note(Severity::Warning, "EvictionThresholdMet", message);
        // TC-236
        if scarce.is_reclaimable() {
            self.pressure.reclaims = true;
            return;
        }
        self.evict_one(&due, &measurement, now);
    }

    /// TC-236: nobody is evicted if cleaning up was enough.
    pub(super) fn on_reclaimed(&mut self, measurement: Measurement, now: Now) {
        self.pressure.reclaims = false;
        self.pressure.check_at = now.mono + CHECK_PERIOD;
        self.observe(&measurement, now);
        let due = self.pressure.due(now);
        if !due.is_empty() {
            self.evict_one(&due, &measurement, now);
        }
    }

    fn observe(&mut self, measurement: &Measurement, now: Now) {
        let (mut thresholds, transition) = (self.settings.thresholds.clone(), self.settings.pressure_transition);
        // TC-230: what is kept free of the machine's memory is kept free of the pods' share of it.
        let is_kept = |it: &&Threshold| it.signal == Signal::MemoryAvailable && it.grace.is_none();
        let kept = self.settings.thresholds.iter().filter(is_kept);
        thresholds.extend(kept.map(|it| Threshold { signal: Signal::AllocatableMemoryAvailable, ..*it }));
        self.pressure.observe(&thresholds, measurement, transition, now);
    }

    /// TC-233, LC-301: at most one pod.
    fn evict_one(&mut self, due: &[Threshold], measurement: &Measurement, now: Now) {
        let Some(first) = due.first() else { return };
        let scarce = first.signal.scarce();
        let Some(uid) = self.first_to_go(scarce, measurement) else { return };
        let eviction = self.pressure_eviction(&uid, first, due, measurement);
        self.evict(&uid, eviction);
        self.pressure.wait_for(vec![uid], scarce.is_reclaimable(), now);
    }

    /// TC-234, TC-250: what the Node object says because of all this.
    pub fn conditions(&self) -> Vec<NodeCondition> {
        let of = |kind: Kind| {
            let since = self.pressure.shown.get(&kind);
            let (reason, message) = kind.words(since.is_some());
            let ended = self.pressure.ended.get(&kind);
            NodeCondition {
                kind: kind.as_str(),
                is_true: since.is_some(),
                reason,
                message,
                since: since.or(ended).copied(),
            }
        };
        let mut all: Vec<NodeCondition> = [Kind::Memory, Kind::Disk, Kind::Pid].into_iter().map(of).collect();
        all.extend(self.shutdown.condition());
        all
    }
}
