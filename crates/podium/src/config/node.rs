//! The fields of upstream's `KubeletConfiguration` that mean something here.
//!
//! A field of v1.35 that we do not honour is refused by its name, and so is
//! one that does not exist: neither may be taken for granted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cri::LogLimits;
use kubelet::{Capacity, Periods, StaticUrl};
use lifecycle::{Machine, Rules};
use objects::api::core::v1::Taint;
use objects::gates::Gates;
use objects::quantity::Quantity;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::house::PriorityPeriod;

/// LC-178.
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(300);
/// As upstream.
const LOG_CHECK_MIN: Duration = Duration::from_secs(3);
const OOM_SCORE: i32 = -999;
/// Upstream has none; so many are what hardening guides ask for (0039).
const POD_PIDS_LIMIT: i64 = 4096;
/// The back-off of G(ReduceDefaultCrashLoopBackOffDecay).
const REDUCED_INITIAL: Duration = Duration::from_secs(1);
const REDUCED_MAX: Duration = Duration::from_secs(60);

const HONOURED: &str = "allowedUnsafeSysctls, containerLogMaxFiles, containerLogMaxSize, containerLogMaxWorkers, \
    containerLogMonitorInterval, crashLoopBackOff.maxContainerRestartPeriod, evictionHard, \
    evictionMaxPodGracePeriod, evictionMinimumReclaim, evictionPressureTransitionPeriod, evictionSoft, \
    evictionSoftGracePeriod, featureGates, fileCheckFrequency, httpCheckFrequency, imageGCHighThresholdPercent, \
    imageGCLowThresholdPercent, imageMaximumGCAge, imageMinimumGCAge, imagePullCredentialsVerificationPolicy, kubeReserved, maxParallelImagePulls, maxPods, \
    mergeDefaultEvictionSettings, nodeLeaseDurationSeconds, nodeStatusMaxImages, nodeStatusReportFrequency, \
    nodeStatusUpdateFrequency, oomScoreAdj, podPidsLimit, preloadedImagesVerificationAllowlist, registerWithTaints, registryBurst, registryPullQPS, serializeImagePulls, \
    shutdownGracePeriod, shutdownGracePeriodByPodPriority, \
    shutdownGracePeriodCriticalPods, staticPodPath, staticPodURL, staticPodURLHeader, systemReserved";

