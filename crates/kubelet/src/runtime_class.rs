//! Which of the runtime's ways to run pods a pod's RuntimeClass names.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::{Cache, Scope};
use objects::api::core::v1::Pod;
use objects::api::node::v1::RuntimeClass;

use crate::ctx::Ctx;

/// Followed from the first pod on that has one; most nodes never see any.
pub(crate) type Classes = OnceLock<Arc<Cache<RuntimeClass>>>;

/// Once in the life of an agent; they are there within moments.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Empty: whatever the runtime uses by itself. The error is upstream's.
pub(crate) async fn handler(ctx: &Ctx, pod: &Pod) -> Result<String, String> {
    let name = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref()).unwrap_or_default();
    if name.is_empty() {
        return Ok(String::new());
    }
    let classes = ctx.runtime_classes.get_or_init(|| ctx.client.cache(Scope::everywhere()));
    if tokio::time::timeout(WAIT_MAX, classes.synced()).await.is_err() {
        return Err(format!("failed to lookup RuntimeClass {name}: runtime classes have not yet been read"));
    }
    let found = classes.snapshot().into_iter().find(|class| class.metadata.name.as_deref() == Some(name));
    let found = found.ok_or_else(|| format!("runtimeclass.node.k8s.io {name:?} not found"))?;
    Ok(found.handler.clone())
}
