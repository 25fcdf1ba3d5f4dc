//! Sudden ends of the embedded engine: kill -9 in a write storm, and a disk
//! that is full. Both happen in a child: this program, started again.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use store::{Embedded, Entry, ListRequest, Op, Options, Revision, Store, WatchError, WriteError};

/// Set for children: where they shall write.
const CHILD_DIR: &str = "PODIUM_STORE_CRASH_DIR";

fn open(dir: &Path) -> Embedded {
    Embedded::open(&dir.join("state.redb"), Options::default()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A value that tells whether it is whole: its number, filling of a length
/// that varies, and a sum over both.
fn value(number: u64) -> String {
    let text = format!("{number}:{}", "x".repeat(200 + usize::try_from(number % 400).unwrap()));
    format!("{text}:{}", sum(&text))
}

fn number_of(entry: &Entry) -> u64 {
    let text = std::str::from_utf8(&entry.value).unwrap();
    let (head, found) = text.rsplit_once(':').unwrap();
    assert_eq!(found, sum(head).to_string(), "{} is torn", entry.key);
    head.split(':').next().unwrap().parse().unwrap()
}

fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What a child was told is done: key, number and revision.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Acknowledged {
    pair: String,
    number: u64,
    revision: u64,
}

/// traps B2 S1, S3: acknowledged writes and the revision survive kill -9 with
/// compaction going on; no batch is there by half; watches resume.
#[test]
fn kill_minus_nine_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut newest: BTreeMap<String, Acknowledged> = BTreeMap::new();
    for round in 1..=6_u64 {
        for acknowledged in write_until_killed(dir.path(), 97 * round) {
            let known = newest.entry(acknowledged.pair.clone()).or_insert_with(|| acknowledged.clone());
            if acknowledged.revision > known.revision {
                *known = acknowledged;
            }
        }
        runtime().block_on(check(dir.path(), &newest));
    }
}

async fn check(dir: &Path, newest: &BTreeMap<String, Acknowledged>) {
    let store = open(dir);
    let last = newest.values().map(|known| known.revision).max().unwrap();
    let now = store.revision().await.unwrap();
    assert!(now.0 >= last, "the revision went back from {last} to {now}");
    for (pair, known) in newest {
        let left = store.get(&format!("/registry/left/{pair}")).await.unwrap();
        let left = left.unwrap_or_else(|| panic!("{pair} was acknowledged at {} and is lost", known.revision));
        assert!(left.modified.0 >= known.revision, "{pair} went back from {} to {}", known.revision, left.modified);
        if left.modified.0 == known.revision {
            assert_eq!(number_of(&left), known.number);
        }
    }
    // Both halves of every batch, acknowledged or not.
    let lefts = store.list(ListRequest::all("/registry/left/")).await.unwrap().entries;
    let rights = store.list(ListRequest::all("/registry/right/")).await.unwrap().entries;
    let rows =
        |entries: &[Arc<Entry>]| -> Vec<_> { entries.iter().map(|entry| (number_of(entry), entry.modified)).collect() };
    assert_eq!(rows(&lefts), rows(&rights), "a batch is there by half");
    assert!(lefts.iter().all(|entry| entry.modified <= now));
    // Who had seen everything goes on; who had not must list anew.
    let mut watch = store.watch("/registry/", now).await.unwrap();
    let written = store.write(vec![Op::create(format!("/registry/check/{now}"), value(0))]).await.unwrap();
    assert_eq!((written, watch.next().await.unwrap().events[0].revision), (now.next(), now.next()));
    let early = store.watch("/registry/", Revision(now.0 - 1)).await;
    assert!(matches!(early, Err(WatchError::Compacted { .. })));
}

/// Runs the child until it acknowledged `count` writes, kills it, and returns
/// everything it acknowledged.
fn write_until_killed(dir: &Path, count: u64) -> Vec<Acknowledged> {
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
        let mut words = line.strip_prefix("ack ")?.split(' ');
        let mut next = || words.next().unwrap();
        let pair = next().to_owned();
        Some(Acknowledged { pair, number: next().parse().unwrap(), revision: next().parse().unwrap() })
    };
    whole.lines().filter_map(parse).collect()
}

