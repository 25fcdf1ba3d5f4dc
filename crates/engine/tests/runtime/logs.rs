//! Container logs: rotation, floods, full disks; and what containers tell of themselves.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cri::{ContainerId, LogLimits, ProcessUser, Runtime, SandboxId};
use nix::mount::{MsFlags, mount, umount};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("lc_088_a_rotated_log_loses_no_line", lc_088_a_rotated_log_loses_no_line),
    ("a_flood_fills_only_its_own_share_of_the_disk", a_flood_fills_only_its_own_share_of_the_disk),
    ("a_log_can_be_rotated_by_others", a_log_can_be_rotated_by_others),
    ("a_full_disk_costs_lines_but_no_container", a_full_disk_costs_lines_but_no_container),
    ("lc_083_lc_084_user_and_stop_signal_are_told", lc_083_lc_084_user_and_stop_signal_are_told),
];

const LIMIT: Duration = Duration::from_secs(20);

/// Every file of a log in order of age, the current one last.
async fn files(world: &World, id: &ContainerId) -> Vec<(u64, Vec<String>)> {
    let current = world.container(id).await.log_path;
    let mut paths: Vec<_> =
        fs::read_dir(current.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort_by_key(|path| (*path == current, path.clone()));
    let read = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap().to_owned()).collect();
        (fs::metadata(path).unwrap().len(), lines)
    };
    paths.iter().map(read).collect()
}

async fn counted(world: &World, limits: LogLimits, lines: u32) -> Vec<(u64, Vec<String>)> {
    let mut config = world.sandbox_config("a");
    config.log_limits = limits;
    let sandbox = world.engine.run_sandbox(config).await.unwrap();
    let id = world.run(&sandbox, "c", &format!("seq 1 {lines}")).await;
    assert_eq!(world.exit(&id).await.exit_code, 0);
    files(world, &id).await
}

fn lc_088_a_rotated_log_loses_no_line() {
    check(|world| async move {
        let files = counted(&world, LogLimits { file_bytes_max: 100_000, files_max: 1000 }, 20_000).await;
        assert!(files.len() > 5, "{}", files.len());
        let said: Vec<String> = files.into_iter().flat_map(|(_, lines)| lines).collect();
        assert_eq!(said.len(), 20_000);
        assert!((1..).zip(&said).all(|(number, line): (u32, _)| number.to_string() == *line));
    });
}

fn a_flood_fills_only_its_own_share_of_the_disk() {
    check(|world| async move {
        let limits = LogLimits { file_bytes_max: 100_000, files_max: 3 };
        let files = counted(&world, limits, 50_000).await;
        assert_eq!(files.len(), 3);
        // A file is full when it has reached its limit; what is written at once may go beyond.
        assert!(files.iter().all(|(length, _)| *length < limits.file_bytes_max + 64 * 1024));
        let kept: Vec<u32> = files.into_iter().flat_map(|(_, lines)| lines).map(|line| line.parse().unwrap()).collect();
        let first = 50_001 - u32::try_from(kept.len()).unwrap();
        assert!(kept.iter().copied().eq(first..=50_000), "the last ones, all of them: {} from {}", kept.len(), kept[0]);
        // Nor does it keep the pod's monitor from serving others.
        let sandbox = world.sandbox("b").await;
        let quiet = world.run(&sandbox, "quiet", "exec sleep 1000").await;
        let before = private_bytes(&world, &sandbox);
        // The shortest lines: in the log they are forty times as long. And one without end.
        let short = world.run(&sandbox, "short", "yes ''").await;
        let long = world.run(&sandbox, "long", "cat /dev/zero").await;
        for number in 0..10 {
            let other = format!("other{number}");
            assert_eq!(world.outcome(&sandbox, &other, "echo fine").await, (0, "fine\n".into()));
        }
        let grown = private_bytes(&world, &sandbox).saturating_sub(before);
        assert!(grown < 1 << 20, "the monitor grew by {grown} bytes");
        for id in [&short, &long, &quiet] {
            world.engine.stop_container(id, Duration::ZERO).await.unwrap();
        }
    });
}

