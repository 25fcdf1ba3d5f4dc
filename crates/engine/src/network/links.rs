//! Interfaces, addresses and routes, by rtnetlink in one network namespace.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, RawFd};
use std::path::Path;

use futures::TryStreamExt;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourFlags, NeighbourState};
use rtnetlink::sys::{AsyncSocket, TokioSocket, protocols::NETLINK_ROUTE};
use rtnetlink::{Handle, LinkBridge, LinkBridgePort, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

use super::NetworkError;

/// A netlink connection; it belongs to the namespace it was opened in, for ever.
///
/// The kernel does what a message asks for while the message is being sent,
/// and some of it takes tens of milliseconds. So each connection has a thread
/// of its own; on the threads of the async runtime it would stall other tasks.
pub(super) struct Links {
    handle: Handle,
    namespace: File,
}

/// A veth pair to be made.
pub(super) struct Pair<'a> {
    pub(super) host_name: &'a str,
    /// Namespace of the other end, an open descriptor.
    pub(super) namespace: RawFd,
    /// Hardware address of the other end.
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
}

/// What the sandbox's end is told.
pub(super) struct Endpoint {
    pub(super) address: Ipv4Addr,
    pub(super) prefix_length: u8,
    pub(super) gateway: Ipv4Addr,
}

impl Links {
    /// In the calling thread's namespace.
    pub(super) fn open() -> Result<Links, NetworkError> {
        let path = Path::new("/proc/thread-self/ns/net");
        let failed = |source| NetworkError::Namespace { path: path.to_owned(), source };
        let namespace = File::open(path).map_err(failed)?;
        let (report, opened) = std::sync::mpsc::sync_channel(1);
        start(namespace.try_clone().map_err(failed)?, move |handle| drop(report.send(handle))).map_err(failed)?;
        let handle = opened.recv().unwrap_or_else(|_| Err(thread_died())).map_err(failed)?;
        Ok(Links { handle, namespace })
    }

    /// In another namespace.
    pub(super) async fn open_inside(path: &Path, namespace: &File) -> Result<Links, NetworkError> {
        let failed = |source| NetworkError::Namespace { path: path.to_owned(), source };
        let namespace = namespace.try_clone().map_err(failed)?;
        let (report, opened) = oneshot::channel();
        start(namespace.try_clone().map_err(failed)?, move |handle| drop(report.send(handle))).map_err(failed)?;
        let handle = opened.await.unwrap_or_else(|_| Err(thread_died())).map_err(failed)?;
        Ok(Links { handle, namespace })
    }

    /// Index of the bridge, made or found.
    pub(super) async fn ensure_bridge(&self, name: &str, mac: [u8; 6], mtu: u32) -> Result<u32, NetworkError> {
        if self.find_bridge(name).await?.is_none() {
            // With an address of its own: otherwise it changes with every port
            // that comes, and pods' memories of the gateway go stale.
            let bridge = LinkBridge::new(name).address(mac.to_vec()).mtu(mtu).build();
            match self.handle.link().add(bridge).execute().await {
                Err(err) if errno(&err) == Some(Errno::EXIST) => {}
                outcome => outcome.map_err(failed(name, "create"))?,
            }
        }
        let index = self.find_bridge(name).await?.ok_or_else(|| NetworkError::NameTaken { name: name.to_owned() })?;
        self.set_up(name, index).await?;
        Ok(index)
    }

    /// `None` when there is no such interface; an error when it is no bridge.
    pub(super) async fn find_bridge(&self, name: &str) -> Result<Option<u32>, NetworkError> {
        let Some(link) = self.find(name).await? else { return Ok(None) };
        let is_bridge = link.attributes.iter().any(|attribute| match attribute {
            LinkAttribute::LinkInfo(info) => info.contains(&LinkInfo::Kind(InfoKind::Bridge)),
            _ => false,
        });
        match is_bridge {
            true => Ok(Some(link.header.index)),
            false => Err(NetworkError::NameTaken { name: name.to_owned() }),
        }
    }

