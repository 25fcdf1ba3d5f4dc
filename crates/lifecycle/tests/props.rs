//! Invariants over generated histories of one pod.
//!
//! A test run plays 100,000 histories; `HISTORIES=5000000 cargo test --release
//! -p podium-lifecycle --test props` looks longer. A history that breaks a rule
//! is made small and its seed is kept in `props.regressions`, to be committed
//! with the fix.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lifecycle::{Action, Fact, HookKind, InstanceState, PodSpec, PodState, ProbeKind, ProbeResult, StartStage};
use objects::api::core::v1::{PodCondition, PodStatus};
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
    /// The end of an action of long ago is told again.
    Echo(usize),
    ProbeFails(usize, ProbeKind, bool),
    HookTakes(usize, HookKind, u8),
    HookFails(usize, HookKind),
    Gate(bool),
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
        2 => (0..200usize).prop_map(Step::Echo),
        3 => (0..5usize, probe_kind(), any::<bool>()).prop_map(|(at, kind, fails)| Step::ProbeFails(at, kind, fails)),
        1 => (0..5usize, hook_kind(), 0..50u8).prop_map(|(at, kind, takes)| Step::HookTakes(at, kind, takes)),
        1 => (0..5usize, hook_kind()).prop_map(|(at, kind)| Step::HookFails(at, kind)),
        1 => any::<bool>().prop_map(Step::Gate),
    ]
}

fn probe_kind() -> impl Strategy<Value = ProbeKind> {
    prop_oneof![Just(ProbeKind::Startup), Just(ProbeKind::Liveness), Just(ProbeKind::Readiness)]
}

fn hook_kind() -> impl Strategy<Value = HookKind> {
    prop_oneof![Just(HookKind::PostStart), Just(HookKind::PreStop)]
}

/// Probes run seldom here: each run costs as much as anything else that happens.
fn handlers() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        8 => Just(""),
        1 => Just(" liveness=period:100,failure:2"),
        1 => Just(" readiness=period:150"),
        1 => Just(" startup=period:40,failure:3 liveness=period:90"),
        1 => Just(" postStart=exec"),
        1 => Just(" preStop=exec"),
        1 => Just(" preStop=sleep:5 readiness=period:200"),
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
    let init = proptest::collection::vec((role, handlers()), 0..3);
    let apps = proptest::collection::vec((own, handlers()), 1..3);
    let gate = prop_oneof![3 => Just(""), 1 => Just("gate=example.com/gate")];
    (policy, 0..40u8, gate, init, apps).prop_map(|(policy, grace, gate, init, apps)| {
        let init = init.iter().enumerate().map(|(index, (role, handlers))| match *role {
            // Only what keeps running can be probed.
            "init" => format!("| init i{index}"),
            role => format!("| {role} i{index}{handlers}"),
        });
        let apps = apps.iter().enumerate().map(|(index, (own, handlers))| format!("| app a{index}{own}{handlers}"));
        let containers: Vec<String> = init.chain(apps).collect();
        format!("policy={policy} grace={grace} {gate} {}", containers.join(" "))
    })
}

fn play(story: &mut Script, steps: &[Step]) {
    for (at, step) in steps.iter().enumerate() {
        take(story, step);
        // Dear: a third of the run time if done after every step.
        if at % 3 == 0 || at + 1 == steps.len() {
            check_purity(story);
        }
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
        Step::Delete(grace) if is_there => {
            // LC-275: the API never lengthens a grace.
            let asked = i64::from(*grace);
            let grace = story.deletion_grace().map_or(asked, |held| held.min(asked));
            story.deleted(grace);
        }
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
            // LC-139: what vanished before it was published is not counted.
            story.world.is_forgetful = true;
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
        // Who comes after the agent has decided, and before it could say so, loses.
        Step::Declare(phase)
            if is_there && !is_terminal(story.pod.status.as_ref()) && !is_terminal(Some(&story.rendered())) =>
        {
            story.status(phase, |status| status.phase = Some((*phase).into()));
        }
        Step::Again if is_there => drop(story.observe().change().observe()),
        Step::Echo(at) => echo(story, *at),
        Step::ProbeFails(at, kind, fails) => {
            let result = if *fails { ProbeResult::Failure("no".into()) } else { ProbeResult::Success };
            story.probe_says(&name(at), *kind, result);
        }
        Step::HookTakes(at, kind, takes) => drop(story.hook_takes(&name(at), *kind, Some(f64::from(*takes)))),
        Step::HookFails(at, kind) => drop(story.hook_fails(&name(at), *kind, "no")),
        Step::Gate(is_open) if is_there => open_gate(story, *is_open),
        Step::Gate(_) => {}
        Step::Exit(..) | Step::Delete(_) | Step::Gone | Step::AgentRestart => {}
        Step::NewImage(_) | Step::Declare(_) | Step::Again => {}
    }
}

