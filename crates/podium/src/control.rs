//! The control plane: what `podium up` and `podium server` have in common.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ambient::{Clock, Ids, Rng};
use anyhow::{Context, Result};
use apiserver::{ApiServer, Identity};
use client::Client;
use reconciler::{Controllers, ControllersConfig, Reconciler, StorageConfig};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cli::ControlArgs;
use crate::config::Settings;
use crate::door::{self, Door};
use crate::instance::Instance;
use crate::pki::{self, Authority, Subject};
use crate::{audit, keep, kubeconfig};

const MASTERS: &str = "system:masters";

/// Who the API server is to node agents: allowed what their API has, by its
/// role, and nothing else. Whoever makes it call the wrong server with this
/// has not won the cluster.
const KUBELET_CLIENT: Subject<'static> = Subject { user: "kube-apiserver-kubelet-client", group: "podium" };

/// Unless a flag or the configuration says otherwise.
const BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);

/// What it is made from.
pub(crate) struct Plan<'a> {
    pub(crate) args: &'a ControlArgs,
    pub(crate) settings: &'a Settings,
    pub(crate) instance: &'a Instance,
    pub(crate) authority: &'a Authority,
    pub(crate) door: &'a Door,
    /// Under which the server must be trusted, beside the usual names.
    pub(crate) host_name: &'a str,
    /// The node agent in this process and where it listens.
    pub(crate) own_agent: Option<(&'a str, SocketAddr)>,
    pub(crate) clock: &'a Clock,
    pub(crate) ids: &'a Ids,
}

/// A served API.
pub(crate) struct Control {
    pub(crate) api: ApiServer,
    pub(crate) address: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
    server: JoinHandle<std::io::Result<()>>,
}

impl Plan<'_> {
    /// The kubeconfig is written when the API answers.
    pub(crate) async fn open(&self, listener: TcpListener, stopping: watch::Receiver<bool>) -> Result<Control> {
        let address = listener.local_addr()?;
        let api = self.api(address).await?;
        let tls = self.tls(address)?;
        let serving = api.clone();
        let server = tokio::spawn(async move { serving.serve(listener, tls, stopped(stopping)).await });
        let kubeconfig = self.write_kubeconfig(address)?;
        Ok(Control { api, address, kubeconfig, server })
    }

    async fn api(&self, address: SocketAddr) -> Result<ApiServer> {
        let places = &self.instance.places;
        let store = keep::open(self.args, places).await?;
        let kubelet_client = self.authority.client(&KUBELET_CLIENT)?;
        let config = apiserver::Config {
            advertise: address.to_string(),
            kubelet_tls: Some(self.authority.client_config(&kubelet_client)?),
            agents: self.own_agent.iter().map(|(node, address)| ((*node).to_owned(), *address)).collect(),
            signing_key: Some(pki::signing_key(&places.pki())?),
            gates: self.settings.gates.clone(),
            services: self.door.services.clone(),
            trust: Some(apiserver::Trust {
                clients: self.authority.certificate_pem().to_owned(),
                front_proxy: pki::front_proxy(&places.pki(), self.clock.now().wall)?,
            }),
            audit: audit::open(self.args, &places.audit_log(), self.clock.now().wall)?,
            ..apiserver::Config::default()
        };
        let api = ApiServer::new(store, config, self.clock.clone(), self.ids.clone());
        api.bootstrap().await?;
        Ok(api)
    }

    fn tls(&self, address: SocketAddr) -> Result<Arc<rustls::ServerConfig>> {
        let names = ["localhost", self.host_name].into_iter().chain(door::NAMES).map(str::to_owned);
        let mut ips: Vec<IpAddr> = vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()];
        match address.ip() {
            ip if ip.is_unspecified() => ips.extend(crate::instance::local_addresses()),
            ip => ips.push(ip),
        }
        ips.extend(self.door.addresses());
        let subject = Subject { user: "kube-apiserver", group: "podium" };
        let leaf = self.authority.server(&subject, &names.collect::<Vec<_>>(), &ips)?;
        self.authority.server_config(&leaf, &["h2", "http/1.1"])
    }

    fn write_kubeconfig(&self, address: SocketAddr) -> Result<PathBuf> {
        let admin = self.authority.client(&Subject { user: "kubernetes-admin", group: MASTERS })?;
        let document = kubeconfig::document(address, self.authority, &admin);
        if let Some(path) = &self.args.write_kubeconfig {
            kubeconfig::merge(path, &document)?;
        }
        let path = self.instance.places.kubeconfig();
        kubeconfig::write(&path, &document)?;
        Ok(path)
    }

    /// What the cluster does by itself; `storage` says where it may make volumes.
    pub(crate) fn duties(&self, storage: Option<StorageConfig>) -> Result<ControllersConfig> {
        Ok(ControllersConfig {
            certificate: self.authority.certificate_pem().to_owned(),
            storage,
            nodes: self.settings.podium.nodes()?,
            terminated_pods_max: self.settings.podium.terminated_pods_max(),
            signer: Some(Arc::new(self.authority.signer(&self.instance.places.pki(), self.clock.clone())?)),
        })
    }
}

impl Control {
    /// A client that reaches the API server without a socket; what it writes belongs to `name`.
    pub(crate) fn client(&self, identity: Identity, name: &'static str, rng: &mut Rng) -> Client {
        Client::new(self.api.service(identity).known_as(name)).with_jitter(rng.split())
    }

    pub(crate) fn scheduler(&self, clock: &Clock, rng: &mut Rng) -> Reconciler {
        Reconciler::new(self.client(Identity::scheduler(), "kube-scheduler", rng), clock.clone(), rng.split())
    }

    pub(crate) fn controllers(&self, clock: &Clock, rng: &mut Rng, duties: ControllersConfig) -> Controllers {
        Controllers::new(self.client(Identity::controllers(), "kube-controller-manager", rng), clock.clone(), duties)
    }

    /// Until the last connection was told goodbye.
    pub(crate) async fn ended(self) -> Result<()> {
        Ok(self.server.await.context("the API server failed")??)
    }
}

pub(crate) async fn bind_api(args: &ControlArgs) -> Result<TcpListener> {
    bind(args.bind.unwrap_or(BIND), "--bind").await
}

pub(crate) async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| match address.port() {
        0 => format!("cannot listen on {address}"),
        _ => format!("cannot listen on {address} (choose another address with {flag})"),
    })
}

/// Turns true at the first SIGINT or SIGTERM.
pub(crate) fn stop_signals() -> Result<watch::Receiver<bool>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        sender.send_replace(true);
    });
    Ok(receiver)
}

pub(crate) async fn stopped(mut stopping: watch::Receiver<bool>) {
    // The sender dies only together with the process.
    let _ = stopping.wait_for(|stop| *stop).await;
}
