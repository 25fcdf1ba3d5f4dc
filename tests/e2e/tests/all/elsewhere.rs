//! The same node agent in front of another runtime, and under another API server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::Command;

use nix::sys::stat::Mode;
use podium_e2e::{Patience, Podium, Sketch, Terminal, run};
use serde_json::{Value, json};

use crate::streams::Forward;

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

/// Streams go to where containerd says, not through the contract's own calls.
#[test]
fn on_containerd_one_looks_into_pods_as_here() {
    let podium = Podium::start_on_containerd();
    let shell = "mkdir /www; echo here I am > /www/hello; echo served; exec httpd -f -p 8080 -h /www";
    podium.apply(&Sketch::pod("web").container("app", shell));
    podium.wait_ready("web");
    for kubectl in podium.kubectls() {
        let exec = |words: &[&str]| kubectl.run(&[&["exec", "web", "--"], words].concat());
        let spoken = exec(&["sh", "-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!((spoken.code, spoken.stdout.as_str()), (Some(3), "out\n"), "{}", spoken.stderr);
        assert_eq!(spoken.stderr, "err\ncommand terminated with exit code 3\n");
        let much: String = (0..100_000).map(|number| format!("{number}\n")).collect();
        let repeated = kubectl.run_with_input(&["exec", "-i", "web", "--", "cat"], &much);
        assert_eq!((repeated.code, repeated.stdout == much), (Some(0), true), "{}", repeated.stderr);
        assert!(exec(&["nosuch"]).refused(1).contains("executable file not found in $PATH"));

        let shell =
            "while [ \"$(stty size)\" != '40 100' ]; do sleep 0.1; done; echo resized; read w; echo $w!; exit 7";
        let mut terminal =
            Terminal::start(&kubectl.command(&["exec", "-it", "web", "--", "sh", "-c", shell]), (24, 80));
        terminal.resize(40, 100);
        terminal.until("resized");
        terminal.types("hello\n");
        terminal.until("hello!");
        assert_eq!(terminal.code(), Some(7));

        assert_eq!(kubectl.run(&["logs", "web", "--tail=1"]).ok(), "served\n");
        let forward = Forward::start(&mut kubectl.command(&["port-forward", "web", ":8080"]));
        let mut stream = forward.connect();
        stream.write_all(b"GET /hello HTTP/1.0\r\n\r\n").expect("it is connected");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("it answers");
        assert!(page.ends_with("here I am\n"), "{page}");

        let name = format!("asking-{}", kubectl.tag());
        let more = json!({"stdin": true, "stdinOnce": true});
        let asking = "read word; echo got $word; exit 3";
        podium.apply(&Sketch::pod(&name).container_with("app", asking, more).restart("Never"));
        podium.wait_ready(&name);
        let attached = kubectl.run_with_input(&["attach", "-i", &name], "hello\n");
        assert_eq!((attached.code, attached.stdout.as_str()), (Some(0), "got hello\n"), "{}", attached.stderr);
        podium.wait_phase(&name, "Failed");
    }
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

/// A pod whose container says over one pipe that it starts, and ends when it
/// hears something over another.
struct Obedient {
    pipes: PathBuf,
}

impl Obedient {
    fn apply(cluster: &Podium, node: &Podium, name: &str) -> Self {
        let pipes = node.work().join("pipes");
        fs::create_dir(&pipes).expect("the work directory is ours");
        for pipe in ["starts", "end"] {
            nix::unistd::mkfifo(&pipes.join(pipe), Mode::from_bits_truncate(0o600)).expect("it is new");
        }
        let volume = json!([{"name": "pipes", "hostPath": {"path": pipes, "type": "Directory"}}]);
        let mounts = json!({"volumeMounts": [{"name": "pipes", "mountPath": "/pipes"}]});
        let script = "echo started > /pipes/starts; read word < /pipes/end; exit 1";
        let pod = Sketch::pod(name).container_with("app", script, mounts);
        cluster.apply(&pod.with("volumes", volume).with("nodeName", "second".into()));
        Self { pipes }
    }

    fn wait_started(&self) {
        assert_eq!(self.shell("cat starts"), "started\n");
    }

    fn end(&self) {
        self.shell("echo now > end");
    }

    fn shell(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("cd {} && {script}", self.pipes.display())]);
        run(&command, "", Patience::LONG).ok()
    }
}

#[test]
fn while_the_api_server_is_away_pods_go_on_and_their_status_catches_up() {
    let mut cluster = Podium::start();
    let mut second = Podium::prepare();
    second.import_images();
    second.start_agent_for(&cluster, "second");
    let pod = Obedient::apply(&cluster, &second, "far");
    pod.wait_started();
    cluster.wait_ready("far");
    let restarts = |count: u64| move |pod: &Value| first_container(pod)["restartCount"] == count;

    // It accepts connections and answers nothing.
    cluster.freeze_agent();
    pod.end();
    pod.wait_started();
    cluster.thaw_agent();
    cluster.wait_pod("far", "the first restart told", Patience::LONG, restarts(1));

    // It is gone, for longer than a back-off.
    cluster.kill_agent();
    pod.end();
    pod.wait_started();
    cluster.start_agent();
    cluster.wait_pod("far", "the second restart told", Patience::LONG, restarts(2));
    cluster.delete("far");
    cluster.wait_gone("far", Patience::LONG);
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
