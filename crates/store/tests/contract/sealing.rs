//! Values that are kept otherwise than they are read: what comes to the disk
//! or to etcd, what is written anew at start, and what can not be opened.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use store::{
    Embedded, Etcd, EtcdOptions, ListRequest, Op, Opened, Options, ReadError, Revision, Seal, SealError, Store,
};

use crate::engines::options;
use crate::etcd_server::EtcdServer;

/// Puts its number before a value and turns the value's bits. Reads other
/// numbers up to its own, and what has none.
#[derive(Debug, Clone, Copy)]
struct Toy(u8);

impl Seal for Toy {
    fn seal(&self, key: &str, value: &Bytes) -> Result<Bytes, SealError> {
        if !key.starts_with("/s/") {
            return Ok(value.clone());
        }
        Ok([&[0, self.0], value.iter().map(|byte| !byte).collect::<Vec<_>>().as_slice()].concat().into())
    }

    fn open(&self, key: &str, kept: &[u8]) -> Result<Opened, SealError> {
        match kept {
            [0, number, rest @ ..] if *number <= self.0 => {
                let value = rest.iter().map(|byte| !byte).collect();
                Ok(Opened { value, is_stale: *number != self.0 })
            }
            [0, ..] => Err(SealError { key: key.to_owned(), detail: "no matching prefix found".to_owned() }),
            _ => Ok(Opened { value: Bytes::copy_from_slice(kept), is_stale: key.starts_with("/s/") }),
        }
    }
}

const SECRET: &str = "swordfish-swordfish-swordfish";

fn holds(path: &Path, needle: &[u8]) -> bool {
    std::fs::read(path).unwrap().windows(needle.len()).any(|window| window == needle)
}

fn open(path: &Path, seal: Toy) -> Embedded {
    Embedded::open(path, Options { seal: Arc::new(seal), ..Options::default() }).unwrap()
}

async fn value(store: &dyn Store, key: &str) -> String {
    let entry = store.get(key).await.unwrap().unwrap();
    String::from_utf8(entry.value.to_vec()).unwrap()
}

#[tokio::test]
async fn no_page_of_the_file_ever_holds_what_is_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = open(&path, Toy(1));
    for round in 0..20 {
        let written = store.write(vec![Op::create(format!("/s/{round}"), SECRET)]).await.unwrap();
        if round % 2 == 0 {
            let changed = store.write(vec![Op::update(format!("/s/{round}"), format!("{SECRET}2"), written)]);
            let written = changed.await.unwrap();
            store.write(vec![Op::delete(format!("/s/{round}"), written)]).await.unwrap();
        }
    }
    store.write(vec![Op::create("/plain", "angelfish")]).await.unwrap();
    assert_eq!(value(&store, "/s/1").await, SECRET);
    drop(store);
    assert!(!holds(&path, SECRET.as_bytes()));
    assert!(holds(&path, b"angelfish"), "the rest is as it is");
    assert_eq!(value(&open(&path, Toy(1)), "/s/1").await, SECRET);
}

#[tokio::test]
async fn a_start_writes_the_file_anew_until_nothing_old_is_left_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = Embedded::open(&path, Options::default()).unwrap();
    for i in 0..50 {
        store.write(vec![Op::create(format!("/s/{i}"), SECRET)]).await.unwrap();
    }
    store.write(vec![Op::delete("/s/0", Revision(1))]).await.unwrap();
    drop(store);
    assert!(holds(&path, SECRET.as_bytes()));
    std::fs::write(path.with_extension("new"), "left behind by a crash").unwrap();

    for number in [1, 2] {
        let store = open(&path, Toy(number));
        assert!(!holds(&path, SECRET.as_bytes()));
        assert_eq!(holds(&path, &[0, 1, !b's', !b'w', !b'o']), number == 1, "nothing is under the older key");
        assert_eq!(store.revision().await.unwrap(), Revision(51), "nothing has changed for readers");
        let entry = store.get("/s/7").await.unwrap().unwrap();
        assert_eq!((&*entry.value, entry.modified), (SECRET.as_bytes(), Revision(8)));
        assert!(matches!(Embedded::open(&path, Options::default()), Err(store::OpenError::InUse { .. })));
        assert!(!path.with_extension("new").exists());
        let listing = store.list(ListRequest::all("/s/")).await.unwrap();
        assert_eq!(listing.entries.len(), 49);
    }
}

