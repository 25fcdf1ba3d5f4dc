//! Invariants of pods that restart as a whole, are debugged, are evicted, or
//! have a deadline. `HISTORIES` asks for more of them.

#[path = "props/checks.rs"]
mod checks;

use std::collections::BTreeMap;
use std::time::Duration;

use lifecycle::node::{Eviction, EvictionCause};
use lifecycle::{Action, Fact, Rules};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use checks::{Witness, check_log, condition};
use sim::script::{Logged, Script};
use sim::world::Manner;

#[derive(Debug, Clone)]
enum Step {
    Wait(u32),
    Exit(usize, i32),
    Ignores(usize),
    AgentRestart,
    Crash(u32),
    LoseSandbox,
    Forget(usize),
    BadKill(bool),
    Evict(Option<u64>),
    Debug,
    Deadline(u16),
    Delete(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let code = prop_oneof![3 => Just(88), 2 => Just(0), 1 => Just(1)];
    prop_oneof![
        4 => (0..30u32).prop_map(Step::Wait),
        8 => (0..4usize, code).prop_map(|(at, code)| Step::Exit(at, code)),
        1 => (0..4usize).prop_map(Step::Ignores),
        2 => Just(Step::AgentRestart),
        2 => (0..12u32).prop_map(Step::Crash),
        1 => Just(Step::LoseSandbox),
        1 => (0..4usize).prop_map(Step::Forget),
        1 => any::<bool>().prop_map(Step::BadKill),
        1 => proptest::option::of(0..10u64).prop_map(Step::Evict),
        1 => Just(Step::Debug),
        1 => (0..200u16).prop_map(Step::Deadline),
        1 => (0..20u8).prop_map(Step::Delete),
    ]
}

fn pod() -> impl Strategy<Value = String> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let init = prop_oneof![Just(""), Just("| init setup"), Just("| init setup | sidecar watcher all=In:88")];
    let apps = prop_oneof![
        Just("| app main restart=Never all=In:88 preStop=exec | app other"),
        Just("| app main restart=OnFailure all=In:88 readiness=period:20 | app other postStart=exec"),
    ];
    (policy, 0..10u8, init, apps)
        .prop_map(|(policy, grace, init, apps)| format!("policy={policy} grace={grace} {init} {apps}"))
}

fn take(story: &mut Script, step: &Step) {
    let names = ["main", "other", "setup", "watcher"];
    let is_there = story.is_object_there();
    match step {
        Step::Wait(seconds) => _ = story.until(story.seconds() + f64::from(*seconds)),
        Step::Exit(at, code) if story.world.running(names[*at]) > 0 => _ = story.exits(names[*at], *code),
        Step::Ignores(at) => _ = story.on_term(names[*at], Manner::Ignores),
        Step::AgentRestart if is_there => _ = story.agent_restarted(),
        Step::Crash(moves) => story.dies_in = Some(*moves),
        Step::LoseSandbox => _ = story.sandbox_lost(255),
        Step::Forget(at) => {
            let ended = story.world.forget(names[*at]);
            story.observe().end_all(ended).settle();
        }
        Step::BadKill(is_bad) => story.world.bad_kill = is_bad.then(|| "no".into()),
        Step::Evict(grace) => {
            let (cause, grace) = (EvictionCause::Pressure, grace.map(Duration::from_secs));
            let eviction = Eviction { cause, message: "low".into(), grace, annotations: BTreeMap::new() };
            story.told("memory is low", Fact::Evicted(eviction));
        }
        Step::Debug if is_there => {
            let has_one = story.pod.spec.as_ref().is_some_and(|spec| spec.ephemeral_containers.is_some());
            if !has_one {
                story.debugged("shell");
            }
        }
        Step::Deadline(seconds) if is_there => _ = story.deadline(i64::from(*seconds)),
        Step::Delete(grace) if is_there => _ = story.deleted(i64::from(*grace)),
        Step::Exit(..) | Step::AgentRestart | Step::Debug | Step::Deadline(_) | Step::Delete(_) => {}
    }
}

fn check(story: &Script) {
    let mut counts: BTreeMap<String, i32> = BTreeMap::new();
    let mut shells = 0;
    for logged in &story.log {
        match logged {
            Logged::Published(status) => {
                // LC-115
                let names = ["AllContainersRestarting", "PodRestartInPlace"].map(|kind| condition(status, kind));
                assert_eq!(names[0], names[1], "{}", story.story());
                for container in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
                    let before = counts.insert(container.name.clone(), container.restart_count).unwrap_or(0);
                    // LC-076
                    assert!(before <= container.restart_count, "{}:\n{}", container.name, story.story());
                }
            }
            // LC-362
            Logged::Did(_, Action::StartContainer { container, .. }) if container == "shell" => shells += 1,
            _ => {}
        }
    }
    assert!(shells <= 1, "{}", story.story());
}

#[expect(clippy::disallowed_methods, reason = "how long to look is the caller's choice")]
fn config() -> ProptestConfig {
    let wanted = std::env::var("HISTORIES").ok().map(|text| text.parse::<u32>().expect("HISTORIES is a number"));
    ProptestConfig {
        cases: wanted.map_or(5000, |histories| histories / 20),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lc_147_lc_362_lc_365_no_history_breaks_the_rules(
        text in pod(),
        steps in proptest::collection::vec(step(), 0..20),
    ) {
        let host_ips = vec!["192.0.2.1".parse().expect("an address")];
        let rules = Rules { restart_all_containers: true, ..Rules::upstream(host_ips) };
        let mut story = Script::with_rules(&text, rules);
        story.begin();
        let mut witness = Witness::default();
        for step in &steps {
            take(&mut story, step);
            witness.look(&story);
        }
        check(&story);
        story.world.bad_kill = None;
        // A restart of all comes to an end, and so does the pod.
        story.until(story.seconds() + 100.0);
        let status = story.rendered();
        prop_assert_ne!(condition(&status, "AllContainersRestarting"), "True", "{}", story.story());
        if story.is_object_there() {
            story.deleted(1);
            story.until(story.seconds() + 100.0);
        }
        check_log(&story);
        prop_assert!(story.state.is_finished(), "{}", story.story());
    }
}
