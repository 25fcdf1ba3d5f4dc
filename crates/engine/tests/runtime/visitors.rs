//! What containers see of us while we make their neighbours or join them, and
//! what they can do to the node through what we give them (security.md B5).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use cri::{ContainerConfig, ContainerId, ContainerState, CriError, IdRange, NamespaceMode, Runtime, SandboxId};

use crate::harness::Case;
use crate::world::{World, archive_of, archive_with_passwd, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("a_neighbour_that_is_being_made_shows_nothing_of_the_node", a_neighbour_that_is_being_made_shows_nothing),
    ("a_debugger_that_is_being_made_shows_nothing_of_the_node", a_debugger_that_is_being_made_shows_nothing),
    ("a_command_that_joins_shows_nothing_of_the_node", a_command_that_joins_shows_nothing),
    ("a_debugger_is_refused_a_proc_that_is_not_its_targets", a_debugger_is_refused_a_proc_that_is_not_its_targets),
    ("a_container_changes_no_device_of_the_node", a_container_changes_no_device_of_the_node),
    ("lc_316_who_must_not_be_root_is_not", lc_316_who_must_not_be_root_is_not),
];

/// Watches, from the node, what becomes visible in the PID namespace of a
/// container, as fast as it can: a process there that still has the node's
/// root, a capability its containers lack, or, before its program runs, a
/// descriptor beyond its streams and the one that it waits on.
struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<(BTreeSet<String>, BTreeSet<u32>)>,
}

const SYS_ADMIN: u64 = 1 << 21;
/// Streams, and what says when to start and how that went.
const DESCRIPTORS_MAX: usize = 4;

impl Watch {
    /// `secret` is a file of the node that no container has.
    fn over(namespace: String, secret: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (is_over, secret) = (over.clone(), secret.strip_prefix("/").unwrap().to_owned());
        let thread = std::thread::spawn(move || {
            let (mut seen, mut met) = (BTreeSet::new(), BTreeSet::new());
            while !is_over.load(Ordering::Relaxed) {
                for pid in fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok())
                {
                    look(pid, &namespace, &secret, &mut seen, &mut met);
                }
            }
            (seen, met)
        });
        Watch { over, thread }
    }

    /// How many processes it has met.
    fn end(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        let (seen, met) = self.thread.join().unwrap();
        assert_eq!(seen, BTreeSet::new());
        met.len()
    }
}

fn look(pid: u32, namespace: &str, secret: &Path, seen: &mut BTreeSet<String>, met: &mut BTreeSet<u32>) {
    let proc = Path::new("/proc").join(pid.to_string());
    if fs::read_link(proc.join("ns/pid")).ok().as_deref() != Some(Path::new(namespace)) {
        return;
    }
    met.insert(pid);
    if proc.join("root").join(secret).exists() {
        seen.insert("the node's root".into());
    }
    let Ok(status) = fs::read_to_string(proc.join("status")) else { return };
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap_or("0");
    if u64::from_str_radix(capabilities, 16).unwrap() & SYS_ADMIN != 0 {
        seen.insert("CAP_SYS_ADMIN".into());
    }
    if !status.contains("Seccomp:\t2") {
        seen.insert("no filter".into());
    }
    for entry in fs::read_dir(proc.join("fd")).into_iter().flatten().flatten() {
        let number: usize = entry.file_name().to_str().unwrap().parse().unwrap();
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        // The shim's own are files, sockets that listen, signals.
        if target.contains("signalfd") || target.ends_with("shim.log") || target.ends_with(".log") {
            seen.insert(format!("{number} -> {target}"));
        }
    }
    let targets = fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
    let open: Vec<_> = targets.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    // Programs of containers open what they like: this one has not run yet.
    let is_ours = fs::read_link(proc.join("exe")).is_ok_and(|program| !program.ends_with("busybox"));
    if is_ours && open.len() > DESCRIPTORS_MAX {
        seen.insert(format!("{} descriptors: {open:?}", open.len()));
    }
}

fn secret(world: &World) -> std::path::PathBuf {
    let secret = world.dir.path().join("secret");
    fs::write(&secret, "secret\n").unwrap();
    secret
}

