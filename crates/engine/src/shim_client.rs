//! Talking to the shims: start one, connect, ask, be told of exits.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream as StdUnixStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ambient::Panics;
use cri::CriError;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use shim::crash;
use shim::wire::{self, Call, Exit, Fault, Message, Reply, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use crate::open_files;
use crate::sys::SealedProgram;

/// A connection to one shim. Clones share it; it ends with the last one.
#[derive(Debug, Clone)]
pub(crate) struct Shim {
    calls: mpsc::Sender<Pending>,
    /// Numbers for commands.
    execs: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Pending {
    request: Request,
    answer: oneshot::Sender<Reply>,
}

/// What a shim tells unasked.
#[derive(Debug)]
pub(crate) enum Told {
    Exited {
        container: String,
        exit: Exit,
    },
    /// Nothing more comes over this connection. The process may be well.
    Lost,
}

/// Calls on their way to one shim; a pod has few containers.
const CALLS_MAX: usize = 64;
/// Longest wait for an answer. A start of a container takes milliseconds; a
/// machine under heavy load may need seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// How soon a shim that takes no connections is tried again.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Said of a shim that does not know a request.
pub(crate) const TOO_OLD: &str =
    "unsupported: the pod's monitor process was started by an earlier version, which cannot do this";

const SOCKET: &str = "shim.sock";

/// Starts a shim whose socket is in `run`, a new directory, and connects to it.
pub(crate) fn spawn(program: &SealedProgram, id: &str, run: &Path) -> io::Result<StdUnixStream> {
    DirBuilder::new().recursive(true).mode(0o700).create(run)?;
    crash::point("shim.directory");
    let dir = File::open(run)?;
    let listener = UnixListener::bind(through(&dir))?;
    crash::point("shim.socket");
    fs::set_permissions(run.join(SOCKET), std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let log = fs::OpenOptions::new().append(true).create(true).open(run.join("shim.log"))?;
    let mut child = tokio::process::Command::new(program.path())
        .arg0("podium")
        .args([shim::VERB, id])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .spawn()?;
    crash::point("shim.spawned");
    if let Some(pid) = child.id() {
        open_files::restore_open_files(pid)?;
    }
    // Only so that it does not stay behind as a zombie; its connection tells when it is gone.
    tokio::spawn(async move { child.wait().await });
    connect(&dir)
}

/// Connects to a shim that an earlier engine started; `Err` if it is gone, or
/// (`WouldBlock`) if so many wait for it that nobody more can.
pub(crate) fn reconnect(run: &Path) -> io::Result<StdUnixStream> {
    connect(&File::open(run)?)
}

/// The same, and waits for a place, as long as for an answer.
pub(crate) async fn reconnect_when_free(run: &Path) -> io::Result<StdUnixStream> {
    let attempts = async {
        loop {
            match reconnect(run) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(CONNECT_PAUSE).await,
                outcome => return outcome,
            }
        }
    };
    let given_up = |_| io::Error::new(io::ErrorKind::TimedOut, "the sandbox's monitor process takes no connections");
    tokio::time::timeout(ANSWER_TIMEOUT, attempts).await.map_err(given_up)?
}

/// Never waits for whoever listens.
fn connect(dir: &File) -> io::Result<StdUnixStream> {
    let address = SocketAddrUnix::new(through(dir))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(StdUnixStream::from(socket))
}

/// The socket by way of its directory's descriptor: the path of a socket is
/// limited to 108 bytes, that of a run directory is not.
fn through(dir: &File) -> String {
    format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())
}

impl Shim {
    /// Serves the connection. `told` is called in order, before any answer
    /// that the shim gave later.
    pub(crate) fn over(
        stream: StdUnixStream,
        panics: Panics,
        told: impl Fn(Told) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        let (calls, pending) = mpsc::channel(CALLS_MAX);
        tokio::spawn(async move {
            let ended = panics.caught("monitor_connection", drive(stream, pending, &told)).await;
            // A panic is no end that anybody wanted.
            if ended != Some(Ended::Unused) {
                panics.caught("monitor_connection", async { told(Told::Lost) }).await;
            }
        });
        Ok(Self { calls, execs: Arc::default() })
    }

    /// Nothing can be asked over this connection any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.calls.is_closed()
    }

    /// Asks and waits for the answer.
    pub(crate) async fn call(&self, request: Request) -> Result<Reply, CriError> {
        match self.ask(request, ANSWER_TIMEOUT).await? {
            Reply::Failed(fault) => Err(refusal(fault)),
            reply => Ok(reply),
        }
    }

    /// Runs a command and waits for its end. When the caller stops waiting,
    /// the command is killed.
    pub(crate) async fn exec(
        &self,
        container: String,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<Reply, CriError> {
        let exec = self.execs.fetch_add(1, Ordering::Relaxed);
        let timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let patience = timeout.map_or(Duration::MAX, |timeout| timeout.saturating_add(ANSWER_TIMEOUT));
        let mut abort = Abort { calls: &self.calls, exec: Some(exec) };
        let answer = self.ask(Request::Exec { container, command, timeout_ms, exec }, patience).await;
        abort.exec = None;
        answer
    }

    async fn ask(&self, request: Request, patience: Duration) -> Result<Reply, CriError> {
        let gone = || CriError::Failed("the sandbox's monitor process is gone".into());
        let (answer, answered) = oneshot::channel();
        self.calls.send(Pending { request, answer }).await.map_err(|_| gone())?;
        match tokio::time::timeout(patience, answered).await {
            Ok(answer) => answer.map_err(|_| gone()),
            Err(_) => Err(CriError::Failed("the sandbox's monitor process does not answer".into())),
        }
    }
}

/// Kills a command when nobody waits for it any more.
struct Abort<'a> {
    calls: &'a mpsc::Sender<Pending>,
    exec: Option<u64>,
}

