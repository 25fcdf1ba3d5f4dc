//! The etcd engine: what is written goes to etcd, what is read comes from
//! memory.
//!
//! One watch of all of etcd's keys (`etcd/follow.rs`) feeds the same cache the
//! embedded engine has. Keys outside the prefix are not kept, but their
//! revisions count: so the cache is known to be current when it has come to
//! the revision etcd names, without asking etcd for its progress, which some
//! of its versions answer too early (traps B2 S5). A write is one transaction
//! and is answered when the cache shows it. While etcd can not be reached,
//! writes and questions for the newest revision fail; the cache stays, and
//! everything goes on by itself when etcd is back.

mod follow;
mod link;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::cache::{self, Cache, Window};
use crate::cursor::Cursor;
use crate::pending::{check_size, holds};
use crate::{Condition, Effect, Entry, ListRequest, Listing, Op, OpenError, Options, ReadError, Revision, Seal};
use crate::{Store, Watch, WatchError, WriteError};
use follow::{Follower, entry};
use link::Link;
use wire::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, RequestOp, TxnRequest, TxnResponse};

/// Where etcd is and what of it is ours.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT` of one or more members.
    pub addresses: Vec<String>,
    /// Whom to believe and what to show, for `https`.
    pub tls: Option<rustls::ClientConfig>,
    /// All keys written here start with it; others are left alone.
    pub prefix: Arc<str>,
    /// History older than this is compacted in etcd.
    pub compact_after: Duration,
    /// How long to try before giving up at start.
    pub patience: Duration,
    /// Bytes in one value: etcd accepts requests of 1.5 MiB unless told otherwise.
    pub value_bytes_max: usize,
    pub history_per_topic_max: usize,
    pub history_bytes_per_topic_max: usize,
    /// How values are kept in etcd.
    pub seal: Arc<dyn Seal>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        let embedded = Options::default();
        Self {
            addresses: Vec::new(),
            tls: None,
            prefix: "/registry/".into(),
            compact_after: Duration::from_secs(300),
            patience: Duration::from_secs(15),
            value_bytes_max: 1_500_000,
            history_per_topic_max: embedded.history_per_topic_max,
            history_bytes_per_topic_max: embedded.history_bytes_per_topic_max,
            seal: embedded.seal,
        }
    }
}

/// The etcd engine. Several of them, in several processes, may share one etcd.
#[derive(Debug)]
pub struct Etcd {
    cache: Arc<RwLock<Cache>>,
    link: Arc<Link>,
    /// How far the cache has come.
    seen: watch::Receiver<Revision>,
    newest: Newest,
    value_bytes_max: usize,
    seal: Arc<dyn Seal>,
    tasks: [JoinHandle<()>; 3],
}

/// After a write etcd's own watch needs moments only; a broken one is told
/// apart from a slow one by this.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// A pause between two tries to reach etcd at start.
const TRY_PAUSE: Duration = Duration::from_millis(100);

impl Etcd {
    /// Connects and loads everything below the prefix. Must be called, and
    /// dropped, inside a tokio runtime.
    pub async fn open(options: EtcdOptions) -> Result<Self, OpenError> {
        let addresses = options.addresses.join(",");
        let failed = |detail: String| OpenError::Etcd { addresses: addresses.clone(), detail };
        let link = Arc::new(Link::to(&options.addresses, options.tls).map_err(failed)?);
        let image = async {
            loop {
                match follow::load(&link, &options.prefix, &*options.seal).await {
                    Err(status) if status.code() == Code::Unavailable => {
                        tracing::warn!(etcd = addresses, error = status.message(), "etcd can not be reached");
                        tokio::time::sleep(TRY_PAUSE).await;
                    }
                    other => return other,
                }
            }
        };
        let image = tokio::time::timeout(options.patience, image).await;
        let image = image.map_err(|_| failed(format!("can not be reached since {:?}", options.patience)))?;
        let (image, stale) = image.map_err(|status| failed(status.message().to_owned()))?;
        let window =
            Window { events_max: options.history_per_topic_max, bytes_max: options.history_bytes_per_topic_max };
        let (tell, seen) = watch::channel(image.revision);
        let cache = Arc::new(RwLock::new(Cache::new(image, window)));
        let EtcdOptions { seal, value_bytes_max, .. } = options;
        let follower = Follower {
            link: Arc::clone(&link),
            cache: Arc::clone(&cache),
            seen: tell,
            prefix: options.prefix,
            seal: Arc::clone(&seal),
        };
        let compactor = compact_old(Arc::clone(&link), seen.clone(), options.compact_after);
        let sealer = write_anew(Arc::clone(&link), stale, Arc::clone(&seal));
        let tasks = [tokio::spawn(follower.run()), tokio::spawn(compactor), tokio::spawn(sealer)];
        Ok(Self { cache, link, seen, newest: Newest::default(), value_bytes_max, seal, tasks })
    }

