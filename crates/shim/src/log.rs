//! Container logs in the CRI format: one line per line of output, with time,
//! stream and `F` (full) or `P` (part of a longer line).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest piece of one output line in one log line, as in containerd.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;

/// The log file of one container (LC-088).
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: open(path)? })
    }

    /// For rotation: whoever renamed the file wants a new one.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// One output stream of a container on its way into the log.
pub(crate) struct Stream {
    name: &'static str,
    pipe: Option<File>,
    /// A line that has no end yet.
    pending: Vec<u8>,
}

impl Stream {
    /// `pipe` is the reading end and does not block.
    pub(crate) fn new(name: &'static str, pipe: OwnedFd) -> Self {
        Self { name, pipe: Some(File::from(pipe)), pending: Vec::new() }
    }

    /// What to poll; `None` once the other end is closed.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Moves what is there now into the log. `buffer` is scratch space.
    pub(crate) fn pump(&mut self, log: &mut Log, buffer: &mut [u8], now_ns: u64) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match pipe.read(buffer) {
            Ok(0) => self.close(log, now_ns),
            Ok(length) => {
                let lines = self.lines(&buffer[..length], now_ns);
                log.file.write_all(&lines)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads until nothing more comes; for a container whose processes are gone.
    pub(crate) fn drain(&mut self, log: &mut Log, buffer: &mut [u8], now_ns: u64) -> io::Result<()> {
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(buffer) {
                Ok(0) => self.close(log, now_ns)?,
                Ok(length) => {
                    let lines = self.lines(&buffer[..length], now_ns);
                    log.file.write_all(&lines)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Someone outside the container holds the other end: not ours to wait for.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.close(log, now_ns)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn close(&mut self, log: &mut Log, now_ns: u64) -> io::Result<()> {
        self.pipe = None;
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut line = Vec::new();
        append(&mut line, now_ns, self.name, b'P', &std::mem::take(&mut self.pending));
        log.file.write_all(&line)
    }

    /// Log lines for `output`; what has no line end yet is kept.
    fn lines(&mut self, output: &[u8], now_ns: u64) -> Vec<u8> {
        let mut lines = Vec::with_capacity(output.len() + 256);
        let mut rest = output;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.extend(&mut lines, &rest[..end], now_ns);
            append(&mut lines, now_ns, self.name, b'F', &self.pending);
            self.pending.clear();
            rest = &rest[end + 1..];
        }
        self.extend(&mut lines, rest, now_ns);
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
        lines
    }

    /// Adds to the unfinished line and writes out pieces that are long enough.
    fn extend(&mut self, lines: &mut Vec<u8>, mut piece: &[u8], now_ns: u64) {
        while self.pending.len() + piece.len() > LINE_BYTES_MAX {
            let (head, tail) = piece.split_at(LINE_BYTES_MAX - self.pending.len());
            self.pending.extend_from_slice(head);
            append(lines, now_ns, self.name, b'P', &self.pending);
            self.pending.clear();
            piece = tail;
        }
        self.pending.extend_from_slice(piece);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(outputs: &[&[u8]]) -> String {
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        let mut stream = Stream::new("stdout", reader);
        let lines: Vec<u8> =
            outputs.iter().flat_map(|output| stream.lines(output, 1_794_774_600_000_000_000)).collect();
        String::from_utf8(lines).unwrap()
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
