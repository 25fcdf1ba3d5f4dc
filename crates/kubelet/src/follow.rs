//! Streams one container's log to a reader, for as long as it grows if asked to.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use cri::{ContainerId, ContainerState, Runtime};
use futures::StreamExt as _;
use rustix::fs::inotify;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::logs::{self, Decoder, Options};

/// The file and who writes it.
pub(crate) struct Source<'a> {
    pub(crate) path: PathBuf,
    pub(crate) container: ContainerId,
    pub(crate) pod_uid: String,
    pub(crate) runtime: &'a dyn Runtime,
}

/// Notifications can be lost (an overflown queue, a file system without them).
const RECHECK: Duration = Duration::from_secs(2);
const CHUNK_BYTES: usize = 64 * 1024;

/// Sends until the log, the reader's patience or its limit ends.
pub(crate) async fn stream(source: Source<'_>, options: Options, out: mpsc::Sender<Bytes>) -> io::Result<()> {
    // Armed before the first read, so that nothing falls between.
    let mut changes = options.follow.then(|| Changes::of(&source.path)).transpose()?;
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
        let Some(changes) = changes.as_mut().filter(|_| !is_over) else { return Ok(()) };
        if let Some(next) = successor(&source.path, file.as_ref()).await? {
            file = Some(next);
            continue;
        }
        if !is_running(&source).await {
            // Once more: its last words may have come after we read.
            is_over = true;
            continue;
        }
        tokio::select! {
            biased;
            () = out.closed() => return Ok(()),
            changed = changes.next() => changed?,
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

/// The file that took the place of the open one: it was rotated, or is new.
async fn successor(path: &Path, current: Option<&tokio::fs::File>) -> io::Result<Option<tokio::fs::File>> {
    let Ok(there) = tokio::fs::metadata(path).await else { return Ok(None) };
    if let Some(current) = current {
        let open = current.metadata().await?;
        if (open.dev(), open.ino()) == (there.dev(), there.ino()) {
            return Ok(None);
        }
    }
    open_from_start(path).await
}

async fn open_from_start(path: &Path) -> io::Result<Option<tokio::fs::File>> {
    open(path, None).await
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

/// Wakes when the file grows or something new appears beside it. The
/// notification queue is read like a pipe: bytes come, and only that matters.
struct Changes(pipe::Receiver);

impl Changes {
    fn of(path: &Path) -> io::Result<Self> {
        use inotify::{CreateFlags, WatchFlags};
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let directory = path.parent().unwrap_or(path);
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        // A directory that is not there yet is found by the re-check.
        let _ = inotify::add_watch(&queue, directory, flags);
        Ok(Self(pipe::Receiver::from_owned_fd_unchecked(queue)?))
    }

    async fn next(&mut self) -> io::Result<()> {
        let mut events = [0; 4096];
        self.0.readable().await?;
        while self.0.try_read(&mut events).is_ok_and(|count| count > 0) {}
        Ok(())
    }
}
