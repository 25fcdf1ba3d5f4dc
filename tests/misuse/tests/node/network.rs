//! Frames that lie, and ports that are taken.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use podium_misuse::{Cluster, Ground, Siege, script};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/hostile/pods";

#[test]
fn hostile_pods_speak_only_for_themselves() {
    let mut siege = Siege::begin(&Ground::default());
    siege.attack("27 ARP in the name of a neighbour and of the gateway", arp);
    siege.attack("27 datagrams from a neighbour, the node and its loopback", sources);
    siege.attack("27 router advertisements; 300 hardware addresses", advertisements);
    siege.attack("28 hostPorts of the API server and the kubelet", host_ports);
    siege.end();
}

type Mac = [u8; 6];

/// Who is on the bridge.
struct Bridge {
    gateway: Ipv4Addr,
    gateway_mac: Mac,
    neighbour: Ipv4Addr,
    pod: Ipv4Addr,
    pod_mac: Mac,
}

fn mac(text: &str) -> Mac {
    let mut mac = Mac::default();
    for (byte, digits) in mac.iter_mut().zip(text.trim().split(':')) {
        *byte = u8::from_str_radix(digits, 16).expect("hexadecimal");
    }
    mac
}

fn address(pod: &Value) -> Ipv4Addr {
    pod["status"]["podIP"].as_str().unwrap_or_default().parse().expect("pods have addresses")
}

/// The attacker's pod, which is ready, and those around it.
async fn bridge(cluster: &Cluster, name: &str) -> Bridge {
    let pod = cluster.make_ready(&script(name, "cat /sys/class/net/eth0/address; exec sleep 3600")).await;
    let told = async {
        loop {
            let log = cluster.log(name).await;
            if log.ends_with('\n') {
                return log;
            }
        }
    };
    let own = tokio::time::timeout(Duration::from_secs(30), told).await.expect("it says its address");
    let neighbour = address(&cluster.admin.get("/api/v1/namespaces/quiet/pods/steady").await.ok());
    let id = cluster.podium().id().expect("it has started");
    let gateway_mac = fs::read_to_string(format!("/sys/class/net/podium-{id}/address")).expect("a bridge");
    let [a, b, c, _] = neighbour.octets();
    Bridge {
        gateway: Ipv4Addr::new(a, b, c, 1),
        gateway_mac: mac(&gateway_mac),
        neighbour,
        pod: address(&pod),
        pod_mac: mac(&own),
    }
}

/// Sends frames from the pod as they are.
async fn send(cluster: &Cluster, name: &str, frames: &[Vec<u8>]) {
    // AF_PACKET of all kinds, by its only interface.
    let mut command = vec!["call".to_owned(), "socket".into(), "17".into(), "3".into(), "0x0300".into()];
    for frame in frames {
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        // sockaddr_ll: family, protocol, interface.
        let to = format!("x11000003INDEX{}", "0".repeat(24));
        let words = [
            ",".to_owned(),
            "sendto".into(),
            "@0".into(),
            format!("x{hex}"),
            frame.len().to_string(),
            "0".into(),
            to,
            "20".into(),
        ];
        command.extend(words);
    }
    let quoted: Vec<String> = command.iter().map(|word| format!("'{word}'")).collect();
    let text = "i=$(printf %02x000000 $(cat /sys/class/net/eth0/ifindex)); eval \"$(echo \"$0\" | sed s/INDEX/$i/g)\"";
    let line = quoted.join(" ");
    let stream = cluster.exec(name, &["sh", "-c", text, &line], "stdout=1&stderr=1").await;
    let (_, said, _) = stream.read_all().await.expect("it ends");
    let sent = said.lines().filter(|line| line.starts_with("sendto = ")).count();
    assert_eq!(sent, frames.len(), "the attacker's own call: {said}");
}

fn ethernet(to: Mac, from: Mac, kind: u16, content: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), content].concat()
}

/// "I am `claimed`", told to everybody.
fn arp_reply(from: Mac, claimed: Ipv4Addr) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 2];
    let content = [&head[..], &from, &claimed.octets(), &[0xff; 6], &claimed.octets()].concat();
    ethernet([0xff; 6], from, 0x0806, &content)
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap_or_default()).to_be_bytes()
}

/// A datagram from one to another, without a checksum of its own.
fn datagram((from_mac, from): (Mac, Ipv4Addr), (to_mac, to): (Mac, Ipv4Addr), port: u16, text: &str) -> Vec<u8> {
    let length = |more: usize| u16::try_from(text.len() + more).unwrap_or_default().to_be_bytes();
    let mut head = [&[0x45, 0][..], &length(28), &[0, 1, 0, 0, 64, 17, 0, 0], &from.octets(), &to.octets()].concat();
    let sum = checksum(&head);
    head[10..12].copy_from_slice(&sum);
    let udp = [&9999_u16.to_be_bytes()[..], &port.to_be_bytes(), &length(8), &[0, 0], text.as_bytes()].concat();
    ethernet(to_mac, from_mac, 0x0800, &[head, udp].concat())
}

/// What the kernel of the node believes about an address.
fn believed(address: Ipv4Addr) -> Option<Mac> {
    let table = fs::read_to_string("/proc/net/arp").unwrap_or_default();
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(&address.to_string()))?;
    line.split_whitespace().nth(3).map(mac)
}

