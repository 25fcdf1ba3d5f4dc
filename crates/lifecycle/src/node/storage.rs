//! Who exceeds a limit on local storage (TC-242).

use std::collections::BTreeMap;

use objects::Quantity;

use crate::node::pressure::{Measurement, PodUsage};
use crate::node::ranking::GRACE_HARD;
use crate::node::seats::{Seat, Standing};
use crate::node::{Eviction, EvictionCause, Node};
use crate::resources::{EPHEMERAL_STORAGE, limits_of};

impl Node {
    /// Every pod is looked at; critical ones are left alone (LC-301).
    pub(super) fn evict_over_limit(&mut self, measurement: &Measurement) -> Vec<String> {
        let may_go = |seat: &&Seat| seat.standing == Standing::Admitted && !seat.spec.needs.is_critical;
        let over = self.seats.values().filter(may_go).filter_map(|seat| {
            let usage = measurement.pods.get(&seat.spec.uid)?;
            Some((seat.spec.uid.clone(), excess(seat, usage)?))
        });
        let over: Vec<(String, String)> = over.collect();
        for (uid, message) in &over {
            let eviction = Eviction {
                cause: EvictionCause::StorageLimit,
                message: message.clone(),
                grace: Some(GRACE_HARD),
                annotations: BTreeMap::new(),
            };
            self.evict(uid, eviction);
        }
        over.into_iter().map(|(uid, _)| uid).collect()
    }
}

/// The first limit that is exceeded: volumes, the pod, its containers.
fn excess(seat: &Seat, usage: &PodUsage) -> Option<String> {
    let is_over = |used: i64, limit: &Quantity| Quantity::from_bytes(used) > *limit;
    for (volume, limit) in &seat.spec.needs.empty_dir_limits {
        if usage.empty_dirs.get(volume).is_some_and(|used| is_over(*used, limit)) {
            return Some(format!("Usage of EmptyDir volume {volume:?} exceeds the limit \"{limit}\". "));
        }
    }
    let limits = limits_of(&seat.spec, &seat.allocation);
    if let Some(limit) = limits.get(EPHEMERAL_STORAGE).filter(|limit| is_over(usage.disk_bytes, limit)) {
        return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
    }
    seat.spec.containers().find_map(|container| {
        let limit = seat.allocation.demand(container).limit(EPHEMERAL_STORAGE)?;
        let used = usage.containers.get(&container.name)?.disk_bytes;
        let name = &container.name;
        is_over(used, &limit)
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    })
}
