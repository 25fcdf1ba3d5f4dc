//! Forwarded ports over a WebSocket without SPDY: each port has two channels,
//! one for data and one for what went wrong (API-638).

use bytes::Bytes;
use cri::Connection;
use futures::future::join_all;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::command::PIECES_MAX;
use crate::ports::{PIECE_BYTES, Target};
use crate::room::{Place, Room, asking};
use crate::upgrade::Form;
use crate::websocket::{decoded, encoded};

/// Two channels each, and a channel's number is a byte, or a character from
/// `0` on.
pub(crate) fn ports_max(form: Form) -> usize {
    match form {
        Form::Bytes => 127,
        Form::Base64 => 39,
    }
}

/// Until the client is gone or every connection has ended.
pub(crate) async fn serve<IO>(socket: WebSocketStream<IO>, form: Form, ports: &[u16], target: Target, room: Room)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut messages) = socket.split();
    let (tells, mut told) = mpsc::channel::<Message>(PIECES_MAX);
    let (asks, mut asked) = mpsc::channel(1);
    let (inputs, connections): (Vec<_>, Vec<_>) = ports
        .iter()
        .zip((0..u8::MAX).step_by(2))
        .map(|(&port, channel)| {
            let (input, incoming) = mpsc::channel(PIECES_MAX);
            (input, forward(port, channel, incoming, Tells { form, tells: tells.clone() }, target.clone()))
        })
        .unzip();
    drop(tells);
    let listening = async {
        while let Some(Ok(message)) = messages.next().await {
            let bytes = decoded(form, &message);
            let Some(&channel) = bytes.first().filter(|channel| channel.is_multiple_of(2)) else { continue };
            if let Some(input) = inputs.get(usize::from(channel / 2)) {
                let passing = async {
                    // Whoever dropped its end does not want it.
                    tokio::select! {
                        biased;
                        () = input.closed() => {}
                        place = room.take(bytes.len()) => {
                            let _ = input.send((bytes.slice(1..), place)).await;
                        }
                    }
                };
                asking(passing, || asks.try_send(()).unwrap_or_default()).await;
            }
        }
    };
    let speaking = async {
        loop {
            let message = tokio::select! {
                biased;
                Some(()) = asked.recv() => Message::Ping(Bytes::new()),
                message = told.recv() => match message {
                    Some(message) => message,
                    None => break,
                },
            };
            if sink.send(message).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    };
    let connecting = async {
        join_all(connections).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        // When all connections have ended, or the client cannot be told of them.
        () = speaking => {}
        () = connecting => {}
        () = listening => {}
    }
}

/// Where a connection's messages go.
struct Tells {
    form: Form,
    tells: mpsc::Sender<Message>,
}

impl Tells {
    /// False: nobody is there any more.
    async fn send(&self, channel: u8, content: &[u8]) -> bool {
        self.tells.send(encoded(self.form, channel, content)).await.is_ok()
    }
}

async fn forward(port: u16, channel: u8, incoming: mpsc::Receiver<(Bytes, Place)>, tells: Tells, target: Target) {
    for channel in [channel, channel + 1] {
        // The client learns which port the channels are for.
        tells.send(channel, &port.to_le_bytes()).await;
    }
    match target.connect(port).await {
        Ok(connection) => exchange(connection, channel, incoming, &tells).await,
        Err(failure) => {
            tells.send(channel + 1, failure.as_bytes()).await;
        }
    }
}

