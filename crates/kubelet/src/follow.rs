//! Streams one container's log to a reader, for as long as it grows if asked to.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use cri::{ContainerId, ContainerState, Runtime};
use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::mpsc;

use crate::logs::{self, Decoder, Options};
use crate::watches::Watches;

/// The file and who writes it.
pub(crate) struct Source<'a> {
    pub(crate) path: PathBuf,
    pub(crate) container: ContainerId,
    pub(crate) pod_uid: String,
    pub(crate) runtime: &'a dyn Runtime,
    pub(crate) watches: &'a Watches,
}

/// Notifications can be lost (an overflown queue, a file system without them).
const RECHECK: Duration = Duration::from_secs(2);
const CHUNK_BYTES: usize = 64 * 1024;

/// Sends until the log, the reader's patience or its limit ends.
pub(crate) async fn stream(source: Source<'_>, options: Options, out: mpsc::Sender<Bytes>) -> io::Result<()> {
    // Armed before the first read, so that nothing falls between.
    let directory = source.path.parent().unwrap_or(&source.path);
    let mut changes = options.follow.then(|| source.watches.of(directory));
    let mut ends = source.runtime.events();
    let mut decoder = Decoder::new(&options);
    let mut file = open(&source.path, options.tail_lines).await?;
    let mut is_over = false;
    loop {
        if let Some(file) = &mut file
            && !drain(file, &mut decoder, &out).await?
        {
            return Ok(());
        }
        let Some(changes) = changes.as_mut() else { return Ok(()) };
        if let Some(next) = successor(&source.path, file.as_ref()).await? {
            // What was written between the end we saw and the rotation.
            if let Some(file) = &mut file
                && !drain(file, &mut decoder, &out).await?
            {
                return Ok(());
            }
            file = Some(next);
            continue;
        }
        if is_over {
            return Ok(());
        }
        if !is_running(&source).await {
            // Once more: its last words may have come after we read.
            is_over = true;
            continue;
        }
        tokio::select! {
            biased;
            () = out.closed() => return Ok(()),
            () = changes.next() => {}
            () = of_pod(&mut ends, &source.pod_uid) => {}
            () = tokio::time::sleep(RECHECK) => {}
        }
    }
}

/// Reads to the end; false when nobody wants more.
async fn drain(file: &mut tokio::fs::File, decoder: &mut Decoder, out: &mpsc::Sender<Bytes>) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = file.read(&mut chunk).await?;
        if count == 0 {
            return Ok(true);
        }
        let shown = decoder.feed(&chunk[..count]);
        if !shown.is_empty() && out.send(Bytes::from(shown)).await.is_err() {
            return Ok(false);
        }
        if decoder.is_full() {
            return Ok(false);
        }
    }
}

async fn open(path: &Path, tail_lines: Option<usize>) -> io::Result<Option<tokio::fs::File>> {
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || -> io::Result<Option<(std::fs::File, u64)>> {
        let mut file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let start = tail_lines.map_or(Ok(0), |lines| logs::tail_start(&mut file, lines))?;
        Ok(Some((file, start)))
    });
    let Some((file, start)) = opened.await.map_err(io::Error::other)?? else { return Ok(None) };
    let mut file = tokio::fs::File::from_std(file);
    file.seek(io::SeekFrom::Start(start)).await?;
    Ok(Some(file))
}

/// The file that follows the open one: that was rotated, or nothing was there.
async fn successor(path: &Path, current: Option<&tokio::fs::File>) -> io::Result<Option<tokio::fs::File>> {
    let Ok(there) = tokio::fs::metadata(path).await else { return Ok(None) };
    let open_one = match current {
        Some(current) => Some(current.metadata().await?),
        None => None,
    };
    if open_one.as_ref().is_some_and(|open| is_same(open, &there)) {
        return Ok(None);
    }
    let path = path.to_owned();
    let next = tokio::task::spawn_blocking(move || open_next(&path, open_one.as_ref())).await;
    Ok(next.map_err(io::Error::other)?.map(tokio::fs::File::from_std))
}

