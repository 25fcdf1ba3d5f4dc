//! Pods change their size without being replaced, down to the kernel.

use std::path::PathBuf;
use std::time::Instant;

use podium_e2e::{Patience, Podium, Sketch, find_process};
use serde_json::{Value, json};

/// What the kernel holds for the container of a process: memory limit in
/// bytes, CPU quota in microseconds a period of 100 ms.
fn kernel(marker: &str) -> (u64, u64) {
    let pid = find_process(marker).expect("it runs");
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it has cgroups");
    let number = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(u64::MAX)
    };
    let v1 = |controller: &str| {
        let line = groups
            .lines()
            .find(|line| line.split(':').nth(1).is_some_and(|it| it.split(',').any(|it| it == controller)))?;
        Some(PathBuf::from(format!("/sys/fs/cgroup/{controller}{}", line.splitn(3, ':').nth(2)?)))
    };
    match (v1("memory"), v1("cpu")) {
        (Some(memory), Some(cpu)) => {
            (number(memory.join("memory.limit_in_bytes")), number(cpu.join("cpu.cfs_quota_us")))
        }
        _ => {
            let line = groups.lines().find_map(|line| line.strip_prefix("0::")).expect("cgroup v2");
            let path = PathBuf::from(format!("/sys/fs/cgroup{line}"));
            (number(path.join("memory.max")), number(path.join("cpu.max")))
        }
    }
}

/// The weight of a whole QoS class, as version 1 or version 2 has it.
fn class_weight(podium: &Podium, class: &str) -> String {
    let id = podium.id().expect("it runs");
    let at = |path: &str| std::fs::read_to_string(format!("/sys/fs/cgroup/{path}")).ok();
    let found =
        at(&format!("podium-{id}/{class}/cpu.weight")).or_else(|| at(&format!("cpu/podium-{id}/{class}/cpu.shares")));
    found.unwrap_or_default().trim().to_owned()
}

fn sized(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}})
}

#[track_caller]
fn resize(podium: &Podium, name: &str, resources: &Value) -> podium_e2e::Done {
    let patch = json!({"spec": {"containers": [{"name": "app", "resources": resources}]}}).to_string();
    podium.kubectl(&["patch", "pod", name, "--subresource", "resize", "-p", &patch])
}

fn has(pod: &Value, cpu: &str, memory: &str) -> bool {
    let status = &pod["status"]["containerStatuses"][0];
    status["resources"]["limits"] == json!({"cpu": cpu, "memory": memory})
        && status["allocatedResources"] == json!({"cpu": cpu, "memory": memory})
        && pod["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().all(|it| it["type"] != "PodResizeInProgress" && it["type"] != "PodResizePending")
        })
}

fn pending(pod: &Value) -> Option<(String, String)> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|it| it["type"] == "PodResizePending")?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("reason"), text("message")))
}

#[test]
fn lc_349_a_resize_reaches_the_kernel_and_the_status_without_a_restart() {
    let podium = Podium::start();
    let more = json!({"resources": sized("100m", "64Mi")});
    let shell = ": resize-marker; trap 'exit 0' TERM; sleep 3600 & wait";
    podium.apply(&Sketch::pod("web").container_with("app", shell, more));
    podium.wait_ready("web");
    assert_eq!(kernel("resize-marker"), (64 << 20, 10_000));
    resize(&podium, "web", &sized("200m", "96Mi")).ok();
    let pod = podium.wait_pod("web", "it is larger", Patience::LONG, |pod| has(pod, "200m", "96Mi"));
    assert_eq!(kernel("resize-marker"), (96 << 20, 20_000));
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    assert_eq!((&pod["metadata"]["generation"], &pod["status"]["observedGeneration"]), (&json!(2), &json!(2)));
    podium.wait_event("web", "ResizeCompleted", "Pod resize completed");
    resize(&podium, "web", &sized("50m", "48Mi")).ok();
    podium.wait_pod("web", "it is smaller", Patience::LONG, |pod| has(pod, "50m", "48Mi"));
    assert_eq!(kernel("resize-marker"), (48 << 20, 5_000));
}

