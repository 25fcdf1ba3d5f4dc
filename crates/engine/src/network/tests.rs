//! Real interfaces, in namespaces made for one test: "the node" is one, each pod another.

mod hostile;

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Duration;

use netlink_packet_route::link::LinkAttribute;
use nix::sched::{CloneFlags, setns, unshare};

use super::*;
use crate::images::testing::root_or_return;

/// Runs the test on a thread whose network is a node of its own; all of it is
/// gone with the thread, however the test ends.
fn on_a_node<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let node = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
    if let Err(panic) = node.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A network namespace that lives as long as this.
struct Pod {
    namespace: File,
}

impl Pod {
    fn new() -> Pod {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Pod { namespace: made.join().unwrap() }
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.namespace.as_raw_fd()).into()
    }

    fn run<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let namespace = self.namespace.try_clone().unwrap();
        let inside = std::thread::spawn(move || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
            act()
        });
        inside.join().unwrap()
    }

    fn listen(&self, address: Ipv4Addr) -> TcpListener {
        self.run(move || TcpListener::bind((address, 80)).unwrap())
    }

    /// Connects from here, and returns what the listener sent.
    fn ask(&self, listener: TcpListener) -> String {
        let address = listener.local_addr().unwrap();
        let (sent, source) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            sent.send(peer.ip()).unwrap();
            stream.write_all(b"hello").unwrap();
        });
        let heard = self.run(move || {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap();
            let mut heard = String::new();
            stream.read_to_string(&mut heard).unwrap();
            heard
        });
        format!("{heard} {}", source.recv().unwrap())
    }

    fn interfaces(&self) -> Vec<String> {
        self.run(interfaces)
    }
}

/// Of the calling thread's namespace.
fn interfaces() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let mut names: Vec<String> =
        table.lines().skip(2).map(|line| line.split(':').next().unwrap().trim().to_owned()).collect();
    names.sort();
    names
}

struct Node {
    directory: tempfile::TempDir,
}

impl Node {
    fn new() -> Node {
        Node { directory: tempfile::tempdir().unwrap() }
    }

    fn open(&self, bridge: &str, third: u8, prefix_length: u8) -> Network {
        Network::open(NetworkConfig {
            state_dir: self.directory.path().join(bridge),
            bridge: bridge.to_owned(),
            pod_cidr: (Ipv4Addr::new(10, 123, third, 0), prefix_length),
            mtu: 1400,
            entrances: vec![Entrance { called: CALLED, leads_to: ANSWERED }],
        })
        .unwrap()
    }
}

/// What pods of every network here call, and who answers on the node.
const CALLED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 443);
const ANSWERED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 6443);

fn sandbox(name: &str) -> SandboxId {
    SandboxId::from(name)
}

#[test]
fn pods_reach_each_other_and_the_node() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("pod0", 0, 24);
        assert_eq!(interfaces(), ["lo"], "nothing before the first pod");
        let (a, b) = (Pod::new(), Pod::new());
        let at_a = network.attach(&sandbox("a"), &a.path()).await.unwrap();
        let at_b = network.attach(&sandbox("b"), &b.path()).await.unwrap();
        assert_eq!(at_a.address, Ipv4Addr::new(10, 123, 0, 2));
        assert_eq!((at_b.address, at_b.gateway), (Ipv4Addr::new(10, 123, 0, 3), Ipv4Addr::new(10, 123, 0, 1)));
        assert_eq!(a.interfaces(), ["eth0", "lo"]);
        assert_eq!(b.ask(a.listen(at_a.address)), "hello 10.123.0.3");
        assert_eq!(a.ask(a.listen(Ipv4Addr::LOCALHOST)), "hello 127.0.0.1");
        let on_node = TcpListener::bind((at_a.gateway, 80)).unwrap();
        assert_eq!(a.ask(on_node), "hello 10.123.0.2");
        let routes = a.run(|| std::fs::read_to_string("/proc/thread-self/net/route").unwrap());
        // Default route: destination 0.0.0.0 by 10.123.0.1, little endian.
        assert!(routes.lines().any(|line| line.starts_with("eth0\t00000000\t01007B0A")), "{routes}");
        let inside = Links::open_inside(&a.path(), &a.namespace).await.unwrap();
        for (links, name) in [(&network.links, at_a.host_interface.as_str()), (&inside, "eth0")] {
            let link = links.find(name).await.unwrap().unwrap();
            assert!(link.attributes.contains(&LinkAttribute::Mtu(1400)), "{name}");
        }
        network.destroy().await.unwrap();
        assert_eq!((interfaces(), a.interfaces()), (vec!["lo".to_owned()], vec!["lo".to_owned()]));
    });
}

