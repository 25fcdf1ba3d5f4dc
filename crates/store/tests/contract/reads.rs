//! Reading: order, pages, the past, and what compaction takes away.

use store::{ListRequest, ReadError, Revision, Store};

use crate::cases::{A, B, keys, put, remove, text};
use crate::engines::Fixture;

const PODS: &str = "/registry/pods/";

fn at(revision: Revision) -> ListRequest<'static> {
    ListRequest { at: Some(revision), ..ListRequest::all(PODS) }
}

pub(crate) async fn lists_are_in_key_order_and_below_the_prefix_only(fixture: Fixture) {
    let store = &*fixture.store;
    for key in ["/registry/pods/b/x", "/registry/podsets/a/x", "/registry/pods/a/y", "/registry/pods/a/x"] {
        put(store, key, "1").await;
    }
    let all = store.list(ListRequest::all(PODS)).await.unwrap();
    assert_eq!(keys(&all), ["/registry/pods/a/x", "/registry/pods/a/y", "/registry/pods/b/x"]);
    assert_eq!(all.revision, store.revision().await.unwrap());
    let one = store.list(ListRequest::all("/registry/pods/a/")).await.unwrap();
    assert_eq!(keys(&one), ["/registry/pods/a/x", "/registry/pods/a/y"]);
    assert_eq!(store.list(ListRequest::all("/registry/")).await.unwrap().entries.len(), 4);
}

pub(crate) async fn pages_come_from_one_revision(fixture: Fixture) {
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
    assert_eq!(text(&rest.entries[1].value), "d");
    assert_eq!(rest.revision, first.revision);
}

/// Between two pages everything changes: keys before, on and after the page's
/// edge, the edge itself, and other kinds.
pub(crate) async fn a_walk_over_pages_is_one_snapshot_whatever_is_written(fixture: Fixture) {
    let store = &*fixture.store;
    for index in 0..10 {
        put(store, &format!("/registry/pods/default/{index:02}"), "then").await;
    }
    let snapshot = store.list(ListRequest::all(PODS)).await.unwrap();
    let (mut walked, mut last, mut at) = (Vec::new(), None::<String>, None);
    loop {
        let page = ListRequest { prefix: PODS, after: last.as_deref(), limit: Some(3), at };
        let page = store.list(page).await.unwrap();
        assert_eq!(page.remaining, 10 - walked.len() - page.entries.len());
        assert_eq!(page.revision, snapshot.revision);
        walked.extend(page.entries.iter().map(|entry| (entry.key.to_string(), entry.modified)));
        if page.remaining == 0 {
            break;
        }
        at = Some(page.revision);
        let edge = walked.last().unwrap().0.clone();
        disturb(store, &edge, walked.len()).await;
        last = Some(edge);
    }
    let then: Vec<_> = snapshot.entries.iter().map(|entry| (entry.key.to_string(), entry.modified)).collect();
    assert_eq!(walked, then);
}

async fn disturb(store: &dyn Store, edge: &str, round: usize) {
    remove(store, edge).await;
    put(store, "/registry/pods/default/09", &round.to_string()).await;
    put(store, &format!("/registry/pods/default/08-{round}"), "new").await;
    put(store, &format!("/registry/nodes/{round}"), "other").await;
}

pub(crate) async fn a_walk_whose_snapshot_is_compacted_fails(fixture: Fixture) {
    let store = &*fixture.store;
    put(store, A, "1").await;
    put(store, B, "1").await;
    let first = store.list(ListRequest { limit: Some(1), ..ListRequest::all(PODS) }).await.unwrap();
    let now = put(store, B, "2").await;
    store.compact(now).await.unwrap();
    let next = ListRequest { after: Some(A), limit: Some(1), ..at(first.revision) };
    let error = store.list(next).await.unwrap_err();
    assert!(matches!(error, ReadError::Compacted { wanted, oldest } if wanted == first.revision && oldest == now));
}

pub(crate) async fn lists_at_a_past_revision_show_that_moment(fixture: Fixture) {
    let store = &*fixture.store;
    let one = put(store, A, "1").await;
    let two = put(store, A, "2").await;
    let three = put(store, B, "1").await;
    remove(store, A).await;
    put(store, A, "again").await;
    for (revision, expected) in [(one, vec!["1"]), (two, vec!["2"]), (three, vec!["2", "1"])] {
        let then = store.list(at(revision)).await.unwrap();
        let values: Vec<_> = then.entries.iter().map(|entry| text(&entry.value)).collect();
        assert_eq!((values, then.revision), (expected, revision));
    }
}

pub(crate) async fn lists_at_compacted_or_future_revisions_fail(fixture: Fixture) {
    let store = &*fixture.store;
    let one = put(store, A, "1").await;
    let two = put(store, A, "2").await;
    let three = put(store, A, "3").await;
    store.compact(two).await.unwrap();
    assert!(matches!(store.list(at(one)).await, Err(ReadError::Compacted { .. })));
    assert_eq!(text(&store.list(at(two)).await.unwrap().entries[0].value), "2");
    let error = store.list(at(three.next())).await.unwrap_err();
    assert!(matches!(error, ReadError::Future { newest, .. } if newest == three), "{error}");
    assert!(matches!(store.compact(three.next()).await, Err(ReadError::Future { .. })));
}

pub(crate) async fn compacting_again_or_less_changes_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    let one = put(store, A, "1").await;
    let two = put(store, A, "2").await;
    let three = put(store, A, "3").await;
    for revision in [two, two, one] {
        store.compact(revision).await.unwrap();
    }
    assert_eq!(text(&store.list(at(two)).await.unwrap().entries[0].value), "2");
    store.compact(three).await.unwrap();
    assert_eq!(text(&store.list(at(three)).await.unwrap().entries[0].value), "3");
    assert_eq!(text(&store.get(A).await.unwrap().unwrap().value), "3", "the newest state is never forgotten");
}
