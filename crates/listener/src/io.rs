//! A socket that can be cut from outside, and whose place is free again when it
//! is closed, whoever has it by then.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::registry::{Entry, Registry};

pub(crate) struct Socket {
    pub(crate) tcp: TcpStream,
    pub(crate) entry: Arc<Entry>,
    pub(crate) registry: Arc<Registry>,
}

impl Socket {
    fn cut<T>(&self) -> Option<Poll<io::Result<T>>> {
        self.entry.is_cut().then(|| Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.registry.leave(&self.entry);
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Registered before looking, or a cut in between would be missed.
        self.entry.reader.register(context.waker());
        if let Some(cut) = self.cut() {
            return cut;
        }
        Pin::new(&mut self.tcp).poll_read(context, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.entry.writer.register(context.waker());
        if let Some(cut) = self.cut() {
            return cut;
        }
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.entry.writer.register(context.waker());
        if let Some(cut) = self.cut() {
            return cut;
        }
        Pin::new(&mut self.tcp).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
