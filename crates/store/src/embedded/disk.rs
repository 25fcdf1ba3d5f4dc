//! The file: format, opening, one commit. Uses redb; no other file names it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition};
use rustix::fs::{FallocateFlags, fallocate};

use crate::cache::Image;
use crate::{Entry, OpenError, Revision, Seal};

/// Key → created, modified, value.
const ENTRIES: TableDefinition<&str, (u64, u64, &[u8])> = TableDefinition::new("entries");
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const FORMAT: &str = "format";
const REVISION: &str = "revision";
/// Raised when an older program could not read what a newer one writes: since
/// 2, values may be sealed.
const FORMAT_SUPPORTED: u64 = 2;
/// Room on the disk that belongs to the file before it needs it.
const RESERVE_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct Disk {
    database: Database,
    seal: Arc<dyn Seal>,
    reserve: Option<Reserve>,
}

/// A disk that somebody else has filled must take the writes that free it: the
/// end of an evicted pod is on record before its files go. So the file has room
/// where it is sparse, and beyond its end.
#[derive(Debug)]
struct Reserve {
    file: File,
    /// How long the file was when it was last given room.
    length: AtomicU64,
}

impl Reserve {
    fn of(path: &Path) -> Option<Self> {
        let file = OpenOptions::new().write(true).open(path).ok()?;
        let reserve = Self { file, length: AtomicU64::new(0) };
        reserve.renew();
        Some(reserve)
    }

    /// As far as the file system can; without it a full disk refuses writes.
    fn renew(&self) {
        let Ok(length) = self.file.metadata().map(|file| file.len()) else { return };
        if self.length.swap(length, Ordering::Relaxed) != length {
            let _ = fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, length + RESERVE_BYTES);
        }
    }
}

impl Disk {
    fn new(database: Database, location: &Location) -> Self {
        Self { database, seal: Arc::clone(&location.seal), reserve: Reserve::of(&location.path) }
    }

    /// Returns once the changes and the revision are on disk.
    pub(crate) fn commit(
        &self,
        revision: Revision,
        changes: &BTreeMap<Arc<str>, Option<Arc<Entry>>>,
    ) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            for (key, entry) in changes {
                match entry {
                    Some(entry) => {
                        let kept = self.seal.seal(key, &entry.value).map_err(io::Error::other)?;
                        entries.insert(&**key, (entry.created.0, entry.modified.0, &*kept))?;
                    }
                    None => {
                        entries.remove(&**key)?;
                    }
                }
            }
            transaction.open_table(COUNTERS)?.insert(REVISION, revision.0)?;
        }
        transaction.commit()?;
        if let Some(reserve) = &self.reserve {
            reserve.renew();
        }
        Ok(())
    }
}

/// Where the file is, how much of it may be kept in memory, and how values
/// are kept in it.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) path: PathBuf,
    pub(crate) page_cache_bytes: usize,
    pub(crate) seal: Arc<dyn Seal>,
}

/// What a file holds.
struct Contents {
    image: Image,
    /// Some values would be kept otherwise today.
    is_stale: bool,
}

/// Opens or creates the file, checks it, and loads everything.
pub(crate) fn open(location: &Location) -> Result<(Disk, Image), OpenError> {
    let path = location.path.as_path();
    let mut database = open_file(path, location.page_cache_bytes)?;
    match database.check_integrity() {
        Ok(true) => {}
        Ok(false) => return Err(damaged(path, "checksums do not match")),
        Err(error) => return Err(open_error(path, error)),
    }
    let contents = load(&database, &*location.seal).map_err(|error| table_error(path, error))?;
    let Contents { image, is_stale } = contents.ok_or_else(|| newer_format(path, &database))?;
    if !is_stale {
        return Ok((Disk::new(database, location), image));
    }
    tracing::info!(path = %path.display(), "writing the store anew, because of values that are not kept as they should");
    let database = write_anew(location, database, &image)?;
    Ok((Disk::new(database, location), image))
}

fn open_file(path: &Path, page_cache_bytes: usize) -> Result<Database, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let is_new = match fs::metadata(path) {
        // To the storage library it would be a new file, to its user all that was there is gone.
        Ok(found) if found.len() == 0 => return Err(damaged(path, "it is empty")),
        Ok(_) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(io(error)),
    };
    // It gets its name when it is one, so that an empty one was never ours.
    let unfinished = path.with_extension("unfinished");
    let place = if is_new { unfinished.as_path() } else { path };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(is_new).mode(0o600).open(place).map_err(io)?;
    let mut builder = Database::builder();
    builder.set_cache_size(page_cache_bytes);
    let database = builder.create_file(file).map_err(|error| open_error(path, error))?;
    if is_new {
        fs::rename(place, path).map_err(io)?;
        if let Some(parent) = path.parent() {
            // The directory entry is part of what must survive a power cut.
            File::open(parent).and_then(|dir| dir.sync_all()).map_err(io)?;
        }
    }
    Ok(database)
}

