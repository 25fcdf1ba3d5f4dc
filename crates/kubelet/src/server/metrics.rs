//! `/metrics` and what is below it (API-694), under upstream's names.

use cri::{ContainerState, SandboxState};
use http::{Response, StatusCode};
use objects::api::core::v1::Pod;
use std::sync::Arc;

use super::exposition::Exposition;
use super::usage::Usages;
use super::{Body, text, typed};
use crate::ctx::Ctx;
use crate::machine::{Node, Process, real};
use crate::meter::ProbeCounts;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

fn answer(out: Exposition) -> Response<Body> {
    typed(StatusCode::OK, CONTENT_TYPE, out.into_text())
}

/// `/metrics`: the agent itself.
pub(super) async fn own(ctx: &Ctx, desired: &[Arc<Pod>]) -> Response<Body> {
    let sandboxes = ctx.runtime.sandboxes(None).await;
    let containers = ctx.runtime.containers(None).await;
    let (sandboxes, containers) = match (sandboxes, containers) {
        (Ok(sandboxes), Ok(containers)) => (sandboxes, containers),
        (Err(error), _) | (_, Err(error)) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    let mut out = Exposition::default();
    let running = sandboxes.iter().filter(|sandbox| sandbox.state == SandboxState::Ready);
    out.gauge("kubelet_running_pods", "Number of pods that have a running pod sandbox").is(&[], number(running));
    let mut family = out.gauge("kubelet_running_containers", "Number of containers currently running");
    for (name, state) in [
        ("created", ContainerState::Created),
        ("exited", ContainerState::Exited),
        ("running", ContainerState::Running),
        ("unknown", ContainerState::Unknown),
    ] {
        let found = number(containers.iter().filter(|container| container.state == state));
        if found > 0 {
            family.is(&[("container_state", name)], found);
        }
    }
    let help = "The number of pods the kubelet is being instructed to run.";
    out.gauge("kubelet_desired_pods", help).is(&[("static", "")], number(desired.iter()));
    out.gauge("kubelet_node_name", "The node's name. The count is always 1.").is(&[("node", &ctx.config.node_name)], 1);
    counted(ctx, &mut out);
    let mut panics =
        out.counter("podium_task_panics_total", "Requests, streams and other tasks that ended in a panic.");
    for (task, count) in ctx.panics.counts() {
        panics.is(&[("task", task)], count);
    }
    process(&mut out);
    let version = ctx.config.version.trim_start_matches('v');
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let build = [("git_version", ctx.config.version.as_str()), ("major", major), ("minor", minor)];
    out.gauge("kubernetes_build_info", "A metric with a constant '1' value labeled by version.").is(&build, 1);
    answer(out)
}

fn counted(ctx: &Ctx, out: &mut Exposition) {
    let counts = ctx.meter.counts();
    let help = "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run";
    out.histogram("kubelet_pod_start_duration_seconds", help).buckets(&[], &counts.starts);
    let help = "Number of the http requests received since the server started";
    let mut requests = out.counter("kubelet_http_requests_total", help);
    for ((method, path), count) in &counts.requests {
        let labels = [("method", method.as_str()), ("path", *path), ("server_type", "readwrite")];
        requests.is(&labels, *count);
    }
}

fn process(out: &mut Exposition) {
    let process = Process::this();
    let help = "Total user and system CPU time spent in seconds.";
    out.counter("process_cpu_seconds_total", help).is(&[], process.cpu_seconds);
    out.gauge("process_max_fds", "Maximum number of open file descriptors.").is(&[], process.open_files_max);
    out.gauge("process_open_fds", "Number of open file descriptors.").is(&[], process.open_files);
    out.gauge("process_resident_memory_bytes", "Resident memory size in bytes.").is(&[], process.resident_bytes);
    let help = "Start time of the process since unix epoch in seconds.";
    out.gauge("process_start_time_seconds", help).is(&[], process.started_seconds);
    out.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.").is(&[], process.virtual_bytes);
}

/// `/metrics/probes`.
pub(super) fn probes(ctx: &Ctx) -> Response<Body> {
    let counts = ctx.meter.counts();
    let mut out = Exposition::default();
    let help = "Cumulative number of a liveness, readiness or startup probe for a container by result.";
    let mut total = out.counter("prober_probe_total", help);
    for (series, of) in &counts.probes {
        let ProbeCounts { successful, failed, unknown, .. } = of;
        for (result, count) in [("successful", successful), ("failed", failed), ("unknown", unknown)] {
            let labels = [
                ("container", series.container.as_str()),
                ("namespace", &series.namespace),
                ("pod", &series.pod),
                ("pod_uid", &series.uid),
                ("probe_type", series.kind),
                ("result", result),
            ];
            if *count > 0 {
                total.is(&labels, *count);
            }
        }
    }
    let mut durations = out.histogram("prober_probe_duration_seconds", "Duration in seconds for a probe response.");
    for (series, of) in &counts.probes {
        let labels = [
            ("container", series.container.as_str()),
            ("namespace", &series.namespace),
            ("pod", &series.pod),
            ("probe_type", series.kind),
        ];
        durations.buckets(&labels, &of.duration);
    }
    answer(out)
}

/// `/metrics/resource`: what a metrics server asks for.
pub(super) async fn resource(ctx: &Ctx) -> Response<Body> {
    let mut out = Exposition::default();
    let (now, node) = (ctx.clock.now().wall, Node::this());
    let help = "Cumulative cpu time consumed by the node in core-seconds";
    out.counter("node_cpu_usage_seconds_total", help).was(&[], seconds(node.cpu_nanoseconds), now);
    let help = "Current working set of the node in bytes";
    out.gauge("node_memory_working_set_bytes", help).was(&[], node.memory_working_set_bytes, now);
    let usages = Usages::take(ctx).await;
    if let Ok(usages) = &usages {
        of_containers(usages, &mut out);
        of_pods(usages, &mut out);
    }
    let failed = u64::from(usages.is_err());
    for name in ["scrape_error", "resource_scrape_error"] {
        out.gauge(name, "1 if there was an error while getting container metrics, 0 otherwise").is(&[], failed);
    }
    answer(out)
}

fn of_containers(usages: &Usages, out: &mut Exposition) {
    let all: Vec<_> = usages.containers().collect();
    let labels = |used: &super::usage::Used<'_>| {
        [
            ("container", used.container.name.clone()),
            ("namespace", used.pod.namespace.clone()),
            ("pod", used.pod.name.clone()),
        ]
    };
    let help = "Cumulative cpu time consumed by the container in core-seconds";
    let mut cpu = out.counter("container_cpu_usage_seconds_total", help);
    for used in &all {
        cpu.was(&borrowed(&labels(used)), seconds(used.stats.usage.cpu_nanoseconds), used.stats.usage.at);
    }
    let mut memory = out.gauge("container_memory_working_set_bytes", "Current working set of the container in bytes");
    for used in &all {
        memory.was(&borrowed(&labels(used)), used.stats.usage.memory_working_set_bytes, used.stats.usage.at);
    }
    let help = "Start time of the container since unix epoch in seconds";
    let mut started = out.gauge("container_start_time_seconds", help);
    for used in &all {
        if let Some(at) = used.container.started_at {
            started.is(&borrowed(&labels(used)), at.as_duration().as_secs_f64());
        }
    }
}

