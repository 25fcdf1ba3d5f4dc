//! The tables of §8.3, §15.2 and §15.3.

use objects::api::core::v1::{Container, Pod, PodSpec as ApiSpec, ResourceRequirements};
use objects::apimachinery::pkg::api::resource::Quantity as Text;

use super::*;

const NODE: u64 = 8 << 30;

fn list(text: &str) -> Option<std::collections::BTreeMap<String, Text>> {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    let list: std::collections::BTreeMap<_, _> = pairs.map(|(k, v)| (k.to_owned(), Text(v.to_owned()))).collect();
    (!list.is_empty()).then_some(list)
}

fn resources(requests: &str, limits: &str) -> ResourceRequirements {
    ResourceRequirements { requests: list(requests), limits: list(limits), claims: None }
}

fn container(name: &str, requests: &str, limits: &str) -> Container {
    Container { name: name.into(), resources: Some(resources(requests, limits)), ..Container::default() }
}

fn pod(spec: ApiSpec) -> PodSpec {
    let mut pod = Pod { spec: Some(spec), ..Pod::default() };
    pod.metadata.uid = Some("u".into());
    pod.metadata.name = Some("p".into());
    pod.metadata.namespace = Some("default".into());
    PodSpec::parse(&pod).expect("a valid pod")
}

fn with_apps(apps: Vec<Container>) -> PodSpec {
    pod(ApiSpec { containers: apps, ..ApiSpec::default() })
}

fn on(machine: &Machine, pod: &PodSpec) -> Cgroups {
    Sized { pod, given: &Allocation::desired(pod), machine }.cgroups()
}

fn of(pod: &PodSpec) -> Cgroups {
    on(&Machine::upstream(NODE), pod)
}

#[test]
fn lc_218_qv_01_to_qv_06_a_pod_asks_for_its_neediest_moment() {
    for (id, init, apps, expected) in [
        ("QV-01", "500m", "100m 200m", 500),
        ("QV-02", "200m", "100m 200m", 300),
        ("QV-03", "S:100m 500m", "200m", 600),
        ("QV-04", "500m S:100m", "200m", 500),
        ("QV-05", "S:100m S:200m", "300m", 600),
        ("QV-06", "S:100m 100m S:50m", "10m", 200),
    ] {
        let parse = |(index, text): (usize, &str)| {
            let (policy, cpu) = text.strip_prefix("S:").map_or((None, text), |cpu| (Some("Always".to_owned()), cpu));
            let base = container(&format!("c{index}{cpu}"), &format!("cpu={cpu}"), "");
            Container { restart_policy: policy, ..base }
        };
        let spec = ApiSpec {
            init_containers: Some(init.split(' ').enumerate().map(parse).collect()),
            containers: apps.split(' ').enumerate().map(parse).collect(),
            ..ApiSpec::default()
        };
        let pod = pod(spec);
        assert_eq!(requests_of(&pod, &Allocation::desired(&pod))[CPU].milli(), expected, "{id}");
    }
}

#[test]
fn lc_219_lc_220_pod_level_resources_replace_the_sum_and_overhead_is_added() {
    let spec = ApiSpec {
        containers: vec![container("a", "cpu=1 memory=1Gi", "cpu=2"), container("b", "cpu=1", "cpu=1 memory=1Gi")],
        overhead: list("cpu=100m memory=10Mi"),
        ..ApiSpec::default()
    };
    let plain = pod(spec.clone());
    let given = Allocation::desired(&plain);
    assert_eq!(requests_of(&plain, &given)[CPU].milli(), 2100);
    assert_eq!(limits_of(&plain, &given)[CPU].milli(), 3100);
    assert_eq!(limits_of(&plain, &given).get(MEMORY), None);
    let level = pod(ApiSpec { resources: Some(resources("cpu=5", "cpu=6")), ..spec });
    assert_eq!(requests_of(&level, &given)[CPU].milli(), 5100);
    assert_eq!(limits_of(&level, &given)[CPU].milli(), 6100);
    assert_eq!(requests_of(&level, &given)[MEMORY].value(), (1 << 30) + (10 << 20));
}

