//! `/exec`, `/attach`, `/portForward` and `/run` (API-692): which container is
//! meant, and who carries the streams.

use std::sync::Arc;

use ambient::Panics;
use bytes::Bytes;
use cri::{
    AttachRequest, Connection, ContainerId, ContainerState, CriError, ExecRequest, SandboxId, SandboxState, Streaming,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use streaming::{Dial, PortsUpgrade, Refusal, Target, Upgrade};
use tokio::net::TcpStream;

use super::sessions::{SESSIONS_MAX, Session};
use super::{Body, Failure, Pods, text, typed};
use crate::ctx::{Ctx, detach};
use crate::observe::PodRef;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    verb: Verb,
    namespace: &'a str,
    pod: &'a str,
    /// When it matters that the pod is still the same.
    uid: Option<&'a str>,
    /// Empty where ports are meant.
    container: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Exec,
    Attach,
    Run,
    PortForward,
}

impl Verb {
    fn of(first: &str) -> Option<Self> {
        Some(match first {
            "exec" => Self::Exec,
            "attach" => Self::Attach,
            "run" => Self::Run,
            "portForward" => Self::PortForward,
            _ => return None,
        })
    }
}

/// Whether a path leads into a container.
pub(super) fn is_one(path: &str) -> bool {
    Verb::of(path.split('/').next().unwrap_or_default()).is_some()
}

