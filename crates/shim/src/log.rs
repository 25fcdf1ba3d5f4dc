//! Container logs in the CRI format: one line per line of output, with time,
//! stream and `F` (full) or `P` (part of a longer line).
//!
//! A full file gets a new name with the time in it and is not touched any
//! more; it is not compressed, which would cost this process its smallness:
//! the agent does that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::attach::Clients;
use crate::sys;
use crate::wire::LogLimits;

/// Longest piece of one output line in one log line, as in containerd.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;
/// How much is written at once: output of many short lines is far longer in the log.
const WRITE_BYTES: usize = 32 << 10;

/// Which output of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Stdout,
    Stderr,
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The log file of one container (LC-088).
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    limits: Option<LogLimits>,
    /// How long the file is: whole entries, always.
    length: u64,
    /// What it was given in all, in entries.
    taken: u64,
    /// Which outputs are in the middle of a line.
    is_mid_line: [bool; 2],
    /// When it could last not be written, in wall time.
    failed_at_ns: Option<u64>,
    /// The second and the number in the name of the file that was rotated last.
    last_name: (u64, u32),
}

/// That a log fails is said again only after so long without a failure.
const COMPLAIN_AGAIN_NS: u64 = 60_000_000_000;

impl Log {
    pub(crate) fn open(path: &Path, limits: Option<LogLimits>) -> io::Result<Self> {
        let (file, length) = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            limits,
            length,
            taken: 0,
            is_mid_line: [false; 2],
            failed_at_ns: None,
            last_name: (0, 0),
        })
    }

    /// For rotation by others: whoever renamed the file wants a new one.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.length) = open(&self.path)?;
        Ok(())
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whole entries go into the file or, when the disk does not take them,
    /// nowhere: no log stops a container, and no entry is written in part.
    fn write(&mut self, entries: &[u8], now_ns: u64) {
        if entries.is_empty() {
            return;
        }
        self.taken += entries.len() as u64;
        if let Err(error) = self.rotate_if_due(now_ns) {
            self.complain(&format!("{error}; it is not rotated"), now_ns);
        }
        if let Err(error) = self.file.write_all(entries) {
            self.complain(&format!("{error}; output is lost until it can be written"), now_ns);
            // Someone else may have cut it: it is never made longer.
            if self.file.metadata().is_ok_and(|now| now.len() > self.length) {
                let _ = self.file.set_len(self.length);
            }
        } else {
            self.length += entries.len() as u64;
        }
    }

    /// Once, and again only after a while without a reason to.
    fn complain(&mut self, what: &str, now_ns: u64) {
        if self.failed_at_ns.is_none_or(|at| now_ns.abs_diff(at) > COMPLAIN_AGAIN_NS) {
            eprintln!("shim: {}: {what}", self.path.display());
        }
        self.failed_at_ns = Some(now_ns);
    }

    /// Between two lines if possible; an endless line has to be parted.
    fn rotate_if_due(&mut self, now_ns: u64) -> io::Result<()> {
        let Some(limits) = self.limits.filter(|limits| self.length >= limits.file_bytes_max.max(1)) else {
            return Ok(());
        };
        let is_endless = self.length / 2 >= limits.file_bytes_max;
        if self.is_mid_line.contains(&true) && !is_endless {
            return Ok(());
        }
        let rotated = rotation::name(&self.path, &mut self.last_name, now_ns);
        fs::rename(&self.path, &rotated)?;
        if let Err(error) = self.reopen() {
            // Readers look for it under its name.
            fs::rename(&rotated, &self.path)?;
            return Err(error);
        }
        rotation::remove_oldest(&self.path, limits.files_max)
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

/// Where output goes: to the log, and to whoever is attached.
pub(crate) struct Sinks<'a> {
    pub(crate) log: &'a mut Log,
    pub(crate) clients: &'a mut Clients,
}

