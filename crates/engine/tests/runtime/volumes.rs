//! What a pod asks of mounts, devices, groups and kernel settings, and the
//! escapes they must not offer (security.md B5).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cri::{CriError, Device, GuardedPaths, Mount, NamespaceMode, Runtime};

use crate::harness::Case;
use crate::world::{check, shell};

pub(crate) const CASES: &[Case] = &[
    ("a_part_of_a_volume_is_mounted_and_made_if_missing", a_part_of_a_volume_is_mounted_and_made_if_missing),
    ("a_link_in_a_part_does_not_lead_out_of_the_volume", a_link_in_a_part_does_not_lead_out_of_the_volume),
    ("a_part_swapped_for_a_link_does_not_lead_out", a_part_swapped_for_a_link_does_not_lead_out),
    ("a_linked_mount_destination_stays_in_the_root", a_linked_mount_destination_stays_in_the_root),
    ("a_file_is_mounted_directly_below_the_root", a_file_is_mounted_directly_below_the_root),
    ("mount_points_are_made_where_links_lead", mount_points_are_made_where_links_lead),
    ("proc_and_the_root_are_no_mount_destinations", proc_and_the_root_are_no_mount_destinations),
    ("a_working_directory_may_be_in_a_volume", a_working_directory_may_be_in_a_volume),
    ("sysctls_are_those_of_the_pod_alone", sysctls_are_those_of_the_pod_alone),
    ("sysctls_of_the_node_are_refused", sysctls_of_the_node_are_refused),
    ("a_sysctls_value_sets_no_other", a_sysctls_value_sets_no_other),
    ("devices_can_be_used_as_far_as_allowed", devices_can_be_used_as_far_as_allowed),
    ("groups_and_names_are_as_asked", groups_and_names_are_as_asked),
];

fn part(volume: PathBuf, part: &str) -> Mount {
    Mount { sub_path: Some(part.into()), ..Mount::new(volume, "/tmp/data", false) }
}

fn a_part_of_a_volume_is_mounted_and_made_if_missing() {
    check(|world| async move {
        let volume = world.dir.path().join("volume");
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::write(volume.join("a/b/file"), "inner\n").unwrap();
        symlink("a/b", volume.join("link")).unwrap();
        let sandbox = world.sandbox("a").await;
        for (name, below, script, said) in [
            ("dir", "a/b", "cat /tmp/data/file", "inner\n"),
            ("file", "a/b/file", "cat /tmp/data", "inner\n"),
            ("link", "link", "cat /tmp/data/file", "inner\n"),
            ("new", "x/y", "echo fresh > /tmp/data/z; ls /tmp/data", "z\n"),
        ] {
            let mut config = shell(name, script);
            config.mounts = vec![part(volume.clone(), below)];
            let created = world.engine.create_container(&sandbox, config).await;
            let id = created.unwrap_or_else(|error| panic!("{name}: {error}"));
            world.engine.start_container(&id).await.unwrap();
            world.exit(&id).await;
            assert_eq!(world.output(&id).await, said, "{name}");
        }
        assert_eq!(fs::read_to_string(volume.join("x/y/z")).unwrap(), "fresh\n");
    });
}

fn a_link_in_a_part_does_not_lead_out_of_the_volume() {
    check(|world| async move {
        let volume = world.dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::write(world.dir.path().join("secret"), "secret").unwrap();
        symlink("/etc", volume.join("absolute")).unwrap();
        symlink("../secret", volume.join("parent")).unwrap();
        symlink("/proc/self/root", volume.join("magic")).unwrap();
        let sandbox = world.sandbox("a").await;
        for below in ["absolute", "absolute/passwd", "parent", "magic/etc", "../secret", "absolute/new"] {
            let mut config = shell("c", "true");
            config.mounts = vec![part(volume.clone(), below)];
            let refused = world.engine.create_container(&sandbox, config).await;
            assert!(refused.is_err(), "{below} was mounted");
        }
        assert!(!PathBuf::from("/etc/new").exists());
    });
}

