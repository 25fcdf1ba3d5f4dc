//! Agents that are killed at every named point and at random instants, and
//! monitors that are: what the next engine finds, and that nothing is left.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ambient::Rng;
use cri::{Container, ContainerState, Runtime, SandboxState};
use engine::Config;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;

use crate::agent::{self, Journal, Life};
use crate::harness::Case;
use crate::leaks;
use crate::plugins::{self, Plugins};
use crate::world::{self, World};

pub(crate) const CASES: &[Case] = &[
    ("the_checker_sees_every_kind_of_leftover", the_checker_sees_every_kind_of_leftover),
    ("every_point_has_a_test", every_point_has_a_test),
    ("an_agent_may_die_anywhere_in_images", || agents_at("images")),
    ("an_agent_may_die_anywhere_in_sandbox", || agents_at("sandbox")),
    ("an_agent_may_die_anywhere_in_container", || agents_at("container")),
    ("an_agent_may_die_anywhere_in_shim", || agents_at("shim")),
    ("an_agent_may_die_anywhere_in_network", || agents_at("network")),
    ("an_agent_may_die_anywhere_in_addresses", || agents_at("addresses")),
    ("an_agent_may_die_anywhere_in_cgroup", || agents_at("cgroup")),
    ("an_agent_may_die_anywhere_in_limits", || agents_at("limits")),
    ("an_agent_may_die_anywhere_in_record", || agents_at("record")),
    ("an_agent_may_die_anywhere_in_pull", || agents_at("pull")),
    ("an_agent_may_die_anywhere_between_plugins", agents_between_plugins),
    ("agent_and_monitors_may_die_together", agent_and_monitors_may_die_together),
    ("an_agent_may_die_at_any_time", an_agent_may_die_at_any_time),
    ("a_monitor_may_die_anywhere_in_monitor", || monitors_at("monitor")),
    ("a_monitor_may_die_anywhere_in_record", || monitors_at("record")),
    ("a_builder_may_die_anywhere", || monitors_at("builder")),
];

/// By the first part of their names; each has its case above.
const OF_AGENTS: [&str; 11] =
    ["images", "sandbox", "container", "shim", "network", "addresses", "cgroup", "limits", "record", "pull", "cni"];
const OF_MONITORS: [&str; 3] = ["monitor", "record", "builder"];

const LIMIT: Duration = Duration::from_secs(20);

/// All names in the sources.
fn points() -> BTreeSet<String> {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = BTreeSet::new();
    let mut open = vec![engine.join("../../shim/src"), engine];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let calls = text.split("crash::point(\"").skip(1);
        names.extend(calls.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    assert!(names.len() > 40, "{names:?}");
    names
}

fn points_of(group: &str) -> Vec<String> {
    points().into_iter().filter(|point| point.split('.').next() == Some(group)).collect()
}

fn every_point_has_a_test() {
    let tested = |point: &String| {
        let group = point.split('.').next().unwrap_or_default();
        OF_AGENTS.contains(&group) || OF_MONITORS.contains(&group)
    };
    let untested: Vec<String> = points().into_iter().filter(|point| !tested(point)).collect();
    assert_eq!(untested, Vec::<String>::new());
}

/// The instance of one test; used again and again, as each death is cleared up.
struct Ground {
    dir: Arc<tempfile::TempDir>,
    number: u32,
    config: Config,
    runtime: tokio::runtime::Runtime,
}

impl Ground {
    fn new() -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()))
    }

    fn on(dir: Arc<tempfile::TempDir>) -> Self {
        let number = world::new_number();
        let config = plugins::config(dir.path(), number);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let ground = Ground { dir, number, config, runtime };
        ground.runtime.block_on(async {
            let engine = world::open(&ground.config).await;
            engine.images().import(world::archive().as_slice(), None).unwrap();
        });
        ground
    }

    fn agent(&self, point: &str, passes: u32) -> Child {
        let mut agent = Command::new(std::env::current_exe().unwrap());
        agent.arg(agent::VERB).arg(self.dir.path()).args([self.number.to_string(), point.into(), passes.to_string()]);
        agent.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// What it says until it ends, and whether it was killed.
    fn outlive(mut agent: Child) -> (Journal, bool) {
        let lines = BufReader::new(agent.stdout.take().unwrap()).lines();
        let journal = Journal(lines.map(|line| line.unwrap()).collect());
        let status = agent.wait().unwrap();
        let was_killed = status.signal() == Some(Signal::SIGKILL as i32);
        assert!(was_killed || status.success(), "the agent failed: {status}, {journal:?}");
        (journal, was_killed)
    }

    fn take_down(&self) {
        self.runtime.block_on(world::take_down(&self.config));
        // Logs are the agent's, who keeps them as long as it likes.
        fs::remove_dir_all(self.dir.path().join("logs"))
            .or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
            .unwrap();
    }

    /// The next engine finds exactly what the journal lets expect, can go on
    /// with it, and can take all of it down.
    fn inspect(&self, journal: &Journal) {
        self.runtime.block_on(async {
            let engine = world::open(&self.config).await;
            let world = World { dir: self.dir.clone(), config: self.config.clone(), engine };
            for sandbox in agent::SANDBOXES {
                let allowed = journal.may_be(sandbox, agent::sandbox_step);
                until_allowed(sandbox, &allowed, async || sandbox_state(&world, sandbox).await).await;
            }
            for name in agent::CONTAINERS {
                let mut allowed = journal.may_be(name, agent::container_step);
                // This one ends by itself.
                if name == "brief" && allowed.remove("Running") {
                    allowed.insert("Exited 7");
                }
                until_allowed(name, &allowed, async || state(&world, name).await).await;
            }
            for (name, image) in agent::IMAGES {
                let found = world.engine.image(image).await.unwrap();
                let found = if found.is_some() { "present" } else { "absent" };
                assert!(journal.may_be(name, agent::image_step).contains(found), "the image {name} is {found}");
            }
            leaks::exact(&world.config, &world.engine).await;
            go_on(&world).await;
            remove_images(&world).await;
        });
        self.take_down();
    }
}

