//! cgroup values. In CRI 0 is "not said". Pure.

use cri::Resources;

use crate::v1;

pub(crate) fn to_wire(resources: &Resources) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: signed(resources.cpu_period),
        cpu_quota: resources.cpu_quota.unwrap_or(0),
        cpu_shares: signed(resources.cpu_shares),
        memory_limit_in_bytes: resources.memory_limit_bytes.unwrap_or(0),
        oom_score_adj: i64::from(resources.oom_score_adj),
    }
}

pub(crate) fn from_wire(wire: Option<&v1::LinuxContainerResources>) -> Resources {
    let Some(wire) = wire else { return Resources::default() };
    Resources {
        cpu_shares: unsigned(wire.cpu_shares),
        cpu_quota: said(wire.cpu_quota),
        cpu_period: unsigned(wire.cpu_period),
        memory_limit_bytes: said(wire.memory_limit_in_bytes),
        // The agent's own business in CRI: it sets it on the pod's cgroup.
        pids_limit: None,
        oom_score_adj: i32::try_from(wire.oom_score_adj.clamp(-1000, 1000)).unwrap_or(0),
    }
}

fn signed(value: Option<u64>) -> i64 {
    value.map_or(0, |value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn unsigned(value: i64) -> Option<u64> {
    u64::try_from(value).ok().filter(|value| *value != 0)
}

fn said(value: i64) -> Option<i64> {
    (value != 0).then_some(value)
}
