//! Who is told when something changes in a directory: everybody over one
//! inotify instance, of which a machine has few (128 for one user).
//!
//! Changes can go unnoticed (no watch left, an overflown queue, a file system
//! without them): whoever waits looks again by itself now and then.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ambient::Panics;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// What grows, is made or moved there.
const FLAGS: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::CREATE).union(WatchFlags::MOVED_TO);
/// Of notifications, read at once.
const EVENTS_BYTES: usize = 4096;

#[derive(Default)]
pub(crate) struct Watches {
    running: Mutex<Option<Running>>,
    panics: Panics,
}

/// From the first that asks on.
struct Running {
    shared: Arc<Shared>,
    reader: AbortOnDropHandle<()>,
}

struct Shared {
    /// Read like a pipe.
    queue: pipe::Receiver,
    /// By the kernel's number of a watched directory.
    places: Mutex<BTreeMap<i32, Place>>,
}

struct Place {
    changed: watch::Sender<()>,
    watchers: usize,
}

impl Watches {
    pub(crate) fn new(panics: Panics) -> Self {
        Self { running: Mutex::default(), panics }
    }

    /// From now on: nothing falls between this and the first wait.
    pub(crate) fn of(&self, directory: &Path) -> Changes {
        let watched = self.shared().and_then(|shared| {
            // Locked before the watch is made: the last one who leaves takes it away.
            let mut places = shared.places();
            let number = inotify::add_watch(&shared.queue, directory, FLAGS)?;
            let place = places.entry(number).or_insert_with(|| Place { changed: watch::Sender::new(()), watchers: 0 });
            place.watchers += 1;
            let changed = place.changed.subscribe();
            drop(places);
            Ok(Watched { shared, number, changed })
        });
        if let Err(error) = &watched {
            tracing::debug!(%error, directory = %directory.display(), "changes are looked for now and then only");
        }
        Changes(watched.ok())
    }

    fn shared(&self) -> io::Result<Arc<Shared>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever reads may have ended: then whoever comes now gets another.
        if let Some(running) = running.as_ref().filter(|running| !running.reader.is_finished()) {
            return Ok(running.shared.clone());
        }
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let queue = pipe::Receiver::from_owned_fd_unchecked(queue)?;
        let shared = Arc::new(Shared { queue, places: Mutex::default() });
        let (panics, read) = (self.panics.clone(), pass_on(shared.clone()));
        let reader = tokio::spawn(async move { panics.caught("inotify", read).await.unwrap_or_default() });
        *running = Some(Running { shared: shared.clone(), reader: AbortOnDropHandle::new(reader) });
        Ok(shared)
    }
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, BTreeMap<i32, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Never returns, unless the queue cannot be read; then everybody looks now and then.
async fn pass_on(shared: Arc<Shared>) {
    let mut buffer = [0; EVENTS_BYTES];
    while shared.queue.readable().await.is_ok() {
        let count = match shared.queue.try_read(&mut buffer) {
            Ok(count @ 1..) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Ok(_) | Err(_) => break,
        };
        let places = shared.places();
        for number in numbers(&buffer[..count]) {
            match places.get(&number) {
                Some(place) => place.changed.send_replace(()),
                // The queue was too short for all of them.
                None if number < 0 => places.values().for_each(|place| place.changed.send_replace(())),
                None => {}
            }
        }
    }
    tracing::warn!("changes of log files are not told any more");
}

/// Of the watches that notifications are for: each begins with it, and ends
/// with a name whose length is its fourth number.
fn numbers(mut events: &[u8]) -> impl Iterator<Item = i32> {
    std::iter::from_fn(move || {
        let ([a, b, c, d, .., e, f, g, h], rest) = events.split_first_chunk::<16>()?;
        let length = usize::try_from(u32::from_ne_bytes([*e, *f, *g, *h])).ok()?;
        events = rest.get(length..).unwrap_or_default();
        Some(i32::from_ne_bytes([*a, *b, *c, *d]))
    })
}

/// What happens in one directory.
pub(crate) struct Changes(Option<Watched>);

struct Watched {
    shared: Arc<Shared>,
    number: i32,
    changed: watch::Receiver<()>,
}

impl Changes {
    /// Waits for the next one; for ever if none is told.
    pub(crate) async fn next(&mut self) {
        if let Some(watched) = &mut self.0
            && watched.changed.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut places = self.shared.places();
        let Some(place) = places.get_mut(&self.number) else { return };
        place.watchers -= 1;
        if place.watchers == 0 {
            places.remove(&self.number);
            // The directory may be gone, and its watch with it.
            let _ = inotify::remove_watch(&self.shared.queue, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PATIENT: Duration = Duration::from_secs(30);

    fn instances() -> usize {
        let links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("inotify")).count()
    }

    #[tokio::test]
    async fn lc_088_all_followers_share_one_inotify_instance() {
        let root = tempfile::tempdir().unwrap();
        let directories: Vec<_> = (0..300).map(|number| root.path().join(number.to_string())).collect();
        directories.iter().for_each(|directory| std::fs::create_dir(directory).unwrap());
        let (watches, before) = (Watches::default(), instances());
        let mut followers: Vec<Changes> = directories.iter().map(|directory| watches.of(directory)).collect();
        let mut second = watches.of(&directories[7]);
        // Tests of other modules run in other processes.
        assert_eq!(instances(), before + 1);
        std::fs::write(directories[7].join("0.log"), "x").unwrap();
        tokio::time::timeout(PATIENT, followers[7].next()).await.expect("it is told");
        tokio::time::timeout(PATIENT, second.next()).await.expect("so is the other");
        assert!(futures::poll!(std::pin::pin!(followers[8].next())).is_pending(), "nothing happened there");
        drop(followers.swap_remove(7));
        std::fs::write(directories[7].join("1.log"), "x").unwrap();
        tokio::time::timeout(PATIENT, second.next()).await.expect("one of two has left");
        drop((followers, second));
        assert!(watches.shared().unwrap().places().is_empty());
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_has_no_changes() {
        let watches = Watches::default();
        let mut nothing = watches.of(Path::new("/proc/self/no-such-directory"));
        assert!(futures::poll!(std::pin::pin!(nothing.next())).is_pending());
    }
}
