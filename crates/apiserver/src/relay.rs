//! HTTPS to the node agents, for what only they can answer.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, request};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::error::ApiError;

/// A client for node agents; absent where no trust was configured.
pub(crate) struct Relay(Option<Client<HttpsConnector<HttpConnector>, Empty<Bytes>>>);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Relay {
    pub(crate) fn new(tls: Option<rustls::ClientConfig>) -> Self {
        Self(tls.map(|tls| {
            let mut http = HttpConnector::new();
            http.enforce_http(false);
            http.set_nodelay(true);
            http.set_connect_timeout(Some(CONNECT_TIMEOUT));
            let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
            // None is kept: a connection that the agent has just closed would
            // fail a request that cannot be sent twice.
            Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(builder.enable_http1().wrap_connector(http))
        }))
    }

    /// The agent's answer, whatever it is; its connection can be upgraded.
    pub(crate) async fn send(&self, request: request::Builder) -> Result<Response<Incoming>, ApiError> {
        let unavailable = |detail: String| ApiError::Node { code: StatusCode::INTERNAL_SERVER_ERROR, detail };
        let client = self.0.as_ref().ok_or_else(|| unavailable("no trust for node agents is configured".into()))?;
        let request = request.body(Empty::new()).map_err(|error| ApiError::Internal(error.to_string()))?;
        let is_plain = request.method() == http::Method::GET && !request.headers().contains_key(http::header::UPGRADE);
        let uri = request.uri().clone();
        client.request(request).await.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            // Upstream's words: `Get "https://…": dial tcp …`.
            unavailable(match is_plain {
                true => format!("Get \"{uri}\": {cause}"),
                false => format!("error dialing backend: {cause}"),
            })
        })
    }
}
