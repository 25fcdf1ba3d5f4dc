//! A full disk: what cannot be done says so and leaves nothing, what was done
//! holds, and what frees space works.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::{ContainerState, Runtime, SandboxState};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::harness::Case;
use crate::leaks;
use crate::world::{self, World, shell};

pub(crate) const CASES: &[Case] = &[
    ("a_full_disk_refuses_clearly_and_loses_nothing", a_full_disk_refuses_clearly_and_loses_nothing),
    ("a_pod_can_be_removed_from_a_full_disk", a_pod_can_be_removed_from_a_full_disk),
    ("a_disk_that_turns_read_only_is_told_and_comes_back", a_disk_that_turns_read_only_is_told_and_comes_back),
];

/// All of the instance on a disk of its own.
fn check_on_small_disk<F: Future<Output = ()>>(body: impl FnOnce(World) -> F) {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some("size=16m")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = world::config(dir.path(), world::new_number());
    runtime.block_on(async {
        let engine = world::open(&config).await;
        engine.images().import(world::archive().as_slice(), None).unwrap();
        body(World { dir: dir.clone(), config: config.clone(), engine }).await;
    });
    runtime.block_on(world::take_down(&config));
    drop(runtime);
    umount2(dir.path(), MntFlags::MNT_DETACH).unwrap();
}

