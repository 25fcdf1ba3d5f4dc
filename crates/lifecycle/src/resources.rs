//! What processes may use: requests and limits as cgroup values and OOM scores.
//!
//! Decides: what a pod as a whole asks for (§8.3), and the shares, quotas,
//! memory limits and OOM scores of containers, pods and QoS classes (§15.2,
//! §15.3).
//! Never: sets anything (the runtime does), knows about changes (`resize.rs`).

use objects::Quantity;
use objects::qos::QosClass;
use objects::requests::{self, Resources, Stay};

use crate::resize::Allocation;
use crate::spec::{ContainerSpec, PodSpec, Role};

const SHARES_MIN: u64 = 2;
const SHARES_MAX: u64 = 262_144;
const WEIGHT_MAX: u64 = 10_000;
const PERIOD_MICROS: u64 = 100_000;
const QUOTA_MIN_MICROS: i64 = 1_000;
const OOM_SCORE_PROTECTED: i32 = -997;
const OOM_SCORE_BEST_EFFORT: i32 = 1000;

pub(crate) const CPU: &str = "cpu";
pub(crate) const MEMORY: &str = "memory";
pub(crate) const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Requests and limits of one container, or of a pod as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Demand {
    pub requests: Resources,
    pub limits: Resources,
}

impl Demand {
    /// LC-221: a limit is the request where none is given.
    pub(crate) fn request(&self, resource: &str) -> Option<Quantity> {
        self.requests.get(resource).copied().or_else(|| self.limit(resource))
    }

    /// Zero counts as none.
    pub(crate) fn limit(&self, resource: &str) -> Option<Quantity> {
        self.limits.get(resource).copied().filter(|limit| !limit.is_zero())
    }
}

/// What one cgroup is set to. `None` is unlimited for a new cgroup, and
/// unchanged for an existing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CgroupValues {
    pub cpu_shares: Option<u64>,
    /// Microseconds per `cpu_period`.
    pub cpu_quota: Option<i64>,
    pub cpu_period: Option<u64>,
    pub memory_limit_bytes: Option<i64>,
    pub swap_limit_bytes: Option<i64>,
    pub pids_limit: Option<i64>,
    pub oom_score_adj: Option<i32>,
    /// Running out of memory kills all processes of the cgroup together.
    pub oom_group: Option<bool>,
}

/// The node as far as limits depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    pub swap: Swap,
    /// `cpuCFSQuota`
    pub has_cpu_quota: bool,
    /// `singleProcessOOMKill`
    pub kills_single_processes: bool,
    /// `podPidsLimit`; none if not positive.
    pub pod_pids_limit: i64,
}

/// `memorySwap.swapBehavior`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    None,
    Limited,
}

impl Machine {
    /// An unconfigured node.
    pub fn upstream(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            swap_bytes: 0,
            swap: Swap::None,
            has_cpu_quota: true,
            kills_single_processes: false,
            pod_pids_limit: -1,
        }
    }
}

/// The cgroups of one pod, as its allocation wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroups {
    /// Below the root of all pods.
    pub parent: String,
    pub pod: CgroupValues,
    pub containers: std::collections::BTreeMap<String, CgroupValues>,
}

/// One pod with what it was given, on one machine.
#[derive(Clone, Copy)]
pub(crate) struct Sized<'a> {
    pub(crate) pod: &'a PodSpec,
    pub(crate) given: &'a Allocation,
    pub(crate) machine: &'a Machine,
}

