//! What the store holds and tells: entries, the changes to them, and the
//! revision that orders both.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::{SealError, Size};

/// A moment in the store's history. Every write batch gets the next one; it
/// never decreases, not even over a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One key at one revision. Shared, never copied: readers and watchers hold
/// the same `Arc`.
#[derive(Debug)]
pub struct Entry {
    pub key: Arc<str>,
    pub value: Bytes,
    /// Revision of the write that created the key.
    pub created: Revision,
    /// Revision of the write that made this value.
    pub modified: Revision,
    fault: Option<Box<SealError>>,
    memo: Memo,
}

impl Entry {
    pub(crate) fn new(key: Arc<str>, value: Bytes, created: Revision, modified: Revision) -> Self {
        Self { key, value, created, modified, fault: None, memo: Memo::default() }
    }

    /// An entry whose value is kept but can not be read; it seems empty.
    pub(crate) fn opened(
        key: Arc<str>,
        value: Result<Bytes, SealError>,
        created: Revision,
        modified: Revision,
    ) -> Self {
        let (value, fault) = match value {
            Ok(value) => (value, None),
            Err(fault) => (Bytes::new(), Some(Box::new(fault))),
        };
        Self { fault, ..Self::new(key, value, created, modified) }
    }

    /// Why the value can not be read, if so. Nobody should look at it then.
    pub fn fault(&self) -> Option<&SealError> {
        self.fault.as_deref()
    }

    /// Something derived from this entry, computed at most once however many
    /// readers ask, and dropped with it. One type per store.
    pub fn memo<T: Any + Send + Sync>(&self, derive: impl FnOnce() -> T) -> &T {
        self.memo.of(derive)
    }
}

/// One change to one key.
#[derive(Debug)]
pub struct Event {
    pub revision: Revision,
    pub change: Change,
    memo: Memo,
}

/// What happened to a key.
#[derive(Debug, Clone)]
pub enum Change {
    Created(Arc<Entry>),
    Updated { before: Arc<Entry>, now: Arc<Entry> },
    Deleted { before: Arc<Entry> },
}

impl Change {
    /// How many bytes are live after it, of so many before.
    pub(crate) fn resized(&self, bytes: u64) -> u64 {
        let (before, now) = match self {
            Self::Created(now) => (None, Some(now)),
            Self::Updated { before, now } => (Some(before), Some(now)),
            Self::Deleted { before } => (Some(before), None),
        };
        let size = |entry: Option<&Arc<Entry>>| entry.map_or(0, |entry| Size::of(entry));
        (bytes + size(now)).saturating_sub(size(before))
    }
}

impl Event {
    pub(crate) fn new(revision: Revision, change: Change) -> Self {
        Self { revision, change, memo: Memo::default() }
    }

    pub fn key(&self) -> &Arc<str> {
        match &self.change {
            Change::Created(now) | Change::Updated { now, .. } => &now.key,
            Change::Deleted { before } => &before.key,
        }
    }

    /// The entry before the change, if it can be read.
    pub fn before(&self) -> Option<&Arc<Entry>> {
        let before = match &self.change {
            Change::Created(_) => None,
            Change::Updated { before, .. } | Change::Deleted { before } => Some(before),
        };
        before.filter(|entry| entry.fault().is_none())
    }

    /// The entry after the change, if it can be read.
    pub fn now(&self) -> Option<&Arc<Entry>> {
        let now = match &self.change {
            Change::Created(now) | Change::Updated { now, .. } => Some(now),
            Change::Deleted { .. } => None,
        };
        now.filter(|entry| entry.fault().is_none())
    }

    /// As [`Entry::memo`], for what watchers derive from a change.
    pub fn memo<T: Any + Send + Sync>(&self, derive: impl FnOnce() -> T) -> &T {
        self.memo.of(derive)
    }
}

#[derive(Default)]
struct Memo(OnceLock<Box<dyn Any + Send + Sync>>);

impl Memo {
    fn of<T: Any + Send + Sync>(&self, derive: impl FnOnce() -> T) -> &T {
        let held = self.0.get_or_init(|| Box::new(derive()));
        held.downcast_ref().expect("one store has one user, which derives one type")
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "derived" } else { "empty" })
    }
}
