//! Follows etcd: loads it once, then puts every change into the cache, over
//! lost connections and compactions.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tonic::{Code, Status, Streaming};

use super::link::Link;
use super::revision_of;
use super::wire::{self, KeyValue, RangeRequest, WatchResponse};
use crate::cache::{self, Cache, Image};
use crate::{Change, Entry, Revision, Seal};

/// Every key there can be, as etcd spells it.
const EVERYTHING: (&[u8], &[u8]) = (b"\0", b"\0");
/// Entries asked for at once when loading.
const PAGE: i64 = 500;
/// Between two tries to reach etcd again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The newest revision, as a majority of etcd's members knows it.
pub(super) async fn newest(link: &Link) -> Result<Revision, Status> {
    let question = RangeRequest { key: Bytes::from_static(b"\0"), count_only: true, ..RangeRequest::default() };
    Ok(revision_of(link.call(question).await?.header.as_ref()))
}

/// Everything below the prefix, at one revision, and what of it is stale.
pub(super) async fn load(link: &Link, prefix: &str, seal: &dyn Seal) -> Result<(Image, Vec<Arc<Entry>>), Status> {
    let mut stale = Vec::new();
    let mut image = Image { revision: newest(link).await?, entries: BTreeMap::new() };
    let mut key = Bytes::copy_from_slice(prefix.as_bytes());
    loop {
        let question = RangeRequest {
            key,
            range_end: after_prefix(prefix),
            limit: PAGE,
            revision: i64::try_from(image.revision.0).unwrap_or(i64::MAX),
            count_only: false,
        };
        let page = link.call(question).await?;
        let last = page.kvs.last().map(|kv| kv.key.clone());
        for kv in page.kvs {
            let name = name(&kv)?;
            let (entry, is_stale) = entry(name, &kv, seal);
            let entry = Arc::new(entry);
            stale.extend(is_stale.then(|| Arc::clone(&entry)));
            image.entries.insert(Arc::clone(&entry.key), entry);
        }
        match last {
            Some(last) if page.more => key = [&last[..], b"\0"].concat().into(),
            _ => return Ok((image, stale)),
        }
    }
}

/// The first key after all that start with `prefix`.
fn after_prefix(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(b"\0")
}

fn name(kv: &KeyValue) -> Result<Arc<str>, Status> {
    let text = std::str::from_utf8(&kv.key);
    let text = text.map_err(|_| Status::data_loss(format!("{:?} is no key of an API server", kv.key)))?;
    // Other API servers may keep their objects in etcd in their own way.
    if kv.value.starts_with(b"k8s\0") {
        return Err(Status::data_loss(format!("{text} was written by another API server, in its own format")));
    }
    Ok(text.into())
}

/// The entry, and whether it would be kept otherwise today. Its value is a
/// copy: the bytes of the message it came in would stay as long as any of it.
pub(super) fn entry(key: Arc<str>, kv: &KeyValue, seal: &dyn Seal) -> (Entry, bool) {
    let revision = |number: i64| Revision(number.unsigned_abs());
    let opened = seal.open(&key, &kv.value);
    let is_stale = opened.as_ref().is_ok_and(|opened| opened.is_stale);
    if let Err(fault) = &opened {
        tracing::error!(%fault, "an object can not be read");
    }
    let value = opened.map(|opened| opened.value);
    (Entry::opened(key, value, revision(kv.create_revision), revision(kv.mod_revision)), is_stale)
}

pub(super) struct Follower {
    pub(super) link: Arc<Link>,
    pub(super) cache: Arc<RwLock<Cache>>,
    pub(super) seen: watch::Sender<Revision>,
    pub(super) prefix: Arc<str>,
    pub(super) seal: Arc<dyn Seal>,
}

/// Why a watch ended.
enum End {
    Lost(Status),
    /// etcd has forgotten what would come next.
    Compacted,
}

impl Follower {
    /// Runs until it is aborted.
    pub(super) async fn run(self) {
        let mut pause = PAUSE_MIN;
        loop {
            let from = *self.seen.borrow();
            let end = match self.follow().await {
                End::Compacted => self.reload().await.err(),
                End::Lost(status) => Some(status),
            };
            if *self.seen.borrow() > from || end.is_none() {
                pause = PAUSE_MIN;
            }
            if let Some(status) = end {
                tracing::warn!(error = status.message(), retry = ?pause, "etcd's changes can not be followed");
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }

    async fn follow(&self) -> End {
        let mut stream = match self.open().await {
            Ok(stream) => stream,
            Err(status) => return End::Lost(status),
        };
        loop {
            let response = match stream.message().await {
                Ok(Some(response)) => response,
                Ok(None) => return End::Lost(Status::unavailable("the watch ended")),
                Err(status) => return End::Lost(status),
            };
            if response.compact_revision > 0 {
                return End::Compacted;
            }
            if response.canceled {
                return End::Lost(Status::unavailable(format!("the watch was ended: {}", response.cancel_reason)));
            }
            if let Err(status) = self.absorb(response) {
                return End::Lost(status);
            }
        }
    }

    /// From the first change the cache does not have.
    async fn open(&self) -> Result<Streaming<WatchResponse>, Status> {
        let seen = *self.seen.borrow();
        let newest = newest(&self.link).await?;
        if newest < seen {
            let text = format!("etcd went back from revision {seen} to {newest}: was a backup restored?");
            return Err(Status::new(Code::DataLoss, text));
        }
        let start = i64::try_from(seen.next().0).unwrap_or(i64::MAX);
        self.link.watch(EVERYTHING, start).await
    }

    /// etcd never splits a revision over two responses.
    fn absorb(&self, response: WatchResponse) -> Result<(), Status> {
        let mut revisions: BTreeMap<Revision, Vec<wire::Event>> = BTreeMap::new();
        for event in response.events {
            let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision.unsigned_abs());
            revisions.entry(Revision(revision)).or_default().push(event);
        }
        let mut cache = cache::write(&self.cache);
        let before = cache.revision();
        for (revision, events) in revisions.range(before.next()..) {
            let changes: Result<Vec<_>, _> =
                events.iter().filter_map(|event| self.change(&cache, event).transpose()).collect();
            cache.publish(*revision, changes?);
        }
        cache.wake(before);
        let now = cache.revision();
        drop(cache);
        self.seen.send_replace(now);
        Ok(())
    }

    fn change(&self, cache: &Cache, event: &wire::Event) -> Result<Option<Change>, Status> {
        let Some(kv) = event.kv.clone().filter(|kv| kv.key.starts_with(self.prefix.as_bytes())) else {
            return Ok(None);
        };
        let name = name(&kv)?;
        let before = cache.get(&name);
        if event.kind == wire::DELETE {
            return Ok(before.map(|before| Change::Deleted { before }));
        }
        let now = Arc::new(entry(name, &kv, &*self.seal).0);
        Ok(Some(match before {
            None => Change::Created(now),
            Some(before) => Change::Updated { before, now },
        }))
    }

    async fn reload(&self) -> Result<(), Status> {
        tracing::warn!("etcd has forgotten the changes since the connection was lost; everything is loaded anew");
        let (image, _) = load(&self.link, &self.prefix, &*self.seal).await?;
        let revision = image.revision;
        cache::write(&self.cache).replace(image);
        self.seen.send_replace(revision);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        assert_eq!(&after_prefix("/registry/")[..], b"/registry0");
        assert_eq!(&after_prefix("")[..], b"\0");
    }
}