async fn remove_images(world: &World) {
    for (_, image) in agent::IMAGES {
        world.engine.remove_image(image).await.unwrap();
    }
}

async fn until_allowed(name: &str, allowed: &BTreeSet<&str>, state: impl AsyncFn() -> String) {
    let started = Instant::now();
    loop {
        let state = state().await;
        if allowed.contains(state.as_str()) {
            return;
        }
        assert!(started.elapsed() < LIMIT, "{name} is {state}, not one of {allowed:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn sandbox_state(world: &World, uid: &str) -> String {
    match &world.engine.sandboxes(Some(uid)).await.unwrap()[..] {
        [] => "absent".into(),
        [sandbox] => format!("{:?}", sandbox.state),
        more => panic!("several sandboxes: {more:?}"),
    }
}

async fn state(world: &World, name: &str) -> String {
    let all = world.engine.containers(None).await.unwrap();
    match &all.iter().filter(|container| container.name == name).collect::<Vec<_>>()[..] {
        [] => "absent".into(),
        [container] if container.state == ContainerState::Exited => format!("Exited {}", container.exit_code),
        [container] => format!("{:?}", container.state),
        more => panic!("several containers: {more:?}"),
    }
}

/// What lives is in order: it can be entered, started, stopped, added to.
async fn go_on(world: &World) {
    for sandbox in world.engine.sandboxes(None).await.unwrap() {
        let containers = world.engine.containers(Some(&sandbox.meta.uid)).await.unwrap();
        if sandbox.state == SandboxState::Ready {
            for container in &containers {
                use_container(world, container).await;
            }
            assert_eq!(world.outcome(&sandbox.id, "fresh", "echo fine").await, (0, "fine\n".into()));
        }
    }
}

async fn use_container(world: &World, container: &Container) {
    let id = &container.id;
    match container.state {
        ContainerState::Running => {
            // It may be about to end because it was told to.
            if let Ok(done) = world.engine.exec_sync(id, vec!["true".into()], None).await {
                assert_eq!(done.exit_code, 0, "{container:?}");
            } else {
                world.exit(id).await;
            }
        }
        ContainerState::Created => world.engine.start_container(id).await.unwrap(),
        ContainerState::Exited => {}
        ContainerState::Unknown => panic!("its monitor lives: {container:?}"),
    }
}

fn agents_at(group: &str) {
    agents_on(&Ground::new(), group);
}

/// Pods connected by plugins, which have memories of their own.
fn agents_between_plugins() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let plugins = Plugins::install(dir.path());
    agents_on(&Ground::on(dir), "cni");
    assert_eq!(plugins.connections(), Vec::<String>::new());
}

fn agents_on(ground: &Ground, group: &str) {
    let mut deaths = 0;
    for point in points_of(group) {
        // Each time later, until it is not reached so often.
        for passes in [0, 1, 2, 4, 8, 16, 32] {
            let (journal, was_killed) = Ground::outlive(ground.agent(&point, passes));
            ground.inspect(&journal);
            eprintln!("  {point} after {passes}: {} lines, killed: {was_killed}", journal.0.len());
            if !was_killed {
                assert!(passes > 0, "{point} is never reached");
                break;
            }
            deaths += 1;
        }
    }
    eprintln!("  {deaths} deaths");
}

/// As when somebody kills everything that is called `podium`.
fn agent_and_monitors_may_die_together() {
    let ground = Ground::new();
    for point in [
        "shim.ready",
        "sandbox.published",
        "container.made",
        "container.starting",
        "container.started",
        "container.signalled",
        "container.removing",
        "sandbox.shut-down",
        "sandbox.removing",
    ] {
        for passes in [0, 1] {
            let (journal, was_killed) = Ground::outlive(ground.agent(point, passes));
            assert!(was_killed || passes > 0, "{point} is never reached");
            let monitors = monitors();
            eprintln!("  {point} after {passes}: {} lines, {} monitors", journal.0.len(), monitors.len());
            for monitor in monitors {
                nix::sys::signal::kill(monitor, Signal::SIGKILL).unwrap();
            }
            ground.inspect_loss(&journal, false);
        }
    }
}

fn monitors() -> Vec<nix::unistd::Pid> {
    let is_monitor = |pid: &u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').nth(1) == Some(shim::VERB)
    };
    let all = world::other_processes().into_iter().map(|(pid, _)| pid);
    all.filter(is_monitor).map(|pid| nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap())).collect()
}

