//! The embedded engine: one file, one writer thread, reads from memory.
//!
//! Reads never touch the disk: the newest state and a bounded history live in
//! memory (`../cache.rs`). Writes queue to one thread (`writer.rs`) that commits
//! many of them with one fsync (`disk.rs`), publishes them, then answers.

mod disk;
mod writer;

use std::path::Path;
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use crate::cache::{self, Cache, Window};
use crate::cursor::Cursor;
use crate::pending::check_size;
use crate::{Entry, ListRequest, Listing, Op, OpenError, Plain, ReadError, Revision, Seal};
use crate::{Size, Store, Watch, WatchError, WriteError, quota};
use writer::{Submission, Writer};

/// Sizes of the engine's buffers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Changes remembered per topic (the first two segments of a key), which
    /// is also how far a watcher may fall behind before it is closed
    /// (API-321).
    pub history_per_topic_max: usize,
    /// Bytes those may take, about.
    pub history_bytes_per_topic_max: usize,
    /// Writes waiting for the writer thread; more of them wait outside.
    pub queue_max: usize,
    /// Write batches that share one commit.
    pub group_max: usize,
    /// Bytes in one value.
    pub value_bytes_max: usize,
    /// Bytes of the file kept in memory by the storage library. Small: reads
    /// come from our own cache.
    pub page_cache_bytes: usize,
    /// Bytes of live keys and values; a part of them is reserved for the system.
    pub quota_bytes: u64,
    /// How values are kept in the file.
    pub seal: Arc<dyn Seal>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history_per_topic_max: 8192,
            history_bytes_per_topic_max: 16 << 20,
            queue_max: 4096,
            group_max: 512,
            value_bytes_max: 8 << 20,
            page_cache_bytes: 8 << 20,
            quota_bytes: 2 << 30,
            seal: Arc::new(Plain),
        }
    }
}

/// The embedded engine. Dropping it finishes queued writes and closes the file.
#[derive(Debug)]
pub struct Embedded {
    cache: Arc<RwLock<Cache>>,
    submissions: Option<mpsc::Sender<Submission>>,
    writer: Option<JoinHandle<()>>,
    value_bytes_max: usize,
    quota_bytes: u64,
}

impl Embedded {
    /// Opens or creates the file and loads it. Blocks: call it at start.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        let Options { page_cache_bytes, seal, .. } = options;
        let file = disk::Location { path: path.to_owned(), page_cache_bytes, seal };
        let (disk, image) = disk::open(&file)?;
        let window =
            Window { events_max: options.history_per_topic_max, bytes_max: options.history_bytes_per_topic_max };
        let cache = Arc::new(RwLock::new(Cache::new(image, window)));
        let (submissions, queue) = mpsc::channel(options.queue_max);
        let writer = Writer::new(file, disk, Arc::clone(&cache), options.group_max, options.quota_bytes);
        let writer = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run(queue))
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Self {
            cache,
            submissions: Some(submissions),
            writer: Some(writer),
            value_bytes_max: options.value_bytes_max,
            quota_bytes: options.quota_bytes,
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, Cache> {
        cache::read(&self.cache)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.submissions = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the store's writer thread had panicked");
        }
        cache::write(&self.cache).close();
    }
}

#[async_trait]
impl Store for Embedded {
    async fn revision(&self) -> Result<Revision, ReadError> {
        Ok(self.read().revision())
    }

    fn shown(&self) -> Revision {
        self.read().revision()
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<Entry>>, ReadError> {
        self.read().read(key)
    }

    async fn list(&self, request: ListRequest<'_>) -> Result<Listing, ReadError> {
        self.read().list(request)
    }

    async fn write(&self, batch: Vec<Op>) -> Result<Revision, WriteError> {
        check_size(&batch, self.value_bytes_max)?;
        let gone = || WriteError::Unavailable { detail: "the writer has stopped".into() };
        let submissions = self.submissions.as_ref().ok_or_else(gone)?;
        let (answer, answered) = oneshot::channel();
        submissions.send(Submission { batch, standing: quota::standing(), answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        Ok(Box::new(Cursor::open(&self.cache, prefix, after)?))
    }

    fn size(&self) -> Option<Size> {
        Some(Size { used: self.read().bytes(), quota: self.quota_bytes })
    }

    async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        cache::write(&self.cache).compact(through)
    }
}
