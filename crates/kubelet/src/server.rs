//! The kubelet's own HTTPS server (API-690 to API-697): who asks, and which
//! module answers.
//!
//! Every request needs a client certificate of the cluster's CA or a token, and
//! the API server's word that its bearer may (`caller`).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ambient::Timestamp;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use listener::Peer;
use objects::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::config::Config;
use crate::ctx::Ctx;
use crate::meter;
use caller::{Caller, Doorkeeper};
use known::Found;
pub(crate) use known::Pods;
pub(crate) use sessions::Sessions;

mod caller;
mod container_logs;
mod exposition;
mod health;
mod known;
mod metrics;
mod sessions;
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
type Failure = Box<dyn std::error::Error + Send + Sync>;

const CONNECTIONS_MAX: usize = 1000;

/// Never returns.
pub(crate) async fn serve(ctx: Arc<Ctx>, pods: Pods, listener: Listener) {
    let starts = meter::follow_starts(&ctx, pods.cache.subscribe());
    tokio::join!(accept(ctx.clone(), pods.clone(), listener), starts);
}

async fn accept(ctx: Arc<Ctx>, pods: Pods, listener: Listener) {
    let door = Arc::new(Doorkeeper::default());
    let limits = listener::Limits { connections: CONNECTIONS_MAX, ..listener::Limits::default() };
    let panics = ctx.panics.clone();
    let make = move |peer: Peer| {
        let who = Caller::of(&peer.certificates);
        let (ctx, pods, door) = (ctx.clone(), pods.clone(), door.clone());
        move |request| {
            let (ctx, pods, door, who) = (ctx.clone(), pods.clone(), door.clone(), who.clone());
            let connection = peer.connection.clone();
            async move {
                let answer = admit(&ctx, &pods, &door, who, connection, request);
                ctx.panics.caught("request", answer).await.unwrap_or_else(|| {
                    text(StatusCode::INTERNAL_SERVER_ERROR, "this request caused a panic, look in the logs".to_owned())
                })
            }
        }
    };
    listener::serve(listener.tcp, listener.tls, limits, panics, std::future::pending(), make).await;
}

async fn admit(
    ctx: &Arc<Ctx>,
    pods: &Pods,
    door: &Doorkeeper,
    who: Option<(Caller, Timestamp)>,
    connection: listener::Connection,
    request: Request<Incoming>,
) -> Response<Body> {
    // TLS looked once, when the connection was made.
    if who.as_ref().is_some_and(|(_, expires)| *expires < ctx.clock.now().wall) {
        connection.end();
        return text(StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
    }
    let who = who.as_ref().map(|(caller, _)| caller);
    let path = request.uri().path().trim_matches('/');
    let asked = (request.method(), path, request.headers());
    if let Some(refused) = door.refusal(ctx, who, asked).await {
        return refused;
    }
    connection.is_of(who.map_or("a bearer of a token", Caller::user));
    answer(ctx, pods, request).await
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
        ["metrics"] => metrics::own(ctx, &pods.cache.snapshot()).await,
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

/// API-690: nothing rather than half of it.
fn list(pods: &Pods) -> Response<Body> {
    if !pods.sight.borrow().is_complete {
        return text(StatusCode::SERVICE_UNAVAILABLE, "pod sources are not known yet".to_owned());
    }
    let items: Vec<_> = pods.cache.snapshot();
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
