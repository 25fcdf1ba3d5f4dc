//! The connection itself: one question, one answer, and how long to wait.

use std::path::PathBuf;
use std::time::Duration;

use cri::CriError;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::v1::{MESSAGE_BYTES_MAX, Rpc};

#[derive(Clone)]
pub(crate) struct Link {
    client: Grpc<Channel>,
}

/// How long an answer may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    Usual,
    Twice,
    /// As usual, after what the question itself takes.
    After(Duration),
    Never,
}

/// `runtimeRequestTimeout` of an unconfigured kubelet.
const USUAL: Duration = Duration::from_secs(120);

impl Limit {
    fn duration(self) -> Option<Duration> {
        match self {
            Limit::Usual => Some(USUAL),
            Limit::Twice => Some(2 * USUAL),
            Limit::After(time) => Some(time.saturating_add(USUAL)),
            Limit::Never => None,
        }
    }
}

impl Link {
    pub(crate) fn to(endpoint: &str) -> Result<Self, CriError> {
        let path = match endpoint.strip_prefix("unix://") {
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(endpoint),
        };
        if !path.is_absolute() {
            return Err(CriError::Invalid(format!("{endpoint:?} is no CRI socket: say unix:///run/….sock")));
        }
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        // The name is sent, and nobody reads it.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        let client = Grpc::new(channel);
        let client = client.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self { client })
    }

    pub(crate) async fn call<Q: Rpc>(&self, question: Q, limit: Limit) -> Result<Q::Answer, Status> {
        let mut client = self.client.clone();
        let answer = async move {
            client.ready().await.map_err(unreachable)?;
            let mut request = Request::new(question);
            if let Some(limit) = limit.duration() {
                request.set_timeout(limit);
            }
            let codec = ProstCodec::default();
            let answer = client.unary(request, PathAndQuery::from_static(Q::PATH), codec).await?;
            Ok(answer.into_inner())
        };
        match limit.duration() {
            None => answer.await,
            Some(limit) => tokio::time::timeout(limit, answer)
                .await
                .unwrap_or_else(|_| Err(Status::unavailable(format!("the runtime did not answer within {limit:?}")))),
        }
    }

    /// Many answers to one question.
    pub(crate) async fn subscribe<Q: Rpc>(&self, question: Q) -> Result<Streaming<Q::Answer>, Status> {
        let mut client = self.client.clone();
        client.ready().await.map_err(unreachable)?;
        let codec = ProstCodec::default();
        let path = PathAndQuery::from_static(Q::PATH);
        Ok(client.server_streaming(Request::new(question), path, codec).await?.into_inner())
    }
}

fn unreachable(error: tonic::transport::Error) -> Status {
    Status::unavailable(format!("the runtime cannot be reached: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoints_are_unix_sockets() {
        assert!(Link::to("unix:///run/containerd/containerd.sock").is_ok());
        assert!(Link::to("/run/crio/crio.sock").is_ok());
        for wrong in ["", "tcp://127.0.0.1:1", "unix://run/x", "containerd.sock"] {
            assert!(matches!(Link::to(wrong), Err(CriError::Invalid(_))), "{wrong}");
        }
    }
}
