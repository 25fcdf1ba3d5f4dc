//! Frames of SPDY/3.1, as bytes.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::headers::{Compressor, Decompressor};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    Open {
        id: u32,
        is_last: bool,
        headers: BTreeMap<String, String>,
    },
    Reply {
        id: u32,
    },
    Data {
        id: u32,
        is_last: bool,
        data: Bytes,
    },
    Reset {
        id: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// Nothing that concerns us: settings, windows, more headers.
    Other,
}

/// The longest frame a client may send.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;

const CONTROL: u16 = 0x8000;
const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
const HEADERS: u16 = 8;
const FLAG_FIN: u8 = 1;
/// Why a stream is reset: we do not want it.
const REFUSED: u32 = 3;

impl Frame {
    /// `None` at the end of the connection.
    pub(super) async fn read(
        io: &mut (impl AsyncRead + Unpin),
        decompressor: &mut Decompressor,
    ) -> io::Result<Option<Self>> {
        let mut head = [0; 8];
        match io.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        };
        let [a, b, c, d, flags, length @ ..] = head;
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if length > FRAME_BYTES_MAX {
            return Err(wrong("a frame is too long"));
        }
        let mut payload = vec![0; length];
        io.read_exact(&mut payload).await?;
        let is_last = flags & FLAG_FIN != 0;
        let first = u16::from_be_bytes([a, b]);
        if first & CONTROL == 0 {
            let id = u32::from_be_bytes([a, b, c, d]);
            return Ok(Some(Frame::Data { id, is_last, data: payload.into() }));
        }
        if first != CONTROL | VERSION {
            return Err(wrong("a frame is not of SPDY/3.1"));
        }
        Self::control(u16::from_be_bytes([c, d]), is_last, &payload, decompressor).map(Some)
    }

    fn control(kind: u16, is_last: bool, payload: &[u8], decompressor: &mut Decompressor) -> io::Result<Self> {
        // Every header block is read, whoever it is for: each builds upon the one before.
        Ok(match kind {
            SYN_STREAM => {
                let (fixed, block) = payload.split_at_checked(10).ok_or_else(|| wrong("a frame is too short"))?;
                Frame::Open { id: number(fixed)?, is_last, headers: decompressor.read(block)? }
            }
            SYN_REPLY | HEADERS => {
                let (_, block) = payload.split_at_checked(4).ok_or_else(|| wrong("a frame is too short"))?;
                decompressor.read(block)?;
                Frame::Other
            }
            RST_STREAM => Frame::Reset { id: number(payload)? },
            PING => Frame::Ping { id: number(payload)? },
            GO_AWAY => Frame::GoAway,
            _ => Frame::Other,
        })
    }

    pub(super) fn encode(&self, compressor: &mut Compressor) -> io::Result<Vec<u8>> {
        let mut frame = Vec::new();
        match self {
            Frame::Data { id, is_last, data } => {
                frame.extend_from_slice(&id.to_be_bytes());
                frame.extend_from_slice(&flags_and_length(*is_last, data.len()));
                frame.extend_from_slice(data);
            }
            Frame::Reply { id } => {
                let block = compressor.write(&BTreeMap::new())?;
                control(&mut frame, SYN_REPLY, &[&id.to_be_bytes(), &block]);
            }
            Frame::Open { id, headers, .. } => {
                let block = compressor.write(headers)?;
                control(&mut frame, SYN_STREAM, &[&id.to_be_bytes(), &[0; 6], &block]);
            }
            Frame::Reset { id } => control(&mut frame, RST_STREAM, &[&id.to_be_bytes(), &REFUSED.to_be_bytes()]),
            Frame::Ping { id } => control(&mut frame, PING, &[&id.to_be_bytes()]),
            Frame::GoAway => control(&mut frame, GO_AWAY, &[&[0; 8]]),
            Frame::Other => {}
        }
        Ok(frame)
    }
}

fn control(frame: &mut Vec<u8>, kind: u16, parts: &[&[u8]]) {
    frame.extend_from_slice(&(CONTROL | VERSION).to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&flags_and_length(false, parts.iter().map(|part| part.len()).sum()));
    parts.iter().for_each(|part| frame.extend_from_slice(part));
}

/// One byte and three.
fn flags_and_length(is_last: bool, length: usize) -> [u8; 4] {
    let [_, high, middle, low] = u32::try_from(length).expect("pieces are small").to_be_bytes();
    [if is_last { FLAG_FIN } else { 0 }, high, middle, low]
}

/// The number a payload begins with.
fn number(payload: &[u8]) -> io::Result<u32> {
    let bytes = payload.first_chunk().ok_or_else(|| wrong("a frame is too short"))?;
    Ok(u32::from_be_bytes(*bytes) & 0x7fff_ffff)
}

pub(super) fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
