//! What only the embedded file can show: reopening, damage, formats, shared
//! commits, and that a kill -9 loses nothing that was acknowledged.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use store::{Embedded, ListRequest, Op, OpenError, Options, Revision, Store, WatchError};

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
    assert!(matches!(error, OpenError::NewerFormat { found: 7, supported: 1, .. }), "{error}");
}

#[tokio::test]
async fn damage_is_reported_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let store = open(&path);
    let value = "precious-".repeat(400);
    store.write((0..64).map(|i| Op::create(format!("/key-{i}"), value.clone())).collect()).await.unwrap();
    drop(store);
    let intact = std::fs::read(&path).unwrap();

    let at = intact.windows(9).position(|window| window == b"precious-").unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"PRECIOUS-", at as u64).unwrap();
    for start in ["first", "second"] {
        let error = Embedded::open(&path, Options::default()).expect_err(start);
        assert!(matches!(error, OpenError::Damaged { .. }), "{start}: {error}");
    }

    std::fs::write(&path, &intact[..intact.len() / 2]).unwrap();
    let error = Embedded::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Io { .. }), "{error}");

    std::fs::write(&path, b"not a store at all, but some text").unwrap();
    let error = Embedded::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
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

/// Set for the child process that is to be killed.
const CHILD_DIR: &str = "PODIUM_STORE_CRASH_DIR";

/// traps B2 S1, S3: acknowledged writes and the revision survive kill -9, with
/// compaction going on.
#[test]
fn kill_minus_nine_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut revision_max = 0;
    for round in 1..=4_u64 {
        let acknowledged = write_until_killed(dir.path(), 150 * round);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = open(&dir.path().join("state.redb"));
        for (key, revision) in &acknowledged {
            let entry = runtime.block_on(store.get(key)).unwrap();
            let entry = entry.unwrap_or_else(|| panic!("{key} was acknowledged at {revision} and is lost"));
            assert!(entry.modified.0 >= *revision, "{key} went back from {revision} to {}", entry.modified);
            revision_max = revision_max.max(*revision);
        }
        let now = runtime.block_on(store.revision()).unwrap().0;
        assert!(now >= revision_max, "the revision went back from {revision_max} to {now}");
    }
}

/// Runs the child until it acknowledged `count` writes, kills it, and returns
/// everything it acknowledged.
fn write_until_killed(dir: &Path, count: u64) -> Vec<(String, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash_child", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    let mut lines = 0;
    while lines < count {
        assert_ne!(output.read_line(&mut text).unwrap(), 0, "the child ended early: {text}");
        lines += 1;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    output.read_to_string(&mut text).unwrap();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let parse = |line: &str| {
        let (key, revision) = line.strip_prefix("ack ")?.split_once(' ')?;
        Some((key.to_owned(), revision.parse().unwrap()))
    };
    whole.lines().filter_map(parse).collect()
}

/// Not a test of its own: without the variable it does nothing.
#[test]
fn crash_child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(open(&Path::new(&dir).join("state.redb")));
        for writer in 0..8_u32 {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for i in 0_u64.. {
                    let key = format!("/registry/pods/{writer}/{}", i % 50);
                    let op = match store.get(&key).await.unwrap() {
                        Some(entry) => Op::update(&*key, i.to_string(), entry.modified),
                        None => Op::create(&*key, i.to_string()),
                    };
                    let revision = store.write(vec![op]).await.unwrap();
                    store.compact(revision).await.unwrap();
                    let line = format!("ack {key} {revision}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
        // The parent kills long before; this bounds a forgotten child.
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
}