/// CVE-2021-25741: looked at while it was a directory, mounted when it was a link.
fn a_part_swapped_for_a_link_does_not_lead_out() {
    check(|world| async move {
        let (volume, outside) = (world.dir.path().join("volume"), world.dir.path().join("outside"));
        fs::create_dir_all(volume.join("part")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(volume.join("part/mine"), "").unwrap();
        fs::write(outside.join("secret"), "").unwrap();
        symlink(&outside, volume.join("other")).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let swapper = std::thread::spawn({
            let (volume, over) = (volume.clone(), over.clone());
            move || {
                while !over.load(Ordering::Relaxed) {
                    let (a, b) = (volume.join("part"), volume.join("other"));
                    rustix::fs::renameat_with(
                        rustix::fs::CWD,
                        &a,
                        rustix::fs::CWD,
                        &b,
                        rustix::fs::RenameFlags::EXCHANGE,
                    )
                    .unwrap();
                }
            }
        });
        let sandbox = world.sandbox("a").await;
        let mut seen = 0;
        for number in 0..40 {
            let mut config = shell(&format!("c{number}"), "ls /tmp/data");
            config.mounts = vec![part(volume.clone(), "part")];
            let Ok(id) = world.engine.create_container(&sandbox, config).await else { continue };
            world.engine.start_container(&id).await.unwrap();
            world.exit(&id).await;
            assert_eq!(world.output(&id).await, "mine\n");
            seen += 1;
        }
        over.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
        assert!(seen > 0, "the directory was never there");
    });
}

/// CVE-2021-30465: where something is mounted is found inside the root.
fn a_linked_mount_destination_stays_in_the_root() {
    check(|world| async move {
        let (shared, other) = (world.dir.path().join("shared"), world.dir.path().join("other"));
        let target = world.dir.path().join("target");
        [&shared, &other, &target].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        fs::write(other.join("file"), "").unwrap();
        symlink(&target, shared.join("absolute")).unwrap();
        symlink("../../../../../../../../../../../tmp", shared.join("parent")).unwrap();
        let sandbox = world.sandbox("a").await;
        for (link, said) in [("absolute", "over\n"), ("parent", "/tmp/file\nover\n")] {
            let mut config = shell(link, "ls /tmp/file 2>/dev/null; echo over");
            let inner = Mount::new(other.clone(), format!("/shared/{link}"), false);
            config.mounts = vec![Mount::new(shared.clone(), "/shared", false), inner];
            let id = world.run_with(&sandbox, config).await;
            world.exit(&id).await;
            assert_eq!(world.output(&id).await, said);
            // Mounted inside: the node's directories stay as they are.
            assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{link}");
        }
    });
}

fn a_file_is_mounted_directly_below_the_root() {
    check(|world| async move {
        let volume = world.dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("app.conf"), "key=value\n").unwrap();
        let sandbox = world.sandbox("a").await;
        let whole = Mount::new(volume.join("app.conf"), "/app.conf", true);
        let part = Mount { sub_path: Some("app.conf".into()), ..Mount::new(&volume, "/app.conf", true) };
        for (name, mount, readonly_rootfs) in
            [("whole", whole.clone(), false), ("part", part, false), ("readonly", whole, true)]
        {
            let mut config = shell(name, "cat /app.conf; echo x > /app.conf || echo refused; touch /x || echo closed");
            config.security.readonly_rootfs = readonly_rootfs;
            config.mounts = vec![mount];
            let created = world.engine.create_container(&sandbox, config).await;
            let id = created.unwrap_or_else(|error| panic!("{name}: {error}"));
            world.engine.start_container(&id).await.unwrap();
            world.exit(&id).await;
            let output = world.output(&id).await;
            assert!(output.starts_with("key=value\n") && output.contains("\nrefused\n"), "{name}: {output}");
            assert_eq!(output.contains("\nclosed\n"), readonly_rootfs, "{name}: {output}");
        }
    });
}

