//! Where pods find the API server: the address of the Service `kubernetes`,
//! where that leads, and under which names the server must be trusted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use apiserver::ServiceConfig;
use engine::network::Entrance;

use crate::instance::{Cidr, local_addresses};

/// What clients inside the cluster call the server.
pub(crate) const NAMES: [&str; 4] =
    ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

const PORT: u16 = 443;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) services: ServiceConfig,
    pub(crate) entrances: Vec<Entrance>,
}

impl Door {
    /// For a server that listens at `bind`, called by pods of this range.
    pub(crate) fn new(bind: SocketAddr, pods: Cidr) -> Self {
        Self::on(bind, pods, || local_addresses().find_map(outer))
    }

    fn on(bind: SocketAddr, pods: Cidr, own: impl FnOnce() -> Option<Ipv4Addr>) -> Self {
        let mut services = ServiceConfig::default();
        let gateway = Ipv4Addr::from_bits(pods.address.to_bits() + 1);
        let at = |ip| SocketAddrV4::new(ip, bind.port());
        let leads_to = match bind.ip() {
            ip if ip.is_unspecified() => gateway,
            IpAddr::V4(ip) => ip,
            // Pods speak IPv4.
            IpAddr::V6(_) => return Self { services, entrances: Vec::new() },
        };
        let endpoint = match leads_to {
            // Nobody else's loopback is ours: pods are let in by the bridge's address.
            ip if ip.is_loopback() => gateway,
            _ if bind.ip().is_unspecified() => own().unwrap_or(gateway),
            ip => ip,
        };
        let enter = |called| Entrance { called, leads_to: at(leads_to) };
        let mut entrances = vec![enter(SocketAddrV4::new(services.api_address(), PORT))];
        if leads_to.is_loopback() {
            entrances.push(enter(at(gateway)));
        }
        services.endpoint = Some(at(endpoint));
        Self { services, entrances }
    }

    /// For a server beside which no pods run: they come from elsewhere, so a
    /// loopback address leads them nowhere.
    pub(crate) fn without_pods(bind: SocketAddr) -> Self {
        let ip = match bind.ip() {
            ip if ip.is_unspecified() => local_addresses().find_map(outer),
            ip => outer(ip),
        };
        let endpoint = ip.map(|ip| SocketAddrV4::new(ip, bind.port()));
        Self { services: ServiceConfig { endpoint, ..ServiceConfig::default() }, entrances: Vec::new() }
    }

    /// For the server's certificate.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let endpoint = self.services.endpoint.map(|endpoint| *endpoint.ip());
        [Some(self.services.api_address()), endpoint].into_iter().flatten().map(IpAddr::V4)
    }
}

fn outer(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) if !ip.is_loopback() && !ip.is_link_local() => Some(ip),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(bind: &str) -> (Option<String>, Vec<String>) {
        let pods = "10.200.3.0/24".parse().unwrap();
        let door = Door::on(bind.parse().unwrap(), pods, || Some(Ipv4Addr::new(192, 0, 2, 9)));
        let entrances = door.entrances.iter().map(|entrance| format!("{}>{}", entrance.called, entrance.leads_to));
        (door.services.endpoint.map(|endpoint| endpoint.to_string()), entrances.collect())
    }

    #[test]
    fn pods_are_let_in_to_where_the_server_listens() {
        let (endpoint, entrances) = door("127.0.0.1:6443");
        assert_eq!(endpoint.as_deref(), Some("10.200.3.1:6443"));
        assert_eq!(entrances, ["10.96.0.1:443>127.0.0.1:6443", "10.200.3.1:6443>127.0.0.1:6443"]);
        let (endpoint, entrances) = door("0.0.0.0:6443");
        assert_eq!(endpoint.as_deref(), Some("192.0.2.9:6443"));
        assert_eq!(entrances, ["10.96.0.1:443>10.200.3.1:6443"]);
        let (endpoint, entrances) = door("192.0.2.7:16443");
        assert_eq!(endpoint.as_deref(), Some("192.0.2.7:16443"));
        assert_eq!(entrances, ["10.96.0.1:443>192.0.2.7:16443"]);
        assert_eq!(door("[::1]:6443"), (None, Vec::new()));
    }

    #[test]
    fn pods_elsewhere_are_not_led_to_their_own_loopback() {
        let endpoint = |bind: &str| Door::without_pods(bind.parse().unwrap()).services.endpoint;
        assert_eq!(endpoint("127.0.0.1:6443"), None);
        assert_eq!(endpoint("192.0.2.7:6443").unwrap().to_string(), "192.0.2.7:6443");
    }
}
