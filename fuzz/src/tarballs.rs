//! Layers and archives, byte by byte: honest libraries refuse to write what
//! attackers do.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::arbitrary::{Result, Unstructured};

const BLOCK: usize = 512;
const MEMBERS_MAX: usize = 12;
const CONTENT_BYTES_MAX: usize = 600;

/// Few and short, so that members meet.
const PARTS: [&[u8]; 20] = [
    b"a",
    b"b",
    b"a",
    b"b",
    b"c",
    b"etc",
    b"a",
    b"b",
    b".wh.a",
    b".wh.b",
    b".wh..wh..opq",
    b".wh..wh.plnk",
    b".wh.",
    b".wh..",
    b".wh...",
    b"..",
    b".",
    b"",
    b"\xff\n",
    b"{255}",
];
const KINDS: [u8; 24] = *b"000\0\0112222555555346SxLK";
const KEYS: [&str; 15] = [
    "path",
    "linkpath",
    "size",
    "uid",
    "gid",
    "mtime",
    "atime",
    "SCHILY.xattr.user.x",
    "SCHILY.xattr.user.overlay.opaque",
    "SCHILY.xattr.trusted.overlay.opaque",
    "SCHILY.xattr.trusted.overlay.redirect",
    "SCHILY.xattr.security.capability",
    "GNU.sparse.major",
    "GNU.sparse.realsize",
    "comment",
];
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "8",
    "1000",
    "4294967294",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "-9223372036854775808.5",
    "-0.5",
    "1700000000.123456789",
    "+1",
    "x",
];

/// One layer, perhaps compressed. `outside` is a file that it should not reach,
/// by its path.
pub fn layer(bytes: &mut Unstructured<'_>, outside: &str) -> Result<Vec<u8>> {
    let mut tar = Tar(Vec::new());
    for _ in 0..bytes.int_in_range(1..=MEMBERS_MAX)? {
        member(bytes, &mut tar, outside)?;
    }
    let mut tar = tar.0;
    match bytes.int_in_range(0..=15u8)? {
        0 => {}
        1 => tar.resize(tar.len() + BLOCK, 0),
        2 => tar.truncate(bytes.int_in_range(0..=tar.len())?),
        3 => {
            let at = bytes.choose_index(tar.len())?;
            tar[at] ^= bytes.arbitrary::<u8>()?;
            tar.resize(tar.len() + 2 * BLOCK, 0);
        }
        4 => {
            tar.resize(tar.len() + 2 * BLOCK, 0);
            tar.extend_from_slice(bytes.bytes(bytes.len().min(9))?);
        }
        _ => tar.resize(tar.len() + 2 * BLOCK, 0),
    }
    packed(bytes, tar)
}

/// As registries hold it.
fn packed(bytes: &mut Unstructured<'_>, plain: Vec<u8>) -> Result<Vec<u8>> {
    let gzip = |plain: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).expect("memory takes it");
        encoder.finish().expect("memory takes it")
    };
    let mut packed = match bytes.int_in_range(0..=11u8)? {
        0 => gzip(&plain),
        1 => {
            let (one, other) = plain.split_at(bytes.int_in_range(0..=plain.len())?);
            [gzip(one), gzip(other)].concat()
        }
        2 => zstd(&plain),
        3 => {
            let (one, other) = plain.split_at(bytes.int_in_range(0..=plain.len())?);
            let skipped = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7];
            [&skipped[..], &zstd(one), &skipped, &zstd(other)].concat()
        }
        _ => return Ok(plain),
    };
    if bytes.ratio(1, 4)? {
        let at = bytes.choose_index(packed.len())?;
        packed[at] ^= bytes.arbitrary::<u8>()?;
    }
    Ok(packed)
}

/// A frame of blocks as they are.
fn zstd(plain: &[u8]) -> Vec<u8> {
    // Magic, no checksum, a window of 1 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0];
    let mut rest = plain;
    loop {
        let (block, after) = rest.split_at(rest.len().min(1 << 10));
        let header = u32::try_from(block.len()).expect("it is below 1 KiB") << 3 | u32::from(after.is_empty());
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.extend_from_slice(block);
        if after.is_empty() {
            return frame;
        }
        rest = after;
    }
}

fn member(bytes: &mut Unstructured<'_>, tar: &mut Tar, outside: &str) -> Result<()> {
    if bytes.ratio(1, 3)? {
        let records = pax(bytes, outside)?;
        tar.add(Header::of(b'x', b"pax"), &records);
    }
    let mut header = Header::of(kind(bytes)?, &name(bytes, outside)?);
    header.link = if bytes.ratio(1, 4)? { hostile(bytes, outside)? } else { name(bytes, outside)? };
    header.mode = number(bytes, &[0o644, 0o755, 0o4755, 0o7777, 0, 0o777_777, u64::MAX])?;
    header.uid = number(bytes, &[0, 0, 0, 1000, 65534, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 33])?;
    header.gid = number(bytes, &[0, 0, 0, 7, u64::from(u32::MAX)])?;
    header.mtime = number(bytes, &[0, 1, 1_700_000_000, u64::MAX >> 1, u64::MAX])?;
    let long = header.name.len() > 100 || header.link.len() > 100;
    if long || bytes.ratio(1, 12)? {
        tar.add(Header::of(b'L', b"././@LongLink"), &[&header.name[..], b"\0"].concat());
        tar.add(Header::of(b'K', b"././@LongLink"), &[&header.link[..], b"\0"].concat());
    }
    let content = match header.kind {
        b'0' | 0 | b'x' | b'g' | b'L' | b'K' | b'7' => {
            let length = bytes.int_in_range(0..=CONTENT_BYTES_MAX)?.min(bytes.len());
            bytes.bytes(length)?
        }
        _ => &[],
    };
    header.size = content.len() as u64;
    if bytes.ratio(1, 16)? {
        header.size = number(bytes, &[0, 1, 511, 512, 1 << 20, 1 << 40, u64::MAX >> 1, u64::MAX])?;
    }
    tar.put(&header, content);
    Ok(())
}

