//! Images whose links and words lead to the node: neither we nor the container
//! follow them there (security.md B5).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cri::{ContainerConfig, Mount, Runtime};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::stat::Mode;

use crate::harness::Case;
use crate::world::{World, archive_of, archive_with, check, shell};

pub(crate) const CASES: &[Case] = &[
    ("files_of_ours_are_not_put_where_links_lead", files_of_ours_are_not_put_where_links_lead),
    ("what_hides_files_is_not_taken_from_the_container", what_hides_files_is_not_taken_from_the_container),
    ("a_console_that_is_a_link_or_a_pipe_misleads_nobody", a_console_that_is_a_link_or_a_pipe_misleads_nobody),
    ("a_working_directory_that_is_a_link_stays_inside", a_working_directory_that_is_a_link_stays_inside),
    ("a_declared_volume_that_is_a_link_shows_nothing_of_the_node", a_declared_volume_that_is_a_link_shows_nothing),
    ("labels_of_an_image_do_nothing_on_the_node", labels_of_an_image_do_nothing_on_the_node),
    ("a_log_stays_in_the_directory_of_its_pod", a_log_stays_in_the_directory_of_its_pod),
    ("lc_316_a_second_start_is_as_the_first", lc_316_a_second_start_is_as_the_first),
];

/// A directory of the node with one file in it, which stay as they are.
struct Target {
    dir: PathBuf,
}

const CONTENT: &str = "of the node\n";

impl Target {
    fn new(world: &World) -> Self {
        let dir = world.dir.path().join("target");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("there"), CONTENT).unwrap();
        Target { dir }
    }

    /// By its name, and by climbing out of wherever one is.
    fn links(&self, name: &str) -> [String; 2] {
        let path = self.dir.join(name).display().to_string();
        [path.clone(), format!("{}{path}", "../".repeat(20))]
    }

    fn assert_unchanged(&self, what: &str) {
        let names: Vec<_> = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["there"], "{what}");
        assert_eq!(fs::read_to_string(self.dir.join("there")).unwrap(), CONTENT, "{what}");
    }
}

fn import(world: &World, name: &str, more: &str, links: &[(&str, &str)]) -> String {
    let image = format!("docker.io/library/hostile:{name}");
    world.engine.images().import(archive_with(&image, more, links).as_slice(), None).unwrap();
    image
}

/// CVE-2024-5154: the files that every container is given.
fn files_of_ours_are_not_put_where_links_lead() {
    check(|world| async move {
        let target = Target::new(&world);
        let message = world.dir.path().join("message");
        fs::write(&message, "").unwrap();
        let sandbox = world.sandbox("a").await;
        for (kind, name) in [("there", "there"), ("missing", "new")] {
            for (number, link) in target.links(name).iter().enumerate() {
                let other = format!("{link}-etc");
                let usual = ["etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"].map(|place| (place, &*other));
                let links = [&usual[..], &[("message", link)]].concat();
                let image = import(&world, &format!("{kind}{number}"), "", &links);
                let mut config = shell(&format!("{kind}{number}"), "cat /etc/hosts; echo x > /message; echo over");
                config.image = image;
                config.mounts = vec![Mount::new(&message, "/message", false)];
                let said = world.answers(&sandbox, config).await;
                assert!(said.ends_with("over\n") && !said.contains(CONTENT), "{link}: {said}");
                target.assert_unchanged(link);
                assert_eq!(fs::read_to_string(&message).unwrap(), "x\n", "{link}");
                fs::write(&message, "").unwrap();
            }
        }
    });
}

