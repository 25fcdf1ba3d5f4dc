//! A WebSocket as an attacker has it: frames by hand, read or not.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::client::Client;

const BINARY: u8 = 2;
const CLOSE: u8 = 8;
/// When nobody waits any longer for a frame.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Stream(TlsStream<TcpStream>);

impl Stream {
    /// Fails with what the server said instead.
    pub async fn open(client: &Client, path: &str, protocol: &str) -> io::Result<Self> {
        let headers = [
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Sec-WebSocket-Protocol", protocol),
        ];
        let mut stream = client.connect().await?;
        stream.write_all(client.head("GET", path, &headers).as_bytes()).await?;
        stream.flush().await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await??;
            head.push(byte);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 101") { Ok(Self(stream)) } else { Err(io::Error::other(head)) }
    }

    /// One message for a channel.
    pub async fn send(&mut self, channel: u8, data: &[u8]) -> io::Result<()> {
        let length = data.len() as u64 + 1;
        let mut frame = vec![0x80 | BINARY];
        match u8::try_from(length) {
            Ok(short @ 0..126) => frame.push(0x80 | short),
            _ => {
                frame.push(0x80 | 127);
                frame.extend(length.to_be_bytes());
            }
        }
        // A mask of zeros changes nothing.
        frame.extend([0; 4]);
        frame.push(channel);
        frame.extend(data);
        self.0.write_all(&frame).await?;
        self.0.flush().await
    }

    /// The next message: its channel and what it says; `None` at the end.
    pub async fn next(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let read = async {
            let kind = self.0.read_u8().await? & 15;
            let length = match self.0.read_u8().await? & 127 {
                126 => u64::from(self.0.read_u16().await?),
                127 => self.0.read_u64().await?,
                short => u64::from(short),
            };
            let length = usize::try_from(length).map_err(io::Error::other)?;
            let mut message = vec![0; length];
            self.0.read_exact(&mut message).await?;
            Ok::<_, io::Error>((kind, message))
        };
        let (kind, mut message) = match tokio::time::timeout(PATIENCE, read).await? {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        if kind == CLOSE || message.is_empty() {
            return Ok(None);
        }
        let channel = message.remove(0);
        Ok(Some((channel, message)))
    }

    /// All of channel 1, and what channel 3 says in the end.
    pub async fn read_all(mut self) -> io::Result<(u64, String, String)> {
        let (mut count, mut begin, mut status) = (0, Vec::new(), String::new());
        while let Some((channel, message)) = self.next().await? {
            match channel {
                1 => {
                    count += message.len() as u64;
                    if begin.len() < 4096 {
                        begin.extend(&message);
                    }
                }
                3 => status = String::from_utf8_lossy(&message).into_owned(),
                _ => {}
            }
        }
        Ok((count, String::from_utf8_lossy(&begin).into_owned(), status))
    }
}