    /// Whether the cache has come to a revision in time.
    async fn shows(&self, revision: Revision) -> bool {
        let mut seen = self.seen.clone();
        let shown = tokio::time::timeout(SHOWN_TIMEOUT, seen.wait_for(|seen| *seen >= revision));
        matches!(shown.await, Ok(Ok(_)))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        cache::write(&self.cache).close();
    }
}

#[async_trait]
impl Store for Etcd {
    async fn revision(&self) -> Result<Revision, ReadError> {
        let before = *self.seen.borrow();
        let newest = self.newest.ask(&self.link).await;
        let newest = newest.map_err(|status| ReadError::Unavailable { detail: told(&status) })?;
        if newest < before {
            let detail =
                format!("etcd went back from revision {before} to {newest}: was a backup restored? Start anew");
            return Err(ReadError::Unavailable { detail });
        }
        if !self.shows(newest).await {
            return Err(ReadError::Unavailable { detail: format!("etcd does not send changes up to {newest}") });
        }
        Ok(newest)
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
        check_size(&batch, self.value_bytes_max)?;
        let sealed = sealed(&batch, &*self.seal)?;
        let answer = self.link.call(transaction(&sealed)).await;
        let answer = answer.map_err(|status| match status.code() {
            Code::ResourceExhausted if status.message().contains("space exceeded") => WriteError::NoSpace,
            _ => WriteError::Unavailable { detail: told(&status) },
        })?;
        let revision = revision_of(answer.header.as_ref());
        // Also after a refusal: whoever tries again must see why. If etcd's
        // watch is broken the write has happened all the same.
        self.shows(revision).await;
        if answer.succeeded { Ok(revision) } else { Err(conflict(&batch, answer, &*self.seal)) }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        Ok(Box::new(Cursor::open(&self.cache, prefix, after)?))
    }

    async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        cache::write(&self.cache).compact(through)?;
        let compacted = compact(&self.link, through).await;
        compacted.map_err(|status| ReadError::Unavailable { detail: told(&status) })
    }
}

/// Many readers share one question: an answer counts for whoever came before
/// it was asked.
#[derive(Debug, Default)]
struct Newest {
    arrivals: AtomicU64,
    /// How many had arrived when it was asked, and the answer.
    last: Mutex<(u64, Revision)>,
}

impl Newest {
    async fn ask(&self, link: &Link) -> Result<Revision, Status> {
        let mine = self.arrivals.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if last.0 <= mine {
            let arrived = self.arrivals.load(Ordering::SeqCst);
            *last = (arrived, follow::newest(link).await?);
        }
        Ok(last.1)
    }
}

fn told(status: &Status) -> String {
    format!("etcd: {}", status.message())
}

fn revision_of(header: Option<&wire::Header>) -> Revision {
    Revision(header.map_or(0, |header| header.revision.unsigned_abs()))
}