impl<'a> Wanted<'a> {
    pub(super) fn of(path: &[&'a str]) -> Option<Self> {
        let (&first, rest) = path.split_first()?;
        let verb = Verb::of(first)?;
        let (namespace, pod, uid, container) = match (verb, rest) {
            (Verb::PortForward, &[namespace, pod]) => (namespace, pod, None, ""),
            (Verb::PortForward, &[namespace, pod, uid]) => (namespace, pod, Some(uid), ""),
            (Verb::PortForward, _) => return None,
            (_, &[namespace, pod, container]) => (namespace, pod, None, container),
            (_, &[namespace, pod, uid, container]) => (namespace, pod, Some(uid), container),
            _ => return None,
        };
        Some(Self { verb, namespace, pod, uid, container })
    }

    /// A command whose output is the answer is never a mere reading; the
    /// others may begin as a WebSocket does.
    pub(super) fn allows(&self, method: &Method) -> bool {
        method == Method::POST || method == Method::GET && self.verb != Verb::Run
    }
}

/// Why there is no stream.
enum Refused {
    /// `pod does not exist`.
    NoPod,
    Options(&'static str),
    Handshake(Refusal),
    Failed(CriError),
    /// Upstream answers these as its own failures, not as `404`.
    NotFound(String),
    Runtime(Failure),
    TooMany,
}

impl Refused {
    fn response(self) -> Response<Body> {
        match self {
            Self::NoPod => text(StatusCode::NOT_FOUND, "pod does not exist".to_owned()),
            Self::Options(why) => text(StatusCode::BAD_REQUEST, why.to_owned()),
            Self::Handshake(refusal) => refusal.response().map(|text| Full::new(Bytes::from(text)).boxed_unsync()),
            Self::Failed(error @ CriError::NotFound { .. }) => text(StatusCode::NOT_FOUND, error.to_string()),
            Self::Failed(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            Self::NotFound(what) => text(StatusCode::INTERNAL_SERVER_ERROR, what),
            Self::TooMany => {
                let why = format!("too many streams: a pod has at most {SESSIONS_MAX} at a time");
                text(StatusCode::TOO_MANY_REQUESTS, why)
            }
            Self::Runtime(error) => text(StatusCode::BAD_GATEWAY, format!("the runtime's stream: {error}")),
        }
    }
}

type Begun = Result<Response<Body>, Refused>;

pub(super) async fn answer(
    ctx: &Arc<Ctx>,
    pods: &Pods,
    wanted: &Wanted<'_>,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let begun = match wanted.verb {
        Verb::Exec => exec(ctx, pods, wanted, &mut request).await,
        Verb::Attach => attach(ctx, pods, wanted, &mut request).await,
        Verb::Run => run(ctx, pods, wanted, &request).await,
        Verb::PortForward => port_forward(ctx, pods, wanted, &mut request).await,
    };
    begun.unwrap_or_else(Refused::response)
}

async fn exec(ctx: &Ctx, pods: &Pods, wanted: &Wanted<'_>, request: &mut Request<Incoming>) -> Begun {
    let Options { stdin, stdout, stderr, tty, command } = Options::parse(request.uri())?;
    let (id, held) = session_in(ctx, pods, wanted).await?;
    let asked = ExecRequest { command, tty, stdin, stdout, stderr };
    // Before the command runs: nobody would see what it says.
    let (upgrade, response) = Upgrade::command(request).map_err(Refused::Handshake)?;
    match ctx.runtime.exec(&id, asked).await.map_err(Refused::Failed)? {
        Streaming::Here(session) => {
            ctx.detach("stream", held.during(|room| upgrade.within(room).exec(session)));
            Ok(begun(response))
        }
        Streaming::At(url) => {
            pass_through(&ctx.panics, request, upgrade.connection(), &url, held).await.map_err(Refused::Runtime)
        }
    }
}

async fn attach(ctx: &Ctx, pods: &Pods, wanted: &Wanted<'_>, request: &mut Request<Incoming>) -> Begun {
    let Options { stdin, stdout, stderr, .. } = Options::parse(request.uri())?;
    let (id, held) = session_in(ctx, pods, wanted).await?;
    let (upgrade, response) = Upgrade::command(request).map_err(Refused::Handshake)?;
    match ctx.runtime.attach(&id, AttachRequest { stdin, stdout, stderr }).await.map_err(Refused::Failed)? {
        Streaming::Here(session) => {
            ctx.detach("stream", held.during(|room| upgrade.within(room).attach(session)));
            Ok(begun(response))
        }
        Streaming::At(url) => {
            pass_through(&ctx.panics, request, upgrade.connection(), &url, held).await.map_err(Refused::Runtime)
        }
    }
}

/// A command without streams; its output is the answer.
async fn run(ctx: &Ctx, pods: &Pods, wanted: &Wanted<'_>, request: &Request<Incoming>) -> Begun {
    let (id, _held) = session_in(ctx, pods, wanted).await?;
    let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    let line = query.filter(|(name, _)| name == "cmd").map(|(_, value)| value.into_owned()).last().unwrap_or_default();
    let command = line.split(' ').map(str::to_owned).collect();
    let ended = ctx.runtime.exec_sync(&id, command, None).await.map_err(Refused::Failed)?;
    let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    match ended.exit_code {
        0 => Ok(typed(StatusCode::OK, "text/plain", said)),
        code => Err(Refused::NotFound(format!("command '{line}' exited with {code}: {said}"))),
    }
}

async fn port_forward(ctx: &Arc<Ctx>, pods: &Pods, wanted: &Wanted<'_>, request: &mut Request<Incoming>) -> Begun {
    let pod = found(pods, wanted)?;
    let missing = || Refused::NotFound(format!("pod not found (\"{}_{}\")", wanted.pod, wanted.namespace));
    let sandboxes = ctx.runtime.sandboxes(Some(&pod.uid)).await.map_err(Refused::Failed)?;
    let ready = sandboxes.into_iter().find(|sandbox| sandbox.state == SandboxState::Ready);
    let sandbox = ready.filter(|_| wanted.uid.is_none_or(|uid| uid == pod.uid)).ok_or_else(missing)?.id;
    let (upgrade, response) = PortsUpgrade::ports(request).map_err(Refused::Handshake)?;
    let held = ctx.sessions.begin(&pod.uid).ok_or(Refused::TooMany)?;
    if let Some(url) = ctx.runtime.port_forward_url(&sandbox).await.map_err(Refused::Failed)? {
        return pass_through(&ctx.panics, request, upgrade.connection(), &url, held).await.map_err(Refused::Runtime);
    }
    let target = Target { dial: dial(ctx.clone(), sandbox), pod: pod.name, uid: pod.uid };
    ctx.detach("stream", held.during(|room| upgrade.within(room).run(target)));
    Ok(begun(response))
}

fn dial(ctx: Arc<Ctx>, sandbox: SandboxId) -> Dial {
    Arc::new(move |port| {
        let (ctx, sandbox) = (ctx.clone(), sandbox.clone());
        Box::pin(async move {
            match ctx.runtime.port_forward(&sandbox, port).await? {
                Streaming::Here(connection) => Ok::<Box<dyn Connection>, _>(connection),
                Streaming::At(_) => Err(CriError::Unsupported("connect to one port")),
            }
        })
    })
}

fn found(pods: &Pods, wanted: &Wanted<'_>) -> Result<PodRef, Refused> {
    pods.find(wanted.namespace, wanted.pod).map(|found| found.who).ok_or(Refused::NoPod)
}

/// The running container of that name, and one of its pod's places.
async fn session_in(ctx: &Ctx, pods: &Pods, wanted: &Wanted<'_>) -> Result<(ContainerId, Session), Refused> {
    let pod = found(pods, wanted)?;
    let missing = || Refused::NotFound(format!("container not found (\"{}\")", wanted.container));
    if wanted.uid.is_some_and(|uid| uid != pod.uid) {
        return Err(missing());
    }
    let containers = ctx.runtime.containers(Some(&pod.uid)).await.map_err(Refused::Failed)?;
    let running = containers
        .into_iter()
        .find(|container| container.name == wanted.container && container.state == ContainerState::Running);
    let id = running.ok_or_else(missing)?.id;
    let held = ctx.sessions.begin(&pod.uid).ok_or(Refused::TooMany)?;
    Ok((id, held))
}

/// Which streams a client wants (API-624).
#[derive(Debug, PartialEq, Eq)]
struct Options {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
    command: Vec<String>,
}

impl Options {
    fn parse(uri: &Uri) -> Result<Self, Refused> {
        let mut options = Self { stdin: false, stdout: false, stderr: false, tty: false, command: Vec::new() };
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "input" => options.stdin = value == "1",
                "output" => options.stdout = value == "1",
                "error" => options.stderr = value == "1",
                "tty" => options.tty = value == "1",
                "command" => options.command.push(value.into_owned()),
                _ => {}
            }
        }
        // API-633: a terminal has one output.
        options.stderr &= !options.tty;
        if options.stdin || options.stdout || options.stderr {
            return Ok(options);
        }
        Err(Refused::Options("you must specify at least 1 of stdin, stdout, stderr"))
    }
}

