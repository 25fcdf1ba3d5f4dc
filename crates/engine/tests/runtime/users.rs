//! Pods with users of their own (`hostUsers: false`).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use cri::{
    ContainerConfig, ContainerId, CriError, IdRange, Mount, NamespaceMode, Propagation, Resources, Runtime, SandboxId,
};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("root_of_the_pod_is_not_root_of_the_node", root_of_the_pod_is_not_root_of_the_node),
    ("files_belong_to_whom_the_container_says", files_belong_to_whom_the_container_says),
    ("the_pods_root_has_no_power_over_the_node", the_pods_root_has_no_power_over_the_node),
    ("commands_in_it_have_its_users", commands_in_it_have_its_users),
    ("all_namespaces_belong_to_the_pods_users", all_namespaces_belong_to_the_pods_users),
    ("a_restarted_engine_adopts_it", a_restarted_engine_adopts_it),
    ("limits_hold_for_the_pods_users_too", limits_hold_for_the_pods_users_too),
    ("what_cannot_work_with_own_users_is_refused", what_cannot_work_with_own_users_is_refused),
];

const FIRST: u32 = 5 << 16;

async fn sandbox_with(world: &World, change: impl FnOnce(&mut cri::SandboxConfig)) -> Result<SandboxId, CriError> {
    let mut config = world.sandbox_config("users");
    config.user_namespace = Some(IdRange { first: FIRST, length: 1 << 16 });
    change(&mut config);
    world.engine.run_sandbox(config).await
}

async fn sandbox(world: &World) -> SandboxId {
    sandbox_with(world, |_| {}).await.unwrap()
}

async fn said(world: &World, sandbox: &SandboxId, config: ContainerConfig) -> String {
    let created = world.engine.create_container(sandbox, config).await;
    let id = created.unwrap_or_else(|error| panic!("{error}"));
    world.engine.start_container(&id).await.unwrap();
    world.exit(&id).await;
    world.output(&id).await
}

async fn executed(world: &World, id: &ContainerId, script: &str) -> String {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let result = world.engine.exec_sync(id, command, None).await.unwrap();
    format!("{}{}", String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr))
}

/// Who the processes named `sleep` are, on the node.
fn sleepers() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let status = |path: std::path::PathBuf| fs::read_to_string(path.join("status")).ok();
    let uid = |status: String| {
        status.starts_with("Name:\tsleep\n").then_some(())?;
        status.lines().find_map(|line| line.strip_prefix("Uid:\t"))?.split('\t').next()?.parse().ok()
    };
    entries.filter_map(status).filter_map(uid).collect()
}

