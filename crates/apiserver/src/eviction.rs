//! pods/eviction (API-597 to API-603, TC-208 to TC-214): a pod is deleted only
//! if its disruption budget allows it.

use bytes::Bytes;
use http::StatusCode;
use objects::apimachinery::pkg::apis::meta::v1::LabelSelector as TypedSelector;
use objects::kinds::asked::EVICTION;
use objects::kinds::pod_disruption_budget;
use objects::{FieldError, LabelSelector};
use serde_json::{Map, Value, json};
use store::{ListRequest, Op, Revision, WriteError};

use crate::answer::{self, Answer};
use crate::api::{Api, Call};
use crate::body::{DeleteOptions, WriteOptions};
use crate::error::{ApiError, Cause, KindName, ResourceName};
use crate::{admission, delete, negotiate, object, pods, write};

/// How often a race against other writers is run again.
const TRIES: u32 = 20;
/// TC-212: so many evictions may wait for the budget's controller.
const DISRUPTED_MAX: usize = 2000;
const RETRY_SECONDS: u32 = 10;

pub(crate) async fn evict(api: &Api, call: &Call, bytes: Bytes) -> Answer {
    let write = WriteOptions::parse(&call.query, "CreateOptions")?;
    let eviction = parse(call, &bytes)?;
    let mut options = DeleteOptions::of(&eviction["deleteOptions"])?;
    options.is_dry_run |= write.is_dry_run;
    let eviction = Eviction { api, call, namespace: call.namespace(), name: call.name(), options };
    // Before a budget is charged for it.
    admission::judge_delete(api, call, &eviction.pod().await?).await?;
    let status = match eviction.carry_out().await? {
        Outcome::Evicted => json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "code": StatusCode::CREATED.as_u16(),
        }),
        // API-599, TC-210: a failure only within the answer.
        Outcome::TwoBudgets => json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            "code": StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
        }),
    };
    Ok(answer::json(StatusCode::CREATED, &status))
}

/// API-597.
fn parse(call: &Call, bytes: &Bytes) -> Result<Value, ApiError> {
    negotiate::require_json(&call.headers)?;
    let cannot = |detail: String| {
        ApiError::BadRequest(format!("Eviction in version \"v1\" cannot be handled as a Eviction: {detail}"))
    };
    let eviction: Value = serde_json::from_slice(bytes).map_err(|error| cannot(error.to_string()))?;
    EVICTION.ops.decode(&eviction).map_err(|error| cannot(error.to_string()))?;
    let (version, kind) = (object::text(&eviction, &["apiVersion"]), object::text(&eviction, &["kind"]));
    if !matches!(version, "" | "policy/v1" | "policy/v1beta1") || !matches!(kind, "" | "Eviction") {
        return Err(cannot(format!("no kind \"{kind}\" is registered for version \"{version}\"")));
    }
    if object::name(&eviction) != call.name() {
        return Err(ApiError::BadRequest("name in URL does not match name in Eviction object".to_owned()));
    }
    if eviction["deleteOptions"]["ignoreStoreReadErrorWithClusterBreakingPotential"] == true {
        let path = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential";
        let detail = "can not be set for pod eviction, try after removing the option";
        let errors = vec![FieldError::invalid(path, true, detail)];
        let kind = KindName { group: "policy".to_owned(), kind: "Eviction".to_owned() };
        return Err(ApiError::Invalid { kind, name: call.name().to_owned(), errors });
    }
    Ok(eviction)
}

enum Outcome {
    Evicted,
    TwoBudgets,
}

struct Eviction<'a> {
    api: &'a Api,
    call: &'a Call,
    namespace: Option<&'a str>,
    name: &'a str,
    options: DeleteOptions,
}

