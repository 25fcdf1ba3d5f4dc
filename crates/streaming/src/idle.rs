//! A connection that ends when nothing happens on it for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// API-632: as long as upstream's `streamingConnectionIdleTimeout`.
const IDLE_MAX: Duration = Duration::from_secs(4 * 60 * 60);

/// Reading from it fails once nothing was read or written for `IDLE_MAX`.
pub(crate) struct Idle<IO> {
    io: IO,
    patience: Pin<Box<Sleep>>,
}

impl<IO> Idle<IO> {
    pub(crate) fn new(io: IO) -> Self {
        Self { io, patience: Box::pin(sleep(IDLE_MAX)) }
    }

    fn alive(&mut self) {
        self.patience.as_mut().reset(Instant::now() + IDLE_MAX);
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Idle<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.io).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                self.alive();
                Poll::Ready(read)
            }
            Poll::Pending => {
                let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "nothing happened for too long");
                self.patience.as_mut().poll(cx).map(|()| Err(timed_out()))
            }
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Idle<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if written.is_ready() {
            self.alive();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn api_632_silence_ends_a_connection_and_words_keep_it() {
        let (near, mut far) = duplex(64);
        let mut near = Idle::new(near);
        let mut byte = [0];
        advance(IDLE_MAX - Duration::from_secs(1)).await;
        far.write_all(b"x").await.unwrap();
        near.read_exact(&mut byte).await.unwrap();
        advance(IDLE_MAX - Duration::from_secs(1)).await;
        near.write_all(b"y").await.unwrap();
        let started = Instant::now();
        let silent = near.read_exact(&mut byte).await.unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), IDLE_MAX);
    }
}
