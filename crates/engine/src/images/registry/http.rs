//! One request at a time: connections, redirects, patience.
//!
//! Invariant: what proves who we are goes to the host it is meant for and
//! nowhere else, wherever that host sends us (CVE-2020-15157 and kin).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HeaderMap, LOCATION, PROXY_AUTHORIZATION, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use tokio::time::Instant;

use super::dial::Dialer;
use super::names::Names;
use super::proxy::{Kind, Proxies};

/// How long others may keep us waiting. A separate value so that tests need
/// not wait as long.
#[derive(Debug, Clone, Copy)]
pub(in crate::images) struct Patience {
    pub(in crate::images) connect: Duration,
    /// From the request to the head of its answer.
    pub(in crate::images) answer: Duration,
    /// Until so much more of a body is here.
    pub(in crate::images) stall: Duration,
    pub(in crate::images) stall_bytes: u64,
    /// Before the second attempt; twice as long before each further one.
    pub(in crate::images) pause: Duration,
    /// The longest pause, whatever a registry asks for.
    pub(in crate::images) pause_max: Duration,
}

pub(in crate::images) const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(10),
    answer: Duration::from_secs(30),
    stall: Duration::from_secs(30),
    // A kilobyte each second: the slowest line anybody waits for.
    stall_bytes: 30 << 10,
    pause: Duration::from_millis(500),
    pause_max: Duration::from_secs(10),
};

/// Why there is no answer we can use. A variant exists where we go on differently.
#[derive(Debug, thiserror::Error)]
pub(in crate::images) enum Trouble {
    #[error("not found")]
    NotFound,
    /// The registry does not show it to us.
    #[error("access denied: {0}")]
    Denied(String),
    /// It may work later.
    #[error("{detail}")]
    Unavailable { detail: String, retry_after: Option<Duration> },
    /// It answered something it should not have.
    #[error("{0}")]
    Nonsense(String),
    /// It answered with something else than it was asked for.
    #[error("{what}: digest is {actual}, expected {expected}")]
    Mismatch { what: &'static str, expected: String, actual: String },
}

impl Trouble {
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::Unavailable { detail: detail.into(), retry_after: None }
    }

    pub(in crate::images) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

type Wire = Client<HttpsConnector<Dialer>, Full<Bytes>>;

/// Connections to one host, and to wherever it sends us.
#[derive(Clone)]
pub(super) struct Http {
    own: Wire,
    elsewhere: Wire,
    proxies: Arc<Proxies>,
    patience: Patience,
}

/// Whom to believe on the other end of a connection.
pub(super) struct Trust {
    /// The host itself.
    pub(super) own: ClientConfig,
    /// Hosts it sends us to.
    pub(super) elsewhere: ClientConfig,
    /// Those who connect us with either.
    pub(super) proxy: ClientConfig,
}

/// What is asked for; the same wherever the question ends up.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// For every host.
    pub(super) headers: HeaderMap,
    /// For the first host only.
    pub(super) private: HeaderMap,
    pub(super) body: Bytes,
}

impl Question {
    pub(super) fn new(method: Method, uri: Uri) -> Self {
        let (headers, private) = (HeaderMap::new(), HeaderMap::new());
        Self { method, uri, headers, private, body: Bytes::new() }
    }
}

