//! Real interfaces, in namespaces made for one test: "the node" is one, each pod another.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
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
        })
        .unwrap()
    }
}

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
