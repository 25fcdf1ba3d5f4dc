//! How much clients may have said that nobody has taken yet. What a client
//! sends keeps its place until it is written to where it was meant for, so
//! that a command that reads nothing costs no more than this.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of all streams that share a room; a frame or message fits in any case.
pub(crate) const UNREAD_BYTES_MAX: usize = 4 << 20;
/// What each client has besides, whatever others leave unread: the next
/// message, however long, finds it whenever the one before was taken.
const OWN_BYTES: usize = 64 << 10;

/// Who speaks to somebody who does not listen is asked for a sign of life that
/// often: nothing else tells that it has gone while its words are not read.
const ASKING_PERIOD: Duration = Duration::from_secs(10);

/// One for everything that leads to one pod.
#[derive(Debug, Clone)]
pub struct Room {
    /// Shared by all.
    common: Arc<Semaphore>,
    /// Of one client.
    own: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Self { common: Arc::new(Semaphore::new(UNREAD_BYTES_MAX)), own: Arc::new(Semaphore::new(OWN_BYTES)) }
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
    /// The same room, for another client.
    pub(crate) fn of_one(self) -> Self {
        Self { own: Arc::new(Semaphore::new(OWN_BYTES)), ..self }
    }

    /// Waits until there is room for so much.
    pub(crate) async fn take(&self, bytes: usize) -> Place {
        let of = |room: &Arc<Semaphore>, most: usize| {
            let bytes = u32::try_from(bytes.min(most)).unwrap_or(u32::MAX);
            room.clone().acquire_many_owned(bytes)
        };
        let permit = tokio::select! {
            biased;
            permit = of(&self.common, UNREAD_BYTES_MAX) => permit,
            permit = of(&self.own, OWN_BYTES) => permit,
        };
        Place(permit.ok())
    }
}

/// Waits until `passing` is over, and `asks` the client now and then whether it
/// is still there.
pub(crate) async fn asking(passing: impl Future<Output = ()>, mut asks: impl FnMut()) {
    let mut passing = pin!(passing);
    while tokio::time::timeout(ASKING_PERIOD, &mut passing).await.is_err() {
        asks();
    }
}
