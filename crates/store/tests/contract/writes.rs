//! Writing: conditions, batches, revisions, limits.

use std::sync::Arc;

use store::{Op, Revision, WriteError};

use crate::cases::{A, B, put, remove, text};
use crate::engines::Fixture;

pub(crate) async fn revisions_grow_by_one_per_batch(fixture: Fixture) {
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

pub(crate) async fn create_refuses_an_existing_key(fixture: Fixture) {
    let store = &*fixture.store;
    let first = put(store, A, "1").await;
    let error = store.write(vec![Op::create(A, "2")]).await.unwrap_err();
    let WriteError::Conflict { index: 0, current: Some(current), .. } = error else { panic!("{error}") };
    assert_eq!((current.modified, text(&current.value)), (first, "1"));
    assert_eq!(store.revision().await.unwrap(), first);
}

pub(crate) async fn update_and_delete_need_the_revision_seen(fixture: Fixture) {
    let store = &*fixture.store;
    let first = put(store, A, "1").await;
    let second = put(store, A, "2").await;
    for op in [Op::update(A, "3", first), Op::delete(A, first), Op::update(A, "3", second.next())] {
        let error = store.write(vec![op]).await.unwrap_err();
        let WriteError::Conflict { current: Some(current), .. } = error else { panic!("{error}") };
        assert_eq!((current.modified, text(&current.value)), (second, "2"));
    }
    // No revision stands for an absent key, not even the first.
    for op in [Op::update(B, "1", first), Op::delete(B, first), Op::update(B, "1", Revision(0))] {
        let error = store.write(vec![op]).await.unwrap_err();
        assert!(matches!(error, WriteError::Conflict { current: None, .. }), "{error}");
    }
    assert_eq!(text(&store.get(A).await.unwrap().unwrap().value), "2");
    assert_eq!(store.revision().await.unwrap(), second);
}

pub(crate) async fn a_batch_is_all_or_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    put(store, A, "1").await;
    let before = store.revision().await.unwrap();
    let error = store.write(vec![Op::create(B, "1"), Op::create(A, "2")]).await.unwrap_err();
    assert!(matches!(error, WriteError::Conflict { index: 1, .. }), "{error}");
    assert!(store.get(B).await.unwrap().is_none());
    assert_eq!(store.revision().await.unwrap(), before);
    store.write(vec![Op::create(B, "1"), Op::update(A, "2", before)]).await.unwrap();
}

/// Of several, all must hold; what they name is neither written nor told.
pub(crate) async fn a_guard_binds_a_batch_to_what_was_seen(fixture: Fixture) {
    let store = &*fixture.store;
    let seen = put(store, A, "1").await;
    let mut watch = store.watch("/registry/", seen).await.unwrap();
    let written = store.write(vec![Op::create(B, "1"), Op::guard(A, seen)]).await.unwrap();
    assert_eq!(written, seen.next());
    let told = watch.next().await.unwrap().events;
    assert_eq!(told.iter().map(|event| &**event.key()).collect::<Vec<_>>(), [B]);
    assert_eq!(store.get(A).await.unwrap().unwrap().modified, seen);

    let moved = put(store, A, "2").await;
    let error = store.write(vec![Op::update(B, "2", written), Op::guard(A, seen)]).await.unwrap_err();
    let WriteError::Conflict { index: 1, current: Some(current), .. } = error else { panic!("{error}") };
    assert_eq!((current.modified, text(&current.value)), (moved, "2"));
    remove(store, A).await;
    let error = store.write(vec![Op::update(B, "2", written), Op::guard(A, moved)]).await.unwrap_err();
    assert!(matches!(error, WriteError::Conflict { index: 1, current: None, .. }), "{error}");
    assert_eq!(store.get(B).await.unwrap().unwrap().modified, written);
}

pub(crate) async fn a_deleted_key_can_be_created_anew(fixture: Fixture) {
    let store = &*fixture.store;
    put(store, A, "1").await;
    put(store, A, "2").await;
    let gone = remove(store, A).await;
    assert!(store.get(A).await.unwrap().is_none());
    let again = store.write(vec![Op::create(A, "3")]).await.unwrap();
    let entry = store.get(A).await.unwrap().unwrap();
    assert_eq!((entry.created, entry.modified, again), (again, again, gone.next()));
}

pub(crate) async fn a_value_too_large_changes_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    let before = put(store, A, "1").await;
    let large = "x".repeat(9 << 20);
    let error = store.write(vec![Op::update(A, "2", before), Op::create(B, large)]).await.unwrap_err();
    let WriteError::TooLarge { key, bytes, bytes_max } = error else { panic!("{error}") };
    assert!(&*key == B && bytes == 9 << 20 && bytes_max < bytes);
    assert_eq!(store.revision().await.unwrap(), before);
    assert_eq!(text(&store.get(A).await.unwrap().unwrap().value), "1");
}

/// Whoever was told that a write is done finds it, without asking for more.
pub(crate) async fn an_acknowledged_write_is_shown(fixture: Fixture) {
    let store = fixture.store;
    let writers = (0..8).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for round in 0..10 {
                let key = format!("/registry/pods/{writer}/{round}");
                let written = store.write(vec![Op::create(&*key, "1")]).await.unwrap();
                assert!(store.shown() >= written);
                assert_eq!(store.get(&key).await.unwrap().unwrap().modified, written);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

pub(crate) async fn concurrent_writers_of_one_key_serialise(fixture: Fixture) {
    let store = fixture.store;
    put(&*store, A, "0").await;
    let writers = (0..16).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                let entry = store.get(A).await.unwrap().unwrap();
                let count: u32 = text(&entry.value).parse().unwrap();
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
    assert_eq!(text(&store.get(A).await.unwrap().unwrap().value), "16");
}
