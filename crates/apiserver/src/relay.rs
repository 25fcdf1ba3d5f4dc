//! HTTP to node agents, and to pods and nodes on behalf of clients.

use std::time::Duration;

use http::{Request, Response, StatusCode, request};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;

use crate::api::RequestBody;
use crate::error::ApiError;

pub(crate) struct Relay {
    /// For node agents; absent where no trust was configured.
    agents: Option<Client<HttpsConnector<HttpConnector>, RequestBody>>,
    plain: Client<HttpConnector, RequestBody>,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Relay {
    pub(crate) fn new(tls: Option<rustls::ClientConfig>) -> Self {
        let agents = tls.map(|tls| {
            let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
            client(builder.enable_http1().wrap_connector(connector()))
        });
        Self { agents, plain: client(connector()) }
    }

    /// The agent's answer, whatever it is; its connection can be upgraded.
    pub(crate) async fn send(&self, request: request::Builder) -> Result<Response<Incoming>, ApiError> {
        let empty = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let request = request.body(empty).map_err(|error| ApiError::Internal(error.to_string()))?;
        let is_plain = request.method() == http::Method::GET && !request.headers().contains_key(http::header::UPGRADE);
        let uri = request.uri().clone();
        self.agents()?.request(request).await.map_err(|error| {
            let cause = cause(&error);
            // Upstream's words: `Get "https://…": dial tcp …`.
            unavailable(match is_plain {
                true => format!("Get \"{uri}\": {cause}"),
                false => format!("error dialing backend: {cause}"),
            })
        })
    }

    /// A client's request as it is, to an agent or, by plain HTTP, to whoever
    /// listens there.
    pub(crate) async fn pass(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, ApiError> {
        let answer = match request.uri().scheme_str() {
            Some("https") => self.agents()?.request(request).await,
            _ => self.plain.request(request).await,
        };
        answer.map_err(|error| ApiError::Node {
            code: StatusCode::SERVICE_UNAVAILABLE,
            detail: format!("error trying to reach service: {}", cause(&error)),
        })
    }

    fn agents(&self) -> Result<&Client<HttpsConnector<HttpConnector>, RequestBody>, ApiError> {
        self.agents.as_ref().ok_or_else(|| unavailable("no trust for node agents is configured".to_owned()))
    }
}

fn connector() -> HttpConnector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    http
}

/// No connection is kept: one that the other side has just closed would fail
/// a request that cannot be sent twice.
fn client<C: Connect + Clone + Send + Sync + 'static>(connector: C) -> Client<C, RequestBody> {
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}

fn unavailable(detail: String) -> ApiError {
    ApiError::Node { code: StatusCode::INTERNAL_SERVER_ERROR, detail }
}

fn cause(error: &Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
