//! What a container must not be able to do (security.md B5).

use std::fs;
#[cfg(target_arch = "x86_64")]
use std::os::unix::fs::PermissionsExt;

use cri::{ContainerConfig, Resources, Runtime, Seccomp};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("a_container_has_only_the_default_capabilities", a_container_has_only_the_default_capabilities),
    ("nothing_is_inherited_whatever_a_container_may", nothing_is_inherited_whatever_a_container_may),
    ("a_container_may_ping_without_raw_sockets", a_container_may_ping_without_raw_sockets),
    ("dangerous_system_calls_are_refused", dangerous_system_calls_are_refused),
    #[cfg(target_arch = "x86_64")]
    ("programs_of_32_bits_run_confined", programs_of_32_bits_run_confined),
    ("a_localhost_profile_decides_on_calls", a_localhost_profile_decides_on_calls),
    ("masked_and_readonly_paths_hold", masked_and_readonly_paths_hold),
    ("no_descriptor_of_the_host_leaks_in", no_descriptor_of_the_host_leaks_in),
    ("the_hosts_devices_cannot_be_opened", the_hosts_devices_cannot_be_opened),
    ("our_binary_cannot_be_written_from_inside", our_binary_cannot_be_written_from_inside),
    ("limits_and_membership_of_the_cgroup_are_real", limits_and_membership_of_the_cgroup_are_real),
    ("each_container_has_its_own_writable_root", each_container_has_its_own_writable_root),
    ("signals_and_their_masks_are_fresh", signals_and_their_masks_are_fresh),
    ("a_privileged_container_has_everything", a_privileged_container_has_everything),
];

async fn output(world: &World, config: ContainerConfig) -> String {
    let sandbox = world.sandbox(&config.name).await;
    let id = world.run_with(&sandbox, config).await;
    world.exit(&id).await;
    world.output(&id).await
}

fn status_line(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{status}"));
    line.trim_start_matches(':').trim().to_owned()
}

/// Decision 0043: for those who gave `NET_RAW` away, and for users who are not root.
fn a_container_may_ping_without_raw_sockets() {
    check(|world| async move {
        let mut config = shell("c", "cat /proc/sys/net/ipv4/ping_group_range");
        config.security.capabilities_drop = vec!["ALL".into()];
        assert_eq!(output(&world, config).await.split_whitespace().collect::<Vec<_>>(), ["0", "2147483647"]);
        // What the pod asks for wins.
        let mut own = world.sandbox_config("own");
        own.sysctls = vec![("net.ipv4.ping_group_range".into(), "7 8".into())].into_iter().collect();
        let sandbox = world.engine.run_sandbox(own).await.unwrap();
        let id = world.run_with(&sandbox, shell("c", "cat /proc/sys/net/ipv4/ping_group_range")).await;
        world.exit(&id).await;
        assert_eq!(world.output(&id).await.split_whitespace().collect::<Vec<_>>(), ["7", "8"]);
    });
}

fn a_container_has_only_the_default_capabilities() {
    check(|world| async move {
        let status = output(&world, shell("root", "cat /proc/self/status")).await;
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(status_line(&status, set), "00000000a80425fb", "{set}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(status_line(&status, set), "0000000000000000", "{set}");
        }
        assert_eq!(status_line(&status, "Seccomp"), "2");
        assert_eq!(status_line(&status, "NoNewPrivs"), "0");
        let mut config = shell("user", "cat /proc/self/status");
        config.security.run_as_user = Some(1000);
        config.security.no_new_privileges = true;
        config.security.capabilities_drop = vec!["ALL".into()];
        let status = output(&world, config).await;
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status_line(&status, set), "0000000000000000", "{set}");
        }
        assert_eq!(status_line(&status, "NoNewPrivs"), "1");
        assert_eq!(status_line(&status, "Seccomp"), "2");
    });
}

