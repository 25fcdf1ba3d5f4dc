//! postStart and preStop: when they run, and what happens when they fail or
//! take too long.

use std::time::{Duration, Instant};

use podium_e2e::{Patience, Podium, Sketch, find_process};
use serde_json::{Value, json};

const OBEYS_TERM: &str = "trap 'exit 0' TERM; sleep 3600 & wait";

fn app(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn hook(kind: &str, handler: Value) -> Value {
    json!({ "lifecycle": { kind: handler } })
}

fn exec(shell: &str) -> Value {
    json!({ "exec": { "command": ["sh", "-c", shell] } })
}

/// Deletes a pod; answers how its container ended and how long that took.
fn end(podium: &Podium, name: &str) -> (Value, Duration) {
    let begin = Instant::now();
    let terminated = podium.watch_pod_during(
        name,
        "its exit is reported",
        Patience::LONG,
        || podium.delete(name),
        |pod| Some(app(pod)["state"]["terminated"].clone()).filter(Value::is_object),
    );
    let took = begin.elapsed();
    podium.wait_gone(name, Patience::SHORT);
    (terminated, took)
}

#[test]
fn lc_231_a_post_start_hook_runs_beside_the_entrypoint() {
    let podium = Podium::start();
    // The entrypoint waits for what only the hook does.
    let shell = "until [ -f /tmp/hooked ]; do sleep 0.1; done; echo hooked; sleep 3600";
    podium.apply(&Sketch::pod("greeted").container_with("app", shell, hook("postStart", exec("touch /tmp/hooked"))));
    podium.wait_ready("greeted");
    podium.follow_log("greeted", "app", "hooked", |line| (line == "hooked").then_some(()));
}

#[test]
fn lc_233_a_failing_post_start_hook_kills_the_container() {
    let podium = Podium::start();
    // The reason shows until the hook of the second instance fails, too.
    let failing = hook("postStart", exec("sleep 2; echo no >&2; exit 9"));
    podium.apply(&Sketch::pod("rejected").container_with("app", OBEYS_TERM, failing));
    let pod = podium.wait_pod("rejected", "PostStartHookError", Patience::LONG, |pod| {
        app(pod)["state"]["waiting"]["reason"] == "PostStartHookError"
    });
    podium.wait_event("rejected", "FailedPostStartHook", "PostStartHook failed");
    podium.wait_event("rejected", "Killing", "failed its postStart hook");
    let uid = pod["metadata"]["uid"].as_str().expect("a uid");
    let wanted = format!(
        "Exec lifecycle hook ([sh -c sleep 2; echo no >&2; exit 9]) for Container \"app\" in Pod \"rejected_default({uid})\" \
         failed - error: command 'sh -c sleep 2; echo no >&2; exit 9' exited with 9: no\n, message: \"no\\n\""
    );
    assert_eq!(app(&pod)["state"]["waiting"]["message"], wanted);
}

#[test]
fn lc_235_a_pre_stop_hook_ends_before_the_stop_signal() {
    let podium = Podium::start();
    let shell = "trap 'cp /tmp/hook /dev/termination-log; exit 0' TERM; sleep 3600 & wait";
    let slow = hook("preStop", exec("sleep 1; echo done > /tmp/hook"));
    podium.apply(&Sketch::pod("warned").grace(30).container_with("app", shell, slow));
    podium.wait_ready("warned");
    let (terminated, took) = end(&podium, "warned");
    assert_eq!((&terminated["exitCode"], &terminated["message"]), (&json!(0), &json!("done\n")));
    assert!((Duration::from_secs(1)..Duration::from_secs(20)).contains(&took), "took {took:?}");
}

#[test]
fn lc_237_a_pre_stop_hook_that_overruns_its_grace_is_given_up() {
    let podium = Podium::start();
    let endless = hook("preStop", json!({ "exec": { "command": ["sleep", "86398"] } }));
    podium.apply(&Sketch::pod("endless").grace(3).container_with("app", OBEYS_TERM, endless));
    podium.wait_ready("endless");
    let (terminated, took) = end(&podium, "endless");
    assert_eq!(terminated["exitCode"], 0, "it got TERM after the hook's time was over: {terminated}");
    assert!((Duration::from_secs(3)..Duration::from_secs(20)).contains(&took), "took {took:?}");
    assert_eq!(find_process("sleep 86398"), None, "LC-239");
}

#[test]
fn lc_227_a_sleeping_pre_stop_hook_delays_the_stop_signal() {
    let podium = Podium::start();
    let sleep = hook("preStop", json!({ "sleep": { "seconds": 2 } }));
    podium.apply(&Sketch::pod("sleepy").grace(30).container_with("app", OBEYS_TERM, sleep));
    podium.wait_ready("sleepy");
    let (terminated, took) = end(&podium, "sleepy");
    assert_eq!(terminated["exitCode"], 0);
    assert!((Duration::from_secs(2)..Duration::from_secs(20)).contains(&took), "took {took:?}");
}

#[test]
fn lc_225_an_http_pre_stop_hook_is_sent_to_the_pod() {
    let podium = Podium::start();
    let get = hook("preStop", json!({ "httpGet": { "path": "/no-such-page", "port": 8080 } }));
    // A server without a handler for TERM: it lives until its grace is over.
    podium.apply(&Sketch::pod("told").grace(4).container_with("app", "exec httpd -f -vv -p 8080 -h /tmp", get));
    podium.wait_ready("told");
    std::thread::scope(|scope| {
        let log = scope.spawn(|| {
            podium.follow_log("told", "app", "the request", |line| line.contains("/no-such-page").then_some(()));
        });
        podium.delete("told");
        log.join().expect("the request was logged");
    });
    podium.wait_gone("told", Patience::SHORT);
}

#[test]
fn lc_238_a_failing_pre_stop_hook_does_not_stop_the_end() {
    let podium = Podium::start();
    let refused = hook("preStop", json!({ "httpGet": { "port": 8080 } }));
    podium.apply(&Sketch::pod("unheard").grace(30).container_with("app", OBEYS_TERM, refused));
    podium.wait_ready("unheard");
    let (terminated, took) = end(&podium, "unheard");
    assert_eq!(terminated["exitCode"], 0);
    assert!(took < Duration::from_secs(20), "took {took:?}");
    podium.wait_event("unheard", "FailedPreStopHook", "PreStopHook failed");
}
