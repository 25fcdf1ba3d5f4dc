//! Invariants over generated histories of one pod.
//!
//! `PROPTEST_CASES=20000 cargo test -p podium-lifecycle --test props` looks
//! longer than CI does.

use std::collections::BTreeMap;
use std::time::Duration;

use lifecycle::{Action, Fact, InstanceState, PodSpec, StartStage};
use objects::api::core::v1::PodStatus;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use sim::script::{Logged, Script};
use sim::world::Manner;

/// What can happen to a pod besides what the agent does.
#[derive(Debug, Clone)]
enum Step {
    Wait(u32),
    Exit(usize, i32),
    Manner(usize, Option<(u8, i32)>),
    Delete(u8),
    Gone,
    LoseSandbox,
    AgentRestart,
    NewImage(usize),
    BadStart(usize, Option<StartStage>),
    BadImage(usize, bool),
    SlowPulls(u8),
    BadSandbox(bool),
    BadKill(bool),
    ApiUp(bool),
    Forget(usize),
    Confuse(usize),
    /// Someone else declares the pod finished (TC-146).
    Declare(&'static str),
    /// The same facts again.
    Again,
}

fn step() -> impl Strategy<Value = Step> {
    let code = prop_oneof![Just(0), Just(1), Just(42), Just(137)];
    let stage = prop_oneof![Just(StartStage::Configure), Just(StartStage::Create), Just(StartStage::Start)];
    prop_oneof![
        6 => (0..700u32).prop_map(Step::Wait),
        6 => (0..40u32).prop_map(Step::Wait),
        8 => (0..5usize, code.clone()).prop_map(|(at, code)| Step::Exit(at, code)),
        2 => (0..5usize, proptest::option::of((0..60u8, code))).prop_map(|(at, how)| Step::Manner(at, how)),
        1 => (0..60u8).prop_map(Step::Delete),
        1 => Just(Step::Gone),
        1 => Just(Step::LoseSandbox),
        2 => Just(Step::AgentRestart),
        1 => (0..5usize).prop_map(Step::NewImage),
        2 => (0..5usize, proptest::option::of(stage)).prop_map(|(at, how)| Step::BadStart(at, how)),
        2 => (0..5usize, any::<bool>()).prop_map(|(at, is_bad)| Step::BadImage(at, is_bad)),
        1 => (0..20u8).prop_map(Step::SlowPulls),
        1 => any::<bool>().prop_map(Step::BadSandbox),
        1 => any::<bool>().prop_map(Step::BadKill),
        1 => any::<bool>().prop_map(Step::ApiUp),
        1 => (0..5usize).prop_map(Step::Forget),
        1 => (0..5usize).prop_map(Step::Confuse),
        1 => prop_oneof![Just("Failed"), Just("Succeeded")].prop_map(Step::Declare),
        2 => Just(Step::Again),
    ]
}

fn pod() -> impl Strategy<Value = String> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let role = prop_oneof![Just("init"), Just("sidecar")];
    let own = prop_oneof![
        4 => Just(""),
        1 => Just(" restart=Never"),
        1 => Just(" restart=OnFailure"),
        1 => Just(" restart=Never rule=In:42"),
    ];
    let init = proptest::collection::vec(role, 0..3);
    let apps = proptest::collection::vec(own, 1..3);
    (policy, 0..40u8, init, apps).prop_map(|(policy, grace, init, apps)| {
        let init = init.iter().enumerate().map(|(index, role)| format!("| {role} i{index}"));
        let apps = apps.iter().enumerate().map(|(index, own)| format!("| app a{index}{own}"));
        let containers: Vec<String> = init.chain(apps).collect();
        format!("policy={policy} grace={grace} {}", containers.join(" "))
    })
}

fn play(story: &mut Script, steps: &[Step]) {
    for step in steps {
        take(story, step);
        check_purity(story);
    }
}

fn names(story: &Script) -> Vec<String> {
    let spec = story.pod.spec.as_ref().expect("a spec");
    spec.init_containers.iter().flatten().chain(&spec.containers).map(|c| c.name.clone()).collect()
}

