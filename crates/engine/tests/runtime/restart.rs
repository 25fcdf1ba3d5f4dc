//! Engines that die, shims that die, and what the next engine makes of it.

use std::fs;
use std::time::Duration;

use cri::{ContainerState, Runtime, SandboxId, SandboxState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::Case;
use crate::world::{World, archive_of_files, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("a_new_engine_finds_everything_again", a_new_engine_finds_everything_again),
    ("exits_without_an_engine_are_learned_by_the_next", exits_without_an_engine_are_learned_by_the_next),
    ("tc_066_a_deadline_holds_without_an_engine", tc_066_a_deadline_holds_without_an_engine),
    ("a_dead_shim_makes_its_containers_unknown", a_dead_shim_makes_its_containers_unknown),
    ("only_a_death_that_nobody_wanted_is_complained_about", only_a_death_that_nobody_wanted_is_complained_about),
    ("a_shim_that_died_between_engines_is_noticed", a_shim_that_died_between_engines_is_noticed),
    ("a_slow_shim_is_not_a_dead_one", a_slow_shim_is_not_a_dead_one),
    ("stuck_monitors_that_nobody_knows_are_ended", stuck_monitors_that_nobody_knows_are_ended),
    ("layers_are_collected_while_a_container_is_made", layers_are_collected_while_a_container_is_made),
    ("layers_are_collected_while_an_image_volume_is_copied", layers_are_collected_while_an_image_volume_is_copied),
    ("what_was_never_finished_is_cleared_away", what_was_never_finished_is_cleared_away),
    (
        "a_damaged_record_costs_what_it_is_about_and_nothing_else",
        a_damaged_record_costs_what_it_is_about_and_nothing_else,
    ),
    ("a_container_whose_record_would_be_too_long_is_refused", a_container_whose_record_would_be_too_long_is_refused),
    ("what_cannot_be_opened_is_cleared_away_all_the_same", what_cannot_be_opened_is_cleared_away_all_the_same),
    ("a_shim_ignores_polite_signals", a_shim_ignores_polite_signals),
    ("state_that_was_opened_is_closed_at_the_next_start", state_that_was_opened_is_closed_at_the_next_start),
];

pub(crate) fn shim_pid(world: &World, sandbox: &SandboxId) -> Pid {
    let record = fs::read_to_string(world.config.root.join("sandboxes").join(&sandbox.0).join("sandbox.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    Pid::from_raw(record["shim_pid"].as_i64().unwrap().try_into().unwrap())
}

/// Memory of a sandbox's shim that it shares with nobody.
pub(crate) fn shim_private_kilobytes(world: &World, sandbox: &SandboxId) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", shim_pid(world, sandbox))).unwrap();
    let private =
        rollup.lines().filter(|line| line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:"));
    private.map(|line| line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()).sum()
}

/// CVE-2021-41103, CVE-2024-25621.
fn state_that_was_opened_is_closed_at_the_next_start() {
    use std::os::unix::fs::PermissionsExt;
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        world.run(&sandbox, "c", "exec sleep 1000").await;
        let (root, run) = (world.config.root.clone(), world.config.run_dir.clone());
        let doors = [root.clone(), run, root.join("images"), root.join("sandboxes")];
        let modes = || doors.clone().map(|dir| fs::metadata(&dir).unwrap().permissions().mode() & 0o7777);
        assert_eq!(modes(), [0o700; 4]);
        for dir in &doors {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let world = world.reopen().await;
        assert_eq!(modes(), [0o700; 4]);
        drop(world);
    });
}

fn a_new_engine_finds_everything_again() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let running =
            world.run(&sandbox, "running", "echo up; trap 'exit 5' TERM; while true; do sleep 0.01; done").await;
        let created = world.create(&sandbox, shell("created", "echo later")).await;
        let over = world.run(&sandbox, "over", "exit 4").await;
        world.exit(&over).await;
        world.says(&running, "up").await;
        let (sandboxes, mut containers) =
            (world.engine.sandboxes(None).await.unwrap(), world.engine.containers(None).await.unwrap());
        let world = world.reopen().await;
        assert_eq!(world.engine.sandboxes(None).await.unwrap(), sandboxes);
        let mut found = world.engine.containers(None).await.unwrap();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        containers.sort_by(|a, b| a.id.cmp(&b.id));
        assert_eq!(found, containers);
        // And it can go on with them.
        world.engine.start_container(&created).await.unwrap();
        assert_eq!(world.exit(&created).await.exit_code, 0);
        world.engine.stop_container(&running, Duration::from_secs(30)).await.unwrap();
        assert_eq!(world.container(&running).await.exit_code, 5);
        assert_eq!(world.outcome(&sandbox, "new", "echo new").await, (0, "new\n".into()));
    });
}

