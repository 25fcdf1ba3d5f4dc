//! WebSocket as the carrier: every message begins with the number of its stream
//! (API-627).

use std::future::Future;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::command::{Client, PIECES_MAX, Said, Told, sizes};
use crate::upgrade::Version;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// API-628: followed by the number of the stream that ends.
const CLOSE: u8 = 255;

/// The longest message a client may send.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// How long a client may linger when all is said.
const LINGER_MAX: Duration = Duration::from_secs(5);

type Socket<IO> = WebSocketStream<IO>;

pub(crate) async fn accept<IO: AsyncRead + AsyncWrite + Unpin>(io: IO) -> Socket<IO> {
    let config =
        WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX)).max_frame_size(Some(MESSAGE_BYTES_MAX));
    Socket::from_raw_socket(io, Role::Server, Some(config)).await
}

/// The client's streams, and what must run for them to flow.
pub(crate) async fn serve<IO>(io: IO, version: Version) -> (Client, impl Future<Output = ()>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let socket = accept(io).await;
    let (says, said) = mpsc::channel(PIECES_MAX);
    let (tells, told) = mpsc::channel(PIECES_MAX);
    (Client { said, tells }, talk(socket, version, says, told))
}

/// Both directions. `says` is dropped when the client is gone, the socket is
/// closed when nothing more is told.
async fn talk<IO>(socket: Socket<IO>, version: Version, says: mpsc::Sender<Said>, mut told: mpsc::Receiver<Told>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut stream) = socket.split();
    let listening = async {
        while let Some(Ok(message)) = stream.next().await {
            for piece in pieces(&message, version) {
                // Nobody listens any more; the client must still be heard out.
                let _ = says.send(piece).await;
            }
        }
        drop(says);
    };
    let speaking = async {
        // API-629: an empty message on the first stream, the client may begin.
        sink.send(encoded(version, STDOUT, b"")).await?;
        while let Some(piece) = told.recv().await {
            let message = match &piece {
                Told::Stdout(bytes) => encoded(version, STDOUT, bytes),
                Told::Stderr(bytes) => encoded(version, STDERR, bytes),
                Told::Status(status) => encoded(version, STATUS, status.as_bytes()),
            };
            sink.send(message).await?;
        }
        // API-632: clients take any other end for a failure.
        let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        sink.send(Message::Close(Some(end))).await?;
        sink.close().await
    };
    let mut listening = std::pin::pin!(listening);
    let mut speaking = std::pin::pin!(speaking);
    tokio::select! {
        biased;
        spoken = &mut speaking => { let _: Result<(), tungstenite::Error> = spoken; }
        // Whoever tells something still finds out that nobody is there.
        () = &mut listening => { let _ = speaking.await; return; }
    }
    // Whoever leaves with unread input takes the last output back.
    let _ = tokio::time::timeout(LINGER_MAX, listening).await;
}

pub(crate) fn message(stream: u8, content: &[u8]) -> Message {
    Message::binary(std::iter::once(stream).chain(content.iter().copied()).collect::<Vec<u8>>())
}

fn encoded(version: Version, stream: u8, content: &[u8]) -> Message {
    match version {
        Version::V4Base64 => Message::text(format!("{stream}{}", BASE64_STANDARD.encode(content))),
        _ => message(stream, content),
    }
}

/// The number of a stream as a digit, then the rest in base64; nothing if it is neither.
fn decoded(text: &[u8]) -> Bytes {
    let stream = text.first().map(|digit| digit.wrapping_sub(b'0'));
    let content = text.get(1..).and_then(|text| BASE64_STANDARD.decode(text).ok());
    stream.zip(content).map(|(stream, content)| [vec![stream], content].concat().into()).unwrap_or_default()
}

fn pieces(message: &Message, version: Version) -> Vec<Said> {
    let bytes: Bytes = match message {
        Message::Binary(bytes) => bytes.clone(),
        Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        // Pings are answered below us.
        _ => return Vec::new(),
    };
    let bytes = if version == Version::V4Base64 { decoded(&bytes) } else { bytes };
    match bytes.first() {
        Some(&STDIN) if bytes.len() > 1 => vec![Said::Stdin(bytes.slice(1..))],
        Some(&RESIZE) => sizes(&bytes[1..]).map(Said::Resize).collect(),
        Some(&CLOSE) if version == Version::V5 && bytes.get(1) == Some(&STDIN) => vec![Said::StdinEnded],
        _ => Vec::new(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