/// TC-244, with the bounds of LC-330.
#[test]
fn lc_330_qv_10_to_qv_13_the_oom_score_follows_the_memory_request() {
    for (id, memory, expected) in
        [("QV-10", "0", 999), ("QV-11", "100Mi", 988), ("QV-12", "1Gi", 875), ("QV-13", "8Gi", 3)]
    {
        let pod = with_apps(vec![container("a", &format!("cpu=1m memory={memory}"), "")]);
        assert_eq!(of(&pod).containers["a"].oom_score_adj, Some(expected), "{id}");
    }
    let best_effort = with_apps(vec![container("a", "", "")]);
    assert_eq!(of(&best_effort).containers["a"].oom_score_adj, Some(1000));
    let guaranteed = with_apps(vec![container("a", "cpu=1 memory=1Gi", "cpu=1 memory=1Gi")]);
    assert_eq!(of(&guaranteed).containers["a"].oom_score_adj, Some(-997));
    let critical = pod(ApiSpec {
        containers: vec![container("a", "cpu=1", "")],
        priority: Some(2_000_001_000),
        priority_class_name: Some("system-node-critical".into()),
        ..ApiSpec::default()
    });
    assert_eq!(of(&critical).containers["a"].oom_score_adj, Some(-997));
}

#[test]
fn lc_331_a_pod_level_request_is_shared_out() {
    let spec = ApiSpec {
        containers: vec![container("a", "memory=1Gi", ""), container("b", "memory=1Gi", "")],
        resources: Some(resources("memory=4Gi", "")),
        ..ApiSpec::default()
    };
    // 1 Gi + (4 Gi − 2 Gi) ÷ 2 = 2 Gi of 8 Gi
    assert_eq!(of(&pod(spec)).containers["a"].oom_score_adj, Some(750));
}

#[test]
fn lc_332_a_sidecar_is_not_killed_before_the_apps_it_serves() {
    let sidecar = Container { restart_policy: Some("Always".into()), ..container("s", "memory=0", "") };
    let spec = ApiSpec {
        init_containers: Some(vec![sidecar]),
        containers: vec![container("a", "memory=1Gi", ""), container("b", "memory=2Gi", "")],
        ..ApiSpec::default()
    };
    assert_eq!(of(&pod(spec)).containers["s"].oom_score_adj, Some(875));
}

#[test]
fn lc_334_the_class_decides_the_parent_and_its_shares() {
    let (limits, burst) = ("cpu=1 memory=1Gi", "cpu=1");
    assert_eq!(of(&with_apps(vec![container("a", "", "")])).parent, "besteffort/podu");
    assert_eq!(of(&with_apps(vec![container("a", burst, "")])).parent, "burstable/podu");
    assert_eq!(of(&with_apps(vec![container("a", limits, limits)])).parent, "podu");
    assert_eq!(class_values(QosClass::BestEffort, 5000).cpu_shares, Some(2));
    assert_eq!(class_values(QosClass::Burstable, 1500).cpu_shares, Some(1536));
}

