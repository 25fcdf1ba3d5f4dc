//! `podium agent`: the node agent alone, for whatever API server a kubeconfig
//! names; and how a node agent is put together, for `podium up` as well.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use ambient::{Clock, Ids, Rng, Timestamp};
use anyhow::{Context, Result, bail};
use client::Client;
use kubelet::{Kubelet, Logind};
use lifecycle::Rules;
use lifecycle::node::{HostPortRules, Settings as NodeSettings};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;

use crate::cli::{Agent, KUBERNETES_VERSION, NodeArgs};
use crate::config::Settings;
use crate::containers::Containers;
use crate::instance::Instance;
use crate::pki::{self, Leaf, Subject};
use crate::{control, node, preflight, status, up};

/// 0: the kernel chooses (decision 0006).
const KUBELET_BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// What the agent's server speaks.
pub(crate) const PROTOCOLS: &[&str] = &["http/1.1"];

pub(crate) fn run(args: &Agent, settings: &Settings) -> Result<()> {
    preflight::check()?;
    tokio::runtime::Runtime::new()?.block_on(agent(args, settings))
}

async fn agent(args: &Agent, settings: &Settings) -> Result<()> {
    let clock = Clock::system();
    let mut rng = Rng::from_os();
    let ids = Ids::new(rng.split());
    let name = node::name(args.node.node_name.as_deref())?;
    let stopping = control::stop_signals()?;
    let shown = args.kubeconfig.display();
    let client = Client::from_kubeconfig(&args.kubeconfig).await.with_context(|| format!("--kubeconfig {shown}"))?;
    let client = client.with_jitter(rng.split());
    let (host, port) = client::server(&args.kubeconfig).await.with_context(|| format!("--kubeconfig {shown}"))?;
    let api_port = node::is_here(&host).then_some(port);
    let tcp = bind_kubelet(&args.node).await?;
    let address = tcp.local_addr()?;
    let instance = Instance::open(args.place.places(), args.node.pod_cidr.as_deref(), &mut rng)?;
    let host_ip = node::host_ip(args.node.node_ip, address.ip(), instance.identity.pod_cidr()?);
    // Who listens on the loopback is asked on this machine, and found nowhere else.
    let internal_ip = if address.ip().is_loopback() { address.ip() } else { host_ip };
    let tls = tls(args, &name, internal_ip, clock.now().wall).await?;
    let containers = Containers::open(&args.node, &instance, Vec::new(), &clock, &ids).await?;
    let kubelet = NodeAgent {
        instance: &instance,
        settings,
        args: &args.node,
        name: &name,
        host_ip,
        internal_ip,
        api_port,
        listener: kubelet::Listener { tcp, tls },
        containers: &containers,
        client: client.clone(),
        clock: &clock,
    }
    .compose()?;
    let greeting = tokio::spawn(async move {
        status::ready(&client, Some(&name)).await;
        println!("node {name} is ready");
        println!("  Ctrl-C stops podium and leaves the pods running; `podium down` stops them too.");
    });
    let power = tokio::spawn(up::follow_power(kubelet.power())?);
    let worked = kubelet.run(control::stopped(stopping)).await;
    power.abort();
    greeting.abort();
    Ok(worked?)
}

pub(crate) async fn bind_kubelet(args: &NodeArgs) -> Result<TcpListener> {
    control::bind(args.kubelet_bind.unwrap_or(KUBELET_BIND), "--kubelet-bind").await
}

/// Who a node is to API servers.
pub(crate) fn user(node_name: &str) -> String {
    format!("system:node:{node_name}")
}

pub(crate) fn subject(user: &str) -> Subject<'_> {
    Subject { user, group: "system:nodes" }
}

async fn tls(args: &Agent, name: &str, ip: IpAddr, today: Timestamp) -> Result<Arc<rustls::ServerConfig>> {
    let (chain, key) = match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(chain), Some(key)) => (pki::read_certificates(chain)?, pki::read_private_key(key)?),
        _ => {
            let user = user(name);
            let leaf = Leaf::self_signed(&subject(&user), ip, today)?;
            (vec![leaf.certificate.clone()], leaf.private_key())
        }
    };
    let mut authorities = RootCertStore::empty();
    for certificate in client_authorities(args).await? {
        authorities.add(certificate).context("a certificate authority cannot be used")?;
    }
    pki::server_config(chain, key, authorities, PROTOCOLS)
}

