//! The store contract, engine by engine. A new engine adds one line to
//! `engines!`; what only the embedded file can do is tested in `embedded.rs`.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

use std::sync::Arc;

use store::{Change, Condition, Embedded, ListRequest, Memory, Op, Options, ReadError, Revision};
use store::{Store, Watch, WatchError, WriteError};

/// A fresh, empty store; the guard keeps its surroundings alive. `history` is
/// the wanted window in changes.
struct Fixture {
    store: Arc<dyn Store>,
    _surroundings: Option<tempfile::TempDir>,
}

fn embedded(history: usize) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { history_per_topic_max: history, ..Options::default() };
    let store = Embedded::open(&dir.path().join("state.redb"), options).unwrap();
    Fixture { store: Arc::new(store), _surroundings: Some(dir) }
}

fn memory(history: usize) -> Fixture {
    Fixture { store: Arc::new(Memory::new(history)), _surroundings: None }
}

macro_rules! engines {
    ($($case:ident),* $(,)?) => {
        mod embedded_engine {
            $(#[tokio::test] async fn $case() { super::$case(super::embedded(64)).await; })*
        }
        mod memory_engine {
            $(#[tokio::test] async fn $case() { super::$case(super::memory(64)).await; })*
        }
    };
}

engines!(
    revisions_grow_by_one_per_batch,
    create_refuses_an_existing_key,
    update_and_delete_need_the_revision_seen,
    a_batch_is_all_or_nothing,
    lists_are_in_key_order_and_below_the_prefix_only,
    pages_come_from_one_revision,
    lists_at_a_past_revision_show_that_moment,
    lists_at_compacted_or_future_revisions_fail,
    a_watch_sees_each_change_once_and_in_order,
    a_closed_store_ends_its_watches,
    a_watch_from_the_past_replays,
    a_watch_below_a_short_prefix_merges_kinds_in_order,
    a_watch_from_a_future_revision_fails,
    a_watch_from_a_compacted_revision_fails_and_at_its_edge_works,
    a_slow_watcher_is_closed_not_skipped,
    polling_advances_over_other_kinds_changes,
    concurrent_writers_of_one_key_serialise,
);

const A: &str = "/registry/pods/default/a";
const B: &str = "/registry/pods/default/b";

async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    let value = bytes::Bytes::copy_from_slice(value.as_bytes());
    let op = match store.get(key).await.unwrap() {
        None => Op::create(key, value),
        Some(entry) => Op::update(key, value, entry.modified),
    };
    store.write(vec![op]).await.unwrap()
}

async fn remove(store: &dyn Store, key: &str) -> Revision {
    let seen = store.get(key).await.unwrap().unwrap().modified;
    store.write(vec![Op::delete(key, seen)]).await.unwrap()
}

fn keys(listing: &store::Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| &*entry.key).collect()
}

async fn collect(watch: &mut dyn Watch, wanted: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < wanted {
        for event in watch.next().await.unwrap().events {
            let what = match &event.change {
                Change::Created(now) => format!("+{}", String::from_utf8_lossy(&now.value)),
                Change::Updated { before, now } => {
                    format!("{}>{}", String::from_utf8_lossy(&before.value), String::from_utf8_lossy(&now.value))
                }
                Change::Deleted { before } => format!("-{}", String::from_utf8_lossy(&before.value)),
            };
            seen.push(format!("{} {what}", event.revision));
        }
    }
    seen
}

async fn revisions_grow_by_one_per_batch(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let both = store.write(vec![Op::create(A, "1"), Op::create(B, "1")]).await.unwrap();
    assert_eq!(both, start.next());
    assert_eq!(store.get(A).await.unwrap().unwrap().modified, both);
    assert_eq!(store.get(B).await.unwrap().unwrap().modified, both);
    assert_eq!(put(store, A, "2").await, both.next());
    let entry = store.get(A).await.unwrap().unwrap();
    assert_eq!((entry.created, entry.modified), (both, both.next()));
    assert_eq!(remove(store, A).await, both.next().next());
    assert_eq!(store.revision().await.unwrap(), both.next().next());
}

async fn create_refuses_an_existing_key(fixture: Fixture) {
    let store = &*fixture.store;
    let first = put(store, A, "1").await;
    let error = store.write(vec![Op::create(A, "2")]).await.unwrap_err();
    let WriteError::Conflict { index: 0, current: Some(current), .. } = error else { panic!("{error}") };
    assert_eq!((current.modified, &*current.value), (first, b"1".as_slice()));
    assert_eq!(store.revision().await.unwrap(), first);
}