/// What else a v1.35 KubeletConfiguration can say.
const NOT_HONOURED: &str = "address authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS \
    clusterDomain configMapAndSecretChangeDetectionStrategy containerRuntimeEndpoint contentType cpuCFSQuota \
    cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod enableContentionProfiling \
    enableControllerAttachDetach enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler \
    enableServer enableSystemLogHandler enableSystemLogQuery enforceNodeAllocatable eventBurst eventRecordQPS \
    failCgroupV1 failSwapOn hairpinMode healthzBindAddress healthzPort \
    imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit \
    kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation \
    logging makeIPTablesUtilChains maxOpenFiles memoryManagerPolicy memorySwap \
    memoryThrottlingFactor podCIDR podLogsDir podsPerCore port \
    protectKernelDefaults providerID qosReserved readOnlyPort registerNode \
    reservedMemory reservedSystemCPUs resolvConf rotateCertificates runOnce \
    runtimeRequestTimeout seccompDefault serverTLSBootstrap showHiddenMetricsForVersion \
    singleProcessOOMKill streamingConnectionIdleTimeout syncFrequency systemCgroups \
    systemReservedCgroup tlsCertFile tlsCipherSuites tlsMinVersion tlsPrivateKeyFile topologyManagerPolicy \
    topologyManagerPolicyOptions topologyManagerScope tracing userNamespaces volumePluginDir volumeStatsAggPeriod";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct KubeletConfiguration {
    container_log_max_files: Option<u32>,
    #[serde(deserialize_with = "quantity")]
    container_log_max_size: Option<Quantity>,
    container_log_max_workers: Option<u32>,
    #[serde(deserialize_with = "duration")]
    container_log_monitor_interval: Option<Duration>,
    pub(super) allowed_unsafe_sysctls: Vec<String>,
    crash_loop_back_off: CrashLoopBackOff,
    pub(crate) eviction_hard: BTreeMap<String, String>,
    pub(super) eviction_max_pod_grace_period: u32,
    pub(super) eviction_minimum_reclaim: BTreeMap<String, String>,
    #[serde(deserialize_with = "duration")]
    pub(super) eviction_pressure_transition_period: Option<Duration>,
    pub(super) eviction_soft: BTreeMap<String, String>,
    pub(super) eviction_soft_grace_period: BTreeMap<String, String>,
    pub(super) feature_gates: BTreeMap<String, bool>,
    #[serde(deserialize_with = "duration")]
    file_check_frequency: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    http_check_frequency: Option<Duration>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub(super) image_gc_high: Option<u8>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub(super) image_gc_low: Option<u8>,
    #[serde(rename = "imageMaximumGCAge", deserialize_with = "duration")]
    pub(super) image_maximum_age: Option<Duration>,
    #[serde(rename = "imageMinimumGCAge", deserialize_with = "duration")]
    pub(super) image_minimum_age: Option<Duration>,
    pub(super) image_pull_credentials_verification_policy: Option<String>,
    pub(super) kube_reserved: BTreeMap<String, String>,
    pub(super) max_parallel_image_pulls: Option<i32>,
    pub(crate) max_pods: Option<u32>,
    pub(super) merge_default_eviction_settings: bool,
    node_lease_duration_seconds: Option<u32>,
    #[serde(deserialize_with = "duration")]
    node_status_report_frequency: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    node_status_update_frequency: Option<Duration>,
    pub(crate) node_status_max_images: Option<i32>,
    oom_score_adj: Option<i32>,
    pod_pids_limit: Option<i64>,
    pub(super) preloaded_images_verification_allowlist: Vec<String>,
    pub(crate) register_with_taints: Vec<Taint>,
    pub(super) registry_burst: Option<i32>,
    #[serde(rename = "registryPullQPS")]
    pub(super) registry_pull_qps: Option<i32>,
    pub(super) serialize_image_pulls: Option<bool>,
    #[serde(deserialize_with = "duration")]
    pub(super) shutdown_grace_period: Option<Duration>,
    pub(super) shutdown_grace_period_by_pod_priority: Vec<PriorityPeriod>,
    #[serde(deserialize_with = "duration")]
    pub(super) shutdown_grace_period_critical_pods: Option<Duration>,
    pub(crate) static_pod_path: Option<PathBuf>,
    #[serde(rename = "staticPodURL")]
    static_pod_url: String,
    #[serde(rename = "staticPodURLHeader")]
    static_pod_url_header: BTreeMap<String, Vec<String>>,
    pub(super) system_reserved: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CrashLoopBackOff {
    #[serde(deserialize_with = "duration")]
    max_container_restart_period: Option<Duration>,
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let parsed = parse_duration(&text);
    let wrong = || serde::de::Error::custom(format!("{text:?} is not a duration; say 100s or 1m30s"));
    parsed.map(Some).ok_or_else(wrong)
}

pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    objects::duration::parse_positive(text).ok()
}

fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let wrong = |_| serde::de::Error::custom(format!("{text:?} is not a quantity; say 10Mi"));
    Quantity::parse(&text).map(Some).map_err(wrong)
}

pub(super) fn parse(fields: Map<String, Value>) -> Result<KubeletConfiguration> {
    if let Some(field) = fields.keys().find(|field| NOT_HONOURED.split(' ').any(|known| known == *field)) {
        bail!("field {field:?} is not honoured by this version of Podium, remove it; honoured: {HONOURED}");
    }
    super::parse(fields, HONOURED)
}

impl KubeletConfiguration {
    /// What upstream refuses, too.
    pub(super) fn check(&self, gates: &Gates) -> Result<()> {
        let field = "crashLoopBackOff.maxContainerRestartPeriod";
        if let Some(period) = self.crash_loop_back_off.max_container_restart_period {
            ensure!(
                gates.enabled("KubeletCrashLoopBackOffMax"),
                "{field}: may not be set when feature gate KubeletCrashLoopBackOffMax is off"
            );
            ensure!((PERIOD_MIN..=PERIOD_MAX).contains(&period), "{field}: must be between 1s and 300s");
        }
        ensure!((-1000..=1000).contains(&self.oom_score_adj()), "oomScoreAdj: must be between -1000 and 1000");
        self.static_url()?;
        self.check_logs()?;
        self.check_pulls()?;
        self.settings(gates)?;
        self.allocatable(&Capacity::default())?;
        let images = self.node_status_max_images;
        ensure!(images.is_none_or(|max| max >= -1), "nodeStatusMaxImages: must be -1 or greater");
        ensure!(self.node_lease_duration_seconds != Some(0), "nodeLeaseDurationSeconds: must be greater than 0");
        for (field, period) in [
            ("nodeStatusUpdateFrequency", self.node_status_update_frequency),
            ("nodeStatusReportFrequency", self.node_status_report_frequency),
        ] {
            ensure!(period != Some(Duration::ZERO), "{field}: must be greater than 0");
        }
        Ok(())
    }

