//! Opens one TCP connection, and closes it without holding up others.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use super::lookup::Resolver;

/// LC-253.
const LINGER: Duration = Duration::from_secs(1);
/// Kilobytes a peer may say after we stopped listening.
const UNREAD_MAX: usize = 64;
/// What is remembered of a peer's first words.
const HEARD_MAX: usize = 8;

/// The error is a Go dialer's: `dial tcp 10.0.0.1:80: connect: connection refused`.
pub(crate) async fn dial(names: Resolver<'_>, host: &str, port: u16) -> Result<Socket, String> {
    let mut first_error = None;
    for address in addresses(names, host, port).await? {
        match connect(address).await {
            Ok(stream) => return Ok(Socket { stream: Some(stream), heard: Heard::default() }),
            Err(error) => {
                first_error.get_or_insert_with(|| format!("dial tcp {address}: connect: {}", plain(&error)));
            }
        }
    }
    Err(first_error.unwrap_or_else(|| no_such_host(host)))
}

async fn addresses(names: Resolver<'_>, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    names.addresses(host, port).await.map_err(|_| no_such_host(host))
}

fn no_such_host(host: &str) -> String {
    format!("dial tcp: lookup {host}: no such host")
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.connect(address).await
}

/// `host:port`, with brackets where an IPv6 address needs them.
pub(crate) fn joined(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// An error of the system the way Go prints it: `connection refused`.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// A connection.
pub(crate) struct Socket {
    /// Taken only when dropped.
    stream: Option<TcpStream>,
    heard: Heard,
}

/// The peer's first bytes; outlives the connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    /// It speaks HTTP/1 in plain text.
    pub(crate) fn is_plain_http(&self) -> bool {
        self.lock().starts_with(b"HTTP/")
    }

    /// It began with a TLS record: a handshake message or an alert.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.lock()[..], [] | [0x15 | 0x16, ..])
    }

    /// It began with an HTTP/2 SETTINGS frame, as every HTTP/2 server must.
    pub(crate) fn is_http2(&self) -> bool {
        self.lock().get(3) == Some(&4)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("first words are never poisoned: no code panics while holding them")
    }
}

impl Socket {
    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }

    /// `10.0.0.9:40000->10.0.0.1:80`
    pub(crate) fn ends(&self) -> String {
        let ends = self.stream.as_ref().map(|stream| (stream.local_addr(), stream.peer_addr()));
        match ends {
            Some((Ok(from), Ok(to))) => format!("{from}->{to}"),
            _ => String::new(),
        }
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.as_mut().expect("a socket holds its stream until it is dropped"))
    }
}

impl Drop for Socket {
    /// LC-253. The system's own linger would block the thread that closes.
    fn drop(&mut self) {
        if let (Some(stream), Ok(runtime)) = (self.stream.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async { tokio::time::timeout(LINGER, see_off(stream)).await });
        }
    }
}

/// Says goodbye and waits for the peer's: closing on unread words would reset
/// the connection.
async fn see_off(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    for _ in 0..UNREAD_MAX {
        if stream.read(&mut unread).await? == 0 {
            break;
        }
    }
    Ok(())
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.stream().poll_read(cx, buffer))?;
        let mut heard = self.heard.lock();
        let wanted = HEARD_MAX.saturating_sub(heard.len());
        heard.extend(buffer.filled()[before..].iter().take(wanted));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::Lookups;

    #[tokio::test]
    async fn lc_245_a_refused_connection_is_worded_as_upstream_words_it() {
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let lookups = Lookups::default();
        let names = lookups.of("default", "u1");
        let error = dial(names, "127.0.0.1", address.port()).await.err();
        assert_eq!(error, Some(format!("dial tcp {address}: connect: connection refused")));
        let error = dial(names, "no-such-host.invalid", 80).await.err();
        assert_eq!(error.as_deref(), Some("dial tcp: lookup no-such-host.invalid: no such host"));
    }

    #[tokio::test]
    async fn lc_253_a_socket_lingers_for_a_second_at_most() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let lookups = Lookups::default();
        let socket = dial(lookups.of("default", "u1"), "127.0.0.1", server.local_addr().unwrap().port()).await.unwrap();
        let (mut peer, _) = server.accept().await.unwrap();
        peer.write_all(b"unread").await.unwrap();
        drop(socket);
        assert_eq!(peer.read(&mut [0; 8]).await.unwrap(), 0, "a goodbye, not a reset");
        // The peer does not say goodbye: a write fails once the time is over.
        let reset = async {
            while peer.write_all(b"x").await.is_ok() {
                tokio::time::sleep(LINGER / 20).await
            }
        };
        assert!(tokio::time::timeout(LINGER * 5, reset).await.is_ok());
    }

    #[test]
    fn addresses_are_joined_with_brackets_where_needed() {
        assert_eq!(joined("10.0.0.1", 80), "10.0.0.1:80");
        assert_eq!(joined("fd00::1", 80), "[fd00::1]:80");
    }
}
