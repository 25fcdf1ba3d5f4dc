//! How a pod changes its size without being replaced (§15.4).
//!
//! Decides: what a pod has been given, what is in effect, which cgroup is set
//! next (LC-349), which container must restart for it (LC-348), and the two
//! resize conditions.
//! Never: decides whether a size fits the node (`node::resizing` does).
//!
//! ```text
//!   desired (spec) ──node──► allocated ──steps──► actual (runtime)
//!         PodResizePending        PodResizeInProgress
//! ```

use std::collections::BTreeMap;

use ambient::{Now, Timestamp};
use objects::Quantity;
use objects::reasons::condition;
use objects::requests::Resources;

use crate::fact::Instance;
use crate::resources::{CPU, CgroupValues, Cgroups, Demand, MEMORY, Sized, milli_of_quota, milli_of_shares};
use crate::spec::{ContainerSpec, PodSpec, Role};
use crate::state::PodState;
use crate::table::Table;
use crate::view::{Condition, Phase, Size, Truth};

mod progress;
mod steps;

pub(crate) use steps::plan;

/// What a pod was given, by container; the generation of the spec it is from.
/// The driver keeps it across restarts (LC-344, TC-298, TC-299).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocation {
    pub generation: i64,
    pub containers: BTreeMap<String, Demand>,
}

/// Why a resize has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub verdict: Verdict,
    pub message: String,
    /// Of the spec that was judged.
    pub generation: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Not now: tried again when something changes.
    Deferred,
    /// Never on this node: not tried again until the spec changes.
    Infeasible,
}

impl Verdict {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Verdict::Deferred => "Deferred",
            Verdict::Infeasible => "Infeasible",
        }
    }
}

/// Bytes in use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryUse {
    pub pod: i64,
    pub containers: BTreeMap<String, i64>,
}