impl Drop for Abort<'_> {
    fn drop(&mut self) {
        let Some(exec) = self.exec else { return };
        // If the line is busy the command's own timeout has to do.
        let _ = self.calls.try_send(Pending { request: Request::Abort { exec }, answer: oneshot::channel().0 });
    }
}

pub(crate) fn refusal(fault: Fault) -> CriError {
    match fault {
        Fault::Unknown => CriError::NotFound { what: "container", id: String::new() },
        Fault::Start(message) => CriError::Failed(start_failure(&message)),
        Fault::State(message) | Fault::Failed(message) => CriError::Failed(message),
        Fault::NotRunning => CriError::Failed("container is not running".into()),
        Fault::TimedOut => CriError::Failed("timed out".into()),
        Fault::Unsupported => CriError::Failed(TOO_OLD.into()),
    }
}

/// How runc and containerd word it.
pub(crate) fn start_failure(message: &str) -> String {
    format!("unable to start container process: {message}")
}

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Nobody has anything to ask any more.
    Unused,
    Lost,
}

/// Reads and writes side by side: the shim may have much to say before it takes
/// the rest of what it is asked.
async fn drive(mut stream: UnixStream, mut calls: mpsc::Receiver<Pending>, told: &(impl Fn(Told) + Sync)) -> Ended {
    let (mut reader, mut writer) = stream.split();
    let mut waiting: BTreeMap<u64, oneshot::Sender<Reply>> = BTreeMap::new();
    let mut heard: Vec<u8> = Vec::new();
    // The call that is on its way, and how much of it has gone.
    let (mut frame, mut sent, mut seq) = (Vec::new(), 0, 0);
    let ended = loop {
        tokio::select! {
            biased;
            read = reader.read_buf(&mut heard) => {
                if !matches!(read, Ok(1..)) || !absorb(&mut heard, &mut waiting, told) {
                    break Ended::Lost;
                }
            }
            written = writer.write(&frame[sent..]), if sent < frame.len() => match written {
                Ok(length @ 1..) => sent += length,
                Ok(_) | Err(_) => break Ended::Lost,
            },
            pending = calls.recv(), if sent == frame.len() => {
                // The engine is done with this shim, which goes on without it.
                let Some(Pending { request, answer }) = pending else { break Ended::Unused };
                seq += 1;
                match wire::frame(&Call { seq, request }) {
                    Ok(whole) => {
                        (frame, sent) = (whole, 0);
                        waiting.insert(seq, answer);
                    }
                    // Whoever asked may have stopped waiting.
                    Err(error) => drop(answer.send(Reply::Failed(Fault::Failed(error.to_string())))),
                }
            }
        }
    };
    // Nobody can be in doubt whether this connection is lost.
    drop((calls, waiting));
    ended
}

/// Hands out every whole message; false when the other side talks nonsense.
fn absorb(buffer: &mut Vec<u8>, waiting: &mut BTreeMap<u64, oneshot::Sender<Reply>>, told: &impl Fn(Told)) -> bool {
    loop {
        match wire::take::<Message>(buffer) {
            Ok(Some(Message::Reply { seq, reply })) => {
                if let Some(answer) = waiting.remove(&seq) {
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(reply);
                }
            }
            Ok(Some(Message::Exited { container, exit })) => told(Told::Exited { container, exit }),
            // Said to attached clients only.
            Ok(Some(Message::Lagged)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Whoever is told of an exit and can not bear it costs the connection, which
    /// is made again, and not what happens next.
    #[tokio::test]
    async fn a_connection_that_panics_is_counted_and_lost() {
        let (ours, theirs) = StdUnixStream::pair().unwrap();
        let (panics, is_lost) = (Panics::default(), Arc::new(AtomicBool::new(false)));
        let (done, ended) = oneshot::channel::<()>();
        let (told, done) = (Arc::clone(&is_lost), Mutex::new(Some(done)));
        let shim = Shim::over(ours, panics.clone(), move |what| match what {
            Told::Exited { .. } => panic!("an exit nobody expected"),
            Told::Lost => {
                told.store(true, Ordering::SeqCst);
                drop(done.lock().unwrap().take());
            }
        })
        .unwrap();
        let exit = Exit { code: 0, oom_killed: false, started_at_ns: None, finished_at_ns: 0, start_error: None };
        let frame = wire::frame(&Message::Exited { container: "c".to_owned(), exit }).unwrap();
        io::Write::write_all(&mut &theirs, &frame).unwrap();
        assert!(ended.await.is_err(), "it was dropped when the loss was told");
        assert!(is_lost.load(Ordering::SeqCst) && shim.is_lost());
        assert_eq!(panics.counts(), [("monitor_connection", 1)]);
    }

    #[tokio::test]
    async fn nobody_waits_on_a_thread_for_a_monitor_that_takes_no_connections() {
        let run = tempfile::tempdir().unwrap();
        let address = SocketAddrUnix::new(run.path().join(SOCKET)).unwrap();
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        let mut queued = Vec::new();
        let refusal = loop {
            match reconnect(run.path()) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
            assert!(queued.len() < 100, "the queue has no end");
        };
        assert_eq!(refusal.kind(), io::ErrorKind::WouldBlock);
        // It goes on once there is a place.
        let mut waiting = Box::pin(reconnect_when_free(run.path()));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(rustix::net::accept(&socket).unwrap());
        waiting.await.unwrap();
        drop(socket);
        assert_eq!(reconnect_when_free(run.path()).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
