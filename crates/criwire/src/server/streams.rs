//! Exec, attach and port-forward: the answer is a URL that works once, and the
//! server behind it.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ambient::Mono;
use bytes::Bytes;
use cri::{AttachRequest, ContainerId, ContainerState, CriError, ExecRequest, SandboxId, SandboxState, Streaming};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use streaming::{Dial, PortsUpgrade, Refusal, Target, Upgrade};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::dispatch::ACCEPT_PAUSE;
use super::{Answer, Server};
use crate::v1;

/// What a URL stands for.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    Exec(ContainerId, ExecRequest),
    Attach(ContainerId, AttachRequest),
    /// All ports: the client names one with every connection.
    Ports(SandboxId),
}

/// URLs that were given out and not used yet, and since when.
#[derive(Default)]
pub(super) struct Tickets(Mutex<BTreeMap<String, (Wanted, Mono)>>);

/// How long a URL may stay unused, and how many may be, as in upstream's server.
const UNUSED_MAX: Duration = Duration::from_secs(60);
const TICKETS_MAX: usize = 1000;

/// Connections that have no stream yet: anybody on this machine can make some.
const CONNECTIONS_MAX: usize = 256;
/// How long one may take to say which URL it wants, and until it has it.
const QUESTION_MAX: Duration = Duration::from_secs(10);
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Of what it says.
const HEADERS_BYTES_MAX: usize = 16 << 10;

/// Connections that may not have said which URL they want yet, the oldest first:
/// whoever opens many of them and says nothing keeps nobody else waiting.
#[derive(Default)]
struct Silent(VecDeque<(AbortHandle, Arc<AtomicBool>)>);

impl Silent {
    fn add(&mut self, connection: AbortHandle, has_asked: Arc<AtomicBool>) {
        if self.0.len() >= 2 * CONNECTIONS_MAX {
            self.0.retain(is_silent);
        }
        self.0.push_back((connection, has_asked));
    }

    fn end_oldest(&mut self) {
        while let Some(oldest) = self.0.pop_front() {
            if is_silent(&oldest) {
                return oldest.0.abort();
            }
        }
    }
}

fn is_silent((connection, has_asked): &(AbortHandle, Arc<AtomicBool>)) -> bool {
    !connection.is_finished() && !has_asked.load(Ordering::Relaxed)
}

impl Tickets {
    fn put(&self, token: String, wanted: Wanted, now: Mono) -> Answer<()> {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.retain(|_, (_, since)| now.since(*since) < UNUSED_MAX);
        if tickets.len() >= TICKETS_MAX {
            return Err(CriError::Failed("maximum number of in-flight requests exceeded".into()));
        }
        tickets.insert(token, (wanted, now));
        Ok(())
    }

    fn take(&self, token: &str, now: Mono) -> Option<Wanted> {
        let (wanted, since) = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token)?;
        (now.since(since) < UNUSED_MAX).then_some(wanted)
    }
}

impl Server {
    pub(super) async fn exec(&self, asked: v1::ExecRequest) -> Answer<v1::ExecResponse> {
        let id = self.running(&asked.container_id).await?;
        if asked.cmd.is_empty() {
            return Err(CriError::Invalid("no command specified".into()));
        }
        check_streams(asked.stdin || asked.stdout || asked.stderr, asked.tty && asked.stderr)?;
        let request = ExecRequest {
            command: asked.cmd,
            tty: asked.tty,
            stdin: asked.stdin,
            stdout: asked.stdout,
            stderr: asked.stderr,
        };
        Ok(v1::ExecResponse { url: self.url("exec", Wanted::Exec(id, request))? })
    }

    pub(super) async fn attach(&self, asked: v1::AttachRequest) -> Answer<v1::AttachResponse> {
        let id = self.running(&asked.container_id).await?;
        check_streams(asked.stdin || asked.stdout || asked.stderr, asked.tty && asked.stderr)?;
        let request = AttachRequest { stdin: asked.stdin, stdout: asked.stdout, stderr: asked.stderr };
        Ok(v1::AttachResponse { url: self.url("attach", Wanted::Attach(id, request))? })
    }

