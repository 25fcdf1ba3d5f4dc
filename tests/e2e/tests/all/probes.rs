//! Startup, liveness and readiness probes by every mechanism.

use std::net::{Ipv4Addr, TcpListener};

use podium_e2e::{Patience, Podium, Sketch, find_process, wait_for_exit};
use serde_json::{Value, json};

fn app(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

/// Asked every second, one answer decides.
fn eager(mechanism: Value) -> Value {
    let mut probe = json!({ "periodSeconds": 1, "failureThreshold": 1 });
    for (field, value) in mechanism.as_object().into_iter().flatten() {
        probe[field] = value.clone();
    }
    probe
}

fn exec(shell: &str) -> Value {
    eager(json!({ "exec": { "command": ["sh", "-c", shell] } }))
}

#[test]
fn lc_265_an_http_readiness_probe_takes_a_pod_in_and_out_of_service() {
    let podium = Podium::start();
    let shell = "mkdir /www; httpd -p 8080 -h /www; sleep 4; echo ok > /www/ready; sleep 4; rm /www/ready; sleep 3600";
    let more = json!({
        "ports": [{ "name": "web", "containerPort": 8080 }],
        "readinessProbe": eager(json!({ "httpGet": { "path": "/ready", "port": "web" } })),
    });
    podium.apply(&Sketch::pod("web").container_with("app", shell, more));
    podium.wait_event("web", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 404");
    // A change of the answer is seen in the order it happens, and costs no restart.
    let mut seen = Vec::new();
    let pod = podium.watch_pod("web", "ready and not ready again", Patience::LONG, |pod| {
        let is_ready = app(pod)["ready"] == true;
        if seen.last() != Some(&is_ready) {
            seen.push(is_ready);
        }
        seen.ends_with(&[true, false]).then(|| pod.clone())
    });
    assert_eq!(app(&pod)["restartCount"], 0);
    let conditions = pod["status"]["conditions"].as_array().expect("a list").iter();
    let ready = conditions.clone().find(|one| one["type"] == "Ready").expect("it is there");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ContainersNotReady")));
    let order: Vec<&str> = conditions.filter_map(|one| one["type"].as_str()).collect();
    let wanted = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    assert_eq!(order, wanted, "LC-100");
}

#[test]
fn lc_245_tcp_and_grpc_probes_say_why_they_fail() {
    let podium = Podium::start();
    let tcp = json!({ "readinessProbe": eager(json!({ "tcpSocket": { "port": 7000 } })) });
    let grpc = json!({ "readinessProbe": eager(json!({ "grpc": { "port": 7001 } })) });
    let pod = Sketch::pod("ports").container_with("tcp", "sleep 5; httpd -f -p 7000", tcp).container_with(
        "grpc",
        "sleep 3600",
        grpc,
    );
    podium.apply(&pod);
    let pod = podium.wait_pod("ports", "an address", Patience::LONG, |pod| pod["status"]["podIP"].is_string());
    let ip = pod["status"]["podIP"].as_str().expect("it was just seen");
    let refused = format!("Readiness probe failed: dial tcp {ip}:7000: connect: connection refused");
    podium.wait_event("ports", "Unhealthy", &refused);
    let late = format!("timeout: failed to connect service \"{ip}:7001\" within 1s: context deadline exceeded");
    podium.wait_event("ports", "Unhealthy", &late);
    podium.wait_pod("ports", "tcp ready, grpc not", Patience::LONG, |pod| {
        let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        statuses.filter(|one| one["ready"] == true).map(|one| &one["name"]).eq([&json!("tcp")])
    });
}

#[test]
fn lc_263_a_failing_liveness_probe_restarts_the_container() {
    let podium = Podium::start();
    let shell = "trap 'exit 7' TERM; touch /tmp/ok; sleep 3; rm /tmp/ok; sleep 3600 & wait";
    podium.apply(&Sketch::pod("alive").container_with("app", shell, json!({ "livenessProbe": exec("cat /tmp/ok") })));
    let pod = podium.wait_pod("alive", "restarted", Patience::LONG, |pod| app(pod)["restartCount"] == 1);
    assert_eq!(app(&pod)["lastState"]["terminated"]["exitCode"], 7, "{}", app(&pod));
    let message = podium.wait_event("alive", "Unhealthy", "Liveness probe failed: ");
    assert_eq!(message, "Liveness probe failed: cat: can't open '/tmp/ok': No such file or directory\n");
    podium.wait_event("alive", "Killing", "Container app failed liveness probe, will be restarted");
}

#[test]
fn lc_262_the_startup_probe_holds_back_the_others() {
    let podium = Podium::start();
    let mut startup = exec("test -f /tmp/started");
    startup["failureThreshold"] = json!(60);
    // Asked too early, this one would kill it at once.
    let more = json!({ "startupProbe": startup, "livenessProbe": exec("test -f /tmp/started") });
    podium.apply(&Sketch::pod("slow").container_with("app", "sleep 5; touch /tmp/started; sleep 3600", more));
    let pod = podium.wait_pod("slow", "running", Patience::LONG, |pod| app(pod)["state"]["running"].is_object());
    assert_eq!((&app(&pod)["started"], &app(&pod)["ready"]), (&json!(false), &json!(false)));
    let pod = podium.wait_ready("slow");
    assert_eq!((&app(&pod)["started"], &app(&pod)["restartCount"]), (&json!(true), &json!(0)));
}

#[test]
fn lc_263_a_failed_startup_probe_ends_a_pod_that_never_restarts() {
    let podium = Podium::start();
    let more = json!({ "startupProbe": eager(json!({ "httpGet": { "port": 8080 }, "failureThreshold": 2 })) });
    let pod =
        Sketch::pod("stillborn").restart("Never").container_with("app", "trap 'exit 3' TERM; sleep 3600 & wait", more);
    podium.apply(&pod);
    let pod = podium.wait_phase("stillborn", "Failed");
    assert_eq!(app(&pod)["state"]["terminated"]["exitCode"], 3);
    podium.wait_event("stillborn", "Unhealthy", "Startup probe failed: Get \"http://");
    let message = podium.wait_event("stillborn", "Killing", "failed startup probe");
    assert_eq!(message, "Container app failed startup probe");
}

#[test]
fn lc_252_a_command_that_takes_too_long_is_killed() {
    let podium = Podium::start();
    let probe = json!({ "exec": { "command": ["sleep", "86399"] }, "periodSeconds": 60 });
    podium.apply(&Sketch::pod("late").container_with("app", "sleep 3600", json!({ "readinessProbe": probe })));
    let wanted = "Readiness probe failed: command timed out: \"sleep 86399\" timed out after 1s";
    podium.wait_event("late", "Unhealthy", wanted);
    if let Some(process) = find_process("sleep 86399") {
        wait_for_exit(process, Patience::SHORT);
    }
    assert_eq!(app(&podium.pod("late"))["ready"], false);
}

/// LC-244: the node's own loopback answers; the pod's has nobody listening.
#[test]
fn lc_244_network_probes_come_from_the_nodes_own_network() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let podium = Podium::start();
    let tcp = eager(json!({ "tcpSocket": { "host": "127.0.0.1", "port": port } }));
    let shell = "trap 'exit 0' TERM; sleep 3600 & wait";
    podium.apply(&Sketch::pod("web").container_with("app", shell, json!({ "readinessProbe": tcp })));
    podium.wait_ready("web");
    let (_, peer) = listener.accept().expect("somebody asked");
    assert_eq!(peer.ip(), Ipv4Addr::LOCALHOST);
}
