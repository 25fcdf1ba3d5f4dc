//! What an instance must not leave on the machine: processes, mounts, cgroups,
//! interfaces, firewall tables. Looks from outside, by the instance's names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{command_line, processes};

/// One line per thing of the instance that is still there.
pub fn of(data: &Path, id: Option<&str>) -> Vec<String> {
    let mut found = of_processes(data, id);
    found.extend(of_mounts(data));
    if let Some(id) = id {
        found.extend(of_cgroups(id));
        found.extend(of_interfaces(id));
        found.extend(of_firewall(id));
    }
    found
}

/// By command line (agent, shims), cgroup, or a root file system in `data`.
fn of_processes(data: &Path, id: Option<&str>) -> Vec<String> {
    let data = data.to_string_lossy();
    let cgroup = id.map(|id| format!("podium-{id}"));
    let is_ours = |pid: u32| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let has_cgroup = cgroup.as_ref().is_some_and(|cgroup| read("cgroup").contains(cgroup));
        let is_root = |line: &str| line.split(' ').nth(4) == Some("/") && line.contains(data.as_ref());
        let has_root = read("mountinfo").lines().any(is_root);
        command_line(pid).contains(data.as_ref()) || has_cgroup || has_root
    };
    processes()
        .filter(|pid| *pid != std::process::id() && is_ours(*pid))
        .map(|pid| format!("process {pid}: {}", command_line(pid)))
        .collect()
}

fn of_mounts(data: &Path) -> Vec<String> {
    let data = data.to_string_lossy();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter(|line| line.contains(data.as_ref())).map(|line| format!("mount {line}")).collect()
}

fn of_cgroups(id: &str) -> Vec<String> {
    let mut found = Vec::new();
    let wanted = format!("podium-{id}");
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(&wanted) {
                found.push(format!("cgroup {}", entry.path().display()));
            } else {
                open.push(entry.path());
            }
        }
    }
    found
}

fn of_interfaces(id: &str) -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(id)).map(|name| format!("interface {name}")).collect()
}

/// Only where the `nft` tool happens to be installed.
fn of_firewall(id: &str) -> Vec<String> {
    let Ok(output) = Command::new("nft").args(["list", "tables"]).output() else { return Vec::new() };
    let tables = String::from_utf8_lossy(&output.stdout).into_owned();
    tables.lines().filter(|line| line.contains(id)).map(|line| format!("firewall {line}")).collect()
}