#[test]
fn attaching_again_keeps_the_address_and_renews_the_interface() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("pod0", 0, 24);
        let (first, second) = (Pod::new(), Pod::new());
        let before = network.attach(&sandbox("a"), &first.path()).await.unwrap();
        let after = network.attach(&sandbox("a"), &second.path()).await.unwrap();
        assert_eq!(before, after);
        assert_eq!((first.interfaces(), second.interfaces()), (vec!["lo".into()], vec!["eth0".into(), "lo".into()]));
        assert_eq!(network.attach(&sandbox("a"), &second.path()).await.unwrap(), after);
    });
}

#[test]
fn tc_053_detaching_may_be_repeated_and_comes_after_the_namespace_died() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("pod0", 0, 30);
        network.detach(&sandbox("never")).await.unwrap();
        let pod = Pod::new();
        network.attach(&sandbox("a"), &pod.path()).await.unwrap();
        let err = network.attach(&sandbox("b"), &Pod::new().path()).await.unwrap_err();
        assert_eq!(err.to_string(), "no addresses left in 10.123.0.0/30");
        drop(pod);
        for _ in 0..2 {
            network.detach(&sandbox("a")).await.unwrap();
        }
        assert_eq!(interfaces(), ["lo", "pod0"]);
        network.attach(&sandbox("b"), &Pod::new().path()).await.unwrap();
    });
}

#[test]
fn a_failed_attach_leaves_nothing_behind() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("pod0", 0, 30);
        let missing = network.attach(&sandbox("a"), Path::new("/nowhere/net")).await.unwrap_err();
        assert!(matches!(missing, NetworkError::Namespace { .. }), "{missing}");
        let plain_file = node.directory.path().join("file");
        std::fs::write(&plain_file, "").unwrap();
        network.attach(&sandbox("a"), &plain_file).await.unwrap_err();
        // Its eth0 is somebody else's.
        let taken = Pod::new();
        let other = node.open("other0", 1, 24);
        let kept = other.attach(&sandbox("x"), &taken.path()).await.unwrap();
        let err = network.attach(&sandbox("a"), &taken.path()).await.unwrap_err();
        assert!(matches!(err, NetworkError::Netlink { .. }), "{err}");
        assert_eq!(taken.interfaces(), ["eth0", "lo"]);
        let mut expected = vec!["lo".to_owned(), "other0".to_owned(), "pod0".to_owned(), kept.host_interface];
        expected.sort();
        assert_eq!(interfaces(), expected);
        // The only address of the range is free again.
        network.attach(&sandbox("b"), &Pod::new().path()).await.unwrap();
    });
}

#[test]
fn instances_side_by_side_do_not_touch_each_other() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let (one, two) = (node.open("one0", 1, 24), node.open("two0", 2, 24));
        let (a, b) = (Pod::new(), Pod::new());
        let at_a = one.attach(&sandbox("same"), &a.path()).await.unwrap();
        let at_b = two.attach(&sandbox("same"), &b.path()).await.unwrap();
        assert_ne!(at_a.host_interface, at_b.host_interface);
        one.reconcile(&[]).await.unwrap();
        assert_eq!((a.interfaces(), b.interfaces()), (vec!["lo".into()], vec!["eth0".into(), "lo".into()]));
        one.destroy().await.unwrap();
        let on_node = TcpListener::bind((at_b.gateway, 80)).unwrap();
        assert_eq!(b.ask(on_node), "hello 10.123.2.2");
    });
}

