//! The pod network of one instance: a bridge, a veth pair per sandbox,
//! addresses that are never handed out twice, and one firewall table for the
//! way out and for host ports.
//!
//! Read next: `network/addresses.rs` (who has which address),
//! `network/links.rs` (the kernel's side of it), `network/ports.rs` (what the
//! firewall does), `network/frames.rs` (what pods may send at all).

mod addresses;
mod cni;
mod frames;
mod links;
mod listeners;
mod nft;
mod ports;

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cri::{HostPort, Protocol, SandboxId};
use sha2::{Digest, Sha256};
use shim::crash;
use tokio::sync::Mutex as AsyncMutex;

use addresses::Addresses;
pub(crate) use cni::Cni;
pub use cni::CniConfig;
#[cfg(fuzzing)]
pub use cni::fuzzing;
use links::Links;
pub(crate) use links::SANDBOX_INTERFACE;
pub use listeners::Loopback;
use listeners::{Held, Listener};
use nft::{Family, Firewall, Net};
use ports::Leading;
pub use ports::{Entrance, Published};

#[derive(Debug, Clone)]
pub struct NetworkConfig {
    /// Where addresses are remembered; one directory per instance.
    pub state_dir: PathBuf,
    /// Name of the instance's bridge, 15 characters at most. It tells
    /// instances apart: two on one machine need two names.
    pub bridge: String,
    /// Range of the pods' addresses, e.g. 10.88.0.0/24; the first one is the
    /// bridge's own, the pods' gateway.
    pub pod_cidr: (Ipv4Addr, u8),
    pub mtu: u32,
    /// What pods call that this machine itself answers.
    pub entrances: Vec<Entrance>,
}

/// How a sandbox is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    pub address: Ipv4Addr,
    pub prefix_length: u8,
    pub gateway: Ipv4Addr,
    /// The node's end of the pair; the sandbox's is `eth0`.
    pub host_interface: String,
}

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The instance cannot start like this.
    #[error("network configuration: {0}")]
    InvalidConfig(String),
    /// Another process serves this instance.
    #[error("network state {path}: in use by another process", path = path.display())]
    Busy { path: PathBuf },
    #[error("no addresses left in {network}/{prefix_length}")]
    Exhausted { network: Ipv4Addr, prefix_length: u8 },
    /// The bridge's name belongs to something that is no bridge.
    #[error("interface {name}: exists and is not a bridge")]
    NameTaken { name: String },
    #[error("network namespace {path}: {source}", path = path.display())]
    Namespace { path: PathBuf, source: io::Error },
    #[error("{what}: {source}")]
    Netlink { what: String, source: rtnetlink::Error },
    /// The node's own come first.
    #[error("host port {port}/{protocol} is in use on this node: something listens on {at}")]
    PortTaken { port: u16, protocol: &'static str, at: std::net::SocketAddrV4 },
    #[error("CNI network {name}: {detail}")]
    Cni { name: String, detail: String },
    #[error("firewall table {table}: {source}")]
    Firewall { table: String, source: io::Error },
    #[error("kernel setting {path}: {source}", path = path.display())]
    Setting { path: PathBuf, source: io::Error },
    #[error("network state {path}: {source}", path = path.display())]
    State { path: PathBuf, source: io::Error },
    /// Guessing could give one address to two pods.
    #[error("network state {path}: line {line} is unreadable", path = path.display())]
    CorruptState { path: PathBuf, line: usize },
}

pub struct Network {
    config: NetworkConfig,
    range: Range,
    addresses: Arc<Mutex<Addresses>>,
    links: Links,
    firewall: Arc<Firewall>,
    node: AsyncMutex<NodeSide>,
}

/// What is known to be there on the node's side.
#[derive(Default)]
struct NodeSide {
    /// Index of the bridge; there is a firewall table then, too.
    bridge: Option<u32>,
    /// What the firewall leads to pods.
    leading: Leading,
    held: Held,
}

