//! What is left of the machine: memory, disks, process numbers (TC-230).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lifecycle::node::{Reading, Signal};

use crate::machine::{Disk, Node};

/// Where the readings come from; tests bring their own.
pub trait Gauge: Send + Sync {
    /// A signal that cannot be read is left out, and then triggers nothing.
    fn read(&self, nodefs: &Path, imagefs: Option<&Path>) -> BTreeMap<Signal, Reading>;

    /// Where the kernel says whom it killed; `None`: nobody asks.
    fn kernel_log(&self) -> Option<PathBuf> {
        None
    }
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Gauge for Host {
    fn kernel_log(&self) -> Option<PathBuf> {
        Some(PathBuf::from("/dev/kmsg"))
    }

    fn read(&self, nodefs: &Path, imagefs: Option<&Path>) -> BTreeMap<Signal, Reading> {
        let mut signals = BTreeMap::new();
        let mut put = |signal: Signal, reading: Option<Reading>| {
            if let Some(reading) = reading {
                signals.insert(signal, reading);
            }
        };
        let node = Node::this();
        put(Signal::MemoryAvailable, reading(node.memory_available_bytes, node.memory_total_bytes));
        put(Signal::PidAvailable, reading(node.processes_max.saturating_sub(node.processes), node.processes_max));
        let disks = [
            (Some(nodefs), Signal::NodefsAvailable, Signal::NodefsInodesFree),
            (imagefs, Signal::ImagefsAvailable, Signal::ImagefsInodesFree),
        ];
        for (path, bytes, inodes) in disks {
            let Some(disk) = path.and_then(Disk::of) else { continue };
            put(bytes, reading(disk.available_bytes, disk.capacity_bytes));
            put(inodes, reading(disk.inodes_free, disk.inodes));
        }
        signals
    }
}

/// What cannot be read is 0; so say file systems that count no inodes: nothing
/// to run out of.
fn reading(available: u64, capacity: u64) -> Option<Reading> {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    (capacity > 0).then(|| Reading { available: signed(available), capacity: signed(capacity) })
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
