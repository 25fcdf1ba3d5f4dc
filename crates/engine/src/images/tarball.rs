//! Reads a tar stream member by member, with every allocation bounded.
//!
//! Only the fixed header block is parsed by the `tar` crate. Extended headers
//! are read here, because the crate buffers them without a limit, and because
//! what a member *is* must not depend on who reads it: sizes, long names and
//! PAX records are combined as Go's `archive/tar` does, which is what built
//! the images we read.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::ImageError;
use super::limits::{TAR_EXTENSION_BYTES_MAX, TAR_NAME_BYTES_MAX};
use super::read::read_error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
    Device,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) path: Vec<u8>,
    /// Target of a link, else empty.
    pub(super) link: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds and nanoseconds since the epoch.
    pub(super) mtime: (i64, u32),
    /// Bytes of content that follow; 0 for everything but files.
    pub(super) size: u64,
    /// Where the content starts in the stream.
    pub(super) offset: u64,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Member {
    /// The path for error messages.
    pub(super) fn name(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// Reading from it yields the content of the member that `next` returned last.
pub(super) struct Tarball<R> {
    source: R,
    position: u64,
    content: u64,
    padding: u64,
}

impl<R: Read> Tarball<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, position: 0, content: 0, padding: 0 }
    }

    /// The next member, or `None` at the end of the archive.
    pub(super) fn next(&mut self) -> Result<Option<Member>, ImageError> {
        let mut extensions = Extensions::default();
        loop {
            self.skip_rest()?;
            let Some(header) = self.header()? else {
                return if extensions.is_empty() { Ok(None) } else { Err(malformed("ends after an extended header")) };
            };
            let size = header.entry_size().map_err(|_| malformed("unreadable size"))?;
            match header.entry_type() {
                EntryType::XHeader => {
                    let records = self.extension(size)?;
                    extensions.absorb_pax(&records)?;
                }
                EntryType::GNULongName => extensions.set_long_name(self.extension(size)?)?,
                EntryType::GNULongLink => extensions.set_long_link(self.extension(size)?)?,
                // Comments for all members; containerd ignores them, too.
                EntryType::XGlobalHeader => drop(self.extension(size)?),
                other => {
                    let member = extensions.finish(&header, other, size, self.position)?;
                    self.expect_content(member.size)?;
                    return Ok(Some(member));
                }
            }
        }
    }

    /// The source, to read what follows the archive.
    pub(super) fn into_inner(self) -> R {
        self.source
    }

    fn expect_content(&mut self, size: u64) -> Result<(), ImageError> {
        let padded = size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| malformed("size overflow"))?;
        self.content = size;
        self.padding = padded - size;
        Ok(())
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, ImageError> {
        if size > TAR_EXTENSION_BYTES_MAX {
            return Err(ImageError::TooLarge { what: "tar extended header", limit: TAR_EXTENSION_BYTES_MAX });
        }
        self.expect_content(size)?;
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(read_error("image archive"))?;
        Ok(bytes)
    }

    fn skip_rest(&mut self) -> Result<(), ImageError> {
        io::copy(self, &mut io::sink()).map_err(read_error("image archive"))?;
        let mut padding = [0; BLOCK];
        let padding = &mut padding[..std::mem::take(&mut self.padding) as usize];
        self.source.read_exact(padding).map_err(read_error("image archive"))?;
        self.position += padding.len() as u64;
        Ok(())
    }

    fn header(&mut self) -> Result<Option<Header>, ImageError> {
        let Some(header) = self.block()? else { return Ok(None) };
        if header.as_bytes().iter().all(|b| *b == 0) {
            // Two zero blocks end an archive. A single one between members
            // makes some readers stop and others go on.
            return match self.block()? {
                Some(second) if second.as_bytes().iter().any(|b| *b != 0) => Err(malformed("data after its end mark")),
                _ => Ok(None),
            };
        }
        let bytes = header.as_bytes();
        let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|b| u32::from(*b)).sum::<u32>() + 8 * 32;
        match header.cksum() {
            Ok(expected) if expected == sum => Ok(Some(header)),
            _ => Err(malformed("header checksum does not match")),
        }
    }

    /// The next 512 bytes; `None` where the stream ends on a block border.
    fn block(&mut self) -> Result<Option<Header>, ImageError> {
        let mut header = Header::new_old();
        let bytes = header.as_mut_bytes();
        let mut filled = 0;
        while filled < BLOCK {
            match self.source.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(malformed("ends within a header")),
                Ok(read) => filled += read,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(read_error("image archive")(err)),
            }
        }
        self.position += BLOCK as u64;
        Ok(Some(header))
    }
}

impl<R: Read> Read for Tarball<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = buf.len().min(usize::try_from(self.content).unwrap_or(usize::MAX));
        if want == 0 {
            return Ok(0);
        }
        let read = self.source.read(&mut buf[..want])?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "ends within a member"));
        }
        self.content -= read as u64;
        self.position += read as u64;
        Ok(read)
    }
}

