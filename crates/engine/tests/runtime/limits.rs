//! Limits that change while a container runs, and what it uses.

use std::fs;
use std::path::Path;

use cri::{CriError, Resources, Runtime};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("lc_349_limits_grow_and_shrink_while_it_runs", lc_349_limits_grow_and_shrink_while_it_runs),
    ("lc_334_a_class_of_pods_is_weighed_as_a_whole", lc_334_a_class_of_pods_is_weighed_as_a_whole),
    (
        "lc_340_out_of_memory_version_2_ends_the_whole_container",
        lc_340_out_of_memory_version_2_ends_the_whole_container,
    ),
    ("lc_082_a_running_container_tells_its_limits", lc_082_a_running_container_tells_its_limits),
    ("tc_053_what_is_over_or_unknown_takes_no_limits", tc_053_what_is_over_or_unknown_takes_no_limits),
    ("lc_342_a_pod_has_so_many_processes_in_all", lc_342_a_pod_has_so_many_processes_in_all),
    ("usage_is_that_of_the_container_and_of_its_pod", usage_is_that_of_the_container_and_of_its_pod),
    ("what_lies_deeper_than_any_path_counts_and_goes", what_lies_deeper_than_any_path_counts_and_goes),
    ("shared_files_and_ended_containers_count_for_the_pod", shared_files_and_ended_containers_count_for_the_pod),
];

const MIB: i64 = 1 << 20;

fn memory(mib: i64) -> Resources {
    Resources { memory_limit_bytes: Some(mib * MIB), ..Resources::default() }
}

const MOUNT: &str = "/sys/fs/cgroup";

fn is_version_2() -> bool {
    Path::new(MOUNT).join("cgroup.controllers").exists()
}

/// What the kernel holds for a cgroup of the instance, by the file's names on
/// version 1 (with its controller) and version 2; `None`: it has no such file.
fn kernel(world: &World, below: &str, (controller, v1): (&str, &str), v2: &str) -> Option<String> {
    let (root, file) = if is_version_2() { ("", v2) } else { (controller, v1) };
    let dir = Path::new(MOUNT).join(root).join(&world.config.cgroup_root).join(below);
    fs::read_to_string(dir.join(file)).ok().map(|text| text.trim().to_owned())
}

fn lc_349_limits_grow_and_shrink_while_it_runs() {
    check(|world| async move {
        let mut config = world.sandbox_config("a");
        config.resources = memory(64);
        let sandbox = world.engine.run_sandbox(config).await.unwrap();
        let mut config = shell("c", "sleep 1000");
        config.resources = Resources { cpu_quota: Some(20_000), cpu_period: Some(100_000), ..memory(32) };
        let id = world.run_with(&sandbox, config).await;
        let limit = async || world.container(&id).await.resources.unwrap().memory_limit_bytes.unwrap() / MIB;
        assert_eq!(limit().await, 32);
        // Outside in when it grows, inside out when it shrinks.
        world.engine.update_sandbox(&sandbox, memory(128)).await.unwrap();
        world.engine.update_container(&id, memory(96)).await.unwrap();
        assert_eq!(limit().await, 96);
        world.engine.update_container(&id, memory(24)).await.unwrap();
        world.engine.update_sandbox(&sandbox, memory(48)).await.unwrap();
        assert_eq!(limit().await, 24);
        let max = |below: &str| kernel(&world, below, ("memory", "memory.limit_in_bytes"), "memory.max");
        let (pod, container) = ("besteffort/poda", format!("besteffort/poda/{id}"));
        assert_eq!(max(pod), Some((48 * MIB).to_string()));
        assert_eq!(max(&container), Some((24 * MIB).to_string()));
        // LC-341. Not every kernel has swap.
        let swap = kernel(&world, &container, ("memory", "memory.memsw.limit_in_bytes"), "memory.swap.max");
        if let Some(swap) = swap {
            assert_eq!(swap, if is_version_2() { "0".to_owned() } else { (24 * MIB).to_string() });
        }
        // A shorter period with the old quota would be more than the pod may have.
        let half = Resources { cpu_quota: Some(20_000), cpu_period: Some(100_000), ..Resources::default() };
        world.engine.update_sandbox(&sandbox, half).await.unwrap();
        let finer = Resources { cpu_quota: Some(2000), cpu_period: Some(10_000), ..Resources::default() };
        world.engine.update_container(&id, finer.clone()).await.unwrap();
        let resources = world.container(&id).await.resources.unwrap();
        assert_eq!((resources.cpu_quota, resources.cpu_period), (finer.cpu_quota, finer.cpu_period));
        assert_eq!(resources.memory_limit_bytes, Some(24 * MIB), "what was not given stays");
    });
}

