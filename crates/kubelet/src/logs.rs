//! Reads container logs: the CRI line format, tails, and filters (API-609, API-614).
//!
//! A log is a sequence of entries `<RFC 3339 time> <stdout|stderr> <F|P> <content>`;
//! `P` entries are pieces of a line that the next entry goes on with.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use ambient::Timestamp;

/// What a reader wants to see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Options {
    pub(crate) follow: bool,
    pub(crate) tail_lines: Option<usize>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) timestamps: bool,
    pub(crate) limit_bytes: Option<usize>,
}

/// Turns log bytes into what the reader sees. Pure: bytes in, bytes out.
pub(crate) struct Decoder {
    since: Option<Timestamp>,
    timestamps: bool,
    left: Option<usize>,
    unfinished: Vec<u8>,
    is_line_start: bool,
}

/// An entry is at most a pipe's worth; a longer one is not ours.
const ENTRY_BYTES_MAX: usize = 1 << 20;

impl Decoder {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            since: options.since,
            timestamps: options.timestamps,
            left: options.limit_bytes,
            unfinished: Vec::new(),
            is_line_start: true,
        }
    }

    /// The limit is used up.
    pub(crate) fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        self.unfinished.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.unfinished);
        let mut rest = all.as_slice();
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            self.show(&rest[..end], &mut shown);
            rest = &rest[end + 1..];
        }
        if rest.len() <= ENTRY_BYTES_MAX {
            self.unfinished = rest.to_vec();
        }
        shown
    }

    fn show(&mut self, entry: &[u8], shown: &mut Vec<u8>) {
        let Some(entry) = Entry::parse(entry) else { return };
        if self.since.is_some_and(|since| entry.time().is_none_or(|time| time < since)) {
            return;
        }
        if self.timestamps && self.is_line_start {
            self.put(entry.timestamp, shown);
            self.put(b" ", shown);
        }
        self.put(entry.content, shown);
        if entry.is_whole {
            self.put(b"\n", shown);
        }
        self.is_line_start = entry.is_whole;
    }

    fn put(&mut self, bytes: &[u8], shown: &mut Vec<u8>) {
        let count = self.left.map_or(bytes.len(), |left| left.min(bytes.len()));
        shown.extend_from_slice(&bytes[..count]);
        self.left = self.left.map(|left| left - count);
    }
}

struct Entry<'a> {
    timestamp: &'a [u8],
    is_whole: bool,
    content: &'a [u8],
}

impl<'a> Entry<'a> {
    fn parse(entry: &'a [u8]) -> Option<Self> {
        let mut parts = entry.splitn(4, |&byte| byte == b' ');
        let timestamp = parts.next()?;
        let (stream, tag) = (parts.next()?, parts.next()?);
        let content = parts.next().unwrap_or_default();
        let is_entry = matches!(stream, b"stdout" | b"stderr");
        // Tags may be joined by colons; the first one says whether it is whole.
        let is_whole = tag.first() == Some(&b'F');
        is_entry.then_some(Self { timestamp, is_whole, content })
    }

    fn time(&self) -> Option<Timestamp> {
        std::str::from_utf8(self.timestamp).ok()?.parse().ok()
    }
}

/// Where the last `lines` entries begin. Reads backwards, a block at a time.
pub(crate) fn tail_start(file: &mut File, lines: usize) -> io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    let (mut position, mut found) = (end, 0);
    let mut block = vec![0; usize::try_from(BLOCK).expect("64 KiB")];
    while position > 0 {
        let start = position.saturating_sub(BLOCK);
        let bytes = &mut block[..usize::try_from(position - start).expect("at most one block")];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytes)?;
        for (index, byte) in bytes.iter().enumerate().rev() {
            let at = start + u64::try_from(index).expect("within a block");
            // The newline that ends the file ends a line, it does not begin one.
            if *byte == b'\n' && at + 1 < end {
                found += 1;
                if found == lines {
                    return Ok(at + 1);
                }
            }
        }
        position = start;
    }
    Ok(0)
}

/// The last bytes of a file.
pub(crate) fn tail_bytes(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last lines of a log as the container wrote them, at most `bytes_max` from the end.
pub(crate) fn last_lines(path: &Path, lines: usize, bytes_max: usize) -> io::Result<String> {
    let mut file = File::open(path)?;
    let start = tail_start(&mut file, lines)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    let shown = Decoder::new(&Options::default()).feed(&bytes);
    let from = shown.len().saturating_sub(bytes_max);
    Ok(String::from_utf8_lossy(&shown[from..]).into_owned())
}

/// 80 lines of a pipe's worth each, with room for their headers.
const READ_BYTES_MAX: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01.5Z stdout F one\n\
        2026-01-01T00:00:02Z stderr P tw\n\
        2026-01-01T00:00:03Z stderr F o\n\
        garbage\n\
        2026-01-01T00:00:04Z stdout F \n\
        2026-01-01T00:00:05Z stdout F five five\n";

    fn decode(options: &Options, pieces: &[&str]) -> String {
        let mut decoder = Decoder::new(options);
        let shown: Vec<u8> = pieces.iter().flat_map(|piece| decoder.feed(piece.as_bytes())).collect();
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn api_609_entries_become_lines_however_they_arrive() {
        let expected = "one\ntwo\n\nfive five\n";
        assert_eq!(decode(&Options::default(), &[LOG]), expected);
        let bytes: Vec<String> = LOG.chars().map(String::from).collect();
        let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
        assert_eq!(decode(&Options::default(), &bytes), expected);
    }

    #[test]
    fn api_614_timestamps_stand_once_before_each_line() {
        let options = Options { timestamps: true, ..Options::default() };
        let expected = "2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02Z two\n2026-01-01T00:00:04Z \n\
            2026-01-01T00:00:05Z five five\n";
        assert_eq!(decode(&options, &[LOG]), expected);
    }

    #[test]
    fn api_609_since_and_limit_cut_both_ends() {
        let since = Some("2026-01-01T00:00:04Z".parse().unwrap());
        assert_eq!(decode(&Options { since, ..Options::default() }, &[LOG]), "\nfive five\n");
        assert_eq!(decode(&Options { limit_bytes: Some(6), ..Options::default() }, &[LOG]), "one\ntw");
    }

    #[test]
    fn api_614_tails_count_from_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        let tail = |lines| {
            let mut file = File::open(&path).unwrap();
            let start = usize::try_from(tail_start(&mut file, lines).unwrap()).unwrap();
            LOG[start..].lines().count()
        };
        assert_eq!([tail(0), tail(1), tail(3), tail(6), tail(100)], [0, 1, 3, 6, 6]);
        let long: String = (0..30_000).map(|n| format!("2026-01-01T00:00:01Z stdout F {n}\n")).collect();
        std::fs::write(&path, &long).unwrap();
        assert_eq!(last_lines(&path, 5000, 1 << 20).unwrap().lines().count(), 5000);
        assert_eq!(last_lines(&path, 80, 12).unwrap(), "29998\n29999\n");
    }

    #[test]
    fn the_last_bytes_of_a_short_file_are_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m");
        std::fs::write(&path, "hello").unwrap();
        assert_eq!(tail_bytes(&path, 3).unwrap(), b"llo");
        assert_eq!(tail_bytes(&path, 99).unwrap(), b"hello");
    }
}