fn take(story: &mut Script, step: &Step) {
    let names = names(story);
    let name = |at: &usize| names[at % names.len()].clone();
    let is_there = story.is_object_there();
    match step {
        Step::Wait(seconds) => drop(story.until(story.seconds() + f64::from(*seconds))),
        Step::Exit(at, code) if story.world.running(&name(at)) > 0 => drop(story.exits(&name(at), *code)),
        Step::Manner(at, how) => {
            let manner = how.map_or(Manner::Ignores, |(after, code)| Manner::Exits {
                after: Duration::from_secs(after.into()),
                code,
            });
            story.on_term(&name(at), manner);
        }
        Step::Delete(grace) if is_there => drop(story.deleted(i64::from(*grace))),
        Step::Gone if is_there => drop(story.gone()),
        Step::LoseSandbox => drop(story.sandbox_lost(255)),
        Step::AgentRestart if is_there => drop(story.agent_restarted()),
        Step::NewImage(at) if is_there => {
            let image = format!("{}:{}", name(at), story.seconds());
            story.image(&name(at), &image);
        }
        Step::BadStart(at, Some(stage)) => {
            story.world.bad_starts.insert(name(at), (*stage, "no".into()));
        }
        Step::BadStart(at, None) => drop(story.world.bad_starts.remove(&name(at))),
        Step::BadImage(at, true) => drop(story.world.bad_images.insert(format!("{}:1", name(at)), "no".into())),
        Step::BadImage(at, false) => drop(story.world.bad_images.remove(&format!("{}:1", name(at)))),
        Step::SlowPulls(seconds) => story.world.pull_takes = Duration::from_secs((*seconds).into()),
        Step::BadSandbox(is_bad) => story.world.bad_sandbox = is_bad.then(|| "no".into()),
        Step::BadKill(is_bad) => story.world.bad_kill = is_bad.then(|| "no".into()),
        Step::ApiUp(is_up) => story.is_api_up = *is_up,
        Step::Forget(at) => {
            story.world.seen.instances.retain(|instance| instance.name != name(at));
            story.observe().settle();
        }
        Step::Confuse(at) => {
            let found = story.world.seen.instances.iter_mut().find(|instance| instance.name == name(at));
            if let Some(instance) = found.filter(|i| matches!(i.state, InstanceState::Running { .. })) {
                instance.state = InstanceState::Unknown;
            }
            story.observe().settle();
        }
        Step::Declare(phase) if is_there && !is_terminal(story.pod.status.as_ref()) => {
            story.status(phase, |status| status.phase = Some((*phase).into()));
        }
        Step::Again if is_there => drop(story.observe().change().observe()),
        Step::Exit(..) | Step::Delete(_) | Step::Gone | Step::AgentRestart => {}
        Step::NewImage(_) | Step::Declare(_) | Step::Again => {}
    }
}

