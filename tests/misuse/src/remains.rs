//! What there is of an instance on the machine, as a list that can be compared:
//! processes, mounts, cgroups, interfaces, rules of the firewall, files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use podium_e2e::{Podium, leaks};

/// How many of each there are.
pub(crate) type Remains = BTreeMap<String, i64>;

/// Files that grow with use: the store, logs of our own, caches of clients.
const CHANGING: [&str; 4] = ["store", "audit", "podium.redb", "log"];

/// How deep files are told by name: pods, containers and volumes are above.
const DEPTH_MAX: usize = 5;

pub(crate) fn of(podium: &Podium) -> Remains {
    let mut remains = Remains::new();
    let id = podium.id().unwrap_or_default();
    for line in leaks::of(&podium.data(), Some(&id)) {
        *remains.entry(without_numbers(&line)).or_default() += 1;
    }
    let bridge = PathBuf::from(format!("/sys/class/net/podium-{id}/brif"));
    let ports = fs::read_dir(bridge).into_iter().flatten().flatten();
    *remains.entry("ports of the bridge".to_owned()).or_default() += i64::try_from(ports.count()).unwrap_or(i64::MAX);
    for line in rules(&id) {
        *remains.entry(format!("firewall {line}")).or_default() += 1;
    }
    files(&podium.data(), 0, &mut remains);
    remains
}

/// What there is with one pod, once all others are gone.
pub(crate) fn of_one_pod(podium: &Podium, patience: Duration) -> Remains {
    let deadline = Instant::now() + patience;
    let mut last = of(podium);
    loop {
        let now = of(podium);
        let count = |place: &str| fs::read_dir(podium.data().join(place)).map_or(0, Iterator::count);
        let is_one = ["kubelet/pods", "engine/sandboxes", "run/shims"].iter().all(|place| count(place) == 1);
        if is_one && now == last {
            return now;
        }
        assert!(Instant::now() < deadline, "more than one pod is there: {now:#?}");
        last = now;
    }
}

/// What is there now and was not before, or is not any more.
pub(crate) fn difference(before: &Remains, now: &Remains) -> Vec<String> {
    let count = |remains: &Remains, key: &str| remains.get(key).copied().unwrap_or_default();
    let mut keys: Vec<&String> = before.keys().chain(now.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .filter(|key| count(before, key) != count(now, key))
        .map(|key| format!("{} -> {}: {key}", count(before, key), count(now, key)))
        .collect()
}

/// A process or mount that was made anew has another number and is the same.
fn without_numbers(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["process", _, rest @ ..] => format!("process {}", rest.join(" ")),
        ["mount", _, _, _, _, place, ..] => format!("mount {place}"),
        _ => line.to_owned(),
    }
}

/// Chains and elements of sets that name something of the instance, where the
/// `nft` tool happens to be installed.
fn rules(id: &str) -> Vec<String> {
    let Ok(output) = Command::new("nft").args(["list", "ruleset"]).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut is_ours = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("table ") {
            is_ours = line.contains(id);
        }
        // Counters change.
        if is_ours && !line.contains("counter") {
            found.push(line.trim().to_owned());
        }
    }
    found
}

fn files(directory: &Path, depth: usize, remains: &mut Remains) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if depth == 0 && CHANGING.iter().any(|word| name.contains(word)) {
            continue;
        }
        // Made with the first pull, whosever that is.
        if !["image_manager", "pulling"].contains(&name.as_str()) {
            *remains.entry(format!("file {}", entry.path().display())).or_default() += 1;
        }
        if depth < DEPTH_MAX && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(&entry.path(), depth + 1, remains);
        }
    }
}