impl Http {
    pub(super) fn new(trust: Trust, proxies: Arc<Proxies>, patience: Patience, names: Names) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(names);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(patience.connect));
        let dialer = Dialer::new(tcp, trust.proxy, proxies.clone());
        Self { own: wire(trust.own, dialer.clone()), elsewhere: wire(trust.elsewhere, dialer), proxies, patience }
    }

    /// Asks, and follows redirects. The answer may have any other status.
    pub(super) async fn ask(&self, question: Question) -> Result<Response<Incoming>, Trouble> {
        let home = question.uri.clone();
        let mut at = home.clone();
        for _ in 0..=REDIRECTS_MAX {
            let is_home = is_same_origin(&home, &at);
            let answer = self.send(&question, &at, is_home).await?;
            match answer.status() {
                // Not the host our credentials are for: its question is not
                // answered, and its token server is not asked.
                StatusCode::UNAUTHORIZED if !is_home => return Err(trouble(&answer, &at)),
                status if !is_redirect(status) => return Ok(answer),
                _ => {}
            }
            at = redirect_target(&at, answer.headers())?;
        }
        Err(Trouble::Nonsense(format!("{}: too many redirects", plain(&home))))
    }

    /// As `ask`, without going anywhere else.
    pub(super) async fn ask_directly(&self, question: Question, is_home: bool) -> Result<Response<Incoming>, Trouble> {
        let at = question.uri.clone();
        let wire = if is_home { &self.own } else { &self.elsewhere };
        self.send_over(wire, &question, &at, true).await
    }

    async fn send(&self, question: &Question, at: &Uri, is_home: bool) -> Result<Response<Incoming>, Trouble> {
        self.send_over(if is_home { &self.own } else { &self.elsewhere }, question, at, is_home).await
    }

    async fn send_over(
        &self,
        wire: &Wire,
        question: &Question,
        at: &Uri,
        with_private: bool,
    ) -> Result<Response<Incoming>, Trouble> {
        let failed = |detail: String| {
            let method = &question.method;
            Trouble::unavailable(format!("failed to do request: {method} {:?}: {detail}", plain(at)))
        };
        let mut request = Request::new(Full::new(question.body.clone()));
        *request.method_mut() = question.method.clone();
        *request.uri_mut() = at.clone();
        let private = with_private.then_some(&question.private).into_iter().flatten();
        for (name, value) in question.headers.iter().chain(private) {
            request.headers_mut().append(name.clone(), value.clone());
        }
        request.headers_mut().insert(USER_AGENT, AGENT.parse().map_err(|_| failed("own name".into()))?);
        // In a tunnel the proxy is told when it is made, and nobody else is.
        if at.scheme_str() == Some("http")
            && let Ok(Some(proxy)) = self.proxies.of(at)
            && let Some(authorization) = proxy.authorization().filter(|_| proxy.kind == Kind::Http)
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization);
        }
        match tokio::time::timeout(self.patience.answer, wire.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(err)) => Err(failed(innermost(&err))),
            Err(_) => Err(failed(format!("no answer within {:?}", self.patience.answer))),
        }
    }

    /// The whole body, if it is not longer than `bytes_max`.
    pub(super) async fn read(&self, answer: Response<Incoming>, bytes_max: u64) -> Result<Bytes, Trouble> {
        let mut body = self.flow(answer.into_body());
        let mut bytes = BytesMut::new();
        while let Some(piece) = body.next().await? {
            if (bytes.len() + piece.len()) as u64 > bytes_max {
                return Err(Trouble::Nonsense(format!("answer is longer than {bytes_max} bytes")));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    pub(super) fn flow(&self, body: Incoming) -> Flow {
        Flow { body, patience: self.patience, due: Instant::now() + self.patience.stall, bytes: 0 }
    }
}

/// A body that has to keep coming: single bytes now and then are not enough.
pub(super) struct Flow {
    body: Incoming,
    patience: Patience,
    /// When enough must have come since enough had come last.
    due: Instant,
    bytes: u64,
}

impl Flow {
    /// `None` at the end of the body. A body that ends early is an error.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        let Patience { stall, stall_bytes, .. } = self.patience;
        loop {
            match tokio::time::timeout_at(self.due, self.body.frame()).await {
                Err(_) if self.bytes == 0 => return Err(Trouble::unavailable(format!("no data within {stall:?}"))),
                Err(_) => {
                    let bytes = self.bytes;
                    return Err(Trouble::unavailable(format!("no more than {bytes} bytes within {stall:?}")));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(err))) => {
                    return Err(Trouble::unavailable(format!("connection broke: {}", innermost(&err))));
                }
                Ok(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.bytes += data.len() as u64;
                    if self.bytes >= stall_bytes {
                        (self.due, self.bytes) = (Instant::now() + stall, 0);
                    }
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn wire(tls: ClientConfig, dialer: Dialer) -> Wire {
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    Client::builder(TokioExecutor::new()).build(connector.wrap_connector(dialer))
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

pub(super) fn redirect_target(from: &Uri, answer: &HeaderMap) -> Result<Uri, Trouble> {
    let nonsense = |detail: &str| Trouble::Nonsense(format!("{}: redirect {detail}", plain(from)));
    let location = answer.get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| nonsense("without a target"))?;
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, authority) = (from.scheme_str().unwrap_or("https"), from.authority().map_or("", |it| it.as_str()));
    let full = match location.strip_prefix("//") {
        Some(rest) => format!("{scheme}://{rest}"),
        None if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        None => location.to_owned(),
    };
    let target: Uri = full.parse().map_err(|_| nonsense("to an unreadable address"))?;
    if !has_host(&target) {
        return Err(nonsense("to nobody"));
    }
    match (from.scheme_str(), target.scheme_str()) {
        (Some("http"), Some("http" | "https")) | (_, Some("https")) => Ok(target),
        _ => Err(nonsense("away from HTTPS")),
    }
}

/// `https://:5000` is an address, of nobody.
pub(super) fn has_host(uri: &Uri) -> bool {
    uri.host().is_some_and(|host| !host.is_empty())
}

pub(super) fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let origin = |uri: &Uri| {
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
        (uri.scheme_str().map(str::to_owned), uri.host().map(str::to_ascii_lowercase), port)
    };
    origin(one) == origin(other)
}

/// For messages: a query may hold a signature that gives access.
pub(super) fn plain(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}

/// What really went wrong: the outer errors only say that something did.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Sorts an answer that is not the wanted one.
pub(super) fn trouble(answer: &Response<Incoming>, at: &Uri) -> Trouble {
    let status = answer.status();
    let detail = format!("unexpected status from {}: {status}", plain(at));
    match status.as_u16() {
        404 => Trouble::NotFound,
        401 | 403 => Trouble::Denied(format!("{}: {status}", plain(at))),
        408 | 429 | 500..=599 => Trouble::Unavailable { detail, retry_after: retry_after(answer.headers()) },
        _ => Trouble::Nonsense(detail),
    }
}

/// Seconds only; a date would need a clock, and nobody sends one.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// For `private` headers.
pub(super) fn authorization(value: &str) -> Result<HeaderMap, Trouble> {
    let mut value: http::HeaderValue =
        value.parse().map_err(|_| Trouble::Denied("credentials have characters that cannot be sent".into()))?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

const REDIRECTS_MAX: usize = 5;
const AGENT: &str = concat!("podium/", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same = |one: &str, other: &str| is_same_origin(&uri(one), &uri(other));
        assert!(same("https://a/x", "https://A:443/y?z"));
        for other in ["https://b/x", "http://a/x", "https://a:444/x", "https://a.b/x", "https://a@b/x"] {
            assert!(!same("https://a/x", other), "{other}");
        }
    }

    #[test]
    fn redirects_lead_to_somebody_and_never_out_of_tls() {
        let target = |location: &str| {
            let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
            redirect_target(&uri("https://a:444/x"), &headers).ok().map(|to| to.to_string())
        };
        assert_eq!(target("/y?z#f").as_deref(), Some("https://a:444/y?z"));
        assert_eq!(target("//b/y").as_deref(), Some("https://b/y"));
        for nowhere in ["http://a/y", "//://:5000?", "https://:5000/y", "", "#f", "y", "ftp://a/y"] {
            assert_eq!(target(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn messages_never_show_queries_and_passwords() {
        assert_eq!(plain(&uri("https://u:p@h:1/path?X-Amz-Signature=s")), "https://h:1/path");
    }
}