#[tokio::test]
async fn a_file_that_can_not_be_written_anew_is_used_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = Embedded::open(&path, Options::default()).unwrap();
    store.write(vec![Op::create("/s/old", SECRET)]).await.unwrap();
    drop(store);
    // Nothing can be written in the place of a directory.
    let fresh = path.with_extension("new");
    std::fs::create_dir(&fresh).unwrap();
    let store = open(&path, Toy(1));
    assert_eq!(value(&store, "/s/old").await, SECRET);
    store.write(vec![Op::create("/s/new", "angelfish")]).await.unwrap();
    drop(store);
    assert!(holds(&path, SECRET.as_bytes()) && !holds(&path, b"angelfish"));

    std::fs::remove_dir(&fresh).unwrap();
    let store = open(&path, Toy(1));
    assert!(!holds(&path, SECRET.as_bytes()), "the next start tries again");
    assert_eq!(value(&store, "/s/old").await, SECRET);
    assert_eq!(value(&store, "/s/new").await, "angelfish");
}

/// Reads and watches of a store with one entry that can not be opened.
async fn check_unreadable(store: &dyn Store, after: Revision) {
    let error = store.get("/s/bad").await.unwrap_err();
    assert!(matches!(&error, ReadError::Sealed { .. }), "{error}");
    assert_eq!(error.to_string(), "unable to transform key \"/s/bad\": no matching prefix found");
    let listing = store.list(ListRequest::all("/s/")).await.unwrap();
    assert_eq!(listing.entries.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["/s/good"]);
    assert_eq!(listing.unreadable, 1);
    let page = store.list(ListRequest { limit: Some(0), ..ListRequest::all("/s/") }).await.unwrap();
    assert_eq!((page.remaining, page.unreadable), (1, 1));
    let conflict = store.write(vec![Op::create("/s/bad", "new")]).await.unwrap_err();
    assert!(matches!(conflict, store::WriteError::Conflict { current: None, .. }), "{conflict}");
    let mut watch = store.watch("/s/", after).await.unwrap();
    let bad = match store.write(vec![Op::delete("/s/bad", Revision(1))]).await {
        Ok(revision) => revision,
        Err(error) => panic!("it can be deleted: {error}"),
    };
    store.write(vec![Op::create("/s/bad", "new")]).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next().await.unwrap().events);
    }
    assert_eq!((seen[0].revision, seen[0].before().is_none(), seen[0].now().is_none()), (bad, true, true));
    assert_eq!(seen[1].now().unwrap().value, "new");
}

#[tokio::test]
async fn an_entry_of_the_file_that_does_not_open_is_an_error_for_itself_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = open(&path, Toy(2));
    store.write(vec![Op::create("/s/bad", SECRET)]).await.unwrap();
    drop(store);
    let store = Embedded::open(&path, Options::default()).unwrap();
    store.write(vec![Op::create("/s/good", "1")]).await.unwrap();
    drop(store);
    // Written anew, because of the good one: the other is kept for later.
    drop(open(&path, Toy(1)));
    assert_eq!(value(&open(&path, Toy(2)), "/s/bad").await, SECRET);
}

#[tokio::test]
async fn who_reads_or_watches_an_entry_that_does_not_open_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = open(&path, Toy(2));
    store.write(vec![Op::create("/s/bad", SECRET)]).await.unwrap();
    drop(store);
    let store = open(&path, Toy(1));
    store.write(vec![Op::create("/s/good", "1")]).await.unwrap();
    check_unreadable(&store, Revision(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_holds_what_is_sealed_and_a_start_seals_what_is_not() {
    let server = EtcdServer::start();
    let with = |number| EtcdOptions { prefix: "/s/".into(), seal: Arc::new(Toy(number)), ..options(&server) };
    let raw = Etcd::open(EtcdOptions { prefix: "/s/".into(), ..options(&server) }).await.unwrap();
    raw.write(vec![Op::create("/s/old", SECRET)]).await.unwrap();
    let sealing = Etcd::open(with(2)).await.unwrap();
    sealing.write(vec![Op::create("/s/new", SECRET)]).await.unwrap();
    for key in ["/s/old", "/s/new"] {
        assert_eq!(value(&sealing, key).await, SECRET);
        // The one that was there before is sealed in time.
        let mut watch = raw.watch("/s/", Revision(0)).await;
        while raw.get(key).await.unwrap().is_none_or(|entry| entry.value[0] != 0) {
            watch.as_mut().unwrap().next().await.unwrap();
        }
    }
    let older = Etcd::open(with(1)).await.unwrap();
    let error = older.get("/s/new").await.unwrap_err();
    assert_eq!(error.to_string(), "unable to transform key \"/s/new\": no matching prefix found");
    older.write(vec![Op::create("/s/other", "1")]).await.unwrap();
    assert_eq!(older.list(ListRequest::all("/s/")).await.unwrap().entries.len(), 1);
}