impl Eviction<'_> {
    async fn carry_out(&self) -> Result<Outcome, ApiError> {
        let Some(pod) = self.without_budget().await? else { return Ok(Outcome::Evicted) };
        let budgets = self.budgets(&pod).await?;
        let budget = match &budgets[..] {
            [] => return self.remove(&self.options).await.map(|()| Outcome::Evicted),
            [budget] => object::name(budget).to_owned(),
            _ => return Ok(Outcome::TwoBudgets),
        };
        if !is_unguarded(&pod, &budgets[0]) {
            self.charge(&budget).await?;
            return self.remove(&self.options).await.map(|()| Outcome::Evicted);
        }
        // TC-211: it must still be as unready as when the budget was asked.
        let is_guarded = self.options.version.is_none();
        match self.remove(&self.at_version(&pod)).await {
            Err(ApiError::Conflict { .. }) if is_guarded => Err(still_processed(&budget)),
            other => other.map(|()| Outcome::Evicted),
        }
    }

    /// API-598: pods whose end disrupts nothing go at once. Otherwise the pod
    /// for which a budget must be asked.
    async fn without_budget(&self) -> Result<Option<Value>, ApiError> {
        let mut lost = None;
        for _ in 0..TRIES {
            let pod = self.pod().await?;
            let phase = object::text(&pod, &["status", "phase"]);
            let is_ending = write::is_deleting(&pod) || matches!(phase, "Succeeded" | "Failed");
            if !is_ending && phase != "Pending" {
                return Ok(Some(pod));
            }
            // TC-209: a pod that has not started yet might have by now.
            let is_guarded = !is_ending && self.options.version.is_none();
            let options = if is_guarded { self.at_version(&pod) } else { self.options.clone() };
            match self.remove(&options).await {
                Err(error @ ApiError::Conflict { .. }) if self.options.version.is_none() => lost = Some(error),
                other => return other.map(|()| None),
            }
        }
        Err(lost.unwrap_or_else(|| ApiError::conflict(pods::kind(), self.name)))
    }

    async fn pod(&self) -> Result<Value, ApiError> {
        let key = object::key(pods::kind(), self.namespace, self.name);
        let entry = self.api.store.get(&key).await?;
        entry.map(|entry| object::document(&entry)).ok_or_else(|| ApiError::not_found(pods::kind(), self.name))
    }

    fn at_version(&self, pod: &Value) -> DeleteOptions {
        let version = object::text(pod, &["metadata", "resourceVersion"]).to_owned();
        DeleteOptions { version: Some(version), ..self.options.clone() }
    }

    /// The budgets that speak of a pod; one without a selector speaks of none.
    async fn budgets(&self, pod: &Value) -> Result<Vec<Value>, ApiError> {
        let prefix = object::prefix(&pod_disruption_budget::KIND, self.namespace);
        let stored = self.api.store.list(ListRequest::all(&prefix)).await?;
        let speaks_of = |budget: &Value| {
            let selector: Option<TypedSelector> =
                serde::Deserialize::deserialize(&budget["spec"]["selector"]).unwrap_or_default();
            LabelSelector::from_typed(selector.as_ref()).is_ok_and(|selector| selector.matches_doc(pod))
        };
        Ok(stored.entries.iter().map(|entry| object::document(entry)).filter(speaks_of).collect())
    }

    /// API-602, TC-214: takes one disruption from the budget. The version of
    /// the budget guards it, so that two evictions never take the same one.
    async fn charge(&self, budget: &str) -> Result<(), ApiError> {
        let kind = &pod_disruption_budget::KIND;
        let key = object::key(kind, self.namespace, budget);
        for _ in 0..TRIES {
            let entry = self.api.store.get(&key).await?.ok_or_else(|| ApiError::not_found(kind, budget))?;
            let mut doc = object::document(&entry);
            check(&doc)?;
            // Asked for, not done: the budget is not used up (TC-213).
            if self.options.is_dry_run {
                return Ok(());
            }
            take(&mut doc, self.name, &self.api.timestamp());
            match self.api.store.write(vec![Op::update(key.clone(), object::encode(kind, &doc), entry.modified)]).await
            {
                Ok(_) => return Ok(()),
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::Outrun(format!("couldn't update PodDisruptionBudget {budget:?} due to conflicts")))
    }

    /// API-603: says why, then deletes.
    async fn remove(&self, options: &DeleteOptions) -> Result<(), ApiError> {
        let mut options = options.clone();
        if !options.is_dry_run {
            let marked = self.mark(&options).await?;
            // Our own write does not count against the version that was asked.
            options.version = options.version.map(|_| marked.to_string());
        }
        delete::remove(self.api, self.call, self.name, &options).await.map(drop)
    }

    async fn mark(&self, options: &DeleteOptions) -> Result<Revision, ApiError> {
        let key = object::key(pods::kind(), self.namespace, self.name);
        for _ in 0..TRIES {
            let entry = self.api.store.get(&key).await?.ok_or_else(|| ApiError::not_found(pods::kind(), self.name))?;
            let mut doc = object::document(&entry);
            delete::check_preconditions(pods::kind(), &doc, options)?;
            let generation = doc["metadata"]["generation"].clone();
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "observedGeneration": generation,
            });
            set_condition(object::object_mut(&mut doc, "status"), condition, &self.api.timestamp());
            let bytes = object::encode(pods::kind(), &doc);
            match self.api.store.write(vec![Op::update(key.clone(), bytes, entry.modified)]).await {
                Ok(revision) => return Ok(revision),
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::conflict(pods::kind(), self.name))
    }
}

