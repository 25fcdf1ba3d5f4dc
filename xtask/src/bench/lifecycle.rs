//! How fast the pod rules decide and how much they remember: facts and whole
//! lives a second on one core, bytes for each pod.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lifecycle::{Fact, PodState};
use sim::script::Script;

use super::report::{Better, Measured};

/// Each figure is taken over at least this much time.
const ENOUGH: Duration = Duration::from_secs(2);
/// Enough pods that pages and the process itself do not matter.
const CROWD: usize = 20_000;
/// What an ordinary page holds; Linux says the same on every machine we build for.
const PAGE_BYTES: usize = 4096;

/// A life with everything in it: init container, sidecar, probes, a crash.
const POD: &str = "grace=10 | init setup | sidecar proxy readiness=period:10 \
                   | app web liveness=period:10 readiness=period:10 preStop=exec | app helper";

pub(super) fn measure() -> Vec<Measured> {
    vec![
        figure("facts_absorbed", facts_per_second(), "facts/s", Better::Higher),
        figure("facts_with_plan_and_status", decisions_per_second(), "facts/s", Better::Higher),
        figure("pods_simulated", pods_per_second(), "pods/s", Better::Higher),
        figure("memory_per_pod_state", bytes_per_pod(), "bytes", Better::Lower),
    ]
}

/// Unoptimised figures would say nothing: the same again with `--release`.
pub(super) fn measure_in_release(json: bool) -> Result<()> {
    eprintln!("building xtask with --release for honest figures");
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--release", "--package", "xtask", "--", "bench", "lifecycle"]);
    command.args(json.then_some("--json"));
    let status = command.status().context("cargo run --release: cannot start")?;
    ensure!(status.success(), "cargo run --release: {status}");
    Ok(())
}

fn figure(metric: &'static str, value: f64, unit: &'static str, better: Better) -> Measured {
    Measured { metric, value, unit, better, peer: None }
}

fn live(story: &mut Script) {
    story.begin().exits("setup", 0).until(30.0).exits("web", 1).until(60.0);
    story.deleted(10).until(90.0);
}

/// Every fact of one life, with its time, and the state it began with.
fn recorded() -> (PodState, Vec<(ambient::Now, Fact)>) {
    let mut story = Script::pod(POD);
    let state = story.state.clone();
    story.keeps_facts = true;
    live(&mut story);
    (state, story.facts)
}

fn facts_per_second() -> f64 {
    replay(|state, fact, now| {
        state.absorb(fact, now);
        drop(state.take_notes());
    })
}

/// As a driver does it: after each fact, what now, and what to show.
fn decisions_per_second() -> f64 {
    replay(|state, fact, now| {
        state.absorb(fact, now);
        drop(state.take_notes());
        std::hint::black_box((state.plan(now), state.render(now)));
    })
}

fn replay(mut hear: impl FnMut(&mut PodState, Fact, ambient::Now)) -> f64 {
    let (begin, facts) = recorded();
    let (mut spent, mut count) = (Duration::ZERO, 0usize);
    while spent < ENOUGH {
        let mut state = begin.clone();
        // Copies are the bench's, not the rules'.
        let copies = facts.clone();
        count += copies.len();
        let start = Instant::now();
        for (now, fact) in copies {
            hear(&mut state, fact, now);
        }
        spent += start.elapsed();
    }
    count as f64 / spent.as_secs_f64()
}

fn pods_per_second() -> f64 {
    let start = Instant::now();
    let mut count = 0usize;
    while start.elapsed() < ENOUGH {
        let mut story = Script::pod(POD);
        live(&mut story);
        count += 1;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

/// Running pods, as the process grows by them.
fn bytes_per_pod() -> f64 {
    let (begin, facts) = recorded();
    let half = &facts[..facts.len() / 2];
    let before = resident_bytes();
    let pods: Vec<PodState> = (0..CROWD)
        .map(|_| {
            let mut state = begin.clone();
            for (now, fact) in half {
                state.absorb(fact.clone(), *now);
                drop(state.take_notes());
            }
            state
        })
        .collect();
    let grown = resident_bytes().saturating_sub(before);
    assert_eq!(pods.len(), CROWD);
    grown as f64 / CROWD as f64
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_that_is_measured_is_a_whole_one() {
        let mut story = Script::pod(POD);
        live(&mut story);
        assert!(story.state.is_finished(), "{}", story.story());
    }
}