#[test]
fn tc_300_what_the_node_can_never_give_is_infeasible_and_can_be_taken_back() {
    let podium = Podium::start();
    let more = json!({"resources": sized("100m", "64Mi")});
    podium.apply(&Sketch::pod("web").container_with("app", "trap 'exit 0' TERM; sleep 3600 & wait", more));
    podium.wait_ready("web");
    resize(&podium, "web", &sized("1000", "64Mi")).ok();
    let pod = podium.wait_pod("web", "it is refused", Patience::LONG, |pod| pending(pod).is_some());
    let (reason, message) = pending(&pod).unwrap();
    assert_eq!(reason, "Infeasible");
    assert!(message.starts_with("Node didn't have enough capacity: cpu, requested: 1000000, capacity: "), "{message}");
    podium.wait_event("web", "ResizeInfeasible", "Pod resize Infeasible");
    resize(&podium, "web", &sized("100m", "64Mi")).ok();
    podium.wait_pod("web", "all is well", Patience::LONG, |pod| has(pod, "100m", "64Mi"));
}

#[test]
fn tc_306_a_policy_that_asks_for_it_restarts_the_container() {
    let podium = Podium::start();
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let more = json!({"resources": sized("100m", "64Mi"), "resizePolicy": policy});
    let shell = ": restart-marker; trap 'exit 0' TERM; sleep 3600 & wait";
    podium.apply(&Sketch::pod("web").container_with("app", shell, more).grace(5));
    podium.wait_ready("web");
    resize(&podium, "web", &sized("200m", "64Mi")).ok();
    let pod = podium.wait_pod("web", "its CPU is larger", Patience::LONG, |pod| has(pod, "200m", "64Mi"));
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    resize(&podium, "web", &sized("200m", "80Mi")).ok();
    let is_back = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && has(pod, "200m", "80Mi");
    podium.wait_pod("web", "it was restarted", Patience::LONG, is_back);
    assert_eq!(kernel("restart-marker"), (80 << 20, 20_000));
}

#[test]
fn api_604_wrong_resizes_are_refused_and_change_nothing() {
    let podium = Podium::start();
    let more = json!({"resources": sized("100m", "64Mi")});
    podium.apply(&Sketch::pod("web").container_with("app", "trap 'exit 0' TERM; sleep 3600 & wait", more));
    podium.wait_ready("web");
    let class = json!({"requests": {"cpu": "50m"}});
    let refused = resize(&podium, "web", &class).refused(1);
    assert!(refused.contains("Pod QOS Class may not change as a result of resizing"), "{refused}");
    let patch = json!({"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "2"}}}]}}).to_string();
    let refused = podium.kubectl(&["patch", "pod", "web", "-p", &patch]).refused(1);
    assert!(refused.contains("pod updates may not change fields other than"), "{refused}");
    assert_eq!(podium.pod("web")["metadata"]["generation"], 1);
}

#[test]
fn lc_334_a_class_weighs_what_its_pods_ask_for() {
    let podium = Podium::start();
    let more = json!({"resources": {"requests": {"cpu": "500m"}}});
    podium.apply(&Sketch::pod("web").container_with("app", "trap 'exit 0' TERM; sleep 3600 & wait", more));
    podium.wait_ready("web");
    let is_weighed = || {
        let weights = (class_weight(&podium, "burstable"), class_weight(&podium, "besteffort"));
        [("512", "2"), ("20", "1")].iter().any(|(burstable, best)| weights.0 == *burstable && weights.1 == *best)
    };
    let deadline = Instant::now() + Patience::LONG.0;
    while !is_weighed() {
        assert!(Instant::now() < deadline, "burstable weighs {}", class_weight(&podium, "burstable"));
        podium.pod("web");
    }
}
