//! Which cgroup is set next, and which container restarts instead.

use objects::Quantity;

use crate::action::{Action, Cause};
use crate::fact::Instance;
use crate::plan::Draft;
use crate::resize::{Allocation, MemoryUse};
use crate::resources::{CPU, CgroupValues, Demand, MEMORY};
use crate::spec::{ContainerSpec, Role};
use crate::state::PodState;

/// A running container and what is in effect for it.
struct Live<'a> {
    container: &'a ContainerSpec,
    instance: &'a Instance,
    actual: Demand,
    allocated: &'a Demand,
}

impl Live<'_> {
    fn differs(&self, resource: &str) -> bool {
        self.actual.requests.get(resource) != self.allocated.requests.get(resource)
            || self.actual.limits.get(resource) != self.allocated.limits.get(resource)
    }

    /// LC-348.
    fn needs_restart(&self) -> bool {
        let policy = self.container.resize_policy;
        (policy.cpu_restarts && self.differs(CPU)) || (policy.memory_restarts && self.differs(MEMORY))
    }

    /// A lower limit, or one where there was none.
    fn shrinks(&self, resource: &str) -> bool {
        is_lower(self.actual.limit(resource), self.allocated.limit(resource))
    }

    /// Decreases come first; the limit decides, else the request.
    fn is_decrease(&self, resource: &str) -> bool {
        if self.actual.limit(resource) != self.allocated.limit(resource) {
            return self.shrinks(resource);
        }
        self.allocated.request(resource) < self.actual.request(resource)
    }
}

fn is_lower(current: Option<Quantity>, target: Option<Quantity>) -> bool {
    match (current, target) {
        (Some(current), Some(target)) => target < current,
        (None, Some(_)) => true,
        (Some(_) | None, None) => false,
    }
}