impl Network {
    /// Reads the addresses in use. Makes no interface: the bridge comes with
    /// the first sandbox. Must be called within a tokio runtime, in the
    /// network namespace the bridge shall live in.
    pub fn open(config: NetworkConfig) -> Result<Network, NetworkError> {
        let range = Range::parse(config.pod_cidr)?;
        check_bridge_name(&config.bridge)?;
        let addresses = Addresses::open(&config.state_dir, range)?;
        let table = config.bridge.clone();
        Ok(Network {
            range,
            addresses: Arc::new(Mutex::new(addresses)),
            links: Links::open()?,
            firewall: Arc::new(Firewall::open().map_err(|source| NetworkError::Firewall { table, source })?),
            node: AsyncMutex::default(),
            config,
        })
    }

    pub fn gateway(&self) -> Ipv4Addr {
        self.range.gateway()
    }

    /// Connects the sandbox's namespace. A second call, e.g. after a crash,
    /// keeps the address and replaces the interface. Leaves nothing behind
    /// when it fails.
    pub async fn attach(&self, sandbox: &SandboxId, netns: &Path) -> Result<Attachment, NetworkError> {
        let namespace_failed = |source| NetworkError::Namespace { path: netns.to_owned(), source };
        let namespace = File::open(netns).map_err(namespace_failed)?;
        let holder = sandbox.clone();
        let address = self.with_addresses(move |addresses| addresses.allocate(&holder)).await?;
        crash::point("network.address");
        let connected = self.connect(sandbox, address, netns, &namespace).await;
        if connected.is_err()
            && let Err(err) = self.detach(sandbox).await
        {
            tracing::warn!(%sandbox, %err, "failed attach left something behind until the next reconciliation");
        }
        connected
    }

    /// Disconnects the sandbox and frees its address. Again is fine (TC-053).
    pub async fn detach(&self, sandbox: &SandboxId) -> Result<(), NetworkError> {
        // The address last: it must not be given on while the old interface answers.
        let port = self.host_interface(sandbox);
        self.links.remove(&port).await?;
        crash::point("network.unlinked");
        let holder = sandbox.clone();
        // Pods without an address, e.g. those of CNI plugins, have no port of ours.
        if self.with_addresses(move |addresses| Ok(addresses.of(&holder))).await?.is_some() {
            self.with_firewall(move |firewall, table| firewall.remove_chain(Family::Device, table, &port)).await?;
        }
        let sandbox = sandbox.clone();
        self.with_addresses(move |addresses| addresses.free(&sandbox)).await
    }

    /// Whether these ports of the node may lead to a pod: not where somebody
    /// on the node listens.
    pub async fn check_ports(&self, ports: &[HostPort], loopback: Loopback) -> Result<(), NetworkError> {
        if ports.is_empty() {
            return Ok(());
        }
        let listeners = self.node.lock().await.held.others(self.listeners().await?);
        refuse_taken(ports, &listeners, loopback)
    }

    /// The same for a pod that is being made: they are its own from here on, so
    /// that nobody begins to listen there meanwhile and is passed over.
    pub async fn reserve_ports(&self, ports: &[HostPort]) -> Result<(), NetworkError> {
        if ports.is_empty() {
            return Ok(());
        }
        let mut node = self.node.lock().await;
        // First: whoever comes later finds them taken, and who came before is seen.
        let fresh = node.held.reserve(ports);
        let checked = match self.listeners().await {
            Ok(listeners) => {
                let listeners = node.held.others(listeners);
                // Who is in the way of a pod that is refused is not remembered for the next.
                refuse_taken(ports, &listeners, Loopback::Kept)
                    .inspect(|()| ports.iter().for_each(|port| node.held.spare(&listeners, port)))
            }
            Err(error) => Err(error),
        };
        if checked.is_err() {
            node.held.release(ports, &fresh);
        }
        checked
    }

    /// Off the async threads: a busy node has long tables.
    async fn listeners(&self) -> Result<Vec<Listener>, NetworkError> {
        let failed = |err| NetworkError::State { path: self.config.state_dir.clone(), source: io::Error::other(err) };
        tokio::task::spawn_blocking(listeners::read).await.map_err(failed)?
    }

