//! gRPC probes against local HTTP/2 servers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::{HeaderMap, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

use super::*;

const PATIENT: Duration = Duration::from_secs(30);
const BRIEF: Duration = Duration::from_secs(1);

type Body = UnsyncBoxBody<Bytes, Infallible>;
/// What it was asked: the headers, and the message in its frame.
type Asked = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

fn answer(message: &'static [u8], status: &'static str, text: &'static str) -> Response<Body> {
    let trailers = [("grpc-status", status), ("grpc-message", text)];
    let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let frames = [Frame::data(Bytes::from_static(message)), Frame::trailers(trailers.into_iter().collect())];
    let body = http_body_util::StreamBody::new(futures::stream::iter(frames.map(Ok)));
    Response::new(UnsyncBoxBody::new(body))
}

/// An HTTP/2 server; without an answer it lets callers wait.
async fn server(answer: Option<fn() -> Response<Body>>) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Asked::default();
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            let service = hyper::service::service_fn(move |request: http::Request<Incoming>| {
                let seen = seen.clone();
                async move {
                    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                    let (head, body) = request.into_parts();
                    let message = body.collect().await.unwrap().to_bytes();
                    seen.lock().unwrap().push((head.headers, message));
                    match answer {
                        Some(answer) => Ok::<_, Infallible>(answer()),
                        None => std::future::pending().await,
                    }
                }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, asked)
}

async fn ask(address: SocketAddr, service: &str, timeout: Duration) -> ProbeResult {
    let lookups = crate::outbound::Lookups::default();
    check(lookups.of("default", "u1"), "127.0.0.1", address.port(), service, timeout).await
}

fn failure(text: impl Into<String>) -> ProbeResult {
    ProbeResult::Failure(text.into())
}

#[tokio::test]
async fn lc_251_the_health_service_is_asked_for_the_named_service() {
    let (address, asked) = server(Some(|| answer(&[0, 0, 0, 0, 2, 8, 1], "0", ""))).await;
    assert_eq!(ask(address, "db", PATIENT).await, ProbeResult::Success);
    let asked = asked.lock().unwrap();
    let (headers, message) = &asked[0];
    assert_eq!(headers["user-agent"], "kube-probe/1.35");
    assert_eq!(headers["content-type"], "application/grpc");
    assert_eq!(message[..], [0, 0, 0, 0, 4, 0x0a, 2, b'd', b'b']);
}

#[tokio::test]
async fn lc_245_what_is_not_serving_fails() {
    let (address, _) = server(Some(|| answer(&[0, 0, 0, 0, 2, 8, 2], "0", ""))).await;
    let wanted = "service unhealthy (responded with \"NOT_SERVING\")";
    assert_eq!(ask(address, "", PATIENT).await, failure(wanted));
    let (address, _) = server(Some(|| answer(&[], "5", "unknown service"))).await;
    let wanted = "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service";
    assert_eq!(ask(address, "", PATIENT).await, failure(wanted));
    let (address, _) = server(Some(|| answer(&[], "12", "unknown service grpc.health.v1.Health"))).await;
    let wanted = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): \
                  unknown service grpc.health.v1.Health";
    assert_eq!(ask(address, "", PATIENT).await, failure(wanted));
}

#[tokio::test]
async fn lc_245_a_server_that_does_not_answer_times_out() {
    let (address, asked) = server(None).await;
    assert_eq!(ask(address, "", BRIEF).await, failure("timeout: health rpc did not complete within 1s"));
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn lc_245_a_server_that_is_not_there_or_not_one_cannot_be_connected() {
    let wanted = |address: SocketAddr| {
        failure(format!("timeout: failed to connect service \"{address}\" within 1s: context deadline exceeded"))
    };
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_eq!(ask(closed, "", BRIEF).await, wanted(closed));
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = mute.local_addr().unwrap();
    assert_eq!(ask(address, "", BRIEF).await, wanted(address));
    let http1 = crate::probe::tests::Peer::answering(&["HTTP/1.1 200 OK\r\n\r\n"]).await;
    assert_eq!(ask(http1.address, "", BRIEF).await, wanted(http1.address));
}
