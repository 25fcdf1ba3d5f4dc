//! The socket: TLS, HTTP/1.1 and HTTP/2, client certificates (API-001).

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::api::{Api, Origin, closed};
use crate::auth::Identity;
use crate::service::Service;

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 4096;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
/// Tokens and the groups of impersonated users take space.
const HEADERS_BYTES_MAX: u32 = 1 << 20;
/// After the end was announced, requests under way get this long.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
/// Writes that have begun get this long.
const WRITES_TIMEOUT: Duration = Duration::from_secs(10);
/// After so long without a sign of life a connection ends.
const VANISHED_AFTER: Duration = Duration::from_secs(60);
/// One connection may carry hundreds of watches (API-001).
const STREAMS_PER_CONNECTION_MAX: u32 = 1000;

pub(crate) async fn serve(
    api: Arc<Api>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(with_alpn(tls));
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                let (api, acceptor) = (Arc::clone(&api), acceptor.clone());
                tokio::spawn(async move {
                    connection(api, acceptor, socket, peer.ip()).await;
                    drop(place);
                });
            }
            // Out of descriptors, or the peer was gone already: go on, but
            // not in a busy loop.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    api.closing.send_replace(true);
    let everyone = u32::try_from(CONNECTIONS_MAX).expect("a small constant");
    let _ = tokio::time::timeout(FAREWELL_TIMEOUT, places.acquire_many(everyone)).await;
    api.workers.rest(WRITES_TIMEOUT).await;
    Ok(())
}

/// Clients choose HTTP/2 by ALPN; without it they speak HTTP/1.1.
fn with_alpn(tls: Arc<rustls::ServerConfig>) -> Arc<rustls::ServerConfig> {
    if !tls.alpn_protocols.is_empty() {
        return tls;
    }
    let mut tls = rustls::ServerConfig::clone(&tls);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(tls)
}

/// Who vanished without a word, or takes nothing any more, does not keep its
/// place for ever: the kernel asks now and then and gives up.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    // Watch events are small and must not wait for more.
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, VANISHED_AFTER / 2)?;
    sockopt::set_tcp_keepintvl(socket, VANISHED_AFTER / 6)?;
    sockopt::set_tcp_user_timeout(socket, u32::try_from(VANISHED_AFTER.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

async fn connection(api: Arc<Api>, acceptor: TlsAcceptor, socket: TcpStream, peer: IpAddr) {
    if let Err(error) = prepare(&socket) {
        tracing::debug!(%error, "the options of a connection could not be set");
    }
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let certificates = stream.get_ref().1.peer_certificates();
    // The TLS configuration has verified the certificate against the CA.
    let identity = certificates.and_then(|list| list.first()).and_then(|leaf| Identity::from_certificate(leaf));
    let mut closing = api.closing.subscribe();
    let from = Origin { identity: identity.map(Arc::new), address: Some(peer) };
    let service = Service { api, from, agent: None };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX);
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut served = std::pin::pin!(served);
    let result = tokio::select! {
        biased;
        result = served.as_mut() => result,
        () = closed(&mut closing) => {
            served.as_mut().graceful_shutdown();
            tokio::time::timeout(FAREWELL_TIMEOUT, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn api_001_who_vanishes_without_a_word_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let client = TcpStream::connect(listener.local_addr().expect("bound"));
        let (socket, _) = tokio::join!(listener.accept(), client).0.expect("connected");
        prepare(&socket).expect("options of Linux");
        assert!(socket.nodelay().expect("readable"));
        assert!(sockopt::socket_keepalive(&socket).expect("readable"));
        assert_eq!(sockopt::tcp_keepidle(&socket), Ok(Duration::from_secs(30)));
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(60_000));
    }
}
