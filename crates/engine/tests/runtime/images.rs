//! What images bring besides programs, and containers without overlayfs.

use std::path::Path;

use cri::{ContainerConfig, Mount, Runtime};
use engine::rootfs::Snapshots;

use crate::harness::Case;
use crate::world::{archive_of, archive_of_files, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("image_volumes_are_private_and_begin_as_in_the_image", image_volumes_are_private_and_begin_as_in_the_image),
    ("a_volume_of_the_pod_wins_over_the_images", a_volume_of_the_pod_wins_over_the_images),
    ("without_overlayfs_containers_get_copies", without_overlayfs_containers_get_copies),
    ("layers_stay_while_a_container_stands_on_them", layers_stay_while_a_container_stands_on_them),
    ("lc_315_images_are_mounted_as_volumes", lc_315_images_are_mounted_as_volumes),
    ("lc_074_a_container_shows_a_tag_of_its_image", lc_074_a_container_shows_a_tag_of_its_image),
];

const IMAGE: &str = "docker.io/library/volumes:test";

/// One exists in the image, one does not, one tries to leave.
fn image_with_volumes() -> Vec<u8> {
    archive_of(IMAGE, r#""Volumes":{"/data":{},"/new/place/":{},"/../../outside":{}},"#)
}

fn image_volumes_are_private_and_begin_as_in_the_image() {
    check(|world| async move {
        world.engine.images().import(image_with_volumes().as_slice(), None).unwrap();
        let sandbox = world.sandbox("a").await;
        for name in ["c0", "c1"] {
            let script = "cat /data/seed; echo mine >> /data/seed; touch /new/place/x /outside/x && echo written";
            let mut config = ContainerConfig { image: IMAGE.into(), ..shell(name, script) };
            config.security.readonly_rootfs = true;
            let id = world.run_with(&sandbox, config).await;
            assert_eq!(world.exit(&id).await.exit_code, 0, "{}", world.output(&id).await);
            assert_eq!(world.output(&id).await, "from the image\nwritten\n");
            let volumes = world.config.root.join("sandboxes").join(&sandbox.0).join("containers").join(&id.0);
            assert!(volumes.join("volumes/0/seed").exists());
            world.engine.remove_container(&id).await.unwrap();
            assert!(!volumes.exists(), "volumes go with their container");
        }
        assert!(!Path::new("/outside").exists());
    });
}

fn a_volume_of_the_pod_wins_over_the_images() {
    check(|world| async move {
        world.engine.images().import(image_with_volumes().as_slice(), None).unwrap();
        let sandbox = world.sandbox("a").await;
        let host_path = world.dir.path().join("pod-volume");
        std::fs::create_dir(&host_path).unwrap();
        std::fs::write(host_path.join("own"), "from the pod\n").unwrap();
        let mut config = ContainerConfig { image: IMAGE.into(), ..shell("c", "ls /data; cat /data/own") };
        config.mounts = vec![Mount::new(host_path, "/data/", false)];
        let id = world.run_with(&sandbox, config).await;
        world.exit(&id).await;
        assert_eq!(world.output(&id).await, "own\nfrom the pod\n");
    });
}

fn without_overlayfs_containers_get_copies() {
    check(|mut world| async move {
        world.config.snapshots = Snapshots::Copy;
        let world = world.reopen().await;
        let sandbox = world.sandbox("a").await;
        let script = "grep -c ' / overlay ' /proc/mounts; cat /bin/plain; echo changed > /bin/plain; cat /bin/plain";
        for name in ["c0", "c1"] {
            assert_eq!(world.outcome(&sandbox, name, script).await, (0, "0\ntextchanged\n".into()));
        }
        let mut config = shell("c2", "touch /x 2>/dev/null || echo refused");
        config.security.readonly_rootfs = true;
        let id = world.run_with(&sandbox, config).await;
        world.exit(&id).await;
        assert_eq!(world.output(&id).await, "refused\n");
    });
}

fn layers_stay_while_a_container_stands_on_them() {
    check(|world| async move {
        let layers = || std::fs::read_dir(world.config.root.join("images/layers")).unwrap().count();
        let in_use = || engine::layers_in_use(&world.config.root).unwrap();
        let sandbox = world.sandbox("a").await;
        let id = world.run(&sandbox, "c", "sleep 1000").await;
        assert_eq!(in_use().len(), 1);
        world.engine.remove_image(crate::world::IMAGE).await.unwrap();
        assert_eq!(world.engine.images().list().unwrap(), []);
        assert_eq!(layers(), 1);
        world.engine.remove_container(&id).await.unwrap();
        assert_eq!(in_use(), Vec::<Vec<std::path::PathBuf>>::new());
        world.engine.remove_image(crate::world::IMAGE).await.unwrap();
        assert_eq!(layers(), 0);
    });
}

fn lc_315_images_are_mounted_as_volumes() {
    check(|world| async move {
        let one = archive_of_files("docker.io/library/one:test", &[("model", "small\n")]);
        let two = archive_of_files("docker.io/library/two:test", &[("dir/file", "old\n"), ("dir/file", "new\n")]);
        for archive in [one, two] {
            world.engine.images().import(archive.as_slice(), None).unwrap();
        }
        let image = |name: &str, at: &str, part: Option<&str>| Mount {
            image: Some(name.into()),
            sub_path: part.map(Into::into),
            ..Mount::new("", at, false)
        };
        let sandbox = world.sandbox("a").await;
        let script = "cat /one/model /two/dir/file /part/file; for f in one two part; do touch /$f/x 2>/dev/null || \
            echo no; done; echo done; sleep 1000";
        let mut config = shell("c", script);
        let mounts = [("one:test", "/one", None), ("two:test", "/two", None), ("two:test", "/part", Some("dir"))];
        config.mounts = mounts.iter().map(|(name, at, part)| image(name, at, *part)).collect();
        let id = world.run_with(&sandbox, config).await;
        let said = "small\nnew\nnew\nno\nno\nno\ndone\n";
        world.says(&id, "done").await;
        assert_eq!(world.output(&id).await, said);
        assert!(world.container(&id).await.mounts.iter().all(|mount| mount.readonly && mount.image.is_some()));
        // However often it is mounted, there is one copy of it.
        let merged = world.config.root.join("images/merged");
        assert_eq!(std::fs::read_dir(&merged).unwrap().count(), 1);
        // Nothing is made in what others share.
        for name in ["one:test", "two:test"] {
            let mut config = shell("absent", "true");
            config.mounts = vec![image(name, "/part", Some("dir/absent"))];
            let refused = world.engine.create_container(&sandbox, config).await.unwrap_err().to_string();
            assert!(refused.contains("No such file or directory"), "{refused}");
        }
        let seen =
            world.engine.exec_sync(&id, vec!["ls".into(), "/one".into(), "/two/dir".into()], None).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&seen.stdout), "/one:\nmodel\n\n/two/dir:\nfile\n");
        // They stay as long as it does.
        for name in ["one:test", "two:test"] {
            world.engine.remove_image(name).await.unwrap();
        }
        let again = world.engine.exec_sync(&id, vec!["cat".into(), "/one/model".into()], None).await.unwrap();
        assert_eq!(again.stdout, b"small\n");
        let mut config = shell("late", "true");
        config.mounts = vec![image("one:test", "/one", None)];
        let refused = world.engine.create_container(&sandbox, config).await.unwrap_err().to_string();
        assert_eq!(refused, "failed to mount image volume \"one:test\": not found");
        let sweep = || world.engine.images().sweep(|| Ok(engine::layers_in_use(&world.config.root)?.concat())).unwrap();
        sweep();
        assert_eq!(std::fs::read_dir(&merged).unwrap().count(), 1);
        world.engine.remove_container(&id).await.unwrap();
        sweep();
        assert_eq!(std::fs::read_dir(&merged).unwrap().count(), 0);
    });
}

fn lc_074_a_container_shows_a_tag_of_its_image() {
    check(|world| async move {
        let sandbox = world.sandbox("a").await;
        let id = world.engine.image(crate::world::IMAGE).await.unwrap().unwrap().id;
        let names = ["busybox:test", "docker.io/library/busybox:test", &id, &id["sha256:".len()..][..12]];
        for (number, name) in names.into_iter().enumerate() {
            let mut config = shell(&format!("c{number}"), "true");
            config.image = name.to_owned();
            let container = world.run_with(&sandbox, config).await;
            let container = world.container(&container).await;
            // It came from an archive, so there is no digest in a repository.
            assert_eq!((container.image.as_str(), &container.image_ref), (crate::world::IMAGE, &id));
        }
    });
}
