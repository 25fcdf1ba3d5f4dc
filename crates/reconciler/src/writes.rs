//! The scheduler's writes, each ending in the fact that tells its outcome.

use ambient::Now;
use client::{About, ApiError, Client, Patch, Recorder, Severity};
use objects::api::core::v1::Pod;
use scheduler::{BindFailure, Fact, Failure, NodeName, PodKey};
use serde_json::json;

/// TC-317: the UID goes along, so a pod of the same name created meanwhile
/// is never bound by a decision about its predecessor.
pub(crate) async fn bind(client: &Client, pod: PodKey, node: NodeName) -> Fact {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid.as_str()},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node.as_str()},
    });
    match client.create_subresource::<Pod>(&pod.namespace, &pod.name, "binding", &binding).await {
        Ok(_) => Fact::Bound { pod, node },
        Err(error) => Fact::BindFailed(pod.uid, bind_failure(error)),
    }
}

fn bind_failure(error: ApiError) -> BindFailure {
    let message = error.to_string();
    match error {
        ApiError::NotFound { .. } => BindFailure::PodGone,
        ApiError::Conflict { .. }
        | ApiError::AlreadyExists { .. }
        | ApiError::Unreachable { .. }
        | ApiError::Unreadable { .. } => BindFailure::Unsettled(message),
        ApiError::Gone { .. }
        | ApiError::Invalid { .. }
        | ApiError::Forbidden { .. }
        | ApiError::Refused { .. }
        | ApiError::Config { .. } => BindFailure::Refused(message),
    }
}

/// API-699: a strategic merge patch of one condition. The transition time is
/// only sent with a transition; otherwise the merge keeps the former one.
pub(crate) async fn show_failure(client: &Client, failure: Failure, now: Now) -> Fact {
    let Failure { pod, generation, reason, message, is_new } = failure;
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": reason.as_str(),
        "message": message,
    });
    if let Some(generation) = generation {
        condition["observedGeneration"] = json!(generation);
    }
    if is_new {
        // To the second, as all times of the API.
        condition["lastTransitionTime"] = json!(now.wall.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    let patch = json!({"metadata": {"uid": pod.uid.as_str()}, "status": {"conditions": [condition]}});
    match client.patch_status::<Pod>(&pod.namespace, &pod.name, &Patch::Strategic(patch)).await {
        Ok(_) | Err(ApiError::NotFound { .. }) => Fact::Shown(pod.uid),
        Err(error) => {
            tracing::warn!(pod = %pod, %error, "cannot show why the pod is not scheduled");
            Fact::ShowFailed(pod.uid)
        }
    }
}

pub(crate) fn record(recorder: &Recorder, pod: &PodKey, is_warning: bool, reason: &str, message: &str, now: Now) {
    let about = About {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.as_str().to_owned(),
        ..About::default()
    };
    let severity = if is_warning { Severity::Warning } else { Severity::Normal };
    recorder.record(about, severity, reason, message, now);
}