fn transaction(batch: &[Op]) -> TxnRequest {
    let key = |op: &Op| Bytes::copy_from_slice(op.key.as_bytes());
    let compare = |op: &Op| {
        let expected = match op.condition {
            Condition::Absent => 0,
            // No key was ever modified at zero; etcd means an absent one by it.
            Condition::Unchanged(Revision(0)) => -1,
            Condition::Unchanged(seen) => i64::try_from(seen.0).unwrap_or(-1),
        };
        Compare { target: wire::MOD, key: key(op), mod_revision: Some(expected) }
    };
    let change = |op: &Op| match &op.effect {
        Effect::Put(value) => Some(Request::Put(PutRequest { key: key(op), value: value.clone() })),
        Effect::Delete => Some(Request::Delete(DeleteRangeRequest { key: key(op) })),
        Effect::Keep => None,
    };
    let look = |op: &Op| Some(Request::Range(RangeRequest { key: key(op), ..RangeRequest::default() }));
    let all = |request: &dyn Fn(&Op) -> Option<Request>| {
        let requests = batch.iter().filter_map(request);
        requests.map(|request| RequestOp { request: Some(request) }).collect::<Vec<_>>()
    };
    TxnRequest { compare: batch.iter().map(compare).collect(), success: all(&change), failure: all(&look) }
}

/// Which condition did not hold, from what a refused transaction has read.
fn conflict(batch: &[Op], answer: TxnResponse, seal: &dyn Seal) -> WriteError {
    for (index, (op, response)) in batch.iter().zip(answer.responses).enumerate() {
        let found = response.range.and_then(|range| range.kvs.into_iter().next());
        let current = found.map(|kv| Arc::new(entry(Arc::clone(&op.key), &kv, seal).0));
        if !holds(op.condition, current.as_deref()) {
            let current = current.filter(|entry| entry.fault().is_none());
            return WriteError::Conflict { index, key: Arc::clone(&op.key), current };
        }
    }
    WriteError::Unavailable { detail: "etcd refused a write whose conditions hold".to_owned() }
}

/// The batch as etcd gets it.
fn sealed(batch: &[Op], seal: &dyn Seal) -> Result<Vec<Op>, WriteError> {
    let sealed = |op: &Op| {
        let mut sealed = op.clone();
        if let Effect::Put(value) = &mut sealed.effect {
            let kept = seal.seal(&op.key, value);
            *value = kept.map_err(|error| WriteError::Unavailable { detail: error.to_string() })?;
        }
        Ok(sealed)
    };
    batch.iter().map(sealed).collect()
}

/// Writes entries again as they should be kept. Who changes one meanwhile has
/// done so already.
async fn write_anew(link: Arc<Link>, stale: Vec<Arc<Entry>>, seal: Arc<dyn Seal>) {
    let count = stale.len();
    for entry in stale {
        let op = Op::update(Arc::clone(&entry.key), entry.value.clone(), entry.modified);
        let written = match sealed(&[op], &*seal) {
            Ok(batch) => link.call(transaction(&batch)).await.map(drop).map_err(|status| told(&status)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = written {
            tracing::warn!(key = %entry.key, error, "a value could not be written anew; the next start tries again");
        }
    }
    if count > 0 {
        tracing::info!(count, "wrote values anew that were not kept as they should");
    }
}

async fn compact(link: &Link, through: Revision) -> Result<(), Status> {
    let revision = i64::try_from(through.0).unwrap_or(i64::MAX);
    match link.call(wire::CompactionRequest { revision }).await {
        Ok(_) => Ok(()),
        // Somebody else was faster.
        Err(status) if status.code() == Code::OutOfRange && status.message().contains("compacted") => Ok(()),
        Err(status) => Err(status),
    }
}

/// Keeps etcd from growing for ever: nobody here reads its history, because
/// the cache has its own.
async fn compact_old(link: Arc<Link>, seen: watch::Receiver<Revision>, period: Duration) {
    let mut old = *seen.borrow();
    loop {
        tokio::time::sleep(period).await;
        let now = *seen.borrow();
        if old.0 > 0 && old < now {
            match compact(&link, old).await {
                Ok(()) => tracing::debug!(revision = old.0, "compacted etcd"),
                Err(status) => tracing::warn!(error = status.message(), "etcd could not be compacted"),
            }
        }
        old = now;
    }
}