    /// Gives the interface this address and takes away all others of IPv4,
    /// e.g. those of a range configured earlier.
    pub(super) async fn set_only_address(
        &self,
        index: u32,
        address: Ipv4Addr,
        prefix_length: u8,
    ) -> Result<(), NetworkError> {
        let address = IpAddr::V4(address);
        let mut found = self.handle.address().get().set_link_index_filter(index).execute();
        let mut stale = Vec::new();
        let mut is_set = false;
        while let Some(message) = found.try_next().await.map_err(failed("bridge", "list addresses"))? {
            let has = |wanted: IpAddr| message.attributes.contains(&AddressAttribute::Local(wanted));
            if has(address) && message.header.prefix_len == prefix_length {
                is_set = true;
            } else if message.header.family == netlink_packet_route::AddressFamily::Inet {
                stale.push(message);
            }
        }
        for message in stale {
            self.handle.address().del(message).execute().await.map_err(failed("bridge", "remove address"))?;
        }
        if !is_set {
            let adding = self.handle.address().add(index, address, prefix_length).execute();
            adding.await.map_err(failed("bridge", "add address"))?;
        }
        Ok(())
    }

    /// Makes the pair in one step: one end up and in the bridge, the other
    /// still down as `eth0` in its namespace. What is left of an earlier try goes first.
    pub(super) async fn add_pair(&self, pair: &Pair<'_>, bridge: u32) -> Result<(), NetworkError> {
        match self.request_pair(pair, bridge).await {
            Err(err) if errno(&err) == Some(Errno::EXIST) => {
                self.remove(pair.host_name).await?;
                self.request_pair(pair, bridge).await.map_err(failed(pair.host_name, "create"))
            }
            outcome => outcome.map_err(failed(pair.host_name, "create")),
        }
    }

    async fn request_pair(&self, pair: &Pair<'_>, bridge: u32) -> Result<(), rtnetlink::Error> {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(SANDBOX_INTERFACE)
            .address(pair.mac.to_vec())
            .mtu(pair.mtu)
            .setns_by_fd(pair.namespace)
            .build();
        let message = LinkVeth::new(pair.host_name, SANDBOX_INTERFACE)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .mtu(pair.mtu)
            .controller(bridge)
            .up()
            .build();
        self.handle.link().add(message).execute().await
    }

    /// The bridge knows whose port it is, and never learns otherwise: its table
    /// has one entry for each pod, whatever pods send, and a frame for nobody
    /// goes to nobody.
    pub(super) async fn seal_port(&self, name: &str, mac: [u8; 6]) -> Result<(), NetworkError> {
        // Where bridges are filtered (`bridge-nf-call-iptables`), a pod that
        // asks itself by a port of the node is sent back where it came from.
        let port = LinkBridgePort::new(0).name(name.to_owned()).hairpin(true).learning(false).flood(false);
        self.handle.link().set_port(port.build()).execute().await.map_err(failed(name, "set up bridge port"))?;
        let index = self.find(name).await?.map(|link| link.header.index).unwrap_or_default();
        let owner = self.handle.neighbours().add_bridge(index, &mac).replace();
        // "static": "permanent" would be the bridge's own.
        let owner = owner.state(NeighbourState::Noarp).flags(NeighbourFlags::Controller);
        owner.execute().await.map_err(failed(name, "name the owner of bridge port"))
    }

    /// The sandbox's side: loopback, address, way out.
    pub(super) async fn configure(&self, endpoint: Endpoint) -> Result<(), NetworkError> {
        self.set_loopback_up().await?;
        let link = self.find(SANDBOX_INTERFACE).await?;
        let index = link.map(|link| link.header.index).unwrap_or_default();
        let adding = self.handle.address().add(index, IpAddr::V4(endpoint.address), endpoint.prefix_length).execute();
        adding.await.map_err(failed(SANDBOX_INTERFACE, "add address"))?;
        self.set_up(SANDBOX_INTERFACE, index).await?;
        let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(endpoint.gateway).output_interface(index).build();
        self.handle.route().add(route).execute().await.map_err(failed(SANDBOX_INTERFACE, "add default route"))
    }

