//! Events do not stay (API-769): an hour after they were last written they are
//! gone, and whoever watches is told.

use std::time::Duration;

use ambient::Timestamp;
use objects::kinds::event;
use serde_json::Value;
use store::{ListRequest, Op, WriteError};

use crate::api::Api;
use crate::error::ApiError;
use crate::object;

const LIFE_SECONDS: i64 = 3600;
/// How late an event may go.
const PERIOD: Duration = Duration::from_secs(60);

/// Never returns.
pub(crate) async fn run(api: &Api) -> std::convert::Infallible {
    let mut passes = tokio::time::interval(PERIOD);
    passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        passes.tick().await;
        if let Err(error) = sweep(api).await {
            tracing::warn!(%error, "old events could not be removed");
        }
    }
}

/// Removes every event that is over now.
pub(crate) async fn sweep(api: &Api) -> Result<(), ApiError> {
    let now = api.clock.now().wall;
    let listing = api.store.list(ListRequest::all(&object::prefix(&event::KIND, None))).await?;
    let over = listing.entries.iter().filter(|entry| is_over(&object::document(entry), now));
    let ops: Vec<Op> = over.map(|entry| Op::delete(entry.key.clone(), entry.modified)).collect();
    for batch in ops.chunks(store::BATCH_MAX) {
        match api.store.write(batch.to_vec()).await {
            // Somebody wrote one of them: the next pass knows more.
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Every write leaves its time with whom it made an owner.
fn is_over(doc: &Value, now: Timestamp) -> bool {
    let owners = object::at(doc, &["metadata", "managedFields"]).as_array().into_iter().flatten();
    let times = owners.map(|owner| object::text(owner, &["time"]));
    let times = times.chain([object::text(doc, &["metadata", "creationTimestamp"])]);
    let last = times.filter_map(|time| time.parse::<Timestamp>().ok()).max();
    last.is_some_and(|last| now.as_second() - last.as_second() >= LIFE_SECONDS)
}