/// The PID namespace of a running container, as `/proc` names it.
async fn namespace(world: &World, id: &ContainerId) -> String {
    world.exec(id, "readlink /proc/self/ns/pid").await.1.trim().to_owned()
}

async fn shared(world: &World, users: Option<IdRange>) -> SandboxId {
    let mut config = world.sandbox_config(if users.is_some() { "u" } else { "a" });
    config.pid = NamespaceMode::Pod;
    config.user_namespace = users;
    world.engine.run_sandbox(config).await.unwrap()
}

fn a_neighbour_that_is_being_made_shows_nothing() {
    check(|world| async move {
        let secret = secret(&world);
        for users in [None, Some(IdRange { first: 1 << 20, length: 1 << 16 })] {
            let sandbox = shared(&world, users).await;
            let first = world.run(&sandbox, "first", "exec sleep 1000").await;
            let watch = Watch::over(namespace(&world, &first).await, &secret);
            for number in 0..15 {
                let mut config = shell(&format!("n{number}"), "cat /proc/1/status | head -n 1; grep -c . /proc/mounts");
                config.tty = number % 3 == 0;
                config.security.run_as_user = (number % 2 == 0).then_some(33);
                config.security.no_new_privileges = number % 4 < 2;
                let id = world.run_with(&sandbox, config).await;
                assert_eq!(world.exit(&id).await.exit_code, 0, "{}", world.output(&id).await);
            }
            assert!(watch.end() > 3);
        }
    });
}

fn a_debugger_that_is_being_made_shows_nothing() {
    check(|world| async move {
        let secret = secret(&world);
        let sandbox = world.sandbox("a").await;
        let target = world.run(&sandbox, "target", "exec sleep 1000").await;
        let watch = Watch::over(namespace(&world, &target).await, &secret);
        for number in 0..15 {
            let mut config = shell(&format!("n{number}"), "ps -o args | grep -q 'sleep 100[0]' && echo found");
            config.tty = number % 3 == 0;
            config.security.pid_of = Some(target.clone());
            let id = world.run_with(&sandbox, config).await;
            world.exit(&id).await;
            assert_eq!(world.output(&id).await.trim(), "found");
        }
        assert!(watch.end() > 3);
    });
}

fn a_command_that_joins_shows_nothing() {
    check(|world| async move {
        let secret = secret(&world);
        for users in [None, Some(IdRange { first: 1 << 20, length: 1 << 16 })] {
            let mut config = world.sandbox_config(if users.is_some() { "u" } else { "a" });
            config.user_namespace = users;
            let sandbox = world.engine.run_sandbox(config).await.unwrap();
            let id = world.run(&sandbox, "c", "exec sleep 1000").await;
            let watch = Watch::over(namespace(&world, &id).await, &secret);
            for _ in 0..40 {
                assert_eq!(world.exec(&id, "exit 7").await.0, 7);
            }
            // Process 1, and some of those that came.
            assert!(watch.end() > 3);
        }
    });
}

/// A target with power over mounts shows another `/proc` than its own.
fn a_debugger_is_refused_a_proc_that_is_not_its_targets() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut config = shell("target", "umount -l /proc; mount -t tmpfs none /proc; echo ready; exec sleep 1000");
        config.security.privileged = true;
        let target = world.run_with(&sandbox, config).await;
        world.says(&target, "ready").await;
        let mut debugger = shell("debugger", "true");
        debugger.security.pid_of = Some(target.clone());
        let refused = world.engine.create_container(&sandbox, debugger).await.unwrap_err();
        assert!(refused.to_string().contains("/proc is not its own"), "{refused}");
        assert_eq!(world.container(&target).await.state, ContainerState::Running);
    });
}

/// A device of the node, which stays as it is also where a container changes it.
struct Device {
    path: &'static str,
    was: fs::Metadata,
}

impl Device {
    fn new(path: &'static str) -> Self {
        Device { path, was: fs::metadata(path).unwrap() }
    }

    fn assert_unchanged(&self) {
        let seen = |file: &fs::Metadata| (file.mode(), file.uid(), file.gid(), file.mtime(), file.mtime_nsec());
        assert_eq!(seen(&fs::metadata(self.path).unwrap()), seen(&self.was), "{}", self.path);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::os::unix::fs::chown(self.path, Some(self.was.uid()), Some(self.was.gid()));
        let _ = fs::set_permissions(self.path, self.was.permissions());
    }
}

