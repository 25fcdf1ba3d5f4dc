//! Drives `controllers::taint_eviction`: taints and tolerations in, deletions out.

use std::convert::Infallible;
use std::time::Duration;

use ambient::Clock;
use client::{About, ApiError, Client, Recorder, Scope, Severity};
use controllers::taint_eviction::{TaintEviction, Write};
use objects::api::core::v1::{Node, Pod};
use serde_json::json;

use crate::disruption::{Reason, condition, delete, place, pod_patch};

/// TC-187: attempts at one deletion, this far apart.
const ATTEMPTS: usize = 5;
const RETRY: Duration = Duration::from_millis(10);
/// Pause before a deletion that failed so often is planned again.
const PAUSE: Duration = Duration::from_secs(1);

const REASON: Reason =
    Reason { reason: "DeletionByTaintManager", message: "Taint manager: deleting due to NoExecute taint" };

/// Never returns.
pub(crate) async fn run(client: Client, clock: Clock) -> Infallible {
    let recorder = Recorder::start(client.clone(), "taint-eviction-controller", "");
    let (nodes, pods) = (client.cache::<Node>(Scope::everywhere()), client.cache::<Pod>(Scope::everywhere()));
    nodes.synced().await;
    pods.synced().await;
    let (mut node_changes, mut pod_changes) = (nodes.subscribe(), pods.subscribe());
    let mut eviction = TaintEviction::default();
    loop {
        while node_changes.try_next().is_some() {}
        while pod_changes.try_next().is_some() {}
        let mut has_failed = false;
        let seen = nodes.snapshot();
        if eviction.concerns(&seen) {
            for write in eviction.examine(&seen, &pods.snapshot(), clock.now()) {
                let told = Teller { client: &client, clock: &clock, recorder: &recorder };
                if let Err((pod, error)) = told.perform(&write).await {
                    tracing::warn!(pod = ?place(pod), %error, "a pod that does not tolerate its node is not deleted");
                    eviction.failed(pod);
                    has_failed = true;
                }
            }
        }
        let due_in = eviction.wake_at().map(|at| at.since(clock.now().mono));
        let rest = due_in.into_iter().chain(has_failed.then_some(PAUSE)).min();
        tokio::select! {
            biased;
            _ = node_changes.next() => {}
            _ = pod_changes.next() => {}
            () = tokio::time::sleep(rest.unwrap_or(Duration::MAX)), if rest.is_some() => {}
        }
    }
}

struct Teller<'a> {
    client: &'a Client,
    clock: &'a Clock,
    recorder: &'a Recorder,
}

impl Teller<'_> {
    async fn perform<'w>(&self, write: &'w Write) -> Result<(), (&'w Pod, ApiError)> {
        match write {
            Write::TellCancelled { pod } => {
                self.tell(pod, "Cancelling deletion of Pod");
                Ok(())
            }
            Write::Delete { pod } => {
                self.tell(pod, "Marking for deletion Pod");
                let mut attempt = 1;
                loop {
                    match self.evict(pod).await {
                        Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => return Ok(()),
                        Err(error) if attempt == ATTEMPTS => return Err((pod, error)),
                        Err(_) => attempt += 1,
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn evict(&self, pod: &Pod) -> Result<(), ApiError> {
        let condition = condition(pod, &REASON, self.clock.now());
        pod_patch(self.client, pod, json!({"conditions": [condition]})).await?;
        delete(self.client, pod, None).await
    }

    fn tell(&self, pod: &Pod, what: &str) {
        let (namespace, name) = place(pod);
        let message = format!("{what} {namespace}/{name}");
        let about = About::object(pod);
        self.recorder.record(about, Severity::Normal, "TaintManagerEviction", &message, self.clock.now());
    }
}