/// CVE-2022-29162 and its kin, CVE-2025-27612: nobody passes on more than a
/// program has by itself.
fn nothing_is_inherited_whatever_a_container_may() {
    check(|world| async move {
        let mut configs = ["privileged", "all", "user", "open"].map(|name| shell(name, "echo up; exec sleep 100"));
        configs[0].security.privileged = true;
        configs[1].security.capabilities_add = vec!["ALL".into()];
        configs[2].security.capabilities_add = vec!["NET_ADMIN".into(), "SYS_PTRACE".into()];
        configs[2].security.run_as_user = Some(1000);
        configs[3].security.seccomp = Seccomp::Unconfined;
        let sandbox = world.sandbox("a").await;
        for config in configs {
            let name = config.name.clone();
            let id = world.run_with(&sandbox, config).await;
            world.says(&id, "up").await;
            for process in ["1", "self"] {
                let status = world.exec(&id, &format!("cat /proc/{process}/status")).await.1;
                for set in ["CapInh", "CapAmb"] {
                    assert_eq!(status_line(&status, set), "0000000000000000", "{name} {process} {set}");
                }
                if name == "user" {
                    assert_eq!(status_line(&status, "CapEff"), "0000000000000000", "{process}");
                }
            }
        }
    });
}

fn dangerous_system_calls_are_refused() {
    check(|world| async move {
        let script = "mount -t tmpfs x /tmp || echo mount; unshare -m true || echo unshare; unshare -U true || echo userns; \
            chroot / true && echo chroot-works";
        // The capability alone does not open what the filter closes, and the other way round.
        let output = output(&world, shell("c", script)).await;
        for said in ["mount", "unshare", "userns", "chroot-works"] {
            assert!(output.lines().any(|line| line == said), "{said} is not in {output}");
        }
        let mut open = shell("open", "cat /proc/self/status");
        open.security.seccomp = Seccomp::Unconfined;
        let status = self::output(&world, open).await;
        assert_eq!(status_line(&status, "Seccomp"), "0");
        let sandbox = world.sandbox("closed").await;
        let mut missing = shell("missing", "true");
        missing.security.seccomp = Seccomp::Localhost("/no/such/profile.json".into());
        assert!(world.engine.create_container(&sandbox, missing).await.is_err(), "a missing profile fails closed");
    });
}

