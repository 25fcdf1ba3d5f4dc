//! Parse a `Pod` once into a strict form; interior code never sees optional
//! fields that have defaults.
//!
//! Read next: `fact.rs`, `action.rs`, `state.rs`.

use std::time::Duration;

use objects::api::core::v1::{Container, Pod, PodSpec as ApiSpec};
use objects::qos::QosClass;

use crate::action::PullPolicy;
use crate::limits::{GRACE_DEFAULT, GRACE_MIN};
use crate::resources::Demand;
use crate::status;
use crate::view::View;

mod handlers;
mod images;
mod needs;
mod node;
mod statics;

pub(crate) use handlers::Handlers;
pub use handlers::{HookKind, HookSpec, HttpGet, Mechanism, Port, ProbeKind, ProbeSpec};
pub(crate) use images::ImageSpec;
pub(crate) use needs::{Needs, ResizePolicy, with_dots};
pub use statics::{
    Manifest, ManifestSource, MirrorStep, References, is_mirror, is_mirror_of, is_of_node, is_static, mark_api,
    mirror_of, mirror_step, static_pod,
};

#[derive(Debug, Clone, PartialEq)]
pub struct PodSpec {
    pub uid: String,
    pub name: String,
    pub namespace: String,
    pub(crate) generation: i64,
    /// The object is marked for deletion.
    pub(crate) deletion: Option<Deletion>,
    pub(crate) restart_policy: RestartPolicy,
    /// `terminationGracePeriodSeconds`
    pub(crate) grace: Duration,
    /// LC-365: `activeDeadlineSeconds`
    pub(crate) active_deadline: Option<Duration>,
    /// Regular init containers and sidecars, in spec order.
    pub(crate) init: Vec<ContainerSpec>,
    pub(crate) apps: Vec<ContainerSpec>,
    /// LC-360: for debugging; neither phase nor readiness know them.
    pub(crate) ephemeral: Vec<ContainerSpec>,
    /// Condition types that must be True before the pod is Ready (LC-116).
    pub(crate) readiness_gates: Vec<String>,
    pub(crate) is_host_network: bool,
    /// Not from the API: its phase is left as computed (LC-050).
    pub(crate) is_static: bool,
    pub(crate) qos_class: String,
    pub(crate) needs: Needs,
    /// What the API shows: the prior for everything we compute.
    pub(crate) published: View,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// `deletionGracePeriodSeconds`
    pub(crate) grace: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContainerSpec {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) pull_policy: PullPolicy,
    pub(crate) role: Role,
    /// Container-level policy; sidecars have `Always`.
    pub(crate) restart_policy: Option<RestartPolicy>,
    pub(crate) restart_rules: Vec<RestartRule>,
    /// What the spec asks for; what it got is `PodState::allocation`.
    pub(crate) demand: Demand,
    pub(crate) resize_policy: ResizePolicy,
    pub(crate) mounts: Vec<MountSpec>,
    /// Of the volumes it mounts (LC-315).
    pub(crate) volume_images: Vec<ImageSpec>,
    pub(crate) handlers: Handlers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to completion before the next container.
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    App,
    Ephemeral,
}

/// LC-125.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// LC-133, LC-134.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RestartRule {
    pub(crate) operator: Operator,
    pub(crate) codes: Vec<i32>,
    pub(crate) action: RuleAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    In,
    NotIn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleAction {
    Restart,
    RestartAllContainers,
}

/// LC-085.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountSpec {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) is_read_only: bool,
    pub(crate) is_recursive_read_only: bool,
}

/// Why an object cannot be understood as a pod; the API server refuses such
/// objects, so this is for foreign servers and hand-made stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    pub field: String,
    pub problem: String,
}

