//! The same node agent in front of another runtime, and under another API server.

use podium_e2e::{Patience, Podium, Sketch};
use serde_json::Value;

fn first_container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

#[test]
fn on_containerd_a_pod_lives_its_whole_life() {
    let podium = Podium::start_on_containerd();
    podium.apply(&Sketch::pod("web").container("app", "echo hello; trap 'exit 3' TERM; sleep 3600 & wait"));
    let pod = podium.wait_ready("web");
    let id = first_container(&pod)["containerID"].as_str().unwrap_or_default().to_owned();
    assert!(id.starts_with("containerd://"), "{id}");
    assert!(pod["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.")), "{pod}");
    podium.follow_log("web", "app", "its line", |line| (line == "hello").then_some(()));
    podium.delete("web");
    podium.wait_gone("web", Patience::SHORT);
}

#[test]
fn on_containerd_containers_restart_and_fail_as_here() {
    let podium = Podium::start_on_containerd();
    podium.apply(&Sketch::pod("once").restart("Never").container("app", "exit 7"));
    podium.apply(&Sketch::pod("again").container("app", "exit 1"));
    let pod = podium.wait_phase("once", "Failed");
    assert_eq!(first_container(&pod)["state"]["terminated"]["exitCode"], 7);
    assert_eq!(first_container(&pod)["state"]["terminated"]["reason"], "Error");
    podium.wait_pod("again", "backing off", Patience::SHORT, |pod| {
        let status = first_container(pod);
        status["restartCount"].as_i64() >= Some(1) && status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
}

#[test]
fn on_containerd_an_agent_that_was_killed_finds_its_pods_again() {
    let mut podium = Podium::start_on_containerd();
    podium.apply(&Sketch::pod("steady").container("app", "sleep 3600 & wait"));
    let before = first_container(&podium.wait_ready("steady")).clone();
    podium.kill_agent();
    podium.start_agent();
    let after = podium.wait_ready("steady");
    assert_eq!(first_container(&after)["containerID"], before["containerID"]);
    assert_eq!(first_container(&after)["restartCount"], 0);
}

#[test]
fn an_agent_works_for_the_api_server_of_its_kubeconfig() {
    let cluster = Podium::start();
    let mut second = Podium::prepare();
    second.import_images();
    second.start_agent_for(&cluster, "second");
    let far = Sketch::pod("far").container("app", "sleep 3600 & wait").with("nodeName", "second".into());
    cluster.apply(&far);
    let before = first_container(&cluster.wait_ready("far")).clone();

    second.kill_agent();
    second.start_agent_for(&cluster, "second");
    cluster.apply(&Sketch::pod("near").container("app", "sleep 3600 & wait"));
    cluster.wait_ready("near");
    let after = cluster.wait_ready("far");
    assert_eq!(first_container(&after)["containerID"], before["containerID"]);
    cluster.delete("far");
    cluster.wait_gone("far", Patience::SHORT);
}

#[test]
fn the_runtime_of_an_instance_is_not_changed_under_its_pods() {
    let mut podium = Podium::start();
    podium.stop_agent();
    let refused = podium.podium(&["up", "--runtime", "unix:///run/other.sock", "--bind", "127.0.0.1:0"]).refused(1);
    assert!(refused.contains("the pods of this instance run in embedded; stop them first"), "{refused}");
    let refused = podium.podium(&["up", "--runtime", "docker"]).refused(2);
    assert!(refused.contains("say embedded or unix:///run/containerd/containerd.sock"), "{refused}");
}