fn lc_334_a_class_of_pods_is_weighed_as_a_whole() {
    check(|world| async move {
        let weight = |class: &str| kernel(&world, class, ("cpu", "cpu.shares"), "cpu.weight").unwrap();
        let shares = |shares: u64| Resources { cpu_shares: Some(shares), ..Resources::default() };
        let expected = |v1: &str, v2: &str| if is_version_2() { v2.to_owned() } else { v1.to_owned() };
        world.engine.update_class("besteffort", shares(2)).await.unwrap();
        world.engine.update_class("burstable", shares(1024)).await.unwrap();
        assert_eq!((weight("besteffort"), weight("burstable")), (expected("2", "1"), expected("1024", "39")));
        let sandbox = world.sandbox("a").await;
        world.run(&sandbox, "c", "sleep 1000").await;
        world.engine.update_class("burstable", shares(2048)).await.unwrap();
        assert_eq!((weight("besteffort"), weight("burstable")), (expected("2", "1"), expected("2048", "79")));
        let outside = world.engine.update_class("../other", shares(2)).await;
        assert!(matches!(outside, Err(CriError::Invalid(_))), "{outside:?}");
    });
}

fn lc_340_out_of_memory_version_2_ends_the_whole_container() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        // Not process 1 is hungry, but one that it started.
        let mut config =
            shell("c", "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null; echo survived; sleep 1000");
        config.resources = memory(16);
        let id = world.run_with(&sandbox, config).await;
        if is_version_2() {
            let container = world.exit(&id).await;
            assert_eq!((container.exit_code, container.reason.as_str()), (137, "OOMKilled"));
            assert_eq!(world.output(&id).await, "");
        } else {
            // LC-339: only the process itself.
            world.says(&id, "survived").await;
        }
    });
}

fn lc_082_a_running_container_tells_its_limits() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut config = shell("c", "sleep 1000");
        // No whole number of pages, and shares that version 2 cannot express.
        let asked = Resources {
            cpu_shares: Some(205),
            cpu_quota: Some(50_000),
            cpu_period: Some(100_000),
            memory_limit_bytes: Some(100_000_000),
            pids_limit: Some(50),
            oom_score_adj: 900,
        };
        config.resources = asked.clone();
        let id = world.create(&sandbox, config).await;
        assert_eq!(world.container(&id).await.resources, None, "it does not run yet");
        world.engine.start_container(&id).await.unwrap();
        assert_eq!(world.container(&id).await.resources, Some(asked.clone()));
        let more = Resources { cpu_shares: Some(307), ..Resources::default() };
        world.engine.update_container(&id, more).await.unwrap();
        let world = world.reopen().await;
        assert_eq!(world.container(&id).await.resources, Some(Resources { cpu_shares: Some(307), ..asked }));
    });
}

fn tc_053_what_is_over_or_unknown_takes_no_limits() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.run(&sandbox, "c", "true").await;
        world.exit(&id).await;
        let over = world.engine.update_container(&id, memory(8)).await;
        assert_eq!(over, Err(CriError::NotRunning { id: id.0.clone() }));
        assert_eq!(world.container(&id).await.resources, None);
        let nobody = world.engine.update_container(&"nobody".into(), memory(8)).await;
        assert!(matches!(nobody, Err(CriError::NotFound { .. })), "{nobody:?}");
        let nowhere = world.engine.update_sandbox(&"nowhere".into(), memory(8)).await;
        assert!(matches!(nowhere, Err(CriError::NotFound { .. })), "{nowhere:?}");
    });
}

fn lc_342_a_pod_has_so_many_processes_in_all() {
    check(|world| async move {
        let mut config = world.sandbox_config("a");
        config.resources = Resources { pids_limit: Some(8), ..Resources::default() };
        let sandbox = world.engine.run_sandbox(config).await.unwrap();
        // Six in one container leave two for another, one of which is its shell.
        let six = "sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & echo up; wait";
        let busy = world.run(&sandbox, "busy", six).await;
        world.says(&busy, "up").await;
        let script = "sleep 0 & wait; echo one; sleep 1000 & sleep 1000 & echo two";
        let late = world.run(&sandbox, "late", script).await;
        world.exit(&late).await;
        let output = world.output(&late).await;
        assert!(output.contains("one") && output.contains("can't fork") && !output.contains("two"), "{output}");
        // Others have their own.
        let other = world.sandbox("b").await;
        assert_eq!(world.outcome(&other, "free", "sleep 0 & sleep 0 & sleep 0 & wait; echo fine").await.1, "fine\n");
    });
}

