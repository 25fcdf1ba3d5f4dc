//! Pods that lie about who they are, with every capability in their own network namespace.

use std::net::{SocketAddrV6, UdpSocket};

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};

use super::*;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 123, 1, 1);
const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 123, 1, 2);
const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 123, 1, 3);
const BYSTANDER: Ipv4Addr = Ipv4Addr::new(10, 123, 1, 4);

/// Three pods on one bridge, first of all the attacker.
async fn three_pods(network: &Network) -> [Pod; 3] {
    let pods = [Pod::new(), Pod::new(), Pod::new()];
    for (pod, (name, expected)) in pods.iter().zip([("m", ATTACKER), ("v", VICTIM), ("b", BYSTANDER)]) {
        assert_eq!(network.attach(&sandbox(name), &pod.path()).await.unwrap().address, expected);
    }
    pods
}

fn write_setting(name: &str, value: &str) {
    std::fs::write(Path::new("/proc/sys/net").join(name), value).unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Of the calling thread's namespace: bytes that `eth0` received.
fn received_bytes() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// What a listener on the node or in a pod got, up to and with `last`.
fn heard_until(listener: &UdpSocket, last: &str) -> Vec<String> {
    listener.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut heard = Vec::new();
    let mut buffer = [0; 2000];
    while heard.last().is_none_or(|heard| heard != last) {
        let length = listener.recv(&mut buffer).expect("the honest datagram arrives");
        heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    listener.set_nonblocking(true).unwrap();
    while let Ok(length) = listener.recv(&mut buffer) {
        heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    heard
}

fn send_from(source: Ipv4Addr, to: (Ipv4Addr, u16), what: &str) {
    let sent = UdpSocket::bind((source, 0)).and_then(|socket| socket.send_to(what.as_bytes(), to));
    sent.unwrap_or_else(|error| panic!("from {source}: {error}"));
}

#[test]
fn a_pod_gets_none_of_its_neighbours_connections_by_answering_arp_for_it() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("br0", 1, 24);
        let [attacker, victim, bystander] = three_pods(&network).await;
        // The fastest answer wins, so let the true one never come.
        victim.run(|| ip(&["link", "set", "eth0", "arp", "off"]));
        attacker.run(|| {
            write_setting("ipv4/conf/eth0/arp_notify", "1");
            ip(&["addr", "add", "10.123.1.3/24", "dev", "eth0"]);
        });
        let listener = attacker.run(|| TcpListener::bind((VICTIM, 80)).unwrap());
        let asked = |from: Option<&Pod>| {
            let ask = || TcpStream::connect_timeout(&(VICTIM, 80).into(), Duration::from_millis(300)).map(drop);
            from.map_or_else(ask, |pod| pod.run(ask))
        };
        assert!(asked(Some(&bystander)).is_err(), "a neighbour is led astray");
        assert!(asked(None).is_err(), "the node is led astray");
        drop(listener);
        // What it says about itself is believed as before.
        assert_eq!(bystander.ask(attacker.listen(ATTACKER)), "hello 10.123.1.4");
    });
}

