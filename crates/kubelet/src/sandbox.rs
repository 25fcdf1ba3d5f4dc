//! Pure. What a pod's sandbox is asked to be.

use std::collections::BTreeMap;

use cri::{DnsConfig, HostPort, IdRange, NamespaceMode, PodMeta, Protocol, SandboxConfig};
use lifecycle::Cgroups;
use objects::api::core::v1::{ContainerPort, Pod, PodSpec};

use crate::cgroup;
use crate::config::Config;

/// `users`: those of the pod's own; none: the node's.
pub(crate) fn sandbox_config(
    pod: &Pod,
    attempt: u32,
    config: &Config,
    cgroups: &Cgroups,
    users: Option<IdRange>,
) -> SandboxConfig {
    let meta = meta_of(pod, attempt);
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let is_host_network = spec.host_network == Some(true);
    SandboxConfig {
        hostname: if is_host_network { String::new() } else { hostname(spec, &meta.name) },
        log_directory: config.pod_log_dir(&meta.namespace, &meta.name, &meta.uid),
        cgroup_parent: cgroups.parent.clone(),
        resources: cgroup::resources(&cgroups.pod),
        dns: dns(spec, &config.dns),
        network: if is_host_network { NamespaceMode::Node } else { NamespaceMode::Pod },
        pid: pid_mode(spec),
        ipc: if spec.host_ipc == Some(true) { NamespaceMode::Node } else { NamespaceMode::Pod },
        user_namespace: users,
        runtime_handler: String::new(),
        host_ports: host_ports(spec),
        sysctls: sysctls(spec),
        log_limits: config.log_limits,
        labels: labels(pod, &meta),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        meta,
    }
}

pub(crate) fn meta_of(pod: &Pod, attempt: u32) -> PodMeta {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    PodMeta {
        name: text(&pod.metadata.name),
        namespace: text(&pod.metadata.namespace),
        uid: text(&pod.metadata.uid),
        attempt,
    }
}

/// A port of the node leads nowhere in a pod that has the node's network.
fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    if spec.host_network == Some(true) {
        return Vec::new();
    }
    let sidecars =
        spec.init_containers.iter().flatten().filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let ports = sidecars.chain(&spec.containers).flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(host_port).collect()
}

fn host_port(port: &ContainerPort) -> Option<HostPort> {
    let protocol = match port.protocol.as_deref() {
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    Some(HostPort {
        protocol,
        container_port: u16::try_from(port.container_port).ok()?,
        host_port: u16::try_from(port.host_port?).ok().filter(|&port| port != 0)?,
        host_ip: port.host_ip.as_ref().and_then(|ip| ip.parse().ok()),
    })
}

fn sysctls(spec: &PodSpec) -> BTreeMap<String, String> {
    let settings = spec.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
    settings.into_iter().flatten().map(|sysctl| (sysctl.name.clone(), sysctl.value.clone())).collect()
}

/// LC-367.
pub(crate) fn hostname(spec: &PodSpec, pod_name: &str) -> String {
    let wanted = [spec.hostname_override.as_deref(), spec.hostname.as_deref()];
    let name = wanted.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or(pod_name);
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// LC-366.
fn pid_mode(spec: &PodSpec) -> NamespaceMode {
    match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => NamespaceMode::Node,
        (_, Some(true)) => NamespaceMode::Pod,
        _ => NamespaceMode::Container,
    }
}

fn dns(spec: &PodSpec, node: &DnsConfig) -> DnsConfig {
    let mut dns = if spec.dns_policy.as_deref() == Some("None") { DnsConfig::default() } else { node.clone() };
    let Some(own) = &spec.dns_config else { return dns };
    let add = |list: &mut Vec<String>, more: Vec<String>| {
        for entry in more {
            if !list.contains(&entry) {
                list.push(entry);
            }
        }
    };
    add(&mut dns.servers, own.nameservers.clone().unwrap_or_default());
    add(&mut dns.searches, own.searches.clone().unwrap_or_default());
    let option = |name: &String, value: &Option<String>| match value {
        Some(value) if !value.is_empty() => format!("{name}:{value}"),
        _ => name.clone(),
    };
    let options = own.options.iter().flatten();
    let options = options.filter_map(|entry| entry.name.as_ref().map(|name| option(name, &entry.value)));
    add(&mut dns.options, options.collect());
    dns
}

fn labels(pod: &Pod, meta: &PodMeta) -> BTreeMap<String, String> {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.insert("io.kubernetes.pod.name".to_owned(), meta.name.clone());
    labels.insert("io.kubernetes.pod.namespace".to_owned(), meta.namespace.clone());
    labels.insert("io.kubernetes.pod.uid".to_owned(), meta.uid.clone());
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_367_the_host_name_is_cut_and_trimmed() {
        let long = format!("{}-tail", "a".repeat(62));
        assert_eq!(hostname(&PodSpec::default(), &long), "a".repeat(62));
        let own = PodSpec { hostname: Some("db".into()), ..PodSpec::default() };
        assert_eq!(hostname(&own, "web"), "db");
    }

    #[test]
    fn lc_366_namespaces_follow_the_spec() {
        assert_eq!(pid_mode(&PodSpec::default()), NamespaceMode::Container);
        let shared = PodSpec { share_process_namespace: Some(true), ..PodSpec::default() };
        assert_eq!(pid_mode(&shared), NamespaceMode::Pod);
        let host = PodSpec { host_pid: Some(true), ..PodSpec::default() };
        assert_eq!(pid_mode(&host), NamespaceMode::Node);
    }
}
