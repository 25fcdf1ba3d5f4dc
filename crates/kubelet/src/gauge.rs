//! What is left of the machine: memory, disks, process numbers (TC-230).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lifecycle::node::{Reading, Signal};

/// Where the readings come from; tests bring their own.
pub trait Gauge: Send + Sync {
    /// A signal that cannot be read is left out, and then triggers nothing.
    fn read(&self, nodefs: &Path, imagefs: Option<&Path>) -> BTreeMap<Signal, Reading>;
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Gauge for Host {
    fn read(&self, nodefs: &Path, imagefs: Option<&Path>) -> BTreeMap<Signal, Reading> {
        let mut signals = BTreeMap::new();
        let mut put = |signal: Signal, reading: Option<Reading>| {
            if let Some(reading) = reading {
                signals.insert(signal, reading);
            }
        };
        put(Signal::MemoryAvailable, memory());
        put(Signal::PidAvailable, processes());
        let disks = [
            (Some(nodefs), Signal::NodefsAvailable, Signal::NodefsInodesFree),
            (imagefs, Signal::ImagefsAvailable, Signal::ImagefsInodesFree),
        ];
        for (path, bytes, inodes) in disks {
            let Some(disk) = path.and_then(|path| rustix::fs::statvfs(path).ok()) else { continue };
            put(
                bytes,
                reading(disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize)),
            );
            put(inodes, reading(disk.f_favail, disk.f_files));
        }
        signals
    }
}

/// File systems that count no inodes say 0: nothing to run out of.
fn reading(available: u64, capacity: u64) -> Option<Reading> {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    (capacity > 0).then(|| Reading { available: signed(available), capacity: signed(capacity) })
}

/// As upstream: capacity without the working set of everything, which is what
/// is in use without file pages that were not touched lately.
fn memory() -> Option<Reading> {
    let listing = fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| {
        let line = listing.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    let total = field("MemTotal:")?;
    let (used, inactive) = match root_usage() {
        Some(found) => found,
        None => (total - field("MemFree:")?.min(total), root_stat("/sys/fs/cgroup/memory.stat", "inactive_file ")?),
    };
    reading(total.saturating_sub(used.saturating_sub(inactive)), total)
}

/// The root of a cgroup v1 hierarchy knows what is in use.
fn root_usage() -> Option<(u64, u64)> {
    let used = fs::read_to_string("/sys/fs/cgroup/memory/memory.usage_in_bytes").ok()?.trim().parse().ok()?;
    Some((used, root_stat("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file ")?))
}

fn root_stat(path: &str, field: &str) -> Option<u64> {
    let listing = fs::read_to_string(path).ok()?;
    listing.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

/// Of all threads that can have a number, how many do.
fn processes() -> Option<Reading> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let max = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    let running: u64 = load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
    reading(max.saturating_sub(running), max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tc_230_the_machine_can_be_read() {
        let root = tempfile::tempdir().unwrap();
        let signals = Host.read(root.path(), None);
        for signal in [Signal::MemoryAvailable, Signal::PidAvailable, Signal::NodefsAvailable] {
            let Reading { available, capacity } = signals[&signal];
            assert!(0 < available && available <= capacity, "{signal}: {available} of {capacity}");
        }
        assert!(!signals.contains_key(&Signal::ImagefsAvailable), "nobody said where images are");
    }
}
