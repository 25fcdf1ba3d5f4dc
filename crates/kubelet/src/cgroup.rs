//! Pure. Cgroup values, decided in `lifecycle`, in the words of the runtime.

use cri::Resources;
use lifecycle::CgroupValues;

pub(crate) fn resources(values: &CgroupValues) -> Resources {
    Resources {
        cpu_shares: values.cpu_shares,
        cpu_quota: values.cpu_quota,
        cpu_period: values.cpu_period,
        memory_limit_bytes: values.memory_limit_bytes,
        pids_limit: values.pids_limit,
        oom_score_adj: values.oom_score_adj.unwrap_or(0),
    }
}

/// The way back, of what a cgroup was found to hold (LC-082).
pub(crate) fn values(resources: &Resources) -> CgroupValues {
    CgroupValues {
        cpu_shares: resources.cpu_shares,
        cpu_quota: resources.cpu_quota,
        cpu_period: resources.cpu_period,
        memory_limit_bytes: resources.memory_limit_bytes,
        pids_limit: resources.pids_limit,
        ..CgroupValues::default()
    }
}
