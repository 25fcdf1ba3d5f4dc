//! What containers cost: `cargo xtask bench runtime` runs this and makes a
//! table of the lines printed here.
//!
//! The engine goes first; then every OCI runtime found on the machine does the
//! same with the same root file system.

#[path = "bench/oci.rs"]
mod oci;

use std::time::{Duration, Instant};

use cri::{ContainerId, Runtime, SandboxId};
use futures::future::join_all;

use crate::harness::Case;
use crate::restart::shim_private_kilobytes;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[("engine", engine), ("runc", oci::runc), ("crun", oci::crun)];

/// How often everything is done one by one.
const ROUNDS: usize = 30;
/// How many containers are started at once.
const CROWD: usize = 100;
/// What every container runs.
const SLEEP: &str = "exec sleep 1000";

fn engine() {
    check(|world| async move {
        one_by_one(&world).await;
        all_at_once(&world).await;
    });
}

async fn one_by_one(world: &World) {
    let (mut sandboxes, mut creates, mut starts) = (Times::new(), Times::new(), Times::new());
    let (mut both, mut execs, mut stops, mut removes) = (Times::new(), Times::new(), Times::new(), Times::new());
    for round in 0..ROUNDS {
        let sandbox = sandboxes.time(world.sandbox(&format!("b{round}"))).await;
        let create = Instant::now();
        let id = creates.time(world.create(&sandbox, shell("c", SLEEP))).await;
        starts.time(world.engine.start_container(&id)).await.unwrap();
        both.0.push(create.elapsed());
        let executed = execs.time(world.engine.exec_sync(&id, vec!["true".into()], None)).await.unwrap();
        assert_eq!(executed.exit_code, 0);
        stops.time(world.engine.stop_container(&id, Duration::ZERO)).await.unwrap();
        removes.time(world.engine.remove_sandbox(&sandbox)).await.unwrap();
    }
    tell("podium", "sandbox_p50", sandboxes.median(), "ms");
    tell("podium", "create_p50", creates.median(), "ms");
    tell("podium", "start_p50", starts.median(), "ms");
    tell("podium", "create_start_p50", both.median(), "ms");
    tell("podium", "exec_p50", execs.median(), "ms");
    tell("podium", "stop_p50", stops.median(), "ms");
    tell("podium", "remove_sandbox_p50", removes.median(), "ms");
}

async fn all_at_once(world: &World) {
    let begun = Instant::now();
    let uids: Vec<String> = (0..CROWD).map(|number| format!("p{number}")).collect();
    let sandboxes = join_all(uids.iter().map(|uid| world.sandbox(uid))).await;
    tell("podium", "sandboxes_100_at_once", millis(begun.elapsed()), "ms");
    let begun = Instant::now();
    join_all(sandboxes.iter().map(|sandbox| start(world, sandbox))).await;
    tell("podium", "starts_100_at_once", millis(begun.elapsed()), "ms");
    let private: f64 = sandboxes.iter().map(|sandbox| shim_private_kilobytes(world, sandbox)).sum();
    tell("podium", "private_per_pod", private * 1.024 / 1000.0 / CROWD as f64, "MB");
    join_all(sandboxes.iter().map(|sandbox| world.engine.remove_sandbox(sandbox))).await;
}

async fn start(world: &World, sandbox: &SandboxId) -> ContainerId {
    world.run_with(sandbox, shell("c", SLEEP)).await
}

struct Times(Vec<Duration>);

impl Times {
    fn new() -> Self {
        Self(Vec::new())
    }

    async fn time<T>(&mut self, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = work.await;
        self.0.push(begun.elapsed());
        done
    }

    fn median(&mut self) -> f64 {
        self.0.sort();
        millis(self.0[self.0.len() / 2])
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// One figure, as `xtask` reads it.
fn tell(who: &str, metric: &str, value: f64, unit: &str) {
    println!("{}", serde_json::json!({"who": who, "metric": metric, "value": value, "unit": unit}));
}
