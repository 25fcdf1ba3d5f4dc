//! Ways out of a container that worked elsewhere once (security.md B5).

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cri::{Mount, NamespaceMode, Runtime};

use crate::harness::Case;
use crate::world::{archive_with, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("a_working_directory_is_never_outside", a_working_directory_is_never_outside),
    ("a_destination_swapped_for_a_link_stays_inside", a_destination_swapped_for_a_link_stays_inside),
    ("an_image_of_links_changes_nothing_outside", an_image_of_links_changes_nothing_outside),
    ("the_monitor_cannot_be_looked_into", the_monitor_cannot_be_looked_into),
    ("a_terminal_is_opened_in_the_container_only", a_terminal_is_opened_in_the_container_only),
    ("kernel_settings_cannot_be_written", kernel_settings_cannot_be_written),
    ("the_monitors_socket_is_roots_alone", the_monitors_socket_is_roots_alone),
];

/// CVE-2024-21626: a directory that was left open, by its number.
fn a_working_directory_is_never_outside() {
    check(|world| async move {
        let secret = world.dir.path().join("secret");
        fs::write(&secret, "secret\n").unwrap();
        let sandbox = world.sandbox("a").await;
        let up = "../".repeat(20);
        let script = format!("cat {up}{0} .{0}; echo over", secret.display());
        for number in 3..24 {
            for owner in ["self", "1", "thread-self"] {
                let mut config = shell(&format!("c{number}{owner}"), &script);
                config.working_dir = format!("/proc/{owner}/fd/{number}");
                let Ok(id) = world.engine.create_container(&sandbox, config).await else { continue };
                if world.engine.start_container(&id).await.is_ok() {
                    world.exit(&id).await;
                    let output = world.output(&id).await;
                    assert!(!output.contains("secret\n"), "{number}: {output}");
                }
                world.engine.remove_container(&id).await.unwrap();
            }
        }
        // The same for a command: the container's own working directory counts.
        let id = world.run(&sandbox, "d", "echo up; exec sleep 100").await;
        world.says(&id, "up").await;
        let look =
            format!("for n in $(seq 3 30); do cat /proc/self/fd/$n/{up}{}; done; ls /proc/self/fd", secret.display());
        let command = ["sh", "-c", &look].map(str::to_owned).to_vec();
        let seen = world.engine.exec_sync(&id, command, None).await.unwrap();
        assert!(!String::from_utf8_lossy(&seen.stdout).contains("secret"), "{seen:?}");
    });
}

/// CVE-2021-30465: the destination is a directory when it is looked at, and a
/// link out of the root when it is mounted on.
fn a_destination_swapped_for_a_link_stays_inside() {
    check(|world| async move {
        let dir = world.dir.path();
        let (shared, other, target) = (dir.join("shared"), dir.join("other"), dir.join("target"));
        [&shared.join("place"), &other, &target].into_iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
        fs::write(other.join("file"), "").unwrap();
        symlink(format!("{}{}", "../".repeat(20), target.display()), shared.join("link")).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let swapper = std::thread::spawn({
            let (place, link, over) = (shared.join("place"), shared.join("link"), over.clone());
            move || {
                while !over.load(Ordering::Relaxed) {
                    let exchange = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(rustix::fs::CWD, &place, rustix::fs::CWD, &link, exchange).unwrap();
                }
            }
        });
        // Others' mounts may go at any time: with the directory they are on.
        let ours = dir.to_str().unwrap();
        let is_ours = |line: &&str| line.contains(ours);
        let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap().lines().filter(is_ours).count();
        let before = mounts();
        let sandbox = world.sandbox("a").await;
        let mut made = 0;
        for number in 0..40 {
            let mut config = shell(&format!("c{number}"), "ls /shared/place/file /shared/link/file 2>/dev/null");
            let inner = Mount::new(&other, "/shared/place/inner", false);
            config.mounts = vec![Mount::new(&shared, "/shared", false), inner];
            let Ok(id) = world.engine.create_container(&sandbox, config).await else { continue };
            world.engine.start_container(&id).await.unwrap();
            world.exit(&id).await;
            made += 1;
        }
        over.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
        assert!(made > 0, "none was ever made");
        // Neither a mount point nor a mount on the node's side.
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        assert_eq!(mounts(), before);
    });
}

/// CVE-2019-19921, CVE-2026-41579: what a runtime mounts on or makes nodes in
/// is a link in the image.
fn an_image_of_links_changes_nothing_outside() {
    check(|world| async move {
        let target = world.dir.path().join("target");
        fs::create_dir(&target).unwrap();
        let outside = format!("{}{}", "../".repeat(20), target.display());
        let sandbox = world.sandbox("a").await;
        for (number, name) in ["dev", "proc", "sys", "etc", "tmp"].into_iter().enumerate() {
            for (kind, link) in [("absolute", target.to_str().unwrap()), ("relative", &outside), ("proc", "/proc/self")]
            {
                let image = format!("docker.io/library/links:{kind}{number}");
                let archive = archive_with(&image, "", &[(name, link)]);
                world.engine.images().import(archive.as_slice(), None).unwrap();
                let mut config = shell(&format!("{name}-{kind}"), "echo x > /dev/null; echo x > /etc/x; echo over");
                config.image = image;
                let Ok(id) = world.engine.create_container(&sandbox, config).await else { continue };
                if world.engine.start_container(&id).await.is_ok() {
                    world.exit(&id).await;
                }
                world.engine.remove_container(&id).await.unwrap();
                assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{name} -> {link}");
            }
        }
        assert!(fs::metadata("/dev/null").is_ok_and(|null| !null.is_file()));
        assert!(!Path::new("/etc/x").exists());
    });
}

