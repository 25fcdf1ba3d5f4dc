//! The quality-of-service class of a pod (LC-327, LC-328, API-491).

use std::collections::BTreeMap;

use crate::Quantity;
use crate::api::core::v1::{PodSpec, ResourceRequirements};
use crate::apimachinery::pkg::api::resource::Quantity as Text;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }

    /// The class a stored `status.qosClass` names.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort].into_iter().find(|class| class.as_str() == name)
    }
}

/// Only these decide.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// The class of a spec. Pod-level resources, where set, decide alone.
pub fn of(spec: &PodSpec) -> QosClass {
    let none = ResourceRequirements::default();
    let everyone: Vec<&ResourceRequirements> = match &spec.resources {
        Some(pod_level) => vec![pod_level],
        None => spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .map(|container| container.resources.as_ref().unwrap_or(&none))
            .collect(),
    };
    let requests: Vec<_> = everyone.iter().map(|resources| compute(resources.requests.as_ref())).collect();
    let limits: Vec<_> = everyone.iter().map(|resources| compute(resources.limits.as_ref())).collect();
    if requests.iter().chain(&limits).all(BTreeMap::is_empty) {
        return QosClass::BestEffort;
    }
    let all_limited = limits.iter().all(|limits| limits.len() == COMPUTE.len());
    if all_limited && sum(&requests) == sum(&limits) { QosClass::Guaranteed } else { QosClass::Burstable }
}

/// cpu and memory of a resource list; zero counts as unset.
fn compute(list: Option<&BTreeMap<String, Text>>) -> BTreeMap<&'static str, Quantity> {
    COMPUTE
        .into_iter()
        .filter_map(|name| list?.get(name).map(|text| (name, Quantity::from(text))))
        .filter(|(_, quantity)| quantity > &Quantity::ZERO)
        .collect()
}

fn sum(lists: &[BTreeMap<&'static str, Quantity>]) -> BTreeMap<&'static str, Quantity> {
    let mut total = BTreeMap::new();
    for (name, quantity) in lists.iter().flatten() {
        let entry = total.entry(*name).or_insert(Quantity::ZERO);
        *entry = entry.plus(*quantity);
    }
    total
}

#[cfg(test)]
mod tests;
