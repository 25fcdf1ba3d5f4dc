//! Which sandbox has which address: a journal on disk, a table in memory.
//!
//! Invariants: an allocation is on disk before anyone hears of it; an address
//! has one holder at most; a freed one is the last to be given out again.
//!
//! ```text
//! @ 10.88.0.7            the address given out last (only after a compaction)
//! + 10.88.0.8 <sandbox>  taken
//! - 10.88.0.8            free again
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cri::SandboxId;
use rustix::fs::FlockOperation;
use shim::crash;

use super::{NetworkError, Range};

pub(super) struct Addresses {
    range: Range,
    path: PathBuf,
    journal: File,
    table: Table,
    /// Held as long as we live: two writers would not see each other's entries.
    _lock: File,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    by_address: BTreeMap<Ipv4Addr, SandboxId>,
    by_sandbox: BTreeMap<SandboxId, Ipv4Addr>,
    /// Given out last; the search for the next one starts behind it.
    last: Option<Ipv4Addr>,
}

impl Addresses {
    pub(super) fn open(state_dir: &Path, range: Range) -> Result<Addresses, NetworkError> {
        let failed = |source| NetworkError::State { path: state_dir.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(failed)?;
        let lock = private_file().open(state_dir.join("lock")).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(NetworkError::Busy { path: state_dir.to_owned() }),
            Err(err) => return Err(failed(err.into())),
        }
        let path = state_dir.join("addresses");
        let table = Table::read(&path)?;
        let journal = match write_compact(&path, &table) {
            // What is there says the same, only at greater length.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => reopen(&path).map_err(failed)?,
            compact => compact.map_err(failed)?,
        };
        Ok(Addresses { range, path, journal, table, _lock: lock })
    }

    pub(super) fn of(&self, sandbox: &SandboxId) -> Option<Ipv4Addr> {
        self.table.by_sandbox.get(sandbox).copied()
    }

    /// The sandbox's address; the same one as long as it is not freed.
    pub(super) fn allocate(&mut self, sandbox: &SandboxId) -> Result<Ipv4Addr, NetworkError> {
        if let Some(address) = self.table.by_sandbox.get(sandbox) {
            return Ok(*address);
        }
        let address = self.table.next_free(self.range).ok_or_else(|| self.range.exhausted())?;
        self.append(&format!("+ {address} {sandbox}\n"), Durability::Synced)?;
        self.table.take(address, sandbox.clone());
        Ok(address)
    }

    pub(super) fn free(&mut self, sandbox: &SandboxId) -> Result<(), NetworkError> {
        let Some(address) = self.table.by_sandbox.get(sandbox).copied() else { return Ok(()) };
        // Losing this line in a power failure keeps the address taken until
        // the next reconciliation; waiting for the disk would buy nothing.
        self.append(&format!("- {address}\n"), Durability::Eventual)?;
        self.table.release(address);
        Ok(())
    }

    pub(super) fn free_all_but(&mut self, known: &[SandboxId]) -> Result<(), NetworkError> {
        let holders: Vec<SandboxId> = self.table.by_sandbox.keys().cloned().collect();
        holders.iter().filter(|holder| !known.contains(holder)).try_for_each(|holder| self.free(holder))
    }

    pub(super) fn clear(&mut self) -> Result<(), NetworkError> {
        self.table = Table::default();
        self.journal = write_compact(&self.path, &self.table).map_err(|source| self.failed(source))?;
        Ok(())
    }

    fn append(&mut self, line: &str, durability: Durability) -> Result<(), NetworkError> {
        let end = self.journal.stream_position().map_err(|source| self.failed(source))?;
        if end > JOURNAL_BYTES_MAX {
            match write_compact(&self.path, &self.table) {
                Ok(compact) => self.journal = compact,
                // The long one has to do until there is room.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
                Err(source) => return Err(self.failed(source)),
            }
        }
        let end = self.journal.stream_position().map_err(|source| self.failed(source))?;
        let mut write = || {
            self.journal.write_all(line.as_bytes())?;
            crash::point("addresses.appended");
            match durability {
                Durability::Synced => self.journal.sync_data(),
                Durability::Eventual => Ok(()),
            }
        };
        let Err(source) = write() else { return Ok(()) };
        // Whatever part of the line got there must not stay in front of the next one.
        let _ = self.journal.set_len(end);
        let _ = self.journal.seek(SeekFrom::Start(end));
        Err(self.failed(source))
    }

