//! The values of one cgroup: setting them, again while it is used, and reading
//! them back.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cri::Resources;

use super::children;

/// Sets what is given on version 1; `of` finds a controller's directory.
pub(super) fn set_v1(of: impl Fn(&str) -> Option<PathBuf>, resources: &Resources) -> io::Result<()> {
    if let Some(cpu) = of("cpu") {
        set_some(&cpu, "cpu.shares", resources.cpu_shares)?;
        write_quota_v1(&cpu, resources.cpu_period, resources.cpu_quota)?;
    }
    if let (Some(memory), Some(limit)) = (of("memory"), memory_limit(resources)) {
        set_memory_v1(&memory, limit)?;
    }
    match of("pids") {
        Some(pids) => set_some(&pids, "pids.max", resources.pids_limit.map(or_max)),
        None => Ok(()),
    }
}

/// A pod keeps the cgroups of instances that ended. They need no limit, and
/// their old one must not keep the pod from a smaller one.
pub(super) fn lift_quotas_v1(cpu: &Path, ended: impl Fn(&OsStr) -> bool) {
    let mut lifted: Vec<PathBuf> =
        children(cpu).into_iter().filter(|child| child.file_name().is_some_and(&ended)).collect();
    while let Some(child) = lifted.pop() {
        if let Err(error) = set(&child.join(QUOTA), "-1") {
            tracing::debug!(cgroup = %child.display(), %error, "the quota of an ended instance stays");
        }
        lifted.extend(children(&child));
    }
}

/// A cgroup may not get a larger part of the processor than the one around it,
/// not even between the two writes.
fn write_quota_v1(dir: &Path, period: Option<u64>, quota: Option<i64>) -> io::Result<()> {
    match set_some(dir, PERIOD, period) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && quota.is_some() => {
            set_some(dir, QUOTA, quota)?;
            set_some(dir, PERIOD, period)
        }
        result => result.and_then(|()| set_some(dir, QUOTA, quota)),
    }
}

/// Memory with swap is limited to the same, so that nothing swaps. The kernel
/// wants the sum never to be the smaller one.
fn set_memory_v1(dir: &Path, limit: i64) -> io::Result<()> {
    let mut files = vec![MEMORY];
    if let Some(sum) = number(dir, SUM) {
        let grows = limit < 0 || u64::try_from(limit).is_ok_and(|limit| limit > sum);
        files.insert(if grows { 0 } else { 1 }, SUM);
    }
    files.into_iter().try_for_each(|file| set(&dir.join(file), &limit.to_string()))
}

/// Sets what is given on version 2.
pub(super) fn set_v2(dir: &Path, resources: &Resources) -> io::Result<()> {
    set_some(dir, "cpu.weight", resources.cpu_shares.map(cpu_weight))?;
    let quota = match (resources.cpu_quota, resources.cpu_period) {
        (None, None) => None,
        // Without a period the kernel keeps the one it has.
        (Some(quota), None) => Some(or_max(quota)),
        (Some(quota), Some(period)) => Some(format!("{} {period}", or_max(quota))),
        (None, Some(period)) => {
            let now = fs::read_to_string(dir.join("cpu.max")).unwrap_or_default();
            Some(format!("{} {period}", now.split_whitespace().next().unwrap_or("max")))
        }
    };
    set_some(dir, "cpu.max", quota)?;
    if let Some(limit) = memory_limit(resources) {
        set(&dir.join("memory.max"), &or_max(limit))?;
    }
    set_some(dir, "pids.max", resources.pids_limit.map(or_max))
}

/// Negative means without limit; nothing is said with 0.
fn memory_limit(resources: &Resources) -> Option<i64> {
    resources.memory_limit_bytes.filter(|limit| *limit != 0)
}

/// What is set on version 1; `None` for what has no limit.
pub(super) fn read_v1(of: impl Fn(&str) -> Option<PathBuf>, asked: &Resources) -> Resources {
    let (cpu, memory, pids) = (of("cpu"), of("memory"), of("pids"));
    let cpu = |file: &str| cpu.as_ref().and_then(|dir| number(dir, file));
    let limit = memory.and_then(|dir| number(&dir, MEMORY)).filter(|limit| *limit < UNLIMITED);
    Resources {
        cpu_shares: cpu("cpu.shares"),
        cpu_quota: cpu(QUOTA).and_then(|quota| quota.try_into().ok()),
        cpu_period: cpu(PERIOD),
        memory_limit_bytes: memory_as_asked(limit, asked),
        pids_limit: pids.and_then(|dir| number(&dir, "pids.max")).and_then(|limit| limit.try_into().ok()),
        oom_score_adj: asked.oom_score_adj,
    }
}

/// What is set on version 2; `None` for what has no limit.
pub(super) fn read_v2(dir: &Path, asked: &Resources) -> Resources {
    let max = fs::read_to_string(dir.join("cpu.max")).unwrap_or_default();
    let mut max = max.split_whitespace();
    let shares = |weight: u64| match asked.cpu_shares {
        // Several shares make one weight.
        Some(asked) if cpu_weight(asked) == weight => asked,
        _ => 2 + weight.saturating_sub(1) * 262_142 / 9999,
    };
    Resources {
        cpu_shares: number(dir, "cpu.weight").map(shares),
        cpu_quota: max.next().and_then(|quota| quota.parse().ok()),
        cpu_period: max.next().and_then(|period| period.parse().ok()),
        memory_limit_bytes: memory_as_asked(number(dir, "memory.max"), asked),
        pids_limit: number(dir, "pids.max").and_then(|limit| limit.try_into().ok()),
        oom_score_adj: asked.oom_score_adj,
    }
}

/// The kernel counts pages: a limit between two is told as it was asked for.
fn memory_as_asked(limit: Option<u64>, asked: &Resources) -> Option<i64> {
    let limit = i64::try_from(limit?).ok()?;
    let same = asked.memory_limit_bytes.filter(|asked| *asked >= limit && asked - limit < PAGE_BYTES_MAX);
    Some(same.unwrap_or(limit))
}

/// Shares 2…262144 onto weights 1…10000, as the kubelet and runc do.
pub(super) fn cpu_weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

fn or_max(limit: i64) -> String {
    if limit > 0 { limit.to_string() } else { "max".into() }
}

/// A file with one number; `None` where it says anything else, or is not there.
pub(super) fn number(dir: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

fn set_some(dir: &Path, file: &str, value: Option<impl ToString>) -> io::Result<()> {
    value.map_or(Ok(()), |value| set(&dir.join(file), &value.to_string()))
}

pub(super) fn set(file: &Path, value: &str) -> io::Result<()> {
    write(file, value).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

/// Only what the kernel has: asked to create a file, as `fs::write` does, it
/// says that this is not permitted, and not that there is none.
pub(super) fn write(file: &Path, value: &str) -> io::Result<()> {
    File::options().write(true).truncate(true).open(file)?.write_all(value.as_bytes())
}

const PERIOD: &str = "cpu.cfs_period_us";
const QUOTA: &str = "cpu.cfs_quota_us";
const MEMORY: &str = "memory.limit_in_bytes";
const SUM: &str = "memory.memsw.limit_in_bytes";
/// Version 1 has a number for "no limit": the most pages there could be.
const UNLIMITED: u64 = 1 << 62;
const PAGE_BYTES_MAX: i64 = 64 << 10;