/// Ends with the connection: the client cannot end its half alone.
async fn exchange(
    connection: Box<dyn Connection>,
    channel: u8,
    mut incoming: mpsc::Receiver<(Bytes, Place)>,
    tells: &Tells,
) {
    let (mut read, mut write) = tokio::io::split(connection);
    let into = async {
        while let Some((bytes, _place)) = incoming.recv().await {
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let out = async {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            if !tells.send(channel, &buffer[..count]).await {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = out => {}
        () = into => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cri::CriError;
    use tokio::io::duplex;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;
    use crate::websocket::message;
    use crate::websocket::tests::by_channel;

    /// Port 80 repeats once and ends, every other one refuses.
    fn target() -> Target {
        let dial: crate::Dial = Arc::new(|port| {
            Box::pin(async move {
                if port != 80 {
                    return Err(CriError::Failed("connection refused".into()));
                }
                let (near, mut far) = duplex(64);
                tokio::spawn(async move {
                    let mut bytes = [0; 5];
                    far.read_exact(&mut bytes).await.unwrap();
                    far.write_all(&bytes).await.unwrap();
                });
                Ok(Box::new(near) as Box<dyn Connection>)
            })
        });
        Target { dial, pod: "web".into(), uid: "u1".into() }
    }

    #[tokio::test]
    async fn api_638_each_port_has_a_channel_for_data_and_one_for_failures() {
        let (near, far) = duplex(1 << 16);
        let server = crate::websocket::accept(far).await;
        tokio::spawn(async move { serve(server, Form::Bytes, &[81, 80], target(), Room::default()).await });
        let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        for nowhere in [message(4, b"x"), message(3, b"x"), message(255, b""), Message::binary(Vec::new())] {
            client.send(nowhere).await.unwrap();
        }
        client.send(message(2, b"hello")).await.unwrap();
        let [data_81, error_81, data_80, error_80] = by_channel(&mut client).await;
        assert_eq!((data_81.as_slice(), &error_81[..2]), ([81, 0].as_slice(), [81, 0].as_slice()));
        let failure = "error forwarding port 81 to pod web, uid u1: connection refused";
        assert_eq!(std::str::from_utf8(&error_81[2..]).unwrap(), failure);
        assert_eq!((data_80.as_slice(), error_80.as_slice()), (b"\x50\0hello".as_slice(), [80, 0].as_slice()));
    }

    #[tokio::test]
    async fn api_638_clients_without_bytes_forward_in_texts() {
        let (near, far) = duplex(1 << 16);
        let server = crate::websocket::accept(far).await;
        tokio::spawn(async move { serve(server, Form::Base64, &[80], target(), Room::default()).await });
        let mut client = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        client.send(Message::text("0aGVsbG8=")).await.unwrap();
        let mut heard = Vec::new();
        while let Some(Ok(Message::Text(text))) = client.next().await {
            heard.push(text.to_string());
        }
        assert_eq!(heard, ["0UAA=", "1UAA=", "0aGVsbG8="]);
    }

    /// Time passes when nobody can go on: then the server has taken all it takes.
    #[tokio::test(start_paused = true)]
    async fn api_638_what_no_port_reads_is_held_for_all_of_them_up_to_a_limit() {
        let held = Arc::new(std::sync::Mutex::new(Vec::new()));
        let holding = held.clone();
        let dial: crate::Dial = Arc::new(move |_| {
            let (near, far) = duplex(64);
            holding.lock().unwrap().push(far);
            Box::pin(async move { Ok(Box::new(near) as Box<dyn Connection>) })
        });
        let deaf = Target { dial, pod: "web".into(), uid: "u1".into() };
        let (near, far) = duplex(1 << 16);
        let server = crate::websocket::accept(far).await;
        let ports: Vec<u16> = (1..=100).collect();
        tokio::spawn(async move { serve(server, Form::Bytes, &ports, deaf, Room::default()).await });
        let (mut sink, mut messages) = WebSocketStream::from_raw_socket(near, Role::Client, None).await.split();
        tokio::spawn(async move { while messages.next().await.is_some() {} });
        let piece = vec![0; 512 << 10];
        let mut taken = 0;
        for channel in (0..200).step_by(2).cycle().take(1_000) {
            let sent = sink.send(message(channel, &piece));
            if tokio::time::timeout(std::time::Duration::from_secs(60), sent).await.is_err() {
                break;
            }
            taken += piece.len();
        }
        assert!((piece.len()..=2 * crate::room::UNREAD_BYTES_MAX).contains(&taken), "{taken}");
    }
}
