//! The one thread that writes: drains the queue, decides each batch against
//! the state it leaves behind, commits all of them with one fsync, publishes,
//! answers.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use tokio::sync::{mpsc, oneshot};

use super::cache::Cache;
use super::disk::Disk;
use crate::{Change, Condition, Entry, Op, Revision, WriteError};

/// One batch on its way to disk.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) batch: Vec<Op>,
    pub(crate) answer: oneshot::Sender<Result<Revision, WriteError>>,
}

/// Runs until every sender is gone.
pub(crate) fn run(disk: Disk, cache: &RwLock<Cache>, mut queue: mpsc::Receiver<Submission>, group_max: usize) {
    let mut failure: Option<String> = None;
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < group_max
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
        if failure.is_none() {
            failure = commit(&disk, cache, group).err();
        } else if let Some(detail) = &failure {
            refuse(group, detail);
        }
    }
}

/// After a failed commit nobody knows what the disk holds, so nothing more is
/// accepted until the file was opened again.
fn refuse(group: Vec<Submission>, detail: &str) {
    for submission in group {
        let _ = submission.answer.send(Err(WriteError::Unavailable { detail: detail.to_owned() }));
    }
}

fn commit(disk: &Disk, cache: &RwLock<Cache>, group: Vec<Submission>) -> Result<(), String> {
    let start = super::read(cache).revision();
    let mut pending = Pending { cache, revision: start, overlay: BTreeMap::new() };
    let mut accepted = Vec::with_capacity(group.len());
    for Submission { batch, answer } in group {
        match pending.apply(batch) {
            Ok(changes) => accepted.push((pending.revision, changes, answer)),
            Err(error) => drop(answer.send(Err(error))),
        }
    }
    if accepted.is_empty() {
        return Ok(());
    }
    let end = pending.revision;
    if let Err(error) = disk.commit(end, &pending.overlay) {
        let detail = error.to_string();
        tracing::error!(%detail, "the store can not write any more");
        for (_, _, answer) in accepted {
            let _ = answer.send(Err(WriteError::Unavailable { detail: detail.clone() }));
        }
        return Err(detail);
    }
    let mut answers = Vec::with_capacity(accepted.len());
    {
        let mut cache = cache.write().expect("never poisoned, see read()");
        for (revision, changes, answer) in accepted {
            cache.publish(revision, changes);
            answers.push((revision, answer));
        }
        cache.wake(start);
    }
    for (revision, answer) in answers {
        // A caller that went away does not need the answer.
        let _ = answer.send(Ok(revision));
    }
    Ok(())
}

/// The state as it will be once the group is on disk.
struct Pending<'a> {
    cache: &'a RwLock<Cache>,
    revision: Revision,
    overlay: BTreeMap<Arc<str>, Option<Arc<Entry>>>,
}

impl Pending<'_> {
    fn current(&self, key: &str) -> Option<Arc<Entry>> {
        match self.overlay.get(key) {
            Some(pending) => pending.clone(),
            None => super::read(self.cache).get(key),
        }
    }

    fn apply(&mut self, batch: Vec<Op>) -> Result<Vec<Change>, WriteError> {
        let mut before = Vec::with_capacity(batch.len());
        for (index, op) in batch.iter().enumerate() {
            let current = self.current(&op.key);
            if !holds(op.condition, current.as_deref()) {
                return Err(WriteError::Conflict { index, key: Arc::clone(&op.key), current });
            }
            before.push(current);
        }
        let revision = self.revision.next();
        let changes: Vec<_> =
            batch.into_iter().zip(before).filter_map(|(op, before)| change(op, before, revision)).collect();
        self.revision = revision;
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

fn holds(condition: Condition, current: Option<&Entry>) -> bool {
    match (condition, current) {
        (Condition::Absent, current) => current.is_none(),
        (Condition::Unchanged(seen), Some(current)) => current.modified == seen,
        (Condition::Unchanged(_), None) => false,
    }
}

fn change(op: Op, before: Option<Arc<Entry>>, revision: Revision) -> Option<Change> {
    let created = before.as_ref().map_or(revision, |before| before.created);
    let now = op.value.map(|value| Arc::new(Entry::new(op.key, value, created, revision)));
    match (before, now) {
        (None, Some(now)) => Some(Change::Created(now)),
        (Some(before), Some(now)) => Some(Change::Updated { before, now }),
        (Some(before), None) => Some(Change::Deleted { before }),
        (None, None) => None,
    }
}
