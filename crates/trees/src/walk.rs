//! One entry after the other, and into directories when the caller says so.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom};

use crate::Ladder;

/// Read at once: some hundred names. It is read again after each directory
/// below, so more would cost more than it saves.
const BUFFER_BYTES: usize = 4 << 10;

/// Something in a directory, as it was when that was read.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: CString,
    pub kind: FileType,
    /// Where it stands in its directory, and where the next one does.
    before: u64,
    after: u64,
}

/// Where to go on in a directory after one below it was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// With the same entry once more.
    Again,
    After,
}

#[derive(Debug)]
pub struct Walk {
    ladder: Ladder,
    /// Where to go on in the directories above, the top first.
    resume: Vec<u64>,
    /// Read already, and not given to the caller yet.
    read: VecDeque<Entry>,
    /// Where the next entry stands.
    position: u64,
}

impl Walk {
    pub fn new(ladder: Ladder) -> Self {
        Self { ladder, resume: Vec::new(), read: VecDeque::new(), position: 0 }
    }

    /// The directory we are in.
    pub fn here(&self) -> BorrowedFd<'_> {
        self.ladder.here()
    }

    pub fn depth(&self) -> usize {
        self.ladder.depth()
    }

    /// `None`: that was all of this directory.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        if self.read.is_empty() {
            self.fill()?;
        }
        let Some(mut entry) = self.read.pop_front() else { return Ok(None) };
        entry.before = std::mem::replace(&mut self.position, entry.after);
        if entry.kind == FileType::Unknown {
            let found = rustix::fs::statat(self.here(), &entry.name, AtFlags::SYMLINK_NOFOLLOW);
            entry.kind = found.map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode));
        }
        Ok(Some(entry))
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(self.ladder.here(), &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let (name, kind, after) = (entry.file_name(), entry.file_type(), entry.next_entry_cookie());
            // Every directory has these two.
            if !matches!(name.to_bytes(), b"." | b"..") {
                self.read.push_back(Entry { name: name.to_owned(), kind, before: 0, after });
            }
            if entries.is_buffer_empty() && !self.read.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Into the directory that `next_entry` gave last. False: it is none any more,
    /// or something is mounted on it.
    pub fn enter(&mut self, entry: &Entry, resume: Resume) -> io::Result<bool> {
        if !self.ladder.enter(&entry.name)? {
            return Ok(false);
        }
        self.resume.push(match resume {
            Resume::Again => entry.before,
            Resume::After => entry.after,
        });
        self.read.clear();
        self.position = 0;
        Ok(true)
    }

    /// Upwards. False: we are at the top.
    pub fn leave(&mut self) -> io::Result<bool> {
        if !self.ladder.leave()? {
            return Ok(false);
        }
        let depth = self.ladder.depth();
        self.position = self.resume[depth];
        self.resume.truncate(depth);
        self.read.clear();
        rustix::fs::seek(self.ladder.here(), SeekFrom::Start(self.position))?;
        Ok(true)
    }
}

impl Entry {
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// Visits everything below the top, directories before what is in them.
pub fn each(top: Ladder, mut visit: impl FnMut(BorrowedFd<'_>, &Entry) -> io::Result<()>) -> io::Result<()> {
    let mut walk = Walk::new(top);
    loop {
        match walk.next_entry()? {
            Some(entry) => {
                visit(walk.here(), &entry)?;
                if entry.is_directory() {
                    walk.enter(&entry, Resume::After)?;
                }
            }
            None if !walk.leave()? => return Ok(()),
            None => {}
        }
    }
}
