//! Who runs the containers of an instance: the embedded engine, or another
//! runtime behind its CRI socket.

use std::fs;
use std::str::FromStr;
use std::sync::Arc;

use ambient::{Clock, Ids, Panics};
use anyhow::{Context, Result, bail};
use cri::Runtime;
use criwire::Remote;
use engine::Engine;
use engine::images::{ProxyConfig, RegistryConfig};
use engine::network::{CniConfig, Entrance};
use serde::Deserialize;

use crate::cli::{NodeArgs, RegistryArgs};
use crate::instance::{Instance, write_private};

/// The usual size of an Ethernet frame; what pods' interfaces get.
const MTU: u32 = 1500;
/// Where `hosts.toml` files are looked for.
const REGISTRY_CONFIG: &str = "/etc/podium/certs.d";
const EMBEDDED: &str = "embedded";

/// What `--runtime` says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Choice {
    #[default]
    Embedded,
    /// `unix:///…`
    Socket(String),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            EMBEDDED => Ok(Self::Embedded),
            _ if text.starts_with("unix:///") => Ok(Self::Socket(text.to_owned())),
            _ => Err(format!("{text:?} is no runtime: say {EMBEDDED} or unix:///run/containerd/containerd.sock")),
        }
    }
}

impl TryFrom<String> for Choice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded => f.write_str(EMBEDDED),
            Self::Socket(endpoint) => f.write_str(endpoint),
        }
    }
}

/// How pods are connected, beside their addresses.
#[derive(Debug, Default)]
pub(crate) struct PodNetwork {
    pub(crate) cni: Option<CniConfig>,
    pub(crate) entrances: Vec<Entrance>,
}

/// The runtime of an instance, with whatever already runs in it.
pub(crate) enum Containers {
    Embedded(Arc<Engine>),
    Remote(Arc<Remote>),
}

impl Containers {
    /// `entrances`: what pods call that this process answers.
    pub(crate) async fn open(
        args: &NodeArgs,
        instance: &Instance,
        entrances: Vec<Entrance>,
        clock: &Clock,
        ids: &Ids,
    ) -> Result<Self> {
        let wanted = args.runtime();
        match remembered(instance)? {
            Some(choice) if choice != wanted => {
                bail!(
                    "--runtime {wanted}: the pods of this instance run in {choice}; stop them first with `podium down`"
                )
            }
            Some(_) => {}
            None => write_private(&instance.places.runtime(), wanted.to_string().as_bytes())?,
        }
        let network = PodNetwork { cni: args.cni.config(), entrances };
        Self::connect(&wanted, instance, registries(&args.registries, false), network, clock, ids).await
    }

    /// The one it was opened with before.
    pub(crate) async fn reopen(instance: &Instance, clock: &Clock, ids: &Ids) -> Result<Self> {
        let choice = remembered(instance)?.unwrap_or_default();
        Self::connect(&choice, instance, RegistryConfig::default(), PodNetwork::default(), clock, ids).await
    }

    async fn connect(
        choice: &Choice,
        instance: &Instance,
        registries: RegistryConfig,
        network: PodNetwork,
        clock: &Clock,
        ids: &Ids,
    ) -> Result<Self> {
        Ok(match choice {
            Choice::Embedded => Self::Embedded(open_engine(instance, registries, network, clock, ids).await?),
            Choice::Socket(endpoint) => {
                Self::Remote(Arc::new(Remote::connect(endpoint, &instance.identity.cgroup_root())?))
            }
        })
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        match self {
            Self::Embedded(engine) => engine.clone(),
            Self::Remote(remote) => remote.clone(),
        }
    }

    /// Of its tasks in this process.
    pub(crate) fn panics(&self) -> Panics {
        match self {
            Self::Embedded(engine) => engine.panics().clone(),
            Self::Remote(_) => Panics::default(),
        }
    }

    /// Ends all pods and leaves nothing of them on this machine.
    pub(crate) async fn destroy(&self, instance: &Instance) -> Result<()> {
        match self {
            Self::Embedded(engine) => engine.destroy().await?,
            Self::Remote(remote) => remote.remove_all().await?,
        }
        forget(instance)
    }
}

/// What is beside the runtime.
fn forget(instance: &Instance) -> Result<()> {
    // Memory volumes are mounts, and nobody uses them any more.
    kubelet::unmount_volumes(&instance.places.kubelet())?;
    match fs::remove_file(instance.places.runtime()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// The same for an instance that cannot be opened. Pods of another runtime are
/// out of reach then.
pub(crate) async fn clear_remains(instance: &Instance) -> Result<()> {
    match remembered(instance) {
        Ok(Some(Choice::Socket(endpoint))) => bail!("the pods run in {endpoint}, which must answer to stop them"),
        Ok(Some(Choice::Embedded) | None) => {}
        Err(error) => eprintln!("podium: {error:#}; taking the pods to be in the embedded runtime"),
    }
    let config = engine_config(instance, RegistryConfig::default(), PodNetwork::default())?;
    engine::clear_remains(&config).await?;
    forget(instance)
}

fn remembered(instance: &Instance) -> Result<Option<Choice>> {
    let path = instance.places.runtime();
    match fs::read_to_string(&path) {
        Ok(text) => {
            let choice = text.parse().map_err(anyhow::Error::msg);
            choice.map(Some).with_context(|| format!("{} is damaged", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The embedded runtime of an instance.
pub(crate) async fn open_engine(
    instance: &Instance,
    registries: RegistryConfig,
    network: PodNetwork,
    clock: &Clock,
    ids: &Ids,
) -> Result<Arc<Engine>> {
    let config = engine_config(instance, registries, network)?;
    Ok(Engine::open(config, clock.clone(), ids.clone()).await?)
}

fn engine_config(instance: &Instance, registries: RegistryConfig, network: PodNetwork) -> Result<engine::Config> {
    let cidr = instance.identity.pod_cidr()?;
    Ok(engine::Config {
        root: instance.places.engine(),
        run_dir: instance.places.run.clone(),
        instance: instance.identity.id().to_owned(),
        cgroup_root: instance.identity.cgroup_root(),
        pod_cidr: (cidr.address, cidr.prefix),
        bridge: instance.identity.bridge(),
        mtu: MTU,
        entrances: network.entrances,
        cni: network.cni,
        shim_exe: std::env::current_exe().context("cannot find this program's own file")?,
        registries,
        snapshots: Default::default(),
    })
}

pub(crate) fn registries(args: &RegistryArgs, plain_http: bool) -> RegistryConfig {
    let hosts_dir = args.registry_config.clone().unwrap_or_else(|| REGISTRY_CONFIG.into());
    let proxies = ProxyConfig::read(|name| std::env::var(name).ok());
    RegistryConfig { hosts_dir: Some(hosts_dir), plain_http, proxies }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_named_by_word_or_url() {
        assert_eq!("embedded".parse(), Ok(Choice::Embedded));
        let socket = "unix:///run/c.sock";
        assert_eq!(socket.parse::<Choice>().unwrap().to_string(), socket);
        for bad in ["docker", "/run/c.sock", "unix://c.sock", "tcp://127.0.0.1:1"] {
            assert!(bad.parse::<Choice>().is_err(), "{bad}");
        }
    }
}
