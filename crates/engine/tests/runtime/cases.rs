//! The life of sandboxes and containers.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cri::{ContainerConfig, ContainerState, CriError, Mount, NamespaceMode, Resources, Runtime, SandboxState};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("a_runtime_class_may_name_the_engine_and_nothing_else", a_runtime_class_may_name_the_engine_and_nothing_else),
    ("lc_063_exits_have_the_reasons_of_the_table", lc_063_exits_have_the_reasons_of_the_table),
    ("a_created_container_waits_for_its_start", a_created_container_waits_for_its_start),
    ("lc_063_a_missing_program_is_a_start_error", lc_063_a_missing_program_is_a_start_error),
    ("lc_063_a_container_out_of_memory_is_oom_killed", lc_063_a_container_out_of_memory_is_oom_killed),
    ("lc_063_a_container_that_outlives_an_oom_kill_was_not_killed", lc_063_a_container_that_outlives_an_oom_kill),
    ("lc_088_output_is_logged_in_the_cri_format", lc_088_output_is_logged_in_the_cri_format),
    ("environment_arguments_and_directory_are_as_asked", environment_arguments_and_directory_are_as_asked),
    ("containers_of_a_pod_share_network_and_hostname", containers_of_a_pod_share_network_and_hostname),
    ("mounts_and_etc_files_are_there", mounts_and_etc_files_are_there),
    ("tc_066_a_stop_ends_when_the_program_obeys", tc_066_a_stop_ends_when_the_program_obeys),
    ("tc_066_a_stop_kills_everything_at_the_deadline", tc_066_a_stop_kills_everything_at_the_deadline),
    ("tc_066_a_second_stop_brings_the_deadline_forward", tc_066_a_second_stop_brings_the_deadline_forward),
    ("tc_053_stops_and_removals_can_be_repeated", tc_053_stops_and_removals_can_be_repeated),
    ("stopping_a_sandbox_ends_its_containers", stopping_a_sandbox_ends_its_containers),
    ("what_fails_to_be_made_leaves_nothing", what_fails_to_be_made_leaves_nothing),
    ("changes_are_announced_and_lists_are_newest_first", changes_are_announced_and_lists_are_newest_first),
    ("the_host_network_is_shared_on_request", the_host_network_is_shared_on_request),
];

fn a_runtime_class_may_name_the_engine_and_nothing_else() {
    check(|world| async move {
        let with = |handler: &str| {
            let mut config = world.sandbox_config("a");
            config.runtime_handler = handler.into();
            config
        };
        let refused = world.engine.run_sandbox(with("kata")).await.unwrap_err().to_string();
        assert_eq!(refused, "no runtime for \"kata\" is configured");
        let sandbox = world.engine.run_sandbox(with("podium")).await.unwrap();
        let (code, output) = world.outcome(&sandbox, "c", "echo runs").await;
        assert_eq!((code, output.contains("runs")), (0, true), "{output}");
    });
}

fn lc_063_exits_have_the_reasons_of_the_table() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let expected = [("exit 0", 0, "Completed"), ("exit 3", 3, "Error"), ("kill -9 $$; sleep 9", 137, "Error")];
        for (index, (script, code, reason)) in expected.into_iter().enumerate() {
            // Process 1 cannot kill itself; a child can be seen to die.
            let script = if code == 137 { "sh -c 'kill -9 $$'; exit $?" } else { script };
            let id = world.run(&sandbox, &format!("c{index}"), script).await;
            let container = world.exit(&id).await;
            assert_eq!((container.exit_code, container.reason.as_str()), (code, reason));
            assert!(container.started_at.unwrap() <= container.finished_at.unwrap());
            assert!(container.created_at <= container.started_at.unwrap());
        }
    });
}

fn a_created_container_waits_for_its_start() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.create(&sandbox, shell("c", "echo ran")).await;
        assert_eq!(world.container(&id).await.state, ContainerState::Created);
        assert_eq!(world.output(&id).await, "");
        world.engine.start_container(&id).await.unwrap();
        assert_eq!(world.exit(&id).await.exit_code, 0);
        assert_eq!(world.output(&id).await, "ran\n");
        let again = world.engine.start_container(&id).await;
        assert!(matches!(again, Err(CriError::Invalid(_))), "{again:?}");
    });
}