async fn client_authorities(args: &Agent) -> Result<Vec<CertificateDer<'static>>> {
    if let Some(path) = &args.client_ca_file {
        return pki::read_certificates(path);
    }
    let found = client::authorities(&args.kubeconfig).await?;
    if found.is_empty() {
        bail!(
            "the kubeconfig names no certificate authority: say with --client-ca-file whose clients may ask the node"
        );
    }
    Ok(found.into_iter().map(CertificateDer::from).collect())
}

/// What a node agent is made of.
pub(crate) struct NodeAgent<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) settings: &'a Settings,
    pub(crate) args: &'a NodeArgs,
    pub(crate) name: &'a str,
    /// What pods are told.
    pub(crate) host_ip: IpAddr,
    /// Where API servers elsewhere find the agent.
    pub(crate) internal_ip: IpAddr,
    /// Of the API server in this process, or on this machine.
    pub(crate) api_port: Option<u16>,
    pub(crate) listener: kubelet::Listener,
    pub(crate) containers: &'a Containers,
    pub(crate) client: Client,
    pub(crate) clock: &'a Clock,
}

impl NodeAgent<'_> {
    pub(crate) fn compose(self) -> Result<Kubelet> {
        let Self { instance, settings, .. } = self;
        let port = self.listener.tcp.local_addr()?.port();
        let host_ports = HostPortRules {
            lowest: self.args.host_port_min.unwrap_or_else(node::host_port_min),
            reserved: self.api_port.into_iter().chain([port]).collect(),
        };
        let capacity = node::capacity(&instance.places.data, settings.kubelet.max_pods);
        let config = kubelet::Config {
            node_name: self.name.to_owned(),
            host_ips: vec![self.host_ip],
            internal_ips: vec![self.internal_ip],
            port,
            root: instance.places.kubelet(),
            log_root: instance.places.pod_logs(),
            labels: settings.node_labels.clone(),
            taints: settings.kubelet.register_with_taints.clone(),
            allocatable: settings.kubelet.allocatable(&capacity)?,
            capacity,
            machine: node::machine(),
            version: KUBERNETES_VERSION.to_owned(),
            dns: node::dns(),
            periods: settings.kubelet.periods(),
            log_limits: settings.kubelet.log_limits(),
            log_workers: settings.kubelet.log_workers(),
            rules: settings.kubelet.rules(&settings.gates, Rules::upstream(vec![self.host_ip])),
            settings: node_settings(settings, host_ports, Path::new("/sys"))?,
            static_pods: settings.kubelet.static_pod_path.clone(),
            static_url: settings.kubelet.static_url()?,
            gates: settings.gates.clone(),
            remove_unknown_pods: self.args.remove_unknown_pods,
            status_images_max: settings.kubelet.images_in_status(),
            pulls: settings.kubelet.pull_limits(),
            image_trust: settings.kubelet.image_trust(&settings.gates),
        };
        node::set_oom_score(settings.kubelet.oom_score_adj());
        let kubelet = Kubelet::new(config, self.client, self.containers.runtime(), self.clock.clone());
        let kubelet = kubelet.with_panics(self.containers.panics());
        Ok(kubelet.with_server(self.listener).with_logind(Logind::default()))
    }
}

/// What the operator configured, with what this machine has.
fn node_settings(settings: &Settings, host_ports: HostPortRules, sys: &Path) -> Result<NodeSettings> {
    let has_app_armor = node::has_app_armor(sys);
    Ok(NodeSettings { host_ports, has_app_armor, ..settings.kubelet.settings(&settings.gates)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is refused by it, and who is not: `lifecycle` and `kubelet` show that.
    #[test]
    fn pods_with_profiles_are_welcome_where_the_kernel_has_app_armor() {
        let sys = tempfile::tempdir().unwrap();
        let has = || {
            let settings = node_settings(&Settings::default(), HostPortRules::default(), sys.path());
            settings.unwrap().has_app_armor
        };
        assert!(!has(), "there is no module");
        let parameters = sys.path().join("module/apparmor/parameters");
        std::fs::create_dir_all(&parameters).unwrap();
        for (text, expected) in [("N\n", false), ("Y\n", true), ("", false)] {
            std::fs::write(parameters.join("enabled"), text).unwrap();
            assert_eq!(has(), expected, "{text:?}");
        }
    }
}
