//! Who goes first when a resource is scarce, and what they are told (TC-237…TC-240).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use objects::Quantity;

use crate::node::pressure::{Measurement, PodUsage, Scarce, Threshold};
use crate::node::seats::{Seat, Standing};
use crate::node::{Eviction, EvictionCause, Node};
use crate::resources::{EPHEMERAL_STORAGE, MEMORY};

/// TC-239: for hard thresholds and local storage limits.
pub(super) const GRACE_HARD: Duration = Duration::from_secs(1);

impl Node {
    /// TC-237, TC-238: critical pods are passed over.
    pub(super) fn first_to_go(&self, scarce: Scarce, measurement: &Measurement) -> Option<String> {
        let mut pods: Vec<&Seat> = self.seats.values().filter(|it| it.standing == Standing::Admitted).collect();
        let usage = |seat: &Seat| measurement.pods.get(&seat.spec.uid);
        pods.sort_by(|a, b| compare((a, usage(a)), (b, usage(b)), scarce));
        pods.iter().find(|seat| !seat.spec.needs.is_critical).map(|seat| seat.spec.uid.clone())
    }

    pub(super) fn pressure_eviction(
        &self,
        uid: &str,
        first: &Threshold,
        due: &[Threshold],
        measurement: &Measurement,
    ) -> Eviction {
        let scarce = first.signal.scarce();
        let mut message = format!("The node was low on resource: {}. ", scarce.as_str());
        if let Some((threshold, available)) = readings(scarce, due, measurement) {
            message += &format!("Threshold quantity: {threshold}, available: {available}. ");
        }
        let offenders = self.seats.get(uid).map(|seat| offenders(seat, scarce, measurement)).unwrap_or_default();
        for Offender { name, usage, request } in &offenders {
            let resource = scarce.as_str();
            message += &format!(
                "Container {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
            );
        }
        let own = self.seats.get(uid).map_or(Duration::ZERO, |seat| seat.spec.grace);
        let grace = match first.grace {
            None => GRACE_HARD,
            Some(_) => self.settings.eviction_grace_max.min(own),
        };
        Eviction {
            cause: EvictionCause::Pressure,
            message,
            grace: Some(grace),
            annotations: annotations(scarce, &offenders),
        }
    }
}

fn readings(scarce: Scarce, due: &[Threshold], measurement: &Measurement) -> Option<(Quantity, Quantity)> {
    let threshold = due.iter().find(|threshold| threshold.signal.scarce() == scarce)?;
    let reading = measurement.signals.get(&threshold.signal)?;
    let in_words = |amount: i64| match scarce {
        Scarce::Memory | Scarce::Disk => Quantity::from_bytes(amount),
        Scarce::Inodes | Scarce::Processes => Quantity::from_value(amount),
    };
    Some((in_words(threshold.value.of(reading.capacity)), in_words(reading.available)))
}

/// A container that uses more than it asked for.
struct Offender {
    name: String,
    usage: Quantity,
    request: Quantity,
}

/// LC-302.
fn offenders(seat: &Seat, scarce: Scarce, measurement: &Measurement) -> Vec<Offender> {
    let Some(usage) = measurement.pods.get(&seat.spec.uid) else { return Vec::new() };
    let mut offenders = Vec::new();
    for container in seat.spec.containers() {
        let Some(own) = usage.containers.get(&container.name) else { continue };
        let (used, resource) = match scarce {
            Scarce::Memory => (own.memory_bytes, MEMORY),
            Scarce::Disk => (own.disk_bytes, EPHEMERAL_STORAGE),
            Scarce::Inodes | Scarce::Processes => continue,
        };
        let request = seat.allocation.demand(container).requests.get(resource).copied().unwrap_or_default();
        let usage = Quantity::from_bytes(used);
        if usage > request {
            offenders.push(Offender { name: container.name.clone(), usage, request });
        }
    }
    offenders
}

/// TC-240.
fn annotations(scarce: Scarce, offenders: &[Offender]) -> BTreeMap<String, String> {
    let names: Vec<&str> = offenders.iter().map(|offender| offender.name.as_str()).collect();
    let usages: Vec<String> = offenders.iter().map(|offender| offender.usage.to_string()).collect();
    BTreeMap::from([
        ("offending_containers".to_owned(), names.join(",")),
        ("offending_containers_usage".to_owned(), usages.join(",")),
        ("starved_resource".to_owned(), scarce.as_str().to_owned()),
    ])
}

/// `Less`: goes first.
fn compare(a: (&Seat, Option<&PodUsage>), b: (&Seat, Option<&PodUsage>), scarce: Scarce) -> Ordering {
    let by_priority = a.0.spec.needs.priority.cmp(&b.0.spec.needs.priority);
    match scarce {
        Scarce::Memory | Scarce::Disk | Scarce::Inodes => exceeds(b, scarce)
            .cmp(&exceeds(a, scarce))
            .then(by_priority)
            .then(excess(b, scarce).cmp(&excess(a, scarce))),
        Scarce::Processes => by_priority.then(excess(b, scarce).cmp(&excess(a, scarce))),
    }
}

/// A pod nobody knows the usage of comes before all others.
fn exceeds(pod: (&Seat, Option<&PodUsage>), scarce: Scarce) -> (bool, bool) {
    (pod.1.is_none(), excess(pod, scarce).is_some_and(|excess| excess > 0))
}

/// Usage above the request; greater goes first, and unknown is greatest.
fn excess((seat, usage): (&Seat, Option<&PodUsage>), scarce: Scarce) -> Option<i64> {
    let Some(usage) = usage else { return Some(i64::MAX) };
    Some(match scarce {
        Scarce::Memory => usage.memory_bytes - seat.request(MEMORY),
        Scarce::Disk => usage.disk_bytes - seat.request(EPHEMERAL_STORAGE),
        Scarce::Inodes => usage.inodes,
        Scarce::Processes => usage.processes,
    })
}