fn begun(response: Response<()>) -> Response<Body> {
    response.map(|()| Full::default().boxed_unsync())
}

/// Joins the client's connection with one to the runtime's own server. What
/// nobody has read there is that server's to bound.
async fn pass_through(
    panics: &Panics,
    request: &Request<Incoming>,
    client: OnUpgrade,
    url: &str,
    held: Session,
) -> Result<Response<Body>, Failure> {
    let uri: Uri = url.parse()?;
    let authority = uri.authority().ok_or("its address is not valid")?;
    let stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80))).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    detach(panics, "stream", async {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to the runtime broke");
        }
    });
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut passed = Request::builder().method(request.method().clone()).uri(format!("{}{query}", uri.path()));
    // The caller's credentials are ours to see.
    let is_passed = |name: &http::HeaderName| ![http::header::HOST, http::header::AUTHORIZATION].contains(name);
    for (name, value) in request.headers().iter().filter(|(name, _)| is_passed(name)) {
        passed = passed.header(name, value);
    }
    let passed = passed.header(http::header::HOST, authority.as_str()).body(Empty::<Bytes>::new())?;
    let mut response = sender.send_request(passed).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let runtime = hyper::upgrade::on(&mut response);
        detach(panics, "stream", held.during(|_room| join(client, runtime)));
    }
    let (parts, body) = response.into_parts();
    let bytes = match parts.status {
        StatusCode::SWITCHING_PROTOCOLS => Bytes::new(),
        _ => body.collect().await?.to_bytes(),
    };
    Ok(Response::from_parts(parts, Full::new(bytes).boxed_unsync()))
}

