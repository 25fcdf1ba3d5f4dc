//! How facts move a resize forward, and what is told about it (LC-347).

use std::fmt::Write;

use ambient::Now;
use objects::reasons::event;
use objects::requests::Resources;

use crate::action::Action;
use crate::fact::Outcome;
use crate::resize::{Allocation, MemoryUse, Pending, Progress, Refusal, Verdict, overlay};
use crate::resources::{CPU, CgroupValues, Demand, MEMORY};
use crate::spec::PodSpec;
use crate::state::{PodState, Severity};

impl PodState {
    /// The pod may run with these values. After an agent restart they may
    /// still have to be applied.
    pub(crate) fn on_admitted(&mut self, allocation: Allocation, now: Now) {
        self.awaits_admission = false;
        if self.sizing.allocated.containers != allocation.containers && self.sizing.progress.is_none() {
            let generation = allocation.generation;
            self.sizing.progress = Some(Progress { generation, error: None, since: now.wall, updated: now.wall });
        }
        self.sizing.allocated = allocation;
    }

    /// LC-347, TC-309: a newer resize replaces the target of an older one.
    pub(crate) fn on_resized(&mut self, allocation: Allocation, now: Now) {
        let known = &mut self.sizing.allocated;
        if allocation.generation < known.generation {
            return;
        }
        if allocation.containers == known.containers {
            known.generation = allocation.generation;
            return;
        }
        let generation = allocation.generation;
        self.sizing.allocated = allocation;
        self.sizing.pending = None;
        self.sizing.may_shrink = false;
        self.sizing.progress = Some(Progress { generation, error: None, since: now.wall, updated: now.wall });
        let summary = summary(&self.spec, Some(&self.sizing.allocated), generation, None);
        self.event(Severity::Normal, event::RESIZE_STARTED, format!("Pod resize started: {summary}"), None);
    }

    /// TC-300. Told again only when something about it changed.
    pub(crate) fn on_resize_refused(&mut self, refusal: Refusal, now: Now) {
        let is_late = refusal.generation < self.sizing.allocated.generation;
        if is_late || self.sizing.allocated.is_desired_by(&self.spec) {
            return;
        }
        let before = self.sizing.pending.as_ref();
        let is_known = |before: &Pending| before.refusal == refusal || before.refusal.generation > refusal.generation;
        if before.is_some_and(is_known) {
            return;
        }
        let same = before.filter(|before| before.refusal.verdict == refusal.verdict);
        let since = same.map_or(now.wall, |before| before.since);
        let reason = match refusal.verdict {
            Verdict::Deferred => event::RESIZE_DEFERRED,
            Verdict::Infeasible => event::RESIZE_INFEASIBLE,
        };
        let summary = summary(&self.spec, None, refusal.generation, Some(&refusal.message));
        let message = format!("Pod resize {}: {summary}", refusal.verdict.as_str());
        self.event(Severity::Warning, reason, message, None);
        self.sizing.pending = Some(Pending { refusal, since, updated: now.wall });
    }

    /// New instances and sandboxes are born with what is allocated (LC-351, TC-307).
    pub(crate) fn on_birth(&mut self, action: &Action) {
        if let Action::StartContainer { container, attempt } = action {
            let Some(spec) = self.spec.container(container) else { return };
            let demand = self.sizing.allocated.demand(spec).clone();
            self.sizing.applied.insert((container.clone(), *attempt), demand);
        }
        if matches!(action, Action::CreateSandbox { .. }) {
            let values = self.sized(&self.sizing.allocated).whole();
            self.sizing.pod_values = Some(values);
        }
    }

    pub(crate) fn on_update_ended(&mut self, action: &Action, outcome: &Outcome, now: Now) {
        match (action, outcome) {
            (Action::MeasureMemory, Outcome::Measured(used)) => self.on_measured(action, used, now),
            (_, Outcome::Failed(error)) => {
                self.work.hold_after_failure(action, now.mono);
                self.on_resize_error(error.clone(), now);
            }
            (Action::UpdateResources { id, limits, .. }, _) => {
                self.apply(id, limits);
                self.clear_error(now);
            }
            (Action::UpdatePodResources { limits }, _) => {
                let mut values = self.sizing.pod_values.unwrap_or_else(|| self.sized(&self.sizing.allocated).whole());
                values.cpu_shares = limits.cpu_shares.or(values.cpu_shares);
                values.cpu_quota = limits.cpu_quota.or(values.cpu_quota);
                values.cpu_period = limits.cpu_period.or(values.cpu_period);
                values.memory_limit_bytes = limits.memory_limit_bytes.or(values.memory_limit_bytes);
                self.sizing.pod_values = Some(values);
                self.clear_error(now);
            }
            _ => {}
        }
    }

    /// LC-350, TC-305: nothing is applied while something uses too much.
    fn on_measured(&mut self, action: &Action, used: &MemoryUse, now: Now) {
        let problems = self.over_users(used);
        match problems.as_slice() {
            [] => self.sizing.may_shrink = true,
            [one] => self.on_resize_error(format!("cannot decrease memory limits: {one}"), now),
            more => self.on_resize_error(format!("cannot decrease memory limits: [{}]", more.join(", ")), now),
        }
        if !problems.is_empty() {
            self.work.hold_after_failure(action, now.mono);
        }
    }