/// Images have links at places that are mounted over; some lead nowhere yet.
fn mount_points_are_made_where_links_lead() {
    check(|world| async move {
        let (volume, file) = (world.dir.path().join("volume"), world.dir.path().join("file"));
        fs::create_dir(&volume).unwrap();
        symlink("/run/far/away", volume.join("absolute")).unwrap();
        symlink("../../../../tmp/near", volume.join("relative")).unwrap();
        symlink("itself", volume.join("itself")).unwrap();
        fs::write(&file, "shown\n").unwrap();
        let sandbox = world.sandbox("a").await;
        let mut config = shell("c", "cat /run/far/away /tmp/near /deep/er/file");
        config.mounts = vec![
            Mount::new(&volume, "/links", false),
            Mount::new(&file, "/links/absolute", false),
            Mount::new(&file, "/links/relative", false),
            Mount::new(&file, "/deep/er/file", false),
        ];
        let id = world.run_with(&sandbox, config).await;
        world.exit(&id).await;
        assert_eq!(world.output(&id).await, "shown\nshown\nshown\n");
        assert!(!PathBuf::from("/run/far").exists() && !PathBuf::from("/tmp/near").exists());
        let mut endless = shell("endless", "true");
        endless.mounts = vec![Mount::new(&volume, "/links", false), Mount::new(&file, "/links/itself", false)];
        let refused = world.engine.create_container(&sandbox, endless).await;
        assert!(matches!(&refused, Err(CriError::Failed(why)) if why.contains("/links/itself")), "{refused:?}");
    });
}

/// CVE-2019-16884, CVE-2019-19921: by name, and by a link in a volume.
fn proc_and_the_root_are_no_mount_destinations() {
    check(|world| async move {
        let (volume, links) = (world.dir.path().join("volume"), world.dir.path().join("links"));
        [&volume, &links].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        symlink("/proc/sys", links.join("proc")).unwrap();
        let sandbox = world.sandbox("a").await;
        for destination in ["/proc", "/proc/sys", "/links/proc", "/links/proc/kernel", "/", "/links/.."] {
            let mut config = shell("c", "true");
            let inner = Mount::new(&volume, destination, false);
            config.mounts = vec![Mount::new(&links, "/links", false), inner];
            let refused = world.engine.create_container(&sandbox, config).await;
            assert!(matches!(&refused, Err(CriError::Failed(_))), "{destination}: {refused:?}");
        }
    });
}

fn a_working_directory_may_be_in_a_volume() {
    check(|world| async move {
        let volume = world.dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("here"), "").unwrap();
        let closed = volume.join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let sandbox = world.sandbox("a").await;
        for (name, cwd, user, said) in [
            ("root", "/data", 0, "/data\nclosed here\n"),
            // Made in the volume, not below it.
            ("new", "/data/new", 0, "/data/new\n\n"),
            // A user may stand where it may not go.
            ("user", "/data/closed", 1000, "/data/closed\n\n"),
        ] {
            let mut config = shell(name, "pwd; echo $(ls)");
            config.working_dir = cwd.into();
            config.security.run_as_user = Some(user);
            config.mounts = vec![Mount::new(&volume, "/data", false)];
            assert_eq!(world.answers(&sandbox, config).await, said, "{name}");
        }
        assert!(volume.join("new").is_dir());
    });
}

fn sysctls_are_those_of_the_pod_alone() {
    check(|world| async move {
        let read = |path: &str| fs::read_to_string(path).unwrap();
        let before = (read("/proc/sys/net/ipv4/ip_unprivileged_port_start"), read("/proc/sys/kernel/shm_rmid_forced"));
        let mut config = world.sandbox_config("a");
        config.sysctls.insert("net.ipv4.ip_unprivileged_port_start".into(), "77".into());
        config.sysctls.insert("kernel.shm_rmid_forced".into(), "1".into());
        let sandbox = world.engine.run_sandbox(config).await.unwrap();
        let script = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced";
        assert_eq!(world.outcome(&sandbox, "c", script).await.1, "77\n1\n");
        let after = (read("/proc/sys/net/ipv4/ip_unprivileged_port_start"), read("/proc/sys/kernel/shm_rmid_forced"));
        assert_eq!(after, before, "the node's are as before");
    });
}

