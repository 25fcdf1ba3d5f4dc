//! Whether a batch may be written, and what it changes, on top of batches
//! that were accepted but are not visible yet.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use crate::cache::{self, Cache};
use crate::{BATCH_MAX, Change, Condition, Effect, Entry, Op, Revision, WriteError};

/// The state as it will be once everything accepted is visible.
pub(crate) struct Pending<'a> {
    cache: &'a RwLock<Cache>,
    pub(crate) revision: Revision,
    pub(crate) overlay: BTreeMap<Arc<str>, Option<Arc<Entry>>>,
    /// What will be live.
    bytes: u64,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(cache: &'a RwLock<Cache>) -> Self {
        let (revision, bytes) = {
            let cache = cache::read(cache);
            (cache.revision(), cache.bytes())
        };
        Self { cache, revision, overlay: BTreeMap::new(), bytes }
    }

    fn current(&self, key: &str) -> Option<Arc<Entry>> {
        match self.overlay.get(key) {
            Some(pending) => pending.clone(),
            None => cache::read(self.cache).get(key),
        }
    }

    /// Nothing may grow beyond `bytes_max`; what shrinks may always be written.
    pub(crate) fn apply(&mut self, batch: Vec<Op>, bytes_max: u64) -> Result<Vec<Change>, WriteError> {
        let mut before = Vec::with_capacity(batch.len());
        for (index, op) in batch.iter().enumerate() {
            let current = self.current(&op.key);
            if !holds(op.condition, current.as_deref()) {
                let current = current.filter(|entry| entry.fault().is_none());
                return Err(WriteError::Conflict { index, key: Arc::clone(&op.key), current });
            }
            before.push(current);
        }
        let revision = self.revision.next();
        let changes: Vec<_> =
            batch.into_iter().zip(before).filter_map(|(op, before)| change(op, before, revision)).collect();
        let bytes = changes.iter().fold(self.bytes, |bytes, change| change.resized(bytes));
        if bytes > self.bytes && bytes > bytes_max {
            return Err(WriteError::NoSpace);
        }
        (self.revision, self.bytes) = (revision, bytes);
        for change in &changes {
            let (key, entry) = match change {
                Change::Created(now) | Change::Updated { now, .. } => (&now.key, Some(Arc::clone(now))),
                Change::Deleted { before } => (&before.key, None),
            };
            self.overlay.insert(Arc::clone(key), entry);
        }
        Ok(changes)
    }
}

/// Refuses a batch that can never be written.
pub(crate) fn check_size(batch: &[Op], bytes_max: usize) -> Result<(), WriteError> {
    assert!(batch.len() <= BATCH_MAX, "a batch of {} is more than any engine takes", batch.len());
    // It would get a revision of its own here and none in etcd.
    assert!(batch.iter().any(|op| op.effect != Effect::Keep), "a batch changes something");
    for op in batch {
        let bytes = op.value().map_or(0, bytes::Bytes::len);
        if bytes > bytes_max {
            return Err(WriteError::TooLarge { key: Arc::clone(&op.key), bytes, bytes_max });
        }
    }
    Ok(())
}

pub(crate) fn holds(condition: Condition, current: Option<&Entry>) -> bool {
    match (condition, current) {
        (Condition::Absent, current) => current.is_none(),
        (Condition::Unchanged(seen), Some(current)) => current.modified == seen,
        (Condition::Unchanged(_), None) => false,
    }
}

fn change(op: Op, before: Option<Arc<Entry>>, revision: Revision) -> Option<Change> {
    let created = before.as_ref().map_or(revision, |before| before.created);
    let now = |value| Arc::new(Entry::new(op.key, value, created, revision));
    match (before, op.effect) {
        (None, Effect::Put(value)) => Some(Change::Created(now(value))),
        (Some(before), Effect::Put(value)) => Some(Change::Updated { before, now: now(value) }),
        (Some(before), Effect::Delete) => Some(Change::Deleted { before }),
        (None, Effect::Delete) | (_, Effect::Keep) => None,
    }
}
