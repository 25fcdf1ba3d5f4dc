//! Decisions about all pods of one node: who may run, who must go, who gets
//! more.
//!
//! Decides: admission, room for critical pods, resizes, pressure evictions,
//! graceful shutdown, which images go, and the node's conditions.
//! Never: a pod's status; it tells pods facts and they draw the consequences.
//!
//! ```text
//!              absorb(fact, now)         plan(now)
//!   NodeFact ───────────────────► Node ────────────► NodeAction + next wake-up
//!                                   │
//!                                   ├── take_facts() ─► (uid, Fact) for pods
//!                                   ├── take_notes() ─► events about the node
//!                                   └── conditions(now)
//! ```
//!
//! Read next: `seats.rs`, `admission.rs`, `pressure.rs`, `shutdown.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ambient::{Mono, Now, Timestamp};
use objects::placement::Taint;
use objects::qos::QosClass;
use objects::requests::Resources;

use crate::fact::Fact;
use crate::resize::Allocation;
use crate::resources::{CPU, CgroupValues, class_parent, class_values};
use crate::spec::PodSpec;
use crate::state::Severity;

mod admission;
mod images;
mod preemption;
mod pressure;
mod ranking;
mod resizing;
mod seats;
mod shutdown;
mod storage;

pub use images::{ImageCollection, ImageSeen, ImageStock, collect_images};
pub use pressure::{Amount, ContainerUsage, Measurement, PodUsage, Reading, Signal, Threshold, hard_thresholds};
pub use shutdown::ShutdownGroup;

use images::Images;
use pressure::Pressure;
use seats::Seat;
use shutdown::Shutdown;

/// Why a pod may not run here: `status.reason` and what follows
/// `Pod was rejected: ` (LC-373).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub reason: String,
    pub message: String,
}

/// The node ends a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    pub cause: EvictionCause,
    /// `status.message`
    pub message: String,
    /// `None`: the pod's own.
    pub grace: Option<Duration>,
    /// Of the event (TC-240).
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvictionCause {
    /// The node is low on a resource.
    Pressure,
    /// The pod exceeds a limit on local storage.
    StorageLimit,
    /// LC-165: the storage below the pod is gone.
    StorageLost,
    /// A critical pod needs the room.
    Preemption,
    /// The node shuts down.
    Shutdown,
}

/// What can happen to a node, in the past tense.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeFact {
    /// The Node object is new, or what matters about it changed.
    InfoChanged(NodeInfo),
    /// TC-299: what pods had been given when the agent stopped, by UID. Told
    /// before any pod.
    Restored(BTreeMap<String, Allocation>),
    /// Pods of one batch are new or changed. The first batch is complete.
    PodsChanged(Vec<PodSpec>),
    /// The object is gone.
    PodGone(String),
    /// Nothing of the pod runs any more (`PodState::is_stopped`).
    PodStopped(String),
    /// What the pod had on disk is gone (`PodState::is_cleared`).
    PodCleared(String),
    Begun(NodeAction),
    /// For `Measure`.
    Measured(Measurement),
    /// For `Reclaim`: how things are now.
    Reclaimed(Measurement),
    /// For `ListImages`.
    ImagesListed(ImageStock),
    /// For `RemoveImages`: done, or as far as possible.
    ImagesRemoved,
    /// An action led nowhere; it comes again.
    Failed(NodeAction),
    /// The machine is about to stop (TC-254).
    ShutdownAnnounced,
    ShutdownCancelled,
}

/// What can be done on a node, in the imperative.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeAction {
    /// Look at what the node and its pods use.
    Measure,
    /// TC-236: remove dead containers and unused images, then measure.
    Reclaim,
    ListImages,
    RemoveImages(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlan {
    pub actions: Vec<NodeAction>,
    pub wake_at: Option<Mono>,
}

/// An event about the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNote {
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NodeCondition {
    pub kind: &'static str,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: &'static str,
    /// `None`: never otherwise.
    pub since: Option<Timestamp>,
}

/// The Node object as far as admission depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeInfo {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// With `pods`.
    pub allocatable: Resources,
}

/// Which ports of the node pods must leave alone. Of those that want their own
/// network only: with the node's they ask the kernel like everybody there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPortRules {
    /// Below, they are the administrator's.
    pub lowest: u16,
    /// What the instance itself listens on.
    pub reserved: BTreeSet<u16>,
}

/// What the operator configured (TC §14.2).
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub thresholds: Vec<Threshold>,
    /// `evictionPressureTransitionPeriod`
    pub pressure_transition: Duration,
    /// `evictionMaxPodGracePeriod`
    pub eviction_grace_max: Duration,
    /// TC-248: none, unless configured.
    pub shutdown_groups: Vec<ShutdownGroup>,
    /// Patterns: a name, or a prefix with `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    pub host_ports: HostPortRules,
    pub image_high_percent: u8,
    pub image_low_percent: u8,
    pub image_min_age: Duration,
    pub image_max_age: Option<Duration>,
    /// Gate `PodLevelResources`.
    pub pod_level_resources: bool,
    pub has_app_armor: bool,
    pub has_strict_groups: bool,
    pub uses_swap: bool,
    /// Static CPU or memory policies, which pin Guaranteed pods.
    pub has_static_cpu: bool,
    pub has_static_memory: bool,
}