/// API-600: a pod that does no work may go although the budget is used up.
fn is_unguarded(pod: &Value, budget: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    if conditions.into_iter().flatten().any(is_ready) {
        return false;
    }
    let [healthy, wanted] = ["currentHealthy", "desiredHealthy"].map(|field| count(budget, field));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (healthy >= wanted && wanted > 0)
}

fn count(budget: &Value, field: &str) -> i64 {
    budget["status"][field].as_i64().unwrap_or(0)
}

/// API-601, TC-212.
fn check(budget: &Value) -> Result<(), ApiError> {
    let name = object::name(budget);
    if count(budget, "observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(still_processed(name));
    }
    let forbidden = |detail: &str| {
        let resource = ResourceName { group: "policy".to_owned(), resource: "poddisruptionbudget".to_owned() };
        ApiError::Forbidden { resource: Some(resource), name: name.to_owned(), detail: detail.to_owned(), cause: None }
    };
    let allowed = count(budget, "disruptionsAllowed");
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    if budget["status"]["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_MAX) {
        return Err(forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"));
    }
    if allowed == 0 { Err(refused(used_up(budget, name), None)) } else { Ok(()) }
}

/// Why nothing is allowed, as far as the budget itself knows.
fn used_up(budget: &Value, name: &str) -> String {
    let conditions = budget["status"]["conditions"].as_array();
    let why = conditions.into_iter().flatten().find(|condition| condition["type"] == "DisruptionAllowed");
    let field = |key: &str| why.map(|condition| object::text(condition, &[key])).unwrap_or_default();
    let (reason, message) = (field("reason"), field("message"));
    let is_explained = field("status") == "False" && !message.is_empty();
    let [healthy, wanted] = ["currentHealthy", "desiredHealthy"].map(|field| count(budget, field));
    if is_explained && reason == "SyncFailed" {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        );
    }
    if healthy <= wanted {
        return format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently");
    }
    let text = format!("The disruption budget {name} does not allow evicting pods currently");
    if is_explained { format!("{text} ({reason}): {message}") } else { text }
}

fn still_processed(budget: &str) -> ApiError {
    let message = format!("The disruption budget {budget} is still being processed by the server.");
    refused(message, Some(RETRY_SECONDS))
}

fn refused(message: String, retry_seconds: Option<u32>) -> ApiError {
    ApiError::NotNow {
        message: "Cannot evict pod as it would violate the pod's disruption budget.",
        cause: Box::new(Cause { reason: "DisruptionBudget", message, field: "" }),
        retry_seconds,
    }
}

/// API-602: one disruption less, until the controller has seen the pod go.
fn take(budget: &mut Value, pod: &str, now: &str) {
    let left = count(budget, "disruptionsAllowed") - 1;
    let generation = budget["status"]["observedGeneration"].clone();
    let status = object::object_mut(budget, "status");
    status.insert("disruptionsAllowed".to_owned(), json!(left));
    if left == 0 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": generation,
        });
        set_condition(status, condition, now);
    }
    let disrupted = status.entry("disruptedPods").or_insert(json!({}));
    match disrupted.as_object_mut() {
        Some(disrupted) => drop(disrupted.insert(pod.to_owned(), json!(now))),
        // Others may have written anything there.
        None => *disrupted = json!({pod: now}),
    }
}

/// The time of a condition is that of its last change.
fn set_condition(status: &mut Map<String, Value>, mut condition: Value, now: &str) {
    let list = status.entry("conditions").or_insert(json!([]));
    let Some(list) = list.as_array_mut() else { return };
    condition["lastTransitionTime"] = json!(now);
    match list.iter_mut().find(|existing| existing["type"] == condition["type"]) {
        Some(existing) => {
            if existing["status"] == condition["status"] {
                condition["lastTransitionTime"] = existing["lastTransitionTime"].clone();
            }
            *existing = condition;
        }
        None => list.push(condition),
    }
}