    pub(super) async fn port_forward(&self, asked: v1::PortForwardRequest) -> Answer<v1::PortForwardResponse> {
        let id = self.sandbox_id(&asked.pod_sandbox_id).await?;
        if self.sandbox(&id).await?.state != SandboxState::Ready {
            return Err(CriError::Failed(format!("sandbox {id} is not ready")));
        }
        Ok(v1::PortForwardResponse { url: self.url("portforward", Wanted::Ports(id))? })
    }

    async fn running(&self, given: &str) -> Answer<ContainerId> {
        let id = self.container_id(given).await?;
        match self.container(&id).await?.state {
            ContainerState::Running => Ok(id),
            ContainerState::Created | ContainerState::Exited | ContainerState::Unknown => {
                Err(CriError::NotRunning { id: id.0 })
            }
        }
    }

    fn url(&self, verb: &str, wanted: Wanted) -> Answer<String> {
        let token = self.ids.hex64();
        self.tickets.put(token.clone(), wanted, self.clock.now().mono)?;
        Ok(format!("http://{}/{verb}/{token}", self.config.streams_at))
    }

    /// Answers until dropped.
    pub(super) async fn serve_streams(&self, listener: TcpListener) {
        let mut connections = tokio::task::JoinSet::new();
        let mut silent = Silent::default();
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            while connections.try_join_next().is_some() {}
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if places.available_permits() == 0 {
                silent.end_oldest();
            }
            // Whoever has asked has its answer within moments.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let server = self.clone();
            let has_asked = Arc::new(AtomicBool::new(false));
            let asking = has_asked.clone();
            let handle = connections.spawn(async move {
                let _place = place;
                let answer = hyper::service::service_fn(move |request| {
                    asking.store(true, Ordering::Relaxed);
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.stream(request).await) }
                });
                let http = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(QUESTION_MAX)
                    .max_buf_size(HEADERS_BYTES_MAX)
                    .serve_connection(TokioIo::new(stream), answer);
                // Ends with the answer: streams that were begun go on by themselves.
                match tokio::time::timeout(ANSWER_MAX, http.with_upgrades()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a stream was not begun"),
                    Err(_) => tracing::debug!("a stream was not begun in time"),
                }
            });
            silent.add(handle, has_asked);
        }
    }

    async fn stream(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let (verb, token) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let begun = match verb {
            "portforward" => self.forward(&mut request, token),
            _ => self.command(&mut request, token).await,
        };
        begun.map_or_else(|(status, why)| text(status, why), |response| response.map(|()| Full::default()))
    }

    async fn command(&self, request: &mut Request<Incoming>, token: &str) -> Begun {
        // Looked at first: a handshake that fails does not use the URL up.
        let (upgrade, response) = Upgrade::command(request).map_err(refused)?;
        match self.take(token)? {
            Wanted::Exec(id, request) => {
                let session = self.runtime.exec(&id, request).await.and_then(here).map_err(failed)?;
                tokio::spawn(upgrade.exec(session));
            }
            Wanted::Attach(id, request) => {
                let session = self.runtime.attach(&id, request).await.and_then(here).map_err(failed)?;
                tokio::spawn(upgrade.attach(session));
            }
            Wanted::Ports(_) => return Err(unknown()),
        }
        Ok(response)
    }

    fn forward(&self, request: &mut Request<Incoming>, token: &str) -> Begun {
        let (upgrade, response) = PortsUpgrade::ports(request).map_err(refused)?;
        let Wanted::Ports(sandbox) = self.take(token)? else { return Err(unknown()) };
        let (runtime, pod) = (self.runtime.clone(), sandbox.to_string());
        let dial: Dial = Arc::new(move |port| {
            let (runtime, sandbox) = (runtime.clone(), sandbox.clone());
            Box::pin(async move { runtime.port_forward(&sandbox, port).await.and_then(here) })
        });
        tokio::spawn(upgrade.run(Target { dial, pod, uid: String::new() }));
        Ok(response)
    }

    fn take(&self, token: &str) -> Result<Wanted, (StatusCode, String)> {
        self.tickets.take(token, self.clock.now().mono).ok_or_else(unknown)
    }
}

type Begun = Result<Response<()>, (StatusCode, String)>;

