//! Many at once and one after the other: nothing may pile up, and nobody may
//! keep the others from working.

use std::fs;
use std::time::{Duration, Instant};

use cri::{ContainerState, Resources, Runtime};
use futures::StreamExt;

use crate::harness::Case;
use crate::leaks;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("rapid_cycles_of_containers_pile_nothing_up", rapid_cycles_of_containers_pile_nothing_up),
    ("rapid_cycles_of_pods_pile_nothing_up", rapid_cycles_of_pods_pile_nothing_up),
    ("many_pods_at_once_come_and_go", many_pods_at_once_come_and_go),
    ("a_fork_bomb_hurts_only_itself", a_fork_bomb_hurts_only_itself),
];

/// `CYCLES=1000` for a long look.
fn cycles() -> usize {
    std::env::var("CYCLES").ok().and_then(|count| count.parse().ok()).unwrap_or(60)
}

/// What a process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    descriptors: usize,
    private_kib: u64,
}

fn held(pid: &str) -> Held {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
    let private_kib = line.trim().trim_end_matches(" kB").parse().unwrap();
    Held { descriptors: count("fd"), private_kib }
}

/// After as many cycles again it may hold no more than after the first ones.
async fn assert_constant(pid: &str, before: Held, kib: u64) {
    let started = Instant::now();
    loop {
        let after = held(pid);
        if after.descriptors <= before.descriptors && after.private_kib <= before.private_kib + kib {
            return println!("  process {pid}: {before:?}, then {after:?}");
        }
        // What has ended may be let go of a moment later.
        assert!(started.elapsed() < Duration::from_secs(10), "process {pid} has grown: {before:?} {after:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn container_cycle(world: &World, sandbox: &cri::SandboxId, name: &str, obeys: bool) {
    let script = if obeys { "exit 3" } else { "exec sleep 1000" };
    let id = world.run(sandbox, name, script).await;
    if obeys {
        assert_eq!(world.exit(&id).await.exit_code, 3);
    } else {
        world.engine.stop_container(&id, Duration::ZERO).await.unwrap();
        assert_eq!(world.container(&id).await.exit_code, 137);
    }
    world.engine.remove_container(&id).await.unwrap();
}

fn rapid_cycles_of_containers_pile_nothing_up() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let monitor = crate::restart::shim_pid(&world, &sandbox).to_string();
        let half = cycles() / 2;
        let mut before = None;
        let begun = Instant::now();
        for number in 0..half * 2 {
            if number == half {
                before = Some((held("self"), held(&monitor)));
            }
            container_cycle(&world, &sandbox, "c", number % 2 == 0).await;
        }
        let elapsed = begun.elapsed();
        println!("  {} cycles in {elapsed:.1?}, {:.1?} each", half * 2, elapsed / u32::try_from(half * 2).unwrap());
        leaks::exact(&world.config, &world.engine).await;
        let (agent, monitor_before) = before.unwrap();
        assert_constant("self", agent, 4096).await;
        assert_constant(&monitor, monitor_before, 128).await;
    });
}

fn rapid_cycles_of_pods_pile_nothing_up() {
    check(|world| async move {
        let half = cycles() / 2;
        let mut before = None;
        let begun = Instant::now();
        for number in 0..half * 2 {
            if number == half {
                before = Some(held("self"));
            }
            let sandbox = world.sandbox(&format!("p{number}")).await;
            world.run(&sandbox, "c", "exec sleep 1000").await;
            world.engine.remove_sandbox(&sandbox).await.unwrap();
        }
        let elapsed = begun.elapsed();
        println!("  {} cycles in {elapsed:.1?}, {:.1?} each", half * 2, elapsed / u32::try_from(half * 2).unwrap());
        leaks::exact(&world.config, &world.engine).await;
        assert_constant("self", before.unwrap(), 4096).await;
    });
}

fn many_pods_at_once_come_and_go() {
    check(|world| async move {
        let world = &world;
        let round = async |from: usize| {
            let pods = futures::stream::iter(from..from + cycles() / 2);
            let pods = pods.map(async |number| {
                let sandbox = world.sandbox(&format!("p{number}")).await;
                container_cycle(world, &sandbox, "c", number % 2 == 0).await;
                world.engine.remove_sandbox(&sandbox).await.unwrap();
            });
            pods.buffer_unordered(AT_ONCE).count().await
        };
        let begun = Instant::now();
        let first = round(0).await;
        leaks::exact(&world.config, &world.engine).await;
        let before = held("self");
        let second = round(first).await;
        println!("  {} cycles, {AT_ONCE} at a time, in {:.1?}", first + second, begun.elapsed());
        leaks::exact(&world.config, &world.engine).await;
        assert_constant("self", before, 8192).await;
    });
}

const AT_ONCE: usize = 20;

fn a_fork_bomb_hurts_only_itself() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let neighbour = world.run(&sandbox, "neighbour", "exec sleep 1000").await;
        let mut config = shell("bomb", "bomb() { bomb | bomb & }; bomb; exec sleep 1000");
        config.resources = Resources { pids_limit: Some(100), ..Resources::default() };
        let bomb = world.run_with(&sandbox, config).await;
        let processes = async || {
            let stats = world.engine.container_stats(Some("a")).await.unwrap();
            stats.into_iter().find(|stats| stats.id == bomb).map_or(0, |stats| stats.usage.processes)
        };
        let started = Instant::now();
        while processes().await < 95 {
            assert!(started.elapsed() < Duration::from_secs(20), "it never reaches its limit");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Beside it everything works as ever.
        assert_eq!(world.engine.exec_sync(&neighbour, vec!["true".into()], None).await.unwrap().exit_code, 0);
        assert_eq!(world.outcome(&sandbox, "fresh", "echo fine").await, (0, "fine\n".into()));
        assert!(processes().await <= 100);
        assert_eq!(world.container(&bomb).await.state, ContainerState::Running);
        // And one stop ends all of it.
        world.engine.stop_container(&bomb, Duration::ZERO).await.unwrap();
        assert_eq!(world.container(&bomb).await.exit_code, 137);
        world.engine.remove_container(&bomb).await.unwrap();
        leaks::exact(&world.config, &world.engine).await;
    });
}