fn kind(bytes: &mut Unstructured<'_>) -> Result<u8> {
    Ok(if bytes.ratio(1, 32)? { bytes.arbitrary()? } else { *bytes.choose(&KINDS)? })
}

fn number(bytes: &mut Unstructured<'_>, usual: &[u64]) -> Result<u64> {
    Ok(if bytes.ratio(1, 12)? { bytes.arbitrary()? } else { *bytes.choose(usual)? })
}

fn name(bytes: &mut Unstructured<'_>, outside: &str) -> Result<Vec<u8>> {
    if bytes.ratio(1, 16)? {
        return hostile(bytes, outside);
    }
    let mut name = Vec::new();
    for index in 0..bytes.int_in_range(1..=3)? {
        if index > 0 || bytes.ratio(1, 8)? {
            name.push(b'/');
        }
        match *bytes.choose(&PARTS)? {
            b"{255}" => name.resize(name.len() + bytes.int_in_range(250..=256)?, b'n'),
            part => name.extend_from_slice(part),
        }
    }
    if bytes.ratio(1, 8)? {
        name.push(b'/');
    }
    Ok(name)
}

fn hostile(bytes: &mut Unstructured<'_>, outside: &str) -> Result<Vec<u8>> {
    let directory = outside.rsplit_once('/').map_or("", |(directory, _)| directory);
    Ok(match bytes.int_in_range(0..=11u8)? {
        0 => outside.as_bytes().to_vec(),
        1 => directory.as_bytes().to_vec(),
        2 => b"../outside/secret".to_vec(),
        3 => format!("/proc/self/root{outside}").into_bytes(),
        4 => format!("/proc/self/cwd/../{outside}").into_bytes(),
        5 => b"../../../../../../..".to_vec(),
        6 => b"../outside".to_vec(),
        7 => b"/".to_vec(),
        8 => format!("a/../../..{directory}/new").into_bytes(),
        9 => b"/proc/self/fd/3".to_vec(),
        10 => "d/".repeat(bytes.int_in_range(1..=2100)?).into_bytes(),
        _ => {
            let length = bytes.int_in_range(0..=120)?.min(bytes.len());
            bytes.bytes(length)?.to_vec()
        }
    })
}

fn pax(bytes: &mut Unstructured<'_>, outside: &str) -> Result<Vec<u8>> {
    let mut records = Vec::new();
    for _ in 0..bytes.int_in_range(0..=3)? {
        let key = *bytes.choose(&KEYS)?;
        let value = match key {
            "path" | "linkpath" => name(bytes, outside)?,
            _ if key.starts_with("SCHILY") => match bytes.int_in_range(0..=2u8)? {
                0 => b"y".to_vec(),
                1 => [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec(),
                _ => bytes.bytes(bytes.len().min(5))?.to_vec(),
            },
            _ => bytes.choose(&NUMBERS)?.as_bytes().to_vec(),
        };
        let body = key.len() + value.len() + 3;
        let mut length = (body + 1..).find(|length| body + length.to_string().len() == *length).unwrap_or(body);
        if bytes.ratio(1, 24)? {
            length = bytes.int_in_range(0..=length + 2)?;
        }
        records.extend_from_slice(format!("{length} {key}=").as_bytes());
        records.extend_from_slice(&value);
        records.push(b'\n');
    }
    Ok(records)
}

/// A tar stream on its way.
#[derive(Default)]
pub struct Tar(pub Vec<u8>);

pub struct Header {
    kind: u8,
    name: Vec<u8>,
    link: Vec<u8>,
    mode: u64,
    uid: u64,
    gid: u64,
    mtime: u64,
    size: u64,
}

impl Header {
    pub fn of(kind: u8, name: &[u8]) -> Self {
        let (mode, uid, gid, mtime, size) = (0o644, 0, 0, 1, 0);
        Self { kind, name: name.to_vec(), link: Vec::new(), mode, uid, gid, mtime, size }
    }

    pub fn linked(mut self, to: &[u8]) -> Self {
        self.link = to.to_vec();
        self
    }
}

impl Tar {
    /// With the length that it has.
    pub fn add(&mut self, mut header: Header, content: &[u8]) {
        header.size = content.len() as u64;
        self.put(&header, content);
    }

    fn put(&mut self, header: &Header, content: &[u8]) {
        let mut block = [0; BLOCK];
        text(&mut block[..100], &header.name);
        octal(&mut block[100..108], header.mode);
        octal(&mut block[108..116], header.uid);
        octal(&mut block[116..124], header.gid);
        octal(&mut block[124..136], header.size);
        octal(&mut block[136..148], header.mtime);
        block[156] = header.kind;
        text(&mut block[157..257], &header.link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[148..156].copy_from_slice(b"        ");
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        octal(&mut block[148..156], sum);
        self.0.extend_from_slice(&block);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

fn text(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

/// What does not fit in digits is written as GNU does.
fn octal(field: &mut [u8], number: u64) {
    let width = field.len() - 1;
    let digits = format!("{number:0width$o}");
    if digits.len() == width {
        field[..width].copy_from_slice(digits.as_bytes());
        return;
    }
    let bytes = number.to_be_bytes();
    let start = field.len().saturating_sub(bytes.len());
    let from = bytes.len().saturating_sub(field.len());
    field[start..].copy_from_slice(&bytes[from..]);
    field[0] |= 0x80;
}
