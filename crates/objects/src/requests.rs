//! What a pod as a whole asks for and may use (LC-218 to LC-220).

use std::collections::{BTreeMap, HashMap};

use crate::Quantity;
use crate::api::core::v1::{Container, Pod, PodSpec};
use crate::apimachinery::pkg::api::resource::Quantity as Text;
use crate::reasons::condition;

/// Amounts by resource name.
pub type Resources = BTreeMap<String, Quantity>;

/// LC-218: overhead + max(apps + sidecars, the neediest moment of init).
pub fn of_pod(spec: &PodSpec) -> Resources {
    let mut total =
        aggregate(spec, |container| amounts(container.resources.as_ref().and_then(|r| r.requests.as_ref())));
    pod_level(&mut total, spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    add(&mut total, &amounts(spec.overhead.as_ref()));
    total
}

/// LC-222, TC-310: what a pod takes while a resize is pending or unfinished:
/// for each container the largest of what it asks for, was given and has. What
/// can never be (`Infeasible`) does not count.
pub fn of_placed_pod(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::new() };
    let Some(status) = &pod.status else { return of_pod(spec) };
    let is_infeasible = status
        .conditions
        .iter()
        .flatten()
        .any(|it| it.type_ == condition::POD_RESIZE_PENDING && it.reason.as_deref() == Some("Infeasible"));
    let mut shown = HashMap::new();
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    for it in statuses.filter(|it| it.resources.is_some()) {
        shown.entry(it.name.as_str()).or_insert(it);
    }
    let mut total = aggregate(spec, |container| {
        let desired = amounts(container.resources.as_ref().and_then(|r| r.requests.as_ref()));
        let Some(shown) = shown.get(container.name.as_str()) else { return desired };
        let mut largest = amounts(shown.allocated_resources.as_ref());
        raise(&mut largest, &amounts(shown.resources.as_ref().and_then(|r| r.requests.as_ref())));
        if !is_infeasible {
            raise(&mut largest, &desired);
        }
        largest
    });
    pod_level(&mut total, spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    add(&mut total, &amounts(spec.overhead.as_ref()));
    total
}

/// What the containers ask for together, without pod-level resources and
/// overhead.
pub fn of_containers(spec: &PodSpec) -> Resources {
    aggregate(spec, |container| amounts(container.resources.as_ref().and_then(|r| r.requests.as_ref())))
}

/// LC-219: the same for limits; a resource some container leaves unlimited has
/// no pod limit, and overhead only raises limits that exist.
pub fn limits_of_pod(spec: &PodSpec) -> Resources {
    let of = |container: &Container| amounts(container.resources.as_ref().and_then(|r| r.limits.as_ref()));
    let mut total = aggregate(spec, of);
    let lasting = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    for container in lasting {
        let limits = of(container);
        total.retain(|name, _| limits.contains_key(name));
    }
    pod_level(&mut total, spec.resources.as_ref().and_then(|r| r.limits.as_ref()));
    for (name, overhead) in amounts(spec.overhead.as_ref()) {
        if let Some(limit) = total.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit = limit.plus(overhead);
        }
    }
    total
}

fn aggregate(spec: &PodSpec, of: impl Fn(&Container) -> Resources) -> Resources {
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|container| (if is_sidecar(container) { Stay::Sidecar } else { Stay::Init }, of(container)));
    total(init.chain(spec.containers.iter().map(|container| (Stay::App, of(container)))))
}

/// How long a container holds what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// Until the next init container starts.
    Init,
    /// From its turn in the order of init containers to the end.
    Sidecar,
    App,
}

/// LC-218, without overhead: max(apps + sidecars, the neediest moment of init).
/// Init containers and sidecars come in their order.
pub fn total(containers: impl IntoIterator<Item = (Stay, Resources)>) -> Resources {
    let (mut lasting, mut sidecars, mut neediest) = (Resources::new(), Resources::new(), Resources::new());
    for (stay, own) in containers {
        match stay {
            Stay::App => add(&mut lasting, &own),
            Stay::Sidecar => {
                add(&mut lasting, &own);
                add(&mut sidecars, &own);
                raise(&mut neediest, &sidecars);
            }
            Stay::Init => {
                let mut moment = own;
                add(&mut moment, &sidecars);
                raise(&mut neediest, &moment);
            }
        }
    }
    raise(&mut lasting, &neediest);
    lasting
}

/// An init container that keeps running beside the app containers.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// LC-220: pod-level resources replace the aggregate.
fn pod_level(total: &mut Resources, list: Option<&BTreeMap<String, Text>>) {
    for (name, quantity) in amounts(list) {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            total.insert(name, quantity);
        }
    }
}

fn amounts(list: Option<&BTreeMap<String, Text>>) -> Resources {
    list.into_iter().flatten().map(|(name, text)| (name.clone(), Quantity::from(text))).collect()
}

/// Adds amount by amount.
pub fn add(total: &mut Resources, more: &Resources) {
    for (name, quantity) in more {
        let entry = total.entry(name.clone()).or_default();
        *entry = entry.plus(*quantity);
    }
}

fn raise(total: &mut Resources, at_least: &Resources) {
    for (name, quantity) in at_least {
        let entry = total.entry(name.clone()).or_default();
        *entry = (*entry).max(*quantity);
    }
}

#[cfg(test)]
mod tests;
