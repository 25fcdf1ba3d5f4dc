//! The Node object and its heartbeats (TC-166 to TC-172).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ambient::{Mono, Timestamp};
use client::{ApiError, Patch, Scope, Severity};
use objects::Quantity as Amount;
use objects::api::coordination::v1::{Lease, LeaseSpec};
use objects::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus,
    NodeSystemInfo,
};
use objects::apimachinery::pkg::api::resource::Quantity;
use objects::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::config::Capacity;
use crate::ctx::Ctx;
use crate::steward::{Face, about_node};

/// TC-170.
const REGISTER_DELAY_MIN: Duration = Duration::from_millis(100);
const REGISTER_DELAY_MAX: Duration = Duration::from_secs(7);
/// TC-167: attempts at one renewal before the next interval.
const RENEW_ATTEMPTS: usize = 5;
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Registers the node, then keeps status and lease fresh. Runs for ever.
pub(crate) async fn run(ctx: Arc<Ctx>, face: watch::Receiver<Face>) {
    tell(&ctx, Severity::Normal, "Starting", "Starting kubelet.");
    let node = register(&ctx, &face).await;
    tokio::join!(keep_status(&ctx, node.clone(), face), keep_lease(&ctx, &node));
}

/// The Node as long as the API says nothing else about it.
pub(crate) fn initial(ctx: &Ctx) -> Node {
    let taints = Some(ctx.config.taints.clone()).filter(|taints| !taints.is_empty());
    let spec = taints.map(|taints| NodeSpec { taints: Some(taints), ..NodeSpec::default() });
    let metadata =
        ObjectMeta { name: Some(ctx.config.node_name.clone()), labels: Some(labels(ctx)), ..ObjectMeta::default() };
    with_own_amounts(ctx, &Node { metadata, spec, status: None })
}

/// What the API may show later, or others wrote there: our own amounts are
/// ours to say.
pub(crate) fn with_own_amounts(ctx: &Ctx, node: &Node) -> Node {
    let mut node = node.clone();
    let status = node.status.get_or_insert_default();
    status.allocatable.get_or_insert_default().extend(resources(&ctx.config.allocatable));
    status.capacity.get_or_insert_default().extend(resources(&ctx.config.capacity));
    node
}

/// TC-170: an existing Node is reused, its labels reconciled.
async fn register(ctx: &Ctx, face: &watch::Receiver<Face>) -> Node {
    let mut delay = REGISTER_DELAY_MIN;
    loop {
        match try_register(ctx, face).await {
            Ok(node) => return node,
            Err(error) => tracing::warn!(node = ctx.config.node_name, %error, "not registered yet"),
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(REGISTER_DELAY_MAX);
    }
}

async fn try_register(ctx: &Ctx, face: &watch::Receiver<Face>) -> Result<Node, ApiError> {
    let mut node = initial(ctx);
    let shown = face.borrow().clone();
    node.status = Some(status(ctx, &Node::default(), look(ctx).await, &shown));
    let name = &ctx.config.node_name;
    match ctx.client.create(&node).await {
        Ok(created) => Ok(created),
        Err(ApiError::AlreadyExists { .. }) => {
            let patch = Patch::Strategic(json!({ "metadata": { "labels": labels(ctx) } }));
            ctx.client.patch::<Node>("", name, &patch).await
        }
        Err(error) => Err(error),
    }
}

fn labels(ctx: &Ctx) -> BTreeMap<String, String> {
    let config = &ctx.config;
    let mut labels = config.labels.clone();
    for (name, value) in [
        ("kubernetes.io/hostname", config.node_name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", config.machine.architecture.as_str()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", config.machine.architecture.as_str()),
    ] {
        labels.insert(name.to_owned(), value.to_owned());
    }
    labels
}

/// TC-168: computed every period, written when it changed or is due. TC-198:
/// compared with what the API shows, which others may have changed: a node that
/// was called lost says again that it is not.
async fn keep_status(ctx: &Ctx, mut node: Node, mut face: watch::Receiver<Face>) {
    let shared = ctx.client.cache::<Node>(own(ctx));
    let mut written_at: Option<Mono> = None;
    let mut pause = tokio::time::interval(ctx.config.periods.node_status);
    pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            Ok(()) = face.changed() => {}
            _ = pause.tick() => if let Some(seen) = shared.get("", &ctx.config.node_name).filter(|seen| !is_older(seen, &node)) {
                tell_schedulable(ctx, &node, &seen);
                node = Node::clone(&seen);
            },
        }
        let now = ctx.clock.now().mono;
        let shown = face.borrow_and_update().clone();
        let fresh = status(ctx, &node, look(ctx).await, &shown);
        let is_due = written_at.is_none_or(|at| now.since(at) >= ctx.config.periods.node_report);
        if !is_due && is_same(&fresh, node.status.as_ref()) {
            continue;
        }
        match ctx.client.patch_status::<Node>("", &ctx.config.node_name, &status_patch(&fresh)).await {
            Ok(stored) => {
                tell_reboot(ctx, &node);
                tell_transitions(ctx, &node, &stored);
                written_at = Some(now);
                node = stored;
            }
            Err(error) => tracing::warn!(node = ctx.config.node_name, %error, "node status not written"),
        }
    }
}

