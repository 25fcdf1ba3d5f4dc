//! The file: format, opening, one commit. Uses redb; no other file names it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition};

use crate::cache::Image;
use crate::{Entry, OpenError, Revision};

/// Key → created, modified, value.
const ENTRIES: TableDefinition<&str, (u64, u64, &[u8])> = TableDefinition::new("entries");
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const FORMAT: &str = "format";
const REVISION: &str = "revision";
/// Raised when an older program could not read what a newer one writes.
const FORMAT_SUPPORTED: u64 = 1;

#[derive(Debug)]
pub(crate) struct Disk {
    database: Database,
}

impl Disk {
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
                        entries.insert(&**key, (entry.created.0, entry.modified.0, &*entry.value))?;
                    }
                    None => {
                        entries.remove(&**key)?;
                    }
                }
            }
            transaction.open_table(COUNTERS)?.insert(REVISION, revision.0)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

/// Where the file is, and how much of it may be kept in memory.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) path: PathBuf,
    pub(crate) page_cache_bytes: usize,
}

/// Opens or creates the file, checks it, and loads everything.
pub(crate) fn open(location: &Location) -> Result<(Disk, Image), OpenError> {
    let path = location.path.as_path();
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let is_new = !path.exists();
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(io)?;
    let mut builder = Database::builder();
    builder.set_cache_size(location.page_cache_bytes);
    let mut database = builder.create_file(file).map_err(|error| open_error(path, error))?;
    if is_new && let Some(parent) = path.parent() {
        // The directory entry is part of what must survive a power cut.
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(io)?;
    }
    match database.check_integrity() {
        Ok(true) => {}
        Ok(false) => return Err(damaged(path, "checksums do not match")),
        Err(error) => return Err(open_error(path, error)),
    }
    let image = load(&database).map_err(|error| table_error(path, error))?;
    let image = image.ok_or_else(|| newer_format(path, &database))?;
    Ok((Disk { database }, image))
}

/// Nothing if the file has a format this program does not know.
fn load(database: &Database) -> Result<Option<Image>, redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut counters = transaction.open_table(COUNTERS)?;
        let format = counters.get(FORMAT)?.map(|found| found.value());
        match format {
            None => drop(counters.insert(FORMAT, FORMAT_SUPPORTED)?),
            Some(found) if found > FORMAT_SUPPORTED => return Ok(None),
            Some(_) => {}
        }
        transaction.open_table(ENTRIES)?;
    }
    transaction.commit()?;

    let transaction = database.begin_read()?;
    let revision = transaction.open_table(COUNTERS)?.get(REVISION)?.map_or(0, |found| found.value());
    let mut image = Image { revision: Revision(revision), entries: BTreeMap::new() };
    for row in transaction.open_table(ENTRIES)?.iter()? {
        let (key, row) = row?;
        let key: Arc<str> = key.value().into();
        let (created, modified, value) = row.value();
        let entry = Entry::new(Arc::clone(&key), Bytes::copy_from_slice(value), Revision(created), Revision(modified));
        image.entries.insert(key, Arc::new(entry));
    }
    Ok(Some(image))
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
