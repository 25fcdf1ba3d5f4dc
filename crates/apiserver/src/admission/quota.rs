//! No more than the quotas of a namespace allow (API-716). What an object
//! counts for is `objects::quota`'s; here it is charged in the same write as
//! the object, so that two can never share the last place.

use objects::kinds::resource_quota;
use objects::{Kind, quota};
use serde_json::Value;
use store::Op;

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

/// How often a write is tried that others' writes to a quota get in the way of.
pub(crate) const TRIES: u32 = 64;

/// The writes to quotas that go with a write of this object; an error if there
/// is no room for it. They fail if a quota has changed meanwhile.
pub(crate) async fn charge(
    api: &Api,
    kind: &Kind,
    namespace: Option<&str>,
    doc: &Value,
    old: Option<&Value>,
) -> Result<Vec<Op>, ApiError> {
    let Some(namespace) = namespace.filter(|_| quota::counts(kind) && (old.is_none() || can_grow(kind))) else {
        return Ok(Vec::new());
    };
    let quotas = super::all(api, &resource_quota::KIND, Some(namespace)).await?;
    if quotas.is_empty() {
        return Ok(Vec::new());
    }
    let charged = quota::charge(&quotas, kind, doc, old, api.clock.now())
        .map_err(|detail| ApiError::denied(kind, object::name(doc), detail))?;
    let update = |quota: &Value| {
        let key = object::key(&resource_quota::KIND, Some(namespace), object::name(quota));
        let seen = object::text(quota, &["metadata", "resourceVersion"]).parse().map(store::Revision);
        Op::update(key, object::encode(&resource_quota::KIND, quota), seen.expect("it was read with its version"))
    };
    Ok(charged.iter().map(update).collect())
}

/// Others count the same for all their lives.
fn can_grow(kind: &Kind) -> bool {
    kind.group.is_empty() && matches!(kind.kind, "Pod" | "Service" | "PersistentVolumeClaim")
}