/// Through what hides files, and through the streams of processes.
fn a_container_changes_no_device_of_the_node() {
    const CHANGE: &str = "chmod 600 $f; chown 7:7 $f; touch $f";
    check(|world| async move {
        let devices = ["/dev/null", "/dev/zero", "/dev/urandom"].map(Device::new);
        let masked = "/proc/kcore /proc/keys /proc/timer_list /proc/latency_stats /proc/interrupts /proc/sched_debug";
        let streams = "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /dev/stdin";
        let own = "/dev/null /dev/zero /dev/urandom";
        let script = format!("for f in {masked} {streams} {own}; do {CHANGE}; done; echo ready; exec sleep 1000");
        for (uid, pid, users) in [
            ("a", NamespaceMode::Container, None),
            ("b", NamespaceMode::Pod, None),
            ("c", NamespaceMode::Container, Some(IdRange { first: 1 << 20, length: 1 << 16 })),
        ] {
            let mut config = world.sandbox_config(uid);
            (config.pid, config.user_namespace) = (pid, users);
            let sandbox = world.engine.run_sandbox(config).await.unwrap();
            let mut config = shell("c", &script);
            config.security.capabilities_add = vec!["SYS_PTRACE".into()];
            let id = world.run_with(&sandbox, config).await;
            world.says(&id, "ready").await;
            // Its masks stay as they are, and hide what they hid.
            let look = "cat /proc/keys /proc/timer_list; echo x > /proc/keys; [ -w /proc/self/fd/0 ] && echo same";
            assert_eq!(world.exec(&id, look).await.1, "same\n");
            // A command is given nothing of the node either, nor is process 1 of a pod.
            let all = "/proc/self/fd/0 /proc/1/fd/0 /proc/1/fd/1 /proc/1/fd/2";
            world.exec(&id, &format!("for f in {all}; do {CHANGE}; done < /proc/self/fd/0")).await;
        }
        devices.iter().for_each(Device::assert_unchanged);
    });
}

fn lc_316_who_must_not_be_root_is_not() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let passwd = "1000:x:0:0::/root:/bin/sh\n4294967295:x:0:0::/root:/bin/sh\nweb:x:33:34::/:/bin/sh\n";
        let mut outcomes = Vec::new();
        for (number, user) in
            ["1000", "4294967295", "4294967296", "0", "00", "", "web", "33:1000"].into_iter().enumerate()
        {
            let image = format!("docker.io/library/user:{number}");
            let archive = archive_with_passwd(&image, &format!("\"User\":\"{user}\","), passwd);
            world.engine.images().import(archive.as_slice(), None).unwrap();
            let mut config = ContainerConfig { image, ..shell(&format!("c{number}"), "id -u; exec sleep 1000") };
            config.security.run_as_non_root = true;
            let outcome = match world.engine.create_container(&sandbox, config).await {
                Ok(id) => {
                    world.engine.start_container(&id).await.unwrap();
                    world.until_true(&id, "true").await;
                    world.exec(&id, "id -u").await.1.trim().to_owned()
                }
                Err(CriError::Failed(why)) if why.contains("image will run as root") => "root".to_owned(),
                Err(CriError::Failed(why)) if why.contains("unable to find user") => "unknown".to_owned(),
                Err(other) => panic!("{other}"),
            };
            outcomes.push((user, outcome));
        }
        let outcomes: Vec<(&str, &str)> = outcomes.iter().map(|(user, outcome)| (*user, outcome.as_str())).collect();
        let expected = [
            ("1000", "1000"),
            ("4294967295", "unknown"),
            ("4294967296", "unknown"),
            ("0", "root"),
            ("00", "root"),
            ("", "root"),
            ("web", "33"),
            ("33:1000", "33"),
        ];
        assert_eq!(outcomes, expected);
        // Without the demand root is root, as ever.
        let archive = archive_of("docker.io/library/user:root", "\"User\":\"root\",");
        world.engine.images().import(archive.as_slice(), None).unwrap();
        let config = ContainerConfig { image: "docker.io/library/user:root".into(), ..shell("root", "id -u") };
        assert_eq!(world.answers(&sandbox, config).await, "0\n");
    });
}
