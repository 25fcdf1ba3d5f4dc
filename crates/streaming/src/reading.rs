//! A WebSocket that only the server speaks on: logs and watches, for clients
//! that can do nothing else (API-313).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::{SinkExt as _, Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use crate::websocket::{LINGER_MAX, accept};

/// What a piece becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Bytes,
    Base64,
    /// Each is one.
    Text,
}

impl Shape {
    /// None: it is not what was promised.
    fn message(self, piece: Bytes) -> Option<Message> {
        match self {
            Self::Bytes => Some(Message::Binary(piece)),
            Self::Base64 => Some(Message::text(BASE64_STANDARD.encode(&piece))),
            Self::Text => Utf8Bytes::try_from(piece).ok().map(Message::Text),
        }
    }
}

/// Until `pieces` end or the client is gone.
pub(crate) async fn serve<IO>(io: IO, shape: Shape, pieces: impl Stream<Item = Bytes>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut messages) = accept(io).await.split();
    let speaking = async {
        let mut pieces = std::pin::pin!(pieces);
        if shape != Shape::Text {
            // The client learns that it may listen, however long nothing comes.
            sink.send(Message::Binary(Bytes::new())).await?;
        }
        while let Some(message) = pieces.next().await.and_then(|piece| shape.message(piece)) {
            sink.send(message).await?;
        }
        let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        sink.send(Message::Close(Some(end))).await?;
        sink.close().await
    };
    // What it says is of no interest, but pings are answered and its end is seen.
    let listening = async { while let Some(Ok(_)) = messages.next().await {} };
    let mut listening = std::pin::pin!(listening);
    tokio::select! {
        biased;
        spoken = speaking => { let _: Result<(), tungstenite::Error> = spoken; }
        () = &mut listening => return,
    }
    // Whoever leaves with unread input takes the last output back.
    let _ = tokio::time::timeout(LINGER_MAX, listening).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    #[tokio::test]
    async fn api_609_pieces_arrive_in_the_form_that_was_asked_for() {
        for (shape, expected) in [
            (Shape::Bytes, [Message::binary(b"one\n".to_vec()), Message::binary(b"\xff".to_vec())]),
            (Shape::Base64, [Message::text("b25lCg=="), Message::text("/w==")]),
        ] {
            let (near, far) = duplex(1 << 16);
            let pieces = futures::stream::iter([Bytes::from_static(b"one\n"), Bytes::from_static(b"\xff")]);
            tokio::spawn(serve(far, shape, pieces));
            let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
            client.send(Message::text("who cares")).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap(), Message::binary(Vec::new()), "it is open");
            for message in expected {
                assert_eq!(client.next().await.unwrap().unwrap(), message);
            }
            let Some(Ok(Message::Close(Some(end)))) = client.next().await else { panic!("no end is said") };
            assert_eq!(end.code, CloseCode::Normal);
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_the_reading() {
        let (near, far) = duplex(64);
        let serving = tokio::spawn(serve(far, Shape::Bytes, futures::stream::pending()));
        drop(near);
        serving.await.unwrap();
    }
}