/// CVE-2025-31133: a `/dev` of the container's own, where `null` is a setting of the kernel.
fn what_hides_files_is_not_taken_from_the_container() {
    check(|world| async move {
        let setting = "/proc/sys/kernel/core_pattern";
        let before = fs::read_to_string(setting).unwrap();
        let volume = world.dir.path().join("volume");
        fs::create_dir(&volume).unwrap();
        for name in ["null", "zero", "full", "blank", "file", "directory"] {
            symlink(setting, volume.join(name)).unwrap();
        }
        let script = format!(
            "for f in /proc/keys /proc/timer_list /proc/kcore /proc/interrupts; do [ -e $f ] || continue; \
             echo '|/x' > $f; head -c 1 $f | grep -q . && echo $f shown; done; \
             ls -A /sys/firmware /proc/scsi | grep -v : | grep . && echo listed; \
             echo '|/x' > {setting} && echo set; echo over"
        );
        let sandbox = world.sandbox("a").await;
        let mut config = shell("c", &script);
        config.mounts = vec![Mount::new(&volume, "/dev", false)];
        assert_eq!(world.answers(&sandbox, config).await, "over\n");
        assert_eq!(fs::read_to_string(setting).unwrap(), before);
    });
}

/// CVE-2025-52565: the volumes of a pod are its `/dev`, and terminals work there.
/// Whoever opens a pipe to see what it is waits for ever.
fn a_console_that_is_a_link_or_a_pipe_misleads_nobody() {
    check(|world| async move {
        let setting = "/proc/sys/kernel/core_pattern";
        let before = fs::read_to_string(setting).unwrap();
        let target = Target::new(&world);
        let (volume, terminals) = (world.dir.path().join("volume"), world.dir.path().join("terminals"));
        [&volume, &volume.join("pts"), &terminals].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let options = Some("newinstance,ptmxmode=0666");
        mount(Some("devpts"), &terminals, Some("devpts"), MsFlags::empty(), options).unwrap();
        let sandbox = world.sandbox("a").await;
        let (links, console) = (target.links("there"), volume.join("console"));
        let script = format!("tty; echo '|/x' > {setting} && echo set; echo x > /dev/console; echo over");
        let mut ran = 0;
        for (number, link) in [setting, &links[0], &links[1], "/etc/hosts", "pipe"].into_iter().enumerate() {
            match link {
                "pipe" => nix::unistd::mkfifo(&console, Mode::S_IRWXU).unwrap(),
                link => symlink(link, &console).unwrap(),
            }
            let mut config = ContainerConfig { tty: true, ..shell(&format!("c{number}"), &script) };
            config.mounts = vec![Mount::new(&volume, "/dev", false), Mount::new(&terminals, "/dev/pts", false)];
            // It may be refused, and is made or refused at once.
            let created = world.engine.create_container(&sandbox, config);
            if let Ok(id) = tokio::time::timeout(Duration::from_secs(20), created).await.unwrap() {
                world.engine.start_container(&id).await.unwrap();
                world.exit(&id).await;
                let said = world.output(&id).await;
                assert!(said.contains("over") && !said.lines().any(|line| line.trim_end() == "set"), "{link}: {said}");
                ran += 1;
            }
            target.assert_unchanged(link);
            assert_eq!(fs::read_to_string(setting).unwrap(), before, "{link}");
            fs::remove_file(&console).unwrap();
        }
        umount(&terminals).unwrap();
        assert!(ran > 0, "none was ever made");
    });
}

/// CVE-2026-55686: said by the image, and by the pod.
fn a_working_directory_that_is_a_link_stays_inside() {
    check(|world| async move {
        let target = Target::new(&world);
        let sandbox = world.sandbox("a").await;
        for (number, link) in target.links("").iter().enumerate() {
            let image = import(&world, &number.to_string(), "\"WorkingDir\":\"/out/new\",", &[("out", link)]);
            for (name, asked) in [("image", ""), ("pod", "/out/new"), ("bare", "/out")] {
                let mut config = shell(&format!("{name}{number}"), "echo x > ./mine; pwd -P; ls");
                (config.image, config.working_dir) = (image.clone(), asked.to_owned());
                let inside = if asked == "/out" { target.dir.clone() } else { target.dir.join("new") };
                let said = world.answers(&sandbox, config).await;
                assert_eq!(said, format!("{}\nmine\n", inside.display()), "{name} {link}");
                target.assert_unchanged(link);
            }
        }
    });
}

