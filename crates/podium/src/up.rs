//! `podium up`: every component in one process, each over its final seam.
//!
//! Order matters for two promises: nothing is left behind when a start is
//! refused (so ports are bound before the data directory is touched), and the
//! kubeconfig appears only when the API answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ambient::{Clock, Ids, Rng};
use anyhow::{Context, Result};
use apiserver::{ApiServer, Identity};
use client::Client;
use kubelet::{Gauge as _, Power};
use objects::gates::Gates;
use reconciler::{Controllers, ControllersConfig, Reconciler, StorageConfig};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::agent::{self, NodeAgent};
use crate::cli::Up;
use crate::config::Settings;
use crate::containers::{Choice, Containers};
use crate::door::Door;
use crate::instance::{Instance, make_private_dir};
use crate::pki::{Authority, Subject};
use crate::{door, kubeconfig, node, pki, preflight, scarcity, status};

const MASTERS: &str = "system:masters";

/// Unless a flag or the configuration says otherwise.
const BIND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);

pub(crate) fn run(args: Up, settings: Settings) -> Result<()> {
    preflight::check()?;
    tokio::runtime::Runtime::new()?.block_on(up(args, settings))
}

async fn up(args: Up, settings: Settings) -> Result<()> {
    let clock = Clock::system();
    let mut rng = Rng::from_os();
    let ids = Ids::new(rng.split());
    let node_name = node::name(args.node.node_name.as_deref())?;
    let mut stopping = stop_signals()?;
    let api_listener = bind(args.bind.unwrap_or(BIND), "--bind").await?;
    let kubelet_listener = agent::bind_kubelet(&args.node).await?;
    let instance = Instance::open(args.place.places(), args.node.pod_cidr.as_deref(), &mut rng)?;
    let authority = Authority::open(&instance.places.pki(), clock.now().wall)?;

    let gates = settings.gates.clone();
    let door = Door::new(api_listener.local_addr()?, instance.identity.pod_cidr()?);
    let api = open_api(&instance, &authority, (&api_listener, &door), gates, &clock, &ids).await?;
    let server = serve_api(&api, &authority, (api_listener, &door), &node_name, stopping.clone())?;
    let kubeconfig = write_kubeconfig(&args, &instance, &authority, server.address)?;

    let containers = Containers::open(&args.node, &instance, door.entrances, &clock, &ids).await?;
    let tls = kubelet_tls(&authority, &node_name, kubelet_listener.local_addr()?)?;
    let kubelet = NodeAgent {
        instance: &instance,
        settings: &settings,
        name: &node_name,
        listener: kubelet::Listener { tcp: kubelet_listener, tls },
        containers: &containers,
        client: in_process(&api, Identity::node(&node_name), &mut rng),
        clock: &clock,
    }
    .compose()?;
    let reconciler = Reconciler::new(in_process(&api, Identity::scheduler(), &mut rng), clock.clone(), rng.split());
    let power = kubelet.power();
    let short = scarce(&args, &instance, &settings)?;
    let client = in_process(&api, Identity::controllers(), &mut rng);
    let controllers = Controllers::new(client, clock.clone(), duties(&instance, &authority, &node_name, &settings)?);
    let components = [
        tokio::spawn(follow_power(power)?),
        tokio::spawn(kubelet.run(stopped(stopping.clone()))),
        tokio::spawn(reconciler.run(stopped(stopping.clone()))),
        tokio::spawn(controllers.run(stopped(stopping.clone()))),
        tokio::spawn(greet(in_process(&api, Identity::admin(), &mut rng), server.address, kubeconfig, short)),
    ];

    stopping.wait_for(|stop| *stop).await.context("signals can no longer be received")?;
    let [power, kubelet, reconciler, controllers, greeting] = components;
    power.abort();
    greeting.abort();
    kubelet.await.context("the node agent failed")?;
    reconciler.await.context("the scheduler failed")?;
    controllers.await.context("a controller failed")?;
    server.task.await.context("the API server failed")??;
    if args.stop_pods {
        containers.destroy(&instance).await.context("cannot stop the pods")?;
    }
    Ok(())
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

/// TC-254: SIGUSR1 announces that the machine is about to stop, SIGUSR2 that it
/// is not.
pub(crate) fn follow_power(power: Power) -> Result<impl Future<Output = ()>> {
    let (mut announced, mut cancelled) = (signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?);
    Ok(async move {
        loop {
            tokio::select! {
                biased;
                Some(()) = announced.recv() => power.announce_shutdown(),
                Some(()) = cancelled.recv() => power.cancel_shutdown(),
                else => return,
            }
        }
    })
}

pub(crate) async fn stopped(mut stopping: watch::Receiver<bool>) {
    // The sender dies only together with the process.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn open_api(
    instance: &Instance,
    authority: &Authority,
    (listener, door): (&TcpListener, &Door),
    gates: Gates,
    clock: &Clock,
    ids: &Ids,
) -> Result<ApiServer> {
    make_private_dir(&instance.places.store())?;
    let store = store::Embedded::open(&instance.places.store().join("state.redb"), store::Options::default())?;
    let kubelet_client = authority.client(&Subject { user: "kube-apiserver-kubelet-client", group: MASTERS })?;
    let config = apiserver::Config {
        advertise: listener.local_addr()?.to_string(),
        kubelet_tls: Some(authority.client_config(&kubelet_client)?),
        signing_key: Some(pki::signing_key(&instance.places.pki())?),
        gates,
        services: door.services.clone(),
    };
    let api = ApiServer::new(Arc::new(store), config, clock.clone(), ids.clone());
    api.bootstrap().await?;
    Ok(api)
}

struct Served {
    address: SocketAddr,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

fn serve_api(
    api: &ApiServer,
    authority: &Authority,
    (listener, door): (TcpListener, &Door),
    node_name: &str,
    stopping: watch::Receiver<bool>,
) -> Result<Served> {
    let address = listener.local_addr()?;
    let names: Vec<String> = ["localhost", node_name].into_iter().chain(door::NAMES).map(str::to_owned).collect();
    let mut ips: Vec<IpAddr> = vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()];
    match address.ip() {
        ip if ip.is_unspecified() => ips.extend(crate::instance::local_addresses()),
        ip => ips.push(ip),
    }
    ips.extend(door.addresses());
    let leaf = authority.server(&Subject { user: "kube-apiserver", group: "podium" }, &names, &ips)?;
    let tls = authority.server_config(&leaf, &["h2", "http/1.1"])?;
    let api = api.clone();
    let task = tokio::spawn(async move { api.serve(listener, tls, stopped(stopping)).await });
    Ok(Served { address, task })
}

fn write_kubeconfig(
    args: &Up,
    instance: &Instance,
    authority: &Authority,
    address: SocketAddr,
) -> Result<std::path::PathBuf> {
    let admin = authority.client(&Subject { user: "kubernetes-admin", group: MASTERS })?;
    let document = kubeconfig::document(address, authority, &admin);
    if let Some(path) = &args.write_kubeconfig {
        kubeconfig::merge(path, &document)?;
    }
    let path = instance.places.kubeconfig();
    kubeconfig::write(&path, &document)?;
    Ok(path)
}

/// The node agent's server, as this cluster's authority vouches for it.
fn kubelet_tls(authority: &Authority, node_name: &str, address: SocketAddr) -> Result<Arc<rustls::ServerConfig>> {
    let user = agent::user(node_name);
    let leaf = authority.server(&agent::subject(&user), &[node_name.to_owned()], &[node::internal_ip(address)])?;
    authority.server_config(&leaf, agent::PROTOCOLS)
}

/// What the cluster does by itself.
fn duties(
    instance: &Instance,
    authority: &Authority,
    node_name: &str,
    settings: &Settings,
) -> Result<ControllersConfig> {
    Ok(ControllersConfig {
        certificate: authority.certificate_pem().to_owned(),
        storage: StorageConfig { node_name: node_name.to_owned(), root: instance.places.volumes() },
        nodes: settings.podium.nodes()?,
        terminated_pods_max: settings.podium.terminated_pods_max(),
    })
}

/// A client that reaches the API server without a socket.
fn in_process(api: &ApiServer, identity: Identity, rng: &mut Rng) -> Client {
    Client::new(api.service(identity)).with_jitter(rng.split())
}

/// What the machine is short of already.
fn scarce(args: &Up, instance: &Instance, settings: &Settings) -> Result<Vec<String>> {
    let images = instance.places.images();
    let imagefs = (args.node.runtime() == Choice::Embedded).then_some(images.as_path());
    let readings = kubelet::Host.read(&instance.places.kubelet(), imagefs);
    let thresholds = settings.kubelet.settings(&settings.gates)?.thresholds;
    Ok(scarcity::warnings(&thresholds, &readings))
}

/// Says, once the node is ready, what is listening and what to type next.
async fn greet(client: Client, address: SocketAddr, kubeconfig: std::path::PathBuf, short: Vec<String>) {
    let node = status::ready_node(&client).await;
    println!("podium is ready");
    println!("  API server   https://{address}");
    println!("  node         {node}");
    println!("  next         export KUBECONFIG={}", kubeconfig.display());
    println!("               kubectl get pods -A");
    for warning in short {
        println!("  warning      {warning}");
    }
    println!("  Ctrl-C stops podium and leaves the pods running; `podium down` stops them too.");
}
