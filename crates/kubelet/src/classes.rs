//! Keeps the cgroups of the QoS classes as the node wants them (LC-334).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cri::CriError;
use lifecycle::CgroupValues;
use tokio::sync::watch;

use crate::cgroup;
use crate::ctx::Ctx;

/// By where they are below the root of all pods.
pub(crate) type Classes = BTreeMap<&'static str, CgroupValues>;

/// What could not be set is tried again after this long.
const AGAIN: Duration = Duration::from_secs(10);

/// Sets them whenever they change, one after the other, until nobody changes
/// them any more. Runtimes of others have no word for it.
pub(crate) async fn keep(ctx: Arc<Ctx>, mut wanted: watch::Receiver<Classes>) {
    loop {
        let classes = wanted.borrow_and_update().clone();
        let is_known = match set(&ctx, &classes).await {
            Err(CriError::Unsupported(_)) => return,
            Err(error) => {
                tracing::warn!(%error, "the cgroups of QoS classes could not be set");
                tokio::time::timeout(AGAIN, wanted.changed()).await.unwrap_or(Ok(()))
            }
            Ok(()) => wanted.changed().await,
        };
        if is_known.is_err() {
            return;
        }
    }
}

async fn set(ctx: &Ctx, classes: &Classes) -> Result<(), CriError> {
    for (class, values) in classes {
        ctx.runtime.update_class(class, cgroup::resources(values)).await?;
    }
    Ok(())
}