/// The monitor is root of the node. Seen by a container in the node's process
/// namespace, it shows nothing and takes no commands.
fn the_monitor_cannot_be_looked_into() {
    check(|world| async move {
        let mut config = world.sandbox_config("a");
        config.pid = NamespaceMode::Node;
        let sandbox = world.engine.run_sandbox(config).await.unwrap();
        let record = world.config.root.join("sandboxes").join(&sandbox.0).join("sandbox.json");
        let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
        let shim = &record["shim_pid"];
        let script = format!(
            "[ -d /proc/{shim} ] && echo there; cat /proc/{shim}/environ && echo environ; \
            ls /proc/{shim}/root/ && echo root; for n in 0 1 2 3 4 5; do readlink /proc/{shim}/fd/$n && echo fd; done; ls /proc/{shim}/cwd/ && echo cwd; \
            head -c 1 /proc/{shim}/mem && echo mem; cat /proc/{shim}/maps && echo maps; \
            echo x > /proc/{shim}/comm && echo comm; readlink /proc/{shim}/exe && echo exe; echo over"
        );
        let (_, output) = world.outcome(&sandbox, "c", &script).await;
        let said: Vec<&str> = output.lines().filter(|line| !line.contains(": ")).collect();
        assert_eq!(said, ["there", "over"], "{output}");
    });
}

/// CVE-2025-52565: a volume where the terminal is looked for.
fn a_terminal_is_opened_in_the_container_only() {
    check(|world| async move {
        let volume = world.dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let target = world.dir.path().join("target");
        fs::write(&target, "untouched").unwrap();
        for name in ["console", "ptmx", "pts", "null"] {
            symlink(&target, volume.join(name)).unwrap();
        }
        let sandbox = world.sandbox("a").await;
        for (number, destination) in ["/dev", "/dev/pts"].into_iter().enumerate() {
            let mut config = shell(&format!("c{number}"), "echo over; sleep 0.2");
            config.tty = true;
            config.mounts = vec![Mount::new(&volume, destination, false)];
            let Ok(id) = world.engine.create_container(&sandbox, config).await else { continue };
            if world.engine.start_container(&id).await.is_ok() {
                let command = ["sh", "-c", "echo x > /dev/null"].map(str::to_owned).to_vec();
                let _ = world.engine.exec_sync(&id, command, None).await;
                world.exit(&id).await;
            }
            world.engine.remove_container(&id).await.unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), "untouched", "{destination}");
        }
    });
}

/// CVE-2025-31133, CVE-2025-52881: written through whatever mount there is.
fn kernel_settings_cannot_be_written() {
    check(|world| async move {
        let before = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        let script = "for p in /proc /proc/self/root/proc /proc/1/root/proc /proc/thread-self/root/proc; do \
            echo '|/x' > $p/sys/kernel/core_pattern && echo core; echo b > $p/sysrq-trigger && echo sysrq; \
            cat $p/kcore > /dev/null && [ -s $p/kcore ] && echo kcore; done; \
            ln -s /proc/sysrq-trigger /tmp/trigger; echo b > /tmp/trigger && echo link; \
            echo 1 > /sys/kernel/uevent_helper && echo helper; echo c > /sys/power/state && echo power; \
            mount -o remount,rw /proc/sys && echo remounted; umount /proc/sys && echo unmounted; echo over";
        let sandbox = world.sandbox("a").await;
        let (_, output) = world.outcome(&sandbox, "c", script).await;
        let said: Vec<&str> = output.lines().filter(|line| !line.contains(": ")).collect();
        assert_eq!(said, ["over"], "{output}");
        assert_eq!(fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), before);
    });
}

/// CVE-2020-15257: sockets without a file belong to whoever shares the network.
fn the_monitors_socket_is_roots_alone() {
    check(|world| async move {
        let mut config = world.sandbox_config("a");
        config.network = NamespaceMode::Node;
        let sandbox = world.engine.run_sandbox(config).await.unwrap();
        let (_, output) = world.outcome(&sandbox, "c", "cat /proc/net/unix").await;
        let names: Vec<&str> = output.lines().filter_map(|line| line.split_whitespace().nth(7)).collect();
        assert!(names.iter().any(|name| name.ends_with("/shim.sock")), "it is among them: {output}");
        assert!(names.iter().all(|name| !name.starts_with('@')), "{output}");
        let mut sockets = 0;
        let mut left = vec![world.config.run_dir.clone()];
        while let Some(dir) = left.pop() {
            assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, 0o700, "{dir:?}");
            for entry in fs::read_dir(&dir).unwrap().flatten() {
                let metadata = entry.metadata().unwrap();
                if metadata.is_dir() {
                    left.push(entry.path());
                } else if metadata.file_type().is_socket() {
                    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, 0), "{entry:?}");
                    sockets += 1;
                }
            }
        }
        assert_eq!(sockets, 1);
    });
}
