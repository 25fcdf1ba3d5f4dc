//! From apply to gone: running, logs, init containers, graceful and forced end.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use podium_e2e::{Patience, Podium, Sketch, find_process};

const OBEYS_TERM: &str = "trap 'echo bye; exit 0' TERM; echo hello; sleep 3600 & wait";
const IGNORES_TERM: &str = "trap '' TERM; echo hello; while true; do sleep 1; done";

#[test]
fn lc_272_a_pod_runs_logs_and_obeys_term() {
    let podium = Podium::start();
    podium.apply(&Sketch::pod("polite").container("app", OBEYS_TERM).grace(30));
    let pod = podium.wait_ready("polite");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    assert!(pod["status"]["podIP"].is_string(), "{}", pod["status"]);
    assert_eq!(podium.logs("polite"), "hello\n");

    let table = podium.kubectl(&["get", "pods"]).ok();
    let row = table.lines().nth(1).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row[..4], ["polite", "1/1", "Running", "0"], "{table}");
    let description = podium.kubectl(&["describe", "pod", "polite"]).ok();
    for reason in ["Scheduled", "Pulled", "Created", "Started"] {
        assert!(description.contains(reason), "no {reason} event in\n{description}");
    }

    let begin = Instant::now();
    let exit_code = podium.watch_pod_during(
        "polite",
        "its exit is reported",
        Patience::SHORT,
        || podium.delete("polite"),
        |pod| pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64(),
    );
    assert_eq!(exit_code, 0);
    podium.wait_gone("polite", Patience::SHORT);
    assert!(begin.elapsed() < Duration::from_secs(15), "the grace of 30 s was waited for");
}

#[test]
fn lc_287_a_pod_that_ignores_term_is_killed_after_its_grace() {
    let podium = Podium::start();
    podium.apply(&Sketch::pod("stubborn").container("app", &format!(": stubborn-marker; {IGNORES_TERM}")).grace(4));
    podium.wait_ready("stubborn");
    assert!(find_process("stubborn-marker").is_some());
    let begin = Instant::now();
    let exit_code = podium.watch_pod_during(
        "stubborn",
        "its exit is reported",
        Patience::SHORT,
        || podium.delete("stubborn"),
        |pod| pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64(),
    );
    assert_eq!(exit_code, 137);
    podium.wait_gone("stubborn", Patience::SHORT);
    let took = begin.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(20)).contains(&took), "took {took:?}");
    assert_eq!(find_process("stubborn-marker"), None);
}

#[test]
fn lc_276_force_deletion_frees_the_name_at_once() {
    let podium = Podium::start();
    let pod = Sketch::pod("twin").container("app", IGNORES_TERM).grace(60);
    podium.apply(&pod);
    let first = podium.wait_ready("twin");
    podium.kubectl(&["delete", "pod", "twin", "--force", "--grace-period=0"]).ok();
    podium.apply(&pod);
    let second = podium.wait_ready("twin");
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
}

#[test]
fn lc_200_init_containers_run_one_after_the_other_before_the_app() {
    let podium = Podium::start();
    let span = "read start _ < /proc/uptime; sleep 0.3; read end _ < /proc/uptime; echo $start $end";
    let app = format!("{span}; sleep 3600 & wait");
    podium.apply(&Sketch::pod("ordered").init("first", span).init("second", span).container("app", &app));
    let pod = podium.wait_ready("ordered");
    for status in pod["status"]["initContainerStatuses"].as_array().into_iter().flatten() {
        assert_eq!(status["state"]["terminated"]["reason"], "Completed", "{status}");
        assert_eq!(status["ready"], true, "{status}");
    }
    let logs = podium.follow_log("ordered", "app", "two numbers", |line| Some(line.to_owned()));
    let spans: Vec<(f64, f64)> = ["first", "second"]
        .map(|name| podium.kubectl(&["logs", "ordered", "-c", name]).ok())
        .into_iter()
        .chain([logs])
        .map(|log| parse_span(&log))
        .collect();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "they overlap: {spans:?}");
}

fn parse_span(log: &str) -> (f64, f64) {
    let mut numbers = log.split_whitespace().map(|word| word.parse().expect("uptime is a number"));
    (numbers.next().expect("a start"), numbers.next().expect("an end"))
}

#[test]
fn lc_206_a_failing_init_container_fails_a_pod_that_never_restarts() {
    let podium = Podium::start();
    let pod = Sketch::pod("unlucky").restart("Never").init("setup", "exit 3").container("app", "echo never");
    podium.apply(&pod);
    let pod = podium.wait_phase("unlucky", "Failed");
    assert_eq!(pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
}

#[test]
fn two_containers_share_the_pods_network_and_end_together() {
    let podium = Podium::start();
    let app = "readlink /proc/self/ns/net; hostname; trap 'exit 0' TERM; sleep 3600 & wait";
    podium.apply(&Sketch::pod("pair").container("left", app).container("right", app));
    let pod = podium.wait_ready("pair");
    assert_eq!(pod["status"]["containerStatuses"].as_array().map(Vec::len), Some(2));
    let left = podium.kubectl(&["logs", "pair", "-c", "left"]).ok();
    let right = podium.kubectl(&["logs", "pair", "-c", "right"]).ok();
    assert!(left.starts_with("net:[") && left.trim_end().ends_with("pair"), "{left}");
    assert_eq!(left, right);
    let table = podium.kubectl(&["get", "pod", "pair", "--no-headers"]).ok();
    assert!(table.contains("2/2"), "{table}");
    podium.delete("pair");
    podium.wait_gone("pair", Patience::SHORT);
}

#[test]
fn private_files_are_private() {
    let podium = Podium::start();
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(&podium.data()), 0o700);
    assert_eq!(mode(&podium.data().join("admin.kubeconfig")), 0o600);
    let keys = std::fs::read_dir(podium.data().join("pki")).expect("keys are kept there").flatten();
    let keys: Vec<_> = keys.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("key")).collect();
    assert!(!keys.is_empty());
    for key in keys {
        assert_eq!(mode(&key), 0o600, "{}", key.display());
    }
}
