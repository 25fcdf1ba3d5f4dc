//! Answers: bodies, headers, and the JSON forms every handler shares.

use std::convert::Infallible;
use std::future::Future;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::Stream;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, BodyExt, Full, StreamBody};
use hyper::body::Frame;
use objects::Kind;
use objects::wire::Messages;
use serde_json::Value;

use crate::error::ApiError;
use crate::negotiate;

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) type Answer = Result<Response<Body>, ApiError>;

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// A body that flushes every item on its own.
pub(crate) fn stream(items: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    StreamBody::new(items.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync()
}

/// A stream that ends when something has happened.
pub(crate) fn until(body: Body, end: impl Future<Output = ()> + Send + 'static) -> Body {
    let data = BodyDataStream::new(body).filter_map(|data| std::future::ready(data.ok()));
    stream(data.take_until(Box::pin(end)))
}

pub(crate) fn json_bytes(code: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    with_type(code, "application/json", full(bytes))
}

pub(crate) fn json(code: StatusCode, value: &Value) -> Response<Body> {
    json_bytes(code, objects::text::to_json(value).expect("a JSON value always serialises"))
}

pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = with_type(code, "text/plain; charset=utf-8", full(text));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(crate) fn with_type(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The answer to a refused request.
pub(crate) fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = match error {
        ApiError::NoSuchPage | ApiError::Overloaded => text(error.code(), format!("{error}\n")),
        error => json(error.code(), &error.status()),
    };
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// What every answer has.
pub(crate) fn add_headers(headers: &mut HeaderMap, audit_id: Option<HeaderValue>) {
    // What one caller may see is not for a cache that others share (API-002).
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if let Some(id) = audit_id {
        headers.insert(AUDIT_ID, id);
    }
}

/// API-342: one header per distinct text.
pub(crate) fn add_warnings(headers: &mut HeaderMap, warnings: &[String]) {
    let mut told: Vec<&str> = Vec::new();
    for warning in warnings.iter().take(WARNINGS_MAX) {
        if told.contains(&warning.as_str()) {
            continue;
        }
        told.push(warning);
        let cut: String = warning.chars().take(WARNING_CHARS_MAX).collect();
        let quoted = cut.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(header::WARNING, value);
        }
    }
}

/// API-343: what is said with every use of a kind that is on its way out.
pub(crate) fn deprecation(kind: &Kind) -> Option<String> {
    let text = match (kind.group, kind.kind) {
        ("", "Endpoints") => "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ("", "ComponentStatus") => "v1 ComponentStatus is deprecated in v1.19+",
        _ => return None,
    };
    Some(text.to_owned())
}

/// More would not fit the headers some clients accept.
const WARNINGS_MAX: usize = 100;
const WARNING_CHARS_MAX: usize = 256;

/// How an answer is to look, if not as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) style: Style,
    pub(crate) is_packed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Compact,
    Pretty,
    Yaml,
    Protobuf,
}

/// Marks an answer that is already as the client wants it.
#[derive(Debug, Clone, Copy)]
struct Dressed;

impl Manner {
    pub(crate) fn of(parts: &http::request::Parts, query: &crate::query::Query) -> Self {
        let manner = Self::wanted(&parts.headers, query);
        // What is only passed on stays as it is.
        Self { is_packed: manner.is_packed && !parts.uri.path().contains("/proxy"), ..manner }
    }

    pub(crate) fn wanted(headers: &HeaderMap, query: &crate::query::Query) -> Self {
        let style = match negotiate::wants_yaml(headers) {
            true => Style::Yaml,
            false if negotiate::wants_protobuf(headers) => Style::Protobuf,
            false if wants_pretty(headers, query) => Style::Pretty,
            false => Style::Compact,
        };
        // YAML is never packed, as before it was made in pieces.
        let is_plain = matches!(style, Style::Yaml | Style::Protobuf);
        Self { style, is_packed: negotiate::accepts_gzip(headers) && !is_plain }
    }

    /// Only JSON is ever changed.
    pub(crate) fn changes(self, response: &Response<Body>) -> bool {
        let is_large = response.body().size_hint().exact().is_some_and(|bytes| bytes > COMPRESSED_BYTES_MIN);
        let is_dressed = response.extensions().get::<Dressed>().is_some();
        is_json(response) && !is_dressed && (self.style != Style::Compact || (self.is_packed && is_large))
    }

    /// An answer in pieces that are already in this manner.
    pub(crate) fn dressed(self, pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Response<Body> {
        let content_type = match self.style {
            Style::Yaml => "application/yaml",
            Style::Compact | Style::Pretty | Style::Protobuf => "application/json",
        };
        let mut response = with_type(StatusCode::OK, content_type, stream(futures::stream::iter(pieces)));
        if self.is_packed {
            mark_packed(response.headers_mut());
        }
        response.extensions_mut().insert(Dressed);
        response
    }

    /// Streams never come here.
    pub(crate) async fn dress(self, mut response: Response<Body>, wire: Arc<Messages>) -> Response<Body> {
        response = match self.style {
            Style::Yaml => in_yaml(response).await,
            Style::Pretty => prettify(response).await,
            Style::Protobuf => in_protobuf(response, &wire).await,
            Style::Compact => response,
        };
        if self.is_packed { compress(response).await } else { response }
    }
}

fn is_json(response: &Response<Body>) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json")
}

/// API-100: people at a terminal or browser get indented JSON.
fn wants_pretty(headers: &HeaderMap, query: &crate::query::Query) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    query.flag("pretty").unwrap_or_else(|| ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name)))
}

/// Re-indents a whole JSON answer.
async fn prettify(response: Response<Body>) -> Response<Body> {
    rewrite(response, |value| serde_json::to_vec_pretty(value).ok()).await
}

/// API-093.
async fn in_yaml(response: Response<Body>) -> Response<Body> {
    let mut response = rewrite(response, |value| objects::text::to_yaml(value).ok().map(String::into_bytes)).await;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    response
}

pub(crate) const PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");

/// API-784. What is no object stays as it is: who asks for discovery gets JSON.
async fn in_protobuf(response: Response<Body>, wire: &Messages) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    let Ok(collected) = body.collect().await;
    let bytes = collected.to_bytes();
    let written = serde_json::from_slice::<Value>(&bytes).ok().and_then(|value| wire.write(&value));
    if written.is_some() {
        parts.headers.insert(header::CONTENT_TYPE, PROTOBUF);
    }
    Response::from_parts(parts, full(written.map_or(bytes, Bytes::from)))
}

async fn rewrite(response: Response<Body>, how: impl FnOnce(&Value) -> Option<Vec<u8>>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let Ok(collected) = body.collect().await;
    let bytes = collected.to_bytes();
    let written = serde_json::from_slice::<Value>(&bytes).ok().and_then(|value| how(&value));
    Response::from_parts(parts, full(written.map_or(bytes, Bytes::from)))
}

/// API-004: below this, compressing costs more than it saves.
const COMPRESSED_BYTES_MIN: u64 = 128 * 1024;

/// Compresses a large answer. Streams have no length and stay as they are.
async fn compress(response: Response<Body>) -> Response<Body> {
    let is_large = response.body().size_hint().exact().is_some_and(|bytes| bytes > COMPRESSED_BYTES_MIN);
    if !is_large || !is_json(&response) || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(collected) = body.collect().await;
    let bytes = collected.to_bytes();
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    let packed = encoder.write_all(&bytes).and_then(|()| encoder.finish()).expect("memory takes every write");
    mark_packed(&mut parts.headers);
    Response::from_parts(parts, full(packed))
}

fn mark_packed(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.remove(header::CONTENT_LENGTH);
}