/// TC-169: an event for every condition that changed its mind.
fn tell_transitions(ctx: &Ctx, old: &Node, new: &Node) {
    for condition in conditions_of(new) {
        let former = conditions_of(old).find(|former| former.type_ == condition.type_);
        if former.is_some_and(|former| former.status == condition.status) {
            continue;
        }
        let is_true = condition.status == "True";
        let reason = match (condition.type_.as_str(), is_true) {
            ("MemoryPressure", true) => "NodeHasInsufficientMemory",
            ("MemoryPressure", false) => "NodeHasSufficientMemory",
            ("DiskPressure", true) => "NodeHasDiskPressure",
            ("DiskPressure", false) => "NodeHasNoDiskPressure",
            ("PIDPressure", true) => "NodeHasInsufficientPID",
            ("PIDPressure", false) => "NodeHasSufficientPID",
            ("Ready", true) => "NodeReady",
            ("Ready", false) => "NodeNotReady",
            _ => continue,
        };
        tell(ctx, Severity::Normal, reason, &format!("Node {} status is now: {reason}", ctx.config.node_name));
    }
}

/// TC-203: told when an operator cordons the node, and when the opposite.
fn tell_schedulable(ctx: &Ctx, old: &Node, new: &Node) {
    let is_cordoned = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let reason = match (is_cordoned(old), is_cordoned(new)) {
        (false, true) => "NodeNotSchedulable",
        (true, false) => "NodeSchedulable",
        (true, true) | (false, false) => return,
    };
    tell(ctx, Severity::Normal, reason, &format!("Node {} status is now: {reason}", ctx.config.node_name));
}

/// A cache may not have seen yet what was written here.
fn is_older(seen: &Node, held: &Node) -> bool {
    let number = |node: &Node| node.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    matches!((number(seen), number(held)), (Some(seen), Some(held)) if seen < held)
}

/// The Node object of this agent alone.
pub(crate) fn own(ctx: &Ctx) -> Scope {
    Scope::fields(format!("metadata.name={}", ctx.config.node_name))
}

