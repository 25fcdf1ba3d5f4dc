//! Sandboxes, both ways. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use cri::{
    CriError, DnsConfig, HostPort, IdRange, LogLimits, NamespaceMode, PodMeta, Protocol, Sandbox, SandboxConfig,
    SandboxId, SandboxState,
};

use super::{id32, nanoseconds, required, resources, time};
use crate::v1;

pub(crate) fn config_to_wire(config: &SandboxConfig, cgroup_parent: String) -> v1::PodSandboxConfig {
    let security = v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces_to_wire(config)),
        ..v1::LinuxSandboxSecurityContext::default()
    };
    let dns = config.dns.clone();
    v1::PodSandboxConfig {
        metadata: Some(meta_to_wire(&config.meta)),
        hostname: config.hostname.clone(),
        log_directory: config.log_directory.display().to_string(),
        dns_config: Some(v1::DnsConfig { servers: dns.servers, searches: dns.searches, options: dns.options }),
        port_mappings: config.host_ports.iter().map(port_to_wire).collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent,
            security_context: Some(security),
            sysctls: config.sysctls.clone(),
            overhead: None,
            resources: Some(resources::to_wire(&config.resources)),
        }),
    }
}

pub(crate) fn config_from_wire(wire: v1::PodSandboxConfig) -> Result<SandboxConfig, CriError> {
    let linux = wire.linux.unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    let options = security.namespace_options.unwrap_or_default();
    let dns = wire.dns_config.unwrap_or_default();
    let ports = wire.port_mappings.iter().filter(|port| port.host_port != 0);
    Ok(SandboxConfig {
        meta: meta_from_wire(required(wire.metadata, "metadata of the pod sandbox")?),
        hostname: wire.hostname,
        log_directory: PathBuf::from(wire.log_directory),
        cgroup_parent: linux.cgroup_parent.trim_matches('/').to_owned(),
        resources: resources::from_wire(linux.resources.as_ref()),
        dns: DnsConfig { servers: dns.servers, searches: dns.searches, options: dns.options },
        network: mode_from_wire(options.network, "network")?,
        pid: mode_from_wire(options.pid, "pid")?,
        ipc: mode_from_wire(options.ipc, "ipc")?,
        user_namespace: users_from_wire(options.userns_options.as_ref())?,
        // Beside the configuration on the wire.
        runtime_handler: String::new(),
        host_ports: ports.map(port_from_wire).collect::<Result<_, _>>()?,
        sysctls: linux.sysctls,
        // CRI leaves rotation to the agent (`ReopenContainerLog`).
        log_limits: LogLimits { file_bytes_max: u64::MAX, files_max: 1 },
        labels: wire.labels,
        annotations: wire.annotations,
    })
}

pub(crate) fn status_to_wire(sandbox: &Sandbox) -> v1::PodSandboxStatus {
    let mut ips = sandbox.ips.iter().map(IpAddr::to_string);
    let options = v1::NamespaceOption { network: mode_to_wire(sandbox.network), ..v1::NamespaceOption::default() };
    v1::PodSandboxStatus {
        id: sandbox.id.0.clone(),
        metadata: Some(meta_to_wire(&sandbox.meta)),
        state: state_to_wire(sandbox.state),
        created_at: nanoseconds(sandbox.created_at),
        network: Some(v1::PodSandboxNetworkStatus {
            ip: ips.next().unwrap_or_default(),
            additional_ips: ips.map(|ip| v1::PodIp { ip }).collect(),
        }),
        linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(v1::Namespace { options: Some(options) }) }),
        labels: sandbox.labels.clone(),
        annotations: sandbox.annotations.clone(),
        runtime_handler: String::new(),
    }
}

pub(crate) fn listed_to_wire(sandbox: &Sandbox) -> v1::PodSandbox {
    v1::PodSandbox {
        id: sandbox.id.0.clone(),
        metadata: Some(meta_to_wire(&sandbox.meta)),
        state: state_to_wire(sandbox.state),
        created_at: nanoseconds(sandbox.created_at),
        labels: sandbox.labels.clone(),
        annotations: sandbox.annotations.clone(),
        runtime_handler: String::new(),
    }
}