impl Sized<'_> {
    pub(crate) fn cgroups(&self) -> Cgroups {
        let of = |container: &ContainerSpec| (container.name.clone(), self.container(container));
        Cgroups { parent: parent(self.pod), pod: self.whole(), containers: self.pod.containers().map(of).collect() }
    }

    /// LC-338, LC-342: the pod's cgroup as a whole.
    pub(crate) fn whole(&self) -> CgroupValues {
        let pids_limit = Some(self.machine.pod_pids_limit).filter(|limit| *limit > 0);
        if self.pod.class() == QosClass::BestEffort {
            return CgroupValues { cpu_shares: Some(SHARES_MIN), pids_limit, ..CgroupValues::default() };
        }
        let (requests, limits) = (requests_of(self.pod, self.given), limits_of(self.pod, self.given));
        let cpu_request = requests.get(CPU).map_or(0, Quantity::milli);
        CgroupValues {
            cpu_shares: Some(shares(cpu_request)),
            memory_limit_bytes: limits.get(MEMORY).map(Quantity::value),
            pids_limit,
            ..self.quota_for(limits.get(CPU).copied())
        }
    }

    /// LC-335 to LC-337, LC-339, LC-341: one container.
    pub(crate) fn container(&self, container: &ContainerSpec) -> CgroupValues {
        let none = Demand::default();
        let own = self.given.demand(container);
        let pod_level = self.pod.needs.pod_level.as_ref().unwrap_or(&none);
        let cpu_limit = own.limit(CPU).or_else(|| pod_level.limit(CPU));
        let memory_limit = own.limit(MEMORY).or_else(|| pod_level.limit(MEMORY));
        CgroupValues {
            cpu_shares: Some(shares(own.request(CPU).map_or(0, |cpu| cpu.milli()))),
            memory_limit_bytes: memory_limit.map(|memory| memory.value()),
            swap_limit_bytes: Some(self.swap(own)),
            oom_score_adj: Some(self.oom_score(container)),
            oom_group: Some(!self.machine.kills_single_processes),
            ..self.quota_for(cpu_limit)
        }
    }

    fn quota_for(&self, cpu_limit: Option<Quantity>) -> CgroupValues {
        let limit = cpu_limit.filter(|limit| self.machine.has_cpu_quota && !limit.is_zero());
        CgroupValues {
            cpu_quota: limit.map(|limit| quota(limit.milli())),
            cpu_period: limit.map(|_| PERIOD_MICROS),
            ..CgroupValues::default()
        }
    }

    /// LC-341: bytes of swap; none by default.
    fn swap(&self, own: &Demand) -> i64 {
        let request = own.requests.get(MEMORY).map_or(0, Quantity::value);
        let is_open = own.limit(MEMORY).is_none_or(|limit| limit.value() != request);
        let may_swap = match self.machine.swap {
            Swap::None => false,
            Swap::Limited => {
                self.pod.class() == QosClass::Burstable && !self.pod.needs.is_critical && request > 0 && is_open
            }
        };
        if !may_swap {
            return 0;
        }
        let share =
            i128::from(request) * i128::from(self.machine.swap_bytes) / i128::from(self.machine.memory_bytes.max(1));
        i64::try_from(share).unwrap_or(i64::MAX)
    }

    /// LC-330, LC-332, TC-244.
    fn oom_score(&self, container: &ContainerSpec) -> i32 {
        if self.pod.needs.is_node_critical {
            return OOM_SCORE_PROTECTED;
        }
        match self.pod.class() {
            QosClass::Guaranteed => OOM_SCORE_PROTECTED,
            QosClass::BestEffort => OOM_SCORE_BEST_EFFORT,
            QosClass::Burstable => {
                let own = self.burstable_score(self.memory_share(container));
                match container.role {
                    Role::Init | Role::App | Role::Ephemeral => own,
                    Role::Sidecar => {
                        let smallest = self.pod.apps.iter().map(|app| self.memory_share(app)).min().unwrap_or(0);
                        own.min(self.burstable_score(smallest))
                    }
                }
            }
        }
    }

    fn burstable_score(&self, memory_request: i64) -> i32 {
        let node = i128::from(self.machine.memory_bytes.max(1));
        let score = 1000 - 1000 * i128::from(memory_request) / node;
        i32::try_from(score.clamp(3, 999)).unwrap_or(999)
    }

    /// LC-331: what a pod-level request leaves over is shared out.
    fn memory_share(&self, container: &ContainerSpec) -> i64 {
        let of = |container: &ContainerSpec| self.given.demand(container).request(MEMORY).map_or(0, |it| it.value());
        let own = of(container);
        let Some(pod_level) = self.pod.needs.pod_level.as_ref().and_then(|level| level.request(MEMORY)) else {
            return own;
        };
        let everyone: Vec<i64> = self.pod.containers().map(of).collect();
        let spare = pod_level.value().saturating_sub(everyone.iter().sum());
        own + spare.max(0) / i64::try_from(everyone.len().max(1)).unwrap_or(1)
    }
}

