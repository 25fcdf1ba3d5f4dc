//! One HTTP GET, the way probes and hooks make it (LC-225, LC-247, LC-248).
//!
//! Probes and hooks verify no certificates: they ask whether a server answers,
//! send it nothing secret, and cannot know by which name it was issued one.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::alongside;
use super::dial::{Heard, Socket, dial, plain};
use super::lookup::Resolver;
use super::trust;
use super::url::Url;

/// LC-248.
const REQUESTS_MAX: usize = 10;
/// LC-247.
pub(crate) const PROBE_BYTES_MAX: usize = 10 * 1024;
/// Status line and headers of an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct Request<'a> {
    pub(crate) url: Url,
    pub(crate) headers: &'a [(String, String)],
    /// Unless the headers name one.
    pub(crate) user_agent: &'a str,
    pub(crate) deadline: Option<Instant>,
    /// No more is read.
    pub(crate) body_bytes_max: usize,
    pub(crate) tls: Tls,
    /// On whose behalf names are looked up.
    pub(crate) names: Resolver<'a>,
}

/// Who is believed to be the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tls {
    Anyone,
    /// Whom the machine's authorities vouch for.
    Verified,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// As far as was asked for, or why it could not be read.
    pub(crate) body: Result<Vec<u8>, String>,
}

/// No answer; the text is that of Go's client: `Get "http://…": EOF`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GetError {
    /// A request over TLS got an answer in plain HTTP.
    PlainHttp(String),
    Failed(String),
}

/// Follows redirects to the host it began with; any other answer is the result.
pub(crate) async fn get(request: Request<'_>) -> Result<Answer, GetError> {
    let mut url = request.url.clone();
    let mut last = url.to_string();
    let mut host = header(request.headers, "host").filter(|host| !host.is_empty());
    for _ in 0..REQUESTS_MAX {
        let failed = |error: Failure| error.of(&url);
        let headers = headers(&request, host.unwrap_or(&url.authority())).map_err(Failure::Text).map_err(failed)?;
        let location = match exchange(&request, &url, headers).await.map_err(failed)? {
            Reply::Answer(answer) => return Ok(answer),
            Reply::Redirect(location) => location,
        };
        let unusable = |error| format!("failed to parse Location header {location:?}: {error}");
        let (next, names_host) = url.follow(&location).map_err(unusable).map_err(Failure::Text).map_err(failed)?;
        host = host.filter(|_| !names_host);
        url = next;
        last = location;
    }
    Err(GetError::Failed(format!("Get {last:?}: stopped after {REQUESTS_MAX} redirects")))
}

enum Failure {
    PlainHttp,
    Text(String),
}

impl Failure {
    fn of(self, url: &Url) -> GetError {
        let url = url.to_string();
        match self {
            Self::PlainHttp => {
                GetError::PlainHttp(format!("Get {url:?}: http: server gave HTTP response to HTTPS client"))
            }
            Self::Text(text) => GetError::Failed(format!("Get {url:?}: {text}")),
        }
    }
}

enum Reply {
    Answer(Answer),
    /// To be followed; the value of `Location`.
    Redirect(String),
}

async fn exchange(request: &Request<'_>, url: &Url, headers: HeaderMap) -> Result<Reply, Failure> {
    let opened = within(request.deadline, open(url, request)).await.unwrap_or_else(|| Err(Failure::Text(too_slow())));
    let (stream, ends) = opened?;
    let mut client = hyper::client::conn::http1::Builder::new();
    client.title_case_headers(true).max_buf_size(HEAD_BYTES_MAX);
    let broken = |error: hyper::Error| Failure::Text(worded(&error, &ends));
    let (mut sender, connection) = client.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let mut message = http::Request::new(Empty::<Bytes>::new());
    *message.uri_mut() =
        url.target().parse().map_err(|error: http::uri::InvalidUri| Failure::Text(error.to_string()))?;
    *message.headers_mut() = headers;
    let talk = async {
        let answered = within(request.deadline, sender.send_request(message)).await;
        let response = answered.ok_or_else(|| Failure::Text(too_slow()))?.map_err(broken)?;
        if let Some(location) = redirect(&response).filter(|to| may_follow(&request.url, url, to)) {
            return Ok(Reply::Redirect(location));
        }
        let status = response.status().as_u16();
        let body =
            within(request.deadline, body(response.into_body(), request.body_bytes_max)).await.unwrap_or_else(|| {
                Err("context deadline exceeded (Client.Timeout or context cancellation while reading body)".to_owned())
            });
        Ok(Reply::Answer(Answer { status, body }))
    };
    alongside(talk, connection).await
}

fn too_slow() -> String {
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned()
}

