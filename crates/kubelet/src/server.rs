//! The kubelet's own HTTPS server (API-690 to API-697): who asks, and which
//! module answers.
//!
//! Every request needs a client certificate of the cluster's CA or a token, and
//! the API server's word that its bearer may (`caller`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Cache;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use objects::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::config::Config;
use crate::ctx::Ctx;
use crate::meter;
use caller::{Caller, Doorkeeper};

mod caller;
mod container_logs;
mod exposition;
mod health;
mod metrics;
mod streams;
mod summary;
mod usage;

/// Where to serve. `tls` must verify client certificates against the cluster's
/// CA and may let clients without one in: they need a token.
pub struct Listener {
    pub tcp: TcpListener,
    pub tls: Arc<rustls::ServerConfig>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Pods = Arc<Cache<Pod>>;

const CONNECTIONS_MAX: usize = 1000;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Never returns.
pub(crate) async fn serve(ctx: Arc<Ctx>, pods: Pods, listener: Listener) {
    let starts = meter::follow_starts(&ctx, pods.subscribe());
    tokio::join!(accept(ctx.clone(), pods.clone(), listener), starts);
}

async fn accept(ctx: Arc<Ctx>, pods: Pods, listener: Listener) {
    let acceptor = TlsAcceptor::from(listener.tls);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    let door = Arc::new(Doorkeeper::default());
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.tcp.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the kubelet server cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (ctx, pods, door, acceptor) = (ctx.clone(), pods.clone(), door.clone(), acceptor.clone());
        connections.spawn(async move {
            if let Err(error) = talk(ctx, pods, door, acceptor, stream).await {
                tracing::debug!(%error, "kubelet connection ended");
            }
            drop(place);
        });
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn talk(
    ctx: Arc<Ctx>,
    pods: Pods,
    door: Arc<Doorkeeper>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let who = Caller::of(stream.get_ref().1.peer_certificates());
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (ctx, pods, door, who) = (ctx.clone(), pods.clone(), door.clone(), who.clone());
        async move {
            let path = request.uri().path().trim_matches('/');
            let asked = (request.method(), path, request.headers());
            Ok::<_, Infallible>(match door.refusal(&ctx, who.as_ref(), asked).await {
                Some(refused) => refused,
                None => answer(&ctx, &pods, request).await,
            })
        }
    });
    let mut server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    server.http2().timer(TokioTimer::new());
    server.serve_connection_with_upgrades(TokioIo::new(stream), service).await
}

async fn answer(ctx: &Arc<Ctx>, pods: &Pods, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().trim_matches('/').to_owned();
    ctx.meter.asked(request.method().as_str(), known_first_word(&path));
    let path: Vec<&str> = path.split('/').collect();
    if let Some(wanted) = streams::Wanted::of(&path) {
        return match wanted.allows(request.method()) {
            true => streams::answer(ctx, pods, &wanted, request).await,
            false => not_allowed(),
        };
    }
    if request.method() != Method::GET {
        return not_allowed();
    }
    let query = request.uri().query().unwrap_or_default();
    match path.as_slice() {
        ["healthz", rest @ ..] if rest.len() <= 1 => {
            health::answer(ctx, rest.first().copied()).unwrap_or_else(not_found)
        }
        ["pods"] => list(pods),
        ["runningpods"] => summary::running(ctx).await.map_or_else(|error| failed(&error), |pods| json_answer(&pods)),
        ["stats", "summary"] => {
            summary::stats(ctx).await.map_or_else(|error| failed(&error), |stats| json_answer(&stats))
        }
        ["metrics"] => metrics::own(ctx, &pods.snapshot()).await,
        ["metrics", "cadvisor"] => metrics::cadvisor(ctx).await,
        ["metrics", "probes"] => metrics::probes(ctx),
        ["metrics", "resource"] => metrics::resource(ctx).await,
        ["configz"] => json_answer(&configz(&ctx.config)),
        ["containerLogs", namespace, pod, container] => {
            container_logs::answer(ctx, pods, [namespace, pod, container], query).await
        }
        _ => not_found(),
    }
}

/// API-690.
fn list(pods: &Pods) -> Response<Body> {
    let items: Vec<_> = pods.snapshot();
    let items: Vec<&Pod> = items.iter().map(AsRef::as_ref).collect();
    json_answer(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }))
}

/// API-696: what decides how this agent behaves, in the words of its configuration file.
fn configz(config: &Config) -> Value {
    let seconds = |duration: Duration| format!("{}s", duration.as_secs());
    json!({"kubeletconfig": {
        "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "port": config.port,
        "maxPods": config.capacity.pods,
        "clusterDNS": config.dns.servers,
        "podLogsDir": config.log_root,
        "nodeStatusUpdateFrequency": seconds(config.periods.node_status),
        "nodeStatusReportFrequency": seconds(config.periods.node_report),
        "nodeLeaseDurationSeconds": config.periods.lease_duration.as_secs(),
        "streamingConnectionIdleTimeout": "4h0m0s",
    }})
}

/// Everything else would let strangers make up series.
fn known_first_word(path: &str) -> &'static str {
    const KNOWN: [&str; 11] = [
        "attach",
        "configz",
        "containerLogs",
        "exec",
        "healthz",
        "metrics",
        "pods",
        "portForward",
        "run",
        "runningpods",
        "stats",
    ];
    let first = path.split('/').next().unwrap_or_default();
    KNOWN.into_iter().find(|known| *known == first).unwrap_or("other")
}

fn failed(error: &cri::CriError) -> Response<Body> {
    text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn json_answer(value: &Value) -> Response<Body> {
    typed(StatusCode::OK, "application/json", value.to_string())
}

fn text(status: StatusCode, message: String) -> Response<Body> {
    typed(status, "text/plain; charset=utf-8", message)
}

fn typed(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found".to_owned())
}

fn not_allowed() -> Response<Body> {
    text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed".to_owned())
}
