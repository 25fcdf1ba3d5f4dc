//! What a tree takes on disk, as `du -x` counts: a file with many names once.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Stat};
use rustix::path::Arg;

use crate::{Ladder, Resume, Walk};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

/// Files with several names that are remembered; of more than these, each name counts.
const SEEN_MAX: usize = 1 << 20;

/// The top included. What vanishes or cannot be read meanwhile counts nothing.
pub fn usage(top: &Path) -> Usage {
    let mut counter = Counter::default();
    if counter.add(CWD, top) != Some(FileType::Directory) {
        return counter.usage;
    }
    let Ok(ladder) = Ladder::at(top) else { return counter.usage };
    let mut walk = Walk::new(ladder);
    loop {
        match walk.next_entry() {
            Ok(Some(entry)) => {
                let kind = counter.add(walk.here(), entry.name.as_c_str());
                if kind == Some(FileType::Directory) {
                    // One that cannot be entered has been counted itself.
                    let _ = walk.enter(&entry, Resume::After);
                }
            }
            Ok(None) | Err(_) => match walk.leave() {
                Ok(true) => {}
                Ok(false) | Err(_) => return counter.usage,
            },
        }
    }
}

#[derive(Default)]
struct Counter {
    usage: Usage,
    seen: BTreeSet<(u64, u64)>,
}

impl Counter {
    fn add(&mut self, directory: impl AsFd, name: impl Arg) -> Option<FileType> {
        let found: Stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let has_other_names = found.st_nlink > 1 && kind != FileType::Directory && self.seen.len() < SEEN_MAX;
        if !has_other_names || self.seen.insert((found.st_dev, found.st_ino)) {
            self.usage.bytes += u64::try_from(found.st_blocks).unwrap_or(0) * 512;
            self.usage.inodes += 1;
        }
        Some(kind)
    }
}