fn lc_063_a_missing_program_is_a_start_error() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let expected = [
            ("nope", "unable to start container process: exec: \"nope\": executable file not found in $PATH: unknown"),
            (
                "/no/pe",
                "unable to start container process: exec: \"/no/pe\": stat /no/pe: no such file or directory: unknown",
            ),
            ("/bin/plain", "unable to start container process: exec: \"/bin/plain\": permission denied: unknown"),
        ];
        for (index, (program, message)) in expected.into_iter().enumerate() {
            let config = ContainerConfig { command: vec![program.into()], ..shell(&format!("c{index}"), "") };
            let id = world.create(&sandbox, config).await;
            assert_eq!(world.engine.start_container(&id).await, Err(CriError::Failed(message.into())));
            let container = world.container(&id).await;
            assert_eq!(container.state, ContainerState::Exited);
            assert_eq!((container.exit_code, container.reason.as_str()), (128, "StartError"));
            assert_eq!(container.message, message);
        }
    });
}

fn lc_063_a_container_out_of_memory_is_oom_killed() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let resources = Resources { memory_limit_bytes: Some(16 << 20), oom_score_adj: 500, ..Resources::default() };
        let script = "x=aaaaaaaaaaaaaaaa; while true; do x=$x$x; done";
        let id = world.run_with(&sandbox, ContainerConfig { resources, ..shell("c", script) }).await;
        let container = world.exit(&id).await;
        assert_eq!((container.exit_code, container.reason.as_str()), (137, "OOMKilled"));
    });
}

/// Version 2 kills all of a container; where a child is killed alone, it is the
/// child's end, and a count.
fn lc_063_a_container_that_outlives_an_oom_kill() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let resources = Resources { memory_limit_bytes: Some(16 << 20), oom_score_adj: 500, ..Resources::default() };
        let eat = "sh -c 'x=aaaaaaaaaaaaaaaa; while true; do x=$x$x; done'";
        let stopped = format!("{eat}; echo $?; exec sleep 1000");
        let stopped = ContainerConfig { resources: resources.clone(), ..shell("stopped", &stopped) };
        let exits = ContainerConfig { resources, ..shell("exits", &format!("{eat}; echo $?; exit 137")) };
        let stopped = world.run_with(&sandbox, stopped).await;
        if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            assert_eq!(world.exit(&stopped).await.reason, "OOMKilled");
            return;
        }
        world.says(&stopped, "137").await;
        let stats = world.engine.container_stats(Some("a")).await.unwrap();
        assert_eq!(stats[0].usage.oom_kills, 1);
        // What kills it later is not the lack of memory.
        world.engine.stop_container(&stopped, Duration::ZERO).await.unwrap();
        let stopped = world.container(&stopped).await;
        assert_eq!((stopped.exit_code, stopped.reason.as_str()), (137, "Error"));
        let exits = world.run_with(&sandbox, exits).await;
        let exits = world.exit(&exits).await;
        assert_eq!((exits.exit_code, exits.reason.as_str()), (137, "Error"));
    });
}

fn lc_088_output_is_logged_in_the_cri_format() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run(&sandbox, "c", "echo out; echo err >&2; printf tail").await;
        let container = world.exit(&id).await;
        let log = fs::read_to_string(&container.log_path).unwrap();
        let mut lines: Vec<&str> = log.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["stderr F err", "stdout F out", "stdout P tail"]);
        for line in log.lines() {
            let time: jiff::Timestamp = line.split_once(' ').unwrap().0.parse().unwrap();
            assert!(time >= container.started_at.unwrap() && time <= jiff::Timestamp::now(), "{line}");
        }
    });
}

fn environment_arguments_and_directory_are_as_asked() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut config = shell("c", "echo $0 $1; echo $A $FROM_IMAGE $HOSTNAME $HOME; pwd; id -u; id -g; id -G");
        config.args = vec!["zero".into(), "one".into()];
        config.envs = vec![("A".into(), "1".into()), ("A".into(), "2".into())];
        config.working_dir = "/made/for/me".into();
        config.security.run_as_user = Some(1000);
        config.security.run_as_group = Some(2000);
        config.security.supplemental_groups = vec![3000];
        let id = world.run_with(&sandbox, config).await;
        assert_eq!(world.exit(&id).await.exit_code, 0);
        let output = world.output(&id).await;
        assert_eq!(output, "zero one\n2 yes host-a /\n/made/for/me\n1000\n2000\n2000 3000\n");
    });
}

