//! Does the machine hold exactly what the engine tells of? Looks from outside:
//! at the kernel's tables and at the disk, never at the engine's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cri::{ContainerState, NamespaceMode, Runtime, Sandbox, SandboxState};
use engine::network::CniConfig;
use engine::{Config, Engine};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(20);

/// What there may be and what there must be, one line each.
#[derive(Debug, Default)]
struct Expected {
    may: BTreeSet<String>,
    must: BTreeSet<String>,
}

impl Expected {
    fn must(&mut self, line: String) {
        self.must.insert(line.clone());
        self.may.insert(line);
    }
}

/// Waits until the machine agrees with the engine: nothing is missing, and
/// nothing is there that belongs to no sandbox and no container.
pub(crate) async fn exact(config: &Config, engine: &Engine) {
    let started = Instant::now();
    loop {
        let (left, missing) = differences(config, engine).await;
        if left.is_empty() && missing.is_empty() {
            return;
        }
        assert!(started.elapsed() < LIMIT, "left behind: {left:#?}\nmissing: {missing:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What is there and should not be, and the other way round, at this moment.
pub(crate) async fn differences(config: &Config, engine: &Engine) -> (Vec<String>, Vec<String>) {
    let expected = expected(config, engine).await;
    let found = found(config);
    let left = found.difference(&expected.may).cloned().collect();
    (left, expected.must.difference(&found).cloned().collect())
}

/// After `destroy`: nothing at all.
pub(crate) fn none(config: &Config) {
    let started = Instant::now();
    loop {
        let found: Vec<_> = found(config).into_iter().filter(|line| !line.starts_with("layer ")).collect();
        if found.is_empty() {
            return;
        }
        assert!(started.elapsed() < LIMIT, "left behind: {found:#?}");
        std::thread::yield_now();
    }
}

async fn expected(config: &Config, engine: &Engine) -> Expected {
    let mut expected = Expected::default();
    // The level of a class of pods stays when its last pod goes.
    for class in ["", "besteffort", "burstable"] {
        expected.may.insert(format!("cgroup {class}"));
    }
    let sandboxes = engine.sandboxes(None).await.unwrap();
    for sandbox in &sandboxes {
        expect_sandbox(&mut expected, config, sandbox);
    }
    for container in engine.containers(None).await.unwrap() {
        let place = format!("{}/containers/{}", container.sandbox, container.id);
        expected.must(format!("sandbox {place}"));
        let cgroup = format!("cgroup {}/{}", cgroup_of(config, &container.sandbox.0), container.id);
        let sandbox = sandboxes.iter().find(|sandbox| sandbox.id == container.sandbox).expect("it has a sandbox");
        // Ended before its start, it is still shown as created.
        let has_ended = config.root.join("sandboxes").join(&place).join("exit.json").exists();
        let lives = matches!(container.state, ContainerState::Created | ContainerState::Running) && !has_ended;
        if lives && sandbox.state == SandboxState::Ready {
            expected.must(cgroup);
            expected.must(format!("process of container {}", container.id));
        } else {
            expected.may.insert(cgroup);
        }
    }
    let stock = engine.images().stock().unwrap();
    let layers = stock.iter().flat_map(|image| &image.layers).cloned();
    layers.for_each(|layer| expected.must(format!("layer {}", layer.display())));
    // What a volume was made of stays with its image, for the next who mounts it.
    let merged = config.root.join("images/merged");
    let whole = |image: &str| format!("layer {}", merged.join(image.trim_start_matches("sha256:")).display());
    expected.may.extend(stock.iter().map(|stored| whole(&stored.image.id)));
    for layer in engine::layers_in_use(&config.root).unwrap().into_iter().flatten() {
        expected.must(format!("layer {}", layer.display()));
    }
    expected
}

fn expect_sandbox(expected: &mut Expected, config: &Config, sandbox: &Sandbox) {
    let id = &sandbox.id.0;
    expected.must(format!("sandbox {id}"));
    let cgroup = format!("cgroup {}", cgroup_of(config, id));
    let run = format!("run directory {id}");
    if sandbox.state != SandboxState::Ready {
        expected.may.extend([cgroup, run]);
        return;
    }
    expected.must(cgroup);
    expected.must(run);
    expected.must(format!("process monitor {id}"));
    if sandbox.network != NamespaceMode::Node && config.cni.is_some() {
        let place = config.root.join("network/cni");
        expected.must(format!("file {}", place.join(format!("{id}.json")).display()));
        expected.may.insert(format!("file {}", place.join(format!("{id}.request")).display()));
        PLUGINS.iter().for_each(|kind| expected.must(format!("connection {id}-{kind}")));
    } else if sandbox.network != NamespaceMode::Node {
        let address = sandbox.ips.first().expect("a connected pod has an address");
        expected.must(format!("address {address} of {id}"));
        expected.must(format!("route to {address}"));
        for port in record(config, id)["config"]["host_ports"].as_array().into_iter().flatten() {
            expected.must(format!("redirect to {address}:{}", port["container_port"]));
        }
    }
}

/// The plugins of the tests, in the order they are called in. Each remembers for itself.
pub(crate) const PLUGINS: [&str; 2] = ["first", "second"];

/// What they hold.
pub(crate) fn connections(config: &CniConfig) -> Vec<String> {
    let place: PathBuf = config.conf_dir.with_file_name("connections");
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn record(config: &Config, sandbox: &str) -> Value {
    let path = config.root.join("sandboxes").join(sandbox).join("sandbox.json");
    fs::read(path).map(|bytes| serde_json::from_slice(&bytes).unwrap()).unwrap_or_default()
}

fn cgroup_of(config: &Config, sandbox: &str) -> String {
    record(config, sandbox)["config"]["cgroup_parent"].as_str().unwrap_or("no record").trim_matches('/').to_owned()
}

/// Everything of the instance that can be seen.
fn found(config: &Config) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    mounts(config, &mut found);
    cgroups(config, &mut found);
    network(config, &mut found);
    files(config, &mut found);
    if let Some(cni) = &config.cni {
        found.extend(connections(cni).into_iter().map(|held| format!("connection {held}")));
    }
    processes(config, &mut found);
    found
}

fn mounts(config: &Config, found: &mut BTreeSet<String>) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for dir in [&config.root, &config.run_dir] {
        let below = format!("{}/", dir.display());
        let ours = mounts.lines().filter(|line| line.contains(&below));
        found.extend(ours.map(|line| format!("mount {line}")));
    }
}

/// In whichever hierarchy.
fn cgroups(config: &Config, found: &mut BTreeSet<String>) {
    for root in crate::world::cgroups_of(&config.cgroup_root) {
        let mut open = vec![root.clone()];
        while let Some(dir) = open.pop() {
            // Commands in containers have cgroups of their own, which go with them.
            let name = dir.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            if dir.file_name().is_none_or(|last| !last.to_string_lossy().starts_with("exec-")) {
                found.insert(format!("cgroup {name}"));
            }
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            open.extend(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()));
        }
    }
}

/// `/sys/class/net` would show the namespace this machine was booted in.
fn network(config: &Config, found: &mut BTreeSet<String>) {
    let interfaces = fs::read_to_string("/proc/self/net/dev").unwrap();
    let names: Vec<&str> = interfaces.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    let has_bridge = names.contains(&config.bridge.as_str());
    let holders = addresses(&config.root.join("network/addresses"));
    found.extend(holders.iter().map(|(address, sandbox)| format!("address {address} of {sandbox}")));
    // Which pair is whose is in its hash; that each pod has one is seen by what it is for.
    let pairs = names.iter().filter(|name| name.starts_with("pv")).count();
    let reached: Vec<&String> =
        holders.iter().filter(|(_, sandbox)| has_eth0(config, sandbox)).map(|(a, _)| a).collect();
    found.extend(reached.iter().map(|address| format!("route to {address}")));
    if pairs > reached.len() {
        found.insert(format!("{} interfaces too many: {names:?}", pairs - reached.len()));
    }
    let firewall = Command::new("nft").args(["list", "table", "ip", &config.bridge]).output();
    let firewall = firewall.expect("nft is installed (package nftables)");
    if firewall.status.success() != has_bridge {
        found.insert(format!("bridge: {has_bridge}, firewall table: {}", firewall.status.success()));
    }
    let rules = String::from_utf8(firewall.stdout).unwrap();
    let redirects = rules.lines().filter_map(|line| Some(line.split_once("dnat to ")?.1.trim()));
    found.extend(redirects.map(|target| format!("redirect to {target}")));
}

fn has_eth0(config: &Config, sandbox: &str) -> bool {
    let pid = record(config, sandbox)["shim_pid"].to_string();
    fs::read_to_string(format!("/proc/{pid}/net/dev")).is_ok_and(|table| table.contains("eth0:"))
}

/// The journal, as its own comment describes it.
fn addresses(journal: &Path) -> BTreeMap<String, String> {
    let mut holders = BTreeMap::new();
    for line in fs::read_to_string(journal).unwrap_or_default().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["+", address, sandbox] => drop(holders.insert(address.to_owned(), sandbox.to_owned())),
            ["-", address] => drop(holders.remove(address)),
            ["@", _] => {}
            _ => panic!("{line:?} is no line of the address journal"),
        }
    }
    holders
}

