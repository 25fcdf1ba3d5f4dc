//! HTTP and TCP probes against local servers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ambient::{Clock, Ids, Rng};
use cri::fake::Fake;
use lifecycle::HttpGet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::outbound::{self, GetError, Request};

/// Long enough for anything that answers.
const PATIENT: Duration = Duration::from_secs(30);
/// For those that do not.
const BRIEF: Duration = Duration::from_millis(200);

/// A peer of probes that remembers what it was asked.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    /// Gives these answers in turn, the last one again and again.
    pub(crate) async fn answering(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Self { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let (asked, answers) = (peer.asked.clone(), answers.iter().map(ToString::to_string).collect::<Vec<_>>());
        tokio::spawn(async move {
            for at in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let question = head(&mut stream).await;
                asked.lock().unwrap().push(question);
                let answer = &answers[at.min(answers.len() - 1)];
                // Whoever asked may have heard enough.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        peer
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn head(stream: &mut TcpStream) -> String {
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    // A TLS client does not speak in lines.
    while !text.ends_with(b"\r\n\r\n") && text.first() != Some(&0x16) {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(read) => text.extend_from_slice(&chunk[..read]),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn status(code: u16) -> String {
    format!("HTTP/1.1 {code} Any\r\nContent-Length: 6\r\n\r\nsecret")
}

fn to(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\nover")
}

pub(crate) fn http_get(peer: SocketAddr, path: &str) -> HttpGet {
    HttpGet { path: path.into(), port: Port::Number(peer.port()), host: None, is_https: false, headers: Vec::new() }
}

async fn ask_within(mechanism: &Mechanism, timeout: Duration) -> ProbeResult {
    let runtime = Fake::new(Clock::system(), Ids::new(Rng::seeded(1)));
    let lookups = crate::outbound::Lookups::default();
    let target = Target {
        names: lookups.of("default", "u1"),
        pod_ip: "127.0.0.1",
        container: &ContainerId::from("none"),
        variables: &BTreeMap::new(),
        runtime: &runtime,
    };
    let spec = ProbeSpec {
        mechanism: mechanism.clone(),
        initial_delay: Duration::ZERO,
        period: Duration::from_secs(1),
        timeout,
        success_threshold: 1,
        failure_threshold: 1,
        grace: None,
    };
    run(&spec, &target).await
}

async fn ask(get: HttpGet) -> ProbeResult {
    ask_within(&Mechanism::HttpGet(get), PATIENT).await
}

async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

fn failure(text: impl Into<String>) -> ProbeResult {
    ProbeResult::Failure(text.into())
}

#[tokio::test]
async fn lc_245_lc_249_http_succeeds_from_200_to_399_and_keeps_bodies_to_itself() {
    let codes = [200, 204, 299, 400, 404, 500];
    let peer = Peer::answering(&codes.map(status).each_ref().map(String::as_str)).await;
    for code in codes {
        let wanted = match code {
            200..300 => ProbeResult::Success,
            _ => failure(format!("HTTP probe failed with statuscode: {code}")),
        };
        assert_eq!(ask(http_get(peer.address, "/")).await, wanted);
    }
}

#[tokio::test]
async fn lc_247_a_request_says_who_asks_and_nothing_more() {
    let peer = Peer::answering(&[&status(200)]).await;
    ask(http_get(peer.address, "/live?deep=1")).await;
    let wanted = format!(
        "GET /live?deep=1 HTTP/1.1\r\nAccept: */*\r\nUser-Agent: kube-probe/1.35\r\nHost: {}\r\nConnection: close\r\n\r\n",
        peer.address
    );
    assert_eq!(peer.asked(), [wanted]);
}

#[tokio::test]
async fn lc_247_headers_of_the_spec_win() {
    let peer = Peer::answering(&[&status(200)]).await;
    let headers = [("Host", "shop.example"), ("Accept", ""), ("user-agent", "me"), ("X-A", "1"), ("X-A", "2")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    assert_eq!(ask(HttpGet { headers, ..http_get(peer.address, "x") }).await, ProbeResult::Success);
    let asked = peer.asked().concat();
    let mut lines: Vec<&str> = asked.trim_end().lines().collect();
    lines.sort_unstable();
    let wanted = ["Connection: close", "GET /x HTTP/1.1", "Host: shop.example", "User-Agent: me", "X-A: 1", "X-A: 2"];
    assert_eq!(lines, wanted);
}

#[tokio::test]
async fn lc_248_redirects_to_the_same_host_are_followed() {
    let other = Peer::answering(&[&status(500)]).await;
    let peer = Peer::answering(&[&to("/b"), &to(&format!("http://{}/c", other.address))]).await;
    assert_eq!(ask(http_get(peer.address, "/a")).await, failure("HTTP probe failed with statuscode: 500"));
    assert!(peer.asked()[1].starts_with("GET /b "));
    assert!(other.asked()[0].starts_with("GET /c "), "another port is not another host");
    let circle = Peer::answering(&[&to("/again")]).await;
    assert_eq!(ask(http_get(circle.address, "/")).await, failure("Get \"/again\": stopped after 10 redirects"));
    assert_eq!(circle.asked().len(), 10);
}

#[tokio::test]
async fn lc_248_a_redirect_to_another_host_is_a_success_with_a_warning() {
    let peer = Peer::answering(&[&to("http://elsewhere.example/")]).await;
    assert_eq!(ask(http_get(peer.address, "/")).await, ProbeResult::Warning("over".into()));
    let lost = Peer::answering(&["HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"]).await;
    assert_eq!(ask(http_get(lost.address, "/")).await, ProbeResult::Warning(String::new()));
}

#[tokio::test]
async fn lc_245_transport_errors_are_failures_in_upstreams_words() {
    let closed = nobody().await;
    let refused = format!("Get \"http://{closed}/\": dial tcp {closed}: connect: connection refused");
    assert_eq!(ask(http_get(closed, "/")).await, failure(refused));
    let mute = Peer::answering(&[""]).await;
    assert_eq!(ask(http_get(mute.address, "/")).await, failure(format!("Get \"http://{}/\": EOF", mute.address)));
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = slow.local_addr().unwrap();
    let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    let told = ask_within(&Mechanism::HttpGet(http_get(address, "/")), BRIEF).await;
    assert_eq!(told, failure(format!("Get \"http://{address}/\": {late}")));
}

#[tokio::test]
async fn lc_245_an_answer_that_is_none_is_a_failure() {
    let noise = Peer::answering(&["SSH-2.0-OpenSSH_9.6\r\n"]).await;
    let ProbeResult::Failure(text) = ask(http_get(noise.address, "/")).await else { panic!("it is not HTTP") };
    assert!(text.ends_with("malformed HTTP response"), "{text}");
    let endless = Peer::answering(&[&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1 << 20))]).await;
    let ProbeResult::Failure(text) = ask(http_get(endless.address, "/")).await else { panic!("it never ends") };
    assert!(text.ends_with("net/http: server response headers exceeded 65536 bytes; aborted"), "{text}");
}

#[tokio::test]
async fn lc_246_a_body_that_breaks_off_is_an_error_and_tried_three_times() {
    let peer = Peer::answering(&["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"]).await;
    assert_eq!(ask(http_get(peer.address, "/")).await, ProbeResult::Unknown("unexpected EOF".into()));
    assert_eq!(peer.asked().len(), 3);
    let better = Peer::answering(&["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", &status(200)]).await;
    assert_eq!(ask(http_get(better.address, "/")).await, ProbeResult::Success);
}

#[tokio::test]
async fn lc_247_at_most_10_kib_of_a_body_are_read() {
    let body = "x".repeat(1 << 20);
    let peer = Peer::answering(&[&format!("HTTP/1.1 300 Many\r\nContent-Length: {}\r\n\r\n{body}", body.len())]).await;
    let ProbeResult::Warning(read) = ask(http_get(peer.address, "/")).await else { panic!("a redirect to nowhere") };
    assert_eq!(read.len(), 10 * 1024);
}

#[tokio::test]
async fn lc_250_a_port_nobody_knows_is_an_error() {
    let unknown =
        |word: &str| HttpGet { port: Port::Unknown(word.into()), ..http_get(([127, 0, 0, 1], 1).into(), "/") };
    let wanted = "strconv.Atoi: parsing \"web\": invalid syntax";
    assert_eq!(ask(unknown("web")).await, ProbeResult::Unknown(wanted.into()));
    assert_eq!(ask(unknown("0")).await, ProbeResult::Unknown("invalid port number: 0".into()));
}

/// One that nobody vouches for, with something to say once.
async fn self_signed() -> SocketAddr {
    let key = rcgen::generate_simple_self_signed(["other.example".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![key.cert.der().clone()], private).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await else { return };
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        // No length and no goodbye: the end of the connection is the end of the body.
        stream.write_all(b"HTTP/1.0 503 Any\r\n\r\nsecret").await.unwrap();
    });
    address
}

#[tokio::test]
async fn lc_353_who_hands_out_pods_must_prove_who_it_is() {
    let address = self_signed().await;
    let url = crate::outbound::Url::new(true, "127.0.0.1", address.port(), "/");
    let (tls, body_bytes_max) = (crate::outbound::Tls::Verified, 1024);
    let lookups = crate::outbound::Lookups::default();
    let names = lookups.of("", "");
    let request = Request { url, headers: &[], user_agent: "podium", deadline: None, body_bytes_max, tls, names };
    let GetError::Failed(error) = outbound::get(request).await.unwrap_err() else { panic!("it spoke TLS") };
    assert!(error.contains("invalid peer certificate"), "{error}");
}

#[tokio::test]
async fn lc_247_certificates_are_not_verified() {
    let address = self_signed().await;
    let told = ask(HttpGet { is_https: true, ..http_get(address, "/") }).await;
    assert_eq!(told, failure("HTTP probe failed with statuscode: 503"));
}

#[tokio::test]
async fn lc_245_plain_http_is_not_taken_for_https() {
    let peer = Peer::answering(&["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"]).await;
    let told = ask(HttpGet { is_https: true, ..http_get(peer.address, "/") }).await;
    let wanted = format!("Get \"https://{}/\": http: server gave HTTP response to HTTPS client", peer.address);
    assert_eq!(told, failure(wanted));
}

#[tokio::test]
async fn lc_245_tcp_succeeds_when_a_connection_opens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = Port::Number(listener.local_addr().unwrap().port());
    let tcp = Mechanism::TcpSocket { host: Some("localhost".into()), port };
    assert_eq!(ask_within(&tcp, PATIENT).await, ProbeResult::Success);
    let closed = nobody().await;
    let tcp = Mechanism::TcpSocket { host: None, port: Port::Number(closed.port()) };
    assert_eq!(ask_within(&tcp, PATIENT).await, failure(format!("dial tcp {closed}: connect: connection refused")));
}

#[tokio::test]
async fn many_peers_that_hang_cost_no_thread_each() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let get = Mechanism::HttpGet(http_get(slow.local_addr().unwrap(), "/"));
    let before = threads();
    let probes = (0..100).map(|_| ask_within(&get, BRIEF));
    let told = futures::future::join_all(probes).await;
    assert!(told.iter().all(|told| matches!(told, ProbeResult::Failure(_))), "{told:?}");
    assert!(threads() < before + 20, "{} threads", threads());
}

#[test]
fn durations_are_printed_as_go_prints_them() {
    let printed = |seconds| printed(Duration::from_secs(seconds));
    assert_eq!([printed(1), printed(90), printed(7200)], ["1s", "1m30s", "2h0m0s"]);
}
