//! What a `KubeletConfiguration` says about the node as a whole: when it is
//! short of something, what it keeps for itself, when images go, and how it
//! shuts down (TC §14.2).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kubelet::Capacity;
use lifecycle::node::{Amount, Settings, ShutdownGroup, Signal, Threshold, hard_thresholds};
use objects::Quantity;
use objects::gates::Gates;
use serde::Deserialize;

use super::node::KubeletConfiguration;

/// Upstream's `nodeStatusMaxImages`.
const STATUS_IMAGES_MAX: i32 = 50;

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PriorityPeriod {
    priority: i32,
    shutdown_grace_period_seconds: u32,
}

/// `memory.available<100Mi,nodefs.available<10%`, as upstream's flag.
pub(crate) fn parse_thresholds(text: &str) -> Result<BTreeMap<String, String>> {
    let parse = |part: &str| match part.split_once('<') {
        Some((signal, value)) => Ok((signal.trim().to_owned(), value.trim().to_owned())),
        None => bail!("{part:?} is not a threshold; say memory.available<100Mi"),
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(parse).collect()
}

impl KubeletConfiguration {
    /// How the node decides about all its pods.
    pub(crate) fn settings(&self, gates: &Gates) -> Result<Settings> {
        let upstream = Settings::upstream();
        let percent = |field: &str, set: Option<u8>, default: u8| {
            let percent = set.unwrap_or(default);
            ensure!(percent <= 100, "{field}: must be between 0 and 100");
            Ok(percent)
        };
        let high = percent("imageGCHighThresholdPercent", self.image_gc_high, upstream.image_high_percent)?;
        let low = percent("imageGCLowThresholdPercent", self.image_gc_low, upstream.image_low_percent)?;
        ensure!(low < high, "imageGCLowThresholdPercent: must be below imageGCHighThresholdPercent");
        let min_age = self.image_minimum_age.unwrap_or(upstream.image_min_age);
        let max_age = self.image_maximum_age.filter(|age| !age.is_zero());
        ensure!(max_age.is_none_or(|age| age > min_age), "imageMaximumGCAge: must be greater than imageMinimumGCAge");
        Ok(Settings {
            thresholds: self.thresholds()?,
            pressure_transition: self.eviction_pressure_transition_period.unwrap_or(upstream.pressure_transition),
            eviction_grace_max: Duration::from_secs(self.eviction_max_pod_grace_period.into()),
            shutdown_groups: self.shutdown_groups()?,
            allowed_unsafe_sysctls: self.allowed_unsafe_sysctls.clone(),
            image_high_percent: high,
            image_low_percent: low,
            image_min_age: min_age,
            image_max_age: max_age,
            pod_level_resources: gates.enabled("PodLevelResources"),
            ..upstream
        })
    }

    /// TC-231, TC-232.
    fn thresholds(&self) -> Result<Vec<Threshold>> {
        let hard = amounts("evictionHard", &self.eviction_hard)?;
        let mut all = hard_thresholds(&hard, self.merge_default_eviction_settings).map_err(anyhow::Error::msg)?;
        let graces = &self.eviction_soft_grace_period;
        for (signal, value) in amounts("evictionSoft", &self.eviction_soft)? {
            let text = graces.get(&signal.to_string());
            let text = text.with_context(|| format!("evictionSoftGracePeriod: {signal} needs one, it is soft"))?;
            let grace = super::node::parse_duration(text);
            let grace =
                grace.with_context(|| format!("evictionSoftGracePeriod: {signal}: {text:?} is not a duration"))?;
            all.push(Threshold { grace: Some(grace), ..Threshold::hard(signal, value) });
        }
        for (signal, reclaim) in amounts("evictionMinimumReclaim", &self.eviction_minimum_reclaim)? {
            all.iter_mut().filter(|it| it.signal == signal).for_each(|it| it.reclaim = reclaim);
        }
        all.retain(|it| !is_off(it.value));
        Ok(all)
    }

    /// TC-248, TC-249.
    fn shutdown_groups(&self) -> Result<Vec<ShutdownGroup>> {
        let (total, critical) = (self.shutdown_grace_period, self.shutdown_grace_period_critical_pods);
        let (total, critical) = (total.unwrap_or_default(), critical.unwrap_or_default());
        let by_priority = &self.shutdown_grace_period_by_pod_priority;
        ensure!(
            by_priority.is_empty() || (total.is_zero() && critical.is_zero()),
            "shutdownGracePeriodByPodPriority: cannot be set together with shutdownGracePeriod or \
             shutdownGracePeriodCriticalPods"
        );
        ensure!(
            critical <= total,
            "shutdownGracePeriodCriticalPods: must not be longer than shutdownGracePeriod, of which it is a part"
        );
        if by_priority.is_empty() {
            return Ok(ShutdownGroup::pair(total, critical));
        }
        let group = |it: &PriorityPeriod| ShutdownGroup {
            priority: it.priority,
            period: Duration::from_secs(it.shutdown_grace_period_seconds.into()),
        };
        Ok(by_priority.iter().map(group).collect())
    }

    /// `None`: all of them.
    pub(crate) fn images_in_status(&self) -> Option<usize> {
        usize::try_from(self.node_status_max_images.unwrap_or(STATUS_IMAGES_MAX)).ok()
    }

    /// What is left for pods: capacity without what the system and the agent
    /// keep, and without what hard thresholds would evict for.
    pub(crate) fn allocatable(&self, capacity: &Capacity) -> Result<Capacity> {
        let kept = |resource: &str| -> Result<Quantity> {
            let mut sum = Quantity::ZERO;
            for (field, list) in [("kubeReserved", &self.kube_reserved), ("systemReserved", &self.system_reserved)] {
                if let Some(text) = list.get(resource) {
                    let amount = Quantity::parse(text).ok().filter(|amount| !amount.is_negative());
                    sum = sum.plus(amount.with_context(|| format!("{field}[{resource}]: {text:?} is not an amount"))?);
                }
            }
            Ok(sum)
        };
        let known = ["cpu", "memory", "ephemeral-storage", "pid"];
        for resource in self.kube_reserved.keys().chain(self.system_reserved.keys()) {
            ensure!(
                known.contains(&resource.as_str()),
                "{resource:?} cannot be reserved; possible: {}",
                known.join(", ")
            );
        }
        let unsigned = |amount: i64| u64::try_from(amount).unwrap_or(0);
        let thresholds = self.thresholds()?;
        let evicted = |signal: Signal, capacity: u64| {
            let hard = thresholds.iter().find(|it| it.signal == signal && it.grace.is_none());
            hard.map_or(0, |it| unsigned(it.value.of(i64::try_from(capacity).unwrap_or(i64::MAX))))
        };
        let (memory, disk) = (capacity.memory_bytes, capacity.ephemeral_storage_bytes);
        let memory_kept = unsigned(kept("memory")?.value()) + evicted(Signal::MemoryAvailable, memory);
        let disk_kept = unsigned(kept("ephemeral-storage")?.value()) + evicted(Signal::NodefsAvailable, disk);
        Ok(Capacity {
            cpu_milli: capacity.cpu_milli.saturating_sub(unsigned(kept("cpu")?.milli())),
            memory_bytes: memory.saturating_sub(memory_kept),
            ephemeral_storage_bytes: disk.saturating_sub(disk_kept),
            pods: capacity.pods,
        })
    }
}

fn amounts(field: &str, list: &BTreeMap<String, String>) -> Result<Vec<(Signal, Amount)>> {
    let parse = |(name, text): (&String, &String)| {
        let signal: Signal = name.parse().map_err(|error| anyhow::anyhow!("{field}: {error}"))?;
        let amount =
            parse_amount(text).with_context(|| format!("{field}: {name}: {text:?} is no amount; say 100Mi or 10%"));
        Ok((signal, amount?))
    };
    list.iter().map(parse).collect()
}

fn parse_amount(text: &str) -> Option<Amount> {
    match text.strip_suffix('%') {
        Some(number) => number.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).map(Amount::Percent),
        None => Quantity::parse(text).ok().filter(|amount| !amount.is_negative()).map(Amount::Quantity),
    }
}

/// Upstream's way to switch a threshold off.
fn is_off(value: Amount) -> bool {
    matches!(value, Amount::Percent(percent) if percent <= 0.0 || percent >= 100.0)
}
