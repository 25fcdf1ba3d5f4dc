//! What an agent is told about itself and its node. Plain data: who composes
//! the process reads flags, files and the machine.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use cri::{DnsConfig, LogLimits};
use lifecycle::Rules;
use lifecycle::node::Settings;
use objects::api::core::v1::Taint;
use objects::gates::Gates;

use crate::outbound::Url;

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub node_name: String,
    /// What pods are told of their node; at most one per family, the primary first.
    pub host_ips: Vec<IpAddr>,
    /// Where API servers find the agent.
    pub internal_ips: Vec<IpAddr>,
    /// Where the kubelet's HTTPS server listens, as the Node object says.
    pub port: u16,
    /// Pod directories live below: `<root>/pods/<uid>/…`.
    pub root: PathBuf,
    /// Pod log directories live below: `<log root>/<ns>_<name>_<uid>/…`.
    pub log_root: PathBuf,
    /// Added to the Node object besides the standard labels.
    pub labels: BTreeMap<String, String>,
    /// Given to a Node that is registered anew.
    pub taints: Vec<Taint>,
    pub capacity: Capacity,
    /// What is left for pods.
    pub allocatable: Capacity,
    pub machine: Machine,
    /// Shown as `kubeletVersion`.
    pub version: String,
    /// What pods get in their `/etc/resolv.conf`.
    pub dns: DnsConfig,
    pub periods: Periods,
    /// How long the logs of containers may become.
    pub log_limits: LogLimits,
    /// So many logs are looked after at once.
    pub log_workers: usize,
    /// What the node's configuration and feature gates change in decisions.
    /// Addresses and size of the machine are taken from the fields above.
    pub rules: Rules,
    /// The same for decisions about all pods.
    pub settings: Settings,
    /// Where manifests of static pods are: a directory or a file.
    pub static_pods: Option<PathBuf>,
    /// Who else is asked for such.
    pub static_url: Option<StaticUrl>,
    /// By which static pods are checked, as the API server checks its own.
    pub gates: Gates,
    /// Whether pods of another cluster, or of another life of this one, may be
    /// removed.
    pub remove_unknown_pods: bool,
    /// How many images the Node object lists; `None`: all.
    pub status_images_max: Option<usize>,
    pub pulls: PullLimits,
    pub image_trust: ImageTrust,
}

/// A page with manifests of static pods (LC-353).
#[derive(Clone, PartialEq, Eq)]
pub struct StaticUrl {
    pub(crate) url: String,
    /// They may hold secrets.
    pub(crate) headers: Vec<(String, String)>,
}

impl StaticUrl {
    pub fn new(url: String, headers: Vec<(String, String)>) -> Result<Self, String> {
        let source = Self { url, headers };
        source.parsed().map(|_| source)
    }

    pub(crate) fn parsed(&self) -> Result<Url, String> {
        Url::parse(&self.url)
    }
}

impl std::fmt::Debug for StaticUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticUrl").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Which images that are here every pod may use, although it never pulled
/// them (LC-312). Those it has credentials for it may always use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageTrust {
    /// `NeverVerify`
    Everything,
    /// `NeverVerifyPreloadedImages`: those nobody pulled through this agent.
    Preloaded,
    /// `NeverVerifyAllowlistedImages`: of those the ones of these
    /// repositories; `registry.example/team/*` is all below it.
    Listed(Vec<String>),
    /// `AlwaysVerify`
    Nothing,
}

impl ImageTrust {
    /// Is it asked who wants an image of this repository?
    pub(crate) fn is_checked(&self, repository: &str, was_pulled_here: bool) -> bool {
        let covers = |listed: &String| match listed.strip_suffix('*') {
            Some(above) => above.ends_with('/') && repository.starts_with(above),
            None => repository == listed,
        };
        match self {
            ImageTrust::Everything => false,
            ImageTrust::Preloaded => was_pulled_here,
            ImageTrust::Listed(list) => was_pulled_here || !list.iter().any(covers),
            ImageTrust::Nothing => true,
        }
    }
}

/// How many images are pulled (LC-313).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullLimits {
    /// At the same time; `None`: as many as are wanted.
    pub at_once: Option<usize>,
    /// How many may begin each second; 0: as many as are wanted.
    pub per_second: u32,
    /// How many may begin at once after a quiet time.
    pub burst: u32,
}

impl Default for PullLimits {
    fn default() -> Self {
        Self { at_once: Some(1), per_second: 5, burst: 10 }
    }
}

/// What the node has, or gives to pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capacity {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub ephemeral_storage_bytes: u64,
    pub pods: u32,
}

/// What `status.nodeInfo` says of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// As Go spells it: `amd64`, `arm64`.
    pub architecture: String,
}

/// Every period users can observe (TC §14.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Periods {
    pub lease_duration: Duration,
    pub lease_renew: Duration,
    /// Node status is computed this often, and written when it changed …
    pub node_status: Duration,
    /// … or this long after it was last written.
    pub node_report: Duration,
    /// A status the API holds differently is written again after this long.
    pub status_reconcile: Duration,
    /// The logs of running containers are looked after this often.
    pub log_check: Duration,
    /// How often manifests of static pods are looked at, besides when they change.
    pub file_check: Duration,
    /// How often a URL is asked for such.
    pub http_check: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(40),
            lease_renew: Duration::from_secs(10),
            node_status: Duration::from_secs(10),
            node_report: Duration::from_secs(300),
            status_reconcile: Duration::from_secs(10),
            file_check: Duration::from_secs(20),
            http_check: Duration::from_secs(20),
            log_check: Duration::from_secs(10),
        }
    }
}

impl Config {
    pub(crate) fn pods_dir(&self) -> PathBuf {
        self.root.join("pods")
    }

    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods_dir().join(uid)
    }

    /// LC-088.
    pub(crate) fn pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.log_root.join(format!("{namespace}_{name}_{uid}"))
    }
}
