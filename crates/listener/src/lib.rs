//! Accepts connections for the HTTPS servers: nobody who is silent, slow, or
//! many keeps others out, and a new connection always finds a place.
//!
//! Never: what is asked and answered.
//!
//! Read next: `registry` (what is known of each connection, and when it ends),
//! `evict` (who goes when all places are taken).

mod body;
mod evict;
mod io;
mod registry;

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ambient::Panics;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustix::net::sockopt;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use body::Paced;
use io::Socket;
use registry::{Entry, Registry, Verdict};

/// How many, and how long.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Open at a time.
    pub connections: usize,
    /// Until TLS is agreed on.
    pub handshake: Duration,
    /// From then on, until something is asked.
    pub first_request: Duration,
    /// From the last answer to the next request.
    pub idle: Duration,
    /// Of an answer of which nothing more is taken.
    pub stalled: Duration,
    /// After the end was announced, requests under way get this long.
    pub farewell: Duration,
    /// Of one request's headers, decoded.
    pub headers_bytes: u32,
    /// Requests at a time on one HTTP/2 connection.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(30),
            // As long as Go's clients keep theirs.
            idle: Duration::from_secs(90),
            stalled: Duration::from_secs(120),
            farewell: Duration::from_secs(2),
            // Tokens and the groups of impersonated users take space.
            headers_bytes: 256 << 10,
            // One connection may carry hundreds of watches.
            streams: 1000,
        }
    }
}

/// After so long without a sign of life the kernel gives a connection up.
const VANISHED_AFTER: Duration = Duration::from_secs(60);
/// Of one HTTP/2 answer, between us and the socket.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// After an error, so that a lack of descriptors is no busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who has connected.
pub struct Peer {
    pub address: IpAddr,
    /// As TLS has verified them; empty if there are none.
    pub certificates: Vec<CertificateDer<'static>>,
    pub connection: Connection,
}

/// What a server can say about a connection. Cheap to clone.
#[derive(Clone)]
pub struct Connection(Arc<Entry>);

impl Connection {
    /// Somebody known asks over it, so it is no stranger's.
    pub fn is_of(&self, user: &str) {
        self.0.is_of(user);
    }

    /// Ends when what is under way is answered.
    pub fn end(&self) {
        self.0.ending.notify_one();
    }
}

/// What is counted when it panics.
pub const TASKS: [&str; 2] = ["connection", "http2_stream"];

