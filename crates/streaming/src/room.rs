//! How much clients may have said that nobody has taken yet. What a client
//! sends keeps its place until it is written to where it was meant for, so
//! that a command that reads nothing costs no more than this.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of all streams that share a room; a frame or message fits in any case.
pub(crate) const UNREAD_BYTES_MAX: usize = 4 << 20;

/// Shared by all its clones: one for everything that leads to one pod.
#[derive(Debug, Clone)]
pub struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(UNREAD_BYTES_MAX)))
    }
}

/// The place of something that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Place(#[expect(dead_code, reason = "given back when it goes")] Option<OwnedSemaphorePermit>);

impl Place {
    /// Of what takes none.
    pub(crate) const NONE: Self = Self(None);
}

impl Room {
    /// Waits until there is room for so much.
    pub(crate) async fn take(&self, bytes: usize) -> Place {
        let bytes = u32::try_from(bytes.min(UNREAD_BYTES_MAX)).unwrap_or(u32::MAX);
        Place(self.0.clone().acquire_many_owned(bytes).await.ok())
    }
}