#[test]
fn a_pod_sends_from_no_address_but_its_own() {
    root_or_return!();
    on_a_node(async || {
        ip(&["link", "set", "lo", "up"]);
        let node = Node::new();
        let network = node.open("br0", 1, 24);
        let [attacker, victim, _bystander] = three_pods(&network).await;
        let on_node = UdpSocket::bind((GATEWAY, 5000)).unwrap();
        let in_pod = victim.run(|| UdpSocket::bind((VICTIM, 5000)).unwrap());
        attacker.run(|| {
            write_setting("ipv4/conf/eth0/route_localnet", "1");
            write_setting("ipv4/conf/all/accept_local", "1");
            for address in ["127.0.0.5", "10.123.1.4", "192.0.2.77", "10.123.1.200"] {
                ip(&["addr", "add", &format!("{address}/32"), "dev", "eth0"]);
            }
            for target in [GATEWAY, VICTIM] {
                // Its own answers are no help: the way is given.
                send_from(ATTACKER, (target, 5000), "hello");
                for source in [[127, 0, 0, 5], [10, 123, 1, 4], [192, 0, 2, 77], [10, 123, 1, 200]] {
                    send_from(source.into(), (target, 5000), &format!("from {source:?}"));
                }
            }
            ip(&["addr", "add", "10.123.1.1/32", "dev", "eth0"]);
            send_from(GATEWAY, (VICTIM, 5000), "from the gateway");
            ip(&["addr", "del", "10.123.1.1/32", "dev", "eth0"]);
            // The right address, under another's hardware address.
            ip(&["link", "set", "eth0", "address", "0a:58:0a:7b:01:04"]);
            ip(&["neigh", "replace", "10.123.1.1", "lladdr", "0a:58:0a:7b:01:01", "dev", "eth0"]);
            ip(&["neigh", "replace", "10.123.1.3", "lladdr", "0a:58:0a:7b:01:03", "dev", "eth0"]);
            send_from(ATTACKER, (GATEWAY, 5000), "under another MAC");
            send_from(ATTACKER, (VICTIM, 5000), "under another MAC");
            ip(&["link", "set", "eth0", "address", "0a:58:0a:7b:01:02"]);
            send_from(ATTACKER, (GATEWAY, 5000), "bye");
            send_from(ATTACKER, (VICTIM, 5000), "bye");
        });
        assert_eq!(heard_until(&on_node, "bye"), ["hello", "bye"]);
        assert_eq!(heard_until(&in_pod, "bye"), ["hello", "bye"]);
    });
}

/// CVE-2020-10749.
#[test]
fn a_router_advertisement_of_a_pod_is_believed_by_nobody() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("br0", 1, 24);
        let [attacker, _victim, bystander] = three_pods(&network).await;
        let on_node = UdpSocket::bind((GATEWAY, 5000)).unwrap();
        let in_pod = bystander.run(|| UdpSocket::bind((BYSTANDER, 5000)).unwrap());
        attacker.run(|| {
            ip(&["-6", "addr", "add", "fe80::5/64", "dev", "eth0", "nodad"]);
            advertise_router();
            send_from(ATTACKER, (GATEWAY, 5000), "bye");
            send_from(ATTACKER, (BYSTANDER, 5000), "bye");
        });
        heard_until(&on_node, "bye");
        heard_until(&in_pod, "bye");
        let (of_node, of_pod) = (routes_of_ipv6(), bystander.run(routes_of_ipv6));
        assert!(!of_node.contains("20010db8"), "{of_node}");
        assert!(!of_pod.contains("20010db8"), "{of_pod}");
        // Even if the frame came through.
        for setting in ["accept_ra", "autoconf", "accept_redirects"] {
            let value = std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/br0/{setting}")).unwrap();
            assert_eq!(value.trim(), "0", "{setting}");
        }
    });
}

fn routes_of_ipv6() -> String {
    std::fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap()
}

/// "I am your router, and 2001:db8::/64 is here."
fn advertise_router() {
    let socket = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)).unwrap();
    // What came over a router is no neighbour's.
    sockopt::set_ipv6_multicast_hops(&socket, 255).unwrap();
    let mut message = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08];
    message.extend([0; 8]);
    // Prefix information: 64 bits, on this link, for addresses of your own, for a day.
    message.extend([3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0, 1, 0x51, 0x80, 0, 0, 0, 0]);
    message.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let index = nix::net::if_::if_nametoindex("eth0").unwrap();
    let everybody = SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, index);
    sendto(&socket, &message, SendFlags::empty(), &everybody).unwrap();
}

#[test]
fn the_bridge_remembers_one_address_for_each_pod() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("br0", 1, 24);
        let [attacker, _victim, _bystander] = three_pods(&network).await;
        attacker.run(|| {
            for number in 0..20 {
                ip(&["link", "set", "eth0", "address", &format!("02:00:00:00:00:{number:02x}")]);
                ip(&["neigh", "replace", "10.123.1.1", "lladdr", "0a:58:0a:7b:01:01", "dev", "eth0"]);
                send_from(ATTACKER, (GATEWAY, 5000), "x");
            }
        });
        let table = std::process::Command::new("bridge").args(["fdb", "show", "br", "br0"]).output().unwrap();
        let table = String::from_utf8(table.stdout).unwrap();
        let mut pods: Vec<&str> = table
            .lines()
            .filter(|line| line.contains(" master br0") && !line.contains("permanent"))
            .filter_map(|line| line.split(' ').next())
            .collect();
        pods.sort_unstable();
        assert_eq!(pods, ["0a:58:0a:7b:01:02", "0a:58:0a:7b:01:03", "0a:58:0a:7b:01:04"], "{table}");
    });
}

