//! What a node decides about its pods as a whole.

use std::time::{Duration, Instant};

use podium_e2e::{Patience, Podium, Sketch};
use serde_json::json;

const SLEEPS: &str = "trap 'exit 0' TERM; sleep 3600 & wait";

fn node_name(podium: &Podium) -> String {
    podium.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]).ok()
}

#[test]
fn lc_373_a_pod_sent_to_a_node_without_room_is_rejected() {
    let podium = Podium::start();
    let greedy = json!({"resources": {"requests": {"cpu": "1000"}}});
    let name = node_name(&podium);
    podium.apply(&Sketch::pod("greedy").container_with("app", SLEEPS, greedy).with("nodeName", json!(name)));
    let pod = podium.wait_phase("greedy", "Failed");
    assert_eq!(pod["status"]["reason"], "OutOfcpu");
    let message = pod["status"]["message"].as_str().unwrap();
    let begin = "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000, used: ";
    assert!(message.starts_with(begin), "{message}");
    let table = podium.kubectl(&["get", "pod", "greedy", "--no-headers"]).ok();
    assert!(table.contains("OutOfcpu"), "{table}");
    let picky = Sketch::pod("picky").container("app", SLEEPS).with("nodeName", json!(name));
    podium.apply(&picky.with("nodeSelector", json!({"disk": "ssd"})));
    assert_eq!(podium.wait_phase("picky", "Failed")["status"]["reason"], "NodeAffinity");
}

#[test]
fn tc_242_a_pod_that_fills_its_empty_dir_is_evicted() {
    let podium = Podium::start();
    let volumes = json!([{"name": "data", "emptyDir": {"sizeLimit": "2Mi"}}]);
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let fills = format!("dd if=/dev/zero of=/data/big bs=1M count=4; {SLEEPS}");
    podium.apply(&Sketch::pod("fat").container_with("app", &fills, mounts).with("volumes", volumes));
    let pod = podium.wait_pod("fat", "it is evicted", Patience::LONG, |pod| pod["status"]["reason"] == "Evicted");
    assert_eq!(pod["status"]["phase"], "Failed");
    assert_eq!(pod["status"]["message"], "Usage of EmptyDir volume \"data\" exceeds the limit \"2Mi\". ");
    podium.wait_event("fat", "Evicted", "exceeds the limit");
}

#[test]
fn tc_234_thresholds_make_pressure_and_pressure_repels_and_evicts() {
    // A GiB more than the machine has is never available.
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    let threshold = format!("memory.available<{}Ki", total + (1 << 20));
    let podium = Podium::start_with(&["--eviction-hard", &threshold]);
    let name = node_name(&podium);
    let pressure = "jsonpath={.status.conditions[?(@.type=='MemoryPressure')].status}";
    let wait = ["wait", "node", &name, "--for=condition=MemoryPressure", "--timeout=60s"];
    podium.kubectl(&wait).ok();
    assert_eq!(podium.kubectl(&["get", "node", &name, "-o", pressure]).ok(), "True");
    podium.apply(&Sketch::pod("late").container("app", SLEEPS).with("nodeName", json!(name)));
    let pod = podium.wait_phase("late", "Failed");
    assert_eq!(pod["status"]["message"], "Pod was rejected: The node had condition: [MemoryPressure]. ");
}

#[test]
fn tc_250_tc_254_a_shutdown_stops_pods_in_order_and_can_be_called_off() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("podium.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n";
    std::fs::write(&file, text).expect("a file");
    let podium = Podium::start_with(&["--config", &file.to_string_lossy()]);
    podium.apply(&Sketch::pod("web").container("app", SLEEPS).grace(20));
    podium.wait_ready("web");
    let begin = Instant::now();
    podium.podium(&["node", "shutdown", "--timeout", "60s"]).ok();
    assert!(begin.elapsed() < Duration::from_secs(15), "nobody waits for pods that are gone");
    let pod = podium.pod("web");
    assert_eq!(pod["status"]["phase"], "Failed");
    assert_eq!(pod["status"]["reason"], "Terminated");
    assert_eq!(pod["status"]["message"], "Pod was terminated in response to imminent node shutdown.");
    let name = node_name(&podium);
    let ready = "jsonpath={.status.conditions[?(@.type=='Ready')].message}";
    assert_eq!(podium.kubectl(&["get", "node", &name, "-o", ready]).ok(), "node is shutting down");
    podium.apply(&Sketch::pod("late").container("app", SLEEPS).with("nodeName", json!(name)));
    assert_eq!(podium.wait_phase("late", "Failed")["status"]["reason"], "NodeShutdown");
    podium.podium(&["node", "shutdown", "--cancel"]).ok();
    podium.kubectl(&["wait", "node", &name, "--for=condition=Ready", "--timeout=30s"]).ok();
    podium.apply(&Sketch::pod("again").container("app", SLEEPS).with("nodeName", json!(name)));
    podium.wait_ready("again");
}
