//! What survives when the agent does not, and instances side by side.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podium_e2e::{Patience, Podium, Sketch, find_process, leaks, wait_for_exit};
use serde_json::{Value, json};

const COUNTS: &str = "n=0; while true; do echo $n; n=$((n+1)); sleep 0.1; done";

/// Who a pod's first container is, and how often it was restarted.
fn identity(pod: &Value) -> (Value, Value, Value) {
    let status = &pod["status"]["containerStatuses"][0];
    (status["containerID"].clone(), status["restartCount"].clone(), status["state"]["running"]["startedAt"].clone())
}

#[test]
fn tc_268_after_kill_9_the_agent_adopts_what_still_runs() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("counter").container("app", COUNTS));
    podium.wait_ready("counter");
    podium.follow_log("counter", "app", "5", |line| (line == "5").then_some(()));
    let before = identity(&podium.pod("counter"));

    podium.kill_agent();
    podium.start_agent();

    assert_eq!(identity(&podium.wait_ready("counter")), before);
    // The log goes on where it was, and misses nothing of the time between.
    let mut expected = 0;
    podium.follow_log("counter", "app", "30 numbers in a row", |line| {
        assert_eq!(line, expected.to_string(), "the log has a gap or a repetition");
        expected += 1;
        (expected == 30).then_some(())
    });
    podium.delete("counter");
    podium.wait_gone("counter", Patience::SHORT);
}

#[test]
fn tc_268_restart_counts_survive_kill_9() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("crashed").container("app", "exit 1"));
    let backing_off = |pod: &Value| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    podium.wait_pod("crashed", "restarted once", Patience::SHORT, backing_off);
    podium.kill_agent();
    podium.start_agent();
    // The back-off table is forgotten (LC-177), so it may be restarted at once: once more, not from 0.
    let pod = podium.wait_pod("crashed", "restarted again", Patience::SHORT, |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"].as_i64().is_some_and(|count| count >= 2)
    });
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 2);
}

#[test]
fn tc_268_in_a_storm_of_kill_9_no_pod_is_lost_doubled_or_restarted() {
    let mut podium = Podium::start();
    // Three pods arrive right before each kill, so that it hits creating and
    // starting at whatever point this machine has got to.
    let names: Vec<String> = (0..24).map(|n| format!("pod-{n}")).collect();
    for wave in names.chunks(3) {
        for name in wave {
            podium.apply(&Sketch::pod(name).container("app", "echo began; trap 'exit 0' TERM; sleep 3600 & wait"));
        }
        podium.kill_agent();
        podium.start_agent();
    }
    for name in &names {
        let pod = podium.wait_ready(name);
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{name} was restarted");
        // Ready says that it runs, not that it has spoken already.
        podium.follow_log(name, "app", "its first line", |line| (line == "began").then_some(()));
        assert_eq!(podium.logs(name), "began\n", "{name} began more than once");
    }
}

#[test]
fn tc_281_an_exit_while_the_agent_is_away_is_reported_with_its_code() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("brief").restart("Never").container("app", ": brief-marker; sleep 3; exit 7"));
    podium.wait_ready("brief");
    let process = find_process("brief-marker").expect("it runs");
    podium.kill_agent();
    wait_for_exit(process, Patience::SHORT);
    podium.start_agent();
    let pod = podium.wait_phase("brief", "Failed");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[test]
fn tc_267_stopping_the_agent_stops_no_pod() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("steady").container("app", ": steady-marker; sleep 3600 & wait"));
    let before = identity(&podium.wait_ready("steady"));
    let process = find_process("steady-marker").expect("it runs");
    podium.stop_agent();
    assert_eq!(find_process("steady-marker"), Some(process));
    podium.start_agent();
    assert_eq!(identity(&podium.wait_ready("steady")), before);
}

#[test]
fn a_pod_deleted_right_before_kill_9_still_goes() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("doomed").container("app", "trap '' TERM; while true; do sleep 1; done").grace(2));
    podium.wait_ready("doomed");
    podium.delete("doomed");
    podium.kill_agent();
    podium.start_agent();
    podium.wait_gone("doomed", Patience::SHORT);
}

/// Kills the monitor of the pod whose first process has this in its command line.
fn kill_monitor_of(marker: &str) -> u32 {
    let process = find_process(marker).expect("it runs");
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
    let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok()).expect("a parent");
    let line = fs::read_to_string(format!("/proc/{parent}/cmdline")).expect("it lives");
    assert!(line.contains("\0shim\0"), "{line:?} is no monitor");
    kill(Pid::from_raw(parent), Signal::SIGKILL).expect("we are root");
    process
}

#[test]
fn lc_067_a_pod_that_lost_its_monitor_is_made_anew() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("robbed").container("app", ": robbed-marker; sleep 3600 & wait"));
    podium.apply(&Sketch::pod("once").restart("Never").container("app", ": once-marker; sleep 3600 & wait"));
    podium.wait_ready("robbed");
    podium.wait_ready("once");

    // What is said of a container whose end nobody saw (LC-067).
    let lost = |state: &Value| {
        let terminated = &state["terminated"];
        assert_eq!((&terminated["exitCode"], &terminated["reason"]), (&json!(137), &json!("ContainerStatusUnknown")));
        assert_eq!(terminated["message"], "The container could not be located when the pod was terminated");
    };
    let status = |pod: &Value| pod["status"]["containerStatuses"][0].clone();
    let process = kill_monitor_of("once-marker");
    let failed = podium.wait_phase("once", "Failed");
    lost(&status(&failed)["state"]);
    wait_for_exit(process, Patience::SHORT);

    let process = kill_monitor_of("robbed-marker");
    wait_for_exit(process, Patience::SHORT);
    let again = |pod: &Value| status(pod)["restartCount"] == 1 && status(pod)["ready"] == true;
    let pod = podium.wait_pod("robbed", "running again", Patience::LONG, again);
    lost(&status(&pod)["lastState"]);
    let before = identity(&pod);

    // The same while no agent is there to see it.
    podium.kill_agent();
    kill_monitor_of("robbed-marker");
    podium.start_agent();
    let again = |pod: &Value| status(pod)["restartCount"] == 2 && status(pod)["ready"] == true;
    let pod = podium.wait_pod("robbed", "running again", Patience::LONG, again);
    assert_ne!(identity(&pod), before);
    lost(&status(&pod)["lastState"]);
    for name in ["robbed", "once"] {
        podium.delete(name);
        podium.wait_gone(name, Patience::SHORT);
    }
}

