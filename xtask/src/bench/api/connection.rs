//! One connection of the load generator: HTTP/1.1 over TLS, one request after
//! the other, and as little work as possible.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::config::Kubeconfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Whom to load, and as whom.
#[derive(Clone)]
pub(super) struct Target {
    address: SocketAddr,
    tls: TlsConnector,
}

impl Target {
    pub(super) fn of(kubeconfig: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig).context("the kubeconfig cannot be read")?;
        let file = serde_json::to_value(&file)?;
        let (cluster, user) = (&file["clusters"][0]["cluster"], &file["users"][0]["user"]);
        let server = cluster["server"].as_str().and_then(|url| url.strip_prefix("https://")).context("no server")?;
        let address = server.trim_end_matches('/').parse().context("the server's address is no IP address")?;
        let pem = |data: &serde_json::Value| {
            BASE64_STANDARD.decode(data.as_str().unwrap_or_default()).context("the kubeconfig has no base64")
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem(&cluster["certificate-authority-data"])?)?)?;
        let certificate = CertificateDer::from_pem_slice(&pem(&user["client-certificate-data"])?)?;
        let key = PrivateKeyDer::from_pem_slice(&pem(&user["client-key-data"])?)?;
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        Ok(Self { address, tls: Arc::new(config).into() })
    }

    pub(super) async fn connect(&self) -> Result<Connection> {
        let socket = TcpStream::connect(self.address).await.context("cannot connect")?;
        socket.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let stream = self.tls.connect(name, socket).await.context("TLS failed")?;
        Ok(Connection { stream, buffer: Vec::with_capacity(16 << 10) })
    }

    pub(super) async fn is_ready(&self) -> bool {
        let asked = async {
            let mut connection = self.connect().await?;
            connection.ask(&request("GET", "/readyz", "", "")).await
        };
        asked.await.is_ok_and(|answer| answer.status == 200)
    }
}

pub(super) fn request(method: &str, path: &str, content_type: &str, body: &str) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: podium\r\nAccept: application/json\r\n");
    if !content_type.is_empty() {
        head += &format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
    }
    (head + "\r\n" + body).into_bytes()
}

pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

pub(super) struct Answer {
    pub(super) status: u16,
    /// Of the body.
    pub(super) bytes: usize,
}

impl Connection {
    /// Sends a request and reads its whole answer.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<Answer> {
        let (status, start, length) = self.begin(request).await?;
        let bytes = match length {
            Some(bytes) => {
                while self.buffer.len() < start + bytes {
                    self.fill().await?;
                }
                bytes
            }
            None => self.chunks(start).await?,
        };
        ensure!(self.buffer.len() <= start + bytes || length.is_none(), "more came than the answer's length says");
        Ok(Answer { status, bytes })
    }

    /// Reads a chunked body to its end; how long it is without its framing.
    async fn chunks(&mut self, start: usize) -> Result<usize> {
        let (mut next, mut bytes) = (start, 0);
        loop {
            let Some(line) = self.buffer[next..].windows(2).position(|window| window == b"\r\n") else {
                self.fill().await?;
                continue;
            };
            let digits = std::str::from_utf8(&self.buffer[next..next + line]).context("no chunk")?;
            let size = usize::from_str_radix(digits, 16).context("an answer with neither length nor chunks")?;
            let end = next + line + 2 + size + 2;
            while self.buffer.len() < end {
                self.fill().await?;
            }
            (next, bytes) = (end, bytes + size);
            if size == 0 {
                return Ok(bytes);
            }
        }
    }

    /// As [`ask`](Self::ask); fails unless the status is as wanted.
    pub(super) async fn expect(&mut self, wanted: u16, request: &[u8]) -> Result<Answer> {
        let answer = self.ask(request).await?;
        if answer.status != wanted {
            let text = String::from_utf8_lossy(&self.buffer);
            bail!("{} instead of {wanted}: {}", answer.status, text.lines().last().unwrap_or_default());
        }
        Ok(answer)
    }

    /// Sends a request whose answer never ends.
    pub(super) async fn stream(mut self, request: &[u8]) -> Result<Events> {
        let (status, start, _) = self.begin(request).await?;
        ensure!(status == 200, "a watch was answered with {status}");
        let mut events = Events { connection: self, last: 0, seen: 0 };
        events.count(start);
        Ok(events)
    }

    /// Status, where the body starts, and its length if it is told.
    async fn begin(&mut self, request: &[u8]) -> Result<(u16, usize, Option<usize>)> {
        self.buffer.clear();
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        loop {
            self.fill().await?;
            let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end]).context("no HTTP")?;
            let status = head.get(9..12).and_then(|code| code.parse().ok()).context("no status")?;
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            return Ok((status, end + 4, length));
        }
    }

    async fn fill(&mut self) -> Result<()> {
        let read = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(read > 0, "the server closed the connection");
        Ok(())
    }
}

/// A watch that only counts.
pub(super) struct Events {
    connection: Connection,
    last: u8,
    seen: u64,
}

impl Events {
    /// Returns once so many events have come in all.
    pub(super) async fn until(&mut self, wanted: u64) -> Result<()> {
        while self.seen < wanted {
            self.connection.buffer.clear();
            self.connection.fill().await?;
            self.count(0);
        }
        Ok(())
    }

    /// Each event ends with a line feed; those of the framing follow a
    /// carriage return.
    fn count(&mut self, start: usize) {
        for byte in &self.connection.buffer[start..] {
            self.seen += u64::from(*byte == b'\n' && self.last != b'\r');
            self.last = *byte;
        }
    }
}