/// A profile of the node's, for the container and for commands in it, whatever
/// becomes of the file.
/// A program of 32 bits that makes one call without arguments and exits with
/// what it was refused with.
#[cfg(target_arch = "x86_64")]
fn tiny_program(call: u8) -> Vec<u8> {
    const AT: u32 = 0x0804_8000;
    let code = [
        &[0xB8, call, 0, 0, 0, 0x31, 0xDB, 0x31, 0xC9, 0x31, 0xD2][..], // eax = call; ebx, ecx, edx = 0
        &[0xCD, 0x80, 0xF7, 0xD8, 0x89, 0xC3],                          // int 0x80; ebx = -eax
        &[0xB8, 1, 0, 0, 0, 0xCD, 0x80],                                // exit
    ]
    .concat();
    let length = u32::try_from(84 + code.len()).unwrap();
    let half = |values: &[u16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let word = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    [
        b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
        half(&[2, 3]),
        word(&[1, AT + 84, 52, 0, 0]),
        half(&[52, 32, 1, 0, 0, 0]),
        word(&[1, 0, AT, AT, length, length, 5, 0x1000]),
        code,
    ]
    .concat()
}

#[cfg(target_arch = "x86_64")]
fn programs_of_32_bits_run_confined() {
    const GETPID: u8 = 20;
    const MOUNT: u8 = 21;
    const SOCKETCALL: u8 = 102;
    check(|world| async move {
        let place = world.dir.path().join("programs");
        fs::create_dir(&place).unwrap();
        for call in [GETPID, MOUNT, SOCKETCALL] {
            let program = place.join(call.to_string());
            fs::write(&program, tiny_program(call)).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        if std::process::Command::new(place.join(GETPID.to_string())).status().is_err() {
            eprintln!("  this kernel runs no programs of 32 bits");
            return;
        }
        let mut config = shell("c", "for call in 20 21 102; do /programs/$call; echo $call $?; done");
        config.mounts.push(cri::Mount::new(&place, "/programs", true));
        let said = output(&world, config).await;
        let lines: Vec<&str> = said.lines().collect();
        // The first tells its own number, negative, in eight bits.
        assert!(lines[0].starts_with("20 2"), "{said}");
        assert_eq!(lines[1..], [format!("21 {}", libc::EPERM), format!("102 {}", libc::ENOSYS)], "{said}");
    });
}

fn a_localhost_profile_decides_on_calls() {
    check(|world| async move {
        let path = world.dir.path().join("profile.json");
        fs::write(
            &path,
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 122},
                {"names": ["close_range"], "action": "SCMP_ACT_ERRNO"},
                {"names": ["chroot"], "action": "SCMP_ACT_ERRNO", "excludes": {"caps": ["CAP_SYS_CHROOT"]}}]}"#,
        )
        .unwrap();
        let sandbox = world.sandbox("a").await;
        let mut config = shell("c", "mkdir /x; chroot / true && echo chroot; echo up; exec sleep 100");
        config.security.seccomp = Seccomp::Localhost(path.clone());
        let id = world.run_with(&sandbox, config.clone()).await;
        world.says(&id, "up").await;
        let output = world.output(&id).await;
        assert!(output.contains("Disk quota exceeded") || output.contains("Quota exceeded"), "{output}");
        assert!(output.contains("chroot\n"), "{output}");
        fs::write(&path, "{}").unwrap();
        let command = ["mkdir", "/y"].map(str::to_owned).to_vec();
        let result = world.engine.exec_sync(&id, command, None).await.unwrap();
        assert_ne!(result.exit_code, 0);
        assert!(String::from_utf8_lossy(&result.stderr).to_lowercase().contains("quota exceeded"), "{result:?}");
        for (text, why) in [("{}", "defaultAction"), ("no json", "decoding profile failed")] {
            fs::write(&path, text).unwrap();
            let refused =
                world.engine.create_container(&sandbox, ContainerConfig { name: "d".into(), ..config.clone() });
            let refused = refused.await.unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        for path in ["", "relative.json"] {
            let mut config = shell("e", "true");
            config.security.seccomp = Seccomp::Localhost(path.into());
            assert!(world.engine.create_container(&sandbox, config).await.is_err(), "{path:?}");
        }
    });
}

fn masked_and_readonly_paths_hold() {
    check(|world| async move {
        let script = "cat /proc/kcore | head -c 1 | grep . && echo kcore; ls /sys/firmware | grep . && echo firmware; \
            echo 1 > /proc/sys/kernel/hostname && echo sys; echo b > /proc/sysrq-trigger && echo sysrq; \
            touch /sys/x && echo sysfs; for c in /sys/fs/cgroup /sys/fs/cgroup/*; do mkdir $c/x && echo cgroup $c; done; \
            for f in memory.max memory/memory.limit_in_bytes; do echo 9000000 > /sys/fs/cgroup/$f && echo $f; done; echo done";
        assert_eq!(
            output(&world, shell("c", script)).await.lines().filter(|line| !line.contains(": ")).collect::<Vec<_>>(),
            ["done"]
        );
        let mut readonly = shell("readonly", "touch /x || echo readonly; touch /dev/shm/x && echo shm");
        readonly.security.readonly_rootfs = true;
        let output = output(&world, readonly).await;
        assert!(output.contains("readonly\n") && output.contains("shm\n"), "{output}");
    });
}

fn no_descriptor_of_the_host_leaks_in() {
    check(|world| async move {
        let output = output(&world, shell("c", "ls -l /proc/1/fd; pwd; ls /proc/1/cwd/")).await;
        let fds: Vec<&str> = output.lines().filter_map(|line| Some(line.split_once(" -> ")?.1)).collect();
        // Standard streams, and nothing else.
        assert_eq!(fds.len(), 3, "{output}");
        assert_eq!(fds[0], "/dev/null", "{output}");
        assert!(fds[1].starts_with("pipe:") && fds[2].starts_with("pipe:"), "{output}");
        assert!(output.contains("\n/\n"), "{output}");
    });
}