/// Sends this frame by `eth0` of the calling thread's namespace, as it is.
fn send_frame(frame: &[u8]) {
    use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, sendto, socket};
    let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll).unwrap();
    let mut interfaces = nix::ifaddrs::getifaddrs().unwrap();
    let card = interfaces.find_map(|it| Some(*it.address?.as_link_addr()?).filter(|_| it.interface_name == "eth0"));
    sendto(socket.as_raw_fd(), frame, &card.unwrap(), MsgFlags::empty()).unwrap();
}

#[test]
fn a_frame_for_nobody_of_a_vlan_or_a_bridge_protocol_reaches_no_neighbour() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("br0", 1, 24);
        let [attacker, victim, _bystander] = three_pods(&network).await;
        let on_node = UdpSocket::bind((GATEWAY, 5000)).unwrap();
        let before = victim.run(received_bytes);
        attacker.run(|| {
            let own = [0x0a, 0x58, 10, 123, 1, 2];
            let nobody = [2, 0, 0, 0, 0, 0x99];
            let neighbour = [0x0a, 0x58, 10, 123, 1, 3];
            let everybody = [0xff; 6];
            // Spanning tree, link discovery.
            let bridges = [[1, 0x80, 0xc2, 0, 0, 0], [1, 0x80, 0xc2, 0, 0, 0x0e]];
            // A header of IPv4 from its own address, so that this alone is no reason.
            let mut packet = vec![0x45, 0, 3, 232, 0, 0, 0, 0, 64, 17, 0, 0, 10, 123, 1, 2, 10, 123, 1, 3];
            packet.resize(1000, 0);
            let frame = |to: [u8; 6], kind: &[u8]| [&to[..], &own, kind, &packet].concat();
            for _ in 0..20 {
                send_frame(&frame(nobody, &[8, 0]));
                for to in [neighbour, everybody, bridges[0], bridges[1]] {
                    for kind in [&[0x81, 0, 0, 5, 8, 0][..], &[0x88, 0xa8, 0, 5, 8, 0], &[0x88, 0xcc], &[0x86, 0xdd]] {
                        send_frame(&frame(to, kind));
                    }
                }
            }
            send_from(ATTACKER, (GATEWAY, 5000), "bye");
        });
        heard_until(&on_node, "bye");
        let grown = victim.run(received_bytes) - before;
        assert!(grown < 10_000, "{grown} bytes of 340,000");
    });
}

#[test]
fn ports_of_an_older_agent_are_guarded_after_a_restart_and_nothing_stays_behind() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("br0", 1, 24);
        let [attacker, _victim, _bystander] = three_pods(&network).await;
        let on_node = UdpSocket::bind((GATEWAY, 5000)).unwrap();
        network.firewall.remove(Family::Device, "br0").unwrap();
        drop(network);
        let network = node.open("br0", 1, 24);
        network.reconcile(&["m", "v", "b"].map(sandbox)).await.unwrap();
        let lie = || {
            ip(&["addr", "replace", "10.123.1.4/32", "dev", "eth0"]);
            send_from(BYSTANDER, (GATEWAY, 5000), "lie");
            send_from(ATTACKER, (GATEWAY, 5000), "bye");
        };
        attacker.run(lie);
        assert_eq!(heard_until(&on_node, "bye"), ["bye"]);
        let chains = || {
            let listed = std::process::Command::new("nft").args(["list", "tables", "netdev"]).output().unwrap();
            String::from_utf8(listed.stdout).unwrap()
        };
        assert_eq!(chains(), "table netdev br0\n");
        for name in ["m", "v", "b"] {
            network.detach(&sandbox(name)).await.unwrap();
        }
        let listed = std::process::Command::new("nft").args(["list", "table", "netdev", "br0"]).output().unwrap();
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), "table netdev br0 {\n}\n");
        network.destroy().await.unwrap();
        assert_eq!(chains(), "");
    });
}