    /// The node's ports that lead to pods are these from now on. Asked for
    /// under a lock, so that an older answer never replaces a newer one.
    pub async fn publish(&self, ports: impl FnOnce() -> Vec<Published>) -> Result<(), NetworkError> {
        let mut node = self.node.lock().await;
        let published = ports();
        let wanted = self.lead(&mut node.held, published).await?;
        match node.bridge {
            Some(_) if node.leading == wanted => Ok(()),
            Some(_) => {
                self.write_firewall(&wanted).await?;
                node.leading = wanted;
                Ok(())
            }
            // Without pods there is no bridge yet, and nothing to lead anywhere.
            None if wanted.published.is_empty() && self.links.find_bridge(&self.config.bridge).await?.is_none() => {
                node.leading = wanted;
                self.with_firewall(|firewall, table| firewall.remove(Family::Ip, table)).await
            }
            None => {
                node.leading = wanted;
                self.ensure_bridge_of(&mut node).await.map(|_| ())
            }
        }
    }

    /// Who listens on the node's loopback is not passed over, and nobody who
    /// comes later is: the ports are held.
    async fn lead(&self, held: &mut Held, published: Vec<Published>) -> Result<Leading, NetworkError> {
        held.hold(&published);
        if published.is_empty() {
            return Ok(Leading::default());
        }
        let listeners = held.others(self.listeners().await?);
        let ports = published.iter().map(|published| &published.port);
        ports.clone().for_each(|port| held.spare(&listeners, port));
        let kept = ports.filter(|port| held.is_spared(port) || listeners::keeps_loopback(&listeners, port));
        let kept: Vec<(Protocol, u16)> = kept.map(|port| (port.protocol, port.host_port)).collect();
        Ok(Leading { published, kept })
    }

    async fn write_firewall(&self, leading: &Leading) -> Result<(), NetworkError> {
        let pods = Net { address: Ipv4Addr::from(self.range.network), prefix_length: self.range.prefix_length };
        let chains = ports::chains(&self.config.bridge, pods, leading, &self.config.entrances);
        self.with_firewall(move |firewall, table| firewall.replace(Family::Ip, table, &chains)).await
    }

    /// Off the async threads: the kernel may take its time.
    async fn with_firewall(
        &self,
        act: impl FnOnce(&Firewall, &str) -> io::Result<()> + Send + 'static,
    ) -> Result<(), NetworkError> {
        let (firewall, table) = (self.firewall.clone(), self.config.bridge.clone());
        let acting = tokio::task::spawn_blocking(move || act(&firewall, &table));
        let done = acting.await.map_err(io::Error::other).flatten();
        crash::point("network.firewall");
        done.map_err(|source| NetworkError::Firewall { table: self.config.bridge.clone(), source })
    }

    /// Frees what belongs to none of the `known` sandboxes. For the start of
    /// the engine, before the first `attach`.
    pub async fn reconcile(&self, known: &[SandboxId]) -> Result<(), NetworkError> {
        let keep: Vec<String> = known.iter().map(|sandbox| self.host_interface(sandbox)).collect();
        self.remove_ports(|name| !keep.iter().any(|kept| kept == name)).await?;
        let holders = known.to_vec();
        self.with_addresses(move |addresses| addresses.free_all_but(&holders)).await?;
        // A pod that ends meanwhile takes its port along; then once more with those that are left.
        for _ in 1..GUARD_TRIES_MAX {
            match self.guard_all(known).await {
                Err(error) if is_gone(&error) => {}
                outcome => return outcome,
            }
        }
        self.guard_all(known).await
    }

    /// The ports of these sandboxes take what their pods may send, whoever set
    /// them up.
    async fn guard_all(&self, known: &[SandboxId]) -> Result<(), NetworkError> {
        let Some(index) = self.links.find_bridge(&self.config.bridge).await? else { return Ok(()) };
        let ports = self.links.ports(index).await?;
        let mut chains = Vec::new();
        for sandbox in known {
            let (port, holder) = (self.host_interface(sandbox), sandbox.clone());
            let address = self.with_addresses(move |addresses| Ok(addresses.of(&holder))).await?;
            let Some(address) = address.filter(|_| ports.contains(&port)) else { continue };
            self.links.seal_port(&port, mac_of(address)).await?;
            chains.push(frames::chain(&port, mac_of(address), address));
        }
        self.with_firewall(move |firewall, table| match chains.as_slice() {
            [] => firewall.remove(Family::Device, table),
            chains => firewall.replace(Family::Device, table, chains),
        })
        .await
    }

