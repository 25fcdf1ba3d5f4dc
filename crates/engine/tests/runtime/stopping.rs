//! Signals: who gets them, what they do, and how that is told.

use std::time::{Duration, Instant};

use cri::{ContainerConfig, NamespaceMode, Runtime, SandboxId};

use crate::harness::Case;
use crate::leaks;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("tc_052_only_the_main_process_is_signalled", tc_052_only_the_main_process_is_signalled),
    ("tc_054_nobody_of_a_pod_survives_its_grace", tc_054_nobody_of_a_pod_survives_its_grace),
    ("tc_068_process_1_without_a_handler_is_not_helped", tc_068_process_1_without_a_handler_is_not_helped),
    ("tc_069_a_signal_shows_as_its_number_and_128", tc_069_a_signal_shows_as_its_number_and_128),
    ("tc_079_only_the_first_signal_can_be_chosen", tc_079_only_the_first_signal_can_be_chosen),
];

/// Its containers have no PID namespace of their own that would end with them.
async fn shared(world: &World) -> SandboxId {
    let mut config = world.sandbox_config("a");
    config.pid = NamespaceMode::Pod;
    world.engine.run_sandbox(config).await.unwrap()
}

fn tc_052_only_the_main_process_is_signalled() {
    check(|world| async move {
        let sandbox = shared(&world).await;
        let child = "(trap 'echo child' TERM; echo child is up; while true; do sleep 0.01; done) &";
        let script = format!("{child} trap 'echo main; sleep 0.3; exit 4' TERM; while true; do sleep 0.01; done");
        let id = world.run(&sandbox, "c", &script).await;
        world.says(&id, "child is up").await;
        world.engine.stop_container(&id, Duration::from_secs(30)).await.unwrap();
        assert_eq!(world.container(&id).await.exit_code, 4);
        assert_eq!(world.output(&id).await, "child is up\nmain\n");
    });
}

fn tc_054_nobody_of_a_pod_survives_its_grace() {
    check(|world| async move {
        let sandbox = shared(&world).await;
        // In sessions of their own, deaf to whatever is sent to the main process.
        let linger = "while true; do sleep 0.01; done";
        let script =
            format!("trap '' TERM; setsid sh -c \"{linger}\" & (setsid sh -c \"{linger}\" &) ; echo ready; {linger}");
        let mut ids = Vec::new();
        for name in ["one", "two"] {
            let id = world.run(&sandbox, name, &script).await;
            world.says(&id, "ready").await;
            ids.push(id);
        }
        let grace = Duration::from_millis(300);
        let stops = ids.iter().map(|id| world.engine.stop_container(id, grace));
        for stopped in futures::future::join_all(stops).await {
            stopped.unwrap();
        }
        // Nobody is left at this very moment, not only a little later.
        let (left, missing) = leaks::differences(&world.config, &world.engine).await;
        assert_eq!((left, missing), (Vec::<String>::new(), Vec::<String>::new()));
        for id in &ids {
            assert_eq!(world.container(id).await.exit_code, 137);
        }
    });
}

fn tc_068_process_1_without_a_handler_is_not_helped() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run(&sandbox, "c", "echo ready; exec sleep 1000").await;
        world.says(&id, "ready").await;
        let (begun, grace) = (Instant::now(), Duration::from_millis(500));
        world.engine.stop_container(&id, grace).await.unwrap();
        assert!(begun.elapsed() >= grace, "TERM alone ended it after {:?}", begun.elapsed());
        assert_eq!(world.container(&id).await.exit_code, 137);
    });
}

fn tc_069_a_signal_shows_as_its_number_and_128() {
    check(|world| async move {
        let sandbox = shared(&world).await;
        let told = async |name: &str, script: &str, grace: Duration| {
            let id = world.run(&sandbox, name, script).await;
            world.says(&id, "ready").await;
            world.engine.stop_container(&id, grace).await.unwrap();
            let container = world.container(&id).await;
            (container.exit_code, container.reason)
        };
        let long = Duration::from_secs(30);
        assert_eq!(told("term", "echo ready; exec sleep 1000", long).await, (143, "Error".into()));
        assert_eq!(told("kill", "echo ready; exec sleep 1000", Duration::ZERO).await, (137, "Error".into()));
        let polite = "trap 'exit 0' TERM; echo ready; while true; do sleep 0.01; done";
        assert_eq!(told("polite", polite, long).await, (0, "Completed".into()));
    });
}

fn tc_079_only_the_first_signal_can_be_chosen() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let script = "trap 'echo usr1' USR1; trap 'echo term' TERM; echo ready; while true; do sleep 0.01; done";
        let config = ContainerConfig { stop_signal: Some("SIGUSR1".into()), ..shell("c", script) };
        let id = world.run_with(&sandbox, config).await;
        world.says(&id, "ready").await;
        world.engine.stop_container(&id, Duration::from_millis(300)).await.unwrap();
        assert_eq!(world.container(&id).await.exit_code, 137);
        assert_eq!(world.output(&id).await, "ready\nusr1\n");
    });
}