fn root_of_the_pod_is_not_root_of_the_node() {
    check(|world| async move {
        let sandbox = sandbox(&world).await;
        let id = world.run(&sandbox, "root", "id -u; cat /proc/self/uid_map /proc/self/gid_map; exec sleep 100").await;
        world.says(&id, "0").await;
        let mut user = shell("user", "echo up; exec sleep 100");
        user.security.run_as_user = Some(1000);
        let other = world.run_with(&sandbox, user).await;
        world.says(&other, "up").await;
        let output = world.output(&id).await;
        let map: Vec<&str> = output.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(map, ["0", &FIRST.to_string(), "65536"], "{output}");
        // They may still be shells for a moment.
        let expected = [FIRST, FIRST + 1000];
        let started = std::time::Instant::now();
        loop {
            let mut seen = sleepers();
            seen.sort_unstable();
            if seen == expected {
                break;
            }
            assert!(started.elapsed().as_secs() < 10, "{seen:?}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

fn files_belong_to_whom_the_container_says() {
    check(|world| async move {
        let volume = world.dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::set_permissions(&volume, PermissionsExt::from_mode(0o777)).unwrap();
        fs::write(volume.join("nodes"), "").unwrap();
        let sandbox = sandbox(&world).await;
        let script = "stat -c %u:%g /bin/busybox / /etc/hosts /etc/resolv.conf /data/nodes /dev/shm /proc/1; \
            touch /data/mine /dev/shm/x /own && mkdir /data/dir && stat -c %u /data/mine /own";
        for (name, user) in [("root", 0), ("user", 1000)] {
            let mut config =
                shell(name, if user == 0 { script } else { "touch /data/theirs; stat -c %u /data/theirs" });
            config.security.run_as_user = Some(user);
            config.mounts = vec![Mount::new(&volume, "/data", false), Mount::new(&volume, "/deep/er", false)];
            let output = said(&world, &sandbox, config).await;
            let expected = if user == 0 { format!("{}0\n0\n", "0:0\n".repeat(7)) } else { "1000\n".to_owned() };
            assert_eq!(output, expected, "{name}");
        }
        // What lies on the disk is not shifted: the mount is.
        let owner = |name: &str| fs::metadata(volume.join(name)).unwrap().uid();
        assert_eq!([owner("mine"), owner("dir"), owner("theirs")], [0, 0, 1000]);
    });
}

fn the_pods_root_has_no_power_over_the_node() {
    check(|world| async move {
        let secret = world.dir.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        let sandbox = sandbox(&world).await;
        let mut config = shell(
            "c",
            "mount -t tmpfs x /tmp && echo mounted; echo 1 > /proc/sys/kernel/panic && echo panic; \
            head -c 1 /dev/kmsg && echo kmsg; mknod /disk b 254 0 && head -c 1 /disk && echo disk; \
            echo x > /proc/sys/kernel/core_pattern && echo core; mkdir /sys/fs/cgroup/memory/x && echo cgroup; \
            cd /sys/fs/cgroup; [ -e cgroup.procs ] && { mkdir x && echo cgroup; echo max > pids.max && echo cgroup; }; \
            cat /proc/self/status; echo over",
        );
        config.security.privileged = true;
        let output = said(&world, &sandbox, config).await;
        // All capabilities, all of them over the pod alone.
        assert!(output.contains("CapEff:\t000001ffffffffff"), "{output}");
        for done in ["panic", "kmsg", "disk", "core", "cgroup"] {
            assert!(!output.lines().any(|line| line == done), "{done}: {output}");
        }
        assert!(output.starts_with("mounted\n") || output.contains("\nmounted\n"), "{output}");
        let plain = said(&world, &sandbox, shell("plain", "cat /proc/self/status; mount -t tmpfs x /tmp")).await;
        assert!(plain.contains("CapEff:\t00000000a80425fb"), "{plain}");
        assert!(plain.contains("Seccomp:\t2"), "{plain}");
        assert!(plain.contains("mount: "), "{plain}");
    });
}

/// CVE-2025-47291: such pods are in the cgroups that limit them, whoever they are there.
fn limits_hold_for_the_pods_users_too() {
    check(|world| async move {
        let sandbox = sandbox(&world).await;
        let script = "cat /proc/self/cgroup /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; \
            (sleep 1 & sleep 1 & sleep 1 & sleep 1 & sleep 1 & wait) || true; echo over";
        let mut config = shell("c", script);
        config.resources =
            Resources { memory_limit_bytes: Some(32 << 20), pids_limit: Some(4), ..Resources::default() };
        let output = said(&world, &sandbox, config).await;
        assert!(output.lines().any(|line| line == (32 << 20).to_string()), "{output}");
        assert!(output.contains("can't fork"), "{output}");
        assert!(output.lines().any(|line| line.ends_with("memory:/") || line == "0::/"), "{output}");
        // What the node says about all that are root there.
        let id = world.run(&sandbox, "d", "echo up; sleep 100 & sleep 100").await;
        world.says(&id, "up").await;
        let own = format!("/{}/besteffort/podusers/", world.config.cgroup_root);
        let mut seen = 0;
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            if !read("status").contains(&format!("Uid:\t{FIRST}\t")) {
                continue;
            }
            let cgroups = read("cgroup");
            let is_version_2 = cgroups.lines().count() == 1;
            let limits = |line: &&str| is_version_2 || line.contains(":memory:") || line.contains(":pids:");
            for line in cgroups.lines().filter(limits) {
                assert!(line.contains(&own), "{own} is not in {cgroups}");
                seen += 1;
            }
        }
        assert!(seen > 0);
    });
}

fn commands_in_it_have_its_users() {
    check(|world| async move {
        let sandbox = sandbox(&world).await;
        let mut config = shell("c", "echo up; exec sleep 100");
        config.security.run_as_user = Some(33);
        let id = world.run_with(&sandbox, config).await;
        world.says(&id, "up").await;
        let output = executed(&world, &id, "id -u; id -g; readlink /proc/self/ns/user; cat /proc/self/uid_map").await;
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines[..2], ["33", "34"], "{output}");
        let own = fs::read_link("/proc/self/ns/user").unwrap();
        assert_ne!(Path::new(lines[2]), own, "{output}");
        assert!(lines[3].contains(&FIRST.to_string()), "{output}");
        let status = executed(&world, &id, "cat /proc/self/status; ps; readlink /proc/1/ns/mnt").await;
        assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    });
}

/// Network, IPC, host name, processes: what root of the pod may change it can.
fn all_namespaces_belong_to_the_pods_users() {
    check(|world| async move {
        let before = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let sandbox = sandbox_with(&world, |config| {
            config.pid = NamespaceMode::Pod;
            config.sysctls.insert("net.ipv4.ip_unprivileged_port_start".into(), "77".into());
            config.sysctls.insert("kernel.shm_rmid_forced".into(), "1".into());
        });
        let sandbox = sandbox.await.unwrap();
        let script = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced; hostname; \
            hostname other && hostname; ip link add dummy0 type dummy && ip link show dummy0 >/dev/null && echo link; \
            ls /sys/class/net/eth0 >/dev/null && echo sysfs; ps | grep -c shim";
        let mut config = shell("c", script);
        config.security.privileged = true;
        let output = said(&world, &sandbox, config).await;
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines[..4], ["77", "1", "host-users", "other"], "{output}");
        assert!(lines.contains(&"sysfs"), "{output}");
        assert_eq!(fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), before);
        let (code, neighbours) = world.outcome(&sandbox, "d", "ps; echo x > /dev/shm/x && echo shm").await;
        assert_eq!(code, 0, "{neighbours}");
        assert!(neighbours.contains("shm\n"), "{neighbours}");
    });
}

fn a_restarted_engine_adopts_it() {
    check(|world| async move {
        let sandbox = sandbox(&world).await;
        let id = world.run(&sandbox, "c", "echo up; exec sleep 100").await;
        world.says(&id, "up").await;
        let world = world.reopen().await;
        assert_eq!(executed(&world, &id, "id -u").await, "0\n");
        let (code, output) = world.outcome(&sandbox, "later", "cat /proc/self/uid_map").await;
        assert_eq!(code, 0);
        assert!(output.contains(&FIRST.to_string()), "{output}");
        world.engine.remove_sandbox(&sandbox).await.unwrap();
        assert!(world.engine.sandboxes(None).await.unwrap().is_empty());
    });
}

fn what_cannot_work_with_own_users_is_refused() {
    check(|world| async move {
        let refused = |refused: Result<SandboxId, CriError>, field: &str| {
            assert!(matches!(&refused, Err(CriError::Invalid(why)) if why.contains(field)), "{field}: {refused:?}");
        };
        refused(sandbox_with(&world, |config| config.network = NamespaceMode::Node).await, "hostNetwork");
        refused(sandbox_with(&world, |config| config.ipc = NamespaceMode::Node).await, "hostIPC");
        refused(sandbox_with(&world, |config| config.pid = NamespaceMode::Node).await, "hostPID");
        let range = |first, length| Some(IdRange { first, length });
        refused(sandbox_with(&world, |config| config.user_namespace = range(0, 65536)).await, "from 0");
        refused(sandbox_with(&world, |config| config.user_namespace = range(u32::MAX, 2)).await, "cannot be");
        let sandbox = sandbox(&world).await;
        let mut config = shell("c", "true");
        config.security.run_as_user = Some(70_000);
        let refused = world.engine.create_container(&sandbox, config).await;
        assert!(matches!(&refused, Err(CriError::Failed(why)) if why.contains("70000")), "{refused:?}");
        let mut config = shell("c", "true");
        let volume = Mount::new(world.dir.path(), "/data", false);
        config.mounts = vec![Mount { propagation: Propagation::Bidirectional, ..volume }];
        let refused = world.engine.create_container(&sandbox, config).await;
        assert!(matches!(&refused, Err(CriError::Invalid(why)) if why.contains("Bidirectional")), "{refused:?}");
    });
}