#[test]
fn lc_335_lc_336_dec_16_qv_20_to_qv_27_cpu_becomes_shares_weight_and_quota() {
    let vectors = [
        ("QV-20", 0, 2, 1, None),
        ("QV-21", 1, 2, 1, Some(1000)),
        ("QV-22", 100, 102, 4, Some(10_000)),
        ("QV-23", 250, 256, 10, Some(25_000)),
        ("QV-24", 500, 512, 20, Some(50_000)),
        ("QV-25", 1000, 1024, 39, Some(100_000)),
        ("QV-26", 2000, 2048, 79, Some(200_000)),
        ("QV-27", 256_000, 262_144, 10_000, Some(25_600_000)),
    ];
    for (id, milli, shares, weight, quota) in vectors {
        let cpu = format!("cpu={milli}m");
        let values = of(&with_apps(vec![container("a", &format!("memory=1Mi {cpu}"), &cpu)])).containers["a"];
        assert_eq!((values.cpu_shares, values.cpu_quota), (Some(shares), quota), "{id}");
        assert_eq!(cpu_weight(shares), weight, "{id}");
    }
    // A container without request but with limit uses the limit.
    let limited = with_apps(vec![container("a", "", "cpu=500m")]);
    assert_eq!(of(&limited).containers["a"].cpu_shares, Some(512));
    let no_quota = Machine { has_cpu_quota: false, ..Machine::upstream(NODE) };
    assert_eq!(on(&no_quota, &limited).containers["a"].cpu_quota, None);
}

#[test]
fn lc_337_a_pod_level_limit_holds_for_containers_without_their_own() {
    let spec = ApiSpec {
        containers: vec![container("a", "", ""), container("b", "", "memory=1Gi")],
        resources: Some(resources("", "cpu=2 memory=4Gi")),
        ..ApiSpec::default()
    };
    let all = of(&pod(spec)).containers;
    assert_eq!((all["a"].memory_limit_bytes, all["a"].cpu_quota), (Some(4 << 30), Some(200_000)));
    assert_eq!(all["b"].memory_limit_bytes, Some(1 << 30));
}

#[test]
fn lc_338_a_pod_is_limited_only_when_all_its_containers_are() {
    let limited = || container("a", "cpu=250m memory=64Mi", "cpu=500m memory=64Mi");
    let whole = of(&with_apps(vec![limited()])).pod;
    assert_eq!(
        (whole.cpu_shares, whole.cpu_quota, whole.memory_limit_bytes),
        (Some(256), Some(50_000), Some(64 << 20))
    );
    let whole = of(&with_apps(vec![limited(), container("b", "", "")])).pod;
    assert_eq!((whole.cpu_shares, whole.cpu_quota, whole.memory_limit_bytes), (Some(256), None, None));
    let init = pod(ApiSpec {
        init_containers: Some(vec![container("i", "", "")]),
        containers: vec![limited()],
        ..ApiSpec::default()
    });
    assert_eq!(of(&init).pod.cpu_quota, None);
    let best_effort = of(&with_apps(vec![container("a", "", "")])).pod;
    assert_eq!(best_effort, CgroupValues { cpu_shares: Some(2), ..CgroupValues::default() });
}

#[test]
fn lc_339_lc_342_the_machine_decides_about_oom_groups_and_processes() {
    let pod = with_apps(vec![container("a", "", "")]);
    assert_eq!(of(&pod).containers["a"].oom_group, Some(true));
    let odd = Machine { kills_single_processes: true, pod_pids_limit: 100, ..Machine::upstream(NODE) };
    assert_eq!(on(&odd, &pod).containers["a"].oom_group, Some(false));
    assert_eq!((on(&odd, &pod).pod.pids_limit, of(&pod).pod.pids_limit), (Some(100), None));
}

#[test]
fn lc_341_swap_is_shared_out_among_burstable_containers() {
    let machine = Machine { swap: Swap::Limited, swap_bytes: 4 << 30, ..Machine::upstream(NODE) };
    let swap = |requests: &str, limits: &str| {
        on(&machine, &with_apps(vec![container("a", requests, limits)])).containers["a"].swap_limit_bytes
    };
    assert_eq!(swap("memory=2Gi", "memory=4Gi"), Some(1 << 30));
    assert_eq!(swap("memory=2Gi", "memory=2Gi"), Some(0));
    assert_eq!(swap("", ""), Some(0));
    assert_eq!(of(&with_apps(vec![container("a", "memory=2Gi", "")])).containers["a"].swap_limit_bytes, Some(0));
}
