//! Which priority a pod has, and which classes there are for it (API-710, API-711).

use objects::Kind;
use objects::kinds::priority_class;
use serde_json::{Value, json};
use store::ListRequest;

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

const DEFAULT_POLICY: &str = "PreemptLowerPriority";

/// What a class gives to its pods.
struct Priority {
    value: i64,
    policy: String,
}

pub(super) async fn pod(api: &Api, kind: &Kind, doc: &mut Value) -> Result<(), ApiError> {
    let name = object::name(doc).to_owned();
    let class = object::text(doc, &["spec", "priorityClassName"]).to_owned();
    let chosen = if class.is_empty() { default_class(api).await? } else { named(api, &class).await? };
    if !class.is_empty() && chosen.is_none() {
        return Err(ApiError::denied(kind, &name, format!("no PriorityClass with name {class} was found")));
    }
    let priority = match &chosen {
        Some(class) => Priority {
            value: class["value"].as_i64().unwrap_or(0),
            policy: match object::text(class, &["preemptionPolicy"]) {
                "" => DEFAULT_POLICY.to_owned(),
                policy => policy.to_owned(),
            },
        },
        None => Priority { value: 0, policy: DEFAULT_POLICY.to_owned() },
    };
    let spec = object::object_mut(doc, "spec");
    if let Some(class) = chosen.as_ref().filter(|_| class.is_empty()) {
        spec.insert("priorityClassName".to_owned(), json!(object::name(class)));
    }
    if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != priority.value) {
        let text = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            priority.value
        );
        return Err(ApiError::denied(kind, &name, text));
    }
    let given = spec.get("preemptionPolicy").and_then(Value::as_str);
    if let Some(given) = given.filter(|given| *given != priority.policy) {
        let text = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            priority.policy
        );
        return Err(ApiError::denied(kind, &name, text));
    }
    spec.insert("priority".to_owned(), json!(priority.value));
    spec.insert("preemptionPolicy".to_owned(), json!(priority.policy));
    Ok(())
}

async fn named(api: &Api, name: &str) -> Result<Option<Value>, ApiError> {
    let entry = api.store.get(&object::key(&priority_class::KIND, None, name)).await?;
    Ok(entry.map(|entry| object::document(&entry)))
}

/// For pods that name none; of several the one that gives least.
async fn default_class(api: &Api) -> Result<Option<Value>, ApiError> {
    let defaults = defaults(api).await?;
    Ok(defaults.into_iter().min_by_key(|class| class["value"].as_i64().unwrap_or(0)))
}

async fn defaults(api: &Api) -> Result<Vec<Value>, ApiError> {
    let listing = api.store.list(ListRequest::all(&object::prefix(&priority_class::KIND, None))).await?;
    let classes = listing.entries.iter().map(|entry| object::document(entry));
    Ok(classes.filter(|class| class["globalDefault"] == true).collect())
}

/// API-711: one default is enough.
pub(super) async fn class(api: &Api, kind: &Kind, doc: &Value) -> Result<(), ApiError> {
    if kind.kind != "PriorityClass" || doc["globalDefault"] != true {
        return Ok(());
    }
    let name = object::name(doc);
    let others = defaults(api).await?;
    match others.iter().map(object::name).find(|other| *other != name) {
        Some(other) => {
            let text = format!("PriorityClass {other} is already marked as default. Only one default can exist");
            Err(ApiError::denied(kind, name, text))
        }
        None => Ok(()),
    }
}
