//! Whom the kernel killed because the whole machine was out of memory, told as
//! Events of the node. What is killed for the limit of its container is the
//! runtime's to tell.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use client::Severity;
use rustix::fs::{Mode, OFlags, SeekFrom};
use tokio::io::unix::AsyncFd;

use crate::ctx::Ctx;
use crate::steward::about_node;

/// The kernel hands out one record at a time, none longer than this.
const RECORD_BYTES_MAX: usize = 8192;

/// Runs for ever, also where the kernel's log cannot be read.
pub(crate) async fn run(ctx: Arc<Ctx>) {
    if let Some(path) = ctx.gauge.kernel_log() {
        match open(&path) {
            Ok(log) => follow(&ctx, &log).await,
            Err(error) => tracing::debug!(path = %path.display(), %error, "no system OOMs will be told"),
        }
    }
    std::future::pending().await
}

/// From now on: what happened before is of the past.
#[expect(deprecated, reason = "its replacement is unsafe; an owned descriptor is closed with its registration only")]
fn open(path: &Path) -> std::io::Result<AsyncFd<OwnedFd>> {
    let log = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    // A pipe has no end to go to, and nothing of the past.
    let _ = rustix::fs::seek(&log, SeekFrom::End(0));
    AsyncFd::new(log)
}

async fn follow(ctx: &Ctx, log: &AsyncFd<OwnedFd>) {
    let mut buffer = [0; RECORD_BYTES_MAX];
    while let Ok(mut ready) = log.readable().await {
        match rustix::io::read(log.get_ref(), &mut buffer) {
            Ok(0) => return,
            Ok(length) => tell(ctx, &String::from_utf8_lossy(&buffer[..length])),
            Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
            // Records that were overwritten before they were read.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::INTR) => {}
            Err(error) => return tracing::warn!(%error, "the kernel's log cannot be read any more"),
        }
    }
}

fn tell(ctx: &Ctx, records: &str) {
    for (process, pid) in records.lines().filter_map(victim) {
        let message = format!("System OOM encountered, victim process: {process}, pid: {pid}");
        ctx.recorder.record(about_node(ctx), Severity::Warning, "SystemOOM", &message, ctx.clock.now());
    }
}

/// `6,1234,5678,-;Out of memory: Killed process 99 (name) total-vm:…`
fn victim(record: &str) -> Option<(&str, u32)> {
    let message = record.split_once(';')?.1.strip_prefix("Out of memory: Killed process ")?;
    let (pid, rest) = message.split_once(" (")?;
    // The name may contain parentheses; what follows it does not.
    let name = rest.split(" total-vm:").next()?.strip_suffix(')')?;
    Some((name, pid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_victims_of_the_whole_machine_are_told() {
        let global = "3,890,12345,-;Out of memory: Killed process 4242 (stress (a)) total-vm:9000kB, anon-rss:1kB";
        assert_eq!(victim(global), Some(("stress (a)", 4242)));
        let contained = "3,891,12345,-;Memory cgroup out of memory: Killed process 4243 (app) total-vm:1kB";
        assert_eq!(victim(contained), None);
        assert_eq!(victim("6,1,1,-;eth0: link up"), None);
        assert_eq!(victim(" SUBSYSTEM=net"), None);
    }
}
