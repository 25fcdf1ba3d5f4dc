//! The kubelet's own HTTPS server: logs, health, pods (API-690 to API-697).
//!
//! Every request needs a client certificate of the cluster's CA that belongs
//! to the API server or an administrator.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Cache;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use objects::api::core::v1::{ContainerStatus, Pod};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

use crate::container::log_path;
use crate::ctx::Ctx;
use crate::follow::{self, Source};
use crate::logs::Options;
use crate::observe::PodRef;
use crate::sandbox;

/// Where to serve. `tls` must demand client certificates of the cluster's CA.
pub struct Listener {
    pub tcp: TcpListener,
    pub tls: Arc<rustls::ServerConfig>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Pods = Arc<Cache<Pod>>;

const CONNECTIONS_MAX: usize = 1000;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Chunks a slow reader may be behind.
const LOG_CHUNKS_MAX: usize = 16;
/// API-697: who may ask.
const ALLOWED_USER: &str = "kube-apiserver-kubelet-client";
const ALLOWED_GROUP: &str = "system:masters";

pub(crate) async fn serve(ctx: Arc<Ctx>, pods: Pods, listener: Listener) {
    let acceptor = TlsAcceptor::from(listener.tls);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
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
        let (ctx, pods, acceptor) = (ctx.clone(), pods.clone(), acceptor.clone());
        connections.spawn(async move {
            if let Err(error) = talk(ctx, pods, acceptor, stream).await {
                tracing::debug!(%error, "kubelet connection ended");
            }
            drop(place);
        });
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn talk(ctx: Arc<Ctx>, pods: Pods, acceptor: TlsAcceptor, stream: TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let who = Caller::of(stream.get_ref().1.peer_certificates());
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (ctx, pods, who) = (ctx.clone(), pods.clone(), who.clone());
        async move { Ok::<_, Infallible>(answer(&ctx, &pods, &who, &request).await) }
    });
    let mut server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    server.http2().timer(TokioTimer::new());
    server.serve_connection(TokioIo::new(stream), service).await
}

/// Who a client certificate says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Caller {
    Nobody,
    Somebody { user: String, is_allowed: bool },
}

impl Caller {
    fn of(certificates: Option<&[rustls::pki_types::CertificateDer<'_>]>) -> Self {
        let parsed =
            certificates.and_then(<[_]>::first).map(|certificate| x509_parser::parse_x509_certificate(certificate));
        let Some(Ok((_, certificate))) = parsed else { return Self::Nobody };
        let subject = certificate.subject();
        let text =
            |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        let user = subject.iter_common_name().find_map(text).unwrap_or_default();
        let is_admin = subject.iter_organization().filter_map(text).any(|group| group == ALLOWED_GROUP);
        let is_allowed = user == ALLOWED_USER || is_admin;
        Self::Somebody { user, is_allowed }
    }
}

async fn answer(ctx: &Arc<Ctx>, pods: &Pods, who: &Caller, request: &Request<Incoming>) -> Response<Body> {
    match who {
        Caller::Nobody => return text(StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()),
        Caller::Somebody { user, is_allowed: false } => {
            let verb = request.method().as_str().to_lowercase();
            let message = format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[proxy])");
            return text(StatusCode::FORBIDDEN, message);
        }
        Caller::Somebody { .. } => {}
    }
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed".to_owned());
    }
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let query = request.uri().query().unwrap_or_default();
    match path.as_slice() {
        ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] => text(StatusCode::OK, "ok".to_owned()),
        ["pods"] => list(pods),
        ["containerLogs", namespace, pod, container] => match Wanted::parse(query, ctx.clock.now().wall) {
            Ok(wanted) => container_logs(ctx, pods, [namespace, pod, container], wanted).await,
            Err(message) => text(StatusCode::BAD_REQUEST, message),
        },
        _ => text(StatusCode::NOT_FOUND, "404 page not found".to_owned()),
    }
}