fn the_hosts_devices_cannot_be_opened() {
    check(|world| async move {
        let script = "mknod /disk b 254 0; head -c 1 /disk >/dev/null && echo disk; mknod /mem c 1 1; \
            head -c 1 /mem > /dev/null && echo mem; head -c 1 /dev/zero >/dev/null && echo zero; ls /dev";
        let output = output(&world, shell("c", script)).await;
        let said: Vec<&str> = output.lines().filter(|line| !line.contains(": ")).collect();
        assert_eq!(said[0], "zero", "{output}");
        assert!(said.contains(&"null") && !said.contains(&"vda"), "{output}");
    });
}

fn our_binary_cannot_be_written_from_inside() {
    check(|world| async move {
        // CVE-2019-5736: the entry point is our own binary.
        let sandbox = world.sandbox("a").await;
        let before = fs::metadata(&world.config.shim_exe).unwrap();
        let record = world.config.root.join("sandboxes").join(&sandbox.0).join("sandbox.json");
        let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
        let exe = format!("/proc/{}/exe", record["shim_pid"]);
        // Running, it is busy anyway; what counts is that its mount is read-only for ever.
        let flags = nix::sys::statvfs::statvfs(exe.as_str()).unwrap().flags();
        assert!(flags.contains(nix::sys::statvfs::FsFlags::ST_RDONLY), "{flags:?}");
        let config = ContainerConfig { command: vec!["/proc/self/exe".into()], ..shell("c", "") };
        let id = world.create(&sandbox, config).await;
        let _ = world.engine.start_container(&id).await;
        world.exit(&id).await;
        let after = fs::metadata(&world.config.shim_exe).unwrap();
        assert_eq!((before.len(), before.modified().unwrap()), (after.len(), after.modified().unwrap()));
    });
}

fn limits_and_membership_of_the_cgroup_are_real() {
    check(|world| async move {
        let mut config = shell(
            "c",
            "cat /proc/self/cgroup; (sleep 1 & sleep 1 & sleep 1 & sleep 1 & sleep 1 & wait) || true; \
            cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; echo done",
        );
        config.resources =
            Resources { memory_limit_bytes: Some(32 << 20), pids_limit: Some(4), ..Resources::default() };
        let output = output(&world, config).await;
        assert!(output.lines().any(|line| line == (32 << 20).to_string()), "{output}");
        assert!(output.contains("can't fork"), "{output}");
        // A cgroup namespace of its own: its own cgroup is the root it sees (CVE-2023-25809).
        assert!(output.lines().any(|line| line.ends_with("memory:/") || line == "0::/"), "{output}");
    });
}

fn each_container_has_its_own_writable_root() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let (_, first) = world.outcome(&sandbox, "one", "echo mine > /file; rm /bin/plain; ls /bin/plain /file").await;
        assert!(first.contains("/file\n"), "{first}");
        let (_, second) = world.outcome(&sandbox, "two", "ls /file; ls /bin/plain; ls -ld /").await;
        assert!(second.contains("/bin/plain\n") && second.contains("/file: No such file"), "{second}");
        assert!(second.contains("drwxr-xr-x"), "{second}");
    });
}

fn signals_and_their_masks_are_fresh() {
    check(|world| async move {
        let mut config = shell("c", "");
        config.command = vec!["cat".into(), "/proc/self/status".into()];
        let status = output(&world, config).await;
        for set in ["SigBlk", "SigIgn", "SigCgt"] {
            assert_eq!(status_line(&status, set), "0000000000000000", "{set}");
        }
    });
}

fn a_privileged_container_has_everything() {
    check(|world| async move {
        let mut config = shell("c", "mount -t tmpfs x /tmp && echo mounted; cat /proc/self/status");
        config.security.privileged = true;
        let output = output(&world, config).await;
        assert!(output.starts_with("mounted\n"), "{output}");
        assert_eq!(status_line(&output, "Seccomp"), "0");
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(status_line(&output, "CapEff"), status_line(&own, "CapEff"));
    });
}