/// Not a test of its own: without the variable it does nothing.
#[test]
fn crash_child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    runtime().block_on(async {
        let store = Arc::new(open(Path::new(&dir)));
        for writer in 0..8_u32 {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for number in 0_u64.. {
                    let pair = format!("{writer}-{}", number % 50);
                    let revision = write_pair(&store, &pair, number).await;
                    store.compact(revision).await.unwrap();
                    let line = format!("ack {pair} {number} {revision}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
        // The parent kills long before; this bounds a forgotten child.
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
}

async fn write_pair(store: &Embedded, pair: &str, number: u64) -> Revision {
    let mut batch = Vec::new();
    for side in ["left", "right"] {
        let key = format!("/registry/{side}/{pair}");
        batch.push(match store.get(&key).await.unwrap() {
            Some(entry) => Op::update(&*key, value(number), entry.modified),
            None => Op::create(&*key, value(number)),
        });
    }
    store.write(batch).await.unwrap()
}

/// A full disk fails writes and nothing else, and heals. On a small file
/// system in a mount namespace of the child's own (root).
#[test]
fn a_full_disk_fails_writes_only_and_heals() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=6m tmpfs "$1" && exec "$2" --exact full_disk_child --nocapture"#;
    let output = Command::new("unshare")
        .args(["--mount", "--", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .env(CHILD_DIR, dir.path())
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("healed after"), "{text}");
}

/// Not a test of its own: without the variable it does nothing.
#[test]
fn full_disk_child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    runtime().block_on(full_disk(Path::new(&dir)));
}

async fn full_disk(dir: &Path) {
    let store = open(dir);
    let start = store.revision().await.unwrap();
    let mut watch = store.watch("/registry/", start).await.unwrap();
    let first = store.write(vec![Op::create("/registry/left/first", value(0))]).await.unwrap();
    let ballast = dir.join("ballast");
    fill(&ballast);

    let mut acknowledged = vec![(0, first)];
    let failure = loop {
        let number = u64::try_from(acknowledged.len()).unwrap();
        match store.write(vec![Op::create(format!("/registry/left/{number}"), value(number))]).await {
            Ok(revision) => acknowledged.push((number, revision)),
            Err(error) => break error,
        }
    };
    let text = failure.to_string();
    assert!(matches!(failure, WriteError::Unavailable { .. }) && text.contains("No space left"), "{text}");
    let shown = store.list(ListRequest::all("/registry/")).await.unwrap();
    assert_eq!(shown.entries.len(), acknowledged.len(), "reads go on, and show what was acknowledged");
    assert!(store.write(vec![Op::create("/registry/left/more", value(1))]).await.is_err(), "it is still full");

    std::fs::remove_file(&ballast).unwrap();
    let healed = async {
        loop {
            match store.write(vec![Op::create("/registry/left/healed", value(2))]).await {
                Ok(revision) => return revision,
                Err(WriteError::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let healed = tokio::time::timeout(Duration::from_secs(30), healed).await.expect("there is space again");

    // What was unsure has happened whole or not at all, and the watch agrees.
    let before = store.list(ListRequest::all("/registry/")).await.unwrap();
    let mut seen = BTreeMap::new();
    while seen.last_key_value().is_none_or(|(revision, _)| *revision < healed) {
        for event in watch.next().await.unwrap().events {
            seen.insert(event.revision, number_of(event.now().unwrap()));
        }
    }
    assert!(acknowledged.iter().all(|(number, revision)| seen.get(revision) == Some(number)));
    assert_eq!(before.entries.len(), seen.len());
    drop(store);
    let again = open(dir).list(ListRequest::all("/registry/")).await.unwrap();
    let rows = |listing: &store::Listing| -> Vec<_> {
        listing.entries.iter().map(|entry| (entry.key.clone(), number_of(entry), entry.modified)).collect()
    };
    assert_eq!((rows(&again), again.revision), (rows(&before), healed));
    println!("healed after {} writes", acknowledged.len());
}

/// Takes all the space there is.
fn fill(ballast: &Path) {
    let mut file = std::fs::File::create(ballast).unwrap();
    while file.write_all(&[7; 4096]).is_ok() {}
}
