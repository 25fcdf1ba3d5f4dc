//! Pure. Which cgroup a pod lives in and what its processes may use (spec §15.2, §15.3).

use cri::Resources;
use objects::Quantity;
use objects::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use objects::apimachinery::pkg::api::resource::Quantity as Text;
use objects::qos::{self, QosClass};

const SHARES_MIN: u64 = 2;
const SHARES_MAX: u64 = 262_144;
const PERIOD_MICROS: u64 = 100_000;
const QUOTA_MIN_MICROS: i64 = 1_000;

/// LC-334, below the instance's root: `pod<uid>`, `burstable/pod<uid>`, `besteffort/pod<uid>`.
pub(crate) fn parent(pod: &Pod, uid: &str) -> String {
    match class(pod) {
        QosClass::Guaranteed => format!("pod{uid}"),
        QosClass::Burstable => format!("burstable/pod{uid}"),
        QosClass::BestEffort => format!("besteffort/pod{uid}"),
    }
}

/// LC-329: what was stored at creation counts, whatever a resize did since.
pub(crate) fn class(pod: &Pod) -> QosClass {
    let stored = pod.status.as_ref().and_then(|status| status.qos_class.as_deref()).and_then(QosClass::from_name);
    stored.unwrap_or_else(|| pod.spec.as_ref().map_or(QosClass::BestEffort, qos::of))
}

/// LC-338: the pod's cgroup as a whole.
pub(crate) fn of_pod(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    if class(pod) == QosClass::BestEffort {
        return Resources { cpu_shares: Some(SHARES_MIN), ..Resources::default() };
    }
    let (requests, limits) = (objects::requests::of_pod(spec), objects::requests::limits_of_pod(spec));
    let milli = |quantity: &Quantity| quantity.milli();
    let cpu_limit = limits.get("cpu").map(milli);
    Resources {
        cpu_shares: Some(shares(requests.get("cpu").map_or(0, milli))),
        cpu_quota: cpu_limit.map(quota),
        cpu_period: cpu_limit.map(|_| PERIOD_MICROS),
        memory_limit_bytes: limits.get("memory").map(Quantity::value),
        ..Resources::default()
    }
}

/// LC-335 to LC-337: one container.
pub(crate) fn of_container(pod: &Pod, container: &Container, node_memory_bytes: u64) -> Resources {
    let own = container.resources.as_ref();
    let pod_level = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let cpu_limit = limit(own, "cpu").or_else(|| limit(pod_level, "cpu"));
    let cpu_request = request(own, "cpu").or_else(|| limit(own, "cpu")).map_or(0, |cpu| cpu.milli());
    let memory_limit = limit(own, "memory").or_else(|| limit(pod_level, "memory"));
    Resources {
        cpu_shares: Some(shares(cpu_request)),
        cpu_quota: cpu_limit.map(|cpu| quota(cpu.milli())),
        cpu_period: cpu_limit.map(|_| PERIOD_MICROS),
        memory_limit_bytes: memory_limit.map(|memory| memory.value()),
        pids_limit: None,
        oom_score_adj: oom_score_adj(pod, container, node_memory_bytes),
    }
}

/// LC-335.
fn shares(cpu_milli: i64) -> u64 {
    let milli = u64::try_from(cpu_milli).unwrap_or(0);
    (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX)
}

/// LC-336.
fn quota(cpu_milli: i64) -> i64 {
    (cpu_milli.saturating_mul(100)).max(QUOTA_MIN_MICROS)
}

/// LC-330, LC-332.
fn oom_score_adj(pod: &Pod, container: &Container, node_memory_bytes: u64) -> i32 {
    let Some(spec) = &pod.spec else { return 1000 };
    if spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return -997;
    }
    match class(pod) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let own = burstable_score(memory_request(spec, container), node_memory_bytes);
            if !objects::requests::is_sidecar(container) {
                return own;
            }
            let smallest = spec.containers.iter().map(|app| memory_request(spec, app)).min().unwrap_or(0);
            own.min(burstable_score(smallest, node_memory_bytes))
        }
    }
}

