//! How pods of this instance are connected: our own bridge, or CNI plugins.

use std::net::IpAddr;
use std::path::Path;

use cri::{SandboxConfig, SandboxId};

use crate::config::Config;
use crate::network::{Cni, Network, NetworkConfig, NetworkError, Published};

pub(crate) enum PodNetwork {
    Bridge(Box<Network>),
    Cni(Cni),
}

impl PodNetwork {
    pub(crate) fn open(config: &Config) -> Result<PodNetwork, NetworkError> {
        let state_dir = config.root.join("network");
        if let Some(cni) = &config.cni {
            return Cni::open(cni.clone(), state_dir.join("cni")).map(PodNetwork::Cni);
        }
        let bridge =
            NetworkConfig { state_dir, bridge: config.bridge.clone(), pod_cidr: config.pod_cidr, mtu: config.mtu };
        Ok(PodNetwork::Bridge(Box::new(Network::open(bridge)?)))
    }

    pub(crate) async fn attach(
        &self,
        id: &SandboxId,
        config: &SandboxConfig,
        netns: &Path,
    ) -> Result<Vec<IpAddr>, NetworkError> {
        match self {
            PodNetwork::Bridge(bridge) => Ok(vec![IpAddr::V4(bridge.attach(id, netns).await?.address)]),
            PodNetwork::Cni(cni) => cni.attach(id, &config.meta, &config.host_ports, netns).await,
        }
    }

    pub(crate) async fn detach(&self, id: &SandboxId) -> Result<(), NetworkError> {
        match self {
            PodNetwork::Bridge(bridge) => bridge.detach(id).await,
            PodNetwork::Cni(cni) => cni.detach(id).await,
        }
    }

    /// Plugins publish ports when they attach.
    pub(crate) async fn publish(&self, ports: impl FnOnce() -> Vec<Published>) -> Result<(), NetworkError> {
        match self {
            PodNetwork::Bridge(bridge) => bridge.publish(ports).await,
            PodNetwork::Cni(_) => Ok(()),
        }
    }

    pub(crate) async fn reconcile(&self, known: &[SandboxId]) -> Result<(), NetworkError> {
        match self {
            PodNetwork::Bridge(bridge) => bridge.reconcile(known).await,
            PodNetwork::Cni(cni) => cni.reconcile(known).await,
        }
    }

    pub(crate) async fn destroy(&self) -> Result<(), NetworkError> {
        match self {
            PodNetwork::Bridge(bridge) => bridge.destroy().await,
            PodNetwork::Cni(cni) => cni.reconcile(&[]).await,
        }
    }
}
