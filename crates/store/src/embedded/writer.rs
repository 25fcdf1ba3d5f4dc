//! The one thread that writes: drains the queue, decides each batch against
//! the state it leaves behind, commits all of them with one fsync, publishes,
//! answers.

use std::sync::RwLock;

use tokio::sync::{mpsc, oneshot};

use super::disk::Disk;
use crate::cache::{self, Cache};
use crate::pending::Pending;
use crate::{Op, Revision, WriteError};

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
    let mut pending = Pending::new(cache);
    let start = pending.revision;
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
        let mut cache = cache::write(cache);
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