fn burstable_score(memory_request: i64, node_memory_bytes: u64) -> i32 {
    let node = i128::from(node_memory_bytes.max(1));
    let score = 1000 - 1000 * i128::from(memory_request) / node;
    i32::try_from(score.clamp(3, 999)).expect("clamped to three digits")
}

/// LC-331: a pod-level request is shared out among its containers.
fn memory_request(spec: &PodSpec, container: &Container) -> i64 {
    let of = |container: &Container| request(container.resources.as_ref(), "memory").map_or(0, |memory| memory.value());
    let own = of(container);
    let Some(pod_level) = request(spec.resources.as_ref(), "memory") else { return own };
    let everyone: Vec<i64> = spec.containers.iter().chain(spec.init_containers.iter().flatten()).map(of).collect();
    let spare = pod_level.value().saturating_sub(everyone.iter().sum());
    own + spare.max(0) / i64::try_from(everyone.len().max(1)).expect("a pod has few containers")
}

/// An explicit limit is the request where none is given (API defaulting).
fn request(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    let requests = resources?.requests.as_ref();
    requests.and_then(|requests| amount(requests.get(name))).or_else(|| limit(resources, name))
}

fn limit(resources: Option<&ResourceRequirements>, name: &str) -> Option<Quantity> {
    amount(resources?.limits.as_ref()?.get(name)).filter(|limit| !limit.is_zero())
}

fn amount(text: Option<&Text>) -> Option<Quantity> {
    Quantity::parse(&text?.0).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(resources: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "a", "image": "i", "resources": resources}]},
        }))
        .unwrap()
    }

    fn adj(memory_request: &str) -> i32 {
        let pod = pod(json!({"requests": {"memory": memory_request, "cpu": "1m"}}));
        of_container(&pod, &pod.spec.as_ref().unwrap().containers[0], 8 << 30).oom_score_adj
    }

    #[test]
    fn lc_330_the_oom_score_follows_the_memory_request() {
        assert_eq!([adj("0"), adj("100Mi"), adj("1Gi"), adj("8Gi")], [999, 988, 875, 3]);
    }

    #[test]
    fn lc_335_lc_336_cpu_becomes_shares_and_quota() {
        let vectors = [
            (0, 2, 1000),
            (1, 2, 1000),
            (100, 102, 10_000),
            (250, 256, 25_000),
            (500, 512, 50_000),
            (1000, 1024, 100_000),
            (2000, 2048, 200_000),
            (256_000, 262_144, 25_600_000),
        ];
        for (milli, expected_shares, expected_quota) in vectors {
            assert_eq!((shares(milli), quota(milli)), (expected_shares, expected_quota), "{milli}m");
        }
    }

    #[test]
    fn lc_334_the_class_decides_the_parent() {
        let limits = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(parent(&pod(json!({})), "u"), "besteffort/podu");
        assert_eq!(parent(&pod(json!({"requests": {"cpu": "1"}})), "u"), "burstable/podu");
        assert_eq!(parent(&pod(json!({"requests": limits, "limits": limits})), "u"), "podu");
    }

    #[test]
    fn lc_338_a_pod_is_limited_only_when_all_its_containers_are() {
        let limits =
            json!({"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"}});
        let mut pod = pod(limits);
        let whole = of_pod(&pod);
        assert_eq!(
            (whole.cpu_shares, whole.cpu_quota, whole.memory_limit_bytes),
            (Some(256), Some(50_000), Some(64 << 20))
        );
        let free = Container { name: "b".into(), ..Container::default() };
        pod.spec.as_mut().unwrap().containers.push(free);
        let whole = of_pod(&pod);
        assert_eq!((whole.cpu_shares, whole.cpu_quota, whole.memory_limit_bytes), (Some(256), None, None));
    }
}