impl PodSpec {
    pub fn parse(pod: &Pod) -> Result<Self, SpecError> {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref().ok_or_else(|| missing("spec"))?;
        let restart_policy = match &spec.restart_policy {
            Some(word) => restart_policy(word, "spec.restartPolicy")?,
            None => RestartPolicy::Always,
        };
        if spec.containers.is_empty() {
            return Err(missing("spec.containers"));
        }
        Ok(Self {
            uid: meta.uid.clone().ok_or_else(|| missing("metadata.uid"))?,
            name: meta.name.clone().ok_or_else(|| missing("metadata.name"))?,
            namespace: meta.namespace.clone().ok_or_else(|| missing("metadata.namespace"))?,
            generation: meta.generation.unwrap_or(0),
            deletion: meta
                .deletion_timestamp
                .is_some()
                .then(|| Deletion { grace: meta.deletion_grace_period_seconds.map(seconds) }),
            restart_policy,
            grace: spec.termination_grace_period_seconds.map_or(GRACE_DEFAULT, seconds),
            active_deadline: spec
                .active_deadline_seconds
                .map(|value| Duration::from_secs(value.try_into().unwrap_or(0))),
            init: init_containers(spec)?,
            apps: app_containers(spec)?,
            ephemeral: ephemeral_containers(spec)?,
            readiness_gates: spec.readiness_gates.iter().flatten().map(|gate| gate.condition_type.clone()).collect(),
            is_host_network: spec.host_network.unwrap_or(false),
            is_static: statics::is_static(pod),
            qos_class: qos_class(pod, spec),
            needs: Needs::parse(pod, spec, statics::is_static(pod))?,
            published: pod.status.as_ref().map(status::read).unwrap_or_default(),
        })
    }

    /// All containers the way they start: init containers, then apps.
    pub(crate) fn containers(&self) -> impl Iterator<Item = &ContainerSpec> {
        self.init.iter().chain(&self.apps)
    }

    pub(crate) fn container(&self, name: &str) -> Option<&ContainerSpec> {
        self.all_containers().find(|container| container.name == name)
    }

    /// Ephemeral containers too.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &ContainerSpec> {
        self.containers().chain(&self.ephemeral)
    }

    /// Every probe there is, in spec order.
    pub(crate) fn probes(&self) -> impl Iterator<Item = (&ContainerSpec, ProbeKind, &ProbeSpec)> {
        self.containers().flat_map(|container| {
            let probe = move |kind| container.handlers.probe(kind).map(|probe| (container, kind, probe));
            ProbeKind::ALL.into_iter().filter_map(probe)
        })
    }

    /// What the driver needs to carry out `RunProbe`.
    pub fn probe(&self, container: &str, kind: ProbeKind) -> Option<&ProbeSpec> {
        self.container(container)?.handlers.probe(kind)
    }

    /// What the driver needs to carry out `RunHook`.
    pub fn hook(&self, container: &str, kind: HookKind) -> Option<&HookSpec> {
        self.container(container)?.handlers.hook(kind)
    }

    /// LC-329: what was stored at creation counts, whatever a resize did since.
    pub(crate) fn class(&self) -> QosClass {
        QosClass::from_name(&self.qos_class).unwrap_or(QosClass::BestEffort)
    }

    /// `name_namespace(uid)`, as messages name a pod.
    pub(crate) fn full_name(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }
}

/// What forces a restart when it changes (LC-086); stored with each instance.
pub fn spec_hash(container: &str, image: &str) -> String {
    format!("{container}:{image}")
}

/// Whether `spec_hash` would give this, without making one.
pub(crate) fn is_spec_hash(hash: &str, container: &str, image: &str) -> bool {
    hash.strip_prefix(container).and_then(|rest| rest.strip_prefix(':')) == Some(image)
}

fn init_containers(spec: &ApiSpec) -> Result<Vec<ContainerSpec>, SpecError> {
    let all = spec.init_containers.iter().flatten().enumerate();
    all.map(|(index, container)| {
        let mut parsed = parse_container(spec, container, Role::Init, &format!("spec.initContainers[{index}]"))?;
        // LC-132: on an init container, `Always` makes it a sidecar.
        if parsed.restart_policy == Some(RestartPolicy::Always) {
            parsed.role = Role::Sidecar;
        }
        Ok(parsed)
    })
    .collect()
}

fn app_containers(spec: &ApiSpec) -> Result<Vec<ContainerSpec>, SpecError> {
    let all = spec.containers.iter().enumerate();
    all.map(|(index, container)| parse_container(spec, container, Role::App, &format!("spec.containers[{index}]")))
        .collect()
}

/// LC-361: they have no more than this.
fn ephemeral_containers(spec: &ApiSpec) -> Result<Vec<ContainerSpec>, SpecError> {
    let all = spec.ephemeral_containers.iter().flatten().enumerate();
    all.map(|(index, container)| {
        let plain = Container {
            name: container.name.clone(),
            image: container.image.clone(),
            image_pull_policy: container.image_pull_policy.clone(),
            volume_mounts: container.volume_mounts.clone(),
            ..Container::default()
        };
        parse_container(spec, &plain, Role::Ephemeral, &format!("spec.ephemeralContainers[{index}]"))
    })
    .collect()
}

