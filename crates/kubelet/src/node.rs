//! The Node object and its heartbeats (TC-166 to TC-172).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ambient::{Mono, Timestamp};
use client::{About, ApiError, Patch, Severity};
use objects::Quantity as Amount;
use objects::api::coordination::v1::{Lease, LeaseSpec};
use objects::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use objects::apimachinery::pkg::api::resource::Quantity;
use objects::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use serde_json::{Value, json};

use crate::ctx::Ctx;

/// TC-170.
const REGISTER_DELAY_MIN: Duration = Duration::from_millis(100);
const REGISTER_DELAY_MAX: Duration = Duration::from_secs(7);
/// TC-167: attempts at one renewal before the next interval.
const RENEW_ATTEMPTS: usize = 5;
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Registers the node, then keeps status and lease fresh. Runs for ever.
pub(crate) async fn run(ctx: Arc<Ctx>) {
    let node = register(&ctx).await;
    tokio::join!(keep_status(&ctx, node.clone()), keep_lease(&ctx, &node));
}

/// TC-170: an existing Node is reused, its labels reconciled.
async fn register(ctx: &Ctx) -> Node {
    let mut delay = REGISTER_DELAY_MIN;
    loop {
        match try_register(ctx).await {
            Ok(node) => return node,
            Err(error) => tracing::warn!(node = ctx.config.node_name, %error, "not registered yet"),
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(REGISTER_DELAY_MAX);
    }
}

async fn try_register(ctx: &Ctx) -> Result<Node, ApiError> {
    let mut node = Node {
        metadata: ObjectMeta {
            name: Some(ctx.config.node_name.clone()),
            labels: Some(labels(ctx)),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    node.status = Some(status(ctx, &node, readiness(ctx).await));
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

/// TC-168: computed every period, written when it changed or is due.
async fn keep_status(ctx: &Ctx, mut node: Node) {
    let mut written_at: Option<Mono> = None;
    let mut pause = tokio::time::interval(ctx.config.periods.node_status);
    pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pause.tick().await;
        let now = ctx.clock.now().mono;
        let fresh = status(ctx, &node, readiness(ctx).await);
        let is_due = written_at.is_none_or(|at| now.since(at) >= ctx.config.periods.node_report);
        if !is_due && is_same(&fresh, node.status.as_ref()) {
            continue;
        }
        match ctx.client.patch_status::<Node>("", &ctx.config.node_name, &status_patch(&fresh)).await {
            Ok(stored) => {
                tell_transition(ctx, &node, &stored);
                written_at = Some(now);
                node = stored;
            }
            Err(error) => tracing::warn!(node = ctx.config.node_name, %error, "node status not written"),
        }
    }
}

/// TC-169: node events on changes of `Ready`.
fn tell_transition(ctx: &Ctx, old: &Node, new: &Node) {
    let ready = |node: &Node| {
        let status = node.status.as_ref()?;
        let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready")?;
        Some(condition.status.clone())
    };
    if ready(old) == ready(new) {
        return;
    }
    let reason = if ready(new).as_deref() == Some("True") { "NodeReady" } else { "NodeNotReady" };
    let message = format!("Node {} status is now: {reason}", ctx.config.node_name);
    ctx.recorder.record(About::object(new), Severity::Normal, reason, &message, ctx.clock.now());
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

/// TC-169: what keeps the node from being ready.
async fn readiness(ctx: &Ctx) -> Result<String, String> {
    match ctx.runtime.version().await {
        Ok(version) => Ok(format!("{}://{}", version.name, version.version)),
        Err(error) => Err(format!("container runtime is down: {error}")),
    }
}

fn status(ctx: &Ctx, node: &Node, readiness: Result<String, String>) -> NodeStatus {
    let config = &ctx.config;
    let wall = ctx.clock.now().wall;
    let amounts = resources(ctx);
    let held = node.status.as_ref();
    let runtime = readiness.as_ref().ok().cloned();
    let held_runtime = || held.and_then(|status| Some(status.node_info.as_ref()?.container_runtime_version.clone()));
    let machine = &config.machine;
    NodeStatus {
        addresses: Some(addresses(ctx)),
        allocatable: Some(amounts.clone()),
        capacity: Some(amounts),
        conditions: Some(conditions(held, readiness.err(), wall)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: config.port.into() }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: machine.architecture.clone(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: runtime.or_else(held_runtime).unwrap_or_default(),
            kernel_version: machine.kernel_version.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: config.version.clone(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: machine.os_image.clone(),
            system_uuid: machine.system_uuid.clone(),
            ..NodeSystemInfo::default()
        }),
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
    let mut addresses: Vec<_> = ctx.config.host_ips.iter().map(|ip| address("InternalIP", ip.to_string())).collect();
    addresses.push(address("Hostname", ctx.config.node_name.clone()));
    addresses
}

/// In the one spelling the API server keeps, so that an unchanged status
/// compares equal to the stored one.
fn resources(ctx: &Ctx) -> BTreeMap<String, Quantity> {
    let capacity = &ctx.config.capacity;
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
fn conditions(held: Option<&NodeStatus>, trouble: Option<String>, wall: Timestamp) -> Vec<NodeCondition> {
    let ready = match trouble {
        None => ("Ready", "True", "KubeletReady", "kubelet is posting ready status".to_owned()),
        Some(trouble) => ("Ready", "False", "KubeletNotReady", trouble),
    };
    let calm = |type_, reason, message: &str| (type_, "False", reason, message.to_owned());
    let all = [
        calm("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        calm("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        calm("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ready,
    ];
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