fn exits_without_an_engine_are_learned_by_the_next() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let flag = world.dir.path().join("flag");
        fs::create_dir(&flag).unwrap();
        let mut config = shell("c", "echo up; while [ ! -e /flag/go ]; do sleep 0.01; done; exit 9");
        config.mounts = vec![cri::Mount::new(&flag, "/flag", true)];
        let id = world.run_with(&sandbox, config).await;
        world.says(&id, "up").await;
        let record =
            world.config.root.join("sandboxes").join(&sandbox.0).join("containers").join(&id.0).join("exit.json");
        let World { dir, config, engine } = world;
        drop(engine);
        fs::write(flag.join("go"), "").unwrap();
        let started = std::time::Instant::now();
        while !record.exists() {
            assert!(started.elapsed() < Duration::from_secs(10), "the exit was never recorded");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let engine = crate::world::open(&config).await;
        let world = World { dir, config, engine };
        let container = world.container(&id).await;
        assert_eq!((container.state, container.exit_code), (ContainerState::Exited, 9));
    });
}

fn tc_066_a_deadline_holds_without_an_engine() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run(&sandbox, "c", "trap 'echo asked' TERM; echo up; while true; do sleep 0.01; done").await;
        world.says(&id, "up").await;
        let engine = world.engine.clone();
        let stop = tokio::spawn({
            let id = id.clone();
            async move { engine.stop_container(&id, Duration::from_millis(500)).await }
        });
        world.says(&id, "asked").await;
        stop.abort();
        let _ = stop.await;
        let world = world.reopen().await;
        let container = world.exit(&id).await;
        assert_eq!((container.state, container.exit_code), (ContainerState::Exited, 137));
    });
}

fn a_dead_shim_makes_its_containers_unknown() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let running = world.run(&sandbox, "running", "exec sleep 1000").await;
        let over = world.run(&sandbox, "over", "exit 4").await;
        world.exit(&over).await;
        kill(shim_pid(&world, &sandbox), Signal::SIGKILL).unwrap();
        let container = world.exit(&running).await;
        assert_eq!(container.state, ContainerState::Unknown);
        assert_eq!((container.exit_code, container.reason.as_str()), (255, "Unknown"));
        let container = world.container(&over).await;
        assert_eq!((container.state, container.exit_code), (ContainerState::Exited, 4));
        world.engine.stop_container(&running, Duration::from_secs(30)).await.unwrap();
        world.engine.stop_sandbox(&sandbox).await.unwrap();
        assert_eq!(world.engine.sandboxes(None).await.unwrap()[0].state, SandboxState::NotReady);
        // The pod's next sandbox lives in the same cgroup.
        let mut next = world.sandbox_config("a");
        next.meta.attempt = 1;
        let next = world.engine.run_sandbox(next).await.unwrap();
        world.engine.remove_sandbox(&sandbox).await.unwrap();
        assert_eq!(world.outcome(&next, "again", "echo again").await, (0, "again\n".into()));
    });
}

