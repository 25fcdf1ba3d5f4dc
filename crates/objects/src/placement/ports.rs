//! Which ports of its host a pod takes.

use std::collections::BTreeSet;

use crate::api::core::v1 as core;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    pub port: i32,
    pub protocol: String,
    /// `0.0.0.0` takes the port on every address.
    pub ip: String,
}

const EVERY_ADDRESS: &str = "0.0.0.0";

impl HostPort {
    pub fn conflicts_with(&self, other: &HostPort) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == EVERY_ADDRESS || other.ip == EVERY_ADDRESS)
    }
}

/// Ports on the host held as long as the pod runs: init containers that end
/// do not count, sidecars do.
pub fn host_ports(spec: &core::PodSpec) -> BTreeSet<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let filled = |text: &Option<String>, default: &str| {
        text.as_deref().filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
    };
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let (protocol, ip) = (filled(&port.protocol, "TCP"), filled(&port.host_ip, EVERY_ADDRESS));
            Some(HostPort { port: number, protocol, ip })
        })
        .collect()
}