/// One output stream of a container on its way.
pub(crate) struct Stream {
    which: Which,
    pipe: Option<File>,
    /// A line that has no end yet.
    pending: Vec<u8>,
}

impl Stream {
    /// `pipe` is the reading end and does not block; `None`: there is no such output.
    pub(crate) fn new(which: Which, pipe: Option<OwnedFd>) -> Self {
        Self { which, pipe: pipe.map(File::from), pending: Vec::new() }
    }

    /// What to poll; `None` once the other end is closed.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Moves what is there now; true if there may be more. Not while someone
    /// is behind. `buffer` is scratch space.
    pub(crate) fn pump(&mut self, sinks: &mut Sinks<'_>, buffer: &mut [u8], now_ns: u64) -> bool {
        let Some(pipe) = self.pipe.as_mut().filter(|_| !sinks.clients.hold_up(self.which)) else { return false };
        match pipe.read(buffer) {
            Ok(length @ 1..) => {
                let output = &buffer[..length];
                sinks.clients.tell(self.which, output, sys::mono());
                self.log(sinks.log, output, now_ns);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            // A terminal says EIO when nobody has it open any more.
            Ok(_) | Err(_) => {
                self.close(sinks.log, now_ns);
                false
            }
        }
    }

    /// Moves all there is; for a container whose processes are gone. False
    /// while someone is behind.
    pub(crate) fn drain(&mut self, sinks: &mut Sinks<'_>, buffer: &mut [u8], now_ns: u64) -> bool {
        while self.pump(sinks, buffer, now_ns) {}
        if sinks.clients.hold_up(self.which) {
            return false;
        }
        // Someone outside may hold the other end: not ours to wait for.
        self.close(sinks.log, now_ns);
        true
    }

    pub(crate) fn close(&mut self, log: &mut Log, now_ns: u64) {
        self.pipe = None;
        if !self.pending.is_empty() {
            let mut entries = Vec::new();
            append(&mut entries, now_ns, self.which.name(), b'P', &std::mem::take(&mut self.pending));
            log.write(&entries, now_ns);
        }
    }

    /// Log entries for `output`; what has no line end yet is kept.
    pub(crate) fn log(&mut self, log: &mut Log, output: &[u8], now_ns: u64) {
        let mut entries = Vec::with_capacity(output.len() + 256);
        let mut rest = output;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.extend(log, &mut entries, &rest[..end], now_ns);
            self.entry(log, &mut entries, b'F', now_ns);
            rest = &rest[end + 1..];
        }
        self.extend(log, &mut entries, rest, now_ns);
        log.write(&entries, now_ns);
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
    }

    /// Adds to the unfinished line and writes out pieces that are long enough.
    fn extend(&mut self, log: &mut Log, entries: &mut Vec<u8>, mut piece: &[u8], now_ns: u64) {
        while self.pending.len() + piece.len() > LINE_BYTES_MAX {
            let (head, tail) = piece.split_at(LINE_BYTES_MAX - self.pending.len());
            self.pending.extend_from_slice(head);
            self.entry(log, entries, b'P', now_ns);
            piece = tail;
        }
        self.pending.extend_from_slice(piece);
    }

    /// The unfinished line as an entry.
    fn entry(&mut self, log: &mut Log, entries: &mut Vec<u8>, tag: u8, now_ns: u64) {
        append(entries, now_ns, self.which.name(), tag, &self.pending);
        self.pending.clear();
        if entries.len() >= WRITE_BYTES || tag == b'P' || log.is_mid_line[self.which as usize] {
            log.write(entries, now_ns);
            entries.clear();
        }
        log.is_mid_line[self.which as usize] = tag == b'P';
    }
}

fn append(lines: &mut Vec<u8>, now_ns: u64, stream: &str, tag: u8, text: &[u8]) {
    write_time(lines, now_ns);
    lines.push(b' ');
    lines.extend_from_slice(stream.as_bytes());
    lines.extend_from_slice(&[b' ', tag, b' ']);
    lines.extend_from_slice(text);
    lines.push(b'\n');
}

