//! Brings a pod's status to the API: newest only, in order, never over a newer
//! one, again after a failure (LC-031 to LC-034).

use std::sync::{Arc, Mutex};

use ambient::{Mono, Now};
use client::{ApiError, Patch};
use lifecycle::mark_api;
use objects::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::ctx::Ctx;
use crate::mailbox::Mailbox;
use crate::observe::PodRef;

/// Which object of the API shows a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownBy {
    Itself,
    /// LC-356: it is static.
    Mirror,
}

/// The worker's end: takes statuses, sends when needed.
pub(crate) struct Desk {
    slot: Arc<Slot>,
    task: tokio::task::AbortHandle,
    sent: Option<PodStatus>,
    /// When to insist on a status the API holds differently.
    insist_at: Option<Mono>,
    reconcile: std::time::Duration,
}

/// LC-032: holds the newest status only, for one sender that sends in order;
/// so an older one never follows a newer one, and what failed is sent again
/// unless there is something newer.
#[derive(Default)]
struct Slot {
    next: Mutex<Option<Value>>,
    wake: Notify,
}

impl Desk {
    /// `connections` steps when the API is back after an absence.
    pub(crate) fn open(
        ctx: Arc<Ctx>,
        who: PodRef,
        shown_by: ShownBy,
        mailbox: Arc<Mailbox>,
        connections: watch::Receiver<u64>,
    ) -> Self {
        let slot = Arc::new(Slot::default());
        let reconcile = ctx.config.periods.status_reconcile;
        let task = tokio::spawn(send_all(ctx, who, shown_by, mailbox, slot.clone(), connections)).abort_handle();
        Self { slot, task, sent: None, insist_at: None, reconcile }
    }

    /// Sends if the API does not say so already; answers when to ask again.
    pub(crate) fn offer(&mut self, status: &PodStatus, pod: &Pod, now: Now) -> Option<Mono> {
        let patch = status_patch(status, pod);
        let is_held = is_held(&patch["status"], pod);
        let next = now.mono + self.reconcile;
        if self.sent.as_ref() != Some(status) {
            // Once something was sent, our copy of the API's status may be
            // older than what is on its way there.
            let must_write = self.sent.is_some() || !is_held;
            self.sent = Some(status.clone());
            self.insist_at = must_write.then_some(next);
            if must_write {
                self.slot.put(patch);
            }
        } else if is_held {
            self.insist_at = None;
        } else if now.mono >= *self.insist_at.get_or_insert(next) {
            // LC-033: a foreign hand in our part of the status is overruled, but
            // no faster than this, so that two owners cannot race.
            self.insist_at = Some(next);
            self.slot.put(patch);
        }
        self.insist_at
    }
}