#[test]
fn two_instances_do_not_disturb_each_other() {
    let one = Podium::start();
    let two = Podium::start();
    let pod = Sketch::pod("same-name").container("app", "hostname -i; sleep 3600 & wait");
    one.apply(&pod);
    two.apply(&pod);
    let first = one.wait_ready("same-name");
    let second = two.wait_ready("same-name");
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_ne!(first["status"]["podIP"], second["status"]["podIP"]);
    drop(one);
    assert_eq!(identity(&two.pod("same-name")), identity(&second));
    assert_eq!(two.logs("same-name").trim(), second["status"]["podIP"].as_str().unwrap_or_default());
    two.delete("same-name");
    two.wait_gone("same-name", Patience::SHORT);
}

#[test]
fn down_takes_running_pods_with_it_and_leaves_nothing() {
    let podium = Podium::start();
    podium.apply(&Sketch::pod("running").container("app", ": left-marker; while true; do sleep 3600; done"));
    podium.apply(&Sketch::pod("looping").container("app", "exit 1"));
    podium.wait_ready("running");
    let id = podium.id();
    let seen = leaks::of(&podium.data(), id.as_deref());
    for kind in ["process", "cgroup", "interface"] {
        assert!(
            seen.iter().any(|line| line.starts_with(kind)),
            "the checker sees no {kind} of a running pod: {seen:?}"
        );
    }
    podium.podium(&["down"]).ok();
    assert_eq!(leaks::of(&podium.data(), id.as_deref()), Vec::<String>::new());
    assert_eq!(find_process("left-marker"), None);
}

#[test]
fn down_takes_everything_with_it_whatever_the_data_directory_holds() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("running").container("app", ": left-marker; while true; do sleep 3600; done"));
    podium.wait_ready("running");
    let id = podium.id();
    podium.kill_agent();
    let data = podium.data();
    fs::write(data.join("instance.json"), "{").expect("a file");
    fs::write(data.join("runtime"), "?").expect("a file");
    fs::write(data.join("store/state.redb"), "").expect("a file");
    for sandbox in fs::read_dir(data.join("engine/sandboxes")).expect("there are pods").flatten() {
        fs::write(sandbox.path().join("sandbox.json"), "{").expect("a file");
    }
    fs::write(data.join("engine/images/index.json"), "{").expect("a file");
    podium.podium(&["down"]).ok();
    assert_eq!(leaks::of(&data, id.as_deref()), Vec::<String>::new());
    assert_eq!(find_process("left-marker"), None);
}

#[test]
fn a_store_that_was_lost_costs_no_running_pod() {
    let mut podium = Podium::start();
    podium.apply(&Sketch::pod("running").container("app", ": kept-marker; while true; do sleep 3600; done"));
    podium.wait_ready("running");
    podium.stop_agent();
    let process = find_process("kept-marker").expect("it runs");
    let store = podium.data().join("store/state.redb");
    let address = podium.address();
    let up = ["up", "--bind", address.as_str(), "--eviction-hard", "memory.available<1Mi"];
    let kept = fs::read(&store).expect("a file");
    fs::write(&store, "").expect("a file");
    let complaint = podium.podium(&up).refused(1);
    assert!(complaint.contains("file is damaged: it is empty"), "{complaint}");
    fs::remove_file(&store).expect("a file");
    for _ in 0..2 {
        let complaint = podium.podium(&up).refused(1);
        assert!(complaint.contains("1 pods run here (such as default/running)"), "{complaint}");
        assert!(complaint.contains("--remove-unknown-pods"), "{complaint}");
        assert_eq!(find_process("kept-marker"), Some(process), "it runs on");
    }
    // What was lost is restored: all is as before.
    fs::write(&store, kept).expect("a file");
    podium.start_agent();
    podium.wait_ready("running");
    assert_eq!(find_process("kept-marker"), Some(process));
    podium.stop_agent();
    fs::remove_file(&store).expect("a file");
    podium.use_flags(&["--remove-unknown-pods"]);
    podium.start_agent();
    wait_for_exit(process, Patience::LONG);
}

#[test]
fn lc_333_the_agent_has_its_own_place_when_memory_runs_out() {
    // Not every machine that runs tests lets root have less than 0.
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("podium.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\noomScoreAdj: 300\n";
    fs::write(&file, text).expect("a file");
    let podium = Podium::start_with(&["--config", &file.to_string_lossy()]);
    let score = fs::read_to_string(format!("/proc/{}/oom_score_adj", podium.agent_pid())).expect("it runs");
    assert_eq!(score.trim(), "300");
    podium.apply(&Sketch::pod("web").container("app", COUNTS));
    podium.wait_ready("web");
    // LC-330: nothing of it reaches the container or what is run in it.
    let own = podium.kubectl(&["exec", "web", "--", "cat", "/proc/1/oom_score_adj", "/proc/self/oom_score_adj"]).ok();
    assert_eq!(own, "1000\n1000\n");
}