/// Puts everything into a new file, sealed as it should be, and that in the
/// place of the old one: pages a file no longer uses keep what was in them.
/// Where that fails, the old one goes on.
fn write_anew(location: &Location, old: Database, image: &Image) -> Result<Database, OpenError> {
    let path = location.path.as_path();
    let fresh = path.with_extension("new");
    let new = match replace(location, &fresh, &old, image) {
        Ok(new) => new,
        Err(error) => {
            // A full disk, say. The old file is as good as it was, and what is
            // written from now on is sealed as it should be.
            tracing::warn!(%error, path = %path.display(), "the store can not be written anew, and stays as it is");
            // Half of a file would keep the disk full. What is not there is not missed.
            let _ = fs::remove_file(&fresh);
            return Ok(old);
        }
    };
    // From here on there is no way back: the old file has no name any more.
    if let Some(parent) = path.parent() {
        let synced = File::open(parent).and_then(|dir| dir.sync_all());
        synced.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    }
    drop(old);
    Ok(new)
}

/// The last step puts the new file in the place of the old one; if any fails,
/// the old one is still there.
fn replace(location: &Location, fresh: &Path, old: &Database, image: &Image) -> Result<Database, OpenError> {
    let io = |source| OpenError::Io { path: fresh.to_owned(), source };
    match fs::remove_file(fresh) {
        // What was begun before a crash.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    let new = open_file(fresh, location.page_cache_bytes)?;
    copy(old, &new, image, &*location.seal).map_err(|error| table_error(fresh, error))?;
    fs::rename(fresh, &location.path).map_err(io)?;
    Ok(new)
}

fn copy(old: &Database, new: &Database, image: &Image, seal: &dyn Seal) -> Result<(), redb::Error> {
    let (reading, writing) = (old.begin_read()?, new.begin_write()?);
    {
        let mut counters = writing.open_table(COUNTERS)?;
        counters.insert(FORMAT, FORMAT_SUPPORTED)?;
        counters.insert(REVISION, image.revision.0)?;
        let mut entries = writing.open_table(ENTRIES)?;
        for row in reading.open_table(ENTRIES)?.iter()? {
            let (key, row) = row?;
            let (created, modified, kept) = row.value();
            // What can not be read stays as it is: its key may be found again.
            let anew = match image.entries.get(key.value()) {
                Some(entry) if entry.fault().is_none() => seal.seal(key.value(), &entry.value),
                _ => Ok(Bytes::copy_from_slice(kept)),
            };
            entries.insert(key.value(), (created, modified, &*anew.map_err(io::Error::other)?))?;
        }
    }
    Ok(writing.commit()?)
}

/// Nothing if the file has a format this program does not know.
fn load(database: &Database, seal: &dyn Seal) -> Result<Option<Contents>, redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut counters = transaction.open_table(COUNTERS)?;
        let format = counters.get(FORMAT)?.map(|found| found.value());
        match format {
            Some(FORMAT_SUPPORTED) => {}
            Some(found) if found > FORMAT_SUPPORTED => return Ok(None),
            _ => drop(counters.insert(FORMAT, FORMAT_SUPPORTED)?),
        }
        transaction.open_table(ENTRIES)?;
    }
    transaction.commit()?;

    let transaction = database.begin_read()?;
    let revision = transaction.open_table(COUNTERS)?.get(REVISION)?.map_or(0, |found| found.value());
    let mut image = Image { revision: Revision(revision), entries: BTreeMap::new() };
    let mut is_stale = false;
    for row in transaction.open_table(ENTRIES)?.iter()? {
        let (key, row) = row?;
        let key: Arc<str> = key.value().into();
        let (created, modified, kept) = row.value();
        let value = seal.open(&key, kept).map(|opened| {
            is_stale |= opened.is_stale;
            opened.value
        });
        let entry = Entry::opened(Arc::clone(&key), value, Revision(created), Revision(modified));
        if let Some(fault) = entry.fault() {
            tracing::error!(%fault, "an object can not be read");
        }
        image.entries.insert(key, Arc::new(entry));
    }
    Ok(Some(Contents { image, is_stale }))
}

fn newer_format(path: &Path, database: &Database) -> OpenError {
    let read = || -> Result<u64, redb::Error> {
        Ok(database.begin_read()?.open_table(COUNTERS)?.get(FORMAT)?.map_or(0, |found| found.value()))
    };
    match read() {
        Ok(found) => OpenError::NewerFormat { path: path.to_owned(), found, supported: FORMAT_SUPPORTED },
        Err(error) => table_error(path, error),
    }
}

fn damaged(path: &Path, detail: impl Into<String>) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), detail: detail.into() }
}

fn open_error(path: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path: path.to_owned() },
        DatabaseError::Storage(StorageError::Io(source)) if !is_damage(&source) => {
            OpenError::Io { path: path.to_owned(), source }
        }
        error => damaged(path, error.to_string()),
    }
}

/// The file does not hold what it says, or ends before it should.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

fn table_error(path: &Path, error: redb::Error) -> OpenError {
    match error {
        redb::Error::Io(source) if !is_damage(&source) => OpenError::Io { path: path.to_owned(), source },
        error => damaged(path, error.to_string()),
    }
}
