//! How fast the pod rules decide and how much they remember: facts and whole
//! lives a second on one core, bytes for each pod.
//!
//! Prints one JSON object a line; `cargo xtask bench lifecycle` makes a report
//! of them.

use std::collections::BTreeMap;
use std::time::Duration;

use ambient::{Clock, Now};
use lifecycle::{Action, Fact, PodState};
use serde_json::json;
use sim::script::Script;

/// Each figure is taken over at least this much time.
const ENOUGH: Duration = Duration::from_secs(2);
/// Enough lives for a median.
const LIVES: usize = 2001;
/// Enough pods that pages and the process itself do not matter.
const CROWD: usize = 20_000;
/// What an ordinary page holds; Linux says the same on every machine we build for.
const PAGE_BYTES: usize = 4096;

/// A life with everything in it: init container, sidecar, probes, a crash.
/// Most real ones are longer and duller: the longer, the more facts that
/// change nothing.
const POD: &str = "grace=10 | init setup | sidecar proxy readiness=period:10 req=cpu:100m,memory:64Mi \
                   | app web liveness=period:10 readiness=period:10 preStop=exec req=cpu:500m,memory:256Mi lim=memory:512Mi \
                   | app helper";

fn live(story: &mut Script) {
    story.begin().exits("setup", 0).until(30.0).exits("web", 1).until(60.0);
    story.deleted(10).until(90.0);
}

fn main() {
    let life = Life::recorded();
    life.print_mix();
    let [nothing, something] = life.rates_by_effect();
    print("facts_absorbed", life.rate(hear), "facts/s");
    print("facts_that_change_nothing", nothing, "facts/s");
    print("facts_that_change_something", something, "facts/s");
    print("facts_with_plan_and_status", life.rate(hear_and_decide), "facts/s");
    print("pods_simulated", pods_per_second(), "pods/s");
    print("memory_per_pod_state", life.bytes_per_pod(), "bytes");
}

fn print(metric: &str, value: f64, unit: &str) {
    println!("{}", json!({ "metric": metric, "value": value, "unit": unit }));
}

fn hear(state: &mut PodState, fact: Fact, now: Now) {
    state.absorb(fact, now);
    drop(state.take_notes());
}

/// As a driver does it: after each fact, what now, and what to show.
fn hear_and_decide(state: &mut PodState, fact: Fact, now: Now) {
    hear(state, fact, now);
    std::hint::black_box((state.plan(now), state.render(now)));
}

/// Every fact of one life, with its time, and the state it began with.
struct Life {
    begin: PodState,
    facts: Vec<(Now, Fact)>,
    /// Whether each fact shows in the status or in what is told.
    effects: Vec<bool>,
}

impl Life {
    fn recorded() -> Self {
        let mut story = Script::pod(POD);
        let begin = story.state.clone();
        story.keeps_facts = true;
        live(&mut story);
        assert!(story.state.is_finished(), "a whole life is measured:\n{}", story.story());
        let facts = story.facts;
        let mut state = begin.clone();
        let has_effect = |(now, fact): &(Now, Fact)| {
            let before = state.render(*now);
            state.absorb(fact.clone(), *now);
            !state.take_notes().is_empty() || state.render(*now) != before
        };
        let effects = facts.iter().map(has_effect).collect();
        Self { begin, facts, effects }
    }

    fn print_mix(&self) {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for (_, fact) in &self.facts {
            *kinds.entry(kind(fact)).or_default() += 1;
        }
        let all = self.facts.len();
        print("facts_in_a_life", all as f64, "facts");
        let share = |what: &str, count: usize| print(&format!("share_{what}"), 100.0 * count as f64 / all as f64, "%");
        kinds.iter().for_each(|(kind, count)| share(kind, *count));
        share("that_change_nothing", self.effects.iter().filter(|has_effect| !**has_effect).count());
    }

    fn rate(&self, mut hear: impl FnMut(&mut PodState, Fact, Now)) -> f64 {
        let (mut spent, mut count) = (Duration::ZERO, 0usize);
        while spent < ENOUGH {
            // Copies are the bench's, not the rules'.
            let mut pods: Vec<_> = (0..100).map(|_| (self.begin.clone(), self.facts.clone())).collect();
            let start = on_cpu();
            for (state, facts) in &mut pods {
                count += facts.len();
                facts.drain(..).for_each(|(now, fact)| hear(state, fact, now));
            }
            spent += on_cpu() - start;
        }
        count as f64 / spent.as_secs_f64()
    }

    /// Of facts without effect, and of those with one. Each is timed alone, and
    /// reading the clock counts too; the median of many lives leaves out when
    /// others were busy.
    fn rates_by_effect(&self) -> [f64; 2] {
        let clock = Clock::system();
        let mut times = vec![Vec::with_capacity(LIVES); self.facts.len()];
        for _ in 0..LIVES {
            let mut state = self.begin.clone();
            for ((now, fact), times) in self.facts.clone().into_iter().zip(&mut times) {
                let start = clock.now().mono;
                hear(&mut state, fact, now);
                times.push(clock.now().mono - start);
            }
        }
        let median = |times: &mut Vec<Duration>| *times.select_nth_unstable(LIVES / 2).1;
        let medians: Vec<Duration> = times.iter_mut().map(median).collect();
        [false, true].map(|wanted| {
            let of_effect = medians.iter().zip(&self.effects).filter(|(_, has_effect)| **has_effect == wanted);
            let spent: Duration = of_effect.clone().map(|(time, _)| *time).sum();
            of_effect.count() as f64 / spent.as_secs_f64()
        })
    }

    /// Running pods, as the process grows by them.
    fn bytes_per_pod(&self) -> f64 {
        let half = &self.facts[..self.facts.len() / 2];
        let before = resident_bytes();
        let grow = |_| {
            let mut state = self.begin.clone();
            half.iter().for_each(|(now, fact)| hear(&mut state, fact.clone(), *now));
            state
        };
        let pods: Vec<PodState> = (0..CROWD).map(grow).collect();
        let grown = resident_bytes().saturating_sub(before);
        assert_eq!(pods.len(), CROWD);
        grown as f64 / CROWD as f64
    }
}

/// `observed`, `begun_probe`, `ended_other`, …
fn kind(fact: &Fact) -> String {
    let action = |action: &Action| if matches!(action, Action::RunProbe { .. }) { "probe" } else { "other" };
    match fact {
        Fact::PodChanged(_) | Fact::PodGone => "pod_changed".to_owned(),
        Fact::Observed(_) => "observed".to_owned(),
        Fact::Begun(begun) => format!("begun_{}", action(begun)),
        Fact::Ended(ended, _) => format!("ended_{}", action(ended)),
        _ => "of_the_node".to_owned(),
    }
}

fn pods_per_second() -> f64 {
    let start = on_cpu();
    let mut count = 0usize;
    while on_cpu() - start < ENOUGH {
        live(&mut Script::pod(POD));
        count += 1;
    }
    count as f64 / (on_cpu() - start).as_secs_f64()
}

/// How long this thread was on a CPU, whoever else is busy on the machine.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts time on the CPU");
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds come first");
    Duration::from_nanos(nanos)
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}