fn echo(story: &mut Script, at: usize) {
    let ended = |fact: &Fact| matches!(fact, Fact::Ended(action, _) if *action != Action::DeleteObject);
    let heard: Vec<Fact> = story.facts.iter().map(|(_, fact)| fact).filter(|fact| ended(fact)).cloned().collect();
    if !heard.is_empty() {
        story.hears_again(heard[at % heard.len()].clone());
    }
}

fn open_gate(story: &mut Script, is_open: bool) {
    let status = if is_open { "True" } else { "False" };
    let gate = PodCondition { type_: "example.com/gate".into(), status: status.into(), ..PodCondition::default() };
    story.status("the gate moves", |status| {
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != gate.type_);
        conditions.push(gate);
    });
}

fn is_terminal(status: Option<&PodStatus>) -> bool {
    matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Asking changes nothing, and neither does hearing the same again (LC-004).
fn check_purity(story: &Script) {
    let now = story.now();
    let (plan, status) = (story.state.plan(now), story.state.render(now));
    let mut again = story.state.clone();
    again.absorb(Fact::Observed(story.world.seen.clone()), now);
    assert_eq!(again.plan(now), plan, "observing again:\n{}", story.story());
    if story.is_object_there() {
        again.absorb(Fact::PodChanged(Box::new(PodSpec::parse(&story.pod).expect("a valid pod"))), now);
        assert_eq!(again.plan(now), plan, "the same pod again:\n{}", story.story());
    }
    assert_eq!(again.render(now), status, "observing again:\n{}", story.story());
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a str {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    found.map_or("", |condition| &condition.status)
}

fn check_log(story: &Script) {
    let mut terminal: Option<String> = None;
    let mut counts: BTreeMap<String, i32> = BTreeMap::new();
    let mut stopped: BTreeSet<String> = BTreeSet::new();
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
                let has_gate = story.pod.spec.as_ref().is_some_and(|spec| spec.readiness_gates.is_some());
                let is_open = !has_gate || condition(status, "example.com/gate") == "True";
                assert!(ready != "True" || is_open, "{}", story.story());
                check_counts(&mut counts, status, story);
            }
            // LC-010
            Logged::Did(_, action) => assert!(!is_doomed || !starts(action), "{action:?}:\n{}", story.story()),
            Logged::Declared(phase) => {
                terminal = Some(phase.clone());
                is_doomed = true;
            }
            Logged::Doomed => is_doomed = true,
            // Whoever was stopped for another reason before has no turn to wait for.
            Logged::Killed { container, grace, running } if is_doomed && !stopped.contains(container) => {
                check_turn(story, container, *grace, running);
            }
            Logged::Killed { container, .. } => drop(stopped.insert(container.clone())),
            Logged::AgentRestarted => {}
        }
    }
}

/// LC-294: sidecars wait for the app containers and for the sidecars after
/// them; LC-297: until the grace period is used up.
fn check_turn(story: &Script, container: &str, grace: Duration, running: &[String]) {
    let spec = story.pod.spec.as_ref().expect("a spec");
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let Some(at) = init.iter().position(|init| init.name == container) else { return };
    let is_sidecar = |at: usize| init[at].restart_policy.as_deref() == Some("Always");
    if !is_sidecar(at) || grace <= Duration::from_secs(2) {
        return;
    }
    let later = (at + 1..init.len()).filter(|at| is_sidecar(*at)).map(|at| &init[at].name);
    let before: Vec<&String> = spec.containers.iter().map(|app| &app.name).chain(later).collect();
    let early = running.iter().find(|name| before.contains(name));
    assert!(early.is_none(), "{container} got TERM before {early:?} ended:\n{}", story.story());
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
            Logged::Killed { .. } => {}
            Logged::Did(..) | Logged::Published(_) | Logged::Declared(_) | Logged::Doomed => {}
        }
    }
}

