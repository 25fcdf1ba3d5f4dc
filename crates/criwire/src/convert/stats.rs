//! What pods and containers use, both ways. Pure.

use cri::{ContainerId, ContainerStats, DiskUsage, NetworkUsage, Sandbox, SandboxId, SandboxStats, Usage};

use super::image::used;
use super::{nanoseconds, sandbox, time};
use crate::v1;

pub(crate) fn container_to_wire(stats: &ContainerStats, attributes: v1::ContainerAttributes) -> v1::ContainerStats {
    let timestamp = nanoseconds(stats.usage.at);
    v1::ContainerStats {
        attributes: Some(attributes),
        cpu: Some(cpu(&stats.usage)),
        memory: Some(memory(&stats.usage)),
        writable_layer: Some(v1::FilesystemUsage {
            timestamp,
            fs_id: None,
            used_bytes: number(stats.writable_layer.bytes),
            inodes_used: number(stats.writable_layer.inodes),
        }),
    }
}

/// `None` when it does not say of which container it speaks.
pub(crate) fn container_from_wire(wire: v1::ContainerStats, pod_uid: String) -> Option<ContainerStats> {
    let attributes = wire.attributes?;
    let layer = wire.writable_layer.unwrap_or_default();
    Some(ContainerStats {
        id: ContainerId(attributes.id),
        pod_uid,
        name: attributes.metadata?.name,
        usage: usage(wire.cpu.unwrap_or_default(), wire.memory.unwrap_or_default(), 0),
        writable_layer: used(layer.used_bytes, layer.inodes_used),
    })
}

pub(crate) fn sandbox_to_wire(
    stats: &SandboxStats,
    of: &Sandbox,
    containers: Vec<v1::ContainerStats>,
) -> v1::PodSandboxStats {
    let timestamp = nanoseconds(stats.usage.at);
    let network = stats.network.as_ref().map(|network| v1::NetworkUsage {
        timestamp,
        default_interface: Some(interface(network)),
        interfaces: Vec::new(),
    });
    v1::PodSandboxStats {
        attributes: Some(v1::PodSandboxAttributes {
            id: of.id.0.clone(),
            metadata: Some(sandbox::meta_to_wire(&of.meta)),
            labels: of.labels.clone(),
            annotations: of.annotations.clone(),
        }),
        linux: Some(v1::LinuxPodSandboxStats {
            cpu: Some(cpu(&stats.usage)),
            memory: Some(memory(&stats.usage)),
            network,
            process: Some(v1::ProcessUsage { timestamp, process_count: number(stats.usage.processes) }),
            containers,
        }),
    }
}

pub(crate) fn sandbox_from_wire(wire: v1::PodSandboxStats) -> Option<SandboxStats> {
    let attributes = wire.attributes?;
    let linux = wire.linux.unwrap_or_default();
    let processes = linux.process.and_then(|process| process.process_count).unwrap_or_default().value;
    let network = linux.network.and_then(|network| network.default_interface).map(|wire| NetworkUsage {
        interface: wire.name,
        received_bytes: wire.rx_bytes.unwrap_or_default().value,
        received_errors: wire.rx_errors.unwrap_or_default().value,
        sent_bytes: wire.tx_bytes.unwrap_or_default().value,
        sent_errors: wire.tx_errors.unwrap_or_default().value,
    });
    Some(SandboxStats {
        id: SandboxId(attributes.id),
        pod_uid: attributes.metadata?.uid,
        usage: usage(linux.cpu.unwrap_or_default(), linux.memory.unwrap_or_default(), processes),
        network,
        // CRI has no place for it.
        disk: DiskUsage::default(),
    })
}

fn usage(cpu: v1::CpuUsage, memory: v1::MemoryUsage, processes: u64) -> Usage {
    let value = |number: Option<v1::UInt64Value>| number.unwrap_or_default().value;
    Usage {
        at: time(cpu.timestamp).or_else(|| time(memory.timestamp)).unwrap_or_default(),
        cpu_nanoseconds: value(cpu.usage_core_nano_seconds),
        memory_usage_bytes: value(memory.usage_bytes),
        memory_working_set_bytes: value(memory.working_set_bytes),
        memory_rss_bytes: value(memory.rss_bytes),
        page_faults: value(memory.page_faults),
        major_page_faults: value(memory.major_page_faults),
        processes,
        oom_kills: 0,
    }
}

fn cpu(usage: &Usage) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp: nanoseconds(usage.at),
        usage_core_nano_seconds: number(usage.cpu_nanoseconds),
        usage_nano_cores: None,
    }
}

fn memory(usage: &Usage) -> v1::MemoryUsage {
    v1::MemoryUsage {
        timestamp: nanoseconds(usage.at),
        working_set_bytes: number(usage.memory_working_set_bytes),
        available_bytes: None,
        usage_bytes: number(usage.memory_usage_bytes),
        rss_bytes: number(usage.memory_rss_bytes),
        page_faults: number(usage.page_faults),
        major_page_faults: number(usage.major_page_faults),
    }
}

fn interface(network: &NetworkUsage) -> v1::NetworkInterfaceUsage {
    v1::NetworkInterfaceUsage {
        name: network.interface.clone(),
        rx_bytes: number(network.received_bytes),
        rx_errors: number(network.received_errors),
        tx_bytes: number(network.sent_bytes),
        tx_errors: number(network.sent_errors),
    }
}

fn number(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}
