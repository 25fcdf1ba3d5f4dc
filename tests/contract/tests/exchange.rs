//! The caller's end of a stream, wherever the runtime serves it.

use std::time::Duration;

use cri::{Session, Streaming};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::subject::LIMIT;

pub(crate) enum Exchange {
    Here(Session),
    There(Box<WebSocketStream<TcpStream>>),
}

/// All that was said, and how it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Over the wire: the `Status` object.
    pub(crate) end: String,
}

impl Exchange {
    pub(crate) async fn open(stream: Streaming<Session>) -> Self {
        let url = match stream {
            Streaming::Here(session) => return Self::Here(session),
            Streaming::At(url) => url,
        };
        let mut request = url.replacen("http://", "ws://", 1).into_client_request().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", "v4.channel.k8s.io".parse().unwrap());
        let authority = request.uri().authority().unwrap().to_string();
        let stream = TcpStream::connect(authority).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
        Self::There(Box::new(socket))
    }

    pub(crate) async fn say(&mut self, line: &str) {
        match self {
            Self::Here(session) => session.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap(),
            Self::There(socket) => {
                let piece: Vec<u8> = [&[0], line.as_bytes()].concat();
                socket.send(Message::binary(piece)).await.unwrap();
            }
        }
    }

    /// Until the first output that has `wanted` in it.
    pub(crate) async fn hear(&mut self, wanted: &str) {
        let mut heard = String::new();
        let hearing = async {
            while !heard.contains(wanted) {
                heard += &self.next_stdout().await;
            }
        };
        tokio::time::timeout(LIMIT, hearing).await.unwrap_or_else(|_| panic!("{wanted:?} is not heard"));
    }

    async fn next_stdout(&mut self) -> String {
        match self {
            Self::Here(session) => {
                let mut buffer = [0; 1024];
                let count = session.stdout.as_mut().unwrap().read(&mut buffer).await.unwrap();
                assert_ne!(count, 0, "the output ended");
                String::from_utf8_lossy(&buffer[..count]).into_owned()
            }
            Self::There(socket) => match socket.next().await.expect("the stream ended").unwrap() {
                Message::Binary(bytes) if bytes[0] == 1 => String::from_utf8_lossy(&bytes[1..]).into_owned(),
                _ => String::new(),
            },
        }
    }

    /// Everything else. Input ends where that can be said.
    pub(crate) async fn rest(self) -> Heard {
        let rest = async {
            match self {
                Self::Here(session) => rest_of_session(session).await,
                Self::There(socket) => rest_of_socket(*socket).await,
            }
        };
        tokio::time::timeout(LIMIT + Duration::from_secs(1), rest).await.expect("the stream does not end")
    }
}

async fn rest_of_session(session: Session) -> Heard {
    let Session { stdin, stdout, stderr, exit, resize: _resize } = session;
    drop(stdin);
    let read = async |output: Option<cri::Output>| {
        let mut text = String::new();
        if let Some(mut output) = output {
            output.read_to_string(&mut text).await.unwrap();
        }
        text
    };
    let (stdout, stderr, exit) = tokio::join!(read(stdout), read(stderr), exit);
    Heard { stdout, stderr, end: format!("exit status {}", exit.unwrap()) }
}

async fn rest_of_socket(mut socket: WebSocketStream<TcpStream>) -> Heard {
    let mut heard = Heard::default();
    while let Some(Ok(message)) = socket.next().await {
        let Message::Binary(bytes) = message else { continue };
        let text = String::from_utf8_lossy(&bytes[1..]);
        match bytes[0] {
            1 => heard.stdout += &text,
            2 => heard.stderr += &text,
            3 => heard.end += &text,
            _ => {}
        }
    }
    heard
}