async fn update_and_delete_need_the_revision_seen(fixture: Fixture) {
    let store = &*fixture.store;
    let first = put(store, A, "1").await;
    put(store, A, "2").await;
    for op in [Op::update(A, "3", first), Op::delete(A, first), Op::update(B, "1", first)] {
        assert!(matches!(store.write(vec![op]).await, Err(WriteError::Conflict { .. })));
    }
    assert_eq!(&*store.get(A).await.unwrap().unwrap().value, b"2");
}

async fn a_batch_is_all_or_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    put(store, A, "1").await;
    let before = store.revision().await.unwrap();
    let error = store.write(vec![Op::create(B, "1"), Op::create(A, "2")]).await.unwrap_err();
    assert!(matches!(error, WriteError::Conflict { index: 1, .. }));
    assert!(store.get(B).await.unwrap().is_none());
    assert_eq!(store.revision().await.unwrap(), before);
    let update = Op { key: A.into(), condition: Condition::Unchanged(before), value: Some("2".into()) };
    store.write(vec![Op::create(B, "1"), update]).await.unwrap();
}

async fn lists_are_in_key_order_and_below_the_prefix_only(fixture: Fixture) {
    let store = &*fixture.store;
    for key in ["/registry/pods/b/x", "/registry/podsets/a/x", "/registry/pods/a/y", "/registry/pods/a/x"] {
        put(store, key, "1").await;
    }
    let all = store.list(ListRequest::all("/registry/pods/")).await.unwrap();
    assert_eq!(keys(&all), ["/registry/pods/a/x", "/registry/pods/a/y", "/registry/pods/b/x"]);
    assert_eq!(all.revision, store.revision().await.unwrap());
    let one = store.list(ListRequest::all("/registry/pods/a/")).await.unwrap();
    assert_eq!(keys(&one), ["/registry/pods/a/x", "/registry/pods/a/y"]);
    assert_eq!(store.list(ListRequest::all("/registry/")).await.unwrap().entries.len(), 4);
}

async fn pages_come_from_one_revision(fixture: Fixture) {
    let store = &*fixture.store;
    for name in ["a", "b", "c", "d"] {
        put(store, &format!("/registry/pods/default/{name}"), name).await;
    }
    let prefix = "/registry/pods/default/";
    let first = store.list(ListRequest { limit: Some(2), ..ListRequest::all(prefix) }).await.unwrap();
    assert_eq!((keys(&first), first.remaining), (vec![A, B], 2));
    remove(store, "/registry/pods/default/c").await;
    put(store, "/registry/pods/default/d", "changed").await;
    put(store, "/registry/pods/default/e", "new").await;
    let rest = ListRequest { after: Some(B), at: Some(first.revision), ..ListRequest::all(prefix) };
    let rest = store.list(rest).await.unwrap();
    assert_eq!(keys(&rest), ["/registry/pods/default/c", "/registry/pods/default/d"]);
    assert_eq!(&*rest.entries[1].value, b"d");
    assert_eq!(rest.revision, first.revision);
}

async fn lists_at_a_past_revision_show_that_moment(fixture: Fixture) {
    let store = &*fixture.store;
    let one = put(store, A, "1").await;
    let two = put(store, A, "2").await;
    let three = put(store, B, "1").await;
    remove(store, A).await;
    put(store, A, "again").await;
    for (at, expected) in [(one, vec!["1"]), (two, vec!["2"]), (three, vec!["2", "1"])] {
        let then = store.list(ListRequest { at: Some(at), ..ListRequest::all("/registry/pods/") }).await.unwrap();
        let values: Vec<_> = then.entries.iter().map(|entry| std::str::from_utf8(&entry.value).unwrap()).collect();
        assert_eq!((values, then.revision), (expected, at));
    }
}

async fn lists_at_compacted_or_future_revisions_fail(fixture: Fixture) {
    let store = &*fixture.store;
    let one = put(store, A, "1").await;
    let two = put(store, A, "2").await;
    let three = put(store, A, "3").await;
    store.compact(two).await.unwrap();
    let at = |at| ListRequest { at: Some(at), ..ListRequest::all("/registry/pods/") };
    assert!(matches!(store.list(at(one)).await, Err(ReadError::Compacted { .. })));
    assert_eq!(&*store.list(at(two)).await.unwrap().entries[0].value, b"2");
    assert!(matches!(store.list(at(three.next())).await, Err(ReadError::Future { .. })));
    assert!(matches!(store.compact(three.next()).await, Err(ReadError::Future { .. })));
}

