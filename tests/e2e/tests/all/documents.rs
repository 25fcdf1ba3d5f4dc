//! The manifests of the founding documents as they stand (`examples/documents`).

use std::fs;

use podium_e2e::{Patience, Podium, Registry, Sketch};
use serde_json::{Value, json};

const LIVENESS: &str = "google_containers/liveness";
/// User `user`, password `secret`.
const AUTHORIZATION: &str = "Authorization = \"Basic dXNlcjpzZWNyZXQ=\"";

/// What an example says, said to kubectl.
#[track_caller]
fn apply(podium: &Podium, name: &str) {
    let path = format!("{}/../../examples/documents/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    podium.kubectl(&["apply", "-f", &path]).ok();
}

fn container<'a>(pod: &'a Value, list: &str, name: &str) -> &'a Value {
    let statuses = pod["status"][list].as_array().expect("there are containers");
    statuses.iter().find(|status| status["name"] == name).expect("the container has a status")
}

#[test]
fn rv_01_a_container_is_tried_once_beside_one_that_is_retried() {
    let podium = Podium::start();
    apply(&podium, "on-failure-pod");
    let pod = podium.wait_pod("on-failure-pod", "the first has failed", Patience::SHORT, |pod| {
        pod["status"]["containerStatuses"]
            .as_array()
            .is_some_and(|all| all.iter().any(|status| status["state"]["terminated"]["exitCode"] == 1))
    });
    let once = container(&pod, "containerStatuses", "try-once-container");
    assert_eq!((&once["restartCount"], &once["state"]["terminated"]["reason"]), (&json!(0), &json!("Error")));
    let other = container(&pod, "containerStatuses", "on-failure-container");
    assert!(other["state"]["running"].is_object(), "{other}");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(podium.kubectl(&["logs", "on-failure-pod", "-c", "try-once-container"]).ok(), "Only running once\n");
}

#[test]
fn rv_03_a_pod_fails_with_its_init_container() {
    let podium = Podium::start();
    apply(&podium, "fail-pod-if-init-fails");
    let pod = podium.wait_phase("fail-pod-if-init-fails", "Failed");
    let init = container(&pod, "initContainerStatuses", "init-once");
    assert_eq!((&init["restartCount"], &init["state"]["terminated"]["exitCode"]), (&json!(0), &json!(1)));
    let main = container(&pod, "containerStatuses", "main-container");
    assert_eq!(main["state"]["waiting"]["reason"], "PodInitializing");
}

#[test]
fn rv_05_only_the_exit_code_of_the_rule_restarts() {
    let podium = Podium::start();
    apply(&podium, "restart-on-exit-codes");
    // The same with another end, meanwhile.
    let rule = json!([{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }]);
    let more = json!({ "restartPolicy": "Never", "restartPolicyRules": rule });
    let twice = "[ -e /data/seen ] && exit 7; touch /data/seen; exit 42";
    let mounts = json!([{ "name": "data", "mountPath": "/data" }]);
    let mut asked = more.clone();
    asked["volumeMounts"] = mounts;
    let pod = Sketch::pod("again").restart("Never").container_with("app", twice, asked);
    podium.apply(&pod.with("volumes", json!([{ "name": "data", "emptyDir": {} }])));
    let again = podium.wait_phase("again", "Failed");
    let app = container(&again, "containerStatuses", "app");
    assert_eq!((&app["restartCount"], &app["state"]["terminated"]["exitCode"]), (&json!(1), &json!(7)));

    let pod = podium.wait_phase("restart-on-exit-codes", "Succeeded");
    assert_eq!(container(&pod, "containerStatuses", "restart-on-exit-codes")["restartCount"], 0);
}

#[test]
fn lc_247_a_server_that_stops_answering_is_restarted() {
    let mut podium = Podium::prepare();
    podium.import_images();
    // A tag `latest` is asked for at its registry: here at a mirror of it.
    let registry = Registry::start(podium.work());
    registry.push(&podium.work().join("images/gcr.io-google_containers-liveness-latest.tar"), LIVENESS, "latest");
    let mirrors = podium.work().join("certs.d");
    fs::create_dir_all(mirrors.join("gcr.io")).expect("the work directory is ours");
    let hosts = format!("[host.\"http://{0}\"]\n[host.\"http://{0}\".header]\n{AUTHORIZATION}\n", registry.address);
    fs::write(mirrors.join("gcr.io/hosts.toml"), hosts).expect("the work directory is ours");
    podium.use_flags(&["--registry-config", &mirrors.to_string_lossy()]);
    podium.start_agent();
    apply(&podium, "liveness-http");
    podium.wait_ready("liveness-http");
    podium.wait_event("liveness-http", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 404");
    let pod = podium.wait_pod("liveness-http", "it was restarted", Patience::LONG, |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"].as_i64() >= Some(1)
    });
    assert_eq!(pod["status"]["phase"], "Running");
}

#[test]
fn lc_117_a_readiness_gate_is_opened_by_a_patch_of_the_status() {
    let podium = Podium::start();
    let gate = json!([{ "conditionType": "www.example.com/feature-1" }]);
    podium.apply(&Sketch::pod("gated").container("app", "sleep 3600 & wait").with("readinessGates", gate));
    let condition = |pod: &Value, kind: &str| {
        let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    };
    let closed = podium.wait_pod("gated", "its containers are ready", Patience::SHORT, |pod| {
        condition(pod, "ContainersReady")["status"] == "True" && condition(pod, "Ready")["status"] == "False"
    });
    let ready = condition(&closed, "Ready");
    assert_eq!(ready["reason"], "ReadinessGatesNotReady");
    assert_eq!(
        ready["message"],
        "corresponding condition of pod readiness gate \"www.example.com/feature-1\" does not exist."
    );
    let set = |status: &str| {
        let patch = json!({ "status": { "conditions": [{ "type": "www.example.com/feature-1", "status": status }] } });
        podium.kubectl(&["patch", "pod", "gated", "--subresource=status", "-p", &patch.to_string()]).ok();
    };
    set("True");
    podium.wait_ready("gated");
    set("False");
    podium.wait_pod("gated", "it is not ready any more", Patience::SHORT, |pod| {
        condition(pod, "Ready")["status"] == "False" && condition(pod, "ContainersReady")["status"] == "True"
    });
}