#[test]
fn a_restart_adopts_what_is_there_and_frees_what_nobody_knows() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let (kept, lost) = (Pod::new(), Pod::new());
        let first = node.open("pod0", 0, 29);
        let before = first.attach(&sandbox("kept"), &kept.path()).await.unwrap();
        first.attach(&sandbox("lost"), &lost.path()).await.unwrap();
        drop(first);
        let network = node.open("pod0", 0, 29);
        network.reconcile(&[sandbox("kept")]).await.unwrap();
        assert_eq!((kept.interfaces(), lost.interfaces()), (vec!["eth0".into(), "lo".into()], vec!["lo".into()]));
        let pod = Pod::new();
        let new = network.attach(&sandbox("new"), &pod.path()).await.unwrap();
        assert_eq!(new.address, Ipv4Addr::new(10, 123, 0, 4), "the freed address rests");
        assert_eq!(pod.ask(kept.listen(before.address)), "hello 10.123.0.4");
    });
}

#[test]
fn a_bridge_that_vanished_or_has_another_range_is_put_right() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("pod0", 0, 24);
        network.attach(&sandbox("a"), &Pod::new().path()).await.unwrap();
        network.links.remove("pod0").await.unwrap();
        let (b, c) = (Pod::new(), Pod::new());
        let at_b = network.attach(&sandbox("b"), &b.path()).await.unwrap();
        assert_eq!(b.ask(TcpListener::bind((at_b.gateway, 80)).unwrap()), "hello 10.123.0.3");
        drop(network);
        let network = node.open("pod0", 7, 24);
        let at_c = network.attach(&sandbox("c"), &c.path()).await.unwrap();
        assert_eq!(c.ask(TcpListener::bind((at_c.gateway, 80)).unwrap()), "hello 10.123.7.2");
        assert!(TcpListener::bind((at_b.gateway, 80)).is_err(), "the old gateway is gone");
    });
}

#[test]
fn names_that_cannot_be_a_bridge_are_refused() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        for bridge in ["", "sixteen-letters0", "a/b", "a b", "..", "pvabc"] {
            let config = NetworkConfig {
                state_dir: node.directory.path().join("x"),
                bridge: bridge.to_owned(),
                pod_cidr: (Ipv4Addr::new(10, 1, 0, 0), 24),
                mtu: 1500,
                entrances: Vec::new(),
            };
            assert!(matches!(Network::open(config), Err(NetworkError::InvalidConfig(_))), "{bridge}");
        }
        let network = node.open("lo", 0, 24);
        let err = network.attach(&sandbox("a"), &Pod::new().path()).await.unwrap_err();
        assert_eq!(err.to_string(), "interface lo: exists and is not a bridge");
    });
}

#[test]
fn many_pods_at_once_get_addresses_of_their_own() {
    root_or_return!();
    on_a_node(async || {
        let node = Node::new();
        let network = node.open("pod0", 0, 24);
        let pods: Vec<Pod> = (0..20).map(|_| Pod::new()).collect();
        let attaching = pods.iter().enumerate().map(async |(number, pod)| {
            network.attach(&sandbox(&number.to_string()), &pod.path()).await.unwrap().address
        });
        let mut addresses = futures::future::join_all(attaching).await;
        addresses.sort();
        let expected: Vec<Ipv4Addr> = (2..22).map(|last| Ipv4Addr::new(10, 123, 0, last)).collect();
        assert_eq!(addresses, expected);
    });
}

/// A machine beside the node, joined by a cable. It knows the node and nothing
/// of its pods.
struct Outside {
    machine: Pod,
}

const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

impl Outside {
    async fn new() -> Outside {
        let machine = Pod::new();
        let links = Links::open().unwrap();
        let pair = links::Pair {
            host_name: "cable",
            namespace: machine.namespace.as_raw_fd(),
            mac: [2, 0, 0, 0, 0, 2],
            mtu: 1400,
        };
        // Its own end is plugged into a bridge, which is as good as a card.
        let card = links.ensure_bridge("card", [2, 0, 0, 0, 0, 1], 1400).await.unwrap();
        links.set_only_address(card, NODE, 24).await.unwrap();
        links.add_pair(&pair, card).await.unwrap();
        let inside = Links::open_inside(&machine.path(), &machine.namespace).await.unwrap();
        inside.configure(links::Endpoint { address: OUTSIDE, prefix_length: 24, gateway: NODE }).await.unwrap();
        ip(&["link", "set", "lo", "up"]);
        // What it does not know it cannot answer.
        machine.run(|| ip(&["route", "del", "default"]));
        Outside { machine }
    }
}

