//! `podium up`: every component in one process, each over its final seam.
//!
//! Order matters for two promises: nothing is left behind when a start is
//! refused (so ports are bound before the data directory is touched), and the
//! kubeconfig appears only when the API answers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ambient::{Clock, Ids, Rng};
use anyhow::{Context, Result};
use apiserver::Identity;
use client::Client;
use kubelet::{Gauge as _, Power};
use reconciler::StorageConfig;
use tokio::signal::unix::{SignalKind, signal};

use crate::agent::{self, NodeAgent};
use crate::cli::Up;
use crate::config::Settings;
use crate::containers::{Choice, Containers};
use crate::control::{self, Plan, stop_signals, stopped};
use crate::door::Door;
use crate::instance::Instance;
use crate::pki::Authority;
use crate::{node, preflight, scarcity, status};

pub(crate) fn run(args: Up, settings: Settings) -> Result<()> {
    preflight::check()?;
    tokio::runtime::Runtime::new()?.block_on(up(args, settings))
}

async fn up(args: Up, settings: Settings) -> Result<()> {
    let clock = Clock::system();
    let mut rng = Rng::from_os();
    let ids = Ids::new(rng.split());
    let node_name = node::name(args.node.node_name.as_deref())?;
    let stopping = stop_signals()?;
    let api_listener = control::bind_api(&args.control).await?;
    let kubelet_listener = agent::bind_kubelet(&args.node).await?;
    let instance = Instance::open(args.place.places(), args.node.pod_cidr.as_deref(), &mut rng)?;
    let authority = Authority::open(&instance.places.pki(), clock.now().wall)?;
    let pod_cidr = instance.identity.pod_cidr()?;
    let door = Door::new(api_listener.local_addr()?, pod_cidr);
    let kubelet_address = kubelet_listener.local_addr()?;
    let host_ip = node::host_ip(args.node.node_ip, kubelet_address.ip(), pod_cidr);
    let own_agent = node::on_this_machine(kubelet_address);
    let plan = Plan {
        args: &args.control,
        settings: &settings,
        instance: &instance,
        authority: &authority,
        door: &door,
        host_name: &node_name,
        own_agent: Some((node_name.as_str(), own_agent)),
        clock: &clock,
        ids: &ids,
    };
    let control = plan.open(api_listener, stopping.clone()).await?;

    let containers = Containers::open(&args.node, &instance, door.entrances.clone(), &clock, &ids).await?;
    let tls = kubelet_tls(&authority, &node_name, &[host_ip, own_agent.ip()])?;
    let kubelet = NodeAgent {
        instance: &instance,
        settings: &settings,
        args: &args.node,
        name: &node_name,
        host_ip,
        internal_ip: host_ip,
        api_port: Some(control.address.port()),
        listener: kubelet::Listener { tcp: kubelet_listener, tls },
        containers: &containers,
        client: control.client(Identity::node(&node_name), "kubelet", &mut rng),
        clock: &clock,
    }
    .compose()?;
    let power = kubelet.power();
    let short = scarce(&args, &instance, &settings)?;
    let volumes = StorageConfig { node_name: node_name.clone(), root: instance.places.volumes() };
    let controllers = control.controllers(&clock, &mut rng, plan.duties(Some(volumes))?);
    let admin = control.client(Identity::admin(), "podium", &mut rng);
    let kubelet = tokio::spawn(kubelet.run(stopped(stopping.clone())));
    let components = [
        tokio::spawn(follow_power(power)?),
        tokio::spawn(control.scheduler(&clock, &mut rng).run(stopped(stopping.clone()))),
        tokio::spawn(controllers.run(stopped(stopping.clone()))),
        tokio::spawn(greet(admin, control.address, control.kubeconfig.clone(), short)),
    ];

    // It ends when it is told to stop, or for a reason of its own: a node without an agent is worse than none.
    kubelet.await.context("the node agent failed")??;
    let [power, scheduler, controllers, greeting] = components;
    power.abort();
    greeting.abort();
    scheduler.await.context("the scheduler failed")?;
    controllers.await.context("a controller failed")?;
    control.ended().await?;
    if args.stop_pods {
        containers.destroy(&instance).await.context("cannot stop the pods")?;
    }
    Ok(())
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

/// The node agent's server, as this cluster's authority vouches for it.
fn kubelet_tls(authority: &Authority, node_name: &str, ips: &[IpAddr]) -> Result<Arc<rustls::ServerConfig>> {
    let user = agent::user(node_name);
    let leaf = authority.server(&agent::subject(&user), &[node_name.to_owned()], ips)?;
    authority.server_config(&leaf, agent::PROTOCOLS)
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
