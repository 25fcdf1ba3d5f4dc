//! How large the store may become. Ordinary work must leave a reserve alone,
//! so that the system can go on, and clean up, when others have filled the
//! rest. What counts is what is live: keys and values, so that deleting
//! something makes room at once.

use std::future::Future;

use crate::Entry;

/// What the store holds and may hold, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub used: u64,
    pub quota: u64,
}

/// One part in so many is the reserve.
const RESERVE_PART: u64 = 20;
/// What an entry takes beside its key and value, about.
const ENTRY_BYTES: u64 = 64;
/// A warning is due from here on, in percent.
const WARNING_PERCENT: u64 = 80;

impl Size {
    pub(crate) fn of(entry: &Entry) -> u64 {
        (entry.key.len() + entry.value.len()) as u64 + ENTRY_BYTES
    }

    /// What this work may fill.
    pub(crate) fn limit(quota: u64, standing: Standing) -> u64 {
        match standing {
            Standing::Ordinary => quota - quota / RESERVE_PART,
            Standing::System => quota,
            Standing::Freeing => u64::MAX,
        }
    }

    pub(crate) fn is_tight(self) -> bool {
        self.used.saturating_mul(100) >= self.quota.saturating_mul(WARNING_PERCENT)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Ordinary,
    /// May use the reserve.
    System,
    /// Makes room: the mark of a deletion comes before the deletion and is a
    /// little larger than nothing.
    Freeing,
}

tokio::task_local! {
    static STANDING: Standing;
}

/// Whatever this work writes, however deep inside, leaves the reserve alone.
pub async fn sparing_the_reserve<F: Future>(work: F) -> F::Output {
    STANDING.scope(Standing::Ordinary, work).await
}

/// Whatever this work writes, it writes in order to delete: a store that is
/// full must not keep anybody from emptying it.
pub async fn making_room<F: Future>(work: F) -> F::Output {
    STANDING.scope(Standing::Freeing, work).await
}

/// Of whoever asks.
pub(crate) fn standing() -> Standing {
    STANDING.try_with(|standing| *standing).unwrap_or(Standing::System)
}
