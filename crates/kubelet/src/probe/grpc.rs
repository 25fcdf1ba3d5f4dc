//! `grpc`: does its health service say `SERVING`? (LC-245, LC-251)
//!
//! The protocol is one call with two fields: `grpc.health.v1.Health/Check`,
//! asked with a service name and answered with a status.

mod wire;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use lifecycle::ProbeResult;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use wire::RpcError;

use super::{USER_AGENT, printed};
use crate::outbound::{Resolver, Socket, alongside, dial, joined};

/// An answer has a few bytes; more is none.
const ANSWER_BYTES_MAX: usize = 10 * 1024;
/// What a peer may send ahead of being read.
const WINDOW_BYTES: u32 = 64 * 1024;
/// Pause between attempts to connect while there is time.
const RECONNECT: Duration = Duration::from_secs(1);

/// One deadline for everything. A server that cannot be reached is tried again
/// until then, so a refused connection is reported as a timeout.
pub(super) async fn check(names: Resolver<'_>, host: &str, port: u16, service: &str, timeout: Duration) -> ProbeResult {
    let address = joined(host, port);
    let within = printed(timeout);
    let deadline = Instant::now() + timeout;
    loop {
        if let Ok(Ok(socket)) = timeout_at(deadline, dial(names, host, port)).await {
            let heard = socket.heard();
            match timeout_at(deadline, call(socket, &address, service, timeout)).await {
                Ok(Ok(told)) => return verdict(told, &within),
                Ok(Err(error)) if heard.is_http2() => {
                    let error = RpcError { code: wire::UNAVAILABLE, message: error.to_string() };
                    return verdict(Err(error), &within);
                }
                Err(_) if heard.is_http2() => {
                    return ProbeResult::Failure(format!("timeout: health rpc did not complete within {within}"));
                }
                // Whoever it is, it has not begun to speak HTTP/2.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        if timeout_at(deadline, tokio::time::sleep(RECONNECT)).await.is_err() {
            return ProbeResult::Failure(format!(
                "timeout: failed to connect service {address:?} within {within}: context deadline exceeded"
            ));
        }
    }
}

fn verdict(told: Result<u64, RpcError>, within: &str) -> ProbeResult {
    let failure = match told {
        Ok(wire::SERVING) => return ProbeResult::Success,
        Ok(status) => format!("service unhealthy (responded with {:?})", wire::status_name(status)),
        Err(RpcError { code: wire::UNIMPLEMENTED, message }) => {
            format!("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}")
        }
        Err(RpcError { code: wire::DEADLINE_EXCEEDED, .. }) => {
            format!("timeout: health rpc did not complete within {within}")
        }
        Err(error) => format!("error: health rpc probe failed: {error}"),
    };
    ProbeResult::Failure(failure)
}

/// The outer error is the connection's, the inner one the server's.
async fn call(
    socket: Socket,
    authority: &str,
    service: &str,
    timeout: Duration,
) -> Result<Result<u64, RpcError>, hyper::Error> {
    let tasks = CancellationToken::new();
    let _ends_them = tasks.clone().drop_guard();
    let mut client = hyper::client::conn::http2::Builder::new(Tasks(tasks));
    client.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let (mut sender, connection) = client.handshake(TokioIo::new(socket)).await?;
    let request = Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", USER_AGENT)
        .header("grpc-timeout", format!("{}m", timeout.as_millis()))
        .body(Full::<Bytes>::new(wire::question(service)));
    let request = match request {
        Ok(request) => request,
        Err(error) => return Ok(Err(RpcError { code: wire::INTERNAL, message: error.to_string() })),
    };
    let talk = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        Ok(match read {
            Ok(body) => {
                let trailers = body.trailers().cloned().unwrap_or_default();
                wire::answer(head.status, &head.headers, &trailers, &body.to_bytes())
            }
            Err(error) => Err(RpcError { code: wire::INTERNAL, message: error.to_string() }),
        })
    };
    alongside(talk, connection).await
}

/// Starts what a connection needs beside itself, to end with it.
#[derive(Clone)]
struct Tasks(CancellationToken);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        let end = self.0.clone();
        tokio::spawn(async move { end.run_until_cancelled(task).await });
    }
}

#[cfg(test)]
mod tests;
