//! What the server itself adds to objects or refuses about them (spec 03 §9).

use objects::Kind;
use serde_json::{Value, json};

use crate::api::Api;
use crate::error::ApiError;
use crate::{namespaces, object};

pub(crate) async fn create(
    api: &Api,
    kind: &'static Kind,
    namespace: Option<&str>,
    doc: &mut Value,
) -> Result<(), ApiError> {
    if let Some(namespace) = namespace {
        let name = object::name(doc).to_owned();
        namespaces::check_open(api, kind, namespace, &name).await?;
    }
    if kind.kind == "Pod" {
        service_account(doc);
        priority(kind, doc)?;
        tolerations(doc);
    }
    Ok(())
}

pub(crate) async fn update(_api: &Api, kind: &'static Kind, doc: &mut Value, old: &Value) -> Result<(), ApiError> {
    if kind.kind == "Pod" {
        // API-710: priority is settled once.
        let spec = object::object_mut(doc, "spec");
        for key in ["priority", "preemptionPolicy"] {
            if let (None, Some(value)) = (spec.get(key), old["spec"].get(key)) {
                spec.insert(key.to_owned(), value.clone());
            }
        }
    }
    Ok(())
}

/// A pod that mirrors one a node runs from a file (its owner decides alone).
const MIRROR: &str = "kubernetes.io/config.mirror";

/// API-705: every pod runs as some service account.
fn service_account(doc: &mut Value) {
    if !object::at(doc, &["metadata", "annotations", MIRROR]).is_null() {
        return;
    }
    let spec = object::object_mut(doc, "spec");
    let given = spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or_default();
    let name = if given.is_empty() { "default".to_owned() } else { given.to_owned() };
    spec.insert("serviceAccountName".to_owned(), json!(name));
    spec.insert("serviceAccount".to_owned(), json!(name));
}

/// API-711.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// API-710.
fn priority(kind: &Kind, doc: &mut Value) -> Result<(), ApiError> {
    let name = object::name(doc).to_owned();
    let class = object::text(doc, &["spec", "priorityClassName"]).to_owned();
    let value = match SYSTEM_CLASSES.iter().find(|(known, _)| *known == class) {
        Some((_, value)) => *value,
        None if class.is_empty() => 0,
        None => return Err(ApiError::denied(kind, &name, format!("no PriorityClass with name {class} was found"))),
    };
    let spec = object::object_mut(doc, "spec");
    if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != value) {
        let text = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(ApiError::denied(kind, &name, text));
    }
    spec.insert("priority".to_owned(), json!(value));
    spec.entry("preemptionPolicy").or_insert(json!("PreemptLowerPriority"));
    Ok(())
}

/// API-709: five minutes on a lost node, unless the pod says otherwise.
fn tolerations(doc: &mut Value) {
    let list = object::object_mut(doc, "spec").entry("tolerations").or_insert(json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is_tolerated = list.iter().any(|toleration| {
            let (key, effect) = (object::text(toleration, &["key"]), object::text(toleration, &["effect"]));
            (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !is_tolerated {
            list.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}
