//! The kubelet's HTTPS server, over real sockets and real certificates.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kubelet::Listener;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;

use crate::support::{Node, is_ready, pod};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn identity(&self, user: &str, group: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn roots(&self) -> Arc<rustls::RootCertStore> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        Arc::new(roots)
    }
}

struct Served {
    node: Node,
    authority: Authority,
    address: std::net::SocketAddr,
}

impl Served {
    async fn new() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let authority = Authority::new();
        let (chain, key) = authority.identity("n1", "system:nodes");
        let verifier = rustls::server::WebPkiClientVerifier::builder(authority.roots()).build().unwrap();
        let tls =
            rustls::ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
        let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let mut node = Node::new();
        let agent = node.agent(Arc::new(node.runtime.clone())).with_server(Listener { tcp, tls: Arc::new(tls) });
        node.run(agent);
        Self { node, authority, address }
    }

    async fn get(&self, (user, group): (&str, &str), path: &str) -> Response<Incoming> {
        let (chain, key) = self.authority.identity(user, group);
        let config = rustls::ClientConfig::builder().with_root_certificates(self.authority.roots());
        let config = config.with_client_auth_cert(chain, key).unwrap();
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "localhost").body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(request).await.unwrap()
    }

    async fn text(&self, path: &str) -> (u16, String) {
        let answer = self.get(API_SERVER, path).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

const API_SERVER: (&str, &str) = ("kube-apiserver-kubelet-client", "podium");

#[tokio::test]
async fn api_697_only_the_api_server_and_administrators_may_ask() {
    let served = Served::new().await;
    assert_eq!(served.text("/healthz").await, (200, "ok".to_owned()));
    assert_eq!(served.get(("root", "system:masters"), "/healthz").await.status(), 200);
    let stranger = served.get(("bob", "developers"), "/pods").await;
    assert_eq!(stranger.status(), 403);
    let body = stranger.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[proxy])");
}

#[tokio::test]
async fn api_691_logs_are_read_tailed_and_followed_to_the_end() {
    let served = Served::new().await;
    served.node.api.create("pods", pod("web", json!({"restartPolicy": "Never"})));
    served.node.api.until("web", is_ready).await;
    let directory = served.node.root.path().join("logs/default_web_uid-web/app");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("0.log");
    std::fs::write(&path, "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n").unwrap();
    assert_eq!(served.text("/containerLogs/default/web/app").await, (200, "one\ntwo\n".to_owned()));
    let tail = served.text("/containerLogs/default/web/app?tailLines=1&timestamps=true").await;
    assert_eq!(tail, (200, "2026-01-01T00:00:02Z two\n".to_owned()));

    let mut followed =
        served.get(API_SERVER, "/containerLogs/default/web/app?follow=true&tailLines=1").await.into_body();
    let mut next = async || -> Option<Bytes> {
        let frame = tokio::time::timeout(Duration::from_secs(20), followed.frame()).await.expect("a frame in time");
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    };
    assert_eq!(next().await.unwrap(), "two\n");
    let mut log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(b"2026-01-01T00:00:03Z stdout F three\n").unwrap();
    assert_eq!(next().await.unwrap(), "three\n");
    std::fs::rename(&path, directory.join("0.log.1")).unwrap();
    std::fs::write(&path, "2026-01-01T00:00:04Z stdout F rotated\n").unwrap();
    assert_eq!(next().await.unwrap(), "rotated\n");
    served.node.runtime.exit("app", 0);
    assert_eq!(next().await, None, "the end of the container is the end of its log");
}
