//! What only the embedded file can show: reopening, damage, formats, shared
//! commits. Its sudden ends are in `crash.rs`.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use store::{Embedded, ListRequest, Op, OpenError, Options, Revision, Store, WatchError, WriteError};

fn open(path: &Path) -> Embedded {
    Embedded::open(path, Options::default()).unwrap()
}

#[tokio::test]
async fn reopening_keeps_entries_and_the_revision_even_after_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = open(&path);
    store.write(vec![Op::create("/a", "1"), Op::create("/b", "1")]).await.unwrap();
    store.write(vec![Op::update("/a", "2", Revision(1))]).await.unwrap();
    store.write(vec![Op::delete("/b", Revision(1))]).await.unwrap();
    drop(store);

    let store = open(&path);
    assert_eq!(store.revision().await.unwrap(), Revision(3));
    let listing = store.list(ListRequest::all("/")).await.unwrap();
    let entry = &listing.entries[0];
    assert_eq!((listing.entries.len(), &*entry.key, &*entry.value), (1, "/a", b"2".as_slice()));
    assert_eq!((entry.created, entry.modified), (Revision(1), Revision(2)));
    // traps B2 S5: history is gone, so older watchers must list anew.
    assert!(matches!(store.watch("/", Revision(2)).await, Err(WatchError::Compacted { .. })));
    assert!(store.watch("/", Revision(3)).await.is_ok());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn history_is_bounded_in_bytes_and_keeps_the_newest_change() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { history_bytes_per_topic_max: 10_000, ..Options::default() };
    let store = Embedded::open(&dir.path().join("state.redb"), options).unwrap();
    for i in 0..10 {
        store.write(vec![Op::create(format!("/registry/pods/{i}"), "x".repeat(1000))]).await.unwrap();
    }
    assert!(matches!(store.watch("/registry/pods/", Revision(5)).await, Err(WatchError::Compacted { .. })));
    let mut watch = store.watch("/registry/pods/", Revision(6)).await.unwrap();
    assert_eq!(watch.next().await.unwrap().events.len(), 4);
    store.write(vec![Op::create("/registry/pods/large", "x".repeat(50_000))]).await.unwrap();
    assert_eq!(watch.next().await.unwrap().events.len(), 1, "a change larger than the window is still seen");
}

#[tokio::test]
async fn a_delivery_is_bounded_in_bytes_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state.redb"));
    for i in 0..12 {
        store.write(vec![Op::create(format!("/registry/pods/{i:02}"), "x".repeat(200_000))]).await.unwrap();
    }
    let mut watch = store.watch("/registry/pods/", Revision(0)).await.unwrap();
    let (mut seen, mut deliveries) = (0, 0);
    while seen < 12 {
        let delivery = watch.next().await.unwrap();
        assert!(delivery.events.len() <= 3, "a consumer that stands still keeps little");
        assert_eq!(delivery.events[0].revision, Revision(seen + 1));
        seen += delivery.events.len() as u64;
        deliveries += 1;
    }
    assert!(deliveries > 4);
    assert_eq!(watch.poll().await.unwrap().through, Revision(12));
}

#[tokio::test]
async fn growth_ends_at_the_quota_and_for_ordinary_work_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let quota_bytes = 100_000;
    let options = Options { quota_bytes, ..Options::default() };
    let store = Arc::new(Embedded::open(&dir.path().join("state.redb"), options).unwrap());
    let used = || store.size().unwrap().used;
    let create = |name: String| store.write(vec![Op::create(name, "x".repeat(1000))]);
    // Together, so that many share one commit.
    let ordinary = (0..200).map(|i| store::sparing_the_reserve(create(format!("/o/{i:03}"))));
    let refused = futures::future::join_all(ordinary).await.into_iter().filter_map(Result::err);
    let refused: Vec<_> = refused.collect();
    assert!(refused.len() > 100 && refused.iter().all(|error| matches!(error, WriteError::NoSpace)));
    assert!(used() <= 95_000 && used() > 93_000, "{}", used());
    assert_eq!(refused[0].to_string(), "etcdserver: mvcc: database space exceeded");

    let reserve = futures::future::join_all((0..20).map(|i| create(format!("/s/{i:03}")))).await;
    assert!(reserve.iter().any(Result::is_ok) && reserve.iter().any(Result::is_err));
    assert!(used() <= quota_bytes && used() > 98_000, "{}", used());
    let held = store.list(ListRequest::all("/o/")).await.unwrap().entries;
    let marked = |bytes| store.write(vec![Op::update(held[0].key.clone(), "x".repeat(bytes), held[0].modified)]);
    assert!(matches!(marked(4000).await, Err(WriteError::NoSpace)));
    let marked = store::making_room(marked(4000)).await.unwrap();
    assert!(used() > quota_bytes, "the mark of a deletion is written past it");
    store.write(vec![Op::delete(held[0].key.clone(), marked)]).await.unwrap();
    for entry in &held[1..11] {
        let smaller = store.write(vec![Op::update(entry.key.clone(), "x", entry.modified)]);
        let smaller = store::sparing_the_reserve(smaller).await.unwrap();
        store.write(vec![Op::delete(entry.key.clone(), smaller)]).await.unwrap();
    }
    assert!(used() < 91_000, "there is room at once: {}", used());
    store::sparing_the_reserve(create("/o/again".to_owned())).await.unwrap();
    let before = used();
    drop(store);
    let again = open(&dir.path().join("state.redb"));
    assert_eq!(again.size().unwrap().used, before, "counted anew at start");
}

