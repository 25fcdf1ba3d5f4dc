//! Generated histories: pods, and what can happen to them.

use std::time::Duration;

use lifecycle::{Action, Fact, HookKind, InstanceState, PodSpec, ProbeKind, ProbeResult, StartStage};
use objects::api::core::v1::{PodCondition, PodStatus};
use proptest::prelude::*;

use sim::script::Script;
use sim::world::{Manner, StrayHooks};

use crate::checks::Witness;

/// What can happen to a pod besides what the agent does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Wait(u32),
    Exit(usize, i32),
    Manner(usize, Option<(u8, i32)>),
    /// With any grace, also a longer one than before, which no API would let
    /// through (LC-275).
    Delete(u8),
    /// LC-276: grace 0 and nothing that holds the object.
    DeleteNow,
    Gone,
    LoseSandbox,
    AgentRestart,
    /// The agent dies after so many moves, between two actions or between an
    /// action and its end.
    Crash(u32),
    NewImage(usize),
    BadStart(usize, Option<StartStage>),
    BadImage(usize, bool),
    SlowPulls(u8),
    BadSandbox(bool),
    BadKill(bool),
    ApiUp(bool),
    Forget(usize),
    Confuse(usize),
    /// Someone else declares the pod finished (TC-146), perhaps after the agent
    /// decided otherwise (LC-044).
    Declare(&'static str),
    /// The same facts again.
    Again,
    /// The end of an action of long ago is told again.
    Echo(usize),
    /// The end of an action nobody began.
    Unbegun(usize, u8),
    /// The object as it was at first, and then as it is.
    OldPod,
    ProbeFails(usize, ProbeKind, bool),
    HookTakes(usize, HookKind, Option<u8>),
    HookFails(usize, HookKind),
    StrayHooks(StrayHooks),
    Gate(bool),
}

/// Of one history; `STEPS` asks for longer ones.
const STEPS: usize = 24;

#[expect(clippy::disallowed_methods, reason = "how long to look is the caller's choice")]
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wanted = std::env::var("STEPS").ok().map(|text| text.parse().expect("STEPS is a number"));
    proptest::collection::vec(step(), 0..=wanted.unwrap_or(STEPS))
}

fn step() -> impl Strategy<Value = Step> {
    let code = prop_oneof![Just(0), Just(1), Just(42), Just(137)];
    let stage = prop_oneof![Just(StartStage::Configure), Just(StartStage::Create), Just(StartStage::Start)];
    let stray = prop_oneof![Just(StrayHooks::EndAtOnce), Just(StrayHooks::EndInTime), Just(StrayHooks::NeverEnd)];
    let often = prop_oneof![
        6 => (0..700u32).prop_map(Step::Wait),
        6 => (0..40u32).prop_map(Step::Wait),
        8 => (0..5usize, code.clone()).prop_map(|(at, code)| Step::Exit(at, code)),
        2 => (0..5usize, proptest::option::of((0..60u8, code))).prop_map(|(at, how)| Step::Manner(at, how)),
        2 => Just(Step::AgentRestart),
        1 => (0..12u32).prop_map(Step::Crash),
        2 => (0..5usize, proptest::option::of(stage)).prop_map(|(at, how)| Step::BadStart(at, how)),
        2 => (0..5usize, any::<bool>()).prop_map(|(at, is_bad)| Step::BadImage(at, is_bad)),
        2 => Just(Step::Again),
        2 => (0..200usize).prop_map(Step::Echo),
        1 => (0..5usize, 0..10u8).prop_map(|(at, kind)| Step::Unbegun(at, kind)),
        3 => (0..5usize, probe_kind(), any::<bool>()).prop_map(|(at, kind, fails)| Step::ProbeFails(at, kind, fails)),
    ];
    let seldom = prop_oneof![
        2 => prop_oneof![Just(0), Just(1), Just(2), Just(17), 0..60u8].prop_map(Step::Delete),
        1 => prop_oneof![1 => Just(Step::DeleteNow), 2 => Just(Step::Gone)],
        2 => Just(Step::LoseSandbox),
        2 => (0..5usize).prop_map(Step::NewImage),
        2 => (0..20u8).prop_map(Step::SlowPulls),
        2 => any::<bool>().prop_map(Step::BadSandbox),
        2 => any::<bool>().prop_map(Step::BadKill),
        2 => any::<bool>().prop_map(Step::ApiUp),
        2 => (0..5usize).prop_map(Step::Forget),
        2 => (0..5usize).prop_map(Step::Confuse),
        2 => prop_oneof![Just("Failed"), Just("Succeeded")].prop_map(Step::Declare),
        1 => Just(Step::OldPod),
        2 => (0..5usize, hook_kind(), proptest::option::weighted(0.8, 0..50u8))
            .prop_map(|(at, kind, takes)| Step::HookTakes(at, kind, takes)),
        2 => (0..5usize, hook_kind()).prop_map(|(at, kind)| Step::HookFails(at, kind)),
        1 => stray.prop_map(Step::StrayHooks),
        2 => any::<bool>().prop_map(Step::Gate),
    ];
    prop_oneof![3 => often, 1 => seldom]
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
        1 => Just(" postStart=exec preStop=exec liveness=period:100,failure:1"),
    ]
}

