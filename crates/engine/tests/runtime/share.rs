//! Containers that share the pod's PID namespace.

use std::time::Duration;

use cri::{ContainerConfig, ContainerState, NamespaceMode, Runtime, SandboxId};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("containers_of_a_shared_namespace_see_each_other", containers_of_a_shared_namespace_see_each_other),
    ("a_container_of_a_shared_namespace_ends_alone", a_container_of_a_shared_namespace_ends_alone),
    ("lc_363_a_container_may_live_among_anothers_processes", lc_363_a_container_may_live_among_anothers_processes),
    ("process_1_of_a_shared_namespace_owns_nothing", process_1_of_a_shared_namespace_owns_nothing),
];

async fn shared(world: &World) -> SandboxId {
    let mut config = world.sandbox_config("a");
    config.pid = NamespaceMode::Pod;
    world.engine.run_sandbox(config).await.unwrap()
}

fn containers_of_a_shared_namespace_see_each_other() {
    check(|world| async move {
        let sandbox = shared(&world).await;
        let one = world.run(&sandbox, "one", "echo $$; exec sleep 3333").await;
        let two = world.run(&sandbox, "two", "exec sleep 4444").await;
        world.until_true(&two, "ps -o args | grep -q 'sleep 333[3]'").await;
        world.until_true(&one, "ps -o args | grep -q 'sleep 444[4]'").await;
        assert_ne!(world.output(&one).await, "1\n", "process 1 is the pod's");
        // Nobody stays behind dead: an orphan's end is taken by process 1.
        world.exec(&one, "(sleep 0.01 & ) ; (true & )").await;
        world.until_true(&one, "! grep -q '^State:.Z' /proc/[0-9]*/status").await;
        // Each has its own files, and a pod that does not share sees nothing of it.
        assert_eq!(world.exec(&one, "touch /tmp/mine").await.0, 0);
        assert_ne!(world.exec(&two, "ls /tmp/mine").await.0, 0);
        let other = world.sandbox("b").await;
        let (_, processes) = world.outcome(&other, "c", "ps -o args").await;
        assert!(!processes.contains("sleep"), "{processes}");
        // The next engine goes on with it.
        let world = world.reopen().await;
        let three = world.run(&sandbox, "three", "exec sleep 5555").await;
        world.until_true(&three, "ps -o args | grep -q 'sleep 333[3]'").await;
    });
}

fn a_container_of_a_shared_namespace_ends_alone() {
    check(|world| async move {
        let sandbox = shared(&world).await;
        let script = "setsid sleep 3333 & trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done";
        let one = world.run(&sandbox, "one", script).await;
        let two = world.run(&sandbox, "two", "exec sleep 4444").await;
        world.says(&one, "ready").await;
        world.until_true(&two, "ps -o args | grep -q 'sleep 333[3]'").await;
        world.engine.stop_container(&one, Duration::from_secs(30)).await.unwrap();
        assert_eq!(world.container(&one).await.exit_code, 3);
        // All of it is gone, the other is not.
        assert_eq!(world.exec(&two, "ps -o args | grep 'sleep 333[3]'").await.1, "");
        assert_eq!(world.container(&two).await.state, ContainerState::Running);
        let again = world.run(&sandbox, "again", "exit 0").await;
        assert_eq!(world.exit(&again).await.exit_code, 0);
    });
}

fn lc_363_a_container_may_live_among_anothers_processes() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let target = world.run(&sandbox, "target", "exec sleep 3333").await;
        let other = world.run(&sandbox, "other", "exec sleep 4444").await;
        let mut config = shell("look", "exec sleep 5555");
        config.security.pid_of = Some(target.clone());
        let look = world.engine.create_container(&sandbox, config.clone()).await.unwrap();
        world.engine.start_container(&look).await.unwrap();
        // It sees the target, and only that; the others see nothing of it.
        world.until_true(&look, "ps -o args | grep -q 'sleep 333[3]'").await;
        assert_eq!(world.exec(&look, "ps -o args | grep 'sleep 444[4]'").await.1, "");
        assert_eq!(world.exec(&other, "ps -o args | grep 'sleep 555[5]'").await.1, "");
        // It ends alone, and with the target.
        world.engine.stop_container(&look, Duration::ZERO).await.unwrap();
        assert_eq!(world.container(&target).await.state, ContainerState::Running);
        let again = ContainerConfig { name: "again".into(), log_path: "again/0.log".into(), ..config.clone() };
        let again = world.engine.create_container(&sandbox, again).await.unwrap();
        world.engine.start_container(&again).await.unwrap();
        world.engine.stop_container(&target, Duration::ZERO).await.unwrap();
        assert_eq!(world.exit(&again).await.exit_code, 137);
        // There is nobody to live with any more.
        let late = ContainerConfig { name: "late".into(), log_path: "late/0.log".into(), ..config };
        let refused = world.engine.create_container(&sandbox, late).await.unwrap_err();
        assert!(refused.to_string().contains("target container is not running"), "{refused}");
    });
}

fn process_1_of_a_shared_namespace_owns_nothing() {
    check(|world| async move {
        let sandbox = shared(&world).await;
        let plain = world.run(&sandbox, "plain", "exec sleep 1000").await;
        assert_ne!(world.exec(&plain, "ls /proc/1/root/").await.0, 0);
        assert_ne!(world.exec(&plain, "cat /proc/1/exe > /dev/null").await.0, 0);
        world.exec(&plain, "kill -9 1; kill -TERM 1").await;
        let mut config = shell("tracer", "exec sleep 1000");
        config.security.capabilities_add = vec!["SYS_PTRACE".into()];
        let tracer = world.run_with(&sandbox, config).await;
        let (code, seen, problem) = world.exec(&tracer, "ls -a /proc/1/root/ | wc -l; ls /proc/1/fd | wc -l").await;
        assert_eq!((code, seen.as_str()), (0, "2\n3\n"), "{problem}");
        let (_, status, _) = world.exec(&tracer, "cat /proc/1/status").await;
        for line in ["CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2", "NoNewPrivs:\t1"] {
            assert!(status.lines().any(|said| said == line), "{line:?} is not in {status}");
        }
        assert_ne!(world.exec(&tracer, "echo x > /proc/1/exe").await.0, 0);
    });
}
