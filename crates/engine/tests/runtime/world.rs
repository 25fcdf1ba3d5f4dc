//! One engine instance with a busybox image, and shorthands to use it.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ambient::{Clock, Ids, Rng};
use cri::{
    Container, ContainerConfig, ContainerId, ContainerState, DnsConfig, LogLimits, NamespaceMode, PodMeta, Resources,
    Runtime, SandboxConfig, SandboxId, SecurityContext,
};
use engine::{Config, Engine};
use sha2::{Digest, Sha256};

use crate::leaks;

pub(crate) const IMAGE: &str = "docker.io/library/busybox:test";
/// Longer than anything takes on a busy machine: only what hangs is ended by it.
const LIMIT: Duration = Duration::from_secs(60);

static WORLDS: AtomicU32 = AtomicU32::new(0);

pub(crate) struct World {
    pub(crate) dir: Arc<tempfile::TempDir>,
    pub(crate) config: Config,
    pub(crate) engine: Arc<Engine>,
}

/// Runs a test body in a fresh instance, then takes it down and looks for leaks.
pub(crate) fn check<F: Future<Output = ()>>(body: impl FnOnce(World) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Kept until the end: without its records nobody would know what to take down.
    let (config, _dir) = runtime.block_on(async {
        let world = World::new().await;
        let kept = (world.config.clone(), world.dir.clone());
        body(world).await;
        kept
    });
    runtime.block_on(take_down(&config));
}

/// Whatever a test has left: the machine holds exactly what a new engine tells
/// of; removed in an orderly way it is gone; and `destroy` leaves nothing.
pub(crate) async fn take_down(config: &Config) {
    let engine = open(config).await;
    leaks::exact(config, &engine).await;
    for sandbox in engine.sandboxes(None).await.unwrap() {
        engine.remove_sandbox(&sandbox.id).await.unwrap();
    }
    // What the last of them stood on goes when somebody cleans up.
    engine.images().sweep(|| Ok(engine::layers_in_use(&config.root)?.concat())).unwrap();
    leaks::exact(config, &engine).await;
    engine.destroy().await.unwrap();
    leaks::none(config);
}