/// LC-334, below the root: `pod<uid>`, `burstable/pod<uid>`, `besteffort/pod<uid>`.
pub(crate) fn parent(pod: &PodSpec) -> String {
    match class_parent(pod.class()) {
        Some(class) => format!("{class}/pod{}", pod.uid),
        None => format!("pod{}", pod.uid),
    }
}

/// LC-334: the cgroup of a whole QoS class, below the root; some have none.
pub(crate) fn class_parent(class: QosClass) -> Option<&'static str> {
    match class {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    }
}

/// LC-334: the cgroup of a whole QoS class, from what its pods ask for.
pub(crate) fn class_values(class: QosClass, cpu_milli: i64) -> CgroupValues {
    let cpu_shares = match class {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some(shares(cpu_milli)),
        QosClass::BestEffort => Some(SHARES_MIN),
    };
    CgroupValues { cpu_shares, ..CgroupValues::default() }
}

/// LC-218, LC-220: what a pod asks of its node.
pub(crate) fn requests_of(pod: &PodSpec, given: &Allocation) -> Resources {
    let mut total = requests::total(stays(pod, |container| given.demand(container).requests.clone()));
    if let Some(level) = &pod.needs.pod_level {
        replace(&mut total, &level.requests);
    }
    requests::add(&mut total, &pod.needs.overhead);
    total
}

/// LC-219, LC-220: what a pod may use at most; a resource that some container
/// leaves unlimited has no pod limit, and overhead only raises limits that exist.
pub(crate) fn limits_of(pod: &PodSpec, given: &Allocation) -> Resources {
    let mut total = requests::total(stays(pod, |container| given.demand(container).limits.clone()));
    for container in pod.containers() {
        let limits = &given.demand(container).limits;
        total.retain(|name, _| limits.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    if let Some(level) = &pod.needs.pod_level {
        replace(&mut total, &level.limits);
    }
    let raised = pod.needs.overhead.iter().filter(|(name, _)| total.get(*name).is_some_and(|limit| !limit.is_zero()));
    let raised: Resources = raised.map(|(name, amount)| (name.clone(), *amount)).collect();
    requests::add(&mut total, &raised);
    total
}

fn stays<'a>(
    pod: &'a PodSpec,
    amounts: impl Fn(&ContainerSpec) -> Resources + 'a,
) -> impl Iterator<Item = (Stay, Resources)> + 'a {
    pod.containers().map(move |container| {
        let stay = match container.role {
            Role::Init => Stay::Init,
            Role::Sidecar => Stay::Sidecar,
            // Ephemeral containers have no requests (LC-361).
            Role::App | Role::Ephemeral => Stay::App,
        };
        (stay, amounts(container))
    })
}

fn replace(total: &mut Resources, level: &Resources) {
    for (name, amount) in level {
        if name == CPU || name == MEMORY || name.starts_with("hugepages-") {
            total.insert(name.clone(), *amount);
        }
    }
}

/// LC-335.
fn shares(cpu_milli: i64) -> u64 {
    let milli = u64::try_from(cpu_milli).unwrap_or(0);
    (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

/// LC-335: shares as a cgroup v2 weight.
pub fn cpu_weight(shares: u64) -> u64 {
    let above = shares.clamp(SHARES_MIN, SHARES_MAX) - SHARES_MIN;
    1 + above * (WEIGHT_MAX - 1) / (SHARES_MAX - SHARES_MIN)
}

/// LC-336.
fn quota(cpu_milli: i64) -> i64 {
    let period = i64::try_from(PERIOD_MICROS).unwrap_or(i64::MAX);
    (cpu_milli.saturating_mul(period) / 1000).max(QUOTA_MIN_MICROS)
}

/// LC-081: the request that shares stand for.
pub(crate) fn milli_of_shares(shares: u64) -> i64 {
    i64::try_from(shares.saturating_mul(1000).div_ceil(1024)).unwrap_or(i64::MAX)
}

/// LC-081: the limit that a quota stands for.
pub(crate) fn milli_of_quota(quota: i64, period: Option<u64>) -> i64 {
    let period = i64::try_from(period.unwrap_or(PERIOD_MICROS)).unwrap_or(i64::MAX).max(1);
    quota.saturating_mul(1000) / period
}

#[cfg(test)]
mod tests;
