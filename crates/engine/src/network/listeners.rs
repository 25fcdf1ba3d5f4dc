//! Which ports of the node somebody on it listens on: the node's own come
//! before host ports of pods. Also holds the ports that lead to pods, so that
//! nobody starts to listen there later and is never asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use cri::{HostPort, Protocol};
use tokio::time::Instant;

use super::{NetworkError, Published};

/// Somebody waits here for others to speak first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listener {
    pub(super) protocol: Protocol,
    pub(super) at: SocketAddrV4,
}

/// In the calling thread's namespace.
pub(super) fn read() -> Result<Vec<Listener>, NetworkError> {
    let mut found = Vec::new();
    for (table, protocol) in
        [("tcp", Protocol::Tcp), ("tcp6", Protocol::Tcp), ("udp", Protocol::Udp), ("udp6", Protocol::Udp)]
    {
        let path = Path::new("/proc/thread-self/net").join(table);
        match std::fs::read_to_string(&path) {
            Ok(text) => found.extend(parse(&text, protocol)),
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(NetworkError::Setting { path, source }),
        }
    }
    // Of a module that is loaded with the first such socket.
    let sctp = std::fs::read_to_string("/proc/thread-self/net/sctp/eps").unwrap_or_default();
    found.extend(parse_sctp(&sctp));
    Ok(found)
}

/// Lines of `/proc/net/sctp/eps`: two pointers, style, state, bucket, port, user,
/// inode, then all addresses. Only who listens is there.
fn parse_sctp(table: &str) -> impl Iterator<Item = Listener> {
    table.lines().skip(1).flat_map(|line| {
        let mut fields = line.split_whitespace().skip(5);
        let port: Option<u16> = fields.next().and_then(|port| port.parse().ok());
        let addresses = fields.skip(2).filter_map(|address| match address.parse().ok()? {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(ip) => v4_of(ip),
        });
        let at = move |ip| Some(Listener { protocol: Protocol::Sctp, at: SocketAddrV4::new(ip, port?) });
        addresses.filter_map(at).collect::<Vec<_>>()
    })
}

/// Lines of `/proc/net/tcp` and its kin, see proc_net_tcp(5).
fn parse(table: &str, protocol: Protocol) -> impl Iterator<Item = Listener> {
    // TCP_LISTEN; sockets of UDP that speak to no one in particular are "closed".
    let state = if protocol == Protocol::Tcp { "0A" } else { "07" };
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _remote, found) = (fields.next()?, fields.next()?, fields.next()?);
        let (address, port) = local.split_once(':')?;
        let at = SocketAddrV4::new(address_of(address)?, u16::from_str_radix(port, 16).ok()?);
        (found == state).then_some(Listener { protocol, at })
    })
}

/// Words of 32 bits as they lie in memory. What is an address of IPv6 alone
/// is in nobody's way: host ports are of IPv4.
fn address_of(text: &str) -> Option<Ipv4Addr> {
    let words = text.as_bytes().chunks(8).map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        _ => v4_of(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    }
}

fn v4_of(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    match ip {
        // Mostly it takes connections of IPv4, too.
        Ipv6Addr::UNSPECIFIED => Some(Ipv4Addr::UNSPECIFIED),
        ip => ip.to_ipv4_mapped(),
    }
}

/// What becomes of the node's loopback where a port leads to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loopback {
    /// Who listens there alone keeps just that: others reach the pod by the other
    /// addresses.
    Kept,
    /// Somebody else leads the port to the pod, this too.
    Taken,
}

/// The node's own that a host port would take.
pub(super) fn in_the_way<'a>(listeners: &'a [Listener], port: &HostPort, loopback: Loopback) -> Option<&'a Listener> {
    let wanted = wanted_address(port);
    listeners.iter().filter(|listener| is_same_port(listener, port)).find(|listener| {
        let ip = *listener.at.ip();
        match wanted.is_unspecified() {
            true => loopback == Loopback::Taken || !ip.is_loopback(),
            false => ip.is_unspecified() || ip == wanted,
        }
    })
}