impl PodState {
    /// Containers that can change while they run: apps and sidecars.
    fn live(&self) -> Vec<Live<'_>> {
        let Some(seen) = &self.seen else { return Vec::new() };
        let resizable = self.spec.containers().filter(|container| container.role != Role::Init);
        let live = resizable.filter_map(|container| {
            let instance = seen.newest_of(&container.name).filter(|instance| instance.is_running())?;
            let allocated = self.sizing.allocated.demand(container);
            Some(Live { container, instance, actual: self.actual(container, instance), allocated })
        });
        live.collect()
    }

    /// LC-348, TC-306: the resize of this instance takes a restart.
    pub(crate) fn resize_restarts(&self, instance: &Instance) -> bool {
        self.sizing.progress.is_some()
            && self.live().iter().any(|live| live.instance.id == instance.id && live.needs_restart())
    }

    /// TC-308: nothing is left to apply, and nobody waits to be restarted.
    pub(super) fn is_resized(&self) -> bool {
        let is_restarting = |container: &ContainerSpec| {
            let newest = self.seen.as_ref().and_then(|seen| seen.newest_of(&container.name));
            newest.is_some_and(|it| !it.is_running() && self.kills.get(&it.id).is_some_and(|kill| kill.restarts))
        };
        let live = self.live();
        !live.iter().any(|live| live.differs(CPU) || live.differs(MEMORY))
            && !self.spec.containers().any(is_restarting)
            && !self.work.is_starting_container()
            && self.next_update(&live).is_none()
    }

    /// Live containers whose memory request alone differs: no cgroup knows
    /// about it, so that it is in effect at once.
    pub(super) fn bookkeeping_only(&self) -> Vec<(String, u32)> {
        let live = self.live();
        let is_same = |live: &&Live<'_>| {
            !live.needs_restart()
                && live.differs(MEMORY)
                && live.actual.limits.get(MEMORY) == live.allocated.limits.get(MEMORY)
        };
        live.iter().filter(is_same).map(|live| (live.instance.name.clone(), live.instance.attempt)).collect()
    }

    /// LC-349, TC-304: the next update in the order memory, CPU; growing pods
    /// from outside in, shrinking ones from inside out; decreases first.
    fn next_update(&self, live: &[Live<'_>]) -> Option<Action> {
        if self.seen.as_ref().is_none_or(|seen| seen.sandboxes.is_empty()) {
            return None;
        }
        let target = self.sized(&self.sizing.allocated).whole();
        let current = self.sizing.pod_values.unwrap_or_else(|| self.sized(&self.effective(live)).whole());
        let live: Vec<&Live<'_>> = live.iter().filter(|live| !live.needs_restart()).collect();
        self.next_memory_update(&live, &current, &target).or_else(|| self.next_cpu_update(&live, &current, &target))
    }

    fn next_memory_update(&self, live: &[&Live<'_>], current: &CgroupValues, target: &CgroupValues) -> Option<Action> {
        let (old, new) = (current.memory_limit_bytes, target.memory_limit_bytes);
        let whole = || CgroupValues { memory_limit_bytes: new, ..CgroupValues::default() };
        let grows = old.is_some() && new > old;
        let shrinks = new.is_some() && (old.is_none() || new < old);
        let changed = live.iter().filter(|it| it.actual.limit(MEMORY) != it.allocated.limit(MEMORY));
        let changed: Vec<&&Live<'_>> = changed.collect();
        if !self.sizing.may_shrink && (shrinks || changed.iter().any(|live| live.shrinks(MEMORY))) {
            return Some(Action::MeasureMemory);
        }
        if grows {
            return Some(Action::UpdatePodResources { limits: whole() });
        }
        if let Some(live) = first(&changed, MEMORY) {
            let bytes = live.allocated.limit(MEMORY).map(|limit| limit.value());
            let limits = CgroupValues { memory_limit_bytes: bytes, ..CgroupValues::default() };
            return Some(update(live, limits));
        }
        shrinks.then(|| Action::UpdatePodResources { limits: whole() })
    }

    fn next_cpu_update(&self, live: &[&Live<'_>], current: &CgroupValues, target: &CgroupValues) -> Option<Action> {
        let quota =
            CgroupValues { cpu_quota: target.cpu_quota, cpu_period: target.cpu_period, ..CgroupValues::default() };
        let shares = CgroupValues { cpu_shares: target.cpu_shares, ..CgroupValues::default() };
        let pod = |limits: CgroupValues| Some(Action::UpdatePodResources { limits });
        if current.cpu_quota.is_some() && target.cpu_quota > current.cpu_quota {
            return pod(quota);
        }
        if target.cpu_shares > current.cpu_shares {
            return pod(shares);
        }
        let changed: Vec<&&Live<'_>> = live.iter().filter(|live| live.differs(CPU)).collect();
        if let Some(live) = first(&changed, CPU) {
            let all = self.sized(&self.sizing.allocated).container(live.container);
            let CgroupValues { cpu_shares, cpu_quota, cpu_period, .. } = all;
            return Some(update(live, CgroupValues { cpu_shares, cpu_quota, cpu_period, ..CgroupValues::default() }));
        }
        if target.cpu_shares < current.cpu_shares {
            return pod(shares);
        }
        let shrinks = target.cpu_quota.is_some() && target.cpu_quota != current.cpu_quota;
        shrinks.then_some(()).and_then(|()| pod(quota))
    }

    /// What is in effect, as if it had been allocated.
    fn effective(&self, live: &[Live<'_>]) -> Allocation {
        let mut effective = self.sizing.allocated.clone();
        for live in live {
            effective.containers.insert(live.container.name.clone(), live.actual.clone());
        }
        effective
    }

    /// LC-350, TC-305: everything that uses more than it will be allowed.
    pub(super) fn over_users(&self, used: &MemoryUse) -> Vec<String> {
        let live = self.live();
        let target = self.sized(&self.sizing.allocated).whole().memory_limit_bytes;
        let current = self.sizing.pod_values.unwrap_or_else(|| self.sized(&self.effective(&live)).whole());
        let mut problems = Vec::new();
        let shrinks = current.memory_limit_bytes.is_none() || target < current.memory_limit_bytes;
        if let Some(limit) = target.filter(|limit| shrinks && used.pod >= *limit) {
            let usage = used.pod;
            problems.push(format!("attempting to set pod memory limit ({limit}) below current usage ({usage})"));
        }
        for live in live.iter().filter(|live| live.shrinks(MEMORY) && !live.needs_restart()) {
            let (name, limit) = (&live.container.name, live.allocated.limit(MEMORY).map_or(0, |it| it.value()));
            let usage = used.containers.get(name).copied().unwrap_or(0);
            if usage >= limit {
                problems.push(format!(
                    "attempting to set container {name:?} memory limit ({limit}) below current usage ({usage})"
                ));
            }
        }
        problems
    }
}

/// Plans the next step; an error stops the sequence until it is tried again.
pub(crate) fn plan(draft: &mut Draft<'_>) {
    let state = draft.state;
    if state.sizing.progress.is_none() || state.work.is_resizing() {
        return;
    }
    let because = format!("generation {} was allocated", state.sizing.allocated.generation);
    if let Some(action) = state.next_update(&state.live()) {
        draft.act(action, Cause::new("LC-349", because));
    }
}

fn first<'a, 'b>(changed: &[&'a &'b Live<'b>], resource: &str) -> Option<&'a &'b Live<'b>> {
    changed.iter().find(|live| live.is_decrease(resource)).or_else(|| changed.first()).copied()
}

fn update(live: &Live<'_>, limits: CgroupValues) -> Action {
    Action::UpdateResources { container: live.container.name.clone(), id: live.instance.id.clone(), limits }
}