/// In the calling thread's namespace.
fn ip(arguments: &[&str]) {
    let status = std::process::Command::new("ip").args(arguments).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments:?}");
}

/// Serves one connection at `listener`, telling the client who it is seen as.
fn serve_one(listener: TcpListener) {
    std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        // Before the client hears our end: its port is used again at once.
        drop(listener);
        write!(stream, "hello {}", peer.ip()).unwrap();
    });
}

fn hear(address: Ipv4Addr, port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&(address, port).into(), Duration::from_secs(2))?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard)?;
    Ok(heard)
}

#[test]
fn pods_reach_the_world_as_the_node() {
    root_or_return!();
    on_a_node(async || {
        let (node, pod, outside) = (Node::new(), Pod::new(), Outside::new().await);
        let network = node.open("br0", 1, 24);
        network.attach(&sandbox("one"), &pod.path()).await.unwrap();
        serve_one(outside.machine.listen(OUTSIDE));
        assert_eq!(pod.run(|| hear(OUTSIDE, 80)).unwrap(), format!("hello {NODE}"));
    });
}

fn web(host_port: u16, address: Ipv4Addr) -> Published {
    let port = cri::HostPort { protocol: cri::Protocol::Tcp, container_port: 80, host_port, host_ip: None };
    Published { port, address }
}

#[test]
fn a_host_port_leads_to_its_pod_from_everywhere() {
    root_or_return!();
    on_a_node(async || {
        let (node, pod, other, outside) = (Node::new(), Pod::new(), Pod::new(), Outside::new().await);
        let network = node.open("br0", 1, 24);
        let address = network.attach(&sandbox("one"), &pod.path()).await.unwrap().address;
        network.attach(&sandbox("two"), &other.path()).await.unwrap();
        network.publish(|| vec![web(8080, address)]).await.unwrap();
        let gateway = network.gateway();
        let ask = |from: &str, heard: &dyn Fn() -> io::Result<String>| {
            serve_one(pod.listen(address));
            heard().unwrap_or_else(|error| panic!("from {from}: {error}"))
        };
        assert_eq!(ask("outside", &|| outside.machine.run(|| hear(NODE, 8080))), format!("hello {OUTSIDE}"));
        assert_eq!(ask("the node", &|| hear(NODE, 8080)), format!("hello {NODE}"));
        assert_eq!(ask("its loopback", &|| hear(Ipv4Addr::LOCALHOST, 8080)), format!("hello {gateway}"));
        assert_eq!(ask("a neighbour", &|| other.run(|| hear(NODE, 8080))), format!("hello {gateway}"));
        assert_eq!(ask("the pod itself", &|| pod.run(|| hear(NODE, 8080))), format!("hello {gateway}"));
    });
}

#[test]
fn a_host_port_at_one_address_is_closed_at_the_others() {
    root_or_return!();
    on_a_node(async || {
        let (node, pod, outside) = (Node::new(), Pod::new(), Outside::new().await);
        let network = node.open("br0", 1, 24);
        let address = network.attach(&sandbox("one"), &pod.path()).await.unwrap().address;
        let mut local = web(8080, address);
        local.port.host_ip = Some(Ipv4Addr::LOCALHOST.into());
        network.publish(|| vec![local]).await.unwrap();
        serve_one(pod.listen(address));
        assert_eq!(hear(NODE, 8080).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(outside.machine.run(|| hear(NODE, 8080)).is_err());
        assert!(hear(Ipv4Addr::LOCALHOST, 8080).is_ok());
        // Given back, it leads nowhere; what was published is all that is.
        network.publish(Vec::new).await.unwrap();
        assert_eq!(hear(Ipv4Addr::LOCALHOST, 8080).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    });
}

/// CVE-2020-8558: that the node's loopback is routed must not open it to pods.
#[test]
fn pods_do_not_reach_the_loopback_of_the_node() {
    root_or_return!();
    on_a_node(async || {
        ip(&["link", "set", "lo", "up"]);
        let (node, pod) = (Node::new(), Pod::new());
        let network = node.open("br0", 1, 24);
        network.attach(&sandbox("one"), &pod.path()).await.unwrap();
        let secret = TcpListener::bind((Ipv4Addr::LOCALHOST, 8081)).unwrap();
        let heard = pod.run(|| {
            std::fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1").unwrap();
            ip(&["addr", "del", "127.0.0.1/8", "dev", "lo"]);
            ip(&["route", "add", "127.0.0.1/32", "via", "10.123.1.1"]);
            TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, 8081).into(), Duration::from_millis(500)).map(drop)
        });
        assert!(heard.is_err(), "{heard:?}");
        drop(secret);
    });
}