fn is_terminal(status: Option<&PodStatus>) -> bool {
    matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Asking changes nothing, and neither does hearing the same again (LC-004).
fn check_purity(story: &Script) {
    let now = story.now();
    assert_eq!(story.state.plan(now), story.state.plan(now));
    assert_eq!(story.state.render(now), story.state.render(now));
    let mut again = story.state.clone();
    again.absorb(Fact::Observed(story.world.seen.clone()), now);
    assert_eq!(again.plan(now), story.state.plan(now), "observing again:\n{}", story.story());
    assert_eq!(again.render(now), story.state.render(now), "observing again:\n{}", story.story());
    if story.is_object_there() {
        again.absorb(Fact::PodChanged(Box::new(PodSpec::parse(&story.pod).expect("a valid pod"))), now);
        assert_eq!(again.plan(now), story.state.plan(now), "the same pod again:\n{}", story.story());
    }
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a str {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    found.map_or("", |condition| &condition.status)
}

fn check_log(story: &Script) {
    let mut terminal: Option<String> = None;
    let mut counts: BTreeMap<String, i32> = BTreeMap::new();
    let mut is_doomed = false;
    for logged in &story.log {
        match logged {
            Logged::Published(status) => {
                // LC-044
                let has_left = terminal.is_some() && terminal != status.phase;
                assert!(!has_left, "left {terminal:?}:\n{}", story.story());
                terminal = status.phase.clone().filter(|_| is_terminal(Some(status)));
                is_doomed |= terminal.is_some();
                let ready = condition(status, "Ready");
                // LC-048, LC-117
                assert!(ready != "True" || condition(status, "ContainersReady") == "True", "{}", story.story());
                assert!(ready != "True" || terminal.is_none(), "{}", story.story());
                check_counts(&mut counts, status, story);
            }
            // LC-010
            Logged::Did(_, action) => assert!(!is_doomed || !starts(action), "{action:?}:\n{}", story.story()),
            Logged::Declared(phase) => {
                terminal = Some(phase.clone());
                is_doomed = true;
            }
            Logged::Doomed => is_doomed = true,
            Logged::AgentRestarted => {}
        }
    }
}

/// LC-075: a restart count never goes back.
fn check_counts(counts: &mut BTreeMap<String, i32>, status: &PodStatus, story: &Script) {
    for container in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
        let before = counts.insert(container.name.clone(), container.restart_count).unwrap_or(0);
        assert!(before <= container.restart_count, "{}: {before} →\n{}", container.name, story.story());
    }
}

fn starts(action: &Action) -> bool {
    matches!(action, Action::StartContainer { .. } | Action::PullImage { .. } | Action::CreateSandbox { .. })
}

/// LC-012: whoever was given a deadline is never given a later one.
fn check_deadlines(story: &Script) {
    let mut deadlines = BTreeMap::new();
    for logged in &story.log {
        match logged {
            Logged::Did(now, Action::KillContainer { id, grace, .. }) => {
                let deadline = now.mono + *grace;
                let before = deadlines.insert(id.clone(), deadline).unwrap_or(deadline);
                assert!(deadline <= before, "{id}:\n{}", story.story());
            }
            Logged::AgentRestarted => deadlines.clear(),
            Logged::Did(..) | Logged::Published(_) | Logged::Declared(_) | Logged::Doomed => {}
        }
    }
}

fn heal(story: &mut Script) {
    story.world.bad_starts.clear();
    story.world.bad_images.clear();
    story.world.bad_sandbox = None;
    story.world.bad_kill = None;
    story.is_api_up = true;
    story.observe().settle();
    story.until(story.seconds() + 2000.0);
}

/// What a pod comes to: its phase and what runs in it.
fn outcome(story: &Script) -> (Option<String>, Vec<String>) {
    let running = names(story).into_iter().filter(|name| story.world.running(name) > 0).collect();
    (story.rendered().phase, running)
}

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 64 },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lc_008_no_history_breaks_the_rules(text in pod(), steps in proptest::collection::vec(step(), 0..25)) {
        let mut story = Script::pod(&text);
        story.begin();
        play(&mut story, &steps);
        check_log(&story);
        if !steps.iter().any(|step| matches!(step, Step::BadKill(true))) {
            check_deadlines(&story);
        }
    }

    #[test]
    fn lc_011_what_is_deleted_is_gone_in_the_end(text in pod(), steps in proptest::collection::vec(step(), 0..25)) {
        let mut story = Script::pod(&text);
        story.begin();
        play(&mut story, &steps);
        if story.is_object_there() {
            story.deleted(5);
        }
        heal(&mut story);
        prop_assert!(story.state.is_finished(), "{}", story.story());
        prop_assert!(!story.is_object_there());
    }

    /// LC-376, LC-377: what API and runtime remember is enough. (A definition
    /// change under way is a documented loss, LC-139.)
    #[test]
    fn lc_377_a_new_agent_comes_to_the_same_end(text in pod(), steps in proptest::collection::vec(step(), 0..25)) {
        let steps: Vec<Step> = steps.into_iter().filter(|step| !matches!(step, Step::NewImage(_))).collect();
        let mut story = Script::pod(&text);
        story.begin();
        play(&mut story, &steps);
        story.is_api_up = true;
        story.settle();
        let mut other = story.clone();
        heal(&mut story);
        if other.is_object_there() {
            other.agent_restarted();
            heal(&mut other);
            prop_assert_eq!(outcome(&other), outcome(&story), "{}\n---\n{}", other.story(), story.story());
        }
    }
}
