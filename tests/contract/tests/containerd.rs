//! Debian's containerd as it comes, with directories, socket, bridge and
//! cgroups of its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use cri::Runtime;
use criwire::Remote;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podium_e2e::containerd::{PAUSE, configure};

use crate::subject::{Body, Kind, LIMIT, Subject};
use crate::world::{IMAGE, archive_of, cgroups_of, other_processes};

static WORLDS: AtomicU32 = AtomicU32::new(100);

/// Runs a test body against a fresh containerd, then takes it down and looks for leaks.
pub(crate) fn check(body: Body) {
    let number = WORLDS.fetch_add(1, Ordering::Relaxed);
    COVERED.call_once(cover_shared_places);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("c.sock");
    let mut containerd = start(dir.path(), number);
    let cgroup = format!("podium-test-{}-{number}", crate::harness::run_number());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let remote = Remote::connect(&format!("unix://{}", socket.display()), &cgroup).unwrap();
        wait_for(&remote, dir.path(), &mut containerd).await;
        import(dir.path(), &socket, &remote).await;
        let remote = Arc::new(remote);
        let dir = dir.path().to_owned();
        body(&Subject { kind: Kind::Containerd, runtime: remote.clone(), dir, fake: None }).await;
        for sandbox in remote.sandboxes(None).await.unwrap() {
            remote.remove_sandbox(&sandbox.id).await.unwrap();
        }
    });
    stop(containerd);
    crate::world::remove_cgroup(&cgroup);
    assert_eq!(cgroups_of(&cgroup), Vec::<std::path::PathBuf>::new(), "cgroups are left");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(dir.path().to_str().unwrap()), "mounts are left:\n{mounts}");
}

static COVERED: Once = Once::new();

/// Places that containerd, its shims and the plugins use whatever they are
/// told, and the temporary directory: all of it goes with our namespace.
fn cover_shared_places() {
    for path in [Path::new("/run"), Path::new("/var/lib/cni"), &std::env::temp_dir()] {
        fs::create_dir_all(path).unwrap();
        mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    }
    crate::subject::bring_up_loopback();
}

fn start(dir: &Path, number: u32) -> Child {
    configure(dir, &format!("ct{number}"), &format!("10.98.{number}.0/24"));
    let log = fs::File::create(dir.join("containerd.log")).unwrap();
    let mut command = Command::new("containerd");
    command.arg("--config").arg(dir.join("config.toml"));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().expect("containerd is installed")
}

async fn wait_for(remote: &Remote, dir: &Path, containerd: &mut Child) {
    let started = Instant::now();
    loop {
        let status = remote.status().await;
        if let Ok(status) = &status
            && status.runtime.is_ok()
            && status.network.is_ok()
        {
            return;
        }
        let ended = containerd.try_wait().unwrap();
        let log = || fs::read_to_string(dir.join("containerd.log")).unwrap_or_default();
        assert!(ended.is_none() && started.elapsed() < LIMIT, "containerd is not ready: {status:?}\n{}", log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn import(dir: &Path, socket: &Path, remote: &Remote) {
    for (image, more) in [(IMAGE, ""), (PAUSE, r#""Entrypoint":["sh","-c","sleep 2147483647"],"#)] {
        let file = dir.join("image.tar");
        fs::write(&file, archive_of(image, more)).unwrap();
        let imported = Command::new("ctr")
            .arg("-a")
            .arg(socket)
            .args(["-n", "k8s.io", "images", "import"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        let started = Instant::now();
        // The CRI part of it learns of new images a moment later.
        while remote.image(image).await.unwrap().is_none() {
            assert!(started.elapsed() < LIMIT, "{image} is not there");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn stop(mut containerd: Child) {
    let _ = kill(Pid::from_raw(containerd.id().try_into().unwrap()), Signal::SIGTERM);
    containerd.wait().unwrap();
    let started = Instant::now();
    while let Some((_, left)) = other_processes().pop() {
        assert!(started.elapsed() < LIMIT, "a process is left: {left}");
        std::thread::yield_now();
    }
}
