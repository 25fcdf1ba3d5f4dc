//! `podium cri serve`, as another program finds it on its socket.

use std::time::Duration;

use cri::{ContainerConfig, ContainerId, ContainerState, Runtime, SandboxConfig};
use criwire::Remote;
use podium_e2e::{Podium, leaks};
use serde_json::json;

fn served() -> Podium {
    let mut podium = Podium::prepare();
    podium.import_images();
    podium.serve_cri();
    podium
}

fn connect(podium: &Podium) -> Remote {
    Remote::connect(podium.cri_socket().to_str().expect("it is text"), "").expect("it is a path")
}

fn in_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().expect("there are threads");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await }).expect("it takes too long")
}

fn sandbox(podium: &Podium) -> SandboxConfig {
    let config = json!({
        "meta": {"name": "web", "namespace": "default", "uid": "u1", "attempt": 0},
        "hostname": "web",
        "log_directory": podium.work().join("logs"),
        "cgroup_parent": "podu1",
        "resources": {"oom_score_adj": 0},
        "dns": {"servers": [], "searches": [], "options": []},
        "network": "Pod", "pid": "Container", "ipc": "Pod",
        "labels": {}, "annotations": {},
    });
    serde_json::from_value(config).expect("it is written right above")
}

fn sleeper() -> ContainerConfig {
    let config = json!({
        "name": "app", "attempt": 0, "image": "busybox:1.36",
        "command": ["sh", "-c", "trap 'exit 7' TERM; echo up; sleep 1000 & wait"], "args": [],
        "working_dir": "", "envs": [], "mounts": [], "log_path": "app/0.log",
        "resources": {"oom_score_adj": 0},
        "security": {
            "supplemental_groups": [], "readonly_rootfs": false, "privileged": false, "no_new_privileges": false,
            "capabilities_add": [], "capabilities_drop": [], "seccomp": "RuntimeDefault",
        },
        "labels": {}, "annotations": {}, "stdin": false, "tty": false,
    });
    serde_json::from_value(config).expect("it is written right above")
}

async fn state(runtime: &Remote, id: &ContainerId) -> (ContainerState, i32) {
    let all = runtime.containers(None).await.expect("containers are listed");
    let found = all.into_iter().find(|container| container.id == *id).expect("the container is known");
    (found.state, found.exit_code)
}

async fn exec(runtime: &Remote, id: &ContainerId, script: &str) -> String {
    let done = runtime.exec_sync(id, ["sh", "-c", script].map(str::to_owned).into(), None).await;
    String::from_utf8_lossy(&done.expect("the command runs").stdout).into_owned()
}

#[test]
fn a_pod_made_over_the_socket_outlives_the_server_however_it_ends() {
    let mut podium = served();
    let (pod, container) = in_time(async {
        let runtime = connect(&podium);
        assert_eq!(runtime.version().await.expect("it answers").name, "podium");
        assert!(runtime.image("busybox:1.36").await.expect("it answers").is_some());
        let pod = runtime.run_sandbox(sandbox(&podium)).await.expect("the pod runs");
        let id = runtime.create_container(&pod, sleeper()).await.expect("the container is made");
        runtime.start_container(&id).await.expect("it starts");
        assert_eq!(exec(&runtime, &id, "hostname; echo kept > /kept").await, "web\n");
        (pod, id)
    });
    podium.kill_agent();
    assert!(podium.cri_socket().exists(), "killed, it cannot clean up");
    podium.serve_cri();
    in_time(async {
        let runtime = connect(&podium);
        assert_eq!(state(&runtime, &container).await.0, ContainerState::Running);
        assert_eq!(exec(&runtime, &container, "cat /kept").await, "kept\n");
    });
    podium.stop_agent();
    assert!(!podium.cri_socket().exists(), "asked to stop, it takes its socket away");
    assert!(!leaks::of(&podium.data(), podium.id().as_deref()).is_empty(), "the pod still runs");
    podium.serve_cri();
    in_time(async {
        let runtime = connect(&podium);
        runtime.stop_container(&container, Duration::from_secs(20)).await.expect("it stops");
        assert_eq!(state(&runtime, &container).await, (ContainerState::Exited, 7));
        runtime.remove_sandbox(&pod).await.expect("it goes");
        assert_eq!(runtime.sandboxes(None).await.expect("it answers"), []);
    });
}

#[test]
fn a_socket_or_directory_in_use_is_refused_and_not_disturbed() {
    let podium = served();
    let listen = format!("unix://{}", podium.cri_socket().display());
    let complaint = podium.podium(&["cri", "serve", "--listen", &listen]).refused(1);
    assert!(complaint.contains("is in use by another podium"), "{complaint}");
    let other = Podium::prepare();
    let complaint = other.podium(&["cri", "serve", "--listen", &listen]).refused(1);
    assert!(complaint.contains("somebody serves") && complaint.contains("--listen"), "{complaint}");
    let complaint = other.podium(&["cri", "serve", "--listen", "tcp://127.0.0.1:1"]).refused(1);
    assert!(complaint.contains("unix:///run/podium/cri.sock"), "{complaint}");
    in_time(async { assert_eq!(connect(&podium).version().await.expect("it answers").name, "podium") });
}
