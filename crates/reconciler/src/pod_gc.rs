//! Drives `controllers::pod_gc`: looks up missing nodes, removes pods.

use std::collections::BTreeSet;
use std::convert::Infallible;

use ambient::Clock;
use client::{ApiError, Client, Scope};
use controllers::pod_gc::{PERIOD, PodGc, Removal};
use objects::api::core::v1::{Node, Pod};
use serde_json::json;

use crate::disruption::{Reason, condition, delete, place, pod_patch};

/// TC-162.
const ORPHANED: Reason = Reason { reason: "DeletionByPodGC", message: "PodGC: node no longer exists" };

/// Never returns. `None` keeps finished pods for ever.
pub(crate) async fn run(client: Client, clock: Clock, terminated_max: Option<usize>) -> Infallible {
    let (nodes, pods) = (client.cache::<Node>(Scope::everywhere()), client.cache::<Pod>(Scope::everywhere()));
    nodes.synced().await;
    pods.synced().await;
    let mut gc = PodGc::new(terminated_max);
    let mut passes = tokio::time::interval(PERIOD);
    passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        passes.tick().await;
        let (known, all) = (nodes.snapshot(), pods.snapshot());
        let mut gone = BTreeSet::new();
        for name in gc.suspects(&known, &all, clock.now()) {
            if is_gone(&client, &name).await {
                gone.insert(name);
            }
        }
        for removal in gc.plan(&known, &all, &gone) {
            match remove(&client, &clock, &removal).await {
                Ok(()) => tracing::info!(pod = ?place(&removal.pod), why = ?removal.why, "removed"),
                // The next pass tries again.
                Err(error) => tracing::warn!(pod = ?place(&removal.pod), %error, "a pod could not be removed"),
            }
        }
    }
}

/// TC-158: no answer is no proof.
async fn is_gone(client: &Client, name: &str) -> bool {
    matches!(client.get::<Node>("", name).await, Err(ApiError::NotFound { .. }))
}

/// TC-161, TC-164: not deleted if its end cannot be shown.
async fn remove(client: &Client, clock: &Clock, removal: &Removal) -> Result<(), ApiError> {
    let pod = &*removal.pod;
    let done = async {
        if removal.fails() {
            let mut status = json!({"phase": "Failed", "observedGeneration": pod.metadata.generation});
            if removal.is_disrupted() {
                status["conditions"] = json!([condition(pod, &ORPHANED, clock.now())]);
            }
            pod_patch(client, pod, status).await?;
        }
        delete(client, pod, Some(0)).await
    };
    match done.await {
        Ok(()) | Err(ApiError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
