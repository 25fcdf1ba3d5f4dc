//! Over real sockets: silent connections, and identities that end while
//! connections stay.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::fixture::{Fixture, fixture_with};
use crate::pki::{Authority, Certificate};
use apiserver::Config;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

struct Server {
    fixture: Fixture,
    authority: Authority,
    address: SocketAddr,
}

async fn server(config: Config) -> Server {
    let fixture = fixture_with(config).await;
    let authority = Authority::new();
    let tls = authority.server(&authority.issue("kube-apiserver", "podium"));
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let api = fixture.api.clone();
    tokio::spawn(async move { api.serve(tcp, tls, std::future::pending()).await });
    Server { fixture, authority, address }
}

impl Server {
    async fn connect(&self, certificate: Option<&Certificate>) -> TlsStream<TcpStream> {
        let mut tls = self.authority.client(certificate);
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpStream::connect(self.address).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(tls)).connect(name, socket).await.unwrap()
    }

    /// An HTTP/2 connection, and what is true when it has ended well.
    async fn client(&self, certificate: &Certificate) -> (SendRequest<Empty<Bytes>>, tokio::task::JoinHandle<bool>) {
        let stream = TokioIo::new(self.connect(Some(certificate)).await);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        (sender, tokio::spawn(async move { connection.await.is_ok() }))
    }
}

async fn get(client: &mut SendRequest<Empty<Bytes>>, path: &str) -> Response<Incoming> {
    let request = Request::builder().uri(format!("https://localhost{path}")).body(Empty::new()).unwrap();
    client.send_request(request).await.unwrap()
}

#[tokio::test]
async fn api_001_silent_connections_keep_nobody_out() {
    let connections = listener::Limits { connections: 16, ..listener::Limits::default() };
    let server = server(Config { connections, ..Config::default() }).await;
    let admin = server.authority.issue("admin", "system:masters");
    let (mut early, _open) = server.client(&admin).await;
    let mut watch = get(&mut early, "/api/v1/pods?watch=true").await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(server.connect(None).await);
    }
    let (mut late, _open) = server.client(&admin).await;
    assert_eq!(get(&mut late, "/api/v1/pods").await.status(), 200);
    server.fixture.admin.pod("web").await;
    let event = watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(String::from_utf8_lossy(&event).contains("ADDED"), "who is served is not disturbed");
}

#[tokio::test]
async fn api_639_an_identity_ends_with_its_certificate_also_on_an_open_connection() {
    const YEAR_4000: u64 = 64_060_588_800;
    let server = server(Config::default()).await;
    let (clock, start) = (&server.fixture.clock, server.fixture.clock.now().wall.as_second());
    let certificate = server.authority.issue_until("admin", "system:masters", 4000);
    let (mut client, connection) = server.client(&certificate).await;
    clock.advance(Duration::from_secs(YEAR_4000 - u64::try_from(start).unwrap() - 1));
    assert_eq!(get(&mut client, "/api/v1/pods").await.status(), 200);
    let watch = get(&mut client, "/api/v1/pods?watch=true").await;
    assert_eq!(watch.status(), 200);
    clock.advance(Duration::from_secs(2));
    watch.into_body().collect().await.unwrap();
    assert_eq!(get(&mut client, "/api/v1/pods").await.status(), 401);
    assert!(connection.await.unwrap(), "and the connection ends");
}
