//! Nodes that fall silent, are tainted or cordoned, and pods that wait for
//! their claims.

use podium_e2e::{Patience, Podium, Sketch, find_process, wait_for_exit};
use serde_json::{Value, json};

const SLEEPS: &str = "trap 'exit 0' TERM; sleep 3600 & wait";

/// A cluster that loses patience after 15 s instead of 50.
fn impatient() -> (Podium, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("podium.yaml");
    let text = "apiVersion: podium/v1alpha1\nkind: PodiumConfiguration\n\
                nodeMonitorGracePeriod: 15s\nlostNodeFailDelay: 1s\n";
    std::fs::write(&file, text).expect("a file");
    (Podium::start_with(&["--config", &file.to_string_lossy()]), directory)
}

fn tolerating(seconds: u32) -> Value {
    let of = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    json!([of("node.kubernetes.io/unreachable"), of("node.kubernetes.io/not-ready")])
}

/// The status of a condition, and why.
fn condition(object: &Value, kind: &str) -> (Value, Value) {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|it| it["type"] == kind).unwrap_or(&Value::Null);
    (found["status"].clone(), found["reason"].clone())
}

fn node(cluster: &Podium, name: &str) -> Value {
    serde_json::from_str(&cluster.kubectl(&["get", "node", name, "-o", "json"]).ok()).expect("a node")
}

#[test]
fn tc_174_tc_191_tc_194_tc_199_tc_200_a_silent_node_loses_its_pods_and_ends_them_when_it_is_back() {
    let (cluster, _config) = impatient();
    let mut second = Podium::prepare();
    second.import_images();
    second.start_agent_for(&cluster, "second");
    let marker = format!("forced-{}", std::process::id());
    let on_second = |name: &str, script: &str, seconds: u32| {
        let pod = Sketch::pod(name).container("app", script).grace(1).with("nodeName", json!("second"));
        pod.with("tolerations", tolerating(seconds))
    };
    cluster.apply(&on_second("far", SLEEPS, 1));
    cluster.apply(&on_second("patient", SLEEPS, 3600));
    cluster.apply(&on_second("forced", &format!(": {marker}; {SLEEPS}"), 3600));
    cluster.wait_ready("far");
    cluster.wait_ready("forced");
    let before = cluster.wait_ready("patient");
    second.kill_agent();

    let pod = cluster.wait_phase("far", "Failed");
    assert_eq!(pod["status"]["reason"], "NodeLost");
    assert_eq!(pod["status"]["message"], "Node second which was running pod far is unresponsive");
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    assert_eq!(condition(&pod, "DisruptionTarget"), (json!("True"), json!("DeletionByTaintManager")));
    cluster.wait_event("far", "TaintManagerEviction", "Marking for deletion Pod default/far");
    let lost = node(&cluster, "second");
    assert_eq!(condition(&lost, "Ready"), (json!("Unknown"), json!("NodeStatusUnknown")));
    let taints = lost["spec"]["taints"].as_array().expect("taints").iter();
    let taints: Vec<_> = taints.map(|it| (it["key"].clone(), it["effect"].clone())).collect();
    let unreachable = json!("node.kubernetes.io/unreachable");
    assert_eq!(taints, [(unreachable.clone(), json!("NoSchedule")), (unreachable, json!("NoExecute"))]);
    let is_unready = |pod: &Value| condition(pod, "Ready").0 == "False";
    let pod = cluster.wait_pod("patient", "it is not ready", Patience::SHORT, is_unready);
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");

    // TC-192, TC-201: out of the API by force, but its container lives on.
    cluster.kubectl(&["delete", "pod", "forced", "--force", "--grace-period=0", "--wait=false"]).ok();
    cluster.wait_gone("forced", Patience::SHORT);
    let orphan = find_process(&marker).expect("nobody there could stop it");

    // TC-198, TC-199: what was to go is ended, what may stay goes on as it was.
    second.start_agent_for(&cluster, "second");
    cluster.wait_gone("far", Patience::LONG);
    wait_for_exit(orphan, Patience::LONG);
    let after = cluster.wait_ready("patient");
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(container(&after), container(&before));
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
    cluster.kubectl(&["wait", "node", "second", "--for=condition=Ready", "--timeout=30s"]).ok();
}

#[test]
fn tc_189_tc_203_taints_send_away_and_cordons_keep_out() {
    let podium = Podium::start();
    let name = podium.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]).ok();
    podium.apply(&Sketch::pod("web").container("app", SLEEPS).grace(1));
    podium.wait_ready("web");
    podium.kubectl(&["cordon", &name]).ok();
    let key = "jsonpath={.spec.taints[0].key}=node.kubernetes.io/unschedulable";
    podium.kubectl(&["wait", "node", &name, &format!("--for={key}"), "--timeout=30s"]).ok();
    podium.apply(&Sketch::pod("late").container("app", SLEEPS).grace(1));
    podium.wait_event("late", "FailedScheduling", "0/1 nodes are available: 1 node(s) were unschedulable.");
    podium.kubectl(&["uncordon", &name]).ok();
    podium.wait_ready("late");
    podium.kubectl(&["taint", "node", &name, "gone=yes:NoExecute"]).ok();
    podium.wait_gone("web", Patience::SHORT);
    podium.wait_gone("late", Patience::SHORT);
}

#[test]
fn tc_331_a_pod_waits_for_its_claim() {
    let podium = Podium::start();
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    podium.apply(&Sketch::pod("web").container_with("app", SLEEPS, mounts).with("volumes", volumes));
    podium.wait_event("web", "FailedScheduling", "persistentvolumeclaim \"data\" not found");
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    podium.kubectl_with_input(&["apply", "-f", "-"], &claim.to_string()).ok();
    podium.wait_ready("web");
}