pub(crate) fn status_from_wire(wire: v1::PodSandboxStatus) -> Result<Sandbox, CriError> {
    let options = wire.linux.and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options);
    let network = mode_from_wire(options.map_or(0, |options| options.network), "network")?;
    let told = wire.network.unwrap_or_default();
    let ips = [told.ip].into_iter().chain(told.additional_ips.into_iter().map(|more| more.ip));
    // Some runtimes tell the node's own address here.
    let ips = ips.filter(|_| network != NamespaceMode::Node).filter_map(|ip| ip.parse().ok());
    Ok(Sandbox {
        id: SandboxId(wire.id),
        meta: meta_from_wire(required(wire.metadata, "metadata of the pod sandbox")?),
        state: state_from_wire(wire.state),
        created_at: time(wire.created_at).unwrap_or_default(),
        network,
        ips: ips.collect(),
        labels: wire.labels,
        annotations: wire.annotations,
    })
}

pub(crate) fn meta_to_wire(meta: &PodMeta) -> v1::PodSandboxMetadata {
    v1::PodSandboxMetadata {
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        namespace: meta.namespace.clone(),
        attempt: meta.attempt,
    }
}

fn meta_from_wire(wire: v1::PodSandboxMetadata) -> PodMeta {
    PodMeta { name: wire.name, namespace: wire.namespace, uid: wire.uid, attempt: wire.attempt }
}

pub(crate) fn state_to_wire(state: SandboxState) -> i32 {
    match state {
        SandboxState::Ready => v1::PodSandboxState::Ready.into(),
        SandboxState::NotReady => v1::PodSandboxState::NotReady.into(),
    }
}

fn state_from_wire(state: i32) -> SandboxState {
    match v1::PodSandboxState::try_from(state) {
        Ok(v1::PodSandboxState::Ready) => SandboxState::Ready,
        Ok(v1::PodSandboxState::NotReady) | Err(_) => SandboxState::NotReady,
    }
}

/// Of the sandbox; containers are told the same.
pub(crate) fn namespaces_to_wire(config: &SandboxConfig) -> v1::NamespaceOption {
    let users = config.user_namespace.map(|range| {
        let mapping = v1::IdMapping { host_id: range.first, container_id: 0, length: range.length };
        v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![mapping.clone()], gids: vec![mapping] }
    });
    v1::NamespaceOption {
        network: mode_to_wire(config.network),
        pid: mode_to_wire(config.pid),
        ipc: mode_to_wire(config.ipc),
        target_id: String::new(),
        userns_options: users,
    }
}

fn users_from_wire(wire: Option<&v1::UserNamespace>) -> Result<Option<IdRange>, CriError> {
    let Some(wire) = wire else { return Ok(None) };
    match v1::NamespaceMode::try_from(wire.mode) {
        Ok(v1::NamespaceMode::Pod) => {}
        Ok(v1::NamespaceMode::Node) => return Ok(None),
        _ => return Err(CriError::Invalid(format!("user namespace: mode {} is not supported", wire.mode))),
    }
    match (wire.uids.as_slice(), wire.gids.as_slice()) {
        ([], []) => Ok(None),
        ([uids], [gids]) if uids == gids && uids.container_id == 0 => {
            Ok(Some(IdRange { first: id32(i64::from(uids.host_id), "user namespace")?, length: uids.length }))
        }
        _ => Err(CriError::Invalid("user namespace: give one range, from 0, the same for users and groups".into())),
    }
}

fn mode_to_wire(mode: NamespaceMode) -> i32 {
    match mode {
        NamespaceMode::Pod => v1::NamespaceMode::Pod.into(),
        NamespaceMode::Container => v1::NamespaceMode::Container.into(),
        NamespaceMode::Node => v1::NamespaceMode::Node.into(),
    }
}

