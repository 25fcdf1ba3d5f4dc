//! Speaks to the API server over TLS as anybody, also in ways no client does.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// When nobody waits any longer for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What somebody proves who they are with.
#[derive(Debug, Clone)]
pub enum Credential {
    None,
    Token(String),
    /// In PEM.
    Certificate {
        chain: Vec<u8>,
        key: Vec<u8>,
    },
}

/// Somebody who speaks to the server, from an address of their own.
#[derive(Clone)]
pub struct Client {
    server: SocketAddr,
    source: IpAddr,
    tls: TlsConnector,
    token: Option<String>,
}

/// How the server answered; code 0 when it did not.
#[derive(Clone)]
pub struct Answer {
    pub code: u16,
    pub body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(600)]);
        write!(f, "{} {text}", self.code)
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Fails unless the server took it.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{self:?}");
        self.json()
    }

    /// Fails unless the server said no, in one of these ways; the outcome in
    /// words.
    #[track_caller]
    pub fn refused(&self, codes: &[u16]) -> String {
        assert!(codes.contains(&self.code), "expected one of {codes:?}: {self:?}");
        format!("refused ({})", self.code)
    }
}

impl Client {
    pub fn new(server: SocketAddr, source: IpAddr, authority: &[u8], credential: Credential) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority).expect("a certificate")).expect("an authority");
        let config = rustls::ClientConfig::builder().with_root_certificates(roots);
        let (config, token) = match credential {
            Credential::None => (config.with_no_client_auth(), None),
            Credential::Token(token) => (config.with_no_client_auth(), Some(token)),
            Credential::Certificate { chain, key } => {
                let chain: Vec<_> =
                    CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>().expect("certificates");
                let key = PrivateKeyDer::from_pem_slice(&key).expect("a key");
                (config.with_client_auth_cert(chain, key).expect("they belong together"), None)
            }
        };
        Self { server, source, tls: Arc::new(config).into(), token }
    }

    /// A connection on which nothing was said yet.
    pub async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = self.connect_plain().await?;
        self.tls.connect(ServerName::from(self.server.ip()), stream).await
    }

    /// One on which not even TLS was spoken.
    pub async fn connect_plain(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        // Many connections from one address to one port: each needs a port of its own only with this.
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(self.source, 0))?;
        let stream = socket.connect(self.server).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The head of a request, as one would write it by hand.
    pub fn head(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: podium\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        head + "\r\n"
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<http::Response<Incoming>, String> {
        let stream = self.connect().await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // Ends with the answer: nothing else is sent here. Its error is the request's.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| error.to_string())
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(path).header("host", "podium");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(Full::new(body)).expect("a request can be made of this")
    }

    /// Asks on a connection of its own, with any headers.
    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let request = self.request(method, path, headers, body.into());
        let asked = async {
            let response = self.send(request).await?;
            let code = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
            Ok(Answer { code, body: body.to_bytes() })
        };
        let answer = tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err("no answer".to_owned()));
        answer.unwrap_or_else(|error: String| Answer { code: 0, body: error.into() })
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask("PUT", path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// `form`: `json`, `merge`, `strategic-merge` or `apply`.
    pub async fn patch(&self, form: &str, path: &str, body: &Value) -> Answer {
        let content_type = match form {
            "apply" => "application/apply-patch+yaml".to_owned(),
            form => format!("application/{form}-patch+json"),
        };
        self.ask("PATCH", path, &[("content-type", &content_type)], body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, &[], Bytes::new()).await
    }

    /// Watches until an object satisfies the condition.
    pub async fn wait_for(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let found = tokio::time::timeout(PATIENCE, self.find(path, holds)).await;
        found.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?} ({path})"))
    }

    /// The same, for as long as it takes.
    pub(crate) async fn find(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(found) = self.watch(path, &holds).await {
                return found;
            }
        }
    }

    /// Asks again and again, until it is not there any more.
    pub async fn wait_until_gone(&self, path: &str) {
        self.wait_until_gone_within(path, PATIENCE).await;
    }

    /// The same for what takes its time.
    pub async fn wait_until_gone_within(&self, path: &str, patience: Duration) {
        let asked = async { while self.get(path).await.code != 404 {} };
        let gone = tokio::time::timeout(patience, asked).await;
        gone.unwrap_or_else(|_| panic!("still there after {patience:?}: {path}"));
    }

    /// One watch, until it ends.
    async fn watch(&self, path: &str, holds: &impl Fn(&Value) -> bool) -> Option<Value> {
        let path = format!("{path}{}watch=1", if path.contains('?') { '&' } else { '?' });
        let mut body = self.send(self.request("GET", &path, &[], Bytes::new())).await.ok()?.into_body();
        let mut buffer = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let mut event: Value = serde_json::from_slice(&line).unwrap_or_default();
                if event["type"] != "ERROR" && holds(&event["object"]) {
                    return Some(event["object"].take());
                }
            }
        }
        None
    }
}