/// What extended headers said about the member that follows them.
#[derive(Default)]
struct Extensions {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Pax>,
}

#[derive(Default)]
struct Pax {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.long_name.is_none() && self.long_link.is_none() && self.pax.is_none()
    }

    fn set_long_name(&mut self, bytes: Vec<u8>) -> Result<(), ImageError> {
        set_once(&mut self.long_name, until_nul(bytes))
    }

    fn set_long_link(&mut self, bytes: Vec<u8>) -> Result<(), ImageError> {
        set_once(&mut self.long_link, until_nul(bytes))
    }

    fn absorb_pax(&mut self, records: &[u8]) -> Result<(), ImageError> {
        let mut pax = Pax::default();
        let mut rest = records;
        while !rest.is_empty() {
            let (key, value, after) = pax_record(rest).ok_or_else(|| malformed("unreadable PAX record"))?;
            pax.absorb(key, value)?;
            rest = after;
        }
        set_once(&mut self.pax, pax)
    }

    fn finish(self, header: &Header, kind: EntryType, size: u64, offset: u64) -> Result<Member, ImageError> {
        let pax = self.pax.unwrap_or_default();
        let path = self.long_name.or(pax.path).unwrap_or_else(|| header.path_bytes().into_owned());
        let link = self.long_link.or(pax.link);
        let link = link.or_else(|| header.link_name_bytes().map(|link| link.into_owned())).unwrap_or_default();
        if path.contains(&0) || link.contains(&0) {
            return Err(malformed("name with a NUL byte"));
        }
        if path.len().max(link.len()) > TAR_NAME_BYTES_MAX {
            return Err(ImageError::TooLarge { what: "length of a name", limit: TAR_NAME_BYTES_MAX as u64 });
        }
        // Very old archives mark directories by their last character only.
        let is_old = header.as_old().linkflag[0] == 0;
        let kind = if is_old && path.ends_with(b"/") { Kind::Directory } else { kind_of(kind)? };
        let number = |pax: Option<u64>, field: io::Result<u64>| {
            let number = pax.map_or_else(|| field.map_err(|_| malformed("unreadable number")), Ok)?;
            // The highest value means "leave as it is" to chown.
            u32::try_from(number).ok().filter(|n| *n != u32::MAX).ok_or_else(|| malformed("owner out of range"))
        };
        let mtime = match pax.mtime {
            Some(mtime) => mtime,
            None => (header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(0), 0),
        };
        Ok(Member {
            uid: number(pax.uid, header.uid())?,
            gid: number(pax.gid, header.gid())?,
            mode: header.mode().map_err(|_| malformed("unreadable mode"))? & 0o7777,
            // Like Go: a size on anything but a file is noise, no content follows.
            size: if kind == Kind::File { pax.size.unwrap_or(size) } else { 0 },
            path,
            link,
            kind,
            mtime,
            offset,
            xattrs: pax.xattrs,
        })
    }
}

impl Pax {
    fn absorb(&mut self, key: &[u8], value: &[u8]) -> Result<(), ImageError> {
        let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
        let required = |number: Option<u64>| number.map(Some).ok_or_else(|| malformed("unreadable PAX number"));
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = required(number())?,
            b"uid" => self.uid = required(number())?,
            b"gid" => self.gid = required(number())?,
            b"mtime" => self.mtime = parse_time(value),
            _ if key.starts_with(b"GNU.sparse.") => return Err(malformed("sparse files are not supported")),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.".as_slice()) {
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

fn kind_of(kind: EntryType) -> Result<Kind, ImageError> {
    Ok(match kind {
        EntryType::Regular | EntryType::Continuous => Kind::File,
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink,
        EntryType::Link => Kind::HardLink,
        EntryType::Fifo => Kind::Fifo,
        EntryType::Char | EntryType::Block => Kind::Device,
        EntryType::GNUSparse => return Err(malformed("sparse files are not supported")),
        _ => return Err(malformed("unknown member type")),
    })
}

/// `<length> <key>=<value>\n`, where length counts the whole record.
fn pax_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().position(|b| *b == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|b| *b == b'=')?;
    let (key, value) = (&record[..equals], &record[equals + 1..]);
    (!key.is_empty()).then_some((key, value, &bytes[length..]))
}

/// Decimal seconds with an optional fraction, possibly before the epoch.
fn parse_time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = seconds.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    match (text.starts_with('-'), nanos) {
        (false, _) | (true, 0) => Some((seconds, nanos)),
        (true, nanos) => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos)),
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|b| *b == 0) {
        bytes.truncate(end);
    }
    bytes
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), ImageError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(malformed("two extended headers for one member")),
    }
}

fn malformed(detail: &str) -> ImageError {
    ImageError::archive(format!("malformed tar: {detail}"))
}

const BLOCK: usize = 512;