fn a_slow_shim_is_not_a_dead_one() {
    check(|world| async move {
        let (slow, other) = (world.sandbox("a").await, world.sandbox("b").await);
        let id = world.run(&slow, "c", "exec sleep 1000").await;
        let monitor = shim_pid(&world, &slow);
        kill(monitor, Signal::SIGSTOP).unwrap();
        let world = world.reopen().await;
        assert_eq!(world.outcome(&other, "new", "echo new").await, (0, "new\n".into()), "nobody waits for it");
        assert_eq!(world.container(&id).await.state, ContainerState::Running, "nobody has said otherwise");
        kill(monitor, Signal::SIGCONT).unwrap();
        world.engine.stop_container(&id, Duration::ZERO).await.unwrap();
        let container = world.container(&id).await;
        assert_eq!((container.state, container.exit_code), (ContainerState::Exited, 137));
    });
}

fn stuck_monitors_that_nobody_knows_are_ended() {
    check(|world| async move {
        let (one, two) = (world.sandbox("a").await, world.sandbox("b").await);
        let id = world.run(&one, "c", "exec sleep 1000").await;
        let monitors = [shim_pid(&world, &one), shim_pid(&world, &two)];
        for (sandbox, monitor) in [&one, &two].into_iter().zip(monitors) {
            kill(monitor, Signal::SIGSTOP).unwrap();
            let record = world.config.root.join("sandboxes").join(&sandbox.0).join("sandbox.json");
            fs::write(record, "damaged").unwrap();
        }
        // Asked one after the other, each would be waited for.
        let world = tokio::time::timeout(Duration::from_secs(60), world.reopen()).await.expect("nobody waits for them");
        assert_eq!(world.engine.sandboxes(None).await.unwrap(), []);
        assert!(world.engine.containers(None).await.unwrap().iter().all(|known| known.id != id));
        for monitor in monitors {
            let is_up = || {
                let state = fs::read_to_string(format!("/proc/{monitor}/stat")).unwrap_or_default();
                state.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
            };
            while is_up() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        let left = fs::read_dir(world.config.root.join("sandboxes")).unwrap().count();
        assert_eq!(left, 0);
        crate::complaints::take();
    });
}

fn layers_are_collected_while_a_container_is_made() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let monitor = shim_pid(&world, &sandbox);
        kill(monitor, Signal::SIGSTOP).unwrap();
        let (engine, of) = (world.engine.clone(), sandbox.clone());
        let making = tokio::spawn(async move { engine.create_container(&of, shell("c", "echo made")).await });
        let root = world.config.root.clone();
        let started = std::time::Instant::now();
        while engine::layers_in_use(&root).unwrap().is_empty() {
            assert!(started.elapsed() < Duration::from_secs(30), "it was never recorded");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let images = world.engine.images().clone();
        let in_use = move || Ok(engine::layers_in_use(&root)?.into_iter().flatten().collect());
        let swept = tokio::task::spawn_blocking(move || images.sweep(in_use));
        let swept = tokio::time::timeout(Duration::from_secs(30), swept).await.expect("nobody waits for the monitor");
        assert_eq!(swept.unwrap().unwrap(), 0, "what it stands on stays");
        kill(monitor, Signal::SIGCONT).unwrap();
        let id = making.await.unwrap().unwrap();
        world.engine.start_container(&id).await.unwrap();
        world.says(&id, "made").await;
    });
}