    /// Removes every trace of the instance: interfaces, bridge, addresses.
    pub async fn destroy(&self) -> Result<(), NetworkError> {
        let mut node = self.node.lock().await;
        *node = NodeSide::default();
        self.remove_ports(|_| true).await?;
        if self.links.find_bridge(&self.config.bridge).await?.is_some() {
            self.links.remove(&self.config.bridge).await?;
        }
        self.with_firewall(|firewall, table| {
            firewall.remove(Family::Device, table)?;
            firewall.remove(Family::Ip, table)
        })
        .await?;
        self.with_addresses(Addresses::clear).await
    }

    async fn remove_ports(&self, is_doomed: impl Fn(&str) -> bool) -> Result<(), NetworkError> {
        let Some(index) = self.links.find_bridge(&self.config.bridge).await? else { return Ok(()) };
        for name in self.links.ports(index).await? {
            if name.starts_with(HOST_INTERFACE_PREFIX) && is_doomed(&name) {
                self.links.remove(&name).await?;
            }
        }
        Ok(())
    }

    /// Off the async threads: it may wait for the disk.
    async fn with_addresses<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Addresses) -> Result<T, NetworkError> + Send + 'static,
    ) -> Result<T, NetworkError> {
        let addresses = self.addresses.clone();
        let acting =
            tokio::task::spawn_blocking(move || act(&mut addresses.lock().unwrap_or_else(PoisonError::into_inner)));
        let path = &self.config.state_dir;
        acting.await.map_err(|err| NetworkError::State { path: path.clone(), source: io::Error::other(err) })?
    }

    async fn connect(
        &self,
        sandbox: &SandboxId,
        address: Ipv4Addr,
        netns: &Path,
        namespace: &File,
    ) -> Result<Attachment, NetworkError> {
        let host_interface = self.host_interface(sandbox);
        let pair = links::Pair {
            host_name: &host_interface,
            namespace: namespace.as_raw_fd(),
            mac: mac_of(address),
            mtu: self.config.mtu,
        };
        let bridge = self.ensure_bridge().await?;
        match self.links.add_pair(&pair, bridge).await {
            // Someone took the bridge away since we last looked.
            Err(err) if links::is_missing(&err) => {
                self.node.lock().await.bridge = None;
                let bridge = self.ensure_bridge().await?;
                self.links.add_pair(&pair, bridge).await?;
            }
            outcome => outcome?,
        }
        crash::point("network.pair");
        // Before the pod's end comes up: nothing is ever sent past it.
        let chain = frames::chain(&host_interface, pair.mac, address);
        let guarded = self.with_firewall(move |firewall, table| firewall.replace_chain(Family::Device, table, &chain));
        let sealed = self.links.seal_port(&host_interface, pair.mac);
        let (guarded, sealed, inside) = tokio::join!(guarded, sealed, Links::open_inside(netns, namespace));
        guarded.and(sealed)?;
        inside?
            .configure(links::Endpoint {
                address,
                prefix_length: self.range.prefix_length,
                gateway: self.range.gateway(),
            })
            .await?;
        Ok(Attachment {
            address,
            prefix_length: self.range.prefix_length,
            gateway: self.range.gateway(),
            host_interface,
        })
    }

    async fn ensure_bridge(&self) -> Result<u32, NetworkError> {
        let mut node = self.node.lock().await;
        self.ensure_bridge_of(&mut node).await
    }

    async fn ensure_bridge_of(&self, node: &mut NodeSide) -> Result<u32, NetworkError> {
        if let Some(index) = node.bridge {
            return Ok(index);
        }
        let gateway = self.range.gateway();
        let index = self.links.ensure_bridge(&self.config.bridge, mac_of(gateway), self.config.mtu).await?;
        crash::point("network.bridge");
        self.links.set_only_address(index, gateway, self.range.prefix_length).await?;
        // Pods reach the world by way of this machine.
        set("ipv4/ip_forward", "1")?;
        for (family, setting, value) in BRIDGE_SETTINGS {
            // A kernel without IPv6 believes nobody.
            if Path::new(SETTINGS).join(family).exists() {
                set(&format!("{family}/conf/{}/{setting}", self.config.bridge), value)?;
            }
        }
        self.write_firewall(&node.leading).await?;
        node.bridge = Some(index);
        Ok(index)
    }

    /// From bridge and sandbox, so that no two instances choose the same, and
    /// with 65 bits of a hash, so that no two sandboxes do.
    fn host_interface(&self, sandbox: &SandboxId) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.config.bridge.as_bytes());
        hasher.update([0]);
        hasher.update(sandbox.as_str().as_bytes());
        let hash = hasher.finalize();
        let letters = hash.iter().take(13).map(|byte| char::from(BASE32[usize::from(byte & 31)]));
        HOST_INTERFACE_PREFIX.chars().chain(letters).collect()
    }
}