    fn apply(&mut self, id: &str, limits: &CgroupValues) {
        let Some(instance) = self.seen.as_ref().and_then(|seen| seen.instance(id)).cloned() else { return };
        let Some(container) = self.spec.container(&instance.name) else { return };
        let allocated = self.sizing.allocated.demand(container).clone();
        let mut demand = self.actual(container, &instance);
        let is_cpu = limits.cpu_shares.is_some() || limits.cpu_quota.is_some();
        let touched = [(CPU, is_cpu), (MEMORY, limits.memory_limit_bytes.is_some())];
        for (resource, _) in touched.into_iter().filter(|(_, is_touched)| *is_touched) {
            // What did not exist before exists now.
            let lists = [(&mut demand.requests, &allocated.requests), (&mut demand.limits, &allocated.limits)];
            for (own, given) in lists {
                if let Some(amount) = given.get(resource) {
                    own.entry(resource.to_owned()).or_insert(*amount);
                }
            }
        }
        overlay(&mut demand, limits);
        self.sizing.applied.insert((instance.name.clone(), instance.attempt), demand);
    }

    fn on_resize_error(&mut self, error: String, now: Now) {
        let Some(progress) = &mut self.sizing.progress else { return };
        if progress.error.as_ref() == Some(&error) {
            progress.updated = now.wall;
            return;
        }
        // LC-098: the reason changes with the first error.
        if progress.error.is_none() {
            progress.since = now.wall;
        }
        progress.updated = now.wall;
        progress.error = Some(error.clone());
        let generation = progress.generation;
        let summary = summary(&self.spec, Some(&self.sizing.allocated), generation, Some(&error));
        self.event(Severity::Warning, event::RESIZE_ERROR, format!("Pod resize error: {summary}"), None);
    }

    fn clear_error(&mut self, now: Now) {
        if let Some(progress) = self.sizing.progress.as_mut().filter(|progress| progress.error.is_some()) {
            progress.error = None;
            (progress.since, progress.updated) = (now.wall, now.wall);
        }
    }

    /// After every fact: what is over is over.
    pub(crate) fn advance_resize(&mut self) {
        // TC-300, TC-309: back to what it has.
        if self.sizing.allocated.is_desired_by(&self.spec) {
            self.sizing.pending = None;
        }
        if self.sizing.progress.is_none() {
            return;
        }
        for key in self.bookkeeping_only() {
            let Some(container) = self.spec.container(&key.0) else { continue };
            let allocated = self.sizing.allocated.demand(container).clone();
            let mut demand = self.sizing.applied.get(&key).cloned().unwrap_or_else(|| allocated.clone());
            if let Some(request) = allocated.requests.get(MEMORY) {
                demand.requests.insert(MEMORY.to_owned(), *request);
            }
            self.sizing.applied.insert(key, demand);
        }
        if self.is_resized() {
            let generation = self.sizing.progress.take().map_or(0, |progress| progress.generation);
            self.sizing.may_shrink = false;
            let summary = summary(&self.spec, Some(&self.sizing.allocated), generation, None);
            self.event(Severity::Normal, event::RESIZE_COMPLETED, format!("Pod resize completed: {summary}"), None);
        }
    }

    /// Forgets instances that are gone; those about to come are kept.
    pub(crate) fn forget_sizes(&mut self) {
        let Some(seen) = &self.seen else { return };
        self.sizing.applied.retain(|(name, attempt), _| {
            let newest = seen.newest_of(name).map_or(0, |instance| instance.attempt);
            *attempt + 1 >= newest
        });
    }
}

/// TC-308: the sizes of apps and sidecars as JSON; the spec's where nothing
/// was allocated.
fn summary(pod: &PodSpec, given: Option<&Allocation>, generation: i64, error: Option<&str>) -> String {
    let list = |init: bool| {
        let containers = if init { &pod.init } else { &pod.apps };
        let resizable = containers.iter().filter(|container| container.role != crate::spec::Role::Init);
        let entries = resizable.map(|container| {
            let demand = given.map_or(&container.demand, |given| given.demand(container));
            format!("{{\"name\":{:?},\"resources\":{}}}", container.name, requirements(demand))
        });
        entries.collect::<Vec<_>>().join(",")
    };
    let mut text = String::from("{");
    for (key, entries) in [("initContainers", list(true)), ("containers", list(false))] {
        if !entries.is_empty() {
            let _ = write!(text, "\"{key}\":[{entries}],");
        }
    }
    let _ = write!(text, "\"generation\":{generation}");
    if let Some(error) = error {
        let _ = write!(text, ",\"error\":{error:?}");
    }
    text.push('}');
    text
}

fn requirements(demand: &Demand) -> String {
    let list = |name: &str, amounts: &Resources| {
        let entries: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name:?}:\"{amount}\"")).collect();
        (!entries.is_empty()).then(|| format!("\"{name}\":{{{}}}", entries.join(",")))
    };
    let parts = [list("limits", &demand.limits), list("requests", &demand.requests)];
    format!("{{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(","))
}