fn containers_of_a_pod_share_network_and_hostname() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let address = world.engine.sandboxes(None).await.unwrap()[0].ips[0].to_string();
        let script = "hostname; ip -o -4 addr show eth0; ip -o link show lo";
        let (_, first) = world.outcome(&sandbox, "one", script).await;
        let (_, second) = world.outcome(&sandbox, "two", script).await;
        assert_eq!(first, second);
        assert!(first.starts_with("host-a\n") && first.contains(&address) && first.contains("LOOPBACK,UP"), "{first}");
        // So is shared memory.
        world.outcome(&sandbox, "writer", "echo shared > /dev/shm/note").await;
        assert_eq!(world.outcome(&sandbox, "reader", "cat /dev/shm/note").await, (0, "shared\n".into()));
        // Its processes are its own: the other container is not seen.
        let idle = world.run(&sandbox, "idle", "echo up; exec sleep 1000").await;
        world.says(&idle, "up").await;
        let (_, processes) = world.outcome(&sandbox, "ps", "ps").await;
        assert!(!processes.contains("sleep"), "{processes}");
    });
}

fn mounts_and_etc_files_are_there() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let data = world.dir.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("f"), "from the host\n").unwrap();
        let mut config = shell(
            "c",
            "cat /data/f; echo x > /data/f || echo refused; echo y > /rw/g; cat /etc/resolv.conf; \
             cat /etc/hostname; grep host-a /etc/hosts >/dev/null && echo known; touch /dev/shm/x && echo shm; ls -d /rw/sub",
        );
        let mount = |to: &str, readonly| Mount::new(&data, to, readonly);
        config.mounts = vec![mount("/data", true), mount("/rw", false)];
        fs::create_dir(data.join("sub")).unwrap();
        let id = world.run_with(&sandbox, config).await;
        world.exit(&id).await;
        let output = world.output(&id).await;
        assert!(output.starts_with("from the host\n"), "{output}");
        for line in ["refused", "nameserver 192.0.2.1", "host-a", "known", "shm", "/rw/sub"] {
            assert!(output.lines().any(|said| said == line), "{line:?} is not in {output}");
        }
        assert_eq!(fs::read_to_string(data.join("f")).unwrap(), "from the host\n");
        assert_eq!(fs::read_to_string(data.join("g")).unwrap(), "y\n");
    });
}

async fn started(world: &World, script: &str) -> cri::ContainerId {
    let sandbox = world.sandbox("a").await;
    let id = world.run(&sandbox, "c", script).await;
    world.says(&id, "ready").await;
    id
}

fn tc_066_a_stop_ends_when_the_program_obeys() {
    check(|world| async move {
        let id = started(&world, "trap 'echo bye; exit 7' TERM; echo ready; while true; do sleep 0.01; done").await;
        let begun = Instant::now();
        world.engine.stop_container(&id, Duration::from_secs(30)).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        // Returned, so it is over and recorded.
        let container = world.container(&id).await;
        assert_eq!((container.state, container.exit_code), (ContainerState::Exited, 7));
        assert_eq!(world.output(&id).await, "ready\nbye\n");
    });
}

fn tc_066_a_stop_kills_everything_at_the_deadline() {
    check(|world| async move {
        let id =
            started(&world, "trap '' TERM; (while true; do sleep 1; done) & echo ready; while true; do sleep 1; done")
                .await;
        let begun = Instant::now();
        world.engine.stop_container(&id, Duration::from_millis(300)).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
        let container = world.container(&id).await;
        assert_eq!((container.exit_code, container.reason.as_str()), (137, "Error"));
    });
}

fn tc_066_a_second_stop_brings_the_deadline_forward() {
    check(|world| async move {
        let id = started(&world, "trap 'echo again' TERM; echo ready; while true; do sleep 0.01; done").await;
        let begun = Instant::now();
        let patient = world.engine.stop_container(&id, Duration::from_secs(600));
        let hasty = async {
            world.says(&id, "again").await;
            world.engine.stop_container(&id, Duration::from_secs(300)).await.unwrap();
        };
        let now = async {
            world.says(&id, "again").await;
            world.engine.stop_container(&id, Duration::ZERO).await.unwrap();
        };
        let (patient, (), ()) = tokio::join!(patient, hasty, now);
        patient.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(world.container(&id).await.exit_code, 137);
        // Concurrent stops are one: it was signalled once.
        assert_eq!(world.output(&id).await, "ready\nagain\n");
    });
}

fn tc_053_stops_and_removals_can_be_repeated() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run(&sandbox, "c", "exec sleep 1000").await;
        let engine = &world.engine;
        engine.stop_container(&"unknown".into(), Duration::ZERO).await.unwrap();
        engine.remove_container(&"unknown".into()).await.unwrap();
        engine.stop_sandbox(&"unknown".into()).await.unwrap();
        engine.remove_sandbox(&"unknown".into()).await.unwrap();
        for _ in 0..2 {
            engine.stop_container(&id, Duration::ZERO).await.unwrap();
        }
        for _ in 0..2 {
            engine.remove_container(&id).await.unwrap();
        }
        assert_eq!(engine.containers(None).await.unwrap(), []);
        for _ in 0..2 {
            engine.stop_sandbox(&sandbox).await.unwrap();
        }
        let (one, two) = tokio::join!(engine.remove_sandbox(&sandbox), engine.remove_sandbox(&sandbox));
        assert_eq!((one, two), (Ok(()), Ok(())));
        assert_eq!(engine.sandboxes(None).await.unwrap(), []);
    });
}