fn files(config: &Config, found: &mut BTreeSet<String>) {
    let (images, network) = (config.root.join("images"), config.root.join("network"));
    for sandbox in children(&config.root.join("sandboxes")) {
        found.insert(format!("sandbox {}", name(&sandbox)));
        for container in children(&sandbox.join("containers")) {
            found.insert(format!("sandbox {}/containers/{}", name(&sandbox), name(&container)));
        }
    }
    let runs = children(&config.run_dir.join("shims"));
    found.extend(runs.iter().map(|run| format!("run directory {}", name(run))));
    for place in ["layers", "merged"] {
        found.extend(children(&images.join(place)).iter().map(|layer| format!("layer {}", layer.display())));
    }
    let strays = [
        (config.root.clone(), &["images", "network", "sandboxes"][..]),
        (config.run_dir.clone(), &["shims", "crash"]),
        (
            images.clone(),
            &["layers", "tmp", "downloads", "used", "index.json", "lock", "holds", "merged", "merging", "merge-lock"],
        ),
        (images.join("tmp"), &[]),
        (images.join("downloads"), &[]),
        (images.join("merging"), &[]),
        (network.clone(), &["addresses", "lock", "cni"]),
        (network.join("cni"), &[]),
    ];
    for (dir, known) in strays {
        let strays = children(&dir).into_iter().filter(|path| !known.contains(&name(path).as_str()));
        found.extend(strays.map(|path| format!("file {}", path.display())));
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Of everybody in this namespace: the tests run one at a time.
fn processes(config: &Config, found: &mut BTreeSet<String>) {
    // We are process 1 here: what a killed agent or monitor has left is ours to reap.
    while let Ok(status) = nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG)) {
        if status == nix::sys::wait::WaitStatus::StillAlive {
            break;
        }
    }
    for (pid, stat) in crate::world::other_processes() {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let line = read("cmdline");
        let words: Vec<&str> = line.split('\0').collect();
        // It has ended since it was listed.
        let Ok(cgroups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { continue };
        let cgroup = cgroups.lines().find_map(|line| line.split_once(&config.cgroup_root)).map(|(_, below)| below);
        found.insert(match (&words[..], cgroup.map(|below| below.split('/').collect::<Vec<_>>())) {
            (_, Some(below)) if below.len() >= 4 => format!("process of container {}", below[3]),
            (["podium", verb, id, ..], _) if *verb == shim::VERB => format!("process monitor {id}"),
            _ => format!("process {}: {cgroups}", stat.trim()),
        });
    }
}