fn parse_container(spec: &ApiSpec, container: &Container, role: Role, field: &str) -> Result<ContainerSpec, SpecError> {
    let image = container.image.clone().unwrap_or_default();
    let policy_field = format!("{field}.restartPolicy");
    Ok(ContainerSpec {
        name: container.name.clone(),
        pull_policy: pull_policy(container.image_pull_policy.as_deref(), &image, &format!("{field}.imagePullPolicy"))?,
        image,
        role,
        restart_policy: match &container.restart_policy {
            Some(word) => Some(restart_policy(word, &policy_field)?),
            None => None,
        },
        restart_rules: restart_rules(container, field)?,
        demand: needs::demand(container.resources.as_ref(), &format!("{field}.resources"))?,
        resize_policy: ResizePolicy::parse(container),
        mounts: container.volume_mounts.iter().flatten().map(parse_mount).collect(),
        volume_images: images::of_volumes(spec, container)?,
        handlers: Handlers::parse(container, field)?,
    })
}

fn parse_mount(mount: &objects::api::core::v1::VolumeMount) -> MountSpec {
    let recursive = mount.recursive_read_only.as_deref();
    MountSpec {
        name: mount.name.clone(),
        path: mount.mount_path.clone(),
        is_read_only: mount.read_only.unwrap_or(false),
        is_recursive_read_only: matches!(recursive, Some("Enabled" | "IfPossible")),
    }
}

fn restart_rules(container: &Container, field: &str) -> Result<Vec<RestartRule>, SpecError> {
    let rules = container.restart_policy_rules.iter().flatten().enumerate();
    rules
        .map(|(index, rule)| {
            let field = format!("{field}.restartPolicyRules[{index}]");
            let codes = rule.exit_codes.as_ref().ok_or_else(|| missing(&format!("{field}.exitCodes")))?;
            Ok(RestartRule {
                operator: match codes.operator.as_str() {
                    "In" => Operator::In,
                    "NotIn" => Operator::NotIn,
                    other => return Err(unsupported(&format!("{field}.exitCodes.operator"), other)),
                },
                codes: codes.values.clone().unwrap_or_default(),
                action: match rule.action.as_str() {
                    "Restart" => RuleAction::Restart,
                    "RestartAllContainers" => RuleAction::RestartAllContainers,
                    other => return Err(unsupported(&format!("{field}.action"), other)),
                },
            })
        })
        .collect()
}

fn restart_policy(word: &str, field: &str) -> Result<RestartPolicy, SpecError> {
    match word {
        "Always" => Ok(RestartPolicy::Always),
        "OnFailure" => Ok(RestartPolicy::OnFailure),
        "Never" => Ok(RestartPolicy::Never),
        other => Err(unsupported(field, other)),
    }
}

/// LC-307, for objects that were stored without the default.
fn pull_policy(word: Option<&str>, image: &str, field: &str) -> Result<PullPolicy, SpecError> {
    match word {
        Some("Always") => Ok(PullPolicy::Always),
        Some("IfNotPresent") => Ok(PullPolicy::IfNotPresent),
        Some("Never") => Ok(PullPolicy::Never),
        None | Some("") => Ok(if is_latest(image) { PullPolicy::Always } else { PullPolicy::IfNotPresent }),
        Some(other) => Err(unsupported(field, other)),
    }
}

fn is_latest(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    !last.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// LC-055: what is stored stays; a pod that never met our API is computed.
fn qos_class(pod: &Pod, spec: &ApiSpec) -> String {
    let stored = pod.status.as_ref().and_then(|status| status.qos_class.clone());
    stored.unwrap_or_else(|| objects::qos::of(spec).as_str().to_owned())
}

/// LC-273: negative means 1.
fn seconds(value: i64) -> Duration {
    u64::try_from(value).map_or(GRACE_MIN, Duration::from_secs)
}

fn missing(field: &str) -> SpecError {
    SpecError { field: field.to_owned(), problem: "is missing".to_owned() }
}

fn unsupported(field: &str, value: &str) -> SpecError {
    SpecError { field: field.to_owned(), problem: format!("unsupported value {value:?}") }
}

#[cfg(test)]
mod tests;