    fn failed(&self, source: io::Error) -> NetworkError {
        NetworkError::State { path: self.path.clone(), source }
    }
}

#[derive(Clone, Copy)]
enum Durability {
    Synced,
    Eventual,
}

impl Table {
    fn read(path: &Path) -> Result<Table, NetworkError> {
        let mut text = Vec::new();
        let read = File::open(path).and_then(|mut file| file.read_to_end(&mut text));
        match read {
            Ok(_) => {}
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Table::default()),
            Err(source) => return Err(NetworkError::State { path: path.to_owned(), source }),
        }
        Table::parse(&text).map_err(|line| NetworkError::CorruptState { path: path.to_owned(), line })
    }

    /// Fails with the number of the line that makes no sense. An unfinished
    /// last line was never promised to anyone.
    fn parse(text: &[u8]) -> Result<Table, usize> {
        let mut table = Table::default();
        let complete = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let lines = text[..complete].split_inclusive(|b| *b == b'\n');
        for (number, line) in lines.enumerate() {
            let line = std::str::from_utf8(line).ok();
            line.and_then(|line| table.absorb(line.trim_end())).ok_or(number + 1)?;
        }
        Ok(table)
    }

    fn absorb(&mut self, line: &str) -> Option<()> {
        let mut words = line.splitn(3, ' ');
        let (sign, address) = (words.next()?, words.next()?.parse::<Ipv4Addr>().ok()?);
        match (sign, words.next()) {
            ("+", Some(sandbox)) if !self.by_address.contains_key(&address) => {
                self.take(address, SandboxId::from(sandbox));
            }
            ("-", None) => self.release(address),
            ("@", None) => self.last = Some(address),
            _ => return None,
        }
        Some(())
    }

    fn take(&mut self, address: Ipv4Addr, sandbox: SandboxId) {
        self.by_address.insert(address, sandbox.clone());
        self.by_sandbox.insert(sandbox, address);
        self.last = Some(address);
    }

    fn release(&mut self, address: Ipv4Addr) {
        if let Some(sandbox) = self.by_address.remove(&address) {
            self.by_sandbox.remove(&sandbox);
        }
    }

    /// Round and round, so that a freed address rests as long as possible.
    fn next_free(&self, range: Range) -> Option<Ipv4Addr> {
        let (first, end) = (range.first(), range.last());
        let start = self.last.map_or(first, |last| u32::from(last).saturating_add(1));
        let start = if (first..=end).contains(&start) { start } else { first };
        (start..=end).chain(first..start).map(Ipv4Addr::from).find(|address| !self.by_address.contains_key(address))
    }

    fn render(&self) -> String {
        let taken = self.by_address.iter().map(|(address, sandbox)| format!("+ {address} {sandbox}\n"));
        // Last, because taking an address moves the mark as well.
        taken.chain(self.last.map(|last| format!("@ {last}\n"))).collect()
    }
}

/// Replaces the journal by the shortest one that says the same; the returned
/// file stands at its end. Leaves nothing behind when it fails.
fn write_compact(path: &Path, table: &Table) -> io::Result<File> {
    let new = path.with_extension("new");
    let write = || -> io::Result<File> {
        let mut file = private_file().truncate(true).open(&new)?;
        file.write_all(table.render().as_bytes())?;
        reserve(&file);
        file.sync_all()?;
        crash::point("addresses.compacted");
        fs::rename(&new, path)?;
        if let Some(directory) = path.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok(file)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}

/// The journal as it is, without an unfinished last line; it stands at its end.
fn reopen(path: &Path) -> io::Result<File> {
    let text = fs::read(path)?;
    let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut file = private_file().open(path)?;
    if complete < text.len() {
        file.set_len(complete as u64)?;
    }
    file.seek(SeekFrom::Start(complete as u64))?;
    Ok(file)
}

/// Room for what is appended, so that an address can be given back on a full
/// disk. Where the file system cannot promise it, it is tried without.
fn reserve(journal: &File) {
    let _ = rustix::fs::fallocate(journal, rustix::fs::FallocateFlags::KEEP_SIZE, 0, RESERVE_BYTES);
}

fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// Some thousand pods between compactions.
const JOURNAL_BYTES_MAX: u64 = 192 << 10;
/// More than is appended between two compactions.
const RESERVE_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests;