pub(crate) fn pod() -> impl Strategy<Value = String> {
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

pub(crate) fn begin(text: &str) -> Script {
    let mut story = Script::pod(text);
    story.begin();
    story
}

pub(crate) fn play(story: &mut Script, steps: &[Step]) {
    let mut witness = Witness::default();
    for step in steps {
        take(story, step);
        witness.look(story);
    }
}

pub(crate) fn names(story: &Script) -> Vec<String> {
    let spec = story.pod.spec.as_ref().expect("a spec");
    spec.init_containers.iter().flatten().chain(&spec.containers).map(|c| c.name.clone()).collect()
}

fn take(story: &mut Script, step: &Step) {
    let names = names(story);
    let name = |at: &usize| names[at % names.len()].clone();
    match step {
        Step::Wait(seconds) => drop(story.until(story.seconds() + f64::from(*seconds))),
        Step::Exit(at, code) if story.world.running(&name(at)) > 0 => drop(story.exits(&name(at), *code)),
        Step::Exit(..) => {}
        Step::LoseSandbox => drop(story.sandbox_lost(255)),
        Step::Crash(moves) => story.dies_in = Some(*moves),
        Step::ApiUp(is_up) => story.is_api_up = *is_up,
        Step::Forget(at) => {
            let ended = story.world.forget(&name(at));
            story.observe().end_all(ended).settle();
        }
        Step::Confuse(at) => {
            let found = story.world.seen.instances.iter_mut().find(|instance| instance.name == name(at));
            if let Some(instance) = found.filter(|i| matches!(i.state, InstanceState::Running { .. })) {
                instance.state = InstanceState::Unknown;
            }
            story.observe().settle();
        }
        Step::Echo(at) => echo(story, *at),
        Step::Unbegun(at, kind) => end_unbegun(story, &name(at), *kind),
        Step::Delete(_) | Step::DeleteNow | Step::Gone | Step::AgentRestart | Step::NewImage(_) => {
            take_object(story, step, &names);
        }
        Step::Declare(_) | Step::Again | Step::OldPod | Step::Gate(_) => take_object(story, step, &names),
        Step::Manner(..) | Step::BadStart(..) | Step::BadImage(..) | Step::SlowPulls(_) | Step::BadSandbox(_) => {
            prepare(story, step, &names);
        }
        Step::BadKill(_) | Step::ProbeFails(..) | Step::HookTakes(..) | Step::HookFails(..) | Step::StrayHooks(_) => {
            prepare(story, step, &names);
        }
    }
}

/// What happens to the object, as long as it is there.
fn take_object(story: &mut Script, step: &Step, names: &[String]) {
    if !story.is_object_there() {
        return;
    }
    match step {
        Step::Delete(grace) => drop(story.deleted(i64::from(*grace))),
        Step::DeleteNow => {
            story.deleted(0);
            if story.is_object_there() {
                story.gone();
            }
        }
        Step::Gone => drop(story.gone()),
        Step::AgentRestart => drop(story.agent_restarted()),
        Step::NewImage(at) => {
            let name = &names[at % names.len()];
            let image = format!("{name}:{}", story.seconds());
            story.image(name, &image);
        }
        Step::Declare(phase) => drop(story.status(phase, |status| status.phase = Some((*phase).into()))),
        Step::Again => drop(story.observe().change().observe()),
        Step::OldPod => {
            let mut old = story.pod.clone();
            old.metadata.generation = Some(1);
            old.metadata.deletion_timestamp = None;
            old.metadata.deletion_grace_period_seconds = None;
            old.status = Some(PodStatus { phase: Some("Pending".into()), ..PodStatus::default() });
            story.hears(Fact::PodChanged(Box::new(PodSpec::parse(&old).expect("a valid pod"))));
            if story.is_object_there() {
                story.change();
            }
        }
        Step::Gate(is_open) => open_gate(story, *is_open),
        other => panic!("{other:?} is not about the object"),
    }
}

/// What the world will do when asked.
fn prepare(story: &mut Script, step: &Step, names: &[String]) {
    let name = |at: &usize| names[at % names.len()].clone();
    match step {
        Step::Manner(at, how) => {
            let manner = how.map_or(Manner::Ignores, |(after, code)| Manner::Exits {
                after: Duration::from_secs(after.into()),
                code,
            });
            story.on_term(&name(at), manner);
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
        Step::ProbeFails(at, kind, fails) => {
            let result = if *fails { ProbeResult::Failure("no".into()) } else { ProbeResult::Success };
            story.probe_says(&name(at), *kind, result);
        }
        Step::HookTakes(at, kind, takes) => drop(story.hook_takes(&name(at), *kind, takes.map(f64::from))),
        Step::HookFails(at, kind) => drop(story.hook_fails(&name(at), *kind, "no")),
        Step::StrayHooks(how) => story.world.stray_hooks = *how,
        other => panic!("{other:?} is not about the world"),
    }
}

/// A driver tells each end once. One that is told again while the same action
/// runs again could not be told from its own end.
fn echo(story: &mut Script, at: usize) {
    let ended: Vec<&Fact> = story.facts.iter().map(|(_, fact)| fact).filter(|f| matches!(f, Fact::Ended(..))).collect();
    if let Some(Fact::Ended(action, outcome)) = ended.get(at % ended.len().max(1)).copied().cloned()
        && !story.is_in_flight(&action)
    {
        story.hears(Fact::Ended(action, outcome));
    }
}

fn end_unbegun(story: &mut Script, name: &str, kind: u8) {
    let fact = unbegun(story, name, kind);
    if !matches!(&fact, Fact::Ended(action, _) if story.is_in_flight(action)) {
        story.hears(fact);
    }
}

/// The end of something that could have been.
pub(crate) fn unbegun(story: &Script, name: &str, kind: u8) -> Fact {
    use lifecycle::{ImageUse, Outcome, PullPolicy};
    let container = name.to_owned();
    let newest = story.world.seen.instances.iter().find(|instance| instance.name == name);
    let (id, attempt) = newest.map_or(("podium://none".into(), 0), |i| (i.id.clone(), i.attempt));
    let no = || Outcome::Failed("no".into());
    let (action, outcome) = match kind {
        0 => (Action::StartContainer { container, attempt }, Outcome::Done),
        1 => (Action::StartContainer { container, attempt: attempt + 1 }, no()),
        2 => {
            let action = Action::PullImage { container, image: format!("{name}:1"), policy: PullPolicy::Always };
            (action, Outcome::Image(ImageUse::AlreadyPresent))
        }
        3 => (Action::KillContainer { container, id, grace: Duration::from_secs(7) }, Outcome::Done),
        4 => (Action::KillContainer { container, id, grace: Duration::from_secs(7) }, no()),
        5 => (Action::RunHook { container, id, hook: HookKind::PostStart, timeout: None }, no()),
        6 => (Action::RunHook { container, id, hook: HookKind::PreStop, timeout: None }, Outcome::Done),
        7 => {
            let action = Action::RunProbe { container, id, probe: ProbeKind::Liveness };
            (action, Outcome::Probed(ProbeResult::Failure("no".into())))
        }
        8 => (Action::CreateSandbox { attempt: 7 }, no()),
        _ => (Action::TearDown, Outcome::Done),
    };
    Fact::Ended(action, outcome)
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

/// Everything works again, and time passes.
pub(crate) fn heal(story: &mut Script) {
    cure(story);
    story.observe().settle();
    story.until(story.seconds() + 2000.0);
}

/// From now on everything works that is tried.
pub(crate) fn cure(story: &mut Script) {
    story.world.bad_starts.clear();
    story.world.bad_images.clear();
    story.world.bad_sandbox = None;
    story.world.bad_kill = None;
    story.world.answers.clear();
    story.world.hooks.clear();
    story.is_api_up = true;
}