async fn a_watch_sees_each_change_once_and_in_order(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/registry/pods/default/", start).await.unwrap();
    put(store, A, "1").await;
    put(store, "/registry/pods/other/a", "elsewhere").await;
    put(store, "/registry/nodes/a", "elsewhere").await;
    put(store, A, "2").await;
    remove(store, A).await;
    assert_eq!(collect(&mut *watch, 3).await, ["1 +1", "4 1>2", "5 -2"]);
}

async fn a_closed_store_ends_its_watches(fixture: Fixture) {
    let mut watch = fixture.store.watch("/registry/pods/", Revision(0)).await.unwrap();
    put(&*fixture.store, A, "1").await;
    drop(fixture);
    assert_eq!(collect(&mut *watch, 1).await, ["1 +1"]);
    assert!(matches!(watch.next().await, Err(WatchError::Unavailable { .. })));
}

async fn a_watch_from_the_past_replays(fixture: Fixture) {
    let store = &*fixture.store;
    let one = put(store, A, "1").await;
    put(store, A, "2").await;
    put(store, B, "1").await;
    let mut watch = store.watch("/registry/pods/", one).await.unwrap();
    assert_eq!(collect(&mut *watch, 2).await, ["2 1>2", "3 +1"]);
}

async fn a_watch_below_a_short_prefix_merges_kinds_in_order(fixture: Fixture) {
    let store = &*fixture.store;
    let mut watch = store.watch("/registry/", Revision(0)).await.unwrap();
    put(store, A, "pod").await;
    put(store, "/registry/nodes/n", "node").await;
    put(store, B, "pod").await;
    assert_eq!(collect(&mut *watch, 3).await, ["1 +pod", "2 +node", "3 +pod"]);
}

async fn a_watch_from_a_future_revision_fails(fixture: Fixture) {
    let store = &*fixture.store;
    let now = put(store, A, "1").await;
    let error = store.watch("/registry/pods/", now.next()).await.err().unwrap();
    assert!(matches!(error, WatchError::Future { wanted: Revision(2), newest: Revision(1) }));
}

async fn a_watch_from_a_compacted_revision_fails_and_at_its_edge_works(fixture: Fixture) {
    let store = &*fixture.store;
    let one = put(store, A, "1").await;
    let two = put(store, A, "2").await;
    remove(store, A).await;
    store.compact(two).await.unwrap();
    let error = store.watch("/registry/pods/", one).await.err().unwrap();
    assert!(matches!(error, WatchError::Compacted { oldest: Revision(2), .. }));
    // traps B2 S9: the delete right after the compacted revision is not lost.
    let mut watch = store.watch("/registry/pods/", two).await.unwrap();
    assert_eq!(collect(&mut *watch, 1).await, ["3 -2"]);
}

async fn a_slow_watcher_is_closed_not_skipped(fixture: Fixture) {
    let store = &*fixture.store;
    let mut slow = store.watch("/registry/pods/", Revision(0)).await.unwrap();
    let mut other = store.watch("/registry/nodes/", Revision(0)).await.unwrap();
    put(store, "/registry/nodes/n", "1").await;
    for round in 0..100 {
        put(store, A, &round.to_string()).await;
    }
    assert!(matches!(slow.next().await, Err(WatchError::Compacted { .. })), "64 changes fit, 100 were made");
    assert_eq!(collect(&mut *other, 1).await, ["1 +1"], "a busy kind costs a quiet one nothing");
}

async fn polling_advances_over_other_kinds_changes(fixture: Fixture) {
    let store = &*fixture.store;
    let mut watch = store.watch("/registry/pods/", Revision(0)).await.unwrap();
    let pod = put(store, A, "1").await;
    let node = put(store, "/registry/nodes/n", "1").await;
    let first = watch.poll().await.unwrap();
    assert_eq!((first.events.len(), first.events[0].revision, first.through), (1, pod, node));
    let second = watch.poll().await.unwrap();
    assert_eq!((second.events.len(), second.through), (0, node));
}

async fn concurrent_writers_of_one_key_serialise(fixture: Fixture) {
    let store = fixture.store;
    put(&*store, A, "0").await;
    let writers = (0..16).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                let entry = store.get(A).await.unwrap().unwrap();
                let count: u32 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
                match store.write(vec![Op::update(A, (count + 1).to_string(), entry.modified)]).await {
                    Ok(_) => return,
                    Err(WriteError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(&*store.get(A).await.unwrap().unwrap().value, b"16");
}
