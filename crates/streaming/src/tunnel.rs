//! Bytes inside a WebSocket: how newer clients bring SPDY through proxies that
//! do not know it.

use std::future::Future;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// What either side may be ahead of the other.
const AHEAD_BYTES: usize = 64 << 10;

/// A byte stream, and what must run for it to flow.
pub(crate) fn open<IO>(socket: WebSocketStream<IO>) -> (DuplexStream, impl Future<Output = ()>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (near, far) = duplex(AHEAD_BYTES);
    (near, carry(socket, far))
}

async fn carry<IO>(socket: WebSocketStream<IO>, bytes: DuplexStream)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut messages) = socket.split();
    let (mut read, mut write) = tokio::io::split(bytes);
    let into = async {
        while let Some(Ok(message)) = messages.next().await {
            if let Message::Binary(bytes) = message
                && write.write_all(&bytes).await.is_err()
            {
                return;
            }
        }
        let _ = write.shutdown().await;
    };
    let out = async {
        let mut buffer = vec![0; AHEAD_BYTES];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            let piece = Bytes::copy_from_slice(&buffer[..count]);
            if sink.send(Message::Binary(piece)).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    };
    tokio::join!(into, out);
}
