//! What the cases share: keys, writes in one line, and changes as text.

use store::{Change, Op, Revision, Store, Watch};

pub(crate) const A: &str = "/registry/pods/default/a";
pub(crate) const B: &str = "/registry/pods/default/b";

/// Creates or updates.
pub(crate) async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    let value = bytes::Bytes::copy_from_slice(value.as_bytes());
    let op = match store.get(key).await.unwrap() {
        None => Op::create(key, value),
        Some(entry) => Op::update(key, value, entry.modified),
    };
    store.write(vec![op]).await.unwrap()
}

pub(crate) async fn remove(store: &dyn Store, key: &str) -> Revision {
    let seen = store.get(key).await.unwrap().unwrap().modified;
    store.write(vec![Op::delete(key, seen)]).await.unwrap()
}

pub(crate) fn keys(listing: &store::Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| &*entry.key).collect()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// So many changes, with their revisions counted from `start`: `1 +new`,
/// `2 old>new`, `3 -old`.
pub(crate) async fn collect(watch: &mut dyn Watch, start: Revision, wanted: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < wanted {
        for event in watch.next().await.unwrap().events {
            let what = match &event.change {
                Change::Created(now) => format!("+{}", text(&now.value)),
                Change::Updated { before, now } => format!("{}>{}", text(&before.value), text(&now.value)),
                Change::Deleted { before } => format!("-{}", text(&before.value)),
            };
            seen.push(format!("{} {what}", event.revision.0 - start.0));
        }
    }
    seen
}
