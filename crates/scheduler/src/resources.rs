//! Amounts of resources in the scheduler's arithmetic: CPU in thousandths,
//! everything else in whole units.

use std::collections::BTreeMap;

use objects::Quantity;
use objects::api::core::v1 as core;
use objects::apimachinery::pkg::api::resource::Quantity as Text;

/// Amounts by resource name; an absent name is zero. Sums of quantities fit
/// with room to spare, so adding and taking away are exact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, u128>);

impl Resources {
    pub(crate) const CPU: &str = "cpu";
    pub(crate) const MEMORY: &str = "memory";
    const PODS: &str = "pods";

    /// What a node offers to pods; their number is not among it.
    pub(crate) fn parse_amounts(list: Option<&BTreeMap<String, Text>>) -> Self {
        let offered = list.into_iter().flatten().filter(|(name, _)| *name != Self::PODS);
        offered.map(|(name, text)| (name.as_str(), Quantity::from(text))).collect()
    }

    pub(crate) fn parse_pod_count(list: Option<&BTreeMap<String, Text>>) -> u64 {
        let count = list.and_then(|list| list.get(Self::PODS)).map(|text| Quantity::from(text).value());
        count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
    }

    /// TC-332: what the pod as a whole asks for.
    pub(crate) fn parse_requests(pod: &core::Pod) -> Self {
        let requests = objects::requests::of_placed_pod(pod);
        requests.iter().map(|(name, quantity)| (name.as_str(), *quantity)).collect()
    }

    /// TC-335: the same where containers that ask for no CPU or memory count
    /// as if they asked for a little, so that many of them spread as well.
    pub(crate) fn parse_scored(spec: &core::PodSpec) -> Self {
        let mut spec = core::PodSpec {
            containers: spec.containers.iter().map(requests_only).collect(),
            init_containers: spec.init_containers.as_ref().map(|list| list.iter().map(requests_only).collect()),
            overhead: spec.overhead.clone(),
            resources: spec.resources.clone(),
            ..core::PodSpec::default()
        };
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let requests = container.resources.get_or_insert_default().requests.get_or_insert_default();
            for (name, amount) in ASSUMED {
                requests.entry(name.to_owned()).or_insert_with(|| Text(amount.to_owned()));
            }
        }
        let requests = objects::requests::of_pod(&spec);
        let scored = requests.iter().filter(|(name, _)| ASSUMED.iter().any(|(assumed, _)| name == assumed));
        scored.map(|(name, quantity)| (name.as_str(), *quantity)).collect()
    }

    pub(crate) fn of(&self, resource: &str) -> u128 {
        self.0.get(resource).copied().unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u128)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            *self.0.entry(name.to_owned()).or_default() += amount;
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let held = self.0.get_mut(name).expect("only what was added is taken away");
            *held -= amount;
            if *held == 0 {
                self.0.remove(name);
            }
        }
    }
}

impl<'a> FromIterator<(&'a str, Quantity)> for Resources {
    fn from_iter<T: IntoIterator<Item = (&'a str, Quantity)>>(amounts: T) -> Self {
        let whole = |name: &str, quantity: Quantity| {
            let amount = if name == Self::CPU { quantity.milli() } else { quantity.value() };
            u128::try_from(amount).unwrap_or_default()
        };
        let amounts = amounts.into_iter().map(|(name, quantity)| (name.to_owned(), whole(name, quantity)));
        Self(amounts.filter(|(_, amount)| *amount > 0).collect())
    }
}

/// Upstream: `DefaultMilliCPURequest`, `DefaultMemoryRequest`.
const ASSUMED: [(&str, &str); 2] = [(Resources::CPU, "100m"), (Resources::MEMORY, "200Mi")];

/// A container reduced to what requests are computed from.
fn requests_only(container: &core::Container) -> core::Container {
    core::Container {
        name: container.name.clone(),
        restart_policy: container.restart_policy.clone(),
        resources: container.resources.clone(),
        ..core::Container::default()
    }
}