fn layers_are_collected_while_an_image_volume_is_copied() {
    check(|world| async move {
        let two = archive_of_files("docker.io/library/two:test", &[("file", "old\n"), ("file", "new\n")]);
        let image = world.engine.images().import(two.as_slice(), None).unwrap().remove(0);
        let sandbox = world.sandbox("a").await;
        // Somebody else is at it, and takes long.
        let place = world.config.root.join("images/merging").join(image.id.trim_start_matches("sha256:"));
        std::fs::create_dir(&place).unwrap();
        let somebody = std::fs::File::open(&place).unwrap();
        somebody.lock().unwrap();
        let mut config = shell("c", "cat /two/file");
        config.mounts = vec![cri::Mount { image: Some("two:test".into()), ..cri::Mount::new("", "/two", false) }];
        let (engine, of) = (world.engine.clone(), sandbox.clone());
        let making = tokio::spawn(async move { engine.create_container(&of, config).await });
        let root = world.config.root.clone();
        let started = std::time::Instant::now();
        while engine::layers_in_use(&root).unwrap().is_empty() {
            assert!(started.elapsed() < Duration::from_secs(30), "it was never recorded");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let removed = tokio::time::timeout(Duration::from_secs(30), world.engine.remove_image("two:test")).await;
        removed.expect("nobody waits for the copy").unwrap();
        assert!(!making.is_finished() && place.exists());
        std::fs::remove_dir(&place).unwrap();
        drop(somebody);
        let id = making.await.unwrap().expect("what it is made of stays");
        world.engine.start_container(&id).await.unwrap();
        world.says(&id, "new").await;
        world.engine.remove_container(&id).await.unwrap();
        // Nobody needs them any more.
        world.engine.remove_image("two:test").await.unwrap();
    });
}

fn only_a_death_that_nobody_wanted_is_complained_about() {
    check(|world| async move {
        crate::complaints::take();
        let mut sandboxes = Vec::new();
        for number in 0..6 {
            sandboxes.push(world.sandbox(&format!("s{number}")).await);
        }
        let (stopped, removed) = sandboxes.split_at(3);
        futures::future::join_all(stopped.iter().map(|id| world.engine.stop_sandbox(id))).await;
        futures::future::join_all(removed.iter().map(|id| world.engine.remove_sandbox(id))).await;
        world.sandbox("down").await;
        world.engine.destroy().await.unwrap();
        assert_eq!(crate::complaints::take(), Vec::<String>::new());
        let sandbox = world.sandbox("lost").await;
        let id = world.run(&sandbox, "c", "exec sleep 1000").await;
        kill(shim_pid(&world, &sandbox), Signal::SIGKILL).unwrap();
        world.exit(&id).await;
        let complaints = crate::complaints::take();
        assert!(complaints.iter().any(|line| line.contains("monitor process has died")), "{complaints:?}");
    });
}

fn a_shim_that_died_between_engines_is_noticed() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run(&sandbox, "c", "exec sleep 1000").await;
        let pid = shim_pid(&world, &sandbox);
        let World { dir, config, engine } = world;
        drop(engine);
        kill(pid, Signal::SIGKILL).unwrap();
        let engine = crate::world::open(&config).await;
        let world = World { dir, config, engine };
        assert_eq!(world.container(&id).await.state, ContainerState::Unknown);
        assert_eq!(world.engine.sandboxes(None).await.unwrap()[0].state, SandboxState::NotReady);
    });
}

fn what_was_never_finished_is_cleared_away() {
    check(|world| async move {
        let whole = world.sandbox("whole").await;
        let torn = world.sandbox("torn").await;
        let lost = world.run(&whole, "lost", "exec sleep 1000").await;
        let sandboxes = world.config.root.join("sandboxes");
        // As if the engine had died before it wrote these records.
        fs::remove_file(sandboxes.join(&torn.0).join("sandbox.json")).unwrap();
        fs::remove_file(sandboxes.join(&whole.0).join("containers").join(&lost.0).join("container.json")).unwrap();
        let world = world.reopen().await;
        let left: Vec<_> = world.engine.sandboxes(None).await.unwrap().into_iter().map(|sandbox| sandbox.id).collect();
        assert_eq!(left, std::slice::from_ref(&whole));
        assert_eq!(world.engine.containers(None).await.unwrap(), []);
        assert!(!sandboxes.join(&torn.0).exists());
        assert!(!sandboxes.join(&whole.0).join("containers").join(&lost.0).exists());
        assert_eq!(world.outcome(&whole, "c", "echo fine").await, (0, "fine\n".into()));
    });
}

