//! Restart policies, exit codes and the back-off users can see.

use std::collections::BTreeMap;

use podium_e2e::{Patience, Podium, Sketch};
use serde_json::Value;

const POLICIES: [&str; 3] = ["Never", "OnFailure", "Always"];

fn app(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

/// One pod per policy on one instance, all exiting with this code.
fn start_three(code: i32) -> Podium {
    let podium = Podium::start();
    for policy in POLICIES {
        let pod = Sketch::pod(&policy.to_lowercase()).restart(policy).container("app", &format!("exit {code}"));
        podium.apply(&pod);
    }
    podium
}

#[test]
fn lc_160_exit_0_ends_never_and_onfailure_pods_and_restarts_always_pods() {
    let podium = start_three(0);
    for name in ["never", "onfailure"] {
        let pod = podium.wait_phase(name, "Succeeded");
        assert_eq!(app(&pod)["restartCount"], 0, "{name}");
        assert_eq!(app(&pod)["state"]["terminated"]["exitCode"], 0, "{name}");
        assert_eq!(app(&pod)["state"]["terminated"]["reason"], "Completed", "{name}");
    }
    let pod = wait_back_off(&podium, "always");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(app(&pod)["lastState"]["terminated"]["reason"], "Completed");
}

#[test]
fn lc_161_exit_1_fails_never_pods_and_restarts_the_others() {
    let podium = start_three(1);
    let pod = podium.wait_phase("never", "Failed");
    assert_eq!(app(&pod)["restartCount"], 0);
    assert_eq!(app(&pod)["state"]["terminated"]["exitCode"], 1);
    assert_eq!(app(&pod)["state"]["terminated"]["reason"], "Error");
    for name in ["onfailure", "always"] {
        let pod = wait_back_off(&podium, name);
        assert_eq!(pod["status"]["phase"], "Running", "{name}");
        assert_eq!(app(&pod)["lastState"]["terminated"]["exitCode"], 1, "{name}");
    }
}

/// The first restart is free, so back-off shows with the second exit.
fn wait_back_off(podium: &Podium, name: &str) -> Value {
    let pod = podium.wait_pod(name, "CrashLoopBackOff", Patience::SHORT, |pod| {
        app(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    assert_eq!(app(&pod)["restartCount"], 1, "{name}");
    pod
}

#[test]
fn lc_168_crash_loop_waits_0_then_10_then_20_seconds() {
    let podium = Podium::start();
    // Long enough to be seen: of two ends at once only the second is told.
    podium.apply(&Sketch::pod("crash").container("app", "sleep 1; exit 1"));
    let mut messages: Vec<String> = Vec::new();
    let mut instances: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    podium.watch_pod("crash", "restarted three times", Patience::LONG, |pod| {
        let status = app(pod);
        if status["state"]["waiting"]["reason"] == "CrashLoopBackOff" {
            let message = status["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
            if messages.last() != Some(&message) {
                messages.push(message);
            }
        }
        for ended in [&status["state"]["terminated"], &status["lastState"]["terminated"]] {
            if let Some(id) = ended["containerID"].as_str() {
                let times = (seconds(&ended["startedAt"]), seconds(&ended["finishedAt"]));
                instances.insert(id.to_owned(), times);
            }
        }
        (instances.len() >= 4).then_some(())
    });
    let uid = podium.pod("crash")["metadata"]["uid"].as_str().expect("a uid").to_owned();
    for (message, delay) in messages.iter().zip(["10s", "20s"]) {
        let wanted = format!("back-off {delay} restarting failed container=app pod=crash_default({uid})");
        assert_eq!(message, &wanted);
    }
    let mut lives: Vec<(i64, i64)> = instances.into_values().collect();
    lives.sort_unstable();
    let pauses: Vec<i64> = lives.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
    // Whole seconds on both sides, so a pause may look one second longer.
    assert!(pauses[0] <= 5, "the first restart is immediate: {pauses:?}");
    assert!((10..=15).contains(&pauses[1]), "{pauses:?}");
    assert!((20..=25).contains(&pauses[2]), "{pauses:?}");
}

fn seconds(timestamp: &Value) -> i64 {
    let text = timestamp.as_str().expect("a timestamp");
    text.parse::<jiff::Timestamp>().expect("RFC 3339").as_second()
}
