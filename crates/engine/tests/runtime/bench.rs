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
            world.engine.exec_sync(&id, vec!["true".into()], None).await.unwrap();
            let executed = begun.elapsed();
            world.engine.stop_container(&id, Duration::ZERO).await.unwrap();
            let stopped = begun.elapsed();
            world.engine.remove_sandbox(&sandbox).await.unwrap();
            let removed = begun.elapsed();
            let [create, start] = [created - ran, started - created];
            let [exec, stop, remove] = [executed - started, stopped - executed, removed - stopped];
            rounds.push([ran, create, start, exec, stop, remove, started]);
        }
        let names = ["sandbox", "create", "start", "exec true", "stop", "remove", "all until started"];
        for (index, name) in names.iter().enumerate() {
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
