//! Every pod runs as a service account and, unless it declines, finds that
//! account's token at a known place (API-705 to API-707).

mod mountable;

use std::time::Duration;

use objects::{Kind, kinds};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

/// A pod that mirrors one a node runs from a file (its owner decides alone).
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Where clients in containers look.
const TOKEN_PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// API-706: an hour and a little, by which upstream knows the volumes it made itself.
const TOKEN_SECONDS: i64 = 3607;

/// API-705: an account that was made a moment ago with its namespace.
const LOOKUPS: u32 = 10;
const LOOKUP_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn admit(api: &Api, kind: &Kind, namespace: &str, doc: &mut Value) -> Result<(), ApiError> {
    let pod_name = object::name(doc).to_owned();
    if !object::at(doc, &["metadata", "annotations", MIRROR]).is_null() {
        return check_mirror(doc).map_err(|detail| ApiError::denied(kind, &pod_name, detail));
    }
    let spec = object::object_mut(doc, "spec");
    let given = spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or_default();
    let name = if given.is_empty() { "default".to_owned() } else { given.to_owned() };
    let account = find(api, namespace, &name).await?.ok_or_else(|| {
        let detail =
            format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
        ApiError::denied(kind, &pod_name, detail)
    })?;
    spec.insert("serviceAccountName".to_owned(), json!(name));
    spec.insert("serviceAccount".to_owned(), json!(name));
    if spec.get("imagePullSecrets").and_then(Value::as_array).is_none_or(Vec::is_empty)
        && let Some(secrets) = account.get("imagePullSecrets").filter(|secrets| !secrets.is_null())
    {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
    if wants_token(spec, &account) {
        mount_token(spec, &format!("kube-api-access-{}", api.ids.suffix()));
    }
    limit_secrets(kind, &account, doc)
}

/// API-707: secrets that an account does not name are not for its pods, if the
/// account says so. Nobody after this gives a pod secrets.
fn limit_secrets(kind: &Kind, account: &Value, doc: &Value) -> Result<(), ApiError> {
    let refusal = if mountable::is_enforced(account) { mountable::refusal(account, &doc["spec"]) } else { None };
    refusal.map_or(Ok(()), |detail| Err(ApiError::denied(kind, object::name(doc), detail)))
}

/// API-707: the same for containers that come later.
pub(super) async fn judge(api: &Api, kind: &Kind, namespace: &str, doc: &Value) -> Result<(), ApiError> {
    let name = object::text(doc, &["spec", "serviceAccountName"]);
    match find(api, namespace, name).await? {
        Some(account) => limit_secrets(kind, &account, doc),
        None => {
            let text =
                format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
            Err(ApiError::denied(kind, object::name(doc), text))
        }
    }
}

fn check_mirror(doc: &Value) -> Result<(), &'static str> {
    let spec = &doc["spec"];
    if !object::text(doc, &["spec", "serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if mountable::names_secrets(spec) {
        return Err("a mirror pod may not reference secrets");
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    if sources.any(|source| !source["serviceAccountToken"].is_null()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

async fn find(api: &Api, namespace: &str, name: &str) -> Result<Option<Value>, ApiError> {
    let kind = kinds::find("", "v1", "serviceaccounts").expect("the kinds table has service accounts");
    let key = object::key(kind, Some(namespace), name);
    for lookup in 1.. {
        if let Some(entry) = api.store.get(&key).await? {
            return Ok(Some(object::document(&entry)));
        }
        // Only the account that a controller makes is worth waiting for.
        if name != "default" || lookup == LOOKUPS {
            break;
        }
        tokio::time::sleep(LOOKUP_PAUSE).await;
    }
    Ok(None)
}

/// The pod's word counts, else the account's.
fn wants_token(spec: &Map<String, Value>, account: &Value) -> bool {
    const FIELD: &str = "automountServiceAccountToken";
    let of = |value: Option<&Value>| value.and_then(Value::as_bool);
    of(spec.get(FIELD)).or_else(|| of(account.get(FIELD))).unwrap_or(true)
}

/// API-706: into every container that has nothing at the place yet. Pods with
/// a token volume of that make use it instead of a second one.
fn mount_token(spec: &mut Map<String, Value>, fresh: &str) {
    let volumes = spec.get("volumes").and_then(Value::as_array);
    let made = volumes.into_iter().flatten().filter_map(|volume| volume["name"].as_str());
    let existing = made.into_iter().find(|name| name.starts_with("kube-api-access-")).map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| fresh.to_owned());
    let mut is_mounted = false;
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert(json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().any(|mount| mount["mountPath"] == TOKEN_PLACE) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_PLACE}));
            is_mounted = true;
        }
    }
    if is_mounted && existing.is_none() {
        let volumes = spec.entry("volumes").or_insert(json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.push(token_volume(&name));
        }
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(spec: Value) -> Map<String, Value> {
        spec.as_object().unwrap().clone()
    }

    #[test]
    fn api_706_a_token_is_mounted_where_nothing_is() {
        let own = json!([{"name": "mine", "mountPath": TOKEN_PLACE}]);
        let mut pod = spec(json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": own}],
            "initContainers": [{"name": "i"}]}));
        mount_token(&mut pod, "kube-api-access-abcde");
        let mount = json!([{"name": "kube-api-access-abcde", "readOnly": true, "mountPath": TOKEN_PLACE}]);
        assert_eq!(pod["containers"][0]["volumeMounts"], mount);
        assert_eq!(pod["containers"][1]["volumeMounts"], own);
        assert_eq!(pod["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(pod["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
        let once = pod.clone();
        mount_token(&mut pod, "kube-api-access-other");
        assert_eq!(pod, once, "twice is once");
        let mut served = spec(json!({"containers": [{"name": "b", "volumeMounts": own}]}));
        mount_token(&mut served, "kube-api-access-abcde");
        assert_eq!(served.get("volumes"), None);
    }

    #[test]
    fn api_706_pod_and_account_may_decline() {
        let no = json!({"automountServiceAccountToken": false});
        let yes = json!({"automountServiceAccountToken": true});
        assert!(wants_token(&spec(json!({})), &json!({})));
        assert!(!wants_token(&spec(json!({})), &no));
        assert!(!wants_token(&spec(no.clone()), &yes));
        assert!(wants_token(&spec(yes), &no));
    }
}
