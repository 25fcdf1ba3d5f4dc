//! Which mounts are seen on the other side, and what stays read-only.

use std::fs;
use std::path::{Path, PathBuf};

use cri::{CriError, Mount, Propagation, Runtime};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::harness::Case;
use crate::world::{World, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("a_private_volume_sees_no_later_mount", a_private_volume_sees_no_later_mount),
    ("a_volume_that_follows_sees_later_mounts_of_the_node", a_volume_that_follows_sees_later_mounts_of_the_node),
    ("a_bidirectional_volume_shows_mounts_to_the_node", a_bidirectional_volume_shows_mounts_to_the_node),
    ("nothing_travels_over_a_private_mount", nothing_travels_over_a_private_mount),
    ("read_only_holds_below_only_if_asked", read_only_holds_below_only_if_asked),
];

/// A file system of the test's own that tells others of what is mounted in it.
struct SharedMount(PathBuf);

impl SharedMount {
    fn new(world: &World) -> Self {
        let dir = world.dir.path().join("shared");
        fs::create_dir(&dir).unwrap();
        tmpfs(&dir);
        mount(None::<&str>, &dir, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
        fs::create_dir(dir.join("inner")).unwrap();
        Self(dir)
    }

    fn inner(&self) -> PathBuf {
        self.0.join("inner")
    }

    fn volume(&self, propagation: Propagation) -> Mount {
        Mount { propagation, ..Mount::new(&self.0, "/data", false) }
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        while umount2(&self.inner(), MntFlags::MNT_DETACH).is_ok() {}
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn tmpfs(at: &Path) {
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
}

/// What the container sees in the inner directory after the node mounts there.
async fn seen_after_a_mount(world: &World, shared: &SharedMount, propagation: Propagation) -> String {
    let sandbox = world.sandbox("a").await;
    let mut config = shell("c", "echo up; while ! [ -e /tmp/go/on ]; do sleep 0.01; done; ls /data/inner; echo over");
    let go = world.dir.path().join("go");
    fs::create_dir(&go).unwrap();
    config.mounts = vec![shared.volume(propagation), Mount::new(&go, "/tmp/go", false)];
    let id = world.run_with(&sandbox, config).await;
    world.says(&id, "up").await;
    tmpfs(&shared.inner());
    fs::write(shared.inner().join("later"), "").unwrap();
    fs::write(go.join("on"), "").unwrap();
    world.exit(&id).await;
    world.output(&id).await
}

fn a_private_volume_sees_no_later_mount() {
    check(|world| async move {
        let shared = SharedMount::new(&world);
        assert_eq!(seen_after_a_mount(&world, &shared, Propagation::Private).await, "up\nover\n");
    });
}

fn a_volume_that_follows_sees_later_mounts_of_the_node() {
    check(|world| async move {
        let shared = SharedMount::new(&world);
        assert_eq!(seen_after_a_mount(&world, &shared, Propagation::HostToContainer).await, "up\nlater\nover\n");
    });
}

fn a_bidirectional_volume_shows_mounts_to_the_node() {
    check(|world| async move {
        let shared = SharedMount::new(&world);
        let sandbox = world.sandbox("a").await;
        let script = "mount -t tmpfs x /data/inner && touch /data/inner/made && echo mounted; \
            while ! [ -e /data/inner/seen ]; do sleep 0.01; done; echo seen";
        for (name, propagation, travels) in
            [("follows", Propagation::HostToContainer, false), ("both", Propagation::Bidirectional, true)]
        {
            let mut config = shell(name, script);
            config.security.privileged = true;
            config.mounts = vec![shared.volume(propagation)];
            let id = world.run_with(&sandbox, config).await;
            world.says(&id, "mounted").await;
            assert_eq!(shared.inner().join("made").exists(), travels, "{name}");
            if travels {
                // And the way back: it is one file system.
                fs::write(shared.inner().join("seen"), "").unwrap();
                world.says(&id, "seen").await;
            }
            world.engine.remove_container(&id).await.unwrap();
        }
    });
}

fn nothing_travels_over_a_private_mount() {
    check(|world| async move {
        let volume = world.dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        let sandbox = world.sandbox("a").await;
        for (propagation, lacks) in [
            (Propagation::HostToContainer, "is not a shared or slave mount"),
            (Propagation::Bidirectional, "is not a shared mount"),
        ] {
            let mut config = shell("c", "true");
            config.security.privileged = true;
            config.mounts = vec![Mount { propagation, ..Mount::new(&volume, "/data", false) }];
            let refused = world.engine.create_container(&sandbox, config).await;
            assert!(matches!(&refused, Err(CriError::Failed(why)) if why.contains(lacks)), "{refused:?}");
        }
    });
}

fn read_only_holds_below_only_if_asked() {
    check(|world| async move {
        let shared = SharedMount::new(&world);
        tmpfs(&shared.inner());
        let sandbox = world.sandbox("a").await;
        let script = "touch /data/x && echo outer; touch /data/inner/x && echo inner; echo over";
        for (name, recursive_readonly, said) in [("flat", false, "inner\nover\n"), ("deep", true, "over\n")] {
            let mut config = shell(name, script);
            let volume = Mount { readonly: true, recursive_readonly, ..shared.volume(Propagation::Private) };
            config.mounts = vec![volume];
            assert_eq!(world.answers(&sandbox, config).await, said, "{name}");
        }
        // The node's own view is as writable as before.
        fs::write(shared.inner().join("node"), "").unwrap();
    });
}
