//! Tells of every FlowSchema whether the level it names exists, as its condition
//! `Dangling`. Upstream writes no conditions of levels, and neither do we.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use objects::kinds::stored_only::{LEVEL, SCHEMA};
use serde_json::{Value, json};
use store::{ListRequest, Revision, Watch};
use tower::ServiceExt as _;

use crate::api::Api;
use crate::auth::Identity;
use crate::error::ApiError;
use crate::object;
use crate::origin::Origin;
use crate::service::Service;

/// Who owns the condition, by upstream's name.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const DANGLING: &str = "Dangling";
/// After something went wrong.
const PAUSE: Duration = Duration::from_secs(5);

/// Never returns.
pub(crate) async fn run(api: &Arc<Api>) -> Infallible {
    loop {
        let Err(error) = follow(api).await;
        tracing::warn!(%error, "the conditions of flow schemas could not be kept");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Until something goes wrong.
async fn follow(api: &Arc<Api>) -> Result<Infallible, ApiError> {
    let after = api.store.revision().await?;
    let (mut schemas, mut levels) = (changes(api, &SCHEMA, after).await?, changes(api, &LEVEL, after).await?);
    loop {
        tell(api).await?;
        tokio::select! {
            changed = schemas.next() => drop(changed?),
            changed = levels.next() => drop(changed?),
        }
    }
}

async fn changes(api: &Api, kind: &objects::Kind, after: Revision) -> Result<Box<dyn Watch>, ApiError> {
    Ok(api.store.watch(&object::prefix(kind, None), after).await?)
}

/// Writes what is not said yet.
async fn tell(api: &Arc<Api>) -> Result<(), ApiError> {
    let levels = api.store.list(ListRequest::all(&object::prefix(&LEVEL, None))).await?;
    let levels: BTreeSet<String> =
        levels.entries.iter().map(|entry| object::name(&object::document(entry)).to_owned()).collect();
    let schemas = api.store.list(ListRequest::all(&object::prefix(&SCHEMA, None))).await?;
    for entry in &schemas.entries {
        let schema = object::document(entry);
        let wanted = condition(&schema, &levels);
        if !is_said(&schema, &wanted) {
            write(api, &schema, wanted).await?;
        }
    }
    Ok(())
}

fn condition(schema: &Value, levels: &BTreeSet<String>) -> Value {
    let level = object::text(schema, &["spec", "priorityLevelConfiguration", "name"]);
    let named = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    let (status, reason, rest) = match levels.contains(level) {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    json!({"type": DANGLING, "status": status, "reason": reason, "message": format!("{named} {rest}")})
}

fn is_said(schema: &Value, wanted: &Value) -> bool {
    let said = object::at(schema, &["status", "conditions"]).as_array().into_iter().flatten();
    let mut same = said.filter(|said| said["type"] == DANGLING);
    same.any(|said| ["status", "reason", "message"].into_iter().all(|part| said[part] == wanted[part]))
}

/// By the way that everybody's writes take. The next change, or the next
/// look, finds what could not be written now.
async fn write(api: &Arc<Api>, schema: &Value, mut condition: Value) -> Result<(), ApiError> {
    let name = object::name(schema);
    condition["lastTransitionTime"] = json!(api.timestamp());
    let doc = json!({
        "kind": SCHEMA.kind, "apiVersion": SCHEMA.api_version(), "metadata": {"name": name},
        "status": {"conditions": [condition]},
    });
    let path =
        format!("/apis/{}/{}/{name}/status?fieldManager={MANAGER}&force=true", SCHEMA.api_version(), SCHEMA.plural);
    let request = Request::patch(path)
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .header(header::USER_AGENT, "podium-apiserver")
        .body(Full::new(Bytes::from(doc.to_string())))
        .map_err(|error| ApiError::Internal(error.to_string()))?;
    let identity = Some(Arc::new(Identity::apiserver()));
    let service = Service { api: Arc::clone(api), from: Origin { identity, ..Origin::default() }, agent: None };
    let Ok(response) = service.oneshot(request).await;
    // Gone meanwhile, or changed: there is a change to look at.
    if !response.status().is_success() {
        tracing::debug!(schema = name, code = %response.status(), "a condition was not taken");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_065_a_schema_dangles_if_its_level_is_not_there() {
        let levels = BTreeSet::from(["there".to_owned()]);
        let schema = |level: &str| json!({"spec": {"priorityLevelConfiguration": {"name": level}}});
        let message = "This FlowSchema references the PriorityLevelConfiguration object named \"there\" and it exists";
        let wanted = json!({"type": "Dangling", "status": "False", "reason": "Found", "message": message});
        assert_eq!(condition(&schema("there"), &levels), wanted);
        let dangling = condition(&schema("none"), &levels);
        assert_eq!((&dangling["status"], &dangling["reason"]), (&json!("True"), &json!("NotFound")));
        let mut said = schema("there");
        assert!(!is_said(&said, &wanted));
        said["status"]["conditions"] = json!([dangling]);
        assert!(!is_said(&said, &wanted));
        said["status"]["conditions"] = json!([wanted]);
        assert!(is_said(&said, &wanted));
    }
}
