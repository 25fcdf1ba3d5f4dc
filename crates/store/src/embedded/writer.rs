//! The one thread that writes: drains the queue, decides each batch against
//! the state it leaves behind, commits all of them with one fsync, publishes,
//! answers.
//!
//! After a failed commit nobody knows what the disk holds. Nothing more is
//! accepted until the file was opened again and has told; a full disk that is
//! full no longer heals that way.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::disk::{self, Disk, Location};
use crate::cache::{self, Cache};
use crate::pending::Pending;
use crate::quota::Standing;
use crate::{Change, Op, Revision, Size, WriteError};

/// One batch on its way to disk.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) batch: Vec<Op>,
    pub(crate) standing: Standing,
    pub(crate) answer: oneshot::Sender<Result<Revision, WriteError>>,
}

#[derive(Debug)]
pub(crate) struct Writer {
    location: Location,
    cache: Arc<RwLock<Cache>>,
    group_max: usize,
    quota_bytes: u64,
    /// Somebody was warned that the quota is nearly used up.
    has_warned: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Open(Disk),
    Failed {
        detail: String,
        /// What the failed commit was about: it is on disk whole or not at all.
        unsure: Vec<(Revision, Vec<Change>)>,
        retry_at: Instant,
    },
}

/// Opening reads and checks the whole file, so not for every write.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

impl Writer {
    pub(crate) fn new(
        location: Location,
        disk: Disk,
        cache: Arc<RwLock<Cache>>,
        group_max: usize,
        quota_bytes: u64,
    ) -> Self {
        Self { location, cache, group_max, quota_bytes, has_warned: false, state: State::Open(disk) }
    }

    /// Runs until every sender is gone.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Submission>) {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            while group.len() < self.group_max
                && let Ok(next) = queue.try_recv()
            {
                group.push(next);
            }
            self.reopen();
            self.commit(group);
        }
    }

    fn commit(&mut self, group: Vec<Submission>) {
        let disk = match &self.state {
            State::Open(disk) => disk,
            State::Failed { detail, .. } => return refuse(group.into_iter().map(|each| each.answer), detail),
        };
        let mut pending = Pending::new(&self.cache);
        let (mut changes, mut answers) = (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
        for Submission { batch, standing, answer } in group {
            match pending.apply(batch, Size::limit(self.quota_bytes, standing)) {
                Ok(changed) => {
                    changes.push((pending.revision, changed));
                    answers.push((pending.revision, answer));
                }
                Err(error) => drop(answer.send(Err(error))),
            }
        }
        if changes.is_empty() {
            return;
        }
        if let Err(error) = disk.commit(pending.revision, &pending.overlay) {
            let detail = error.to_string();
            tracing::error!(detail, "the store can not be written");
            refuse(answers.into_iter().map(|(_, answer)| answer), &detail);
            self.state = State::Failed { detail, unsure: changes, retry_at: Instant::now() + RETRY_PAUSE };
            return;
        }
        publish(&self.cache, changes);
        for (revision, answer) in answers {
            // A caller that went away does not need the answer.
            let _ = answer.send(Ok(revision));
        }
        self.warn();
    }

    /// Once each time it becomes tight.
    fn warn(&mut self) {
        let size = Size { used: cache::read(&self.cache).bytes(), quota: self.quota_bytes };
        if size.is_tight() && !self.has_warned {
            tracing::warn!(
                bytes = size.used,
                quota = size.quota,
                "the store is nearly full: delete objects, or raise --quota-backend-bytes"
            );
        }
        self.has_warned = size.is_tight();
    }

    /// After a failure: opens the file again, if it is time to.
    fn reopen(&mut self) {
        let State::Failed { detail, unsure, retry_at } = &mut self.state else { return };
        if Instant::now() < *retry_at {
            return;
        }
        *retry_at = Instant::now() + RETRY_PAUSE;
        let (disk, image) = match disk::open(&self.location) {
            Ok(opened) => opened,
            Err(error) => {
                *detail = error.to_string();
                return tracing::error!(%detail, "the store can not be opened again");
            }
        };
        let known = cache::read(&self.cache).revision();
        let written = unsure.last().map_or(known, |(revision, _)| *revision);
        match image.revision {
            found if found == known => {}
            // The failed commit had come to disk all the same.
            found if found == written => publish(&self.cache, std::mem::take(unsure)),
            found => {
                *detail = format!("the file is at revision {found} and not at {known}: somebody else has changed it");
                return tracing::error!(%detail, "the store can not be used again");
            }
        }
        tracing::info!("the store can be written again");
        self.state = State::Open(disk);
    }
}

fn publish(cache: &RwLock<Cache>, changes: Vec<(Revision, Vec<Change>)>) {
    let mut cache = cache::write(cache);
    let before = cache.revision();
    for (revision, changes) in changes {
        cache.publish(revision, changes);
    }
    cache.wake(before);
}

fn refuse(answers: impl Iterator<Item = oneshot::Sender<Result<Revision, WriteError>>>, detail: &str) {
    for answer in answers {
        let _ = answer.send(Err(WriteError::Unavailable { detail: detail.to_owned() }));
    }
}