fn mode_from_wire(mode: i32, name: &str) -> Result<NamespaceMode, CriError> {
    match v1::NamespaceMode::try_from(mode) {
        Ok(v1::NamespaceMode::Pod) => Ok(NamespaceMode::Pod),
        Ok(v1::NamespaceMode::Container) => Ok(NamespaceMode::Container),
        Ok(v1::NamespaceMode::Node) => Ok(NamespaceMode::Node),
        Ok(v1::NamespaceMode::Target) | Err(_) => {
            Err(CriError::Invalid(format!("{name} namespace: mode {mode} is not supported for a pod sandbox")))
        }
    }
}

fn port_to_wire(port: &HostPort) -> v1::PortMapping {
    let protocol = match port.protocol {
        Protocol::Tcp => v1::Protocol::Tcp,
        Protocol::Udp => v1::Protocol::Udp,
        Protocol::Sctp => v1::Protocol::Sctp,
    };
    v1::PortMapping {
        protocol: protocol.into(),
        container_port: i32::from(port.container_port),
        host_port: i32::from(port.host_port),
        host_ip: port.host_ip.map(|ip| ip.to_string()).unwrap_or_default(),
    }
}

fn port_from_wire(wire: &v1::PortMapping) -> Result<HostPort, CriError> {
    let wrong = |value: &dyn std::fmt::Display| CriError::Invalid(format!("port mapping: {value} is not possible"));
    let port = |number: i32| u16::try_from(number).map_err(|_| wrong(&number));
    let protocol = match v1::Protocol::try_from(wire.protocol).map_err(|_| wrong(&wire.protocol))? {
        v1::Protocol::Tcp => Protocol::Tcp,
        v1::Protocol::Udp => Protocol::Udp,
        v1::Protocol::Sctp => Protocol::Sctp,
    };
    let host_ip = match wire.host_ip.as_str() {
        "" => None,
        ip => Some(ip.parse().map_err(|_| wrong(&ip))?),
    };
    Ok(HostPort { protocol, container_port: port(wire.container_port)?, host_port: port(wire.host_port)?, host_ip })
}

/// Does `labels` have everything that was asked for?
pub(crate) fn labels_match(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_configurations_survive_the_wire() {
        let config = SandboxConfig {
            meta: PodMeta { name: "web".into(), namespace: "shop".into(), uid: "u1".into(), attempt: 2 },
            hostname: "web-0".into(),
            log_directory: "/var/log/pods/web".into(),
            cgroup_parent: "burstable/podu1".into(),
            resources: cri::Resources { cpu_shares: Some(512), oom_score_adj: 5, ..cri::Resources::default() },
            dns: DnsConfig { servers: vec!["10.0.0.10".into()], searches: vec!["a".into()], options: vec![] },
            network: NamespaceMode::Pod,
            pid: NamespaceMode::Container,
            ipc: NamespaceMode::Node,
            user_namespace: Some(IdRange { first: 65536, length: 65536 }),
            runtime_handler: String::new(),
            host_ports: vec![HostPort {
                protocol: Protocol::Udp,
                container_port: 53,
                host_port: 5353,
                host_ip: Some("127.0.0.1".parse().unwrap()),
            }],
            sysctls: BTreeMap::from([("net.core.somaxconn".into(), "64".into())]),
            log_limits: LogLimits { file_bytes_max: u64::MAX, files_max: 1 },
            labels: BTreeMap::from([("app".into(), "web".into())]),
            annotations: BTreeMap::from([("note".into(), "x".into())]),
        };
        let back = config_from_wire(config_to_wire(&config, config.cgroup_parent.clone())).unwrap();
        assert_eq!(back, config);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(config_from_wire(v1::PodSandboxConfig::default()).is_err());
        assert!(mode_from_wire(v1::NamespaceMode::Target.into(), "pid").is_err());
        let users = v1::UserNamespace { mode: v1::NamespaceMode::Container.into(), ..Default::default() };
        assert!(users_from_wire(Some(&users)).is_err());
        assert!(port_from_wire(&v1::PortMapping { host_port: 70_000, ..v1::PortMapping::default() }).is_err());
    }
}