fn sysctls_of_the_node_are_refused() {
    check(|world| async move {
        for name in ["kernel.hostname", "vm.swappiness", "net..x", "net/../kernel/panic", "net", "kernel.shmfoo"] {
            let mut config = world.sandbox_config("a");
            config.sysctls.insert(name.into(), "1".into());
            let refused = world.engine.run_sandbox(config).await;
            assert!(matches!(&refused, Err(CriError::Invalid(why)) if why.contains(name)), "{name}: {refused:?}");
        }
        let mut config = world.sandbox_config("a");
        config.network = NamespaceMode::Node;
        config.sysctls.insert("net.core.somaxconn".into(), "99".into());
        let refused = world.engine.run_sandbox(config).await;
        assert!(matches!(&refused, Err(CriError::Invalid(why)) if why.contains("hostNetwork")), "{refused:?}");
    });
}

/// CVE-2022-0811: where settings are joined to one text, a value can hold several.
fn a_sysctls_value_sets_no_other() {
    check(|world| async move {
        let settings = ["kernel/core_pattern", "kernel/shm_rmid_forced", "vm/swappiness"];
        let read = || settings.map(|name| fs::read_to_string(format!("/proc/sys/{name}")).unwrap());
        let before = read();
        for (number, join) in ["+", "\n", ",", " ", ";", "\0"].into_iter().enumerate() {
            let mut config = world.sandbox_config(&format!("p{number}"));
            let value = format!("1{join}kernel.core_pattern=|/x{join}vm.swappiness=7");
            config.sysctls.insert("kernel.shm_rmid_forced".into(), value);
            if let Ok(sandbox) = world.engine.run_sandbox(config).await {
                let said = world.outcome(&sandbox, "c", "cat /proc/sys/kernel/shm_rmid_forced").await.1;
                assert!(["0\n", "1\n"].contains(&said.as_str()), "{join:?}: {said}");
            }
            assert_eq!(read(), before, "{join:?}");
        }
    });
}

fn devices_can_be_used_as_far_as_allowed() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut config = shell(
            "c",
            "head -c 1 /dev/sub/log >/dev/null && echo read; echo x > /dev/sub/log && echo wrote; ls /dev/sub",
        );
        config.devices = vec![Device {
            host_path: "/dev/kmsg".into(),
            container_path: "/dev/sub/log".into(),
            permissions: "r".into(),
        }];
        let id = world.run_with(&sandbox, config.clone()).await;
        world.exit(&id).await;
        let output = world.output(&id).await;
        assert!(output.lines().any(|line| line == "log"), "{output}");
        if !PathBuf::from("/sys/fs/cgroup/cgroup.controllers").exists() {
            assert!(!output.contains("wrote"), "{output}");
        }
        config.devices[0].host_path = "/dev/no-such-device".into();
        config.name = "d".into();
        let refused = world.engine.create_container(&sandbox, config).await;
        assert!(matches!(&refused, Err(CriError::Invalid(why)) if why.contains("/dev/no-such-device")), "{refused:?}");
    });
}

fn groups_and_names_are_as_asked() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        for (name, strict, said) in [("merged", false, "33 34 7 34 99"), ("strict", true, "33 34 34 99")] {
            let mut config = shell(name, "echo $(id -u) $(id -g) $(id -G | grep -o 7) 34 99; id -G");
            config.security.run_as_username = Some("web".into());
            config.security.supplemental_groups = vec![99];
            config.security.strict_groups = strict;
            let id = world.run_with(&sandbox, config).await;
            world.exit(&id).await;
            let output = world.output(&id).await;
            assert_eq!(output.lines().next(), Some(said), "{output}");
            assert!(output.contains("99"), "{output}");
        }
        let mut open = shell("open", "cat /proc/mounts");
        open.security.guarded = GuardedPaths::Nothing;
        let id = world.run_with(&sandbox, open).await;
        world.exit(&id).await;
        let mounts = world.output(&id).await;
        assert!(mounts.contains(" /proc ") && !mounts.contains(" /proc/"), "{mounts}");
    });
}
