//! Pure. Which frames a port of the bridge takes from its pod: IPv4 from the
//! pod's own address and ARP about it, both under its own hardware address.
//! Nothing else: no IPv6, which pods have no addresses of (so no router
//! advertisements and no neighbour discovery either), no VLANs, no bridge
//! protocols.
//!
//! Asked where the frame enters the node, before the bridge sees it: what is
//! dropped here is neither forwarded nor learnt from nor handed to the node.

use std::net::Ipv4Addr;

use netlink_packet_netfilter::nftables::DevHookNumber;

use super::nft::{self, Chain, ChainHook, Step};

/// Offsets in the Ethernet header.
const SENDER: u32 = 6;
const KIND: u32 = 12;
/// What the kernel took off a frame, e.g. the tag of a VLAN, counts as being
/// there: a tagged frame is of neither kind.
const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];

const IPV4_SOURCE: u32 = 12;
/// Of IPv4 over Ethernet, with addresses as long as theirs are.
const ARP_KIND: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const ARP_SENDER_MAC: u32 = 8;
const ARP_SENDER_ADDRESS: u32 = 14;

/// Named like its port.
pub(super) fn chain(port: &str, mac: [u8; 6], address: Ipv4Addr) -> Chain {
    let address = address.octets();
    let rule = |steps: Vec<Vec<Step>>| steps.into_iter().flatten().collect();
    let rules = vec![
        rule(vec![nft::has_not_in_frame(SENDER, &mac), vec![nft::drop_it()]]),
        rule(vec![nft::has_in_frame(KIND, &IPV4), nft::has_in_packet(IPV4_SOURCE, &address), vec![nft::accept()]]),
        rule(vec![
            nft::has_in_frame(KIND, &ARP),
            nft::has_in_packet(0, &ARP_KIND),
            nft::has_in_packet(ARP_SENDER_MAC, &mac),
            nft::has_in_packet(ARP_SENDER_ADDRESS, &address),
            vec![nft::accept()],
        ]),
        vec![nft::drop_it()],
    ];
    let at = DevHookNumber::Ingress.into();
    let hook = ChainHook { kind: "filter", at, priority: 0, device: Some(port.to_owned()) };
    Chain { name: port.to_owned(), hook: Some(hook), rules }
}