fn a_damaged_record_costs_what_it_is_about_and_nothing_else() {
    check(|world| async move {
        let whole = world.sandbox("whole").await;
        let torn = world.sandbox("torn").await;
        world.run(&torn, "beside", "exec sleep 1000").await;
        let lost = world.run(&whole, "lost", "exec sleep 1000").await;
        let unsure = world.run(&whole, "unsure", "exec sleep 1000").await;
        let kept = world.run(&whole, "kept", "exec sleep 1000").await;
        let sandboxes = world.config.root.join("sandboxes");
        let of = |id: &cri::ContainerId| sandboxes.join(&whole.0).join("containers").join(&id.0);
        fs::write(sandboxes.join(&torn.0).join("sandbox.json"), "{\"id\"").unwrap();
        fs::File::create(of(&lost).join("container.json")).unwrap().set_len(9 << 20).unwrap();
        fs::write(of(&unsure).join("start.json"), "").unwrap();
        fs::write(world.config.root.join("network/addresses"), "? what\n").unwrap();
        let world = world.reopen().await;
        let left: Vec<_> = world.engine.sandboxes(None).await.unwrap().into_iter().map(|sandbox| sandbox.id).collect();
        assert_eq!(left, std::slice::from_ref(&whole));
        let containers = world.engine.containers(None).await.unwrap();
        let mut names: Vec<_> = containers.iter().map(|it| (it.id.clone(), it.state)).collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        let mut expected = vec![(unsure, ContainerState::Running), (kept, ContainerState::Running)];
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(names, expected);
        assert!(!sandboxes.join(&torn.0).exists() && !of(&lost).exists());
        // The address that is held is not given away.
        let held = world.engine.sandboxes(None).await.unwrap()[0].ips.clone();
        let other = world.sandbox("other").await;
        let sandboxes = world.engine.sandboxes(None).await.unwrap();
        assert_ne!(sandboxes.iter().find(|it| it.id == other).unwrap().ips, held);
        assert_eq!(world.outcome(&whole, "c", "echo fine").await, (0, "fine\n".into()));
    });
}

fn a_container_whose_record_would_be_too_long_is_refused() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut long = shell("long", "true");
        // Six bytes for each of these on disk.
        long.annotations.insert("a".into(), "\u{1}".repeat(2 << 20));
        let error = world.engine.create_container(&sandbox, long).await.unwrap_err().to_string();
        assert!(error.contains("container.json would take"), "{error}");
        let world = world.reopen().await;
        assert_eq!(world.engine.containers(None).await.unwrap(), []);
        assert_eq!(world.outcome(&sandbox, "c", "echo fine").await, (0, "fine\n".into()));
    });
}

fn what_cannot_be_opened_is_cleared_away_all_the_same() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        world.run(&sandbox, "c", "exec sleep 1000").await;
        let away = world.sandbox("b").await;
        world.run(&away, "c", "exec sleep 1000").await;
        let World { dir: _dir, config, engine } = world;
        drop(engine);
        let pids = [&sandbox, &away].map(|id| {
            let record = fs::read_to_string(config.root.join("sandboxes").join(&id.0).join("sandbox.json")).unwrap();
            serde_json::from_str::<serde_json::Value>(&record).unwrap()["shim_pid"].as_i64().unwrap()
        });
        // Nothing is left to go by.
        fs::remove_dir_all(config.run_dir.join("shims").join(&away.0)).unwrap();
        fs::remove_dir_all(config.root.join("sandboxes")).unwrap();
        fs::write(config.root.join("sandboxes"), "not a directory").unwrap();
        fs::write(config.root.join("network/addresses"), "? what\n").unwrap();
        engine::clear_remains(&config).await.unwrap();
        for pid in pids {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        }
        crate::leaks::none(&config);
    });
}

fn a_shim_ignores_polite_signals() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE] {
            kill(shim_pid(&world, &sandbox), signal).unwrap();
        }
        assert_eq!(world.outcome(&sandbox, "c", "echo fine").await, (0, "fine\n".into()));
    });
}