/// Opens what [`next_of`] names. A rotation between looking and opening would
/// put a later file in its place, so it looks again until nothing moved.
fn open_next(path: &Path, current: Option<&Metadata>) -> Option<std::fs::File> {
    loop {
        let file = std::fs::File::open(next_of(path, current)?).ok()?;
        let opened = file.metadata().ok()?;
        let named = std::fs::metadata(next_of(path, current)?).ok()?;
        if is_same(&opened, &named) {
            return Some(file);
        }
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Which file of the log to read after this one; `None`: look again later.
fn next_of(path: &Path, current: Option<&Metadata>) -> Option<PathBuf> {
    let files = files(path);
    match current {
        // A reader that was too slow: only the oldest files are ever removed.
        Some(current) if current.nlink() > 0 => {
            let is_current = |file: &&PathBuf| std::fs::metadata(file).is_ok_and(|file| is_same(&file, current));
            // Not found: it is being renamed just now.
            let position = files.iter().position(|file| is_current(&file))?;
            files.into_iter().nth(position + 1)
        }
        _ => files.into_iter().next(),
    }
}

/// All files of a log, oldest first: those that were rotated have the time in their names.
fn files(path: &Path) -> Vec<PathBuf> {
    let prefix = path.file_name().map(|name| format!("{}.", name.to_string_lossy())).unwrap_or_default();
    let names = path.parent().and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten();
    let mut rotated: Vec<String> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        // Other runtimes leave compressed ones to the agent.
        .filter(|name| name.starts_with(&prefix) && !name.ends_with(".gz") && !name.ends_with(".tmp"))
        .collect();
    rotated.sort_unstable();
    rotated.into_iter().map(|name| path.with_file_name(name)).chain([path.to_owned()]).collect()
}

async fn is_running(source: &Source<'_>) -> bool {
    let Ok(containers) = source.runtime.containers(Some(&source.pod_uid)).await else { return true };
    let found = containers.into_iter().find(|container| container.id == source.container);
    found.is_some_and(|container| matches!(container.state, ContainerState::Created | ContainerState::Running))
}

async fn of_pod(events: &mut futures::stream::BoxStream<'static, cri::RuntimeEvent>, uid: &str) {
    while let Some(event) = events.next().await {
        if event.pod_uid == uid {
            return;
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing;

    const LINES: usize = 3000;

    fn entry(number: usize) -> String {
        format!("2026-01-01T00:00:00Z stdout F {number}\n")
    }

    /// Writes a log as the runtime does, with a new file every few lines.
    fn write(path: &Path) {
        for number in 0..LINES {
            if number % 7 == 0 && number > 0 {
                fs::rename(path, path.with_file_name(format!("0.log.20260101-000000-{number:04}"))).unwrap();
            }
            use std::io::Write as _;
            let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(entry(number).as_bytes()).unwrap();
        }
    }

    #[tokio::test]
    async fn lc_088_a_follower_sees_every_line_across_rotations() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        fs::write(&path, "").unwrap();
        let (fake, container) = testing::running_app().await;
        let (out, mut shown) = mpsc::channel(4);
        let watches = Watches::default();
        let (pod_uid, watches) = ("u1".into(), &watches);
        let source = Source { path: path.clone(), container: container.clone(), pod_uid, runtime: &fake, watches };
        let following = stream(source, Options { follow: true, ..Options::default() }, out);
        let writing = async {
            tokio::task::spawn_blocking(move || write(&path)).await.unwrap();
            fake.stop_container(&container, Duration::ZERO).await.unwrap();
        };
        let reading = async {
            let mut seen = Vec::new();
            while let Some(bytes) = shown.recv().await {
                seen.extend_from_slice(&bytes);
            }
            seen
        };
        let (followed, (), seen) = tokio::join!(following, writing, reading);
        followed.unwrap();
        let expected: String = (0..LINES).map(|number| format!("{number}\n")).collect();
        assert!(seen == expected.as_bytes(), "{} of {} bytes", seen.len(), expected.len());
    }

    #[test]
    fn a_follower_that_was_too_slow_goes_on_with_what_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let at = |name: &str| directory.path().join(name);
        let names = ["0.log", "0.log.20260101-000001", "0.log.20260101-000002", "0.log.20260101-000001.gz", "1.log"];
        for name in names {
            fs::write(at(name), name).unwrap();
        }
        let open = |name: &str| fs::File::open(at(name)).unwrap();
        let next = |file: &fs::File| next_of(&path, Some(&file.metadata().unwrap()));
        let oldest = open("0.log.20260101-000001");
        assert_eq!(next_of(&path, None), Some(at("0.log.20260101-000001")));
        assert_eq!(next(&oldest), Some(at("0.log.20260101-000002")));
        assert_eq!(next(&open("0.log.20260101-000002")), Some(path.clone()));
        assert_eq!(next(&open("0.log")), None);
        fs::remove_file(at("0.log.20260101-000001")).unwrap();
        assert_eq!(next(&oldest), Some(at("0.log.20260101-000002")));
        // Under a name nobody looks for: wait.
        let renamed = open("0.log.20260101-000002");
        fs::rename(at("0.log.20260101-000002"), at("elsewhere")).unwrap();
        assert_eq!(next(&renamed), None);
    }
}
