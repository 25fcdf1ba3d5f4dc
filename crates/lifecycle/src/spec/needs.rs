//! What a pod needs of its node, beside running its containers: resources,
//! room, the right labels, and how important it is.

use std::collections::{BTreeMap, BTreeSet};

use ambient::Timestamp;
use objects::Quantity;
use objects::api::core::v1::{Container, Pod, PodSpec as ApiSpec, ResourceRequirements};
use objects::apimachinery::pkg::api::resource::Quantity as Text;
use objects::placement::{HostPort, Toleration, Wishes, host_ports};
use objects::requests::Resources;

use super::{SpecError, unsupported};
use crate::resources::{CPU, Demand, MEMORY};

/// Pods of this priority and above keep the node alive (LC-301).
const PRIORITY_CRITICAL: i32 = 2_000_000_000;

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Needs {
    /// `spec.resources`
    pub(crate) pod_level: Option<Demand>,
    pub(crate) overhead: Resources,
    pub(crate) priority: i32,
    /// Static, mirror, or of system priority: never evicted for pressure.
    pub(crate) is_critical: bool,
    pub(crate) is_node_critical: bool,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) node_name: String,
    pub(crate) wishes: Wishes,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) ports: BTreeSet<HostPort>,
    /// `spec.os.name`
    pub(crate) os: Option<String>,
    /// The label `kubernetes.io/os` of the pod.
    pub(crate) os_label: Option<String>,
    pub(crate) sysctls: Vec<String>,
    pub(crate) is_host_ipc: bool,
    pub(crate) wants_strict_groups: bool,
    pub(crate) wants_app_armor: bool,
    /// `sizeLimit` of emptyDir volumes, by volume.
    pub(crate) empty_dir_limits: BTreeMap<String, Quantity>,
}

impl Needs {
    pub(super) fn parse(pod: &Pod, spec: &ApiSpec, is_static: bool) -> Result<Self, SpecError> {
        let priority = spec.priority.unwrap_or_default();
        let is_critical = is_static || priority >= PRIORITY_CRITICAL;
        let security = spec.security_context.as_ref();
        let labels = pod.metadata.labels.as_ref();
        Ok(Self {
            pod_level: match &spec.resources {
                Some(resources) => Some(demand(Some(resources), "spec.resources")?),
                None => None,
            },
            overhead: amounts(spec.overhead.as_ref(), "spec.overhead")?,
            priority,
            is_critical,
            is_node_critical: is_critical && spec.priority_class_name.as_deref() == Some("system-node-critical"),
            created_at: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            node_name: spec.node_name.clone().unwrap_or_default(),
            wishes: Wishes::parse(spec),
            tolerations: spec.tolerations.iter().flatten().map(Toleration::parse).collect(),
            ports: host_ports(spec),
            os: spec.os.as_ref().map(|os| os.name.clone()).filter(|name| !name.is_empty()),
            os_label: labels.and_then(|labels| labels.get("kubernetes.io/os")).cloned(),
            sysctls: security.iter().flat_map(|it| it.sysctls.iter().flatten()).map(|it| with_dots(&it.name)).collect(),
            is_host_ipc: spec.host_ipc.unwrap_or(false),
            wants_strict_groups: security.and_then(|it| it.supplemental_groups_policy.as_deref()) == Some("Strict"),
            wants_app_armor: wants_app_armor(spec),
            empty_dir_limits: empty_dir_limits(spec)?,
        })
    }
}

/// A profile that must be enforced, on the pod or any container.
fn wants_app_armor(spec: &ApiSpec) -> bool {
    let of_pod = spec.security_context.iter().filter_map(|security| security.app_armor_profile.as_ref());
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let own = containers.filter_map(|container| container.security_context.as_ref()?.app_armor_profile.as_ref());
    of_pod.chain(own).any(|profile| profile.type_ != "Unconfined")
}

fn empty_dir_limits(spec: &ApiSpec) -> Result<BTreeMap<String, Quantity>, SpecError> {
    let mut limits = BTreeMap::new();
    for volume in spec.volumes.iter().flatten() {
        if let Some(text) = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()) {
            let limit = quantity(text, &format!("spec.volumes[{}].emptyDir.sizeLimit", volume.name))?;
            if !limit.is_zero() {
                limits.insert(volume.name.clone(), limit);
            }
        }
    }
    Ok(limits)
}

/// Whether a change of a resource restarts the container (LC-348).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ResizePolicy {
    pub(crate) cpu_restarts: bool,
    pub(crate) memory_restarts: bool,
}

impl ResizePolicy {
    pub(super) fn parse(container: &Container) -> Self {
        let restarts = |resource: &str| {
            let mut policies = container.resize_policy.iter().flatten();
            policies.any(|it| it.resource_name == resource && it.restart_policy == "RestartContainer")
        };
        Self { cpu_restarts: restarts(CPU), memory_restarts: restarts(MEMORY) }
    }
}

/// `net/ipv4/conf/eth0.1/forwarding` and `net.ipv4.conf.eth0/1.forwarding` are
/// one sysctl: the separator that comes first is the separator.
pub(crate) fn with_dots(name: &str) -> String {
    let is_slashed = name.find(['.', '/']).is_some_and(|first| name[first..].starts_with('/'));
    let swapped = |letter| match letter {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    if is_slashed { name.chars().map(swapped).collect() } else { name.to_owned() }
}

pub(super) fn demand(resources: Option<&ResourceRequirements>, field: &str) -> Result<Demand, SpecError> {
    let Some(resources) = resources else { return Ok(Demand::default()) };
    Ok(Demand {
        requests: amounts(resources.requests.as_ref(), &format!("{field}.requests"))?,
        limits: amounts(resources.limits.as_ref(), &format!("{field}.limits"))?,
    })
}

fn amounts(list: Option<&BTreeMap<String, Text>>, field: &str) -> Result<Resources, SpecError> {
    let parse = |(name, text): (&String, &Text)| Ok((name.clone(), quantity(text, &format!("{field}[{name}]"))?));
    list.into_iter().flatten().map(parse).collect()
}

fn quantity(text: &Text, field: &str) -> Result<Quantity, SpecError> {
    Quantity::parse(&text.0).map_err(|_| unsupported(field, &text.0))
}