fn stopping_a_sandbox_ends_its_containers() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let running = world.run(&sandbox, "running", "exec sleep 1000").await;
        let waiting = world.create(&sandbox, shell("waiting", "echo never")).await;
        world.engine.stop_sandbox(&sandbox).await.unwrap();
        assert_eq!(world.engine.sandboxes(Some("a")).await.unwrap()[0].state, SandboxState::NotReady);
        let container = world.container(&running).await;
        assert_eq!((container.state, container.exit_code), (ContainerState::Exited, 137));
        // LC-075: what never ran does not count as a run.
        assert_eq!(world.container(&waiting).await.state, ContainerState::Created);
        let refused = world.engine.create_container(&sandbox, shell("late", "true")).await;
        assert!(matches!(refused, Err(CriError::Failed(_))), "{refused:?}");
    });
}

fn what_fails_to_be_made_leaves_nothing() {
    check(|world| async move {
        let mut config = world.sandbox_config("bad");
        config.cgroup_parent = "../elsewhere".into();
        assert!(matches!(world.engine.run_sandbox(config).await, Err(CriError::Invalid(_))));
        assert_eq!(fs::read_dir(world.config.root.join("sandboxes")).unwrap().count(), 0);
        let sandbox = world.sandbox("a").await;
        let mut missing_image = shell("c", "true");
        missing_image.image = "no/such:image".into();
        let refused = world.engine.create_container(&sandbox, missing_image).await;
        assert!(matches!(refused, Err(CriError::NotFound { what: "image", .. })), "{refused:?}");
        let mut outside = shell("c", "true");
        outside.log_path = "../../elsewhere.log".into();
        assert!(matches!(world.engine.create_container(&sandbox, outside).await, Err(CriError::Invalid(_))));
        let mut missing_mount = shell("c", "true");
        missing_mount.mounts = vec![Mount::new("/no/such/path", "/x", true)];
        let refused = world.engine.create_container(&sandbox, missing_mount).await;
        assert!(matches!(refused, Err(CriError::Failed(_))), "{refused:?}");
        assert_eq!(world.engine.containers(None).await.unwrap(), []);
        let containers = world.config.root.join("sandboxes").join(&sandbox.0).join("containers");
        assert_eq!(fs::read_dir(containers).unwrap().count(), 0);
        // The sandbox is as good as before.
        assert_eq!(world.outcome(&sandbox, "c", "echo fine").await, (0, "fine\n".into()));
    });
}

fn changes_are_announced_and_lists_are_newest_first() {
    check(|world| async move {
        use futures::StreamExt;
        let mut events = world.engine.events();
        let old = world.sandbox("old").await;
        assert_eq!(events.next().await.unwrap().pod_uid, "old");
        let new = world.sandbox("new").await;
        let first = world.run(&new, "first", "true").await;
        let second = world.run(&new, "second", "true").await;
        let shown: Vec<_> = world.engine.sandboxes(None).await.unwrap().into_iter().map(|s| s.id).collect();
        assert_eq!(shown, [new, old]);
        let shown: Vec<_> = world.engine.containers(Some("new")).await.unwrap().into_iter().map(|c| c.id).collect();
        assert_eq!(shown, [second, first]);
        assert_eq!(world.engine.containers(Some("old")).await.unwrap(), []);
    });
}

fn the_host_network_is_shared_on_request() {
    check(|world| async move {
        let mut config = world.sandbox_config("host");
        config.network = NamespaceMode::Node;
        config.pid = NamespaceMode::Node;
        config.hostname = String::new();
        let sandbox = world.engine.run_sandbox(config).await.unwrap();
        assert_eq!(world.engine.sandboxes(None).await.unwrap()[0].ips, Vec::<std::net::IpAddr>::new());
        let (code, output) =
            world.outcome(&sandbox, "c", "stat -Lc %i /proc/self/ns/net /proc/self/ns/pid; hostname").await;
        assert_eq!(code, 0);
        use std::os::unix::fs::MetadataExt;
        let inode = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).unwrap().ino().to_string();
        let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
        assert_eq!(output.lines().collect::<Vec<_>>(), [inode("net"), inode("pid"), host]);
    });
}
