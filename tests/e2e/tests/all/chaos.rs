//! Fifty pods of every kind while the agent is killed again and again. What
//! really ran is told by the containers themselves, in files of their pods.

use std::fs;
use std::path::PathBuf;

use podium_e2e::{Patience, Podium, Sketch, find_processes};
use serde_json::{Value, json};

/// `CHAOS_ROUNDS=60` makes minutes of it.
fn rounds() -> u64 {
    std::env::var("CHAOS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Notes every start, and is found by its name among the processes.
fn noted(pod: &str, name: &str, shell: &str) -> String {
    format!(": {} echo started >>/data/{name}.starts; {shell}", mark(pod, name))
}

/// Of this test program: others may run on the same machine.
fn mark(pod: &str, container: &str) -> String {
    format!("chaos-{}/{pod}/{container};", std::process::id())
}

const STEADY: &str = "trap 'exit 0' TERM; sleep 86400 & wait";

fn pod(name: &str) -> Sketch {
    Sketch::pod(name).with("volumes", json!([{ "name": "data", "emptyDir": {} }])).grace(2)
}

fn container(pod: &str, name: &str, shell: &str, more: &Value) -> Value {
    let mut all = json!({
        "name": name, "image": "busybox:1.36", "command": ["sh", "-c", noted(pod, name, shell)],
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    all
}

fn of_kind(kind: &str, number: usize) -> Sketch {
    let name = format!("{kind}-{number}");
    let exec = |command: &str| json!({ "exec": { "command": ["sh", "-c", command] }, "periodSeconds": 1 });
    match kind {
        "steady" => pod(&name).raw_container(container(&name, "app", STEADY, &json!({}))),
        "probed" => {
            let probes = json!({ "readinessProbe": exec("test -e /data/app.starts"), "livenessProbe": exec("true") });
            pod(&name).raw_container(container(&name, "app", STEADY, &probes))
        }
        "job" => pod(&name).restart("Never").raw_container(container(&name, "app", "sleep 2; exit 3", &json!({}))),
        "crashing" => pod(&name).raw_container(container(&name, "app", "exit 1", &json!({}))),
        "hooked" => {
            let hook = json!({ "exec": { "command": ["sh", "-c", "echo asked >>/data/hook"] } });
            pod(&name).raw_container(container(&name, "app", STEADY, &json!({ "lifecycle": { "preStop": hook } })))
        }
        "staged" => pod(&name).raw_container(container(&name, "app", STEADY, &json!({}))).with(
            "initContainers",
            json!([
                container(&name, "first", "exit 0", &json!({})),
                container(&name, "side", "sleep 86400", &json!({ "restartPolicy": "Always" })),
            ]),
        ),
        other => panic!("no such kind: {other}"),
    }
}

const KINDS: [(&str, usize); 6] =
    [("steady", 10), ("probed", 10), ("job", 8), ("crashing", 8), ("hooked", 6), ("staged", 8)];

/// A file of the pod's volume, as the container wrote it.
fn told(podium: &Podium, pod: &Value, file: &str) -> String {
    let uid = pod["metadata"]["uid"].as_str().expect("a pod has a uid");
    let volume: PathBuf = podium.data().join("kubelet/pods").join(uid).join("volumes/kubernetes.io~empty-dir/data");
    fs::read_to_string(volume.join(file)).unwrap_or_default()
}

fn starts(podium: &Podium, pod: &Value, container: &str) -> i64 {
    i64::try_from(told(podium, pod, &format!("{container}.starts")).lines().count()).expect("not that many")
}

/// What must hold of a pod in any moment that the API shows.
fn check(podium: &Podium, pod: &Value) {
    let name = pod["metadata"]["name"].as_str().expect("a pod has a name");
    for list in ["initContainerStatuses", "containerStatuses"] {
        for status in pod["status"][list].as_array().into_iter().flatten() {
            let container = status["name"].as_str().expect("a container has a name");
            let shown = status["restartCount"].as_i64().unwrap_or_default();
            let is_settled = status["state"]["running"].is_object() || status["state"]["terminated"].is_object();
            let started = starts(podium, pod, container);
            let running = find_processes(&mark(name, container));
            assert!(running.len() <= 1, "{name}/{container}: two instances at a time");
            assert!(started <= shown + 2, "{name}/{container}: started {started} times, shown {shown} restarts");
            if is_settled && status["state"]["terminated"]["reason"] != "ContainerCannotRun" {
                assert!(shown < started.max(1) + 1, "{name}/{container}: {shown} restarts, only {started} starts");
            }
        }
    }
}

fn ready_since(pod: &Value) -> Value {
    let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default()
}

#[test]
fn tc_268_fifty_pods_live_through_a_storm_of_kill_9() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("clock").container("app", "n=0; while true; do echo $n; n=$((n+1)); sleep 0.1; done"));
    for (kind, count) in KINDS {
        for number in 0..count {
            podium.apply(&of_kind(kind, number));
        }
    }
    let names = |kind: &str, count: usize| (0..count).map(|n| format!("{kind}-{n}")).collect::<Vec<_>>();
    let steady: Vec<String> = ["steady", "probed", "hooked", "staged"]
        .iter()
        .flat_map(|kind| names(kind, KINDS.iter().find(|(name, _)| name == kind).map_or(0, |(_, count)| *count)))
        .collect();
    let before: Vec<Value> = steady.iter().map(|name| ready_since(&podium.wait_ready(name))).collect();

    // TC-271: who is younger than ten seconds would have to prove anew that it is ready.
    let so_far: u64 = podium.logs("clock").lines().last().and_then(|line| line.parse().ok()).expect("it ticks");
    let mut ticks = so_far + 110;
    for round in 0..rounds() {
        // A moment that differs every time, by a clock that lives through it.
        let wanted = ticks + 3 + round * 7 % 29;
        ticks = podium.follow_log("clock", "app", "ticks", |line| line.parse().ok().filter(|tick| *tick >= wanted));
        podium.kill_agent();
        podium.start_agent();
        let all: Value = serde_json::from_str(&podium.kubectl(&["get", "pods", "-o", "json"]).ok()).expect("JSON");
        let noted = |pod: &&Value| pod["metadata"]["name"] != "clock";
        all["items"].as_array().into_iter().flatten().filter(noted).for_each(|pod| check(&podium, pod));
    }

    for (name, before) in steady.iter().zip(before) {
        let pod = podium.wait_ready(name);
        assert_eq!(ready_since(&pod)["lastTransitionTime"], before["lastTransitionTime"], "{name}: readiness flapped");
        for status in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
            assert_eq!(status["restartCount"], 0, "{name} was restarted");
        }
        assert_eq!(starts(&podium, &pod, "app"), 1, "{name} began more than once");
    }
    for name in names("job", 8) {
        let pod = podium.wait_phase(&name, "Failed");
        assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
        assert_eq!(starts(&podium, &pod, "app"), 1, "{name} ran more than once");
    }
    for name in names("crashing", 8) {
        let pod = podium.wait_pod(&name, "backing off", Patience::LONG, |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        });
        let count = pod["status"]["containerStatuses"][0]["restartCount"].as_i64().expect("a number");
        let started = starts(&podium, &pod, "app");
        // It may have been restarted since it was shown.
        assert!(started == count + 1 || started == count + 2, "{name}: {started} starts, {count} restarts");
    }
    // Told to go right before another death.
    for name in &steady {
        podium.kubectl(&["delete", "pod", name, "--wait=false"]).ok();
    }
    podium.kill_agent();
    podium.start_agent();
    for name in &steady {
        podium.wait_gone(name, Patience::LONG);
    }
}
