//! The connections to etcd's members: one question, one answer, and whom to
//! ask when a member does not answer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::wire::{self, Rpc, WatchCreateRequest, WatchRequest, WatchResponse};

/// An answer later than this is none.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A watch says nothing while nothing changes, so a dead connection is found
/// by asking. etcd refuses to be asked more often than every five seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(6);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// One delivery of a watch may hold many values of the largest size.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

#[derive(Debug)]
pub(super) struct Link {
    members: Vec<Grpc<Channel>>,
    /// The member that answered last.
    current: AtomicUsize,
}

impl Link {
    /// Nothing is sent yet. An error names the address that can not be used.
    pub(super) fn to(addresses: &[String], tls: Option<rustls::ClientConfig>) -> Result<Self, String> {
        let tls = tls.map(|mut tls| {
            tls.alpn_protocols = vec![b"h2".to_vec()];
            TlsConnector::from(Arc::new(tls))
        });
        let members = addresses.iter().map(|address| member(address, tls.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if members.is_empty() {
            return Err("no address of etcd was given".to_owned());
        }
        Ok(Self { members, current: AtomicUsize::new(0) })
    }

    pub(super) async fn call<Q: Rpc>(&self, question: Q) -> Result<Q::Answer, Status> {
        let index = self.current.load(Ordering::Relaxed);
        let answer = self.timed(index, async |client| {
            let path = PathAndQuery::from_static(Q::PATH);
            client.unary(Request::new(question), path, ProstCodec::default()).await
        });
        answer.await.map(tonic::Response::into_inner)
    }

    /// All changes from a revision on, of all keys (`range` is a key and the
    /// first one after the last).
    pub(super) async fn watch(
        &self,
        (key, range_end): (&'static [u8], &'static [u8]),
        start_revision: i64,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let create = WatchCreateRequest { key: key.into(), range_end: range_end.into(), start_revision };
        let question = WatchRequest { create: Some(create) };
        // The asking side stays open, else etcd ends the answering one.
        let questions = futures::stream::iter([question]).chain(futures::stream::pending());
        let mut request = Request::new(questions);
        // A member cut off from the others ends the watch instead of standing still.
        request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
        let index = self.current.load(Ordering::Relaxed);
        let answers = self.timed(index, async |client| {
            client.streaming(request, PathAndQuery::from_static(wire::WATCH), ProstCodec::default()).await
        });
        answers.await.map(tonic::Response::into_inner)
    }

    async fn timed<T>(
        &self,
        index: usize,
        ask: impl AsyncFnOnce(&mut Grpc<Channel>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut client = self.members[index % self.members.len()].clone();
        let answer = async {
            client.ready().await.map_err(|error| Status::unavailable(causes(&error)))?;
            ask(&mut client).await
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
        let answer =
            answer.unwrap_or_else(|_| Err(Status::unavailable(format!("no answer within {ANSWER_TIMEOUT:?}"))));
        if answer.as_ref().is_err_and(|status| status.code() == Code::Unavailable) {
            // Somebody else may have moved on already.
            let _ = self.current.compare_exchange(index, index.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
        }
        answer
    }
}

/// An error with everything behind it: the outermost says only that the
/// transport failed.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn member(address: &str, tls: Option<&TlsConnector>) -> Result<Grpc<Channel>, String> {
    let wrong = |detail: &str| format!("{address:?} is no address of etcd: {detail}");
    let uri: Uri = address.parse().map_err(|_| wrong("say http://HOST:PORT or https://HOST:PORT"))?;
    let tls = match (uri.scheme_str(), tls) {
        (Some("http"), _) => None,
        (Some("https"), Some(tls)) => Some(tls.clone()),
        (Some("https"), None) => return Err(wrong("https needs the certificate of etcd's authority")),
        _ => return Err(wrong("say http://HOST:PORT or https://HOST:PORT")),
    };
    let host = uri.host().ok_or_else(|| wrong("it names no host"))?.to_owned();
    let port = uri.port_u16().unwrap_or(2379);
    let name =
        ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| wrong("no such host name"))?;
    let connector = tower::service_fn({
        let host = host.clone();
        move |_: Uri| dial(host.clone(), port, name.clone(), tls.clone())
    });
    // Ours is the encryption, so its own scheme is always the plain one.
    let endpoint = Endpoint::from_shared(format!("http://{host}:{port}")).map_err(|error| wrong(&error.to_string()))?;
    let channel = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect_with_connector_lazy(connector);
    let client = Grpc::new(channel);
    Ok(client.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(MESSAGE_BYTES_MAX))
}

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

async fn dial(
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: Option<TlsConnector>,
) -> io::Result<TokioIo<Box<dyn Wire>>> {
    let socket = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    socket.set_nodelay(true)?;
    let wire: Box<dyn Wire> = match tls {
        None => Box::new(socket),
        Some(tls) => Box::new(tls.connect(name, socket).await?),
    };
    Ok(TokioIo::new(wire))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_urls_and_https_needs_an_authority() {
        let to = |address: &str| Link::to(&[address.to_owned()], None).map(drop);
        assert!(to("http://127.0.0.1:2379").is_ok() && to("http://[::1]:2379").is_ok());
        for wrong in ["", "127.0.0.1:2379", "unix:///run/etcd", "https://127.0.0.1:2379"] {
            assert!(to(wrong).unwrap_err().starts_with(&format!("{wrong:?} is no address of etcd")), "{wrong}");
        }
        assert!(Link::to(&[], None).is_err());
    }
}
