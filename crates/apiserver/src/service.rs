//! The server as a `tower::Service`: what in-process clients and connections
//! both call.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;

use crate::answer::Body;
use crate::api::{Api, BodyError, BoxError};
use crate::origin::Origin;

/// Answers requests of one caller. Cheap to clone.
///
/// `kube::Client::new(api.service(identity), "default")` is a client without
/// a socket.
#[derive(Clone)]
pub struct Service {
    pub(crate) api: Arc<Api>,
    pub(crate) from: Origin,
    pub(crate) agent: Option<&'static str>,
}

impl Service {
    /// Names the program that calls, which owns the fields it writes (API-339).
    pub fn known_as(self, agent: &'static str) -> Self {
        Self { agent: Some(agent), ..self }
    }

    pub(crate) async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Self { api, from, agent } = self;
        let (mut parts, body) = request.into_parts();
        if let Some(agent) = agent {
            parts.headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(agent));
        }
        let body = body.map_err(|error| BodyError(error.into())).boxed_unsync();
        api.handle(&from, parts, body).await
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answer = self.clone().answer(request);
        Box::pin(async move { Ok(answer.await) })
    }
}