/// Memory of a sandbox's monitor that is nobody else's.
fn private_bytes(world: &World, sandbox: &SandboxId) -> u64 {
    let pid = crate::restart::shim_pid(world, sandbox);
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn a_log_can_be_rotated_by_others() {
    check(|world| async move {
        let id = world.forever("a").await;
        let path = world.container(&id).await.log_path;
        let script =
            "trap 'exit 0' TERM; echo before; until [ -e /tmp/go ]; do sleep 0.01; done; echo after; sleep 1000";
        let chatty = world.run(&world.container(&id).await.sandbox, "chatty", script).await;
        world.says(&chatty, "before").await;
        let path = path.parent().unwrap().parent().unwrap().join("chatty/0.log");
        let old = path.with_extension("old");
        fs::rename(&path, &old).unwrap();
        world.engine.reopen_log(&chatty).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        assert_eq!(world.exec(&chatty, "touch /tmp/go").await.0, 0);
        world.says(&chatty, "after").await;
        assert_eq!(fs::read_to_string(&old).unwrap().lines().count(), 1);
        world.engine.stop_container(&chatty, Duration::ZERO).await.unwrap();
        assert!(world.engine.reopen_log(&chatty).await.is_err(), "nobody writes it any more");
    });
}

fn a_full_disk_costs_lines_but_no_container() {
    check(|world| async move {
        let config = world.sandbox_config("a");
        let logs = config.log_directory.clone();
        fs::create_dir_all(&logs).unwrap();
        mount(Some("tmpfs"), &logs, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
        let sandbox = world.engine.run_sandbox(config).await.unwrap();
        let script = "seq 1 20000; touch /tmp/said; until [ -e /tmp/go ]; do sleep 0.01; done; echo after; sleep 1000";
        let id = world.run(&sandbox, "c", script).await;
        world.until_true(&id, "[ -e /tmp/said ]").await;
        let said = complaint(&world, &sandbox.0, "output is lost").await;
        assert_eq!(said.matches("output is lost").count(), 1, "once: {said}");
        let path = world.container(&id).await.log_path;
        let kept = fs::read_to_string(&path).unwrap();
        assert!(kept.ends_with('\n') && kept.lines().all(|line| line.splitn(4, ' ').count() == 4), "whole lines");
        // Room again.
        mount(None::<&str>, &logs, None::<&str>, MsFlags::MS_REMOUNT, Some("size=10m")).unwrap();
        assert_eq!(world.exec(&id, "touch /tmp/go").await.0, 0);
        world.says(&id, "after").await;
        world.engine.remove_sandbox(&sandbox).await.unwrap();
        umount(&logs).unwrap();
    });
}

/// Waits until the monitor has said this; all it has said.
async fn complaint(world: &World, sandbox: &str, text: &str) -> String {
    let path: &Path = &world.config.run_dir.join("shims").join(sandbox).join("shim.log");
    let started = Instant::now();
    loop {
        let said = fs::read_to_string(path).unwrap();
        if said.contains(text) {
            return said;
        }
        assert!(started.elapsed() < LIMIT, "{text:?} was never said: {said}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn lc_083_lc_084_user_and_stop_signal_are_told() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let mut config = shell("c", "exec sleep 1000");
        config.security.run_as_user = Some(33);
        config.security.supplemental_groups = vec![4242];
        config.stop_signal = Some("SIGRTMIN+3".into());
        let id = world.create(&sandbox, config).await;
        let plain = world.run(&sandbox, "plain", "exit 0").await;
        world.exit(&plain).await;
        assert_eq!(world.container(&id).await.user, None, "nobody yet");
        world.engine.start_container(&id).await.unwrap();
        let groups = vec![7, 34, 4242];
        let user = Some(ProcessUser { uid: 33, gid: 34, supplemental_groups: groups });
        let root = Some(ProcessUser { uid: 0, gid: 0, supplemental_groups: vec![0] });
        let world = world.reopen().await;
        let (container, plain) = (world.container(&id).await, world.container(&plain).await);
        assert_eq!((container.user, container.stop_signal), (user, Some("SIGRTMIN+3".into())));
        assert_eq!((plain.user, plain.stop_signal), (root, Some("SIGTERM".into())));
    });
}