/// API-690.
fn list(pods: &Pods) -> Response<Body> {
    let items: Vec<_> = pods.snapshot();
    let items: Vec<&Pod> = items.iter().map(AsRef::as_ref).collect();
    let body = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    let mut response = text(StatusCode::OK, body.to_string());
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

/// API-691.
async fn container_logs(ctx: &Arc<Ctx>, pods: &Pods, place: [&str; 3], wanted: Wanted) -> Response<Body> {
    let [namespace, name, container] = place;
    let Some(pod) = pods.get(namespace, name) else {
        return text(StatusCode::NOT_FOUND, format!("pod \"{name}\" does not exist"));
    };
    let shown = match instance(&pod, container, wanted.is_previous) {
        Ok(shown) => shown,
        Err(message) => return text(StatusCode::BAD_REQUEST, message),
    };
    let id = ctx.runtime_id(&shown);
    let meta = sandbox::meta_of(&pod, 0);
    let who = PodRef { namespace: meta.namespace, name: meta.name, uid: meta.uid };
    let containers = ctx.runtime.containers(Some(&who.uid)).await.unwrap_or_default();
    let Some(found) = containers.into_iter().find(|candidate| candidate.id == id) else {
        return text(StatusCode::BAD_REQUEST, format!("container \"{container}\" in pod \"{name}\" is terminated"));
    };
    let directory = ctx.config.pod_log_dir(&who.namespace, &who.name, &who.uid);
    let path = directory.join(log_path(&found.name, found.attempt));
    let (out, chunks) = mpsc::channel(LOG_CHUNKS_MAX);
    let runtime = ctx.runtime.clone();
    tokio::spawn(async move {
        let source = Source { path, container: id, pod_uid: who.uid, runtime: runtime.as_ref() };
        if let Err(error) = follow::stream(source, wanted.options, out).await {
            tracing::warn!(pod = who.name, %error, "log stream broke");
        }
    });
    streamed(chunks)
}

/// API-613: which instance's log is meant, by what the API shows.
fn instance(pod: &Pod, container: &str, is_previous: bool) -> Result<String, String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let known = statuses(pod).find(|status| status.name == container);
    let waiting = |reason: &str| format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}");
    let Some(status) = known else { return Err(waiting("ContainerCreating")) };
    let state = status.state.clone().unwrap_or_default();
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref()?.container_id.clone());
    if is_previous {
        let missing = || format!("previous terminated container \"{container}\" in pod \"{name}\" not found");
        return last.ok_or_else(missing);
    }
    if state.running.is_some() {
        return status.container_id.clone().ok_or_else(|| waiting("ContainerCreating"));
    }
    if let Some(terminated) = state.terminated {
        let gone = || format!("container \"{container}\" in pod \"{name}\" is terminated");
        return terminated.container_id.filter(|id| !id.is_empty()).or(last).ok_or_else(gone);
    }
    let reason = state.waiting.and_then(|waiting| waiting.reason).unwrap_or_default();
    let reason = match reason.as_str() {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        reason => reason,
    };
    last.ok_or_else(|| waiting(reason))
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let lists = pod.status.iter().flat_map(|status| {
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses]
    });
    lists.flat_map(|list| list.iter().flatten())
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Wanted {
    options: Options,
    is_previous: bool,
}

impl Wanted {
    fn parse(query: &str, now: ambient::Timestamp) -> Result<Self, String> {
        let mut wanted = Self::default();
        let options = &mut wanted.options;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let number = || value.parse::<usize>().map_err(|_| format!("invalid {name}: {value:?}"));
            let is_true = value.is_empty() || value == "true" || value == "1";
            match name.as_ref() {
                "follow" => options.follow = is_true,
                "previous" => wanted.is_previous = is_true,
                "timestamps" => options.timestamps = is_true,
                "tailLines" => options.tail_lines = Some(number()?),
                "limitBytes" => options.limit_bytes = Some(number()?),
                "sinceSeconds" => {
                    let seconds = i64::try_from(number()?).unwrap_or(i64::MAX);
                    options.since = now.checked_sub(jiff::SignedDuration::from_secs(seconds)).ok();
                }
                "sinceTime" => {
                    options.since = Some(value.parse().map_err(|_| format!("invalid sinceTime: {value:?}"))?);
                }
                _ => {}
            }
        }
        Ok(wanted)
    }
}

fn text(status: StatusCode, message: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(message)).boxed_unsync());
    *response.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

fn streamed(chunks: mpsc::Receiver<Bytes>) -> Response<Body> {
    let frames = futures::stream::unfold(chunks, |mut chunks| async move {
        let chunk = chunks.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), chunks))
    });
    let mut response = Response::new(http_body_util::StreamBody::new(frames).boxed_unsync());
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web"}, "status": {"containerStatuses": [status]}})).unwrap()
    }

    fn status(state: serde_json::Value, last: serde_json::Value) -> serde_json::Value {
        json!({"name": "app", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
            "containerID": "podium://now", "state": state, "lastState": last})
    }

    #[test]
    fn api_613_the_state_decides_whose_log_is_shown() {
        let dead = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
        let running = pod(status(json!({"running": {}}), dead("podium://old")));
        assert_eq!(instance(&running, "app", false), Ok("podium://now".to_owned()));
        assert_eq!(instance(&running, "app", true), Ok("podium://old".to_owned()));
        let looping = pod(status(json!({"waiting": {"reason": "CrashLoopBackOff"}}), dead("podium://old")));
        assert_eq!(instance(&looping, "app", false), Ok("podium://old".to_owned()));
        let fresh = pod(status(json!({"waiting": {"reason": "ImagePullBackOff"}}), json!({})));
        let waiting = "container \"app\" in pod \"web\" is waiting to start: trying and failing to pull image";
        assert_eq!(instance(&fresh, "app", false), Err(waiting.to_owned()));
        let missing = "previous terminated container \"app\" in pod \"web\" not found";
        assert_eq!(instance(&fresh, "app", true), Err(missing.to_owned()));
    }

    #[test]
    fn api_691_queries_are_read_strictly() {
        let now: ambient::Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let wanted = Wanted::parse("follow=true&tailLines=5&sinceSeconds=60&timestamps=false", now).unwrap();
        assert_eq!(
            wanted.options,
            Options {
                follow: true,
                tail_lines: Some(5),
                since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
                ..Options::default()
            }
        );
        assert!(Wanted::parse("tailLines=-1", now).is_err());
        assert!(Wanted::parse("sinceTime=yesterday", now).is_err());
    }
}
