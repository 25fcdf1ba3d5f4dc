//! WebSocket as the carrier: every message begins with the number of its stream
//! (API-627).

use std::future::Future;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

use crate::command::{Client, Ends, PIECES_MAX, Piece, Said, Told, sizes};
use crate::room::{Room, asking};
use crate::upgrade::{Form, Version};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// API-628: followed by the number of the stream that ends.
const CLOSE: u8 = 255;

/// The longest message a client may send.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What waits for a client that reads nothing, answers to its pings included.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// How long a client may linger when all is said.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(5);

type Socket<IO> = WebSocketStream<IO>;

pub(crate) async fn accept<IO: AsyncRead + AsyncWrite + Unpin>(io: IO) -> Socket<IO> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        .max_write_buffer_size(UNSENT_BYTES_MAX);
    Socket::from_raw_socket(io, Role::Server, Some(config)).await
}

/// The client's streams, and what must run for them to flow.
pub(crate) async fn serve<IO>(io: IO, version: Version, ends: Ends, room: Room) -> (Client, impl Future<Output = ()>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let socket = accept(io).await;
    let (says, said) = mpsc::channel(PIECES_MAX);
    let (tells, told) = mpsc::channel(PIECES_MAX);
    let first = if ends.stdout {
        STDOUT
    } else if ends.stderr {
        STDERR
    } else {
        STATUS
    };
    (Client { said, tells }, talk(socket, (version, first), (says, room), told))
}

/// Both directions. `says` is dropped when the client is gone, the socket is
/// closed when nothing more is told.
async fn talk<IO>(
    socket: Socket<IO>,
    (version, first): (Version, u8),
    (says, room): (mpsc::Sender<Piece>, Room),
    mut told: mpsc::Receiver<Told>,
) where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut stream) = socket.split();
    let (asks, mut asked) = mpsc::channel(1);
    let listening = async {
        while let Some(Ok(message)) = stream.next().await {
            for piece in pieces(&message, version) {
                // Nobody listens any more; the client must still be heard out.
                let passing = async {
                    tokio::select! {
                        biased;
                        () = says.closed() => {}
                        place = room.take(piece.weight()) => {
                            let _ = says.send((piece, place)).await;
                        }
                    }
                };
                asking(passing, || asks.try_send(()).unwrap_or_default()).await;
            }
        }
        drop((says, asks));
    };
    let speaking = async {
        let form = version.form();
        // API-629: an empty message on the first stream it can have, the client may begin.
        sink.send(encoded(form, first, b"")).await?;
        let mut is_here = true;
        loop {
            let piece = tokio::select! {
                biased;
                asked = asked.recv(), if is_here => {
                    if asked.is_some() {
                        sink.send(Message::Ping(Bytes::new())).await?;
                    } else {
                        // The client is gone: nobody is to tell it anything more.
                        is_here = false;
                        told.close();
                    }
                    continue;
                }
                piece = told.recv() => piece,
            };
            let message = match &piece {
                None => break,
                Some(Told::Stdout(bytes)) => encoded(form, STDOUT, bytes),
                Some(Told::Stderr(bytes)) => encoded(form, STDERR, bytes),
                Some(Told::Status(status)) => match ending(version, status) {
                    Some(text) => encoded(form, STATUS, text.as_bytes()),
                    None => continue,
                },
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
        // It says goodbye.
        () = &mut listening => { let _ = speaking.await; return; }
    }
    // Whoever leaves with unread input takes the last output back.
    let _ = tokio::time::timeout(LINGER_MAX, listening).await;
}

pub(crate) fn message(stream: u8, content: &[u8]) -> Message {
    Message::binary(std::iter::once(stream).chain(content.iter().copied()).collect::<Vec<u8>>())
}

/// API-631: how the end is said; the oldest clients know failures only, as text.
fn ending(version: Version, status: &Value) -> Option<String> {
    match version {
        Version::V1(_) if status["status"] == "Success" => None,
        Version::V1(_) => Some(status["message"].as_str().unwrap_or_default().to_owned()),
        _ => Some(status.to_string()),
    }
}

pub(crate) fn encoded(form: Form, stream: u8, content: &[u8]) -> Message {
    match form {
        Form::Base64 => {
            let digit = char::from(b'0'.saturating_add(stream));
            Message::text(format!("{digit}{}", BASE64_STANDARD.encode(content)))
        }
        Form::Bytes => message(stream, content),
    }
}

/// The number of a stream, then what is for it; nothing if it is neither, or
/// a ping, which is answered below us.
pub(crate) fn decoded(form: Form, message: &Message) -> Bytes {
    let bytes: Bytes = match message {
        Message::Binary(bytes) => bytes.clone(),
        Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        _ => return Bytes::new(),
    };
    match form {
        Form::Bytes => bytes,
        // The number is a digit.
        Form::Base64 => {
            let stream = bytes.first().and_then(|digit| digit.checked_sub(b'0'));
            let content = bytes.get(1..).and_then(|text| BASE64_STANDARD.decode(text).ok());
            stream.zip(content).map(|(stream, content)| [vec![stream], content].concat().into()).unwrap_or_default()
        }
    }
}

fn pieces(message: &Message, version: Version) -> Vec<Said> {
    let bytes = decoded(version.form(), message);
    match bytes.first() {
        Some(&STDIN) if bytes.len() > 1 => vec![Said::Stdin(bytes.slice(1..))],
        Some(&RESIZE) => sizes(&bytes[1..]).map(Said::Resize).collect(),
        Some(&CLOSE) if version == Version::V5 && bytes.get(1) == Some(&STDIN) => vec![Said::StdinEnded],
        _ => Vec::new(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
