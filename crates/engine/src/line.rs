//! A connection to a shim that belongs to one command or one attached client.
//! When it is dropped, the command is killed and the client is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::sync::Arc;

use shim::parcel;
use shim::wire::{self, Call, Message, Reply, Request};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::shim_client;

#[derive(Debug)]
pub(crate) struct Line {
    socket: Arc<UnixStream>,
    received: Vec<u8>,
}

impl Line {
    /// To the shim whose socket is in `run`.
    pub(crate) fn open(run: &Path) -> io::Result<Self> {
        let socket = shim_client::reconnect(run)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Arc::new(UnixStream::from_std(socket)?), received: Vec::new() })
    }

    /// Asks; the descriptors go along and are closed here.
    pub(crate) async fn ask(&self, request: Request, fds: Vec<OwnedFd>) -> io::Result<()> {
        let frame = wire::frame(&Call { seq: 0, request })?;
        let socket = &*self.socket;
        let mut sent = socket.async_io(Interest::WRITABLE, || parcel::send(socket, &frame, &fds)).await?;
        while sent < frame.len() {
            sent += socket.async_io(Interest::WRITABLE, || socket.try_write(&frame[sent..])).await?;
        }
        Ok(())
    }

    /// Waits for the answer.
    pub(crate) async fn answer(&mut self) -> io::Result<Reply> {
        loop {
            if let Message::Reply { reply, .. } = self.hear().await? {
                return Ok(reply);
            }
        }
    }

    pub(crate) async fn hear(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = wire::take(&mut self.received)? {
                return Ok(message);
            }
            self.socket.readable().await?;
            match self.socket.try_read_buf(&mut self.received) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// For whoever has to tell something at once.
    pub(crate) fn voice(&self) -> Voice {
        Voice(self.socket.clone())
    }
}

/// Can say one thing without waiting.
#[derive(Debug)]
pub(crate) struct Voice(Arc<UnixStream>);

impl Voice {
    pub(crate) fn close_input(&self) {
        // So little is said on this connection that there is room; if it has
        // ended, so has the input.
        if let Ok(frame) = wire::frame(&Call { seq: 1, request: Request::CloseInput }) {
            let _ = self.0.try_write(&frame);
        }
    }

    /// Ends the connection for both sides, whoever else holds it.
    pub(crate) fn hang_up(&self) {
        let _ = rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Both);
    }
}

/// Two ends of a socket over which a descriptor will come: ours, and what to send along.
pub(crate) fn parcel() -> io::Result<(UnixStream, OwnedFd)> {
    let (here, there) = StdUnixStream::pair()?;
    here.set_nonblocking(true)?;
    Ok((UnixStream::from_std(here)?, there.into()))
}

/// Waits for the descriptor; `None` when the other side has none to give.
pub(crate) async fn delivery(parcel: &UnixStream) -> io::Result<Option<OwnedFd>> {
    parcel.async_io(Interest::READABLE, || parcel::take_over(parcel)).await
}