impl Settings {
    /// An unconfigured node.
    pub fn upstream() -> Self {
        Self {
            thresholds: pressure::defaults(),
            pressure_transition: Duration::from_secs(300),
            eviction_grace_max: Duration::ZERO,
            shutdown_groups: Vec::new(),
            allowed_unsafe_sysctls: Vec::new(),
            host_ports: HostPortRules::default(),
            image_high_percent: 85,
            image_low_percent: 80,
            image_min_age: Duration::from_secs(120),
            image_max_age: None,
            pod_level_resources: true,
            has_app_armor: false,
            has_strict_groups: true,
            uses_swap: false,
            has_static_cpu: false,
            has_static_memory: false,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Node {
    settings: Settings,
    info: Option<NodeInfo>,
    /// By UID.
    seats: BTreeMap<String, Seat>,
    /// Of pods that were not seen yet.
    restored: BTreeMap<String, Allocation>,
    pressure: Pressure,
    shutdown: Shutdown,
    images: Images,
    resize_retry_at: Mono,
    in_flight: BTreeSet<NodeAction>,
    facts: Vec<(String, Fact)>,
    notes: Vec<NodeNote>,
}

impl Node {
    pub fn new(settings: Settings, now: Now) -> Self {
        Self {
            settings,
            info: None,
            seats: BTreeMap::new(),
            restored: BTreeMap::new(),
            pressure: Pressure::new(now),
            shutdown: Shutdown::None,
            images: Images::new(now),
            resize_retry_at: now.mono + resizing::RETRY_FIRST,
            in_flight: BTreeSet::new(),
            facts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Remembers what happened and decides what follows for pods.
    pub fn absorb(&mut self, fact: NodeFact, now: Now) {
        match fact {
            NodeFact::InfoChanged(info) => self.info = Some(info),
            NodeFact::Restored(allocations) => self.restored = allocations,
            NodeFact::PodsChanged(pods) => self.on_pods(pods, now),
            NodeFact::PodGone(uid) => self.on_pod_gone(&uid, now),
            NodeFact::PodStopped(uid) => self.on_pod_stopped(&uid, now),
            NodeFact::PodCleared(uid) => self.pressure.on_cleared(&uid, now),
            NodeFact::Begun(action) => {
                self.in_flight.insert(action);
            }
            NodeFact::Measured(measurement) => {
                self.in_flight.remove(&NodeAction::Measure);
                self.on_measured(measurement, now);
            }
            NodeFact::Reclaimed(measurement) => {
                self.in_flight.remove(&NodeAction::Reclaim);
                self.on_reclaimed(measurement, now);
            }
            NodeFact::ImagesListed(stock) => {
                self.in_flight.remove(&NodeAction::ListImages);
                self.on_images(&stock, now);
            }
            NodeFact::ImagesRemoved => self.on_images_removed(),
            NodeFact::Failed(action) => self.on_failed(&action, now),
            NodeFact::ShutdownAnnounced => self.on_shutdown(now),
            NodeFact::ShutdownCancelled => self.on_shutdown_cancelled(),
        }
    }

    /// What should happen now, and when to ask again.
    pub fn plan(&self, now: Now) -> NodePlan {
        let mut plan = NodePlan::default();
        self.plan_pressure(&mut plan, now);
        self.plan_images(&mut plan, now);
        let deadlines = [self.shutdown.deadline(), self.next_resize_retry(), self.next_end_of_waiting()];
        for at in deadlines.into_iter().flatten() {
            plan.wake(at);
        }
        plan.actions.retain(|action| !self.in_flight.contains(action));
        plan
    }

    /// Time alone can decide: call it at `wake_at`.
    pub fn pass_time(&mut self, now: Now) {
        self.advance_shutdown(now);
        self.end_waiting(now);
        if self.next_resize_retry().is_some_and(|at| at <= now.mono) {
            self.retry_resizes(now);
        }
    }

    /// LC-334: the cgroups of the QoS classes, by where they are below the root.
    pub fn class_cgroups(&self) -> BTreeMap<&'static str, CgroupValues> {
        let cpu = |class: QosClass| {
            let members = self.active().filter(|seat| seat.spec.class() == class);
            members.map(|seat| seat.requests().get(CPU).map_or(0, objects::Quantity::milli)).sum()
        };
        let classes = [QosClass::Burstable, QosClass::BestEffort];
        classes.into_iter().filter_map(|class| Some((class_parent(class)?, class_values(class, cpu(class))))).collect()
    }

    pub fn take_facts(&mut self) -> Vec<(String, Fact)> {
        std::mem::take(&mut self.facts)
    }

    pub fn take_notes(&mut self) -> Vec<NodeNote> {
        std::mem::take(&mut self.notes)
    }

    fn tell(&mut self, uid: &str, fact: Fact) {
        self.facts.push((uid.to_owned(), fact));
    }

    fn note(&mut self, severity: Severity, reason: &'static str, message: String) {
        self.notes.push(NodeNote { severity, reason, message });
    }

    fn on_failed(&mut self, action: &NodeAction, now: Now) {
        self.in_flight.remove(action);
        match action {
            NodeAction::Measure | NodeAction::Reclaim => self.pressure.postpone(now),
            NodeAction::ListImages => self.images.postpone(now),
            NodeAction::RemoveImages(_) => self.on_images_removed(),
        }
    }
}

impl NodePlan {
    fn wake(&mut self, at: Mono) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}