pub(crate) async fn open(config: &Config) -> Arc<Engine> {
    // The last engine's tasks let go of the state a moment after it is dropped.
    let started = Instant::now();
    loop {
        match Engine::open(config.clone(), Clock::system(), Ids::new(Rng::from_os())).await {
            Ok(engine) => return engine,
            Err(error) if started.elapsed() > LIMIT => panic!("engine does not open: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// A name and number that no other instance has.
pub(crate) fn instance() -> (String, u32) {
    let number = new_number();
    (instance_name(number), number)
}

fn instance_name(number: u32) -> String {
    format!("podium-test-{}-{number}", crate::harness::run_number())
}

impl World {
    async fn new() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let config = config(dir.path(), new_number());
        let engine = open(&config).await;
        engine.images().import(archive().as_slice(), None).unwrap();
        World { dir, config, engine }
    }

    /// Drops the engine, as a crash would, and opens another one on its state.
    pub(crate) async fn reopen(self) -> Self {
        let World { dir, config, engine } = self;
        drop(engine);
        let engine = open(&config).await;
        World { dir, config, engine }
    }

    pub(crate) fn sandbox_config(&self, uid: &str) -> SandboxConfig {
        sandbox_config(self.dir.path(), uid)
    }

    pub(crate) async fn sandbox(&self, uid: &str) -> SandboxId {
        self.engine.run_sandbox(self.sandbox_config(uid)).await.unwrap()
    }

    pub(crate) async fn create(&self, sandbox: &SandboxId, config: ContainerConfig) -> ContainerId {
        self.engine.create_container(sandbox, config).await.unwrap()
    }

    /// Creates and starts `sh -c script`.
    pub(crate) async fn run(&self, sandbox: &SandboxId, name: &str, script: &str) -> ContainerId {
        self.run_with(sandbox, shell(name, script)).await
    }

    pub(crate) async fn run_with(&self, sandbox: &SandboxId, config: ContainerConfig) -> ContainerId {
        let id = self.create(sandbox, config).await;
        self.engine.start_container(&id).await.unwrap();
        id
    }

    pub(crate) async fn container(&self, id: &ContainerId) -> Container {
        let all = self.engine.containers(None).await.unwrap();
        all.into_iter().find(|container| container.id == *id).expect("the container is known")
    }

    /// Waits for the container's end.
    pub(crate) async fn exit(&self, id: &ContainerId) -> Container {
        self.until(id, "over", |container| matches!(container.state, ContainerState::Exited | ContainerState::Unknown))
            .await
    }

    pub(crate) async fn until(&self, id: &ContainerId, what: &str, is: impl Fn(&Container) -> bool) -> Container {
        use futures::StreamExt;
        let mut events = self.engine.events();
        let wait = async {
            loop {
                let container = self.container(id).await;
                if is(&container) {
                    return container;
                }
                events.next().await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("container is not {what}"))
    }

    /// What the container has written so far, without the log format.
    pub(crate) async fn output(&self, id: &ContainerId) -> String {
        let path = self.container(id).await.log_path;
        let log = fs::read_to_string(path).unwrap();
        log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned() + "\n").collect()
    }

    /// What a container says until it ends, without the complaints of its
    /// commands (`ls: …`), which differ between kernels.
    pub(crate) async fn answers(&self, sandbox: &SandboxId, config: ContainerConfig) -> String {
        let id = self.run_with(sandbox, config).await;
        self.exit(&id).await;
        let output = self.output(&id).await;
        output.lines().filter(|line| !line.contains(": ")).map(|line| format!("{line}\n")).collect()
    }

    /// Runs a script to its end: exit code and output.
    pub(crate) async fn outcome(&self, sandbox: &SandboxId, name: &str, script: &str) -> (i32, String) {
        let id = self.run(sandbox, name, script).await;
        let exit_code = self.exit(&id).await.exit_code;
        (exit_code, self.output(&id).await)
    }

    /// Waits until the container's output has this line.
    pub(crate) async fn says(&self, id: &ContainerId, line: &str) {
        let started = Instant::now();
        while !self.output(id).await.lines().any(|said| said == line) {
            assert!(started.elapsed() < LIMIT, "{line:?} was never said: {:?}", self.output(id).await);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Tells the instances of one run apart.
pub(crate) fn new_number() -> u32 {
    WORLDS.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn config(dir: &Path, number: u32) -> Config {
    let instance = instance_name(number);
    Config {
        root: dir.join("state"),
        run_dir: dir.join("run"),
        cgroup_root: instance.clone(),
        bridge: format!("pt{number}"),
        instance,
        pod_cidr: (Ipv4Addr::new(10, 99, u8::try_from(number).unwrap(), 0), 24),
        mtu: 1500,
        entrances: Vec::new(),
        cni: None,
        shim_exe: std::env::current_exe().unwrap(),
        registries: Default::default(),
        snapshots: Default::default(),
    }
}

pub(crate) fn sandbox_config(dir: &Path, uid: &str) -> SandboxConfig {
    SandboxConfig {
        meta: PodMeta { name: format!("pod-{uid}"), namespace: "default".into(), uid: uid.into(), attempt: 0 },
        hostname: format!("host-{uid}"),
        log_directory: dir.join("logs").join(uid),
        cgroup_parent: format!("besteffort/pod{uid}"),
        resources: Resources::default(),
        dns: DnsConfig { servers: vec!["192.0.2.1".into()], ..DnsConfig::default() },
        network: NamespaceMode::Pod,
        pid: NamespaceMode::Container,
        ipc: NamespaceMode::Pod,
        user_namespace: None,
        runtime_handler: String::new(),
        host_ports: Vec::new(),
        sysctls: BTreeMap::new(),
        log_limits: LogLimits::default(),
        labels: BTreeMap::from([("app".into(), uid.into())]),
        annotations: BTreeMap::new(),
    }
}

pub(crate) fn shell(name: &str, script: &str) -> ContainerConfig {
    ContainerConfig {
        name: name.into(),
        attempt: 0,
        image: IMAGE.into(),
        command: vec!["sh".into(), "-c".into(), script.into()],
        args: vec![],
        working_dir: String::new(),
        envs: vec![],
        mounts: vec![],
        log_path: format!("{name}/0.log").into(),
        resources: Resources::default(),
        security: SecurityContext::default(),
        stop_signal: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        stdin: false,
        tty: false,
        stdin_once: false,
        devices: Vec::new(),
    }
}

/// A docker-archive with the machine's static busybox.
pub(crate) fn archive() -> Vec<u8> {
    archive_of(IMAGE, "")
}

/// The root file system of the image.
pub(crate) fn layer() -> Vec<u8> {
    layer_with(&[])
}

/// With links in place of some of its directories.
fn layer_with(links: &[(&str, &str)]) -> Vec<u8> {
    layer_with_passwd(links, "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/srv/web:/bin/sh\n")
}

fn layer_with_passwd(links: &[(&str, &str)], passwd: &str) -> Vec<u8> {
    let is_link = |path: &str| links.iter().any(|(link, _)| path.split('/').next() == Some(link));
    let mut layer = tar::Builder::new(Vec::new());
    let busybox = fs::read("/bin/busybox").expect("a static busybox is installed");
    for (link, target) in links {
        append(&mut layer, link, tar::EntryType::Symlink, 0o777, b"", Some(target));
    }
    for dir in
        ["bin/", "etc/", "tmp/", "root/", "proc/", "sys/", "dev/", "data/"].into_iter().filter(|dir| !is_link(dir))
    {
        append(&mut layer, dir, tar::EntryType::Directory, if dir == "tmp/" { 0o1777 } else { 0o755 }, b"", None);
    }
    append(&mut layer, "bin/busybox", tar::EntryType::Regular, 0o755, &busybox, None);
    append(&mut layer, "data/seed", tar::EntryType::Regular, 0o600, b"from the image\n", None);
    append(&mut layer, "bin/plain", tar::EntryType::Regular, 0o644, b"text", None);
    for name in [
        "sh", "sleep", "cat", "echo", "id", "ls", "pwd", "env", "hostname", "mount", "mknod", "unshare", "kill",
        "chmod", "su", "grep", "touch", "dd", "trap", "ip", "stat", "true", "ps", "head", "ln", "mkdir", "rm", "chown",
        "chroot", "setsid", "wc", "printf", "readlink", "umount", "stty", "tty", "seq", "yes", "httpd",
    ] {
        append(&mut layer, &format!("bin/{name}"), tar::EntryType::Symlink, 0o777, b"", Some("busybox"));
    }
    let group = b"root:x:0:\nwww:x:34:\nlogs:x:7:web\n";
    if !is_link("etc/") {
        append(&mut layer, "etc/passwd", tar::EntryType::Regular, 0o644, passwd.as_bytes(), None);
        append(&mut layer, "etc/group", tar::EntryType::Regular, 0o644, group, None);
    }
    layer.into_inner().unwrap()
}

/// The same under another name, with more members of its configuration.
pub(crate) fn archive_of(name: &str, more: &str) -> Vec<u8> {
    archive_with(name, more, &[])
}

/// And with links in place of some of its directories.
pub(crate) fn archive_with(name: &str, more: &str, links: &[(&str, &str)]) -> Vec<u8> {
    docker_archive(name, more, &[layer_with(links)])
}

/// And with users of its own.
pub(crate) fn archive_with_passwd(name: &str, more: &str, passwd: &str) -> Vec<u8> {
    docker_archive(name, more, &[layer_with_passwd(&[], passwd)])
}

/// A docker-archive of one layer with one file of this length.
pub(crate) fn archive_of_one_file(name: &str, length: usize) -> Vec<u8> {
    docker_archive(name, "", &[layer_of_one_file(length)])
}

/// A docker-archive with a layer for each of these files.
pub(crate) fn archive_of_files(name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let layer = |(path, content): &(&str, &str)| {
        let mut layer = tar::Builder::new(Vec::new());
        append(&mut layer, path, tar::EntryType::Regular, 0o644, content.as_bytes(), None);
        layer.into_inner().unwrap()
    };
    docker_archive(name, "", &files.iter().map(layer).collect::<Vec<_>>())
}

pub(crate) fn layer_of_one_file(length: usize) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    append(&mut layer, "file", tar::EntryType::Regular, 0o644, &vec![b'x'; length], None);
    layer.into_inner().unwrap()
}

/// The document that describes an image of these layers.
pub(crate) fn image_config(more: &str, layers: &[Vec<u8>]) -> String {
    let diff_ids: Vec<String> = layers.iter().map(|layer| format!("\"sha256:{}\"", hex(layer))).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        r#"{{"architecture":"{architecture}","os":"linux","config":{{{more}"Env":["PATH=/bin","FROM_IMAGE=yes"],"Cmd":["sh"]}},
            "rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        diff_ids.join(",")
    )
}

fn docker_archive(name: &str, more: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    let config = image_config(more, layers);
    let names: Vec<String> = (0..layers.len()).map(|number| format!("layer{number}.tar")).collect();
    let listed: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    let config_name = format!("{}.json", hex(config.as_bytes()));
    let manifest = format!(r#"[{{"Config":"{config_name}","RepoTags":["{name}"],"Layers":[{}]}}]"#, listed.join(","));
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, &config_name, tar::EntryType::Regular, 0o644, config.as_bytes(), None);
    for (name, layer) in names.iter().zip(layers) {
        append(&mut archive, name, tar::EntryType::Regular, 0o644, layer, None);
    }
    append(&mut archive, "manifest.json", tar::EntryType::Regular, 0o644, manifest.as_bytes(), None);
    archive.into_inner().unwrap()
}

fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    content: &[u8],
    link: Option<&str>,
) {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    match link {
        Some(target) => tar.append_link(&mut header, path, target).unwrap(),
        None => tar.append_data(&mut header, path, content).unwrap(),
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Processes in our namespace other than this one, with what the kernel says
/// of each; ended ones do not count.
pub(crate) fn other_processes() -> Vec<(u32, String)> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let living = pids.filter(|pid| *pid != 1).filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
        (state != 'Z' && state != 'X').then_some((pid, stat))
    });
    living.collect()
}

pub(crate) fn cgroups_of(name: &str) -> Vec<PathBuf> {
    let mount = Path::new("/sys/fs/cgroup");
    let roots = fs::read_dir(mount).unwrap().flatten().map(|entry| entry.path()).chain([mount.to_owned()]);
    roots.map(|root| root.join(name)).filter(|path| path.is_dir()).collect()
}

/// For a run that was cut short: what its instances left in the cgroup tree.
pub(crate) fn remove_cgroups(run: u32) {
    for number in 0..200 {
        remove_cgroup(&format!("podium-test-{run}-{number}"));
    }
}

pub(crate) fn remove_cgroup(name: &str) {
    for path in cgroups_of(name) {
        let _ = remove_tree(&path);
    }
}

fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten().filter(|entry| entry.path().is_dir()) {
        remove_tree(&entry.path())?;
    }
    fs::remove_dir(dir)
}
