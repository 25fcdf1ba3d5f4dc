//! A disk on which every fsync takes its time, while pods start, are probed,
//! restart and end. Counts and orders are looked at, never clocks.

use std::fs;
use std::path::Path;
use std::time::Duration;

use podium_e2e::{Patience, Podium, Sketch};
use serde_json::{Value, json};

const DELAY: Duration = Duration::from_millis(300);
/// A life on such a disk.
const PATIENCE: Patience = Patience(Duration::from_secs(240));

/// `/told` is `dir` of the node; what is written there is not synced.
fn telling(sketch: Sketch, dir: &Path) -> Sketch {
    let told = json!({"name": "told", "hostPath": {"path": dir, "type": "Directory"}});
    sketch.with("volumes", json!([told, {"name": "kept", "emptyDir": {}}]))
}

fn mounts(more: Value) -> Value {
    let mut all = more;
    all["volumeMounts"] = json!([{"name": "told", "mountPath": "/told"}, {"name": "kept", "mountPath": "/kept"}]);
    all
}

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn since(object: &Value) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default();
    json!([ready["status"], ready["lastTransitionTime"]])
}

#[test]
fn on_a_slow_disk_nothing_is_lost_doubled_or_held_up() {
    let mut podium = Podium::start();
    podium.stop_agent();
    podium.use_slow_disk(DELAY);
    podium.start_agent();
    let status = fs::read_to_string(format!("/proc/{}/status", podium.agent_pid())).expect("it runs");
    assert!(!status.contains("TracerPid:\t0\n"), "nobody slows it down");
    let told = podium.work().join("told");
    fs::create_dir(&told).expect("the work directory is ours");

    let probe = |file: &str| {
        let command = ["sh", "-c", &format!("echo >> /told/{file}")];
        json!({"exec": {"command": command}, "periodSeconds": 1, "timeoutSeconds": 20})
    };
    let probes = json!({"readinessProbe": probe("ready"), "livenessProbe": probe("alive")});
    podium.apply(&telling(Sketch::pod("steady").container_with("app", "sleep 3600 & wait", mounts(probes)), &told));
    let ready = |pod: &Value| since(pod)[0] == "True";
    let steady = podium.wait_pod("steady", "ready", PATIENCE, ready);
    let node = || {
        let nodes: Value = serde_json::from_str(&podium.kubectl(&["get", "nodes", "-o", "json"]).ok()).expect("JSON");
        since(&nodes["items"][0])
    };
    let node_before = node();
    assert_eq!(node_before[0], "True");

    // Others come, one of them fails twice.
    let names = ["one", "two", "three"];
    let probed = lines(&told.join("alive")).len();
    for name in names {
        let life =
            format!("echo start >> /told/{name}; trap 'echo end >> /told/{name}; exit 0' TERM; sleep 3600 & wait");
        podium.apply(&telling(Sketch::pod(name).grace(60).container_with("app", &life, mounts(json!({}))), &told));
    }
    let fails = "echo start >> /told/failing; echo >> /kept/starts; [ $(wc -l < /kept/starts) -gt 2 ] || exit 1; \
                 echo up; sleep 3600 & wait";
    podium.apply(&telling(Sketch::pod("failing").container_with("app", fails, mounts(json!({}))), &told));
    for name in names {
        podium.wait_pod(name, "ready", PATIENCE, ready);
        assert_eq!(lines(&told.join(name)), ["start"]);
    }
    let seen = lines(&told.join("alive")).len();
    assert!(seen >= probed + 2, "nobody was probed while others started: {probed}, then {seen}");
    let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].clone();
    let failing = podium.wait_pod("failing", "up after two failures", PATIENCE, |pod| ready(pod) && restarts(pod) == 2);
    assert_eq!(restarts(&failing), 2);
    assert_eq!(lines(&told.join("failing")), ["start"; 3], "every instance ran once");

    // And go.
    let probed = lines(&told.join("ready")).len();
    podium.kubectl(&[&["delete", "pod", "--wait=false"], names.as_slice()].concat()).ok();
    for name in names {
        podium.wait_gone(name, PATIENCE);
        assert_eq!(lines(&told.join(name)), ["start", "end"], "{name} was told once that it ends");
    }
    let seen = lines(&told.join("ready")).len();
    assert!(seen > probed, "nobody was probed while others ended: {probed}, then {seen}");
    let after = podium.pod("steady");
    assert_eq!((restarts(&after), since(&after)), (json!(0), since(&steady)), "it was ready all the time");
    assert_eq!(node(), node_before, "and so was the node");
}
