//! Watching: every change once and in order, or an error.

use futures::FutureExt;
use store::{Op, WatchError};

use crate::cases::{A, B, collect, put, remove};
use crate::engines::Fixture;

const PODS: &str = "/registry/pods/";

pub(crate) async fn a_watch_sees_each_change_once_and_in_order(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/registry/pods/default/", start).await.unwrap();
    put(store, A, "1").await;
    put(store, "/registry/pods/other/a", "elsewhere").await;
    put(store, "/registry/nodes/a", "elsewhere").await;
    put(store, A, "2").await;
    remove(store, A).await;
    assert_eq!(collect(&mut *watch, start, 3).await, ["1 +1", "4 1>2", "5 -2"]);
}

pub(crate) async fn a_batch_is_delivered_in_one_piece(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/registry/", start).await.unwrap();
    let batch = [A, B, "/registry/nodes/n"].map(|key| Op::create(key, "1"));
    let written = store.write(batch.to_vec()).await.unwrap();
    let delivery = watch.next().await.unwrap();
    assert!(delivery.events.iter().all(|event| event.revision == written));
    assert_eq!((delivery.events.len(), delivery.through), (3, written));
}

pub(crate) async fn a_closed_store_ends_its_watches(fixture: Fixture) {
    let start = fixture.store.revision().await.unwrap();
    let mut watch = fixture.store.watch(PODS, start).await.unwrap();
    put(&*fixture.store, A, "1").await;
    drop(fixture);
    assert_eq!(collect(&mut *watch, start, 1).await, ["1 +1"]);
    assert!(matches!(watch.next().await, Err(WatchError::Unavailable { .. })));
}

pub(crate) async fn a_watch_from_the_past_replays(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let one = put(store, A, "1").await;
    put(store, A, "2").await;
    put(store, B, "1").await;
    let mut watch = store.watch(PODS, one).await.unwrap();
    assert_eq!(collect(&mut *watch, start, 2).await, ["2 1>2", "3 +1"]);
}

pub(crate) async fn a_watch_resumed_where_it_ended_misses_and_repeats_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let (mut seen, mut from) = (Vec::new(), start);
    for round in 0..12 {
        put(store, A, &round.to_string()).await;
        put(store, &format!("/registry/nodes/{round}"), "other").await;
        let mut watch = store.watch(PODS, from).await.unwrap();
        let delivery = watch.next().await.unwrap();
        seen.extend(delivery.events.iter().map(|event| event.revision.0 - start.0));
        from = delivery.through;
    }
    assert_eq!(seen, (0..12).map(|round| 2 * round + 1).collect::<Vec<_>>());
}

pub(crate) async fn a_watch_given_up_while_waiting_loses_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch(PODS, start).await.unwrap();
    for round in 0..3 {
        assert!(watch.next().now_or_never().is_none(), "nothing has happened yet");
        put(store, A, &round.to_string()).await;
        assert_eq!(collect(&mut *watch, start, 1).await.len(), 1);
    }
}

pub(crate) async fn a_watch_below_a_short_prefix_merges_kinds_in_order(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/registry/", start).await.unwrap();
    put(store, A, "pod").await;
    put(store, "/registry/nodes/n", "node").await;
    put(store, B, "pod").await;
    assert_eq!(collect(&mut *watch, start, 3).await, ["1 +pod", "2 +node", "3 +pod"]);
}

pub(crate) async fn a_watch_from_a_future_revision_fails(fixture: Fixture) {
    let store = &*fixture.store;
    let now = put(store, A, "1").await;
    let error = store.watch(PODS, now.next()).await.err().unwrap();
    assert!(matches!(error, WatchError::Future { wanted, newest } if wanted == now.next() && newest == now));
}

pub(crate) async fn a_watch_from_a_compacted_revision_fails_and_at_its_edge_works(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let one = put(store, A, "1").await;
    let two = put(store, A, "2").await;
    remove(store, A).await;
    store.compact(two).await.unwrap();
    let error = store.watch(PODS, one).await.err().unwrap();
    assert!(matches!(error, WatchError::Compacted { oldest, .. } if oldest == two));
    // traps B2 S9: the delete right after the compacted revision is not lost.
    let mut watch = store.watch(PODS, two).await.unwrap();
    assert_eq!(collect(&mut *watch, start, 1).await, ["3 -2"]);
}

pub(crate) async fn a_compaction_ends_the_watches_it_overtakes(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut behind = store.watch(PODS, start).await.unwrap();
    let mut ahead = store.watch(PODS, start).await.unwrap();
    put(store, A, "1").await;
    assert_eq!(collect(&mut *ahead, start, 1).await, ["1 +1"]);
    let now = put(store, "/registry/nodes/n", "1").await;
    store.compact(now).await.unwrap();
    assert!(matches!(behind.next().await, Err(WatchError::Compacted { oldest, .. }) if oldest == now));
}

pub(crate) async fn a_slow_watcher_is_closed_not_skipped(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut slow = store.watch(PODS, start).await.unwrap();
    let mut other = store.watch("/registry/nodes/", start).await.unwrap();
    put(store, "/registry/nodes/n", "1").await;
    for round in 0..100 {
        put(store, A, &round.to_string()).await;
    }
    assert!(matches!(slow.next().await, Err(WatchError::Compacted { .. })), "64 changes fit, 100 were made");
    assert_eq!(collect(&mut *other, start, 1).await, ["1 +1"], "a busy kind costs a quiet one nothing");
}

pub(crate) async fn polling_advances_over_other_kinds_changes(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch(PODS, start).await.unwrap();
    let pod = put(store, A, "1").await;
    let node = put(store, "/registry/nodes/n", "1").await;
    let first = watch.poll().await.unwrap();
    assert_eq!((first.events.len(), first.events[0].revision, first.through), (1, pod, node));
    let second = watch.poll().await.unwrap();
    assert_eq!((second.events.len(), second.through), (0, node));
}

pub(crate) async fn whoever_has_polled_everything_knows_it(fixture: Fixture) {
    let store = &*fixture.store;
    let start = store.revision().await.unwrap();
    let mut watch = store.watch(PODS, start).await.unwrap();
    assert!(watch.has_news(), "nobody has looked yet");
    for change in ["1", "2"] {
        put(store, A, change).await;
        assert!(watch.has_news());
        assert_eq!(watch.poll().await.unwrap().events.len(), 1);
        assert!(watch.poll().await.unwrap().events.is_empty());
        assert!(!watch.has_news());
        put(store, "/registry/nodes/n", change).await;
        assert!(!watch.has_news(), "of another kind");
    }
    remove(store, A).await;
    assert!(watch.has_news());
}