/// Serves until `shutdown`, then says goodbye to everyone. `make` gives each
/// connection what answers its requests. A panic ends the connection that met
/// it, or its stream where it has several, and is counted.
pub async fn serve<M, H, F, B>(
    tcp: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    limits: Limits,
    panics: Panics,
    shutdown: impl Future<Output = ()>,
    make: M,
) where
    M: Fn(Peer) -> H,
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static,
    M: Clone + Send + 'static,
{
    TASKS.iter().for_each(|task| panics.expect(task));
    let acceptor = TlsAcceptor::from(tls);
    let registry = Registry::new(limits);
    let closing = watch::Sender::new(());
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = tcp.accept() => accepted,
        };
        match accepted {
            Ok((tcp, peer)) => {
                let Some(entry) = registry.enter(peer.ip()) else { continue };
                let socket = Socket { tcp, entry, registry: Arc::clone(&registry) };
                let (acceptor, make, closing) = (acceptor.clone(), make.clone(), closing.subscribe());
                let panics = panics.clone();
                tokio::spawn(async move {
                    let talk = connection(acceptor, socket, peer.ip(), &panics, closing, make);
                    panics.caught(TASKS[0], talk).await
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(closing);
    let _ = tokio::time::timeout(registry.limits.farewell, registry.emptied()).await;
}

/// Who vanished without a word does not keep its place for ever: the kernel
/// asks now and then and gives up.
fn prepare(socket: &TcpStream) -> std::io::Result<()> {
    // Watch events are small and must not wait for more.
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, VANISHED_AFTER / 2)?;
    sockopt::set_tcp_keepintvl(socket, VANISHED_AFTER / 6)?;
    sockopt::set_tcp_user_timeout(socket, u32::try_from(VANISHED_AFTER.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

async fn connection<M, H, F, B>(
    acceptor: TlsAcceptor,
    socket: Socket,
    address: IpAddr,
    panics: &Panics,
    closing: watch::Receiver<()>,
    make: M,
) where
    M: Fn(Peer) -> H,
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static,
{
    if let Err(error) = prepare(&socket.tcp) {
        tracing::debug!(%error, "the options of a connection could not be set");
    }
    let (entry, limits) = (Arc::clone(&socket.entry), socket.registry.limits.clone());
    let stream = match tokio::time::timeout(limits.handshake, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let certificates = certificates.into_iter().flatten().map(|one| one.clone().into_owned()).collect();
    let answer = make(Peer { address, certificates, connection: Connection(Arc::clone(&entry)) });
    let watched = Arc::clone(&entry);
    let service = hyper::service::service_fn(move |request| {
        let (request_entry, under_way) = (Arc::clone(&watched), watched.asked());
        let answer = answer(request);
        async move {
            let response = answer.await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                request_entry.upgraded();
            }
            Ok::<_, Infallible>(response.map(|body| Paced::new(body, under_way)))
        }
    });
    let builder = builder(&limits, panics);
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let mut endings = endings(closing, &entry, &limits);
    let result = loop {
        let ending = tokio::select! {
            biased;
            result = served.as_mut() => break result,
            Some(ending) = endings.next() => ending,
        };
        if let Ending::Over(verdict) = ending {
            tracing::debug!(?verdict, %address, "a connection ends");
        }
        if let Ending::Over(Verdict::Stalled) = ending {
            break Ok(());
        }
        served.as_mut().graceful_shutdown();
        // Who was asked to end may still be answered.
        if !matches!(ending, Ending::Asked) {
            break tokio::time::timeout(limits.farewell, served).await.unwrap_or(Ok(()));
        }
    };
    if let Err(error) = result {
        tracing::debug!(error, "a connection ended early");
    }
}

/// Why a connection has to end.
enum Ending {
    /// The listener ends.
    Closing,
    Asked,
    Over(Verdict),
}

/// Looked at only when one of them has come: a connection is woken several
/// times for each of its requests, and these are seldom the reason.
fn endings<'a>(
    mut closing: watch::Receiver<()>,
    entry: &'a Entry,
    limits: &'a Limits,
) -> FuturesUnordered<BoxFuture<'a, Ending>> {
    let endings = FuturesUnordered::<BoxFuture<'a, Ending>>::new();
    endings.push(Box::pin(async move {
        // An error: the listener has let go of it.
        let _ = closing.changed().await;
        Ending::Closing
    }));
    endings.push(Box::pin(entry.ending.notified().map(|()| Ending::Asked)));
    endings.push(Box::pin(over(entry, limits).map(Ending::Over)));
    endings
}

/// Runs the requests of HTTP/2 connections.
#[derive(Clone)]
struct Watched(Panics);

impl<F> Executor<F> for Watched
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let panics = self.0.clone();
        tokio::spawn(async move { panics.caught(TASKS[1], stream).await });
    }
}

fn builder(limits: &Limits, panics: &Panics) -> auto::Builder<Watched> {
    let mut builder = auto::Builder::new(Watched(panics.clone()));
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.headers_bytes)
        .max_send_buf_size(SEND_BUFFER_BYTES);
    builder
}

/// Waits until a connection has to end.
async fn over(entry: &Entry, limits: &Limits) -> Verdict {
    loop {
        match entry.verdict(limits) {
            Verdict::Stays(until) => tokio::time::sleep_until(until).await,
            verdict => return verdict,
        }
    }
}

#[cfg(test)]
mod tests;