/// RFC 3339 in UTC with nanoseconds. Written out here because a time library
/// would be the largest dependency of this process.
fn write_time(out: &mut Vec<u8>, now_ns: u64) {
    let (seconds, nanos) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Writing to a vector cannot fail.
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z");
}

/// Year, month and day of a day counted from 1970-01-01 (proleptic Gregorian
/// calendar, years starting in March so that the leap day comes last).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

mod rotation {
    //! Names of the older files of a log: `0.log.20261115-203000`, with a
    //! number where one second has seen more than one.

    use std::fs;
    use std::io;
    use std::path::{Path, PathBuf};

    /// Comes after `last` in the order of names, whatever the clock does.
    pub(super) fn name(path: &Path, last: &mut (u64, u32), now_ns: u64) -> PathBuf {
        let now = now_ns / 1_000_000_000;
        *last = if now > last.0 { (now, 0) } else { (last.0, last.1 + 1) };
        let (seconds, number) = *last;
        let (year, month, day) = super::civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}"));
        if number > 0 {
            name.push(format!("-{number:04}"));
        }
        name.into()
    }

    /// Only so many are left, with the one being written. By name is by age,
    /// also of those that the agent has compressed (`.gz`).
    pub(super) fn remove_oldest(path: &Path, files_max: u32) -> io::Result<()> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let prefix = format!("{}.", name.to_string_lossy());
        let mut older: Vec<String> = fs::read_dir(dir)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            // Not what the agent is compressing just now.
            .filter(|name| name.starts_with(&prefix) && !name.ends_with(".tmp"))
            .collect();
        let plain = |name: &String| name.strip_suffix(".gz").unwrap_or(name).to_owned();
        older.sort_by_cached_key(plain);
        let kept = usize::try_from(files_max.max(1) - 1).unwrap_or(usize::MAX);
        let surplus = older.len().saturating_sub(kept);
        older.iter().take(surplus).try_for_each(|name| fs::remove_file(dir.join(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_794_774_600_000_000_000;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("podium-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        fn log(&self, limits: Option<LogLimits>) -> Log {
            Log::open(&self.0.join("0.log"), limits).unwrap()
        }

        /// Every file with its content, oldest first.
        fn files(&self) -> Vec<(String, String)> {
            let mut names: Vec<String> =
                fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort_by_key(|name| (name == "0.log", name.clone()));
            let content = |name: String| (fs::read_to_string(self.0.join(&name)).unwrap(), name);
            names.into_iter().map(content).collect()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn check(outputs: &[&[u8]]) -> String {
        static CHECKS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = CHECKS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = Dir::new(&format!("log-{number}"));
        let (mut log, mut stream) = (dir.log(None), Stream::new(Which::Stdout, None));
        outputs.iter().for_each(|output| stream.log(&mut log, output, NOW));
        dir.files().remove(0).0
    }

    #[test]
    fn a_log_begins_a_new_file_between_lines_and_keeps_so_many() {
        let dir = Dir::new("rotation");
        let mut log = dir.log(Some(LogLimits { file_bytes_max: 20_000, files_max: 3 }));
        let (mut out, mut err) = (Stream::new(Which::Stdout, None), Stream::new(Which::Stderr, None));
        let names = |dir: &Dir| dir.files().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        // 45 bytes each, so that a file is full after the last one.
        let mut fill =
            |log: &mut Log, lines, now| (0..lines).for_each(|n| out.log(log, format!("{n:04}\n").as_bytes(), now));
        fill(&mut log, 445, NOW);
        assert_eq!(names(&dir), ["0.log"]);
        err.log(&mut log, &vec![b'x'; LINE_BYTES_MAX + 1], NOW);
        assert_eq!(names(&dir), ["0.log.20261115-203000", "0.log"]);
        // Full again, but in the middle of a line.
        fill(&mut log, 200, NOW);
        err.log(&mut log, b"y\n", NOW);
        assert_eq!(names(&dir), ["0.log.20261115-203000", "0.log"]);
        fill(&mut log, 445, NOW + 1_000_000_000);
        assert_eq!(names(&dir), ["0.log.20261115-203000", "0.log.20261115-203001", "0.log"]);
        fill(&mut log, 1, NOW + 1_000_000_000);
        assert_eq!(names(&dir), ["0.log.20261115-203001", "0.log.20261115-203001-0001", "0.log"]);
        let lines: Vec<usize> = dir.files().iter().map(|(content, _)| content.lines().count()).collect();
        assert_eq!(lines, [202, 445, 1]);
        assert!(dir.files()[0].0.ends_with(" stderr F xy\n"));
        // The agent compresses older ones: they count, under the time they carry.
        let gz = dir.0.join("0.log.20261115-203001.gz");
        fs::rename(dir.0.join("0.log.20261115-203001"), &gz).unwrap();
        rotation::remove_oldest(&dir.0.join("0.log"), 3).unwrap();
        assert_eq!(names(&dir).len(), 3);
        rotation::remove_oldest(&dir.0.join("0.log"), 2).unwrap();
        assert_eq!(names(&dir), ["0.log.20261115-203001-0001", "0.log"]);
    }

    #[test]
    fn a_line_without_end_is_parted() {
        let dir = Dir::new("endless");
        let mut log = dir.log(Some(LogLimits { file_bytes_max: 20_000, files_max: 9 }));
        let mut stream = Stream::new(Which::Stdout, None);
        (0..8).for_each(|_| stream.log(&mut log, &[b'x'; LINE_BYTES_MAX], NOW));
        assert_eq!(dir.files().len(), 3);
    }

    #[test]
    fn what_the_disk_does_not_take_leaves_no_part_of_an_entry() {
        let dir = Dir::new("full");
        let mut log = dir.log(None);
        let mut stream = Stream::new(Which::Stdout, None);
        stream.log(&mut log, b"before\n", NOW);
        let there = std::mem::replace(&mut log.file, File::options().write(true).open("/dev/full").unwrap());
        stream.log(&mut log, b"lost\n", NOW);
        assert_eq!(log.failed_at_ns, Some(NOW));
        log.file = there;
        stream.log(&mut log, b"after\n", NOW);
        let said: Vec<String> = dir.files()[0].0.lines().map(|line| line[38..].to_owned()).collect();
        assert_eq!(said, ["F before", "F after"]);
    }

    #[test]
    fn whole_lines_are_logged_as_they_are_completed() {
        assert_eq!(
            check(&[b"a\nb", b"c\n\n", b"open"]),
            "2026-11-15T20:30:00.000000000Z stdout F a\n\
             2026-11-15T20:30:00.000000000Z stdout F bc\n\
             2026-11-15T20:30:00.000000000Z stdout F \n"
        );
    }

    #[test]
    fn a_long_line_is_logged_in_parts_and_its_last_part_is_full() {
        let long = vec![b'x'; LINE_BYTES_MAX + 3];
        let log = check(&[&long, b"\n"]);
        let tags: Vec<(&str, usize)> =
            log.lines().map(|line| line[38..].split_once(' ').unwrap()).map(|(tag, text)| (tag, text.len())).collect();
        assert_eq!(tags, [("P", LINE_BYTES_MAX), ("F", 3)]);
    }

    #[test]
    fn leap_days_and_year_ends_are_spelled_right() {
        let spell = |seconds: u64| {
            let mut out = Vec::new();
            write_time(&mut out, seconds * 1_000_000_000 + 7);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(spell(0), "1970-01-01T00:00:00.000000007Z");
        assert_eq!(spell(1_709_164_800), "2024-02-29T00:00:00.000000007Z");
        assert_eq!(spell(1_798_761_599), "2026-12-31T23:59:59.000000007Z");
    }
}