    pub(super) async fn set_loopback_up(&self) -> Result<(), NetworkError> {
        self.set_up("lo", LOOPBACK_INDEX).await
    }

    async fn set_up(&self, name: &str, index: u32) -> Result<(), NetworkError> {
        let up = LinkUnspec::new_with_index(index).up().build();
        self.handle.link().set(up).execute().await.map_err(failed(name, "set up"))
    }

    /// Names of the interfaces in the bridge.
    pub(super) async fn ports(&self, bridge: u32) -> Result<Vec<String>, NetworkError> {
        let mut found = self.handle.link().get().execute();
        let mut names = Vec::new();
        while let Some(link) = found.try_next().await.map_err(failed("bridge", "list ports"))? {
            if link.attributes.contains(&LinkAttribute::Controller(bridge)) {
                names.extend(name_of(&link));
            }
        }
        Ok(names)
    }

    /// Deletes the interface and with it the other end of its pair. That it
    /// is gone already, e.g. with its namespace, is fine. On a connection of
    /// its own, as it is slow: other pods' interfaces need not wait for it.
    pub(super) async fn remove(&self, name: &str) -> Result<(), NetworkError> {
        let Some(link) = self.find(name).await? else { return Ok(()) };
        let own = Links::open_inside(Path::new("/proc/thread-self/ns/net"), &self.namespace).await?;
        match own.handle.link().del(link.header.index).execute().await {
            Err(err) if errno(&err) == Some(Errno::NODEV) => Ok(()),
            outcome => outcome.map_err(failed(name, "remove")),
        }
    }

    pub(super) async fn find(&self, name: &str) -> Result<Option<LinkMessage>, NetworkError> {
        let mut found = self.handle.link().get().match_name(name.to_owned()).execute();
        match found.try_next().await {
            Err(err) if errno(&err) == Some(Errno::NODEV) => Ok(None),
            outcome => outcome.map_err(failed(name, "find")),
        }
    }
}

/// The bridge an interface should have joined is not there.
pub(super) fn is_missing(err: &NetworkError) -> bool {
    let NetworkError::Netlink { source, .. } = err else { return false };
    matches!(errno(source), Some(Errno::NODEV | Errno::INVAL))
}

fn name_of(link: &LinkMessage) -> Option<String> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })
}

fn errno(err: &rtnetlink::Error) -> Option<Errno> {
    let rtnetlink::Error::NetlinkError(message) = err else { return None };
    message.code.map(|code| Errno::from_raw_os_error(code.get().abs()))
}

fn failed(name: &str, what: &str) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    let what = format!("interface {name}: {what}");
    move |source| NetworkError::Netlink { what, source }
}

/// Starts a thread that moves to the namespace, reports a handle and serves it
/// until it is dropped. No other work ever runs on a thread gone astray.
fn start(namespace: File, report: impl FnOnce(io::Result<Handle>) + Send + 'static) -> io::Result<()> {
    let serve = move || {
        let connect = || -> io::Result<_> {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            drop(namespace);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            let context = runtime.enter();
            let (connection, handle, _) = rtnetlink::from_socket(TokioSocket::new(NETLINK_ROUTE)?);
            drop(context);
            Ok((runtime, connection, handle))
        };
        match connect() {
            Ok((runtime, connection, handle)) => {
                report(Ok(handle));
                runtime.block_on(connection);
            }
            Err(err) => report(Err(err)),
        }
    };
    std::thread::Builder::new().name("netlink".to_owned()).spawn(serve).map(drop)
}

fn thread_died() -> io::Error {
    io::Error::other("netlink thread died")
}

pub(crate) const SANDBOX_INTERFACE: &str = "eth0";
/// The kernel makes it first in every namespace.
const LOOPBACK_INDEX: u32 = 1;
