//! Container logs from the pipe to the reader: what a container said is what is
//! read, across new files and in whichever pieces; tails, times and limits show
//! what a plain reader would.
#![no_main]

// As they are, without all that a node agent is made of besides.
#[path = "../../crates/kubelet/src/logs.rs"]
#[allow(dead_code)]
mod logs;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ambient::Timestamp;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use logs::{Decoder, Options};
use podium_fuzz::jail::scratch;
use shim::fuzzing::Writer;
use shim::wire::LogLimits;

static PLACE: LazyLock<PathBuf> = LazyLock::new(|| scratch("logs"));
const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_794_774_600 * SECOND;
/// As containerd parts lines.
const LINE_BYTES_MAX: usize = 16 << 10;
const FILES_MAX: u32 = 1000;

fuzz_target!(|bytes: &[u8]| {
    let path = PLACE.join("0.log");
    fs::write(&path, bytes).expect("a file");
    for number in [0, 1, 3] {
        check_reader(&path, bytes, &Options { tail_lines: Some(number), ..Options::default() }, number + 1);
    }
    let _ = play(&mut Unstructured::new(bytes));
});

fn play(bytes: &mut Unstructured<'_>) -> Result<()> {
    let directory = PLACE.join("written");
    fs::create_dir(&directory).expect("a directory");
    let outcome = write_and_read(bytes, &directory.join("0.log"));
    fs::remove_dir_all(&directory).expect("it goes");
    outcome
}

/// What one output said until now, as a reader shows it.
#[derive(Default)]
struct Said {
    bytes: Vec<u8>,
}

fn write_and_read(bytes: &mut Unstructured<'_>, path: &Path) -> Result<()> {
    let limits = match bytes.arbitrary()? {
        true => Some(LogLimits { file_bytes_max: bytes.int_in_range(0..=40_000)?, files_max: FILES_MAX }),
        false => None,
    };
    let mut writer = Writer::new(path, limits).expect("a log");
    let mut said = [Said::default(), Said::default()];
    let (one_output, mut now): (bool, u64) = (bytes.arbitrary()?, START);
    for _ in 0..bytes.int_in_range(1..=12)? {
        let is_error = !one_output && bytes.arbitrary()?;
        let output = output(bytes)?;
        now += bytes.int_in_range(0..=2 * SECOND)?;
        writer.say(is_error, &output, now);
        said[usize::from(is_error)].bytes.extend_from_slice(&output);
    }
    writer.end(now);
    let mut files: Vec<PathBuf> = fs::read_dir(path.parent().expect("a directory"))
        .expect("a list")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    // By name is by age, but for the one that is written.
    files.sort_by_key(|file| (file == path, file.clone()));
    let written: Vec<u8> = files.iter().flat_map(|file| fs::read(file).expect("a file")).collect();
    check_files(&files, limits);
    for (name, said) in ["stdout", "stderr"].iter().zip(&said) {
        assert_eq!(shown(&written, name), said.bytes, "{name} lost something");
    }
    if one_output {
        assert_eq!(decoded(&written, &Options::default(), piece(bytes, &written)?), said[0].bytes);
    }
    let options = Options {
        tail_lines: if bytes.arbitrary()? { Some(bytes.int_in_range(0..=9)?) } else { None },
        since: if bytes.arbitrary()? { Some(time(START + bytes.int_in_range(0..=9 * SECOND)?)) } else { None },
        timestamps: bytes.arbitrary()?,
        limit_bytes: if bytes.arbitrary()? { Some(bytes.int_in_range(0..=40_000)?) } else { None },
        follow: false,
    };
    let last = fs::read(path).expect("a file");
    check_reader(path, &last, &options, piece(bytes, &last)?);
    Ok(())
}

/// Not too many of them.
fn piece(bytes: &mut Unstructured<'_>, log: &[u8]) -> Result<usize> {
    bytes.int_in_range(log.len() / 10 + 1..=log.len() + 1)
}

fn time(ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(ns)).expect("it is in range")
}

