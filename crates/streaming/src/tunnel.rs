//! Bytes inside a WebSocket (API-637): how newer clients bring SPDY through proxies that
//! do not know it.

use std::future::Future;
use std::pin::pin;

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
                return false;
            }
        }
        sink.close().await.is_ok()
    };
    let (mut into, mut out) = (pin!(into), pin!(out));
    tokio::select! {
        biased;
        // What a client said that cannot be told anything any more waits for nobody.
        is_there = &mut out => if is_there { into.await },
        () = &mut into => drop(out.await),
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    #[tokio::test]
    async fn api_637_messages_are_pieces_of_one_stream_of_bytes() {
        let (near, far) = duplex(AHEAD_BYTES);
        let (mut bytes, carrying) = open(crate::websocket::accept(far).await);
        tokio::spawn(carrying);
        let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        for piece in ["\u{1}ab", "", "c"] {
            client.send(Message::binary(piece.as_bytes().to_vec())).await.unwrap();
        }
        let mut read = [0; 4];
        bytes.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"\x01abc");
        bytes.write_all(b"back").await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::binary(b"back".to_vec()));
        drop(bytes);
        assert!(matches!(client.next().await, Some(Ok(Message::Close(_)))));
    }
}
