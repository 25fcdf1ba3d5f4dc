//! The contract every engine fulfils, as proved by `tests/contract.rs`.
//!
//! Invariants:
//! 1. One global revision counter; one revision per write batch; it never
//!    decreases and never skips back over a crash.
//! 2. A write is acknowledged only after it is on disk.
//! 3. A watch delivers every change after its start exactly once, in
//!    revision order, or ends with an error. It never skips in silence.
//! 4. All entries of one listing belong to one revision.
//! 5. An entry whose value can not be opened is an error for who gets it, and
//!    is left out of listings and watches: nobody is handed what is not there.
//!    A listing says how many it left out, as they are there all the same.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Entry, Event, Revision, SealError, Size};

#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The revision of the newest acknowledged write, whoever made it. Reads
    /// that follow show it, so this is also how to read nothing stale.
    async fn revision(&self) -> Result<Revision, ReadError>;

    /// The revision that reads show now. Asks nobody, never goes back.
    fn shown(&self) -> Revision;

    async fn get(&self, key: &str) -> Result<Option<Arc<Entry>>, ReadError>;

    /// Entries below a prefix in key order, all of one revision.
    async fn list(&self, request: ListRequest<'_>) -> Result<Listing, ReadError>;

    /// Applies all operations at one new revision, or none of them. The keys
    /// of one batch differ; it has at most [`BATCH_MAX`] of them.
    async fn write(&self, batch: Vec<Op>) -> Result<Revision, WriteError>;

    /// Every change below `prefix` with a revision greater than `after`.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, WatchError>;

    /// How full it is, if it is us who have to look after that.
    fn size(&self) -> Option<Size> {
        None
    }

    /// Forgets history up to and including `through`.
    async fn compact(&self, through: Revision) -> Result<(), ReadError>;
}

/// Operations in one batch: more than this etcd refuses unless told otherwise.
pub const BATCH_MAX: usize = 128;

/// A running watch. Dropping it ends it.
#[async_trait]
pub trait Watch: Send {
    /// Waits for changes. Cancel-safe: what was not returned is not lost.
    async fn next(&mut self) -> Result<Delivery, WatchError>;

    /// What is there already, possibly nothing; `through` is up to date.
    /// This is what bookmarks are made of.
    async fn poll(&mut self) -> Result<Delivery, WatchError>;

    /// False: the last [`Watch::poll`] has returned all there is.
    fn has_news(&self) -> bool;
}

/// Changes in revision order.
#[derive(Debug, Clone, Default)]
pub struct Delivery {
    pub events: Vec<Arc<Event>>,
    /// Every change up to this revision has now been delivered.
    pub through: Revision,
}

/// What to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListRequest<'a> {
    pub prefix: &'a str,
    /// Only keys greater than this one.
    pub after: Option<&'a str>,
    /// At most this many entries.
    pub limit: Option<usize>,
    /// The state at this revision instead of the newest.
    pub at: Option<Revision>,
}

impl<'a> ListRequest<'a> {
    pub fn all(prefix: &'a str) -> Self {
        Self { prefix, ..Self::default() }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Listing {
    pub entries: Vec<Arc<Entry>>,
    /// The revision the entries belong to.
    pub revision: Revision,
    /// How many further entries the limit cut off.
    pub remaining: usize,
    /// How many there are, also beyond the limit, whose values can not be
    /// opened now. They are not among the entries.
    pub unreadable: usize,
}

/// One conditional operation of a batch.
#[derive(Debug, Clone)]
pub struct Op {
    pub key: Arc<str>,
    pub condition: Condition,
    pub effect: Effect,
}

/// What an operation does to its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Put(Bytes),
    Delete,
    /// Nothing: its condition alone counts. A batch has other operations, too.
    Keep,
}

/// What must hold for an operation, and with it for its whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Absent,
    /// The key's last modification has exactly this revision.
    Unchanged(Revision),
}

impl Op {
    pub fn create(key: impl Into<Arc<str>>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), condition: Condition::Absent, effect: Effect::Put(value.into()) }
    }

    pub fn update(key: impl Into<Arc<str>>, value: impl Into<Bytes>, seen: Revision) -> Self {
        Self { key: key.into(), condition: Condition::Unchanged(seen), effect: Effect::Put(value.into()) }
    }

    pub fn delete(key: impl Into<Arc<str>>, seen: Revision) -> Self {
        Self { key: key.into(), condition: Condition::Unchanged(seen), effect: Effect::Delete }
    }

    /// The batch is written only if this key is as it was seen.
    pub fn guard(key: impl Into<Arc<str>>, seen: Revision) -> Self {
        Self { key: key.into(), condition: Condition::Unchanged(seen), effect: Effect::Keep }
    }

    pub(crate) fn value(&self) -> Option<&Bytes> {
        match &self.effect {
            Effect::Put(value) => Some(value),
            Effect::Delete | Effect::Keep => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another instance here) serves this file.
    #[error("store {path}: in use by another process")]
    InUse { path: PathBuf },
    /// Start the newer program, or restore a backup.
    #[error("store {path}: has format {found}, this program reads up to format {supported}")]
    NewerFormat { path: PathBuf, found: u64, supported: u64 },
    /// Restore a backup: the file can not be trusted.
    #[error("store {path}: file is damaged: {detail}")]
    Damaged { path: PathBuf, detail: String },
    #[error("store {path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// Look after etcd, or after how it is named.
    #[error("etcd at {addresses}: {detail}")]
    Etcd { addresses: String, detail: String },
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// List anew without a revision.
    #[error("revision {wanted} is compacted, the oldest is {oldest}")]
    Compacted { wanted: Revision, oldest: Revision },
    /// Wait, or ask for less.
    #[error("revision {wanted} is in the future, the newest is {newest}")]
    Future { wanted: Revision, newest: Revision },
    /// The entry is there and can not be read; others can.
    #[error("{fault}")]
    Sealed {
        fault: SealError,
        /// By which it can be removed.
        modified: Revision,
    },
    #[error("store is unavailable: {detail}")]
    Unavailable { detail: String },
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A condition did not hold; nothing was written.
    #[error("operation {index} on {key}: the condition does not hold")]
    Conflict {
        index: usize,
        key: Arc<str>,
        /// What is there instead, if it can be read, so that the caller can
        /// try again at once.
        current: Option<Arc<Entry>>,
    },
    /// The batch can never be written.
    #[error("value of {key} has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLarge { key: Arc<str>, bytes: usize, bytes_max: usize },
    /// Delete something, or raise the quota; nothing was written. In etcd's
    /// words, which clients know.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// Whether the write happened is unknown.
    #[error("store is unavailable: {detail}")]
    Unavailable { detail: String },
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// History does not reach back to the wanted revision, or the consumer
    /// was too slow. List anew, then watch.
    #[error("revision {wanted} is compacted, the oldest is {oldest}")]
    Compacted { wanted: Revision, oldest: Revision },
    #[error("revision {wanted} is in the future, the newest is {newest}")]
    Future { wanted: Revision, newest: Revision },
    /// The store was closed.
    #[error("store is unavailable: {detail}")]
    Unavailable { detail: String },
}
