//! What the processes of a cgroup use, on both versions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ambient::Timestamp;
use cri::Usage;

use super::limits::number;

/// On version 1; `of` finds a controller's directory.
pub(super) fn read_v1(of: impl Fn(&str) -> Option<PathBuf>, at: Timestamp) -> io::Result<Usage> {
    let memory = of("memory").ok_or_else(|| missing("the memory controller"))?;
    let stat = fs::read_to_string(memory.join("memory.stat"))?;
    let usage = number(&memory, "memory.usage_in_bytes").ok_or_else(|| missing("memory.usage_in_bytes"))?;
    Ok(Usage {
        at,
        cpu_nanoseconds: of("cpuacct").and_then(|dir| number(&dir, "cpuacct.usage")).unwrap_or(0),
        memory_usage_bytes: usage,
        memory_working_set_bytes: usage.saturating_sub(field(&stat, "total_inactive_file")),
        memory_rss_bytes: field(&stat, "total_rss"),
        page_faults: field(&stat, "total_pgfault"),
        major_page_faults: field(&stat, "total_pgmajfault"),
        processes: of("pids").and_then(|dir| number(&dir, "pids.current")).unwrap_or(0),
        oom_kills: oom_kills(&memory.join("memory.oom_control")),
    })
}

/// On version 2.
pub(super) fn read_v2(dir: &Path, at: Timestamp) -> io::Result<Usage> {
    let cpu = fs::read_to_string(dir.join("cpu.stat"))?;
    let stat = fs::read_to_string(dir.join("memory.stat"))?;
    let usage = number(dir, "memory.current").ok_or_else(|| missing("memory.current"))?;
    Ok(Usage {
        at,
        cpu_nanoseconds: field(&cpu, "usage_usec").saturating_mul(1000),
        memory_usage_bytes: usage,
        memory_working_set_bytes: usage.saturating_sub(field(&stat, "inactive_file")),
        memory_rss_bytes: field(&stat, "anon"),
        page_faults: field(&stat, "pgfault"),
        major_page_faults: field(&stat, "pgmajfault"),
        processes: number(dir, "pids.current").unwrap_or(0),
        oom_kills: oom_kills(&dir.join("memory.events")),
    })
}

fn oom_kills(counters: &Path) -> u64 {
    fs::read_to_string(counters).map_or(0, |counters| field(&counters, "oom_kill"))
}

/// From lines of a name and a number; 0 where the kernel does not tell.
fn field(text: &str, name: &str) -> u64 {
    let fields = text.lines().filter_map(|line| line.split_once(' '));
    fields.into_iter().find(|(known, _)| *known == name).and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{what} is not there"))
}