fn conditions_of(node: &Node) -> impl Iterator<Item = &NodeCondition> {
    node.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

/// TC-172: told once, when the first status of a new boot is written.
fn tell_reboot(ctx: &Ctx, old: &Node) {
    let boot = &ctx.config.machine.boot_id;
    let known = old.status.as_ref().and_then(|status| status.node_info.as_ref()).map(|info| info.boot_id.as_str());
    if known.is_some_and(|known| !known.is_empty() && known != boot) {
        let message = format!("Node {} has been rebooted, boot id: {boot}", ctx.config.node_name);
        tell(ctx, Severity::Warning, "Rebooted", &message);
    }
}

fn tell(ctx: &Ctx, severity: Severity, reason: &str, message: &str) {
    ctx.recorder.record(about_node(ctx), severity, reason, message, ctx.clock.now());
}

/// Heartbeat times do not make a status different.
fn is_same(fresh: &NodeStatus, held: Option<&NodeStatus>) -> bool {
    let still = |status: &NodeStatus| {
        let mut value = serde_json::to_value(status).unwrap_or_default();
        for condition in value["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastHeartbeatTime"] = Value::Null;
        }
        value
    };
    held.is_some_and(|held| {
        let (fresh, held) = (still(fresh), still(held));
        fresh.as_object().is_some_and(|fields| fields.iter().all(|(name, value)| held.get(name) == Some(value)))
    })
}

/// W17: clients read the last condition, so the order is part of the patch.
fn status_patch(status: &NodeStatus) -> Patch {
    let order: Vec<Value> =
        status.conditions.iter().flatten().map(|condition| json!({ "type": condition.type_ })).collect();
    let mut fields = serde_json::to_value(status).unwrap_or_default();
    fields["$setElementOrder/conditions"] = Value::Array(order);
    Patch::Strategic(json!({ "status": fields }))
}

/// What the runtime says about itself.
struct Look {
    /// `None`: it does not answer.
    version: Option<String>,
    /// TC-169: what keeps the node from being ready.
    troubles: Vec<String>,
    images: Vec<ContainerImage>,
}

async fn look(ctx: &Ctx) -> Look {
    let version = match ctx.runtime.version().await {
        Ok(version) => format!("{}://{}", version.name, version.version),
        Err(error) => {
            let troubles = vec![format!("container runtime is down: {error}")];
            return Look { version: None, troubles, images: Vec::new() };
        }
    };
    let images = ctx.runtime.images().await.unwrap_or_default();
    Look { version: Some(version), troubles: Vec::new(), images: shown_images(ctx, images) }
}

/// TC-166: the largest first, as many as configured, five names each.
fn shown_images(ctx: &Ctx, mut images: Vec<cri::Image>) -> Vec<ContainerImage> {
    images.sort_by(|a, b| b.size_bytes.cmp(&a.size_bytes).then_with(|| a.id.cmp(&b.id)));
    let shown = |image: cri::Image| ContainerImage {
        names: Some(image.repo_digests.into_iter().chain(image.repo_tags).take(IMAGE_NAMES_MAX).collect()),
        size_bytes: i64::try_from(image.size_bytes).ok(),
    };
    images.into_iter().take(ctx.config.status_images_max.unwrap_or(usize::MAX)).map(shown).collect()
}

const IMAGE_NAMES_MAX: usize = 5;

fn status(ctx: &Ctx, node: &Node, look: Look, face: &Face) -> NodeStatus {
    let config = &ctx.config;
    let wall = ctx.clock.now().wall;
    let held = node.status.as_ref();
    let held_runtime = || held.and_then(|status| Some(status.node_info.as_ref()?.container_runtime_version.clone()));
    let machine = &config.machine;
    NodeStatus {
        addresses: Some(addresses(ctx)),
        allocatable: Some(resources(&config.allocatable)),
        capacity: Some(resources(&config.capacity)),
        conditions: Some(conditions(held, look.troubles, face, wall)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: config.port.into() }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: machine.architecture.clone(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: look.version.or_else(held_runtime).unwrap_or_default(),
            kernel_version: machine.kernel_version.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: config.version.clone(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: machine.os_image.clone(),
            system_uuid: machine.system_uuid.clone(),
            ..NodeSystemInfo::default()
        }),
        images: Some(look.images).filter(|images| !images.is_empty()),
        // LC-159: the feature needs gate `NodeDeclaredFeatures`, so both are on.
        declared_features: config
            .rules
            .restart_all_containers
            .then(|| vec!["RestartAllContainersOnContainerExits".to_owned()]),
        ..NodeStatus::default()
    }
}