#[tokio::test]
async fn a_file_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let _held = open(&path);
    assert!(matches!(Embedded::open(&path, Options::default()), Err(OpenError::InUse { .. })));
}

#[tokio::test]
async fn a_newer_format_is_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    drop(open(&path));
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let counters: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("counters");
    transaction.open_table(counters).unwrap().insert("format", 7).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = Embedded::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { found: 7, supported: 2, .. }), "{error}");
}

/// A few hundred entries over many pages, and the file they are in.
async fn filled(path: &Path) -> Vec<u8> {
    let store = open(path);
    let value = "precious-".repeat(400);
    for batch in 0..4 {
        let ops = (0..64).map(|i| Op::create(format!("/key-{batch}-{i}"), value.clone()));
        store.write(ops.collect()).await.unwrap();
    }
    store.write(vec![Op::delete("/key-1-7", Revision(2))]).await.unwrap();
    drop(store);
    std::fs::read(path).unwrap()
}

async fn content(store: &Embedded) -> (Revision, Vec<(Arc<str>, bytes::Bytes, Revision)>) {
    let listing = store.list(ListRequest::all("/")).await.unwrap();
    let rows = listing.entries.iter().map(|entry| (entry.key.clone(), entry.value.clone(), entry.modified));
    (listing.revision, rows.collect())
}

#[tokio::test]
async fn damage_is_reported_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let intact = filled(&path).await;
    let at = intact.windows(9).position(|window| window == b"precious-").unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"PRECIOUS-", at as u64).unwrap();
    for start in ["first", "second"] {
        let error = Embedded::open(&path, Options::default()).expect_err(start);
        assert!(matches!(error, OpenError::Damaged { .. }), "{start}: {error}");
    }
    std::fs::write(&path, b"not a store at all, but some text").unwrap();
    let error = Embedded::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    // No bytes at all are not a new cluster either.
    std::fs::write(&path, b"").unwrap();
    let error = Embedded::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "it is left as it was found");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(path.with_extension("unfinished"), b"half").unwrap();
    drop(open(&path));
    assert!(!path.with_extension("unfinished").exists());
}

/// Whatever is changed anywhere in the file: it is refused, or nothing of
/// what it holds is lost (not every byte of a file matters).
#[tokio::test]
async fn a_changed_byte_or_a_cut_is_refused_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let intact = filled(&path).await;
    let expected = content(&open(&path)).await;
    let mut refused = 0;
    // A stride that meets headers, inner pages and leaves at changing offsets.
    let flips = (0..intact.len()).step_by(intact.len() / 32 + 13).chain((0..64).step_by(4));
    let cuts = (0..12).map(|part| intact.len() * part / 12);
    let damages = flips.map(|at| (at, false)).chain(cuts.map(|at| (at, true)));
    for (at, is_cut) in damages {
        let mut torn = intact.clone();
        if is_cut {
            torn.truncate(at)
        } else {
            torn[at] ^= 0x55
        }
        std::fs::write(&path, &torn).unwrap();
        let what = format!("{} at {at} of {}", if is_cut { "cut" } else { "flip" }, intact.len());
        match Embedded::open(&path, Options::default()) {
            Ok(store) => assert!(content(&store).await == expected, "{what}: other content was read"),
            Err(OpenError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert!(refused > 20, "only {refused} were refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_writers_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&dir.path().join("state.redb")));
    let mut watch = store.watch("/", Revision(0)).await.unwrap();
    let before = writes_of_this_process();
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for i in 0..16 {
                    store.write(vec![Op::create(format!("/w/{writer}/{i}"), "x")]).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let commits = writes_of_this_process() - before;
    assert!(commits < 1024 * 3 / 2, "1024 writes took {commits} system calls: commits were not shared");
    let mut seen = 0;
    while seen < 1024 {
        for event in watch.next().await.unwrap().events {
            seen += 1;
            assert_eq!(event.revision, Revision(seen));
        }
    }
}

/// Write system calls so far: each commit needs several.
fn writes_of_this_process() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap().parse().unwrap()
}

/// A disk that others fill takes the writes that free it.
#[tokio::test]
async fn the_file_has_room_on_the_disk_before_it_needs_it() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    filled(&path).await;
    let store = open(&path);
    let file = std::fs::metadata(&path).unwrap();
    assert!(file.blocks() * 512 >= file.len() + (16 << 20), "{} blocks for {} bytes", file.blocks(), file.len());
    drop(store);
}