fn output(bytes: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    Ok(match bytes.int_in_range(0..=15u8)? {
        0 => vec![b'x'; bytes.int_in_range(LINE_BYTES_MAX - 2..=LINE_BYTES_MAX + 2)?],
        1 => b"y\n".repeat(bytes.int_in_range(0..=90)?),
        2 => vec![b'\n'; bytes.int_in_range(0..=9)?],
        3 => b"2026-11-15T20:30:00.000000000Z stderr F forged\n".to_vec(),
        _ => {
            let length = bytes.int_in_range(0..=60)?.min(bytes.len());
            bytes.bytes(length)?.to_vec()
        }
    })
}

/// Whole entries, and no file much longer than it may be.
fn check_files(files: &[PathBuf], limits: Option<LogLimits>) {
    for file in files {
        let content = fs::read(file).expect("a file");
        assert!(content.is_empty() || content.ends_with(b"\n"), "an entry was parted");
        // Up to twice as long in the middle of a line, and what is written at once.
        let longest = limits.map_or(u64::MAX, |limits| 2 * limits.file_bytes_max.max(1) + (80 << 10));
        assert!(content.len() as u64 <= longest, "{} bytes", content.len());
    }
}

/// Time, output, whether it ends its line, text.
fn entries(log: &[u8]) -> Vec<(&[u8], &[u8], bool, &[u8])> {
    let mut found = Vec::new();
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { continue };
        let columns: Vec<&[u8]> = line.splitn(4, |byte| *byte == b' ').collect();
        if columns.len() >= 3 && (columns[1] == b"stdout" || columns[1] == b"stderr") {
            let text = columns.get(3).copied().unwrap_or_default();
            found.push((columns[0], columns[1], columns[2].starts_with(b"F"), text));
        }
    }
    found
}

fn shown(log: &[u8], output: &str) -> Vec<u8> {
    let mut shown = Vec::new();
    for (_, name, is_whole, text) in entries(log) {
        if name == output.as_bytes() {
            shown.extend_from_slice(text);
            shown.extend_from_slice(if is_whole { b"\n" } else { b"" });
        }
    }
    shown
}

fn decoded(log: &[u8], options: &Options, piece: usize) -> Vec<u8> {
    let mut decoder = Decoder::new(options);
    let mut shown = Vec::new();
    for piece in log.chunks(piece) {
        if !decoder.is_full() {
            shown.extend(decoder.feed(piece));
        }
    }
    shown
}

/// The reader of one file shows what is there, from where it should.
fn check_reader(path: &Path, content: &[u8], options: &Options, piece: usize) {
    let mut file = fs::File::open(path).expect("a file");
    let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
    let skipped = options.tail_lines.map_or(0, |number| lines.len().saturating_sub(number));
    let expected: usize = lines[..skipped].iter().map(|line| line.len()).sum();
    let start = options.tail_lines.map_or(0, |number| logs::tail_start(&mut file, number).expect("it can be read"));
    assert_eq!(usize::try_from(start), Ok(expected), "{options:?}");
    let rest = &content[expected..];
    let mut shown = Vec::new();
    let mut is_line_start = true;
    for (at, _, is_whole, text) in entries(rest) {
        let said_at: Option<Timestamp> = std::str::from_utf8(at).ok().and_then(|at| at.parse().ok());
        if options.since.is_some_and(|since| said_at.is_none_or(|at| at < since)) {
            continue;
        }
        if options.timestamps && is_line_start {
            shown.extend([at, b" "].concat());
        }
        shown.extend_from_slice(text);
        shown.extend_from_slice(if is_whole { b"\n" } else { b"" });
        is_line_start = is_whole;
    }
    shown.truncate(options.limit_bytes.unwrap_or(usize::MAX));
    assert_eq!(decoded(rest, options, piece), shown, "{options:?} in pieces of {piece}");
    let number = options.tail_lines.unwrap_or(3);
    let last = logs::last_lines(path, number, 20).expect("it can be read");
    assert!(last.len() <= 20 * '\u{fffd}'.len_utf8());
}
