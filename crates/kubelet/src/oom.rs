//! Whom the kernel killed because the whole machine was out of memory, told as
//! Events of the node; and whom because a container was, told as Events of its
//! pod. Whether that ended the container is the runtime's to tell.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ambient::Mono;
use client::{About, Severity};
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
    let mut told = Told::default();
    while let Ok(mut ready) = log.readable().await {
        match rustix::io::read(log.get_ref(), &mut buffer) {
            Ok(0) => return,
            Ok(length) => tell(ctx, &mut told, &String::from_utf8_lossy(&buffer[..length])).await,
            Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
            // Records that were overwritten before they were read.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::INTR) => {}
            Err(error) => return tracing::warn!(%error, "the kernel's log cannot be read any more"),
        }
    }
}

async fn tell(ctx: &Ctx, told: &mut Told, records: &str) {
    for (process, pid) in records.lines().filter_map(victim) {
        let message = format!("System OOM encountered, victim process: {process}, pid: {pid}");
        ctx.recorder.record(about_node(ctx), Severity::Warning, "SystemOOM", &message, ctx.clock.now());
    }
    for (container, process, pid) in records.lines().filter_map(victim_in_container) {
        let now = ctx.clock.now();
        let Some(silent) = told.begin(container, now.mono) else { continue };
        if let Some(about) = about_container(ctx, container).await {
            let more = if silent > 0 { format!(", and {silent} others before") } else { String::new() };
            let message = format!("Memory cgroup out of memory: Killed process {pid} ({process}){more}");
            ctx.recorder.record(about, Severity::Warning, "OOMKilling", &message, now);
        }
    }
}

/// Of which containers was told lately, and of how many victims since then was
/// not: one that loses a child every moment costs no more than one that lost one.
#[derive(Default)]
struct Told(BTreeMap<String, (Mono, u32)>);

/// Between two Events about one container.
const SILENCE: Duration = Duration::from_secs(10);
/// Containers that are remembered, and for how long.
const TOLD_MAX: usize = 1024;
const REMEMBERED: Duration = Duration::from_secs(600);

impl Told {
    /// How many were passed over, if it is time to tell again.
    fn begin(&mut self, container: &str, now: Mono) -> Option<u32> {
        if let Some((at, silent)) = self.0.get_mut(container) {
            if now.since(*at) < SILENCE {
                *silent = silent.saturating_add(1);
                return None;
            }
            *at = now;
            return Some(std::mem::take(silent));
        }
        self.0.retain(|_, (at, _)| now.since(*at) < REMEMBERED);
        if self.0.len() >= TOLD_MAX {
            return None;
        }
        self.0.insert(container.to_owned(), (now, 0));
        Some(0)
    }
}

/// By the labels that the agent gave it.
async fn about_container(ctx: &Ctx, id: &str) -> Option<About> {
    let all = ctx.runtime.containers(None).await.ok()?;
    let container = all.into_iter().find(|container| container.id.as_str() == id)?;
    let label = |name: &str| container.labels.get(name).cloned();
    Some(About {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: label("io.kubernetes.pod.namespace")?,
        name: label("io.kubernetes.pod.name")?,
        uid: label("io.kubernetes.pod.uid")?,
        field_path: format!("spec.containers{{{}}}", container.name),
        ..About::default()
    })
}

/// `6,1234,5678,-;Out of memory: Killed process 99 (name) total-vm:…`
fn victim(record: &str) -> Option<(&str, u32)> {
    let message = record.split_once(';')?.1.strip_prefix("Out of memory: Killed process ")?;
    let (pid, rest) = message.split_once(" (")?;
    // The name may contain parentheses; what follows it does not.
    let name = rest.split(" total-vm:").next()?.strip_suffix(')')?;
    Some((name, pid.parse().ok()?))
}

/// `6,…;oom-kill:constraint=CONSTRAINT_MEMCG,…,task_memcg=/…/pod…/ID,task=name,pid=99,uid=0`:
/// id of the container, name and number of the process.
fn victim_in_container(record: &str) -> Option<(&str, &str, u32)> {
    let fields = record.split_once(';')?.1.strip_prefix("oom-kill:constraint=CONSTRAINT_MEMCG,")?;
    // The name may contain anything; what comes before and after it does not.
    let (cgroup, rest) = fields.split_once(",task_memcg=")?.1.split_once(",task=")?;
    let (rest, _uid) = rest.rsplit_once(",uid=")?;
    let (name, pid) = rest.rsplit_once(",pid=")?;
    let is_id = |part: &&str| part.len() == CONTAINER_ID_CHARS && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((cgroup.split('/').find(is_id)?, name, pid.parse().ok()?))
}

/// Of the runtime's ids, which name the cgroups of containers.
const CONTAINER_ID_CHARS: usize = 64;

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

    #[test]
    fn a_victim_in_a_container_is_known_by_its_cgroup_whatever_it_is_called() {
        let id = "0123456789abcdef".repeat(4);
        let record = |task: &str| {
            format!(
                "6,890,12345,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={id},mems_allowed=0,\
                oom_memcg=/podium/burstable/podu/{id},task_memcg=/podium/burstable/podu/{id}/exec-0,task={task},pid=77,uid=0"
            )
        };
        assert_eq!(victim_in_container(&record("dd")), Some((id.as_str(), "dd", 77)));
        let hostile = ",task=x,pid=1,uid=0";
        assert_eq!(victim_in_container(&record(hostile)), Some((id.as_str(), hostile, 77)));
        let global = record("dd").replace("CONSTRAINT_MEMCG", "CONSTRAINT_NONE");
        assert_eq!(victim_in_container(&global), None);
        assert_eq!(victim_in_container("6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=x"), None);
    }

    #[test]
    fn a_container_that_loses_many_is_told_of_now_and_then_and_with_their_number() {
        let start = ambient::Clock::manual().now().mono;
        let mut told = Told::default();
        assert_eq!(told.begin("a", start), Some(0));
        for _ in 0..500 {
            assert_eq!(told.begin("a", start + Duration::from_secs(9)), None);
        }
        assert_eq!(told.begin("b", start + Duration::from_secs(9)), Some(0), "a neighbour is heard");
        assert_eq!(told.begin("a", start + SILENCE), Some(500));
        assert_eq!(told.begin("a", start + SILENCE), None);
        for number in 0..10 * TOLD_MAX {
            told.begin(&number.to_string(), start + SILENCE);
        }
        assert_eq!(told.0.len(), TOLD_MAX);
        assert_eq!(told.begin("new", start + SILENCE + REMEMBERED), Some(0), "old ones are forgotten");
        assert_eq!(told.0.len(), 1);
    }
}