/// CVE-2022-23648: what is at its place is copied into it, and found inside of the image.
fn a_declared_volume_that_is_a_link_shows_nothing() {
    check(|world| async move {
        let target = Target::new(&world);
        let sandbox = world.sandbox("a").await;
        let climbing = format!("{}{}", "/..".repeat(20), target.dir.display());
        let mut made = 0;
        for (number, link) in target.links("").iter().enumerate() {
            let volumes = format!("\"Volumes\":{{\"/out\":{{}},\"/out/inner\":{{}},\"{climbing}\":{{}}}},");
            let image = import(&world, &number.to_string(), &volumes, &[("out", link)]);
            let script =
                format!("ls -A /out {0}; touch /out/x {0}/y && cat /out/there; echo over", target.dir.display());
            let config = ContainerConfig { image, ..shell(&format!("c{number}"), &script) };
            // It may also be refused; it never is what the node has there.
            if let Ok(id) = world.engine.create_container(&sandbox, config).await {
                world.engine.start_container(&id).await.unwrap();
                world.exit(&id).await;
                let said = world.output(&id).await;
                let has = |line: &str| said.lines().any(|said| said == line);
                assert!(has("over") && !has("there") && !said.contains(CONTENT), "{link}: {said}");
                made += 1;
            }
            target.assert_unchanged(link);
        }
        assert!(made > 0, "none was ever made");
    });
}

/// CVE-2026-53488: words that start programs elsewhere.
fn labels_of_an_image_do_nothing_on_the_node() {
    check(|world| async move {
        let target = Target::new(&world);
        let made = target.dir.join("made").display().to_string();
        let binary = format!("binary:///bin/touch?{made}");
        let labels = ["containerd.io/log-uri", "nerdctl/log-uri", "io.containerd.runtime", "io.kubernetes.cri.log"];
        let labels: Vec<String> = labels.iter().map(|label| format!("\"{label}\":\"{binary}\"")).collect();
        let more = format!(
            "\"Labels\":{{{}}},\"OnBuild\":[\"RUN touch {made}\"],\"Healthcheck\":{{\"Test\":[\"CMD\",\"touch\",\"{made}\"],\
             \"Interval\":1}},\"Hooks\":{{\"prestart\":[{{\"path\":\"/bin/touch\",\"args\":[\"touch\",\"{made}\"]}}]}},",
            labels.join(",")
        );
        let image = "docker.io/library/hostile:labels";
        world.engine.images().import(archive_of(image, &more).as_slice(), None).unwrap();
        let sandbox = world.sandbox("a").await;
        let config = ContainerConfig { image: image.into(), ..shell("c", "ls -A /tmp; echo over") };
        assert_eq!(world.answers(&sandbox, config).await, "over\n");
        target.assert_unchanged("labels");
    });
}

/// CVE-2025-0750.
fn a_log_stays_in_the_directory_of_its_pod() {
    check(|world| async move {
        let target = Target::new(&world);
        let sandbox = world.sandbox("a").await;
        let [absolute, climbing] = target.links("new");
        for path in [absolute.as_str(), &climbing, "../new", "c/../../new", ".."] {
            let config = ContainerConfig { log_path: path.into(), ..shell("c", "echo x") };
            let refused = world.engine.create_container(&sandbox, config).await;
            assert!(matches!(&refused, Err(cri::CriError::Invalid(_))), "{path}: {refused:?}");
            target.assert_unchanged(path);
        }
        assert!(!Path::new(&world.dir.path().join("logs/new")).exists());
        assert_eq!(world.outcome(&sandbox, "c", "echo x").await, (0, "x\n".to_owned()));
    });
}

/// CVE-2019-11245: with the image at hand, and by an engine that did not make the first.
fn lc_316_a_second_start_is_as_the_first() {
    check(|world| async move {
        let image = import(&world, "user", "\"User\":\"web\",", &[]);
        let mut world = world;
        for attempt in 0..3 {
            let sandbox = world.sandbox(&format!("p{attempt}")).await;
            for instance in 0..2 {
                let mut config = shell(&format!("c{instance}"), "id -u; id -g");
                (config.image, config.attempt) = (image.clone(), instance);
                config.security.run_as_non_root = true;
                assert_eq!(world.answers(&sandbox, config).await, "33\n34\n", "{attempt} {instance}");
            }
            world = world.reopen().await;
        }
    });
}
