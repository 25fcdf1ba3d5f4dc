//! `/stats/summary` (API-695) and `/runningpods` (API-690): what runs and what
//! it uses, as JSON.

use ambient::Timestamp;
use cri::{ContainerState, CriError, DiskUsage, NetworkUsage, SandboxStats, Usage};
use serde_json::{Value, json};

use super::usage::{NODE, Usages, Used};
use crate::ctx::Ctx;
use crate::machine::{Disk, Node};

pub(super) async fn stats(ctx: &Ctx) -> Result<Value, CriError> {
    let usages = Usages::take(ctx).await?;
    let now = ctx.clock.now().wall;
    let pods: Vec<Value> = usages
        .pods()
        .map(|(sandbox, stats)| {
            let containers: Vec<Value> = usages
                .containers()
                .filter(|used| used.pod.uid == sandbox.meta.uid)
                .map(|used| container(ctx, &used))
                .collect();
            let mut pod = json!({
                "podRef": {"name": sandbox.meta.name, "namespace": sandbox.meta.namespace, "uid": sandbox.meta.uid},
                "startTime": shown(sandbox.created_at),
                "containers": containers,
                "cpu": cpu(ctx, &sandbox.meta.uid, &stats.usage),
                "memory": memory(&stats.usage),
                "process_stats": {"process_count": stats.usage.processes},
            });
            if let Some(network) = &stats.network {
                pod["network"] = traffic(network, stats);
            }
            pod
        })
        .collect();
    Ok(json!({"node": node(ctx, now).await, "pods": pods}))
}

fn container(ctx: &Ctx, used: &Used<'_>) -> Value {
    let usage = &used.stats.usage;
    let mut container = json!({
        "name": used.container.name,
        "cpu": cpu(ctx, used.container.id.as_str(), usage),
        "memory": memory(usage),
        "rootfs": layer(used.stats.writable_layer, usage.at),
    });
    if let Some(at) = used.container.started_at {
        container["startTime"] = json!(shown(at));
    }
    container
}

async fn node(ctx: &Ctx, now: Timestamp) -> Value {
    let (machine, time) = (Node::this(), shown(now));
    let started = Timestamp::from_second(i64::try_from(machine.boot_seconds).unwrap_or_default()).unwrap_or_default();
    let mut node = json!({
        "nodeName": ctx.config.node_name,
        "systemContainers": [],
        "startTime": shown(started),
        "cpu": {"time": time, "usageCoreNanoSeconds": machine.cpu_nanoseconds},
        "memory": {
            "time": time, "availableBytes": machine.memory_available_bytes, "usageBytes": machine.memory_usage_bytes,
            "workingSetBytes": machine.memory_working_set_bytes, "rssBytes": machine.memory_rss_bytes,
            "pageFaults": machine.page_faults, "majorPageFaults": machine.major_page_faults,
        },
        "rlimit": {"time": time, "maxpid": machine.processes_max, "curproc": machine.processes},
    });
    if let Some(rate) = ctx.meter.nano_cores(NODE, now, machine.cpu_nanoseconds) {
        node["cpu"]["usageNanoCores"] = json!(rate);
    }
    if let Some(disk) = Disk::of(&ctx.config.root) {
        let used = DiskUsage {
            bytes: disk.capacity_bytes - disk.available_bytes,
            inodes: disk.inodes.saturating_sub(disk.inodes_free),
        };
        node["fs"] = filesystem(&disk, used, now);
    }
    if let Ok(images) = ctx.runtime.image_fs().await
        && let Some(disk) = Disk::of(&images.mount_point)
    {
        node["runtime"] = json!({"imageFs": filesystem(&disk, images.used, now)});
    }
    node
}

fn cpu(ctx: &Ctx, who: &str, usage: &Usage) -> Value {
    let mut cpu = json!({"time": shown(usage.at), "usageCoreNanoSeconds": usage.cpu_nanoseconds});
    if let Some(rate) = ctx.meter.nano_cores(who, usage.at, usage.cpu_nanoseconds) {
        cpu["usageNanoCores"] = json!(rate);
    }
    cpu
}

fn memory(usage: &Usage) -> Value {
    json!({
        "time": shown(usage.at), "usageBytes": usage.memory_usage_bytes,
        "workingSetBytes": usage.memory_working_set_bytes, "rssBytes": usage.memory_rss_bytes,
        "pageFaults": usage.page_faults, "majorPageFaults": usage.major_page_faults,
    })
}

fn layer(used: DiskUsage, at: Timestamp) -> Value {
    json!({"time": shown(at), "usedBytes": used.bytes, "inodesUsed": used.inodes})
}

fn filesystem(disk: &Disk, used: DiskUsage, at: Timestamp) -> Value {
    let mut all = layer(used, at);
    all["availableBytes"] = json!(disk.available_bytes);
    all["capacityBytes"] = json!(disk.capacity_bytes);
    all["inodesFree"] = json!(disk.inodes_free);
    all["inodes"] = json!(disk.inodes);
    all
}

fn traffic(network: &NetworkUsage, stats: &SandboxStats) -> Value {
    let one = json!({
        "name": network.interface, "rxBytes": network.received_bytes, "rxErrors": network.received_errors,
        "txBytes": network.sent_bytes, "txErrors": network.sent_errors,
    });
    let mut all = one.clone();
    all["time"] = json!(shown(stats.usage.at));
    all["interfaces"] = json!([one]);
    all
}

fn shown(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What the runtime runs, whatever the API says.
pub(super) async fn running(ctx: &Ctx) -> Result<Value, CriError> {
    let (sandboxes, containers) = tokio::try_join!(ctx.runtime.sandboxes(None), ctx.runtime.containers(None))?;
    let pods: Vec<Value> = sandboxes
        .iter()
        .filter_map(|sandbox| {
            let of_pod = containers
                .iter()
                .filter(|container| container.sandbox == sandbox.id && container.state == ContainerState::Running);
            let containers: Vec<Value> = of_pod
                .map(|container| json!({"name": container.name, "image": container.image, "resources": {}}))
                .collect();
            let meta = json!({"name": sandbox.meta.name, "namespace": sandbox.meta.namespace, "uid": sandbox.meta.uid});
            (!containers.is_empty())
                .then(|| json!({"metadata": meta, "spec": {"containers": containers}, "status": {}}))
        })
        .collect();
    Ok(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}))
}
