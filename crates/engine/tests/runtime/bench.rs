//! How long the verbs take: `runtime --bench` prints the median of each.

use std::time::{Duration, Instant};

use cri::Runtime;

use crate::world::{check, shell};

const ROUNDS: usize = 20;

pub(crate) fn run() {
    check(|world| async move {
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let begun = Instant::now();
            let sandbox = world.sandbox(&format!("b{round}")).await;
            let ran = begun.elapsed();
            let id = world.create(&sandbox, shell("c", "exec sleep 1000")).await;
            let created = begun.elapsed();
            world.engine.start_container(&id).await.unwrap();
            let started = begun.elapsed();
            if round == 0 {
                println!("{}", crate::restart::shim_memory(&world, &sandbox));
            }
            world.engine.stop_container(&id, Duration::ZERO).await.unwrap();
            let stopped = begun.elapsed();
            world.engine.remove_sandbox(&sandbox).await.unwrap();
            rounds.push([ran, created - ran, started - created, stopped - started, begun.elapsed() - stopped, started]);
        }
        for (index, name) in ["sandbox", "create", "start", "stop", "remove", "all until started"].iter().enumerate() {
            let mut times: Vec<Duration> = rounds.iter().map(|round| round[index]).collect();
            times.sort();
            println!(
                "{name:>20}: p50 {:>8.2?}  min {:>8.2?}  max {:>8.2?}",
                times[ROUNDS / 2],
                times[0],
                times[ROUNDS - 1]
            );
        }
    });
}