/// Takes every byte there is.
fn fill(dir: &Path) {
    let mut file = File::create(dir.join("filler")).unwrap();
    let mut piece = vec![b'x'; 1 << 20];
    while !piece.is_empty() {
        if file.write_all(&piece).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
}

const NO_SPACE: &str = "No space left on device";

/// Ends with 5 when stopped and with 7 when told to by USR1.
const OBEDIENT: &str = "trap 'exit 5' TERM; trap 'exit 7' USR1; echo up; while true; do sleep 0.01; done";

fn a_full_disk_refuses_clearly_and_loses_nothing() {
    check_on_small_disk(|world| async move {
        let sandbox = world.sandbox("a").await;
        let stopped = world.run(&sandbox, "stopped", OBEDIENT).await;
        let ended = world.run(&sandbox, "ended", OBEDIENT).await;
        let running = world.run(&sandbox, "running", OBEDIENT).await;
        let waiting = world.create(&sandbox, shell("waiting", "echo late")).await;
        for id in [&stopped, &ended, &running] {
            world.says(id, "up").await;
        }
        fill(world.dir.path());

        // Refused, with the reason, and nothing is left of it.
        let extra = world::archive_of_one_file("docker.io/library/extra:test", 100_000);
        let refused = world.engine.images().import(extra.as_slice(), None).unwrap_err().to_string();
        assert!(refused.contains(NO_SPACE) || refused.contains("no space"), "{refused}");
        let refused = world.engine.run_sandbox(world.sandbox_config("b")).await.unwrap_err().to_string();
        assert!(refused.contains(NO_SPACE), "{refused}");
        let refused = world.engine.create_container(&sandbox, shell("late", "true")).await.unwrap_err().to_string();
        assert!(refused.contains(NO_SPACE), "{refused}");
        let refused = world.engine.start_container(&waiting).await.unwrap_err().to_string();
        assert!(refused.contains(NO_SPACE), "{refused}");
        leaks::exact(&world.config, &world.engine).await;

        // Ends are recorded all the same, with their codes.
        world.engine.exec_sync(&ended, vec!["kill".into(), "-USR1".into(), "1".into()], None).await.unwrap();
        assert_eq!(world.exit(&ended).await.exit_code, 7);
        world.engine.stop_container(&stopped, Duration::from_secs(30)).await.unwrap();
        let world = world.reopen().await;
        assert_eq!(world.container(&ended).await.exit_code, 7);
        assert_eq!(world.container(&stopped).await.exit_code, 5);
        assert_eq!(world.container(&running).await.state, ContainerState::Running);
        assert_eq!(world.container(&waiting).await.state, ContainerState::Created);
        leaks::exact(&world.config, &world.engine).await;

        // Room again: everything goes on.
        fs::remove_file(world.dir.path().join("filler")).unwrap();
        world.engine.start_container(&waiting).await.unwrap();
        assert_eq!(world.exit(&waiting).await.exit_code, 0);
        world.engine.images().import(extra.as_slice(), None).unwrap();
        let other = world.sandbox("b").await;
        assert_eq!(world.outcome(&other, "late", "echo fine").await, (0, "fine\n".into()));
    });
}

fn a_pod_can_be_removed_from_a_full_disk() {
    check_on_small_disk(|world| async move {
        let sandbox = world.sandbox("a").await;
        let running = world.run(&sandbox, "running", OBEDIENT).await;
        world.says(&running, "up").await;
        world.create(&sandbox, shell("waiting", "echo never")).await;
        let lost = world.sandbox("lost").await;
        let unknown = world.run(&lost, "unknown", OBEDIENT).await;
        fill(world.dir.path());
        nix::sys::signal::kill(crate::restart::shim_pid(&world, &lost), nix::sys::signal::Signal::SIGKILL).unwrap();
        assert_eq!(world.exit(&unknown).await.state, ContainerState::Unknown);
        world.engine.stop_sandbox(&sandbox).await.unwrap();
        assert_eq!(world.container(&running).await.exit_code, 137);
        // The same again after a restart, on a disk that is still full.
        fill(world.dir.path());
        let world = world.reopen().await;
        let states: Vec<_> = world.engine.sandboxes(None).await.unwrap().iter().map(|sandbox| sandbox.state).collect();
        assert_eq!(states, [SandboxState::NotReady, SandboxState::NotReady]);
        assert_eq!(world.container(&running).await.exit_code, 137);
        assert_eq!(world.container(&unknown).await.state, ContainerState::Unknown);
        fill(world.dir.path());
        world.engine.remove_sandbox(&sandbox).await.unwrap();
        world.engine.remove_sandbox(&lost).await.unwrap();
        assert_eq!(world.engine.sandboxes(None).await.unwrap(), []);
        leaks::exact(&world.config, &world.engine).await;
    });
}

/// As the kernel does to a file system with errors. Files that are open for
/// writing would forbid it from outside, so a read-only view is laid over it.
struct ReadOnly(std::path::PathBuf);

impl ReadOnly {
    fn lay_over(dir: &Path) -> ReadOnly {
        let again = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(Some(dir), dir, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
        mount(None::<&str>, dir, None::<&str>, again, None::<&str>).unwrap();
        ReadOnly(dir.to_owned())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

fn a_disk_that_turns_read_only_is_told_and_comes_back() {
    check_on_small_disk(|world| async move {
        const READ_ONLY: &str = "Read-only file system";
        let sandbox = world.sandbox("a").await;
        let running = world.run(&sandbox, "running", OBEDIENT).await;
        let waiting = world.create(&sandbox, shell("waiting", "echo late")).await;
        let stopped = world.run(&sandbox, "stopped", OBEDIENT).await;
        world.says(&running, "up").await;
        world.says(&stopped, "up").await;
        let view = ReadOnly::lay_over(&world.config.root);

        // What would have to be remembered is refused, with the reason.
        let extra = world::archive_of_one_file("docker.io/library/extra:test", 1000);
        let engine = &world.engine;
        let refused = [
            engine.images().import(extra.as_slice(), None).unwrap_err().to_string(),
            engine.remove_image(world::IMAGE).await.unwrap_err().to_string(),
            engine.run_sandbox(world.sandbox_config("b")).await.unwrap_err().to_string(),
            engine.create_container(&sandbox, shell("late", "true")).await.unwrap_err().to_string(),
        ];
        for complaint in refused {
            assert!(complaint.contains(READ_ONLY), "{complaint}");
        }
        // What runs goes on, and can be looked into.
        assert_eq!(engine.sandboxes(None).await.unwrap().len(), 1);
        let done = engine.exec_sync(&running, vec!["echo".into(), "fine".into()], None).await;
        assert!(done.is_ok() || done.as_ref().is_err_and(|error| error.to_string().contains(READ_ONLY)), "{done:?}");

        // An end is told when it is recorded, which it cannot be yet.
        let stopping = {
            let (engine, id) = (world.engine.clone(), stopped.clone());
            tokio::spawn(async move { engine.stop_container(&id, Duration::from_secs(30)).await })
        };

        // Back again: everything goes on.
        drop(view);
        stopping.await.unwrap().unwrap();
        assert_eq!(world.exit(&stopped).await.exit_code, 5);
        assert_eq!(engine.sandboxes(Some("a")).await.unwrap()[0].state, SandboxState::Ready);
        assert_eq!(world.container(&running).await.state, ContainerState::Running);
        world.engine.start_container(&waiting).await.unwrap();
        assert_eq!(world.exit(&waiting).await.exit_code, 0);
        assert_eq!(world.outcome(&sandbox, "late", "echo fine").await, (0, "fine\n".into()));
        let other = world.sandbox("b").await;
        assert_eq!(world.outcome(&other, "more", "echo fine").await, (0, "fine\n".into()));
        leaks::exact(&world.config, &world.engine).await;
    });
}