fn here<T>(stream: Streaming<T>) -> Answer<T> {
    match stream {
        Streaming::Here(stream) => Ok(stream),
        Streaming::At(_) => Err(CriError::Unsupported("pass on streams of another runtime")),
    }
}

fn refused(refusal: Refusal) -> (StatusCode, String) {
    (refusal.status(), refusal.to_string())
}

fn failed(error: CriError) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn unknown() -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, "this URL is unknown, was used or is too old".to_owned())
}

fn check_streams(any: bool, both: bool) -> Answer<()> {
    match (any, both) {
        (false, _) => Err(CriError::Invalid("one of stdin, stdout, or stderr must be set".into())),
        (_, true) => Err(CriError::Invalid("tty and stderr cannot both be true".into())),
        _ => Ok(()),
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use ambient::Clock;

    use super::*;

    async fn serve() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let streams_at = listener.local_addr().unwrap();
        let config = super::super::ServerConfig { log_root: "/nowhere".into(), streams_at };
        let ids = ambient::Ids::new(ambient::Rng::seeded(1));
        let runtime = Arc::new(cri::fake::Fake::new(Clock::manual(), ids.clone()));
        let server = Server::new(runtime, config, Clock::manual(), ids);
        tokio::spawn(async move { server.serve_streams(listener).await });
        streams_at
    }

    /// No time passes while somebody works on another thread.
    #[tokio::test(start_paused = true)]
    async fn who_asks_waits_for_none_of_those_that_say_nothing() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::TcpStream;

        let (done, working) = std::sync::mpsc::channel::<()>();
        let work = tokio::task::spawn_blocking(move || working.recv());
        let streams_at = serve().await;
        let mut silent = VecDeque::new();
        for _ in 0..CONNECTIONS_MAX {
            silent.push_back(TcpStream::connect(streams_at).await.unwrap());
        }
        for _ in 0..3 {
            let mut asking = TcpStream::connect(streams_at).await.unwrap();
            asking.write_all(b"GET /exec/none HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let mut answer = [0; 10];
            asking.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 4");
            let oldest = silent.pop_front().unwrap().read(&mut [0]).await;
            assert!(matches!(oldest, Ok(0) | Err(_)), "{oldest:?}");
            silent.push_back(asking);
        }
        let newest = silent[CONNECTIONS_MAX - 4].try_read(&mut [0]).unwrap_err();
        assert_eq!(newest.kind(), std::io::ErrorKind::WouldBlock, "the others may still ask");
        drop(done);
        work.await.unwrap().unwrap_err();
    }

    /// The time is the test's: it passes while nothing else can be done.
    #[tokio::test(start_paused = true)]
    async fn connections_that_say_nothing_or_too_much_make_room_for_others() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::net::TcpStream;

        let streams_at = serve().await;
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            silent.push(TcpStream::connect(streams_at).await.unwrap());
        }
        let ask = async |text: &[u8]| {
            let mut stream = TcpStream::connect(streams_at).await.unwrap();
            stream.write_all(text).await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        let answer = ask(b"GET /exec/none HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        for mut stream in silent {
            // Closed, with or without a word.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        let long = format!("GET /exec/none HTTP/1.1\r\nhost: {}\r\n\r\n", "a".repeat(2 * HEADERS_BYTES_MAX));
        let answer = ask(long.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }

    #[test]
    fn a_url_works_once_and_for_a_minute() {
        let clock = Clock::manual();
        let tickets = Tickets::default();
        let wanted = || Wanted::Attach("c".into(), AttachRequest::default());
        let now = clock.now().mono;
        tickets.put("a".into(), wanted(), now).unwrap();
        tickets.put("b".into(), wanted(), now).unwrap();
        assert!(tickets.take("a", now).is_some());
        assert!(tickets.take("a", now).is_none());
        assert!(tickets.take("b", now + UNUSED_MAX).is_none());
        for number in 0..TICKETS_MAX {
            tickets.put(number.to_string(), wanted(), now).unwrap();
        }
        assert!(tickets.put("more".into(), wanted(), now).is_err());
        tickets.put("later".into(), wanted(), now + UNUSED_MAX).unwrap();
    }
}
