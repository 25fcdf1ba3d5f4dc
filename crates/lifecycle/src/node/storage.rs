//! Who exceeds a limit on local storage (TC-242), or lost it (LC-165).

use std::collections::BTreeMap;

use objects::Quantity;

use crate::node::pressure::{Measurement, PodUsage};
use crate::node::ranking::GRACE_HARD;
use crate::node::seats::{Seat, Standing};
use crate::node::{Eviction, EvictionCause, Node};
use crate::resources::{EPHEMERAL_STORAGE, limits_of};

impl Node {
    /// Every pod is looked at.
    pub(super) fn evict_over_limit(&mut self, measurement: &Measurement) -> Vec<String> {
        let admitted = self.seats.values().filter(|seat| seat.standing == Standing::Admitted);
        let over = admitted.filter_map(|seat| {
            let (cause, message) = trouble(seat, measurement.pods.get(&seat.spec.uid)?)?;
            Some((seat.spec.uid.clone(), cause, message))
        });
        let over: Vec<(String, EvictionCause, String)> = over.collect();
        for (uid, cause, message) in &over {
            let (cause, message) = (*cause, message.clone());
            self.evict(uid, Eviction { cause, message, grace: Some(GRACE_HARD), annotations: BTreeMap::new() });
        }
        over.into_iter().map(|(uid, ..)| uid).collect()
    }
}

/// LC-301: critical pods may exceed limits. LC-165, DEC-9: nobody can live
/// without what is below its directory.
fn trouble(seat: &Seat, usage: &PodUsage) -> Option<(EvictionCause, String)> {
    if usage.is_storage_lost {
        return Some((EvictionCause::StorageLost, "The storage of the pod was lost. ".to_owned()));
    }
    if seat.spec.needs.is_critical {
        return None;
    }
    Some((EvictionCause::StorageLimit, excess(seat, usage)?))
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