impl Desk {
    /// The object is another one: it knows nothing yet.
    pub(crate) fn forget(&mut self) {
        (self.sent, self.insist_at) = (None, None);
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Slot {
    fn put(&self, patch: Value) {
        *self.lock() = Some(patch);
        self.wake.notify_one();
    }

    fn put_back(&self, patch: Value) {
        self.lock().get_or_insert(patch);
    }

    async fn take(&self) -> Value {
        loop {
            let next = self.lock().take();
            match next {
                Some(patch) => return patch,
                None => self.wake.notified().await,
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Value>> {
        self.next.lock().expect("a slot is never poisoned: no code panics while holding it")
    }
}

async fn send_all(
    ctx: Arc<Ctx>,
    who: PodRef,
    shown_by: ShownBy,
    mailbox: Arc<Mailbox>,
    slot: Arc<Slot>,
    mut connections: watch::Receiver<u64>,
) {
    loop {
        let patch = slot.take().await;
        connections.mark_unchanged();
        let sent = ctx.client.patch_status::<Pod>(&who.namespace, &who.name, &Patch::Strategic(patch.clone())).await;
        match sent {
            Ok(mut pod) => {
                mark_api(&mut pod);
                match shown_by {
                    ShownBy::Itself => mailbox.pod(Arc::new(pod)),
                    ShownBy::Mirror => mailbox.mirror(Arc::new(pod)),
                }
            }
            // TC-088: gone, or the name belongs to another; the watch will say so.
            Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
            Err(error) => {
                tracing::debug!(pod = who.name, uid = who.uid, %error, "status not written");
                slot.put_back(patch);
                tokio::select! {
                    biased;
                    () = slot.wake.notified() => {}
                    Ok(()) = connections.changed() => {}
                    () = tokio::time::sleep(ctx.config.periods.status_reconcile) => {}
                }
            }
        }
    }
}

/// TC-089: conditions the agent may write.
const OWN_CONDITIONS: [&str; 10] = [
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodReadyToStartContainers",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
    "PodRestartInPlace",
    "DisruptionTarget",
];

/// A merge by key alone would keep the order of the server's list.
const CONDITION_ORDER: &str = "$setElementOrder/conditions";

/// Fields of the status the agent owns whole; absent ones are erased.
const OWN_FIELDS: [&str; 12] = [
    "phase",
    "reason",
    "message",
    "hostIP",
    "podIP",
    "startTime",
    "qosClass",
    "observedGeneration",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "resize",
];

/// A strategic merge patch that says exactly this status and touches nothing
/// foreign, guarded by the UID (TC-087, TC-089).
fn status_patch(status: &PodStatus, pod: &Pod) -> Value {
    let wanted = serde_json::to_value(status).unwrap_or_default();
    let held = held_status(pod);
    let mut patch = serde_json::Map::new();
    for field in OWN_FIELDS {
        // What was never there need not be erased: patches stay small.
        if wanted.get(field).is_some() || held.get(field).is_some() {
            patch.insert(field.to_owned(), wanted.get(field).cloned().unwrap_or(Value::Null));
        }
    }
    for field in ["hostIPs", "podIPs"] {
        patch.insert(field.to_owned(), merged_by("ip", list(&wanted, field), list(&held, field)));
    }
    let (wanted, held) = (list(&wanted, "conditions"), list(&held, "conditions"));
    patch.insert(CONDITION_ORDER.to_owned(), condition_order(&wanted, &held));
    patch.insert("conditions".to_owned(), conditions(wanted, held));
    json!({ "metadata": { "uid": pod.metadata.uid }, "status": patch })
}

fn is_own(condition: &Value) -> bool {
    OWN_CONDITIONS.iter().any(|own| condition["type"] == *own)
}

/// LC-100: what others wrote first, then ours in the order they were rendered.
fn condition_order(wanted: &[Value], held: &[Value]) -> Value {
    let ours: Vec<&Value> = wanted.iter().filter(|condition| is_own(condition)).collect();
    let is_ours = |condition: &&Value| ours.iter().any(|own| own["type"] == condition["type"]);
    let foreign = held.iter().filter(|condition| !is_ours(condition));
    foreign.chain(ours.iter().copied()).map(|condition| json!({ "type": condition["type"] })).collect()
}

fn conditions(wanted: Vec<Value>, held: Vec<Value>) -> Value {
    // The scheduler and the disruption writers may have been here before us.
    let is_ours_alone = |condition: &Value| is_own(condition) && condition["type"] != "DisruptionTarget";
    let wanted = wanted.into_iter().filter(is_own).map(|mut condition| {
        if let Some(fields) = condition.as_object_mut() {
            for optional in ["reason", "message", "lastProbeTime", "observedGeneration"] {
                fields.entry(optional).or_insert(Value::Null);
            }
        }
        condition
    });
    merged_by("type", wanted.collect(), held.into_iter().filter(is_ours_alone).collect())
}

/// A list merged by key: what is held and no longer wanted must be named.
fn merged_by(key: &str, mut wanted: Vec<Value>, held: Vec<Value>) -> Value {
    let stale: Vec<Value> = held
        .iter()
        .filter(|old| !wanted.iter().any(|new| new[key] == old[key]))
        .map(|old| json!({ key: old[key], "$patch": "delete" }))
        .collect();
    wanted.extend(stale);
    Value::Array(wanted)
}

/// LC-031: the API says all of this already.
fn is_held(patch: &Value, pod: &Pod) -> bool {
    let held = held_status(pod);
    let Some(patch) = patch.as_object() else { return false };
    patch.iter().all(|(field, wanted)| match (field.as_str(), wanted) {
        // An order alone is not worth a write.
        (CONDITION_ORDER, _) => true,
        ("conditions", Value::Array(wanted)) => is_in(wanted, &list(&held, "conditions"), "type"),
        ("hostIPs" | "podIPs", Value::Array(wanted)) => is_in(wanted, &list(&held, field), "ip"),
        (_, Value::Null) => held.get(field).is_none_or(Value::is_null),
        (_, wanted) => held.get(field) == Some(wanted),
    })
}

fn is_in(wanted: &[Value], held: &[Value], key: &str) -> bool {
    wanted.iter().all(|element| {
        let found = held.iter().find(|candidate| candidate[key] == element[key]);
        let same = |found: &Value| {
            element.as_object().is_some_and(|fields| fields.iter().all(|(name, value)| found[name] == *value))
        };
        found.is_some_and(same)
    })
}

fn held_status(pod: &Pod) -> Value {
    pod.status.as_ref().and_then(|status| serde_json::to_value(status).ok()).unwrap_or_default()
}

fn list(status: &Value, field: &str) -> Vec<Value> {
    status.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "status": status})).unwrap()
    }

    fn status(status: Value) -> PodStatus {
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn tc_089_foreign_conditions_are_left_alone_and_own_ones_replaced_whole() {
        let held = json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
            {"type": "example.com/gate", "status": "True"},
            {"type": "PodResizePending", "status": "True"},
        ], "message": "old", "podIPs": [{"ip": "10.0.0.1"}]});
        let wanted = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "10.0.0.2"}]});
        let patch = status_patch(&status(wanted), &pod(held));
        let ready = json!({"type": "Ready", "status": "True", "reason": null, "message": null,
            "lastProbeTime": null, "observedGeneration": null});
        assert_eq!(
            patch,
            json!({
                "metadata": {"uid": "u"},
                "status": {
                    "phase": "Running",
                    "message": null,
                    "hostIPs": [],
                    "podIPs": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1", "$patch": "delete"}],
                    "$setElementOrder/conditions": [
                        {"type": "example.com/gate"}, {"type": "PodResizePending"}, {"type": "Ready"}],
                    "conditions": [ready, {"type": "PodResizePending", "$patch": "delete"}],
                },
            })
        );
    }

    #[test]
    fn lc_100_conditions_are_stored_in_the_order_they_are_rendered() {
        let condition = |name: &str| json!({"type": name, "status": "True"});
        let held = json!({"conditions": (["PodScheduled", "example.com/gate"].map(condition))});
        let rendered =
            ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
        let held = pod(held);
        let patch = status_patch(&status(json!({"conditions": rendered})), &held);
        let kind = objects::kinds::find_kind("v1", "Pod").unwrap();
        let document = serde_json::to_value(&held).unwrap();
        let document = objects::patch::strategic_merge_patch(kind, &document, &patch).unwrap();
        let stored = list(&document["status"], "conditions");
        let stored: Vec<&str> = stored.iter().filter_map(|condition| condition["type"].as_str()).collect();
        let wanted = [
            "example.com/gate",
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        ];
        assert_eq!(stored, wanted);
    }

    #[test]
    fn lc_031_nothing_is_written_if_the_api_says_it_already() {
        let content = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}]});
        let mut held = content.clone();
        held["conditions"].as_array_mut().unwrap().push(json!({"type": "foreign", "status": "True"}));
        held["nominatedNodeName"] = json!("n2");
        let holds = |held: &Value| {
            let pod = pod(held.clone());
            is_held(&status_patch(&status(content.clone()), &pod)["status"], &pod)
        };
        assert!(holds(&held));
        held["conditions"][0]["reason"] = json!("x");
        assert!(!holds(&held), "a reason we no longer give must go");
        held["conditions"][0].as_object_mut().unwrap().remove("reason");
        held["message"] = json!("x");
        assert!(!holds(&held), "a message we no longer give must go");
    }
}
