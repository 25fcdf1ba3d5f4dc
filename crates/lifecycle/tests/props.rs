//! Invariants over generated histories of one pod.
//!
//! A test run plays 100,000 histories; `HISTORIES=5000000 cargo test --release
//! -p podium-lifecycle --test props` looks longer. A history that breaks a rule
//! is made small and its seed is kept in `props.regressions`, to be committed
//! with the fix.

#[path = "props/checks.rs"]
mod checks;
#[path = "props/history.rs"]
mod history;

use std::collections::{BTreeMap, BTreeSet};

use lifecycle::{Action, Fact, HookKind, PodSpec, PodState};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use checks::{check_log, is_terminal};
use history::{Step, begin, cure, heal, names, play, pod, steps, unbegun};
use sim::script::{Logged, Script};

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

proptest! {
    #![proptest_config(config(50))]

    #[test]
    fn lc_008_lc_294_no_history_breaks_the_rules(text in pod(), steps in steps()) {
        let mut story = begin(&text);
        play(&mut story, &steps);
        check_log(&story);
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
        check_log(&story);
        prop_assert!(story.state.is_finished(), "{}", story.story());
        prop_assert!(!story.is_object_there());
    }
}

/// What a pod comes to: its phase and what runs in it.
fn outcome(story: &Script) -> (Option<String>, Vec<String>) {
    let running = names(story).into_iter().filter(|name| story.world.running(name) > 0).collect();
    (story.rendered().phase, running)
}

/// LC-139, LC-228: what dies with an agent. It had begun to kill an instance for
/// its own reasons (a probe, a hook, another image), and what becomes of its
/// container is not decided by the exit code alone; or it waited for a
/// postStart hook, which nobody runs again.
fn is_on_its_mind(story: &Script) -> bool {
    let newest = |name: &str| story.world.seen.instances.iter().find(|instance| instance.name == name);
    story.log.iter().any(|logged| match logged {
        Logged::Did(_, Action::KillContainer { container, id, .. })
        | Logged::Did(_, Action::RunHook { container, id, hook: HookKind::PreStop, .. }) => {
            newest(container).is_some_and(|instance| instance.id == *id)
        }
        Logged::Did(_, action @ Action::RunHook { hook: HookKind::PostStart, .. }) => story.is_in_flight(action),
        _ => false,
    })
}

/// It is to end whatever the agent thinks.
fn is_doomed(story: &Script) -> bool {
    story.log.iter().any(|logged| matches!(logged, Logged::Doomed | Logged::Declared(_)))
}

proptest! {
    #![proptest_config(config(15))]

    /// LC-376, LC-377: what API and runtime remember is enough, wherever the
    /// agent died.
    #[test]
    fn lc_377_a_new_agent_comes_to_the_same_end(text in pod(), steps in steps(), moves in 0..20u32) {
        let mut story = begin(&text);
        play(&mut story, &steps);
        story.dies_in = None;
        story.is_api_up = true;
        story.settle();
        let mut other = story.clone();
        let must_agree = story.pod.status.as_ref().is_some_and(is_terminal) || !is_on_its_mind(&story);
        heal(&mut story);
        if other.is_object_there() {
            // A new agent forgets delays (LC-177), so it tries earlier; both
            // must meet the same world, or they may end differently.
            cure(&mut other);
            other.agent_restarted();
            other.dies_in = Some(moves);
            heal(&mut other);
            check_log(&other);
            let (new, old) = (outcome(&other), outcome(&story));
            let is_over = |(phase, running): &(Option<String>, Vec<String>)| {
                running.is_empty() && matches!(phase.as_deref(), Some("Succeeded" | "Failed"))
            };
            // LC-290: with a full grace again, processes may end another way.
            if must_agree || is_doomed(&story) {
                prop_assert!(new == old || (is_over(&new) && is_over(&old) && is_doomed(&story)),
                    "{new:?} is not {old:?}\n{}\n---\n{}", other.story(), story.story());
            }
        }
    }
}