fn an_agent_may_die_at_any_time() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_116);
    eprintln!("  SEED={seed}");
    let mut rng = Rng::seeded(seed);
    let ground = Ground::new();
    // How long a whole life takes here and now.
    let begun = Instant::now();
    let (journal, _) = Ground::outlive(ground.agent("", 0));
    let life = begun.elapsed();
    ground.inspect(&journal);
    for _ in 0..deaths_at_random() {
        let delay = life.mul_f64(rng.fraction());
        let agent = ground.agent("", 0);
        let pid = nix::unistd::Pid::from_raw(i32::try_from(agent.id()).unwrap());
        let killer = std::thread::spawn(move || {
            std::thread::park_timeout(delay);
            let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
        });
        let (journal, was_killed) = Ground::outlive(agent);
        killer.thread().unpark();
        killer.join().unwrap();
        eprintln!("  after {delay:.1?}: {} lines, killed: {was_killed}", journal.0.len());
        ground.inspect(&journal);
    }
}

fn deaths_at_random() -> u32 {
    std::env::var("DEATHS").ok().and_then(|count| count.parse().ok()).unwrap_or(40)
}

/// In a process that becomes a monitor: is it to die somewhere? Only the first
/// one that looks is.
pub(crate) fn arm_monitor() {
    let log = fs::read_link("/proc/self/fd/2").unwrap_or_default();
    let Some(file) = log.ancestors().nth(3).map(|run| run.join("crash")) else { return };
    let Ok(text) = fs::read_to_string(&file) else { return };
    let _ = fs::remove_file(file);
    if let Some((point, passes)) = text.split_once(' ') {
        shim::crash::arm(point, passes.parse().unwrap_or(0));
    }
}

fn monitors_at(group: &str) {
    let ground = Ground::new();
    for point in points_of(group) {
        for passes in [0, 1, 2, 4, 8, 16, 32] {
            fs::write(ground.config.run_dir.join("crash"), format!("{point} {passes}")).unwrap();
            let mut journal = Journal::default();
            crate::complaints::take();
            let lived = ground.runtime.block_on(async {
                let engine = world::open(&ground.config).await;
                let say = |line| journal.0.push(line);
                let mut life = Life { engine, dir: ground.dir.path().to_owned(), say };
                tokio::time::timeout(LIMIT, life.live()).await.expect("nobody waits for a dead monitor")
            });
            let complaints = crate::complaints::take();
            eprintln!("  {point} after {passes}: {} lines, {lived:?}, {complaints:?}", journal.0.len());
            ground.inspect_loss(&journal, group == "builder");
            let has_died = lived.is_err() || complaints.iter().any(|line| line.contains("monitor process"));
            assert!(has_died || passes > 0, "{point} is never reached");
            // A builder inherits the number of passes, and none ever counts a second one.
            if !has_died || group == "builder" {
                break;
            }
        }
    }
}