fn what_lies_deeper_than_any_path_counts_and_goes() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let script = "n=$(printf 'n%.0s' $(seq 200)); i=0; cd /tmp; \
            while [ $i -lt 1000 ]; do mkdir $n && cd -P $n || exit 1; i=$((i + 1)); done; \
            dd if=/dev/zero of=last bs=1024 count=2048 2>/dev/null; echo ready; sleep 1000";
        let id = world.run(&sandbox, "c", script).await;
        world.says(&id, "ready").await;
        let stats = world.engine.container_stats(Some("a")).await.unwrap();
        let used = stats[0].writable_layer;
        assert!(used.bytes >= 2 << 20 && used.inodes >= 1001, "{used:?}");
        world.engine.remove_container(&id).await.unwrap();
        world.engine.remove_sandbox(&sandbox).await.unwrap();
        assert_eq!(std::fs::read_dir(world.config.root.join("sandboxes")).unwrap().count(), 0);
    });
}

fn shared_files_and_ended_containers_count_for_the_pod() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mega = |path: &str| format!("dd if=/dev/zero of={path} bs=1024 count=1024 2>/dev/null");
        let script = format!("{}; {}; echo ready; sleep 1000", mega("/etc/hostname"), mega("/etc/resolv.conf"));
        let id = world.run(&sandbox, "c", &script).await;
        world.says(&id, "ready").await;
        let disk = || async { world.engine.sandbox_stats(Some("a")).await.unwrap()[0].disk.bytes >> 20 };
        assert_eq!(disk().await, 2);
        let (ended, _) = world.outcome(&sandbox, "ended", &mega("/file")).await;
        assert_eq!(disk().await, 3, "{ended:?}");
        // What is read-only is so as a whole.
        let mut config = shell(
            "closed",
            "for f in hosts hostname resolv.conf; do echo x >>/etc/$f || echo no; done; echo done; sleep 1000",
        );
        config.security.readonly_rootfs = true;
        let closed = world.run_with(&sandbox, config).await;
        world.says(&closed, "done").await;
        assert_eq!(world.output(&closed).await.matches("no\n").count(), 3);
    });
}

fn usage_is_that_of_the_container_and_of_its_pod() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let script = "dd if=/dev/zero of=/file bs=1024 count=2048 2>/dev/null; dd if=/dev/zero of=/dev/shm/m bs=1024 count=4096 2>/dev/null; \
            echo ready; sleep 1000";
        let id = world.run(&sandbox, "c", script).await;
        world.says(&id, "ready").await;
        let idle = world.sandbox("b").await;
        let other = world.run(&idle, "idle", "sleep 1000").await;
        let all = world.engine.container_stats(None).await.unwrap();
        assert_eq!(all.len(), 2, "{all:?}");
        let of_a = world.engine.container_stats(Some("a")).await.unwrap();
        assert_eq!((of_a.len(), &of_a[0].id, of_a[0].name.as_str()), (1, &id, "c"));
        let usage = of_a[0].usage;
        assert!(usage.memory_usage_bytes >= 4 << 20, "{usage:?}");
        assert!(usage.memory_working_set_bytes <= usage.memory_usage_bytes, "{usage:?}");
        assert!(usage.cpu_nanoseconds > 0 && usage.page_faults > 0 && usage.processes >= 1, "{usage:?}");
        assert!(of_a[0].writable_layer.bytes >= 2 << 20 && of_a[0].writable_layer.inodes >= 1, "{of_a:?}");
        let pods = world.engine.sandbox_stats(Some("a")).await.unwrap();
        assert_eq!((pods.len(), pods[0].pod_uid.as_str()), (1, "a"));
        assert!(pods[0].usage.memory_usage_bytes >= 4 << 20, "{pods:?}");
        assert_eq!(pods[0].network.as_ref().unwrap().interface, "eth0");
        world.engine.stop_container(&other, std::time::Duration::ZERO).await.unwrap();
        assert!(world.engine.container_stats(Some("b")).await.unwrap().is_empty());
        world.engine.stop_sandbox(&sandbox).await.unwrap();
        assert!(world.engine.sandbox_stats(Some("a")).await.unwrap().is_empty());
    });
}