/// Whose loopback stays the node's.
pub(super) fn keeps_loopback(listeners: &[Listener], port: &HostPort) -> bool {
    let is_there = |listener: &Listener| listener.at.ip().is_loopback() || listener.at.ip().is_unspecified();
    listeners.iter().any(|listener| is_same_port(listener, port) && is_there(listener))
}

fn is_same_port(listener: &Listener, port: &HostPort) -> bool {
    (listener.protocol, listener.at.port()) == (port.protocol, port.host_port)
}

fn wanted_address(port: &HostPort) -> Ipv4Addr {
    match port.host_ip {
        Some(IpAddr::V4(ip)) => ip,
        _ => Ipv4Addr::UNSPECIFIED,
    }
}

fn place(port: &HostPort) -> Listener {
    Listener { protocol: port.protocol, at: SocketAddrV4::new(wanted_address(port), port.host_port) }
}

/// Ports of the node that lead to pods.
#[derive(Default)]
pub(super) struct Held {
    /// Nobody ever speaks to these sockets.
    ours: BTreeMap<Listener, OwnedFd>,
    /// Somebody on the loopback was there first. It may go and come back, so these
    /// are never held, and its loopback is never taken.
    spared: BTreeSet<Listener>,
    /// Of pods that are being made.
    reserved: BTreeMap<Listener, Instant>,
}

/// A pod whose ports are not published by then is not made any more.
const RESERVED_MAX: Duration = Duration::from_secs(600);

impl Held {
    /// Holds these from now on, as far as they are free, and no others but those
    /// that are reserved.
    pub(super) fn hold(&mut self, published: &[Published]) {
        let wanted: BTreeSet<Listener> = published.iter().map(|published| place(&published.port)).collect();
        self.reserved.retain(|place, since| !wanted.contains(place) && since.elapsed() < RESERVED_MAX);
        let is_wanted = |place: &Listener| wanted.contains(place) || self.reserved.contains_key(place);
        self.ours.retain(|place, _| is_wanted(place));
        self.spared.retain(is_wanted);
        wanted.into_iter().for_each(|place| self.try_to_hold(place));
    }

    /// Holds these, as far as they are free, until they are published. Answers
    /// with those that nobody held before.
    pub(super) fn reserve(&mut self, ports: &[HostPort]) -> Vec<Listener> {
        let places: Vec<Listener> = ports.iter().map(place).collect();
        let fresh = places.iter().filter(|place| !self.ours.contains_key(place)).copied().collect();
        for place in places {
            self.reserved.insert(place, Instant::now());
            self.try_to_hold(place);
        }
        fresh
    }

    /// The pod is not made after all.
    pub(super) fn release(&mut self, ports: &[HostPort], fresh: &[Listener]) {
        let places: Vec<Listener> = ports.iter().map(place).collect();
        self.reserved.retain(|place, _| !places.contains(place));
        self.ours.retain(|place, _| !fresh.contains(place));
    }

    /// Somebody's own already, or an address that is none of ours, is not held:
    /// who listens there is seen by others who look.
    fn try_to_hold(&mut self, place: Listener) {
        if !self.ours.contains_key(&place)
            && !self.spared.contains(&place)
            && let Some(socket) = bind(place)
        {
            self.ours.insert(place, socket);
        }
    }

    /// Whoever of `listeners` keeps its loopback keeps it for as long as the port
    /// leads to a pod.
    pub(super) fn spare(&mut self, listeners: &[Listener], port: &HostPort) {
        if !self.ours.contains_key(&place(port)) && keeps_loopback(listeners, port) {
            self.spared.insert(place(port));
        }
    }

    pub(super) fn is_spared(&self, port: &HostPort) -> bool {
        self.spared.contains(&place(port))
    }

    /// Of these, the ones that are not ours.
    pub(super) fn others(&self, mut listeners: Vec<Listener>) -> Vec<Listener> {
        listeners.retain(|listener| !self.ours.contains_key(listener));
        listeners
    }
}