/// What a pod remembers about its size.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sizing {
    pub(crate) allocated: Allocation,
    pending: Option<Pending>,
    progress: Option<Progress>,
    /// What was applied to instances, by container and attempt.
    applied: Table<(String, u32), Demand>,
    /// What the pod's cgroup was last set to.
    pod_values: Option<CgroupValues>,
    /// LC-350: memory in use allows the limits to shrink.
    may_shrink: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Pending {
    refusal: Refusal,
    /// LC-098: moves only with the reason.
    since: Timestamp,
    updated: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
struct Progress {
    generation: i64,
    error: Option<String>,
    since: Timestamp,
    updated: Timestamp,
}

impl Allocation {
    /// What the spec asks for.
    pub fn desired(pod: &PodSpec) -> Self {
        let containers = pod.containers().map(|it| (it.name.clone(), it.demand.clone())).collect();
        Self { generation: pod.generation, containers }
    }

    /// LC-377, TC-299: without a checkpoint, what the API shows was given; what
    /// never had an instance gets what the spec asks for.
    pub(crate) fn recovered(pod: &PodSpec) -> Self {
        let given = |container: &ContainerSpec| {
            let shown = pod.published.container(&container.name).and_then(|view| view.size.as_ref());
            let demand = match shown.filter(|_| container.role != Role::Init) {
                Some(size) => Demand { requests: size.allocated.clone(), limits: size.actual.limits.clone() },
                None => container.demand.clone(),
            };
            (container.name.clone(), demand)
        };
        Self { generation: pod.generation, containers: pod.containers().map(given).collect() }
    }

    /// Containers it does not know have what their spec says.
    pub(crate) fn demand<'a>(&'a self, container: &'a ContainerSpec) -> &'a Demand {
        self.containers.get(&container.name).unwrap_or(&container.demand)
    }

    pub(crate) fn is_desired_by(&self, pod: &PodSpec) -> bool {
        pod.containers().all(|container| self.demand(container) == &container.demand)
    }
}

impl Sizing {
    /// LC-377: an unfinished resize goes on after an agent restart.
    pub(crate) fn recovered(pod: &PodSpec, now: Now) -> Self {
        let shown = |kind: &str| pod.published.condition(kind);
        let times = |it: &Condition| (it.last_transition.unwrap_or(now.wall), it.last_probe.unwrap_or(now.wall));
        let pending = shown(condition::POD_RESIZE_PENDING).map(|it| {
            let verdict = if it.reason == "Infeasible" { Verdict::Infeasible } else { Verdict::Deferred };
            let generation = it.observed_generation.unwrap_or(0);
            let (since, updated) = times(it);
            Pending { refusal: Refusal { verdict, message: it.message.clone(), generation }, since, updated }
        });
        let progress = shown(condition::POD_RESIZE_IN_PROGRESS).map(|it| {
            let error = (!it.reason.is_empty()).then(|| it.message.clone());
            let (since, updated) = times(it);
            Progress { generation: it.observed_generation.unwrap_or(0), error, since, updated }
        });
        Self {
            allocated: Allocation::recovered(pod),
            pending,
            progress,
            applied: Table::default(),
            pod_values: None,
            may_shrink: false,
        }
    }

    /// TC-301: present only while relevant; a terminal pod has neither.
    pub(crate) fn conditions(&self, phase: Phase) -> Vec<Condition> {
        if phase.is_terminal() {
            return Vec::new();
        }
        type Times = (Timestamp, Timestamp);
        let of = |kind: &'static str, reason: &'static str, message: &str, times: Times, generation: i64| Condition {
            kind: kind.into(),
            status: Truth::True,
            reason: reason.into(),
            message: message.to_owned(),
            last_probe: Some(times.1),
            last_transition: Some(times.0),
            observed_generation: (generation > 0).then_some(generation),
        };
        // LC-123
        let pending = self.pending.as_ref().map(|it| {
            let Refusal { verdict, message, generation } = &it.refusal;
            of(condition::POD_RESIZE_PENDING, verdict.as_str(), message, (it.since, it.updated), *generation)
        });
        // LC-124: beside the other, if a new request waits meanwhile.
        let progress = self.progress.as_ref().map(|it| {
            let reason = if it.error.is_some() { "Error" } else { "" };
            let message = it.error.as_deref().unwrap_or_default();
            of(condition::POD_RESIZE_IN_PROGRESS, reason, message, (it.since, it.updated), it.generation)
        });
        pending.into_iter().chain(progress).collect()
    }
}

impl PodState {
    /// What the pod has been given.
    pub fn allocation(&self) -> &Allocation {
        &self.sizing.allocated
    }

    /// What its cgroups should be set to; a new instance is born with these.
    pub fn cgroups(&self) -> Cgroups {
        self.sized(&self.sizing.allocated).cgroups()
    }

    fn sized<'a>(&'a self, given: &'a Allocation) -> Sized<'a> {
        Sized { pod: &self.spec, given, machine: &self.rules.machine }
    }

    /// LC-081, LC-082: what a container's status says about its size.
    pub(crate) fn size_of(&self, container: &ContainerSpec, newest: Option<&Instance>) -> Size {
        let allocated = self.sizing.allocated.demand(container);
        let actual = match newest.filter(|instance| instance.is_running()) {
            Some(running) => self.actual(container, running),
            None => allocated.clone(),
        };
        Size { actual, allocated: allocated.requests.clone() }
    }

    /// LC-081: what the runtime reports, else what was applied or shown last,
    /// else what was allocated.
    fn actual(&self, container: &ContainerSpec, instance: &Instance) -> Demand {
        let allocated = self.sizing.allocated.demand(container);
        let applied =
            self.sizing.applied.find(|(name, attempt)| *attempt == instance.attempt && *name == instance.name);
        let shown = self.shown.container(&container.name).filter(|view| view.id.as_ref() == Some(&instance.id));
        let shown = shown.and_then(|view| view.size.as_ref()).map(|size| &size.actual);
        let mut actual = applied.or(shown).unwrap_or(allocated).clone();
        if let Some(values) = &instance.limits {
            overlay(&mut actual, values);
        }
        round_to(&mut actual, allocated);
        actual
    }
}

/// What cgroup values say about a demand. Limits that a pod-level limit
/// brought about are not the container's own.
fn overlay(demand: &mut Demand, values: &CgroupValues) {
    let set = |list: &mut Resources, resource: &str, amount: Quantity| {
        if let Some(entry) = list.get_mut(resource).filter(|entry| **entry != amount) {
            *entry = amount;
        }
    };
    if let Some(shares) = values.cpu_shares {
        set(&mut demand.requests, CPU, Quantity::from_milli(milli_of_shares(shares)));
    }
    if let Some(quota) = values.cpu_quota {
        set(&mut demand.limits, CPU, Quantity::from_milli(milli_of_quota(quota, values.cpu_period)));
    }
    if let Some(bytes) = values.memory_limit_bytes {
        set(&mut demand.limits, MEMORY, Quantity::from_bytes(bytes));
    }
}

/// LC-081: below what cgroups can express, the allocated value is shown; equal
/// amounts are spelled as allocated.
fn round_to(actual: &mut Demand, allocated: &Demand) {
    let lists = [(&mut actual.requests, &allocated.requests, 2), (&mut actual.limits, &allocated.limits, 10)];
    for (actual, allocated, cpu_floor) in lists {
        for (name, amount) in actual.iter_mut() {
            let Some(given) = allocated.get(name) else { continue };
            let is_tiny = name == CPU && given.milli() <= cpu_floor && amount.milli() <= cpu_floor;
            if is_tiny || *amount == *given {
                *amount = *given;
            }
        }
    }
}

#[cfg(test)]
mod tests;
