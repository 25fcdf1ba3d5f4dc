//! Features that are off unless somebody asks for them, and configuration.

use podium_e2e::{Patience, Podium, Sketch};
use serde_json::{Value, json};

const GATES: &str = "ContainerStopSignals=true,NodeDeclaredFeatures=true,RestartAllContainersOnContainerExits=true";

fn status<'a>(pod: &'a Value, container: &str) -> &'a Value {
    let lists = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|status| status["name"] == container).unwrap_or(&Value::Null)
}

fn restarting_watcher() -> Sketch {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]);
    // The first watcher asks for a restart, the next one finds that it happened.
    let watch = "if [ -f /shared/again ]; then sleep 3600; fi; until [ -f /shared/go ]; do sleep 0.1; done; \
                 touch /shared/again; exit 88";
    let mount = json!([{"name": "shared", "mountPath": "/shared"}]);
    Sketch::pod("all")
        .with("volumes", json!([{"name": "shared", "emptyDir": {}}]))
        .with(
            "initContainers",
            json!([
                {"name": "init", "image": "busybox:1.36", "command": ["true"]},
                {"name": "watcher", "image": "busybox:1.36", "command": ["sh", "-c", watch], "restartPolicy": "Always",
                    "restartPolicyRules": rules, "volumeMounts": mount.clone()}
            ]),
        )
        .container_with("app", "touch /shared/go; sleep 3600", json!({ "volumeMounts": mount }))
}

#[test]
fn lc_147_lc_152_an_exit_with_88_restarts_all_containers_in_place() {
    let podium = Podium::start_with(&["--feature-gates", GATES]);
    podium.apply(&restarting_watcher());
    let mut first_ip = Value::Null;
    let pod = podium.watch_pod("all", "every container ran twice", Patience::LONG, |pod| {
        if first_ip.is_null() {
            first_ip = pod["status"]["podIP"].clone();
        }
        let ran_twice = |name: &str| status(pod, name)["restartCount"].as_i64() >= Some(1);
        let is_running = |name: &str| status(pod, name)["state"]["running"].is_object();
        let all = ["init", "watcher", "app"].into_iter().all(ran_twice) && is_running("watcher") && is_running("app");
        all.then(|| pod.clone())
    });
    // The sandbox and its address stay, and so does what was written.
    assert_eq!(pod["status"]["podIP"], first_ip);
    let last = &status(&pod, "app")["lastState"]["terminated"];
    assert_eq!((&last["reason"], &last["exitCode"]), (&json!("RestartingAllContainers"), &json!(137)), "{last}");
    let node = podium.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].status.declaredFeatures}"]).ok();
    assert!(node.contains("RestartAllContainersOnContainerExits"), "{node}");
}

#[test]
fn tc_437_a_process_gets_the_stop_signal_it_asked_for() {
    let podium = Podium::start_with(&["--feature-gates", GATES]);
    // TERM would end it with another code, and no signal with 137.
    let shell = "trap 'exit 10' USR1; trap 'exit 15' TERM; touch /tmp/ready; sleep 3600 & wait";
    let more = json!({
        "lifecycle": {"stopSignal": "SIGUSR1"},
        "readinessProbe": {"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1}
    });
    let sketch = Sketch::pod("usr1").container_with("app", shell, more);
    let refused = podium.kubectl_with_input(&["apply", "--validate=false", "-f", "-"], &sketch.manifest());
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("may not be set for containers with empty `spec.os.name`"), "{}", refused.stderr);
    podium.apply(&sketch.with("os", json!({"name": "linux"})).grace(30));
    let pod = podium.wait_ready("usr1");
    assert_eq!(status(&pod, "app")["stopSignal"], "SIGUSR1");
    let code = podium.watch_pod_during(
        "usr1",
        "its exit is reported",
        Patience::LONG,
        || podium.delete("usr1"),
        |pod| status(pod, "app")["state"]["terminated"]["exitCode"].as_i64(),
    );
    assert_eq!(code, 10);
    podium.wait_gone("usr1", Patience::SHORT);
}

#[test]
fn lc_392_a_configuration_file_says_the_same_and_mistakes_are_named() {
    let podium = Podium::prepare();
    let file = podium.work().join("podium.yaml");
    let write = |text: &str| std::fs::write(&file, text).expect("the work directory is ours");
    let up = || podium.podium(&["up", "--config", &file.to_string_lossy()]);
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (text, wanted) in [
        (format!("{head}cpuManagerPolicy: static\n"), "field \"cpuManagerPolicy\" is not honoured"),
        (
            format!("{head}evictionHard: {{memory: 1Gi}}\n"),
            "evictionHard: \"memory\" is not a signal; possible: memory.available",
        ),
        (format!("{head}maxPod: 3\n"), "unknown field \"maxPod\""),
        (format!("{head}featureGates: {{Nope: true}}\n"), "unrecognized feature gate: Nope"),
        (
            format!("{head}featureGates: {{RestartAllContainersOnContainerExits: true}}\n"),
            "needs NodeDeclaredFeatures=true as well",
        ),
    ] {
        write(&text);
        let refused = up();
        assert_eq!(refused.code, Some(1), "{text}");
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
        assert!(!podium.data().exists(), "a start that was refused leaves nothing behind");
    }
    drop(podium);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("podium.yaml");
    let text = format!(
        "{head}maxPods: 7\n---\napiVersion: podium/v1alpha1\nkind: PodiumConfiguration\nnodeName: configured\n"
    );
    std::fs::write(&file, text).expect("a file");
    let podium = Podium::start_with(&["--config", &file.to_string_lossy()]);
    let pods = podium.kubectl(&["get", "node", "configured", "-o", "jsonpath={.status.capacity.pods}"]).ok();
    assert_eq!(pods, "7");
}