impl Ground {
    /// Pod `a` has lost its monitor: what was told before holds, what ran ended
    /// in an unknown way unless its end was recorded, and the pod can be made anew.
    fn inspect_loss(&self, journal: &Journal, survives: bool) {
        self.runtime.block_on(async {
            let engine = world::open(&self.config).await;
            let world = World { dir: self.dir.clone(), config: self.config.clone(), engine };
            for name in agent::CONTAINERS {
                let mut allowed = journal.may_be(name, agent::container_step);
                if allowed.contains("Running") {
                    allowed.insert("Unknown");
                    // Or in time by itself.
                    allowed.extend((name == "brief").then_some("Exited 7"));
                }
                until_allowed(name, &allowed, async || state(&world, name).await).await;
            }
            let mut allowed = journal.may_be("a", agent::sandbox_step);
            if allowed.remove("Ready") {
                allowed.insert(if survives { "Ready" } else { "NotReady" });
            }
            until_allowed("a", &allowed, async || sandbox_state(&world, "a").await).await;
            leaks::exact(&world.config, &world.engine).await;
            if !survives {
                go_on(&world).await;
            }
            let mut next = world.sandbox_config("a");
            next.meta.attempt = 1;
            let next = world.engine.run_sandbox(next).await.unwrap();
            assert_eq!(world.outcome(&next, "again", "echo again").await, (0, "again\n".into()));
            remove_images(&world).await;
        });
        self.take_down();
    }
}

/// A checker that cannot fail would be worth nothing.
fn the_checker_sees_every_kind_of_leftover() {
    world::check(|world| async move {
        let sandbox = world.sandbox("a").await;
        world.run(&sandbox, "c", "exec sleep 1000").await;
        leaks::exact(&world.config, &world.engine).await;
        let config = &world.config;
        let place = config.run_dir.join("mounted");
        fs::create_dir(&place).unwrap();
        mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let cgroups: Vec<PathBuf> = world::cgroups_of(&config.cgroup_root);
        let cgroup = cgroups.last().unwrap().join("besteffort/podlost");
        fs::create_dir(&cgroup).unwrap();
        let ip =
            |words: &str| assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "{words}");
        ip("link add pvlost type veth peer name pvother");
        let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::create_dir(config.root.join("images/layers/lost")).unwrap();
        fs::create_dir(config.root.join("sandboxes/lost")).unwrap();
        let journal = config.root.join("network/addresses");
        let lines = fs::read_to_string(&journal).unwrap();
        fs::write(&journal, format!("{lines}+ 10.99.0.200 lost\n")).unwrap();
        let (left, missing) = leaks::differences(config, &world.engine).await;
        assert_eq!(missing, Vec::<String>::new());
        for kind in ["mount ", "cgroup ", "2 interfaces", "process ", "layer ", "sandbox lost", "address ", "file "] {
            assert_eq!(left.iter().filter(|line| line.starts_with(kind)).count(), 1, "{kind}: {left:#?}");
        }
        assert_eq!(left.len(), 8, "{left:#?}");
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        ip("link del pvlost");
        umount(&place).unwrap();
        fs::remove_dir(place).unwrap();
        fs::remove_dir(cgroup).unwrap();
        fs::remove_dir(config.root.join("images/layers/lost")).unwrap();
        fs::remove_dir(config.root.join("sandboxes/lost")).unwrap();
        fs::write(&journal, lines).unwrap();
        leaks::exact(config, &world.engine).await;
        // And what is told of but not there.
        let table = format!("delete table ip {}", config.bridge);
        assert!(Command::new("nft").args(table.split(' ')).status().unwrap().success());
        let interfaces = fs::read_to_string("/proc/self/net/dev").unwrap();
        let pair =
            interfaces.lines().map(|line| line.split(':').next().unwrap().trim()).find(|name| name.starts_with("pv"));
        ip(&format!("link del {}", pair.unwrap()));
        let (left, missing) = leaks::differences(config, &world.engine).await;
        assert_eq!(left, ["bridge: true, firewall table: false"]);
        assert_eq!(missing, ["route to 10.99.0.2"]);
        world.engine.stop_sandbox(&sandbox).await.unwrap();
    });
}
