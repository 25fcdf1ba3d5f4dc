//! How controllers end pods: what their status says of it, and their deletion.

use ambient::Now;
use client::{ApiError, Client, Deletion, Patch};
use objects::api::core::v1::Pod;
use objects::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// Why a pod is disrupted (TC-204).
pub(crate) struct Reason {
    pub(crate) reason: &'static str,
    pub(crate) message: &'static str,
}

/// The condition `DisruptionTarget`; the time of one that is true already stays (TC-207).
pub(crate) fn condition(pod: &Pod, Reason { reason, message }: &Reason, now: Now) -> Value {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let held = conditions.find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True");
    let since = held.and_then(|held| held.last_transition_time.clone()).unwrap_or(Time(now.wall));
    json!({
        "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": since, "observedGeneration": pod.metadata.generation,
    })
}

/// Changes the status of this very pod, not of a later one of its name.
pub(crate) async fn pod_patch(client: &Client, pod: &Pod, status: Value) -> Result<(), ApiError> {
    let patch = Patch::Strategic(json!({"metadata": {"uid": pod.metadata.uid}, "status": status}));
    let (namespace, name) = place(pod);
    client.patch_status::<Pod>(namespace, name, &patch).await.map(drop)
}

/// `None` leaves the grace to the pod.
pub(crate) async fn delete(client: &Client, pod: &Pod, grace_seconds: Option<u32>) -> Result<(), ApiError> {
    let how = Deletion { grace_seconds, uid: pod.metadata.uid.clone(), ..Deletion::default() };
    let (namespace, name) = place(pod);
    client.delete::<Pod>(namespace, name, &how).await
}

/// Namespace and name.
pub(crate) fn place(pod: &Pod) -> (&str, &str) {
    let meta = &pod.metadata;
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