async fn within<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The connection and, for messages, its two ends.
async fn open(url: &Url, request: &Request<'_>) -> Result<(Box<dyn Stream>, String), Failure> {
    let socket = dial(request.names, &url.host, url.port()).await.map_err(Failure::Text)?;
    let ends = socket.ends();
    if !url.is_https {
        return Ok((Box::new(socket), ends));
    }
    let heard = socket.heard();
    match secure(&url.host, socket, request.tls).await {
        Ok(stream) => Ok((stream, ends)),
        Err(_) if heard.is_plain_http() => Err(Failure::PlainHttp),
        Err(error) => Err(Failure::Text(worded_tls(&error, &ends, &heard))),
    }
}

async fn secure(host: &str, socket: Socket, tls: Tls) -> io::Result<Box<dyn Stream>> {
    static ANYONE: LazyLock<Arc<rustls::ClientConfig>> = LazyLock::new(trust::anyone);
    static VERIFIED: LazyLock<Arc<rustls::ClientConfig>> = LazyLock::new(trust::verified);
    let config = match tls {
        Tls::Anyone => ANYONE.clone(),
        Tls::Verified => VERIFIED.clone(),
    };
    let name = rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    Ok(Box::new(trust::Lenient(TlsConnector::from(config).connect(name, socket).await?)))
}

fn redirect(response: &Response<Incoming>) -> Option<String> {
    let location =
        response.headers().get(LOCATION).filter(|_| matches!(response.status().as_u16(), 301..=303 | 307 | 308));
    location.map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned()).filter(|to| !to.is_empty())
}

/// Only to the host name of the first request. What cannot be read is followed
/// too: it fails then, and says why.
fn may_follow(first: &Url, here: &Url, location: &str) -> bool {
    here.follow(location).map_or(true, |(next, _)| next.host.eq_ignore_ascii_case(&first.host))
}

async fn body(mut body: Incoming, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match worded(&error, "").as_str() {
            "EOF" => "unexpected EOF".to_owned(),
            other => other.to_owned(),
        })?;
        if let Ok(data) = frame.into_data() {
            let room = bytes_max - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
        }
        if read.len() == bytes_max {
            break;
        }
    }
    Ok(read)
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Headers that describe the message; they are ours to say.
const NOT_FOR_USERS: [&str; 5] = ["host", "content-length", "transfer-encoding", "trailer", "connection"];

/// LC-247.
fn headers(request: &Request<'_>, host: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in request.headers {
        if NOT_FOR_USERS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            continue;
        }
        let invalid_name = |_| format!("net/http: invalid header field name {name:?}");
        let invalid_value = |_| format!("net/http: invalid header field value for {name:?}");
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(invalid_name)?;
        headers.append(key, HeaderValue::from_str(value).map_err(invalid_value)?);
    }
    for (name, default) in [(ACCEPT, "*/*"), (USER_AGENT, request.user_agent)] {
        match headers.get(&name).map(HeaderValue::is_empty) {
            Some(true) => drop(headers.remove(&name)),
            Some(false) => {}
            None => {
                let value = HeaderValue::from_str(default).map_err(|_| "net/http: invalid user agent".to_owned())?;
                headers.insert(name, value);
            }
        }
    }
    headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| "http: invalid Host header".to_owned())?);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

/// In the words of Go's client.
fn worded(error: &hyper::Error, ends: &str) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    if error.is_parse_too_large() {
        return format!("net/http: server response headers exceeded {HEAD_BYTES_MAX} bytes; aborted");
    }
    if error.is_parse() {
        return "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned();
    }
    match error.source().and_then(|cause| cause.downcast_ref::<io::Error>()) {
        Some(cause) => worded_io(cause, ends),
        None => error.to_string(),
    }
}

fn worded_io(error: &io::Error, ends: &str) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::BrokenPipe => format!("write tcp {ends}: write: {}", plain(error)),
        _ => format!("read tcp {ends}: read: {}", plain(error)),
    }
}

fn worded_tls(error: &io::Error, ends: &str, heard: &Heard) -> String {
    match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {}", words(&format!("{alert:?}"))),
        Some(_) if !heard.is_tls() => "tls: first record does not look like a TLS handshake".to_owned(),
        Some(error) => format!("tls: {error}"),
        None => worded_io(error, ends),
    }
}

/// `HandshakeFailure` → `handshake failure`
fn words(name: &str) -> String {
    let spaced = name.chars().enumerate().flat_map(|(at, letter)| {
        let gap = (at > 0 && letter.is_uppercase()).then_some(' ');
        gap.into_iter().chain(letter.to_lowercase())
    });
    spaced.collect()
}