fn heal(story: &mut Script) {
    story.world.bad_starts.clear();
    story.world.bad_images.clear();
    story.world.bad_sandbox = None;
    story.world.bad_kill = None;
    story.world.answers.clear();
    story.world.hooks.clear();
    story.is_api_up = true;
    story.observe().settle();
    story.until(story.seconds() + 2000.0);
}

/// What a pod comes to: its phase and what runs in it.
fn outcome(story: &Script) -> (Option<String>, Vec<String>) {
    let running = names(story).into_iter().filter(|name| story.world.running(name) > 0).collect();
    (story.rendered().phase, running)
}

/// Of a whole test run; `HISTORIES` asks for more.
const HISTORIES: u32 = 100_000;

/// A share of all histories, in percent.
#[expect(clippy::disallowed_methods, reason = "how long to look is the caller's choice")]
fn config(share: u32) -> ProptestConfig {
    let wanted: Option<u64> = std::env::var("HISTORIES").ok().map(|text| text.parse().expect("HISTORIES is a number"));
    let default = ProptestConfig::default();
    let cases = match wanted {
        Some(histories) => u64::from(share) * histories / 100,
        None if std::env::var_os("PROPTEST_CASES").is_some() => u64::from(default.cases),
        None => u64::from(share * (HISTORIES / 100)),
    };
    ProptestConfig {
        cases: u32::try_from(cases).expect("not that many histories"),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 0..15)
}

fn begin(text: &str) -> Script {
    let mut story = Script::pod(text);
    story.begin();
    story
}

proptest! {
    #![proptest_config(config(65))]

    #[test]
    fn lc_008_lc_294_no_history_breaks_the_rules(text in pod(), steps in steps()) {
        let mut story = begin(&text);
        play(&mut story, &steps);
        check_log(&story);
        if !steps.iter().any(|step| matches!(step, Step::BadKill(true) | Step::Echo(_))) {
            check_deadlines(&story);
        }
    }
}

proptest! {
    #![proptest_config(config(15))]

    #[test]
    fn lc_011_what_is_deleted_is_gone_in_the_end(text in pod(), steps in steps()) {
        let mut story = begin(&text);
        play(&mut story, &steps);
        if story.is_object_there() {
            story.deleted(5);
        }
        heal(&mut story);
        prop_assert!(story.state.is_finished(), "{}", story.story());
        prop_assert!(!story.is_object_there());
    }
}

proptest! {
    #![proptest_config(config(10))]

    /// LC-376, LC-377: what API and runtime remember is enough. Documented
    /// losses (LC-139): a definition change under way, and that a container
    /// ended because the agent wanted it restarted.
    #[test]
    fn lc_377_a_new_agent_comes_to_the_same_end(text in pod(), steps in steps()) {
        let is_lost = |step: &Step| match step {
            Step::NewImage(_) | Step::HookFails(_, HookKind::PostStart) => true,
            Step::ProbeFails(_, kind, _) => *kind != ProbeKind::Readiness,
            _ => false,
        };
        let steps: Vec<Step> = steps.into_iter().filter(|step| !is_lost(step)).collect();
        let mut story = begin(&text);
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

proptest! {
    #![proptest_config(config(10))]

    /// The same facts at the same times make the same state.
    #[test]
    fn lc_004_facts_alone_decide(text in pod(), steps in steps()) {
        let steps: Vec<Step> = steps.into_iter().filter(|step| !matches!(step, Step::AgentRestart)).collect();
        let first = Script::pod(&text);
        let spec = PodSpec::parse(&first.pod).expect("a valid pod");
        let mut again = PodState::new(spec, first.rules.clone(), first.now());
        let mut story = first;
        story.keeps_facts = true;
        story.begin();
        play(&mut story, &steps);
        for (now, fact) in &story.facts {
            again.absorb(fact.clone(), *now);
        }
        prop_assert_eq!(again.plan(story.now()), story.state.plan(story.now()));
        prop_assert_eq!(again.render(story.now()), story.rendered());
    }
}