fn addresses(ctx: &Ctx) -> Vec<NodeAddress> {
    let address = |type_: &str, address: String| NodeAddress { address, type_: type_.to_owned() };
    let mut addresses: Vec<_> =
        ctx.config.internal_ips.iter().map(|ip| address("InternalIP", ip.to_string())).collect();
    addresses.push(address("Hostname", ctx.config.node_name.clone()));
    addresses
}

/// In the one spelling the API server keeps, so that an unchanged status
/// compares equal to the stored one.
fn resources(capacity: &Capacity) -> BTreeMap<String, Quantity> {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let amounts = [
        ("cpu", Amount::from_milli(signed(capacity.cpu_milli))),
        ("memory", Amount::from_bytes(signed(capacity.memory_bytes))),
        ("ephemeral-storage", Amount::from_bytes(signed(capacity.ephemeral_storage_bytes))),
        ("pods", Amount::from_value(i64::from(capacity.pods))),
    ];
    amounts.into_iter().map(|(name, amount)| (name.to_owned(), Quantity(amount.to_string()))).collect()
}

/// W17, TC-169: `Ready` comes last; transition times move only with the status.
fn conditions(
    held: Option<&NodeStatus>,
    mut troubles: Vec<String>,
    face: &Face,
    wall: Timestamp,
) -> Vec<NodeCondition> {
    let (ready, pressures): (Vec<_>, Vec<_>) = face.conditions.iter().partition(|it| it.kind == "Ready");
    let words = |is_true: bool| if is_true { "True" } else { "False" };
    let mut all: Vec<_> =
        pressures.iter().map(|it| (it.kind, words(it.is_true), it.reason, it.message.to_owned())).collect();
    troubles.extend(ready.iter().map(|it| it.message.to_owned()));
    all.push(match troubles.as_slice() {
        [] => ("Ready", "True", "KubeletReady", "kubelet is posting ready status".to_owned()),
        [one] => ("Ready", "False", "KubeletNotReady", one.clone()),
        many => ("Ready", "False", "KubeletNotReady", format!("[{}]", many.join(", "))),
    });
    let condition = |(type_, status, reason, message): (&str, &str, &str, String)| {
        let former = held.and_then(|held| held.conditions.iter().flatten().find(|former| former.type_ == type_));
        let unchanged = former.filter(|former| former.status == status);
        NodeCondition {
            last_heartbeat_time: Some(Time(wall)),
            last_transition_time: unchanged.map_or(Some(Time(wall)), |former| former.last_transition_time.clone()),
            message: Some(message),
            reason: Some(reason.to_owned()),
            status: status.to_owned(),
            type_: type_.to_owned(),
        }
    };
    all.into_iter().map(condition).collect()
}

/// TC-167.
async fn keep_lease(ctx: &Ctx, node: &Node) {
    let mut pause = tokio::time::interval(ctx.config.periods.lease_renew);
    pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pause.tick().await;
        for _ in 0..RENEW_ATTEMPTS {
            match renew(ctx, node).await {
                Ok(()) => break,
                Err(error) => tracing::debug!(%error, "lease not renewed"),
            }
        }
    }
}

async fn renew(ctx: &Ctx, node: &Node) -> Result<(), ApiError> {
    let name = &ctx.config.node_name;
    let renewed = MicroTime(ctx.clock.now().wall);
    let duration = i32::try_from(ctx.config.periods.lease_duration.as_secs()).unwrap_or(i32::MAX);
    let patch = Patch::Merge(json!({ "spec": {
        "holderIdentity": name, "leaseDurationSeconds": duration, "renewTime": renewed,
    } }));
    match ctx.client.patch::<Lease>(LEASE_NAMESPACE, name, &patch).await {
        Ok(_) => return Ok(()),
        Err(ApiError::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.clone(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.clone()),
            lease_duration_seconds: Some(duration),
            renew_time: Some(renewed),
            ..LeaseSpec::default()
        }),
    };
    ctx.client.create(&lease).await.map(drop)
}
