//! What the kernel tells about this process and the machine: the one reader of
//! those figures, for evictions (`gauge.rs`) and for what the server shows.

use std::fs;
use std::path::Path;

/// The kernel's clock ticks, as user space sees them on every architecture we run on.
const TICKS_PER_SECOND: u64 = 100;
const NANOSECONDS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;

/// Of the agent itself; what cannot be read is zero.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) open_files: u64,
    pub(crate) open_files_max: u64,
    /// Since the epoch.
    pub(crate) started_seconds: f64,
}

impl Process {
    pub(crate) fn this() -> Self {
        let stat = read("/proc/self/stat");
        // The name in parentheses may contain anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        let seconds = |ticks: u64| real(ticks) / real(TICKS_PER_SECOND);
        let status = read("/proc/self/status");
        let limits = read("/proc/self/limits");
        let files_max = limits.lines().find(|line| line.starts_with("Max open files"));
        Self {
            cpu_seconds: seconds(number(11) + number(12)),
            started_seconds: real(boot_seconds()) + seconds(number(19)),
            resident_bytes: kilobytes(&status, "VmRSS:"),
            virtual_bytes: kilobytes(&status, "VmSize:"),
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |list| count(list.flatten())),
            open_files_max: files_max.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()).unwrap_or_default(),
        }
    }
}

/// Of the whole machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) cpu_nanoseconds: u64,
    pub(crate) memory_total_bytes: u64,
    pub(crate) memory_available_bytes: u64,
    pub(crate) memory_usage_bytes: u64,
    pub(crate) memory_working_set_bytes: u64,
    pub(crate) memory_rss_bytes: u64,
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
    pub(crate) processes: u64,
    pub(crate) processes_max: u64,
    pub(crate) boot_seconds: u64,
}

impl Node {
    pub(crate) fn this() -> Self {
        let memory = read("/proc/meminfo");
        Self {
            processes_max: processes_max(&read("/proc/sys/kernel/pid_max"), &read("/proc/sys/kernel/threads-max")),
            ..Self::parse(&read("/proc/stat"), &read("/proc/vmstat"), &read("/proc/loadavg"))
        }
        .with_memory(&memory, in_use(&memory))
    }

    fn parse(stat: &str, paging: &str, load: &str) -> Self {
        let cpu: Vec<u64> =
            stat.lines().next().unwrap_or_default().split_whitespace().skip(1).map_while(parsed).collect();
        // User, nice, system; not idle, not waiting; interrupts and what was stolen.
        let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&index| cpu.get(index)).sum();
        Self {
            cpu_nanoseconds: busy * NANOSECONDS_PER_TICK,
            page_faults: value(paging, "pgfault"),
            major_page_faults: value(paging, "pgmajfault"),
            processes: load.split_whitespace().nth(3).and_then(|it| parsed(it.split('/').nth(1)?)).unwrap_or_default(),
            boot_seconds: value(stat, "btime"),
            ..Self::default()
        }
    }

    /// TC-230: what the kernel could drop at once is available.
    fn with_memory(self, memory: &str, InUse { bytes, inactive_file_bytes }: InUse) -> Self {
        let total = kilobytes(memory, "MemTotal:");
        let working_set = bytes.saturating_sub(inactive_file_bytes);
        Self {
            memory_total_bytes: total,
            memory_available_bytes: total.saturating_sub(working_set),
            memory_usage_bytes: bytes,
            memory_working_set_bytes: working_set,
            memory_rss_bytes: kilobytes(memory, "AnonPages:"),
            ..self
        }
    }
}

/// Memory of everything on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InUse {
    bytes: u64,
    inactive_file_bytes: u64,
}

/// The root of a cgroup v1 hierarchy counts what is in use; that of v2 does
/// not, but knows its file pages.
fn in_use(memory: &str) -> InUse {
    let v1 = |file: &str| read(&format!("/sys/fs/cgroup/memory/{file}"));
    if let Some(bytes) = parsed(v1("memory.usage_in_bytes").trim()) {
        return InUse { bytes, inactive_file_bytes: value(&v1("memory.stat"), "total_inactive_file") };
    }
    counted(memory, &read("/sys/fs/cgroup/memory.stat"))
}

fn counted(memory: &str, root: &str) -> InUse {
    let inactive_file_bytes =
        if root.is_empty() { kilobytes(memory, "Inactive(file):") } else { value(root, "inactive_file") };
    let bytes = kilobytes(memory, "MemTotal:").saturating_sub(kilobytes(memory, "MemFree:"));
    InUse { bytes, inactive_file_bytes }
}

/// Every thread needs a number of its own, and room in the kernel's table.
fn processes_max(numbers: &str, threads: &str) -> u64 {
    [numbers, threads].into_iter().filter_map(|text| parsed(text.trim())).min().unwrap_or_default()
}

/// A file system's size and what is left of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) capacity_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

impl Disk {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let there = path.ancestors().find(|path| path.exists())?;
        let disk = rustix::fs::statvfs(there).ok()?;
        Some(Self {
            capacity_bytes: disk.f_blocks * disk.f_frsize,
            available_bytes: disk.f_bavail * disk.f_frsize,
            inodes: disk.f_files,
            inodes_free: disk.f_ffree,
        })
    }
}

fn boot_seconds() -> u64 {
    value(&read("/proc/stat"), "btime")
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn parsed(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// The number after a word that begins a line.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.and_then(|line| parsed(line.split_whitespace().nth(1)?)).unwrap_or_default()
}

fn kilobytes(text: &str, name: &str) -> u64 {
    value(text, name) * 1024
}

fn count(items: impl Iterator) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}

/// Metrics are floating point; what does not fit exactly is large enough not to matter.
#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
pub(crate) fn real(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_has_memory() {
        let process = Process::this();
        assert!(process.resident_bytes > 1 << 20, "{process:?}");
        assert!(process.virtual_bytes >= process.resident_bytes, "{process:?}");
        assert!((1..process.open_files_max).contains(&process.open_files), "{process:?}");
        assert!(process.started_seconds > 1.6e9, "{process:?}");
    }

    #[test]
    fn tc_230_the_working_set_leaves_out_what_can_be_dropped() {
        let stat = "cpu  100 0 50 9999 77 1 2 3 0 0\ncpu0 1 1 1 1\nbtime 1700000000\n";
        let memory = "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\nAnonPages: 400 kB\n";
        let node = Node::parse(stat, "pgfault 12\npgmajfault 3\n", "0.1 0.2 0.3 2/345 999\n");
        let node = node.with_memory(memory, counted(memory, ""));
        assert_eq!(node.cpu_nanoseconds, 156 * NANOSECONDS_PER_TICK);
        assert_eq!((node.memory_usage_bytes, node.memory_working_set_bytes), (700 << 10, 500 << 10));
        assert_eq!((node.memory_available_bytes, node.memory_rss_bytes), (500 << 10, 400 << 10));
        assert_eq!((node.page_faults, node.major_page_faults, node.processes), (12, 3, 345));
        assert_eq!(node.boot_seconds, 1_700_000_000);
        let root = format!("anon 1\ninactive_file {}\n", 600 << 10);
        assert_eq!(counted(memory, &root), InUse { bytes: 700 << 10, inactive_file_bytes: 600 << 10 });
    }

    #[test]
    fn tc_230_the_smaller_of_two_bounds_limits_processes() {
        assert_eq!(processes_max("32768\n", "7000\n"), 7000);
        assert_eq!(processes_max("32768\n", "127000\n"), 32768);
        assert_eq!(processes_max("", "7000\n"), 7000);
    }
}