    /// LC-333.
    pub(crate) fn oom_score_adj(&self) -> i32 {
        self.oom_score_adj.unwrap_or(OOM_SCORE)
    }

    /// LC-353.
    pub(crate) fn static_url(&self) -> Result<Option<StaticUrl>> {
        if self.static_pod_url.is_empty() {
            return Ok(None);
        }
        let named = |(name, values): (&String, &Vec<String>)| {
            values.iter().map(|value| (name.clone(), value.clone())).collect::<Vec<_>>()
        };
        let headers = self.static_pod_url_header.iter().flat_map(named).collect();
        match StaticUrl::new(self.static_pod_url.clone(), headers) {
            Ok(url) => Ok(Some(url)),
            Err(problem) => bail!("staticPodURL: {problem}"),
        }
    }

    fn check_logs(&self) -> Result<()> {
        let files = self.container_log_max_files;
        ensure!(files.is_none_or(|files| files > 1), "containerLogMaxFiles: must be greater than 1");
        let size = self.container_log_max_size;
        ensure!(size.is_none_or(|size| !size.is_zero()), "containerLogMaxSize: must not be 0");
        ensure!(self.container_log_max_workers != Some(0), "containerLogMaxWorkers: must be greater than 0");
        let interval = self.container_log_monitor_interval;
        ensure!(
            interval.is_none_or(|interval| interval >= LOG_CHECK_MIN),
            "containerLogMonitorInterval: must be at least 3s"
        );
        Ok(())
    }

    /// A negative size: logs have no limit, as upstream.
    pub(crate) fn log_limits(&self) -> LogLimits {
        let default = LogLimits::default();
        let file_bytes_max = match self.container_log_max_size {
            Some(size) => u64::try_from(size.value()).unwrap_or(u64::MAX),
            None => default.file_bytes_max,
        };
        LogLimits { file_bytes_max, files_max: self.container_log_max_files.unwrap_or(default.files_max) }
    }

    pub(crate) fn log_workers(&self) -> usize {
        self.container_log_max_workers.map_or(1, |workers| workers as usize)
    }

    /// How the node decides about pods.
    pub(crate) fn rules(&self, gates: &Gates, upstream: Rules) -> Rules {
        let (backoff_initial, backoff_max) = self.back_off(gates, &upstream);
        // LC-342.
        let pod_pids_limit = self.pod_pids_limit.unwrap_or(POD_PIDS_LIMIT);
        Rules {
            backoff_initial,
            backoff_max,
            machine: Machine { pod_pids_limit, ..upstream.machine },
            container_restart_rules: gates.enabled("ContainerRestartRules"),
            restart_all_containers: gates.enabled("RestartAllContainersOnContainerExits"),
            container_stop_signals: gates.enabled("ContainerStopSignals"),
            change_status_on_agent_restart: gates.enabled("ChangeContainerStatusOnKubeletRestart"),
            ready_to_start_condition: gates.enabled("PodReadyToStartContainersCondition"),
            ..upstream
        }
    }

    /// LC-178, LC-179, LC-180.
    fn back_off(&self, gates: &Gates, upstream: &Rules) -> (Duration, Duration) {
        let (initial, max) = if gates.enabled("ReduceDefaultCrashLoopBackOffDecay") {
            (REDUCED_INITIAL, REDUCED_MAX)
        } else {
            (upstream.backoff_initial, upstream.backoff_max)
        };
        let max = self.crash_loop_back_off.max_container_restart_period.unwrap_or(max);
        (initial.min(max), max)
    }

    /// TC §14.2: a lease is renewed four times in its life; who sets how often
    /// the status is computed means to have it reported as often.
    pub(crate) fn periods(&self) -> Periods {
        let default = Periods::default();
        let lease_duration =
            self.node_lease_duration_seconds.map_or(default.lease_duration, |s| Duration::from_secs(s.into()));
        let update = self.node_status_update_frequency;
        Periods {
            lease_duration,
            lease_renew: lease_duration / 4,
            node_status: update.unwrap_or(default.node_status),
            node_report: self.node_status_report_frequency.or(update).unwrap_or(default.node_report),
            log_check: self.container_log_monitor_interval.unwrap_or(default.log_check),
            file_check: self.file_check_frequency.filter(|it| !it.is_zero()).unwrap_or(default.file_check),
            http_check: self.http_check_frequency.filter(|it| !it.is_zero()).unwrap_or(default.http_check),
            ..default
        }
    }
}
