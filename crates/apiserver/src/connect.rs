//! pods/exec, pods/attach and pods/portforward (API-623 to API-625): what
//! kubectl asks becomes what the node's agent understands; then the two
//! connections are one, byte by byte.

use std::future::Future;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::answer::{self, Answer, Body};
use crate::api::{Api, Call};
use crate::endpoint::{self, Endpoint};
use crate::error::ApiError;
use crate::logs;
use crate::object;
use crate::origin::end_of;
use crate::target::ResourcePath;

/// What of the handshake goes through, either way.
const HANDSHAKE: [HeaderName; 8] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_ACCEPT,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_VERSION,
    HeaderName::from_static("x-stream-protocol-version"),
    HeaderName::from_static("x-accepted-stream-protocol-versions"),
];

/// The longest refusal taken from a node.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// On their way from one connection to the other.
const BUFFER_BYTES: usize = 32 << 10;

pub(crate) fn is_stream(path: &ResourcePath) -> bool {
    let is_pod = path.group.is_empty() && path.resource == "pods";
    is_pod && matches!(path.subresource.as_deref(), Some("exec" | "attach" | "portforward"))
}

/// API-623: what opens a connection in both directions. To read is not enough
/// for that, whatever the method says: an agent takes an upgraded GET for a
/// command to run, and a pod's server for whatever it likes.
pub(crate) fn opens(path: &ResourcePath, headers: &HeaderMap) -> bool {
    is_stream(path) || path.subresource.as_deref() == Some("proxy") && headers.contains_key(header::UPGRADE)
}

/// `verb` is the subresource.
pub(crate) async fn answer(api: &Api, call: &mut Call, verb: &str) -> Answer {
    let entry = api.store.get(&call.key()).await?.ok_or_else(|| ApiError::not_found(call.kind, call.name()))?;
    let pod = object::document(&entry);
    let (path, query) = asked(call, verb, &pod)?;
    let node = object::text(&pod, &["spec", "nodeName"]);
    if node.is_empty() {
        return Err(ApiError::BadRequest(format!("pod {} does not have a host assigned", call.name())));
    }
    let uri = Endpoint::of_agent(api, node).await?.uri(&path, Some(&query))?;
    let mut request = Request::builder().method(call.method.clone()).uri(uri);
    for name in &HANDSHAKE {
        for value in call.headers.get_all(name) {
            request = request.header(name, value);
        }
    }
    let mut response = api.relay.send(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(refused(response).await);
    }
    let Some(client) = call.upgrade.take() else {
        return Err(ApiError::BadRequest("this connection cannot be upgraded".to_owned()));
    };
    api.workers.stream(join(client, hyper::upgrade::on(&mut response), end_of(api, call)));
    Ok(pass_on(&response, Bytes::new()))
}

/// API-625: path and query as the agent spells them.
fn asked(call: &Call, verb: &str, pod: &Value) -> Result<(String, String), ApiError> {
    let (namespace, name) = (call.namespace().unwrap_or_default(), call.name());
    let mut query = form_urlencoded::Serializer::new(String::new());
    if verb == "portforward" {
        let ports: Vec<&str> = call.query.all("ports").collect();
        if !ports.is_empty() {
            query.append_pair("port", &ports.join(","));
        }
        return Ok((endpoint::path(&["portForward", namespace, name])?, query.finish()));
    }
    let container = logs::container(pod, call.query.text("container"))?;
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if call.query.is_set(ours) {
            query.append_pair(theirs, "1");
        }
    }
    if verb == "exec" {
        query.extend_pairs(call.query.all("command").map(|word| ("command", word)));
    }
    Ok((endpoint::path(&[verb, namespace, name, &container])?, query.finish()))
}

/// The agent's refusal in its own words: clients of streams show the text.
async fn refused(response: Response<Incoming>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
    let bytes = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    pass_on(&Response::from_parts(parts, ()), bytes)
}

fn pass_on<B>(from: &Response<B>, body: Bytes) -> Response<Body> {
    let mut response = Response::new(answer::full(body));
    *response.status_mut() = from.status();
    for name in HANDSHAKE.iter().chain([&header::CONTENT_TYPE]) {
        for value in from.headers().get_all(name) {
            response.headers_mut().append(name, value.clone());
        }
    }
    response
}

/// Until either side has ended, or something has happened.
pub(crate) async fn join(client: OnUpgrade, node: OnUpgrade, end: impl Future<Output = ()>) {
    let joined = async {
        let (client, node) = tokio::try_join!(client, node)?;
        let (mut client, mut node) = (TokioIo::new(client), TokioIo::new(node));
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut node, BUFFER_BYTES, BUFFER_BYTES).await?;
        Ok::<_, crate::api::BoxError>(())
    };
    tokio::select! {
        biased;
        ended = joined => if let Err(error) = ended {
            tracing::debug!(error, "a relayed stream broke");
        },
        () = end => {}
    }
}
