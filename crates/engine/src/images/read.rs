//! Readers that count, hash and decompress what an archive feeds us.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest, Sha256};

use super::ImageError;

/// Fails, rather than ends, when more than `limit` bytes come.
pub(super) struct Limited<R> {
    source: R,
    left: u64,
    limit: Limit,
}

/// Carried through `io::Error`, so that limits survive decoders in between.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("{what} exceeds the limit of {bytes_max}")]
struct Limit {
    what: &'static str,
    bytes_max: u64,
}

impl<R: Read> Limited<R> {
    pub(super) fn new(source: R, what: &'static str, bytes_max: u64) -> Self {
        Self { source, left: bytes_max, limit: Limit { what, bytes_max } }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| io::Error::other(self.limit))?;
        Ok(read)
    }
}

/// Fails when nothing is left of what others take from as well; looks now and then.
pub(super) struct Sharing<R, F> {
    source: R,
    what: &'static str,
    left: F,
    until_look: u64,
}

impl<R: Read, F: FnMut() -> io::Result<u64>> Sharing<R, F> {
    pub(super) fn new(source: R, what: &'static str, left: F) -> Self {
        Self { source, what, left, until_look: 0 }
    }
}

impl<R: Read, F: FnMut() -> io::Result<u64>> Read for Sharing<R, F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf)?;
        if self.until_look < read as u64 {
            if (self.left)()? == 0 {
                return Err(io::Error::other(Limit { what: self.what, bytes_max: 0 }));
            }
            self.until_look = LOOK_BYTES;
        }
        self.until_look = self.until_look.saturating_sub(read as u64);
        Ok(read)
    }
}

/// For `map_err` on anything read through this module.
pub(super) fn read_error(what: &'static str) -> impl FnOnce(io::Error) -> ImageError {
    move |err| match err.get_ref().and_then(|inner| inner.downcast_ref::<Limit>()) {
        Some(limit) => ImageError::TooLarge { what: limit.what, limit: limit.bytes_max },
        None => match err.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                ImageError::archive(format!("unreadable data: {err}"))
            }
            _ => ImageError::io(what)(err),
        },
    }
}

pub(super) struct Hashing<R> {
    source: R,
    hasher: Sha256,
    count: u64,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, hasher: Sha256::new(), count: 0 }
    }

    /// Reads to the end, then tells the digest and the length of everything.
    pub(super) fn finish(mut self) -> io::Result<(String, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((render_digest(&self.hasher.finalize()), self.count))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf)?;
        self.hasher.update(&buf[..read]);
        self.count += read as u64;
        Ok(read)
    }
}

pub(super) fn digest_of(bytes: &[u8]) -> String {
    render_digest(&Sha256::digest(bytes))
}

fn render_digest(hash: &[u8]) -> String {
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A part of a file, read without moving the file's own position.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    file: Arc<File>,
    position: u64,
    left: u64,
}

impl Slice {
    pub(super) fn new(file: Arc<File>, position: u64, length: u64) -> Self {
        Self { file, position, left: length }
    }

    /// Counted from where this one stands; never reaches beyond its end.
    pub(super) fn part(&self, offset: u64, length: u64) -> Self {
        let offset = offset.min(self.left);
        Self { file: self.file.clone(), position: self.position + offset, left: length.min(self.left - offset) }
    }

    pub(super) fn len(&self) -> u64 {
        self.left
    }

    /// The same part of the same file.
    pub(super) fn is_same(&self, other: &Slice) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && (self.position, self.left) == (other.position, other.left)
    }
}

impl Read for Slice {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buf[..want], self.position)?;
        self.position += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// The plain bytes of something that may be compressed with gzip or zstd, told
/// by its first bytes as media types are often wrong.
pub(super) fn decompress<'a>(source: impl Read + 'a) -> Result<Box<dyn Read + 'a>, ImageError> {
    // `fill_buf` may return a single byte from a pipe, so the magic number is
    // collected first and put back in front.
    let mut magic = Vec::new();
    let mut source = source;
    source.by_ref().take(4).read_to_end(&mut magic).map_err(read_error("image archive"))?;
    let is_gzip = magic.starts_with(&[0x1f, 0x8b]);
    let is_zstd = magic == [0x28, 0xb5, 0x2f, 0xfd] || is_skippable(&magic);
    let plain = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(magic).chain(source));
    Ok(match (is_gzip, is_zstd) {
        (true, _) => gunzip(plain),
        (_, true) => Box::new(BufReader::with_capacity(BUFFER_BYTES, Unzstd::new(plain))),
        _ => Box::new(plain),
    })
}

fn gunzip<'a>(source: impl BufRead + 'a) -> Box<dyn Read + 'a> {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(source)))
}

/// A zstd frame that holds no content; some tools begin with one.
fn is_skippable(magic: &[u8]) -> bool {
    matches!(magic, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

/// All frames of a zstd stream; the decoder knows single ones. Memory is
/// bounded by the decoder's limit on windows (128 MiB).
struct Unzstd<R> {
    source: R,
    decoder: Box<FrameDecoder>,
    is_in_frame: bool,
}

impl<R: BufRead> Unzstd<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: Box::new(FrameDecoder::new()), is_in_frame: false }
    }

    /// False at the end of the stream.
    fn begin_frame(&mut self) -> io::Result<bool> {
        if self.source.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.init(&mut self.source) {
            Ok(()) => self.is_in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                let length = u64::from(length);
                if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(err) => return Err(io::Error::new(io::ErrorKind::InvalidData, err)),
        }
        Ok(true)
    }
}

impl<R: BufRead> Read for Unzstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame {
                if !self.begin_frame()? {
                    return Ok(0);
                }
            } else if self.decoder.can_collect() > 0 {
                return self.decoder.read(buf);
            } else if self.decoder.is_finished() {
                self.is_in_frame = false;
            } else {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, one);
                decoded.map_err(|err| io::Error::new(io::ErrorKind::InvalidData, err))?;
            }
        }
    }
}

const BUFFER_BYTES: usize = 128 << 10;
/// Between two looks at what is left.
const LOOK_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_take_meanwhile_ends_a_read() {
        let mut left = [3, 2, 1, 0].into_iter();
        let mut taken = 0;
        let source = io::repeat(0).take(10 * LOOK_BYTES);
        let mut shared = Sharing::new(source, "room", || Ok(left.next().unwrap_or(0)));
        let error = loop {
            match shared.read(&mut vec![0; 1 << 20]) {
                Ok(read) => taken += read as u64,
                Err(error) => break read_error("test")(error),
            }
        };
        assert!(matches!(error, ImageError::TooLarge { what: "room", limit: 0 }), "{error}");
        assert_eq!(taken, 3 * LOOK_BYTES);
    }
}
