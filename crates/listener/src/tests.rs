//! Over real sockets on loopback, with limits that are soon reached.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn;
use hyper_util::rt::TokioExecutor;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

/// A server that answers `/large` with more than any buffer holds, `/panic` by
/// breaking, `/broken` with a body that does, and everyone who names themselves
/// in the path as somebody known.
struct Server {
    address: SocketAddr,
    client: ClientConfig,
    /// A word for each answer whose body is gone.
    done: mpsc::UnboundedReceiver<()>,
    panics: Panics,
}

const LARGE_BYTES: usize = 64 << 20;

struct Told(Full<Bytes>, mpsc::UnboundedSender<()>, bool);

impl Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        assert!(!self.2, "a body that breaks");
        std::pin::Pin::new(&mut self.0).poll_frame(context)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.1.send(());
    }
}

async fn server(limits: Limits) -> Server {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let mut tls =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let (sender, done) = mpsc::unbounded_channel();
    let make = move |peer: Peer| {
        let sender = sender.clone();
        move |request: Request<Incoming>| {
            let bytes = if request.uri().path() == "/large" { vec![0; LARGE_BYTES] } else { b"ok".to_vec() };
            if let Some(user) = request.uri().path().strip_prefix("/as/") {
                peer.connection.is_of(user);
            }
            let (sender, path) = (sender.clone(), request.uri().path().to_owned());
            async move {
                assert_ne!(path, "/panic", "an answer that breaks");
                Response::new(Told(Full::new(bytes.into()), sender, path == "/broken"))
            }
        }
    };
    let panics = Panics::default();
    tokio::spawn(serve(tcp, Arc::new(tls), limits, panics.clone(), std::future::pending(), make));
    Server { address, client, done, panics }
}

impl Server {
    async fn tls(&self, alpn: &[u8]) -> TlsStream<TcpStream> {
        let mut client = self.client.clone();
        client.alpn_protocols = vec![alpn.to_vec()];
        let tcp = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(client)).connect(name, tcp).await.unwrap()
    }

    async fn http1(&self) -> conn::http1::SendRequest<Empty<Bytes>> {
        let (sender, connection) = conn::http1::handshake(TokioIo::new(self.tls(b"http/1.1").await)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn http2(&self) -> (conn::http2::SendRequest<Empty<Bytes>>, tokio::task::JoinHandle<bool>) {
        let stream = TokioIo::new(self.tls(b"h2").await);
        let mut builder = conn::http2::Builder::new(TokioExecutor::new());
        let builder = builder.initial_stream_window_size(65_535);
        let (sender, connection) = builder.handshake(stream).await.unwrap();
        (sender, tokio::spawn(async move { connection.await.is_ok() }))
    }
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("https://localhost{path}");
    Request::builder().uri(uri).header("host", "localhost").body(Empty::new()).unwrap()
}

fn few() -> Limits {
    Limits { connections: 8, ..Limits::default() }
}

#[tokio::test]
async fn a_new_call_gets_through_whoever_else_is_silent() {
    let server = server(few()).await;
    let mut known = server.http1().await;
    assert_eq!(known.send_request(get("/as/jane")).await.unwrap().status(), 200);
    let mut silent = Vec::new();
    for _ in 0..30 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut agreed = Vec::new();
    for alpn in [&b"h2"[..], b"http/1.1"].repeat(15) {
        agreed.push(server.tls(alpn).await);
    }
    let (mut idle, _connection) = server.http2().await;
    idle.ready().await.unwrap();
    let mut fresh = server.http1().await;
    assert_eq!(fresh.send_request(get("/")).await.unwrap().status(), 200);
    assert_eq!(known.send_request(get("/as/jane")).await.unwrap().status(), 200, "who is known stays");
    // The oldest have gone.
    for mut gone in silent {
        assert_eq!(gone.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
}

#[tokio::test]
async fn who_is_answered_keeps_the_place_of_those_who_only_hold_one() {
    let server = server(few()).await;
    let mut busy = server.http1().await;
    let answer = busy.send_request(get("/large")).await.unwrap();
    for round in 0..20 {
        let mut other = server.http1().await;
        let path = format!("/as/{round}");
        assert_eq!(other.send_request(get(&path)).await.unwrap().status(), 200);
    }
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), LARGE_BYTES);
}

#[tokio::test]
async fn silence_ends_a_connection_before_and_after_a_request() {
    let short = Duration::from_millis(200);
    let server = server(Limits { first_request: short, idle: short, farewell: short, ..few() }).await;
    for alpn in [&b"h2"[..], b"http/1.1"] {
        let mut silent = server.tls(alpn).await;
        let mut heard = Vec::new();
        // Whatever is said before, it ends.
        let _ = silent.read_to_end(&mut heard).await;
    }
    let (mut idle, connection) = server.http2().await;
    assert_eq!(idle.send_request(get("/")).await.unwrap().status(), 200);
    assert!(connection.await.unwrap(), "told, not broken off");
    assert!(idle.send_request(get("/")).await.is_err());
}

#[tokio::test]
async fn who_never_reads_loses_the_connection() {
    let mut server = server(Limits { stalled: Duration::from_millis(300), ..few() }).await;
    let (mut second, connection) = server.http2().await;
    let answer = second.send_request(get("/large")).await.unwrap();
    server.done.recv().await.unwrap();
    connection.await.unwrap();
    assert!(answer.into_body().collect().await.is_err(), "it did not get all");
    let mut first = server.http1().await;
    let answer = first.send_request(get("/large")).await.unwrap();
    server.done.recv().await.unwrap();
    assert!(answer.into_body().collect().await.is_err(), "it did not get all");
}

#[tokio::test]
async fn a_handshake_does_not_take_for_ever() {
    let server = server(Limits { handshake: Duration::from_millis(100), ..few() }).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn api_001_who_vanishes_without_a_word_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (socket, _) = tokio::join!(listener.accept(), client).0.unwrap();
    prepare(&socket).unwrap();
    assert!(socket.nodelay().unwrap());
    assert!(sockopt::socket_keepalive(&socket).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&socket), Ok(Duration::from_secs(30)));
    assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(60_000));
}

#[tokio::test]
async fn a_panic_costs_its_connection_or_its_stream_and_is_counted() {
    let server = server(few()).await;
    for path in ["/panic", "/broken"] {
        let answer = server.http1().await.send_request(get(path)).await;
        let is_whole = match answer {
            Ok(answer) => answer.into_body().collect().await.is_ok(),
            Err(_) => false,
        };
        assert!(!is_whole, "{path}");
    }
    assert_eq!(server.panics.counts(), [("connection", 2), ("http2_stream", 0)]);
    // Of many streams one ends, and the others go on.
    let (mut sender, _connection) = server.http2().await;
    for path in ["/panic", "/broken"] {
        let answer = sender.send_request(get(path)).await;
        let is_whole = match answer {
            Ok(answer) => answer.into_body().collect().await.is_ok(),
            Err(_) => false,
        };
        assert!(!is_whole, "{path}");
        assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
    }
    assert_eq!(server.panics.counts(), [("connection", 2), ("http2_stream", 2)]);
    // Places are free again.
    for _ in 0..20 {
        assert_eq!(server.http1().await.send_request(get("/")).await.unwrap().status(), 200);
    }
}