/// Until either side has ended.
async fn join(client: OnUpgrade, runtime: OnUpgrade) {
    let joined = async {
        let (client, runtime) = tokio::try_join!(client, runtime)?;
        let (mut client, mut runtime) = (TokioIo::new(client), TokioIo::new(runtime));
        tokio::io::copy_bidirectional(&mut client, &mut runtime).await?;
        Ok::<_, Failure>(())
    };
    if let Err(error) = joined.await {
        tracing::debug!(%error, "a stream to the runtime broke");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_692_paths_name_a_container_with_or_without_the_pods_uid() {
        let of = |path: &'static str| Wanted::of(&path.split('/').collect::<Vec<_>>());
        let exec = of("exec/default/web/app").unwrap();
        assert_eq!((exec.verb, exec.pod, exec.uid, exec.container), (Verb::Exec, "web", None, "app"));
        let attach = of("attach/default/web/u1/app").unwrap();
        assert_eq!((attach.verb, attach.uid, attach.container), (Verb::Attach, Some("u1"), "app"));
        assert_eq!(of("portForward/default/web").unwrap().verb, Verb::PortForward);
        assert_eq!((of("exec/default/web"), of("pods")), (None, None));
        // API-623: a GET needs `get` only at the API server, unless it opens a stream.
        let run = of("run/default/web/app").unwrap();
        assert!(!run.allows(&Method::GET) && !run.allows(&Method::PUT) && run.allows(&Method::POST));
    }

    #[test]
    fn api_624_api_633_a_session_needs_a_stream_and_a_terminal_has_one_output() {
        let parse = |query: &str| Options::parse(&format!("/exec/x?{query}").parse().unwrap()).ok();
        let shell = parse("input=1&output=1&error=1&tty=1&command=sh&command=-c&command=a%20b").unwrap();
        assert_eq!((shell.stdin, shell.stdout, shell.stderr, shell.tty), (true, true, false, true));
        assert_eq!(shell.command, ["sh", "-c", "a b"]);
        assert_eq!(parse("command=sh&output=0"), None);
    }

    #[tokio::test]
    async fn api_692_a_stream_of_another_runtime_keeps_its_place_until_it_ends() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/exec/x", listener.local_addr().unwrap());
        let sessions = Arc::new(crate::server::Sessions::default());
        let asked = sessions.clone();
        let answer = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let (url, held) = (url.clone(), asked.begin("a").unwrap());
            async move {
                let client = hyper::upgrade::on(&mut request);
                pass_through(&Panics::default(), &request, client, &url, held).await
            }
        });
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let server = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), answer);
        tokio::spawn(server.with_upgrades());
        let upgrade = "connection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
        near.write_all(format!("POST /exec HTTP/1.1\r\nhost: a\r\n{upgrade}").as_bytes()).await.unwrap();
        let (mut runtime, _) = listener.accept().await.unwrap();
        runtime.write_all(format!("HTTP/1.1 101 Switching Protocols\r\n{upgrade}").as_bytes()).await.unwrap();
        let mut begun = [0; 12];
        near.read_exact(&mut begun).await.unwrap();
        assert_eq!(&begun, b"HTTP/1.1 101");
        let left = || std::iter::from_fn(|| sessions.begin("a")).collect::<Vec<_>>().len();
        assert_eq!(left(), SESSIONS_MAX - 1);
        drop((near, runtime));
        while left() < SESSIONS_MAX {
            tokio::task::yield_now().await;
        }
    }
}