#[test]
fn pods_enter_where_they_may_and_nobody_else_does() {
    root_or_return!();
    on_a_node(async || {
        let (node, pod, outside) = (Node::new(), Pod::new(), Outside::new().await);
        let network = node.open("br0", 1, 24);
        let address = network.attach(&sandbox("one"), &pod.path()).await.unwrap().address;
        serve_one(TcpListener::bind(ANSWERED).unwrap());
        assert_eq!(pod.run(|| hear(*CALLED.ip(), CALLED.port())).unwrap(), format!("hello {address}"));
        // Other ports of that address are nobody's.
        let _open = TcpListener::bind((Ipv4Addr::LOCALHOST, 444)).unwrap();
        assert!(pod.run(|| hear(*CALLED.ip(), 444)).is_err());
        // And the address itself is for pods only.
        let _answering = TcpListener::bind(ANSWERED).unwrap();
        outside.machine.run(|| ip(&["route", "add", "10.96.0.1/32", "via", "192.0.2.1"]));
        assert!(outside.machine.run(|| hear(*CALLED.ip(), CALLED.port())).is_err());
        network.destroy().await.unwrap();
    });
}

#[test]
fn another_instance_keeps_its_firewall() {
    root_or_return!();
    on_a_node(async || {
        ip(&["link", "set", "lo", "up"]);
        let (node, one, two) = (Node::new(), Pod::new(), Pod::new());
        let (first, second) = (node.open("br0", 1, 24), node.open("br1", 2, 24));
        let address = first.attach(&sandbox("one"), &one.path()).await.unwrap().address;
        second.attach(&sandbox("two"), &two.path()).await.unwrap();
        first.publish(|| vec![web(8080, address)]).await.unwrap();
        second.destroy().await.unwrap();
        serve_one(one.listen(address));
        assert!(hear(Ipv4Addr::LOCALHOST, 8080).is_ok());
        // An agent that starts again finds its own as it was, then makes it what it should be.
        drop(first);
        let again = node.open("br0", 1, 24);
        serve_one(one.listen(address));
        assert!(hear(Ipv4Addr::LOCALHOST, 8080).is_ok());
        again.publish(Vec::new).await.unwrap();
        assert!(hear(Ipv4Addr::LOCALHOST, 8080).is_err());
        again.destroy().await.unwrap();
    });
}

/// The API server's port was taken over like this.
#[test]
fn a_host_port_takes_nothing_that_the_node_listens_on() {
    root_or_return!();
    on_a_node(async || {
        let (node, pod, outside) = (Node::new(), Pod::new(), Outside::new().await);
        let network = node.open("br0", 1, 24);
        let address = network.attach(&sandbox("one"), &pod.path()).await.unwrap().address;
        let port = web(8080, address).port;
        network.check_ports(std::slice::from_ref(&port), Loopback::Kept).await.unwrap();
        let everywhere = TcpListener::bind("0.0.0.0:8080").unwrap();
        let refused = network.check_ports(std::slice::from_ref(&port), Loopback::Kept).await.unwrap_err();
        let told = "host port 8080/TCP is in use on this node: something listens on 0.0.0.0:8080";
        assert_eq!(refused.to_string(), told);
        drop(everywhere);
        // On the loopback alone: that stays its own, the rest is the pod's.
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 8080)).unwrap();
        network.check_ports(std::slice::from_ref(&port), Loopback::Kept).await.unwrap();
        network.publish(|| vec![web(8080, address)]).await.unwrap();
        serve_one(own);
        assert_eq!(hear(Ipv4Addr::LOCALHOST, 8080).unwrap(), "hello 127.0.0.1");
        serve_one(pod.listen(address));
        assert_eq!(outside.machine.run(|| hear(NODE, 8080)).unwrap(), format!("hello {OUTSIDE}"));
    });
}

