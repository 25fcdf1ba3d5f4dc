//! `--config FILE` and `--feature-gates`, for `podium up` and `podium
//! simulate` alike: read once, here, into plain settings.
//!
//! A file holds YAML documents: a `KubeletConfiguration` with upstream's field
//! names, a `PodiumConfiguration` with what flags can say, or both. A field we
//! would not act on is an error: who sets it should know.

mod cluster;
mod house;
mod node;
mod pulls;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use objects::gates::Gates;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::containers::Choice;
use crate::files;
pub(crate) use house::parse_thresholds;
pub(crate) use node::KubeletConfiguration;

const KUBELET: (&str, &str) = ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration");
const PODIUM: (&str, &str) = ("podium/v1alpha1", "PodiumConfiguration");

/// Gates that change something today; the others are known and wait for their
/// feature (docs/configuration.md).
const WITH_EFFECT: &[&str] = &[
    "ChangeContainerStatusOnKubeletRestart",
    "ContainerRestartRules",
    "ContainerStopSignals",
    "EnvFiles",
    "HostnameOverride",
    "ImageVolume",
    "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages",
    "NodeDeclaredFeatures",
    "PodLevelResources",
    "PodReadyToStartContainersCondition",
    "ReduceDefaultCrashLoopBackOffDecay",
    "RestartAllContainersOnContainerExits",
];

/// What file and flags say together.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) gates: Gates,
    pub(crate) kubelet: KubeletConfiguration,
    pub(crate) podium: PodiumConfiguration,
    /// `--node-labels`
    pub(crate) node_labels: BTreeMap<String, String>,
}

/// What `podium up` can be told; a flag wins over the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodiumConfiguration {
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) run_dir: Option<PathBuf>,
    pub(crate) bind: Option<SocketAddr>,
    pub(crate) kubelet_bind: Option<SocketAddr>,
    pub(crate) node_name: Option<String>,
    #[serde(rename = "nodeIP")]
    pub(crate) node_ip: Option<IpAddr>,
    pub(crate) host_port_min: Option<u16>,
    #[serde(rename = "podCIDR")]
    pub(crate) pod_cidr: Option<String>,
    pub(crate) registry_config: Option<PathBuf>,
    pub(crate) cni_conf_dir: Option<PathBuf>,
    pub(crate) cni_bin_dirs: Vec<PathBuf>,
    pub(crate) runtime: Option<Choice>,
    pub(crate) write_kubeconfig: Option<PathBuf>,
    pub(crate) audit_log_path: Option<String>,
    pub(crate) audit_policy_file: Option<PathBuf>,
    pub(crate) audit_log_maxage: Option<u64>,
    pub(crate) audit_log_maxsize: Option<u64>,
    pub(crate) audit_log_maxbackup: Option<usize>,
    pub(crate) encryption_provider_config: Option<PathBuf>,
    pub(crate) etcd_servers: Vec<String>,
    pub(crate) etcd_cafile: Option<PathBuf>,
    pub(crate) etcd_certfile: Option<PathBuf>,
    pub(crate) etcd_keyfile: Option<PathBuf>,
    pub(crate) quota_backend_bytes: Option<u64>,
    pub(crate) stop_pods: bool,
    pub(crate) log: Option<String>,
    node_monitor_grace_period: Option<String>,
    node_startup_grace_period: Option<String>,
    lost_node_fail_delay: Option<String>,
    #[serde(rename = "terminatedPodGCThreshold")]
    terminated_pod_gc_threshold: Option<i64>,
    feature_gates: BTreeMap<String, bool>,
}

const PODIUM_FIELDS: &str = "auditLogMaxage, auditLogMaxbackup, auditLogMaxsize, auditLogPath, auditPolicyFile, bind, cniBinDirs, cniConfDir, dataDir, encryptionProviderConfig, etcdCafile, etcdCertfile, etcdKeyfile, etcdServers, featureGates, hostPortMin, kubeletBind, log, lostNodeFailDelay, nodeIP, nodeMonitorGracePeriod, nodeName, nodeStartupGracePeriod, podCIDR, quotaBackendBytes, registryConfig, runDir, runtime, stopPods, terminatedPodGCThreshold, writeKubeconfig";

impl Settings {
    /// Gates of a flag win over those of a `PodiumConfiguration`, and these
    /// over those of a `KubeletConfiguration`.
    pub(crate) fn read(file: Option<&Path>, gate_flags: &str) -> Result<Self> {
        let mut settings = Self::default();
        if let Some(path) = file {
            let documents = files::documents(path)?;
            settings.take(documents).with_context(|| path.display().to_string())?;
        }
        let from_files = settings.kubelet.feature_gates.iter().chain(&settings.podium.feature_gates);
        let listed = from_files.map(|(name, is_on)| format!("{name}={is_on}"));
        let text = listed.chain([gate_flags.to_owned()]).collect::<Vec<_>>().join(",");
        settings.gates = Gates::parse(&text).context("feature gates")?;
        settings.check()?;
        Ok(settings)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.podium.nodes()?;
        self.kubelet.check(&self.gates)
    }

    fn take(&mut self, documents: Vec<Value>) -> Result<()> {
        ensure!(!documents.is_empty(), "there is no document in it");
        let mut seen = Vec::new();
        for document in documents {
            let Value::Object(mut fields) = document else { bail!("a document is not a mapping") };
            let mut word = |key: &str| match fields.shift_remove(key) {
                Some(Value::String(word)) => word,
                _ => String::new(),
            };
            let (version, kind) = (word("apiVersion"), word("kind"));
            ensure!(!seen.contains(&kind), "there are two documents of kind {kind}");
            match (version.as_str(), kind.as_str()) {
                KUBELET => self.kubelet = node::parse(fields).with_context(|| kind.clone())?,
                PODIUM => self.podium = parse(fields, PODIUM_FIELDS).with_context(|| kind.clone())?,
                _ => bail!(
                    "apiVersion {version:?}, kind {kind:?} is no configuration; possible: {} {}, {} {}",
                    KUBELET.0,
                    KUBELET.1,
                    PODIUM.0,
                    PODIUM.1
                ),
            }
            seen.push(kind);
        }
        Ok(())
    }

    /// For who has switched something that does nothing here.
    pub(crate) fn warn(&self) {
        for gate in self.gates.changed().filter(|gate| !WITH_EFFECT.contains(gate)) {
            tracing::warn!("feature gate {gate} has no effect in this version of Podium");
        }
    }
}

/// Names the first field that is not `possible`, or has a wrong type.
fn parse<T: DeserializeOwned>(fields: Map<String, Value>, possible: &str) -> Result<T> {
    let mut unknown = None;
    let mut note = |path: serde_ignored::Path<'_>| {
        unknown.get_or_insert(path.to_string());
    };
    let fields = Value::Object(fields);
    let parsed = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(&fields, &mut note))?;
    match unknown {
        // Serde shows wrappers of fields as question marks.
        Some(field) => bail!("unknown field {:?}; possible: {possible}", field.replace(".?", "")),
        None => Ok(parsed),
    }
}

#[cfg(test)]
mod tests;
