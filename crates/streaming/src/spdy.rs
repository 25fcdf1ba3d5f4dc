//! SPDY/3.1, as much of it as Kubernetes' clients speak: streams the client
//! opens, data both ways, no flow control, nothing pushed.
//!
//! Read next: `spdy/frame.rs`, `spdy/headers.rs`.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::command::PIECES_MAX;
use crate::room::{Place, Room, asking};
use frame::Frame;
use headers::{Compressor, Decompressor};

mod frame;
mod headers;

/// A stream the client opened.
pub(crate) struct Stream {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
}

/// The client's direction of a stream. It ends with the stream, or the
/// connection.
pub(crate) struct Incoming(mpsc::Receiver<Unread>);

impl Incoming {
    pub(crate) async fn recv(&mut self) -> Option<Unread> {
        self.0.recv().await
    }

    /// What is there already.
    #[cfg(fuzzing)]
    pub(crate) fn try_recv(&mut self) -> Result<Bytes, mpsc::error::TryRecvError> {
        self.0.try_recv().map(|unread| unread.data)
    }
}

/// Data that nobody has taken yet, and the room it takes meanwhile.
pub(crate) struct Unread {
    pub(crate) data: Bytes,
    pub(crate) place: Place,
}

/// Our direction of a stream. It ends when told to, not when dropped.
#[derive(Clone)]
pub(crate) struct Outgoing {
    id: u32,
    frames: mpsc::Sender<Frame>,
}

/// The connection is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl Outgoing {
    pub(crate) async fn send(&self, data: Bytes) -> Result<(), Gone> {
        self.frame(data, false).await
    }

    pub(crate) async fn end(&self) -> Result<(), Gone> {
        self.frame(Bytes::new(), true).await
    }

    async fn frame(&self, data: Bytes, is_last: bool) -> Result<(), Gone> {
        self.frames.send(Frame::Data { id: self.id, is_last, data }).await.map_err(|_| Gone)
    }
}

/// Streams a client may have open, and how long it may linger when all is said.
const STREAMS_MAX: usize = 1024;
const LINGER_MAX: Duration = Duration::from_secs(5);

/// A server's are even.
const ASKING_PING: u32 = 2;

/// The streams to come, and what must run for them to flow.
pub(crate) struct Session {
    pub(crate) opened: mpsc::Receiver<Stream>,
    frames: mpsc::Sender<Frame>,
}

impl Session {
    /// Everything is said: what was sent is delivered, then the connection ends.
    pub(crate) async fn close(self) {
        let _ = self.frames.send(Frame::GoAway).await;
    }
}

/// A header block without its compression.
#[cfg(fuzzing)]
pub(crate) fn read_headers(plain: &[u8]) {
    let _ = headers::parse(plain);
}

/// The second part runs until the connection has ended.
pub(crate) fn open<IO>(io: IO, room: Room) -> (Session, impl Future<Output = io::Result<()>>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (opens, opened) = mpsc::channel(PIECES_MAX);
    let (frames, to_write) = mpsc::channel(PIECES_MAX);
    let reader = Reader { opens, frames: frames.clone(), streams: BTreeMap::new(), newest: 0, room };
    (Session { opened, frames }, drive(io, reader, to_write))
}

async fn drive<IO>(io: IO, mut reader: Reader, to_write: mpsc::Receiver<Frame>) -> io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (mut read, write) = tokio::io::split(io);
    tokio::select! {
        biased;
        written = write_frames(write, to_write) => written?,
        ended = reader.run(&mut read) => return ended,
    }
    // Whoever leaves with unread input takes the last output back.
    let mut rest = [0; 4096];
    let drain = async { while matches!(read.read(&mut rest).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(LINGER_MAX, drain).await;
    Ok(())
}

/// Until it has said goodbye.
async fn write_frames(mut io: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Frame>) -> io::Result<()> {
    let mut compressor = Compressor::default();
    while let Some(frame) = frames.recv().await {
        let is_last = frame == Frame::GoAway;
        io.write_all(&frame.encode(&mut compressor)?).await?;
        io.flush().await?;
        if is_last {
            break;
        }
    }
    io.shutdown().await
}

struct Reader {
    opens: mpsc::Sender<Stream>,
    frames: mpsc::Sender<Frame>,
    /// Where the data of open streams goes.
    streams: BTreeMap<u32, mpsc::Sender<Unread>>,
    newest: u32,
    room: Room,
}

impl Reader {
    /// Until the client goes, or says what makes no sense.
    async fn run(&mut self, io: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        let mut decompressor = Decompressor::default();
        while let Some(frame) = Frame::read(io, &mut decompressor).await? {
            match frame {
                Frame::Open { id, is_last, headers } => self.on_open(id, is_last, headers).await?,
                Frame::Data { id, is_last, data } => self.on_data(id, is_last, data).await,
                Frame::Reset { id } => drop(self.streams.remove(&id)),
                // Even ones are answers to our own.
                Frame::Ping { id } if !id.is_multiple_of(2) => self.write(Frame::Ping { id }).await,
                Frame::GoAway => return Ok(()),
                Frame::Ping { .. } | Frame::Reply { .. } | Frame::Other => {}
            }
        }
        Ok(())
    }

    async fn on_open(&mut self, id: u32, is_last: bool, headers: BTreeMap<String, String>) -> io::Result<()> {
        // The client's are odd and grow; ours do not exist.
        if id.is_multiple_of(2) || id <= self.newest {
            return Err(frame::wrong("a stream is opened out of order"));
        }
        self.newest = id;
        if self.streams.len() >= STREAMS_MAX {
            self.write(Frame::Reset { id }).await;
            return Ok(());
        }
        let (data, unread) = mpsc::channel(PIECES_MAX);
        let incoming = Incoming(unread);
        if !is_last {
            self.streams.insert(id, data);
        }
        self.write(Frame::Reply { id }).await;
        let outgoing = Outgoing { id, frames: self.frames.clone() };
        // Nobody wants more streams: this one ends at once.
        if self.opens.send(Stream { headers, incoming, outgoing }).await.is_err() {
            self.streams.remove(&id);
            self.write(Frame::Reset { id }).await;
        }
        Ok(())
    }

    async fn on_data(&mut self, id: u32, is_last: bool, data: Bytes) {
        if let Some(stream) = self.streams.get(&id)
            && !data.is_empty()
        {
            let passing = async {
                // Whoever dropped its end does not want it.
                tokio::select! {
                    biased;
                    () = stream.closed() => {}
                    place = self.room.take(data.len()) => {
                        let _ = stream.send(Unread { data, place }).await;
                    }
                }
            };
            asking(passing, || self.frames.try_send(Frame::Ping { id: ASKING_PING }).unwrap_or_default()).await;
        }
        if is_last {
            self.streams.remove(&id);
        }
    }

    async fn write(&self, frame: Frame) {
        // The writer ends the connection, and us with it.
        let _ = self.frames.send(frame).await;
    }
}

#[cfg(test)]
mod tests;
