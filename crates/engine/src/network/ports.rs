//! Pure. What the firewall does for pods: their way out, the node's ports that
//! lead to them, and the addresses under which they find this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use cri::{HostPort, Protocol};
use netlink_packet_netfilter::nftables::InetHookNumber;

use super::nft::{self, Address, Chain, ChainHook, Net, Step};

/// A port of the node and the pod behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub port: HostPort,
    pub address: Ipv4Addr,
}

/// What the firewall leads where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Leading {
    pub(super) published: Vec<Published>,
    /// Of these ports the node's loopback is its own: somebody listens there.
    pub(super) kept: Vec<(Protocol, u16)>,
}

/// An address that pods call by TCP, and where on this machine that leads. Only
/// pods of this bridge get there, whoever else uses the same addresses; it may
/// be the loopback, of which pods see this one port and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entrance {
    pub called: SocketAddrV4,
    pub leads_to: SocketAddrV4,
}

/// As `nft` names them: dstnat, srcnat, raw.
const BEFORE_ROUTING: i32 = -100;
const AFTER_ROUTING: i32 = 100;
const FIRST_OF_ALL: i32 = -300;

const LOOPBACK: Net = Net { address: Ipv4Addr::new(127, 0, 0, 0), prefix_length: 8 };
const MULTICAST: Net = Net { address: Ipv4Addr::new(224, 0, 0, 0), prefix_length: 4 };

const HOST_PORTS: &str = "host-ports";

/// The whole table of an instance.
pub(super) fn chains(bridge: &str, pods: Net, leading: &Leading, entrances: &[Entrance]) -> Vec<Chain> {
    let to_host_ports = || vec![all([nft::is_to_this_machine(), vec![nft::jump(HOST_PORTS)]])];
    let hook = |kind, at: InetHookNumber, priority| Some(ChainHook { kind, at: at.into(), priority, device: None });
    let arriving = entrances.iter().map(|entrance| enter(bridge, entrance)).chain(to_host_ports()).collect();
    let guard = vec![guard_loopback(bridge), guard_sources(bridge, pods)];
    let own = leading.kept.iter().map(keep_loopback).chain(to_host_ports()).collect();
    let chain = |name: &str, hook, rules| Chain { name: name.to_owned(), hook, rules };
    vec![
        chain(HOST_PORTS, None, leading.published.iter().map(host_port).collect()),
        chain("guard", hook("filter", InetHookNumber::PreRouting, FIRST_OF_ALL), guard),
        chain("arriving", hook("nat", InetHookNumber::PreRouting, BEFORE_ROUTING), arriving),
        chain("own", hook("nat", InetHookNumber::LocalOut, BEFORE_ROUTING), own),
        chain("leaving", hook("nat", InetHookNumber::PostRouting, AFTER_ROUTING), ways_out(pods)),
    ]
}

/// The node's loopback leads to host ports, so the bridge routes it; pods must
/// not get there (CVE-2020-8558).
fn guard_loopback(bridge: &str) -> Vec<Step> {
    all([nft::came_in_by(bridge), nft::is_in(Address::Destination, LOOPBACK), vec![nft::drop_it()]])
}

/// A bridge that routes the loopback would also believe that somebody there
/// sent it. What its ports let through is checked already, frame by frame;
/// this holds without them.
fn guard_sources(bridge: &str, pods: Net) -> Vec<Step> {
    all([nft::came_in_by(bridge), nft::is_not_in(Address::Source, pods), vec![nft::drop_it()]])
}

fn enter(bridge: &str, entrance: &Entrance) -> Vec<Step> {
    let called = Net { address: *entrance.called.ip(), prefix_length: 32 };
    all([
        nft::came_in_by(bridge),
        nft::is_in(Address::Destination, called),
        nft::is_to_port(number(Protocol::Tcp), entrance.called.port()),
        nft::redirect(*entrance.leads_to.ip(), entrance.leads_to.port()),
    ])
}

fn host_port(published: &Published) -> Vec<Step> {
    let port = &published.port;
    let only_at = match port.host_ip {
        Some(IpAddr::V4(ip)) if !ip.is_unspecified() => {
            nft::is_in(Address::Destination, Net { address: ip, prefix_length: 32 })
        }
        _ => Vec::new(),
    };
    let is_for_us = nft::is_to_port(number(port.protocol), port.host_port);
    all([only_at, is_for_us, nft::redirect(published.address, port.container_port)])
}

fn keep_loopback((protocol, port): &(Protocol, u16)) -> Vec<Step> {
    let is_there = nft::is_in(Address::Destination, LOOPBACK);
    all([is_there, nft::is_to_port(number(*protocol), *port), vec![nft::accept()]])
}

/// Whose answers would not find back gets the node's address.
fn ways_out(pods: Net) -> Vec<Vec<Step>> {
    let from_pods = || nft::is_in(Address::Source, pods);
    let to_pods = || nft::is_in(Address::Destination, pods);
    let masquerade = || vec![nft::masquerade()];
    vec![
        // To the world.
        all([
            from_pods(),
            nft::is_not_in(Address::Destination, pods),
            nft::is_not_in(Address::Destination, MULTICAST),
            masquerade(),
        ]),
        // By a host port of the node to itself or a neighbour: it would answer directly.
        all([from_pods(), to_pods(), nft::was_redirected(), masquerade()]),
        // From the node's loopback.
        all([nft::is_in(Address::Source, LOOPBACK), to_pods(), masquerade()]),
    ]
}

fn all(steps: impl IntoIterator<Item = Vec<Step>>) -> Vec<Step> {
    steps.into_iter().flatten().collect()
}

fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

pub(super) fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}