fn bind(place: Listener) -> Option<OwnedFd> {
    match place.protocol {
        Protocol::Tcp => TcpListener::bind(place.at).ok().map(Into::into),
        Protocol::Udp => UdpSocket::bind(place.at).ok().map(Into::into),
        Protocol::Sctp => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_sockets_are_read() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue\n\
               0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
               1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1\n\
               2: 0100007F:192B 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 3 1\n\
               broken\n";
        let found: Vec<String> = parse(tcp, Protocol::Tcp).map(|listener| listener.at.to_string()).collect();
        assert_eq!(found, ["127.0.0.1:6443", "0.0.0.0:22"]);
        let tcp6 = "header\n\
               0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A\n\
               1: 00000000000000000000000001000000:0051 00000000000000000000000000000000:0000 0A\n\
               2: 0000000000000000FFFF0000020200C0:0052 00000000000000000000000000000000:0000 0A\n";
        let found: Vec<String> = parse(tcp6, Protocol::Tcp).map(|listener| listener.at.to_string()).collect();
        assert_eq!(found, ["0.0.0.0:80", "192.0.2.2:82"]);
    }

    #[test]
    fn endpoints_of_sctp_are_read() {
        let eps = " ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS\n\
            ffff9c0e4c1d1000 ffff9c0e4c1d2000 2   10  29   38412   0 30191 127.0.0.1 192.0.2.1 \n\
            ffff9c0e4c1d3000 ffff9c0e4c1d4000 2   10  30   38413   0 30192 0000:0000:0000:0000:0000:0000:0000:0000 \n\
            broken\n";
        let found: Vec<Listener> = parse_sctp(eps).collect();
        let at: Vec<String> = found.iter().map(|listener| listener.at.to_string()).collect();
        assert_eq!(at, ["127.0.0.1:38412", "192.0.2.1:38412", "0.0.0.0:38413"]);
        assert!(found.iter().all(|listener| listener.protocol == Protocol::Sctp));
    }

    #[test]
    fn what_the_node_listens_on_is_in_the_way_where_it_listens() {
        let listening = |at: &str| [Listener { protocol: Protocol::Tcp, at: at.parse().unwrap() }];
        let port = |host_ip: Option<&str>, protocol| HostPort {
            protocol,
            container_port: 80,
            host_port: 8080,
            host_ip: host_ip.map(|ip| ip.parse().unwrap()),
        };
        for (at, host_ip, is_in_the_way) in [
            ("0.0.0.0:8080", None, true),
            ("0.0.0.0:8080", Some("192.0.2.1"), true),
            ("0.0.0.0:8080", Some("127.0.0.1"), true),
            ("192.0.2.1:8080", None, true),
            ("192.0.2.1:8080", Some("192.0.2.1"), true),
            ("192.0.2.1:8080", Some("192.0.2.9"), false),
            ("127.0.0.1:8080", None, false),
            ("127.0.0.1:8080", Some("0.0.0.0"), false),
            ("127.0.0.1:8080", Some("127.0.0.1"), true),
            ("0.0.0.0:8081", None, false),
        ] {
            let tcp = port(host_ip, Protocol::Tcp);
            let found = in_the_way(&listening(at), &tcp, Loopback::Kept).is_some();
            assert_eq!(found, is_in_the_way, "{at} and {host_ip:?}");
            assert!(in_the_way(&listening(at), &port(host_ip, Protocol::Udp), Loopback::Kept).is_none());
            // Plugins lead the loopback to the pod as well, where the whole port is asked for.
            let is_whole = host_ip.is_none_or(|ip| ip == "0.0.0.0") && at.ends_with(":8080");
            let found = in_the_way(&listening(at), &tcp, Loopback::Taken).is_some();
            assert_eq!(found, is_in_the_way || is_whole, "{at} and {host_ip:?}");
        }
        assert!(keeps_loopback(&listening("127.0.0.53:8080"), &port(None, Protocol::Tcp)));
        assert!(!keeps_loopback(&listening("192.0.2.1:8080"), &port(None, Protocol::Tcp)));
    }
}
