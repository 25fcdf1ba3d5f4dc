//! How pods of this instance are connected: by our own bridge, or by CNI plugins
//! where they are given. What was connected one way is taken back that way,
//! whatever is chosen by then.

use std::net::IpAddr;
use std::path::Path;

use cri::{HostPort, SandboxConfig, SandboxId};

use crate::config::Config;
use crate::network::{Cni, Loopback, Network, NetworkConfig, NetworkError, Published};

pub(crate) struct PodNetwork {
    bridge: Network,
    cni: Cni,
}

impl PodNetwork {
    pub(crate) fn open(config: &Config) -> Result<PodNetwork, NetworkError> {
        let state_dir = config.root.join("network");
        let cni = Cni::open(config.cni.clone(), state_dir.join("cni"))?;
        let (bridge, pod_cidr, mtu) = (config.bridge.clone(), config.pod_cidr, config.mtu);
        let entrances = config.entrances.clone();
        let bridge = Network::open(NetworkConfig { state_dir, bridge, pod_cidr, mtu, entrances })?;
        Ok(PodNetwork { bridge, cni })
    }

    pub(crate) async fn attach(
        &self,
        id: &SandboxId,
        config: &SandboxConfig,
        netns: &Path,
    ) -> Result<Vec<IpAddr>, NetworkError> {
        match self.cni.config() {
            Some(cni) => self.cni.attach(cni, id, &config.meta, &config.host_ports, netns).await,
            None => Ok(vec![IpAddr::V4(self.bridge.attach(id, netns).await?.address)]),
        }
    }

    pub(crate) async fn detach(&self, id: &SandboxId) -> Result<(), NetworkError> {
        self.cni.detach(id).await?;
        self.bridge.detach(id).await
    }

    /// Whoever connects pods: what the node itself uses leads to none.
    pub(crate) async fn check_ports(&self, ports: &[HostPort]) -> Result<(), NetworkError> {
        match self.cni.config() {
            // What plugins write leads the loopback to the pod as well, and nobody holds the ports.
            Some(_) => self.bridge.check_ports(ports, Loopback::Taken).await,
            None => self.bridge.reserve_ports(ports).await,
        }
    }

    pub(crate) async fn publish(&self, ports: impl FnOnce() -> Vec<Published>) -> Result<(), NetworkError> {
        match self.cni.config() {
            // Plugins do it when they attach.
            Some(_) => Ok(()),
            None => self.bridge.publish(ports).await,
        }
    }

    pub(crate) async fn reconcile(&self, known: &[SandboxId]) -> Result<(), NetworkError> {
        self.cni.reconcile(known).await?;
        self.bridge.reconcile(known).await
    }

    pub(crate) async fn destroy(&self) -> Result<(), NetworkError> {
        self.cni.reconcile(&[]).await?;
        self.bridge.destroy().await
    }
}
