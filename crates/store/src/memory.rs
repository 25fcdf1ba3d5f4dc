//! An engine without a disk: for tests and for simulation, where time stands
//! still while nothing runs, so a write must not wait for another thread.

use std::sync::{Arc, Mutex, RwLock};

use async_trait::async_trait;

use crate::cache::{self, Cache, Image, Window};
use crate::cursor::Cursor;
use crate::pending::{Pending, check_size};
use crate::{Entry, ListRequest, Listing, Op, Options, ReadError, Revision, Store, Watch, WatchError, WriteError};

/// Forgets everything when dropped.
#[derive(Debug)]
pub struct Memory {
    cache: Arc<RwLock<Cache>>,
    /// Held from deciding a batch to publishing it.
    turn: Mutex<()>,
}

impl Memory {
    pub fn new(history_per_topic_max: usize) -> Self {
        let cache = Cache::new(Image::default(), Window { events_max: history_per_topic_max, bytes_max: usize::MAX });
        Self { cache: Arc::new(RwLock::new(cache)), turn: Mutex::new(()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        cache::write(&self.cache).close();
    }
}

#[async_trait]
impl Store for Memory {
    async fn revision(&self) -> Result<Revision, ReadError> {
        Ok(cache::read(&self.cache).revision())
    }

    fn shown(&self) -> Revision {
        cache::read(&self.cache).revision()
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<Entry>>, ReadError> {
        cache::read(&self.cache).read(key)
    }

    async fn list(&self, request: ListRequest<'_>) -> Result<Listing, ReadError> {
        cache::read(&self.cache).list(request)
    }

    async fn write(&self, batch: Vec<Op>) -> Result<Revision, WriteError> {
        check_size(&batch, Options::default().value_bytes_max)?;
        let _turn = self.turn.lock().expect("never poisoned: nothing here panics halfway");
        let mut pending = Pending::new(&self.cache);
        let before = pending.revision;
        let changes = pending.apply(batch, u64::MAX)?;
        let revision = pending.revision;
        let mut cache = cache::write(&self.cache);
        cache.publish(revision, changes);
        cache.wake(before);
        Ok(revision)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        Ok(Box::new(Cursor::open(&self.cache, prefix, after)?))
    }

    async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        cache::write(&self.cache).compact(through)
    }
}
