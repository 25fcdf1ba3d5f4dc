//! The node of a simulation: the fields of a KubeletConfiguration that decide
//! about pods, and feature gates.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use lifecycle::Rules;
use objects::gates::Gates;
use serde_json::Value;

use super::input;

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const HONOURED: &str = "crashLoopBackOff.maxContainerRestartPeriod, featureGates";

/// LC-178.
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(300);
/// The back-off of G(ReduceDefaultCrashLoopBackOffDecay).
const REDUCED_INITIAL: Duration = Duration::from_secs(1);
const REDUCED_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct NodeConfig {
    max_restart_period: Option<Duration>,
    gates: BTreeMap<String, bool>,
}

pub(super) fn read(path: &Path) -> Result<NodeConfig> {
    let documents = input::documents(path)?;
    let named = || path.display().to_string();
    let [document] = documents.as_slice() else { bail!("{}: say one KubeletConfiguration", named()) };
    parse(document).with_context(named)
}

fn parse(document: &Value) -> Result<NodeConfig> {
    let Value::Object(fields) = document else { bail!("not a KubeletConfiguration") };
    let mut config = NodeConfig::default();
    let kind = (document["apiVersion"].as_str(), document["kind"].as_str());
    ensure!(kind == (Some(VERSION), Some("KubeletConfiguration")), "not a {VERSION} KubeletConfiguration");
    for (key, value) in fields {
        match key.as_str() {
            "apiVersion" | "kind" => {}
            "crashLoopBackOff" => config.max_restart_period = crash_loop(value)?,
            "featureGates" => {
                config.gates = serde_json::from_value(value.clone()).context("featureGates: not a map of booleans")?;
            }
            other => bail!("unknown field {other:?}; honoured here: {HONOURED}"),
        }
    }
    Ok(config)
}

fn crash_loop(value: &Value) -> Result<Option<Duration>> {
    let Value::Object(fields) = value else { bail!("crashLoopBackOff: not a mapping") };
    let mut period = None;
    for (key, value) in fields {
        match (key.as_str(), value.as_str()) {
            ("maxContainerRestartPeriod", Some(text)) => {
                let parsed: jiff::SignedDuration = text.parse().with_context(|| {
                    format!("crashLoopBackOff.maxContainerRestartPeriod: {text:?} is not a duration")
                })?;
                period = Some(Duration::try_from(parsed).unwrap_or_default());
            }
            ("maxContainerRestartPeriod", None) => bail!("crashLoopBackOff.maxContainerRestartPeriod: say 100s"),
            (other, _) => bail!("unknown field \"crashLoopBackOff.{other}\"; honoured here: {HONOURED}"),
        }
    }
    Ok(period)
}

impl NodeConfig {
    /// The command line's gates win over the file's.
    pub(super) fn rules(&self, flags: &str, upstream: Rules) -> Result<Rules> {
        let listed = self.gates.iter().map(|(name, is_on)| format!("{name}={is_on}"));
        let text = listed.chain([flags.to_owned()]).collect::<Vec<_>>().join(",");
        let gates = Gates::parse(&text).context("feature gates")?;
        let (backoff_initial, backoff_max) = self.back_off(&gates, &upstream)?;
        Ok(Rules {
            backoff_initial,
            backoff_max,
            container_restart_rules: gates.enabled("ContainerRestartRules"),
            restart_all_containers: gates.enabled("RestartAllContainersOnContainerExits"),
            container_stop_signals: gates.enabled("ContainerStopSignals"),
            change_status_on_agent_restart: gates.enabled("ChangeContainerStatusOnKubeletRestart"),
            ready_to_start_condition: gates.enabled("PodReadyToStartContainersCondition"),
            ..upstream
        })
    }

    /// LC-178 to LC-180.
    fn back_off(&self, gates: &Gates, upstream: &Rules) -> Result<(Duration, Duration)> {
        let (initial, max) = if gates.enabled("ReduceDefaultCrashLoopBackOffDecay") {
            (REDUCED_INITIAL, REDUCED_MAX)
        } else {
            (upstream.backoff_initial, upstream.backoff_max)
        };
        let Some(period) = self.max_restart_period else { return Ok((initial, max)) };
        let field = "crashLoopBackOff.maxContainerRestartPeriod";
        ensure!(
            gates.enabled("KubeletCrashLoopBackOffMax"),
            "{field}: may not be set when feature gate KubeletCrashLoopBackOffMax is off"
        );
        ensure!((PERIOD_MIN..=PERIOD_MAX).contains(&period), "{field}: must be between 1s and 300s");
        Ok((initial.min(period), period))
    }
}