/// A port is not there any more.
fn is_gone(error: &NetworkError) -> bool {
    match error {
        NetworkError::Firewall { source, .. } => source.kind() == io::ErrorKind::NotFound,
        error => links::is_missing(error),
    }
}

/// More pods than this do not end in the time of one look each.
const GUARD_TRIES_MAX: u32 = 5;

/// What the node makes of its bridge. Host ports work on its loopback, too;
/// what pods say about routes and addresses is not believed (CVE-2020-10749).
const BRIDGE_SETTINGS: [(&str, &str, &str); 8] = [
    ("ipv4", "route_localnet", "1"),
    ("ipv4", "rp_filter", "1"),
    ("ipv4", "accept_redirects", "0"),
    ("ipv4", "accept_source_route", "0"),
    ("ipv6", "accept_ra", "0"),
    ("ipv6", "autoconf", "0"),
    ("ipv6", "accept_redirects", "0"),
    // Pods have no addresses of IPv6, so the node needs none towards them.
    ("ipv6", "disable_ipv6", "1"),
];
const SETTINGS: &str = "/proc/sys/net";

/// In the calling thread's namespace.
fn set(setting: &str, value: &str) -> Result<(), NetworkError> {
    let path = Path::new(SETTINGS).join(setting);
    let failed = |source| NetworkError::Setting { path: path.clone(), source };
    // Where it is so already it may be read-only.
    if std::fs::read_to_string(&path).map_err(failed)?.trim() == value {
        return Ok(());
    }
    std::fs::write(&path, value).map_err(failed)
}

/// Pods' addresses: all of the network but its own, the bridge's and the
/// broadcast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    network: u32,
    prefix_length: u8,
}

impl Range {
    fn parse((address, prefix_length): (Ipv4Addr, u8)) -> Result<Range, NetworkError> {
        if !(8..=30).contains(&prefix_length) {
            let detail = format!("pod CIDR {address}/{prefix_length}: prefix length must be between 8 and 30");
            return Err(NetworkError::InvalidConfig(detail));
        }
        let mask = u32::MAX << (32 - prefix_length);
        Ok(Range { network: u32::from(address) & mask, prefix_length })
    }

    fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    fn first(self) -> u32 {
        self.network + 2
    }

    fn last(self) -> u32 {
        (self.network | (u32::MAX >> self.prefix_length)) - 1
    }

    fn exhausted(self) -> NetworkError {
        NetworkError::Exhausted { network: Ipv4Addr::from(self.network), prefix_length: self.prefix_length }
    }
}

fn refuse_taken(ports: &[HostPort], listeners: &[Listener], loopback: Loopback) -> Result<(), NetworkError> {
    match ports.iter().find_map(|port| Some((port, listeners::in_the_way(listeners, port, loopback)?))) {
        None => Ok(()),
        Some((port, listener)) => {
            let protocol = ports::name(port.protocol);
            Err(NetworkError::PortTaken { port: port.host_port, protocol, at: listener.at })
        }
    }
}

fn check_bridge_name(name: &str) -> Result<(), NetworkError> {
    let is_valid = (1..=15).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b':'))
        && !matches!(name, "." | "..")
        && !name.starts_with(HOST_INTERFACE_PREFIX);
    match is_valid {
        true => Ok(()),
        false => Err(NetworkError::InvalidConfig(format!("bridge name {name:?} is not usable"))),
    }
}

/// Locally administered and unique with the address, so that neighbours who
/// remember the address' last owner are not misled for long.
fn mac_of(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

const HOST_INTERFACE_PREFIX: &str = "pv";
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

#[cfg(test)]
mod tests;