#[test]
fn nobody_on_the_node_listens_in_vain_where_a_host_port_is() {
    root_or_return!();
    on_a_node(async || {
        ip(&["link", "set", "lo", "up"]);
        let (node, pod) = (Node::new(), Pod::new());
        let network = node.open("br0", 1, 24);
        let address = network.attach(&sandbox("one"), &pod.path()).await.unwrap().address;
        let mut udp = web(8080, address);
        udp.port.protocol = cri::Protocol::Udp;
        network.publish(|| vec![web(8080, address), udp]).await.unwrap();
        let taken = |bound: io::Result<()>| bound.unwrap_err().kind() == io::ErrorKind::AddrInUse;
        assert!(taken(TcpListener::bind((Ipv4Addr::LOCALHOST, 8080)).map(drop)));
        assert!(taken(std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 8080)).map(drop)));
        // What we hold ourselves is in nobody's way: a pod's next sandbox has the same port.
        network.check_ports(&[web(8080, address).port], Loopback::Kept).await.unwrap();
        network.publish(|| vec![web(8080, address)]).await.unwrap();
        assert!(std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 8080)).is_ok());
        network.publish(Vec::new).await.unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, 8080)).is_ok());
    });
}

#[test]
fn a_port_is_its_pods_from_the_moment_it_was_found_free() {
    root_or_return!();
    on_a_node(async || {
        ip(&["link", "set", "lo", "up"]);
        let (node, pod) = (Node::new(), Pod::new());
        let network = node.open("br0", 1, 24);
        let address = network.attach(&sandbox("one"), &pod.path()).await.unwrap().address;
        let (web, other) = (web(8080, address), web(8081, address));
        let is_free = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
        network.reserve_ports(std::slice::from_ref(&web.port)).await.unwrap();
        assert!(!is_free(8080), "the pod is being made");
        // Others come and go meanwhile.
        network.publish(|| vec![other.clone()]).await.unwrap();
        assert!(!is_free(8080) && !is_free(8081));
        network.publish(|| vec![web.clone()]).await.unwrap();
        assert!(!is_free(8080) && is_free(8081));
        network.publish(Vec::new).await.unwrap();
        assert!(is_free(8080));
        // What is refused is not held either.
        let theirs = TcpListener::bind("0.0.0.0:8081").unwrap();
        let refused = network.reserve_ports(&[web.port.clone(), other.port.clone()]).await.unwrap_err();
        assert!(refused.to_string().contains("something listens on 0.0.0.0:8081"), "{refused}");
        assert!(is_free(8080));
        // Unless it leads to a pod already: its next sandbox is refused, this one is not.
        network.publish(|| vec![web.clone()]).await.unwrap();
        assert!(network.reserve_ports(&[web.port.clone(), other.port]).await.is_err());
        assert!(!is_free(8080));
        drop(theirs);
    });
}

#[test]
fn a_daemon_on_the_loopback_comes_back_where_a_host_port_is() {
    root_or_return!();
    on_a_node(async || {
        ip(&["link", "set", "lo", "up"]);
        let (node, pod) = (Node::new(), Pod::new());
        let network = node.open("br0", 1, 24);
        let address = network.attach(&sandbox("one"), &pod.path()).await.unwrap().address;
        let web = web(8080, address);
        let daemon = TcpListener::bind((Ipv4Addr::LOCALHOST, 8080)).unwrap();
        network.reserve_ports(std::slice::from_ref(&web.port)).await.unwrap();
        network.publish(|| vec![web.clone()]).await.unwrap();
        drop(daemon);
        // Another pod's port changes while it is away.
        let other = Published { port: HostPort { host_port: 9090, ..web.port.clone() }, address };
        network.publish(|| vec![web.clone(), other]).await.unwrap();
        let back = TcpListener::bind((Ipv4Addr::LOCALHOST, 8080)).unwrap();
        serve_one(back);
        assert_eq!(hear(Ipv4Addr::LOCALHOST, 8080).unwrap(), "hello 127.0.0.1");
        // When no port leads there any more it is everybody's again, and held for the next pod.
        network.publish(Vec::new).await.unwrap();
        network.publish(|| vec![web]).await.unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, 8080)).is_err());
    });
}