async fn arp(cluster: &mut Cluster) -> String {
    let bridge = bridge(cluster, "arp").await;
    let before = believed(bridge.neighbour);
    let frames: Vec<Vec<u8>> = (0..20)
        .flat_map(|_| [arp_reply(bridge.pod_mac, bridge.neighbour), arp_reply(bridge.pod_mac, bridge.gateway)])
        .collect();
    send(cluster, "arp", &frames).await;
    assert!(before.is_some(), "the node has spoken with its neighbour");
    assert_eq!(believed(bridge.neighbour), before, "the node is led astray");
    assert_eq!(cluster.neighbours_of_pod(bridge.gateway).await.map(|found| mac(&found)), Some(bridge.gateway_mac));
    "believed by nobody".to_owned()
}

async fn sources(cluster: &mut Cluster) -> String {
    let bridge = bridge(cluster, "sources").await;
    let listener = UdpSocket::bind((bridge.gateway, 0)).expect("the node has that address");
    let port = listener.local_addr().expect("it is bound").port();
    let node = (bridge.gateway_mac, bridge.gateway);
    let lies = [
        Ipv4Addr::new(127, 0, 0, 5),
        bridge.neighbour,
        bridge.gateway,
        Ipv4Addr::new(192, 0, 2, 77),
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::BROADCAST,
    ];
    let mut frames: Vec<Vec<u8>> =
        lies.map(|lie| datagram((bridge.pod_mac, lie), node, port, &format!("from {lie}"))).to_vec();
    frames.push(datagram(([2, 0, 0, 0, 0, 1], bridge.pod), node, port, "under another MAC"));
    // Through the loopback of the node.
    let inside = (bridge.gateway_mac, Ipv4Addr::LOCALHOST);
    let local = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let local_port = local.local_addr().expect("it is bound").port();
    frames.push(datagram((bridge.pod_mac, bridge.pod), inside, local_port, "to the loopback"));
    frames.push(datagram((bridge.pod_mac, bridge.pod), node, port, "bye"));
    send(cluster, "sources", &frames).await;
    listener.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket can be told so");
    let (heard, from) = tokio::task::block_in_place(|| hear(&listener));
    assert_eq!((heard.as_str(), from), ("bye", bridge.pod.to_string()));
    local.set_nonblocking(true).expect("a socket can be told so");
    assert!(local.recv(&mut [0; 100]).is_err(), "the loopback of the node hears a pod");
    format!("{} dropped, its own heard", frames.len() - 1)
}

/// The first datagram, and from whom it says it is.
fn hear(listener: &UdpSocket) -> (String, String) {
    let mut buffer = [0; 200];
    let (length, from) = listener.recv_from(&mut buffer).expect("the honest datagram arrives");
    (String::from_utf8_lossy(&buffer[..length]).into_owned(), from.ip().to_string())
}

/// "I am your router, and 2001:db8:bad::/64 is here."
fn router(from: Mac) -> Vec<u8> {
    let source = [&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2][..], &[0; 6], &[9]].concat();
    let target = [&[0xff, 2][..], &[0; 13], &[1]].concat();
    let prefix = [0x20, 0x01, 0x0d, 0xb8, 0x0b, 0xad, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let option = [&[3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0, 1, 0x51, 0x80, 0, 0, 0, 0][..], &prefix].concat();
    let mut message = [&[134, 0, 0, 0, 64, 0, 7, 8][..], &[0; 8], &option].concat();
    let length = u16::try_from(message.len()).unwrap_or_default();
    let pseudo = [&source[..], &target, &u32::from(length).to_be_bytes(), &[0, 0, 0, 58], &message].concat();
    message[2..4].copy_from_slice(&checksum(&pseudo));
    let head = [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[58, 255], &source, &target].concat();
    ethernet([0x33, 0x33, 0, 0, 0, 1], from, 0x86dd, &[head, message].concat())
}

async fn advertisements(cluster: &mut Cluster) -> String {
    let bridge = bridge(cluster, "router").await;
    send(cluster, "router", &vec![router(bridge.pod_mac); 10]).await;
    for round in 0..6_u8 {
        let frames: Vec<Vec<u8>> = (0..50).map(|number| arp_reply([2, 0, 0, 9, round, number], bridge.pod)).collect();
        send(cluster, "router", &frames).await;
    }
    let routes = fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    assert!(!routes.contains("20010db80bad"), "{routes}");
    let id = cluster.podium().id().unwrap_or_default();
    let table = podium_e2e::run(
        std::process::Command::new("bridge").args(["fdb", "show", "br", &format!("podium-{id}")]),
        "",
        podium_e2e::Patience::SHORT,
    );
    assert!(!table.stdout.contains("02:00:00:09:"), "{}", table.stdout);
    "believed by nobody".to_owned()
}

async fn host_ports(cluster: &mut Cluster) -> String {
    let server = cluster.podium().address();
    let port = |address: &str| address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).unwrap_or_default();
    let nodes = cluster.admin.get("/api/v1/nodes").await.ok();
    let kubelet =
        nodes["items"][0]["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap_or_default();
    let wanted = [u64::from(port(&server)), kubelet, 22, 80];
    for (number, port) in wanted.into_iter().enumerate() {
        for (kind, host) in [("any", json!(null)), ("loopback", json!("127.0.0.1"))] {
            let name = format!("port-{number}-{kind}");
            let mut pod = script(&name, "exec httpd -f -p 8080");
            pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8080, "hostPort": port, "hostIP": host}]);
            let made = cluster.tenant.post(PODS, &pod).await;
            if made.code != 201 {
                made.refused(&[422]);
                continue;
            }
            let refused = cluster.wait_pod(&name, "refused", |pod| pod["status"]["phase"] == "Failed").await;
            let reason = refused["status"]["reason"].as_str().unwrap_or_default();
            assert!(!reason.is_empty(), "{port}: {}", refused["status"]);
        }
    }
    "refused, with a reason".to_owned()
}
