//! What a `PodiumConfiguration` says about the cluster's own work, in the words
//! of upstream's controller manager.

use std::time::Duration;

use anyhow::{Context as _, Result};
use reconciler::{NodeSettings, TERMINATED_MAX};

use super::PodiumConfiguration;
use super::node::parse_duration;

impl PodiumConfiguration {
    /// When a node counts as lost.
    pub(crate) fn nodes(&self) -> Result<NodeSettings> {
        let upstream = NodeSettings::upstream();
        let of = |field: &str, text: &Option<String>, default: Duration| match text {
            None => Ok(default),
            Some(text) => {
                parse_duration(text).with_context(|| format!("{field}: {text:?} is not a duration; say 100s or 1m30s"))
            }
        };
        // TC-194: negative switches it off.
        let lost_pod_delay = match self.lost_node_fail_delay.as_deref() {
            Some(text) if text.starts_with('-') => None,
            _ => {
                let default = upstream.lost_pod_delay.unwrap_or_default();
                Some(of("lostNodeFailDelay", &self.lost_node_fail_delay, default)?)
            }
        };
        Ok(NodeSettings {
            grace: of("nodeMonitorGracePeriod", &self.node_monitor_grace_period, upstream.grace)?,
            startup_grace: of("nodeStartupGracePeriod", &self.node_startup_grace_period, upstream.startup_grace)?,
            lost_pod_delay,
            ..upstream
        })
    }

    /// TC-153: `None` keeps all finished pods.
    pub(crate) fn terminated_pods_max(&self) -> Option<usize> {
        match self.terminated_pod_gc_threshold {
            None => Some(TERMINATED_MAX),
            Some(threshold) => usize::try_from(threshold).ok().filter(|threshold| *threshold > 0),
        }
    }
}