/// A history whose facts are kept: of one agent.
fn recorded(text: &str, steps: &[Step]) -> (PodState, Script) {
    let is_one = |step: &&Step| !matches!(step, Step::AgentRestart | Step::Crash(_));
    let steps: Vec<Step> = steps.iter().filter(is_one).cloned().collect();
    let mut story = Script::pod(text);
    let spec = PodSpec::parse(&story.pod).expect("a valid pod");
    let fresh = PodState::new(spec, story.rules.clone(), story.now());
    story.keeps_facts = true;
    story.begin();
    play(&mut story, &steps);
    (fresh, story)
}

proptest! {
    #![proptest_config(config(5))]

    /// The same facts at the same times make the same state.
    #[test]
    fn lc_004_facts_alone_decide(text in pod(), steps in steps()) {
        let (mut again, story) = recorded(&text, &steps);
        for (now, fact) in &story.facts {
            again.absorb(fact.clone(), *now);
        }
        prop_assert_eq!(again.plan(story.now()), story.state.plan(story.now()));
        prop_assert_eq!(again.render(story.now()), story.rendered());
    }
}

/// Whether a fact says nothing new after `told`. `Begun` is no message: the
/// driver says it itself, before it does anything, so it is never late.
fn is_noise(fact: &Fact, told: &[Fact], in_flight: &BTreeSet<Action>) -> bool {
    let newest = told.iter().rev().find_map(|fact| match fact {
        Fact::Observed(seen) => Some(seen),
        _ => None,
    });
    match fact {
        Fact::Ended(action, _) => !in_flight.contains(action),
        Fact::Observed(seen) => newest.is_some_and(|newest| seen.taken_at < newest.taken_at),
        Fact::PodChanged(_) | Fact::Begun(_) => told.last() == Some(fact),
        _ => told.contains(fact),
    }
}

proptest! {
    #![proptest_config(config(15))]

    /// LC-006: what is told twice, too late, or about something nobody began
    /// changes nothing: no plan, no status, no event.
    #[test]
    fn lc_006_noise_says_nothing(
        text in pod(),
        steps in steps(),
        noise in proptest::collection::vec((any::<u16>(), any::<u16>(), 0..14u8), 1..30),
    ) {
        let (mut calm, story) = recorded(&text, &steps);
        let mut noisy = calm.clone();
        let facts: Vec<Fact> = story.facts.iter().map(|(_, fact)| fact.clone()).collect();
        let names = names(&story);
        let mut by_place: BTreeMap<usize, Vec<Fact>> = BTreeMap::new();
        for (place, which, kind) in &noise {
            let place = usize::from(*place) % facts.len();
            let fact = match kind {
                0..10 => unbegun(&story, &names[usize::from(*which) % names.len()], *kind),
                10 => facts[place].clone(),
                _ => facts[usize::from(*which) % (place + 1)].clone(),
            };
            by_place.entry(place).or_default().push(fact);
        }
        let mut in_flight = BTreeSet::new();
        for (place, (now, fact)) in story.facts.iter().enumerate() {
            calm.absorb(fact.clone(), *now);
            noisy.absorb(fact.clone(), *now);
            match fact {
                Fact::Begun(action) => drop(in_flight.insert(action.clone())),
                Fact::Ended(action, _) => drop(in_flight.remove(action)),
                _ => {}
            }
            for noise in by_place.get(&place).into_iter().flatten() {
                if is_noise(noise, &facts[..=place], &in_flight) {
                    noisy.absorb(noise.clone(), *now);
                    prop_assert_eq!(noisy.plan(*now), calm.plan(*now), "after {:?}:\n{}", noise, story.story());
                    prop_assert_eq!(noisy.render(*now), calm.render(*now), "after {:?}:\n{}", noise, story.story());
                }
            }
        }
        prop_assert_eq!(noisy.take_notes(), calm.take_notes(), "{}", story.story());
        prop_assert_eq!(noisy.plan(story.now()), calm.plan(story.now()));
        prop_assert_eq!(noisy.render(story.now()), calm.render(story.now()));
    }
}