fn of_pods(usages: &Usages, out: &mut Exposition) {
    let help = "Cumulative cpu time consumed by the pod in core-seconds";
    let mut cpu = out.counter("pod_cpu_usage_seconds_total", help);
    for (sandbox, stats) in usages.pods() {
        let labels = [("namespace", sandbox.meta.namespace.as_str()), ("pod", &sandbox.meta.name)];
        cpu.was(&labels, seconds(stats.usage.cpu_nanoseconds), stats.usage.at);
    }
    let mut memory = out.gauge("pod_memory_working_set_bytes", "Current working set of the pod in bytes");
    for (sandbox, stats) in usages.pods() {
        let labels = [("namespace", sandbox.meta.namespace.as_str()), ("pod", &sandbox.meta.name)];
        memory.was(&labels, stats.usage.memory_working_set_bytes, stats.usage.at);
    }
}

/// `/metrics/cadvisor`: the part of cAdvisor's metrics that dashboards ask for.
pub(super) async fn cadvisor(ctx: &Ctx) -> Response<Body> {
    let usages = match Usages::take(ctx).await {
        Ok(usages) => usages,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    let mut out = Exposition::default();
    let all: Vec<_> = usages.containers().collect();
    let labels = |used: &super::usage::Used<'_>| {
        [
            ("container", used.container.name.clone()),
            ("image", used.container.image.clone()),
            ("name", used.container.id.to_string()),
            ("namespace", used.pod.namespace.clone()),
            ("pod", used.pod.name.clone()),
        ]
    };
    let mut cpu = out.counter("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.");
    for used in &all {
        let labels = labels(used);
        let labels = [&borrowed(&labels)[..1], &[("cpu", "total")], &borrowed(&labels)[1..]].concat();
        cpu.was(&labels, seconds(used.stats.usage.cpu_nanoseconds), used.stats.usage.at);
    }
    let mut kills =
        out.counter("container_oom_events_total", "Count of out of memory events observed for the container");
    for used in &all {
        kills.was(&borrowed(&labels(used)), used.stats.usage.oom_kills, used.stats.usage.at);
    }
    type Read = fn(&cri::ContainerStats) -> u64;
    let gauges: [(&'static str, &str, Read); 5] = [
        ("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", |it| {
            it.writable_layer.bytes
        }),
        ("container_memory_rss", "Size of RSS in bytes.", |it| it.usage.memory_rss_bytes),
        ("container_memory_usage_bytes", "Current memory usage in bytes.", |it| it.usage.memory_usage_bytes),
        ("container_memory_working_set_bytes", "Current working set in bytes.", |it| it.usage.memory_working_set_bytes),
        ("container_processes", "Number of processes running inside the container.", |it| it.usage.processes),
    ];
    for (name, help, read) in gauges {
        let mut family = out.gauge(name, help);
        for used in &all {
            family.was(&borrowed(&labels(used)), read(used.stats), used.stats.usage.at);
        }
    }
    network(&usages, &mut out);
    let cores = ctx.config.capacity.cpu_milli / 1000;
    out.gauge("machine_cpu_cores", "Number of logical CPU cores.").is(&[], cores);
    out.gauge("machine_memory_bytes", "Amount of memory installed on the machine.")
        .is(&[], Node::this().memory_total_bytes);
    answer(out)
}

fn network(usages: &Usages, out: &mut Exposition) {
    type Read = fn(&cri::NetworkUsage) -> u64;
    let counters: [(&'static str, &str, Read); 4] = [
        ("container_network_receive_bytes_total", "Cumulative count of bytes received", |it| it.received_bytes),
        ("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", |it| {
            it.received_errors
        }),
        ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |it| it.sent_bytes),
        (
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
            |it| it.sent_errors,
        ),
    ];
    for (name, help, read) in counters {
        let mut family = out.counter(name, help);
        for (sandbox, stats) in usages.pods() {
            let Some(network) = &stats.network else { continue };
            let labels = [
                ("interface", network.interface.as_str()),
                ("namespace", &sandbox.meta.namespace),
                ("pod", &sandbox.meta.name),
            ];
            family.was(&labels, read(network), stats.usage.at);
        }
    }
}

fn borrowed<'a, const N: usize>(labels: &'a [(&'a str, String); N]) -> [(&'a str, &'a str); N] {
    std::array::from_fn(|index| (labels[index].0, labels[index].1.as_str()))
}

fn seconds(nanoseconds: u64) -> f64 {
    real(nanoseconds) / 1e9
}

fn number(items: impl Iterator) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}
