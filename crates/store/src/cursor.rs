//! Watches of the engines that keep their history in memory.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::cache::{self, Cache, Signal};
use crate::{Delivery, Revision, Watch, WatchError};

/// A watch is a position in the shared history: it buffers nothing, and a
/// consumer slower than the history window gets an error (traps B2 S7).
pub(crate) struct Cursor {
    cache: Arc<RwLock<Cache>>,
    prefix: Box<str>,
    through: Revision,
    signal: watch::Receiver<Signal>,
    /// There may be more than was delivered last.
    is_behind: bool,
}

/// Changes handed over at once, so that one watcher can not hold the lock long.
const DELIVERY_MAX: usize = 1024;
/// Their cost, so that a consumer that stands still keeps little of what the
/// history has forgotten meanwhile.
const DELIVERY_BYTES_MAX: usize = 1 << 20;

impl Cursor {
    pub(crate) fn open(shared: &Arc<RwLock<Cache>>, prefix: &str, after: Revision) -> Result<Self, WatchError> {
        let known = {
            let cache = cache::read(shared);
            cache.may_watch(prefix, after)?;
            cache.signal(prefix)
        };
        let signal = known.unwrap_or_else(|| cache::write(shared).signal_of_new_topic(prefix));
        Ok(Self { cache: Arc::clone(shared), prefix: prefix.into(), through: after, signal, is_behind: true })
    }

    fn advance(&mut self) -> Result<Delivery, WatchError> {
        let delivery =
            cache::read(&self.cache).changes(&self.prefix, self.through, (DELIVERY_MAX, DELIVERY_BYTES_MAX))?;
        self.through = delivery.through;
        self.is_behind = !delivery.events.is_empty();
        Ok(delivery)
    }
}

#[async_trait]
impl Watch for Cursor {
    async fn next(&mut self) -> Result<Delivery, WatchError> {
        loop {
            // Marked as seen before looking, so that a change in between
            // wakes the next wait.
            let is_closed = matches!(*self.signal.borrow_and_update(), Signal::Closed);
            let delivery = self.advance()?;
            if !delivery.events.is_empty() {
                return Ok(delivery);
            }
            if is_closed || self.signal.changed().await.is_err() {
                return Err(WatchError::Unavailable { detail: "the store was closed".into() });
            }
        }
    }

    async fn poll(&mut self) -> Result<Delivery, WatchError> {
        self.signal.mark_unchanged();
        self.advance()
    }

    fn has_news(&self) -> bool {
        self.is_behind || self.signal.has_changed().unwrap_or(true)
    }
}
