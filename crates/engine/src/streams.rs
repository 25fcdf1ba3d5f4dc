//! Live connections into containers: commands, and clients of a container's
//! own process. The shim connects; bytes go from kernel to kernel.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use cri::{AttachRequest, ContainerId, CriError, ExecRequest, Input, Output, Session, TerminalSize};
use futures::FutureExt;
use shim::wire::{self, Fault, Message, Reply, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot, watch};

use crate::engine::Inner;
use crate::exec::executed;
use crate::line::{self, Line, Voice};
use crate::shim_client::refusal;
use crate::sys;

/// How far an attached client may be behind before it is detached.
const LAG_BYTES_MAX: usize = 1 << 20;
/// Sizes of a terminal on their way; only the last one counts.
const RESIZES_MAX: usize = 8;

impl Inner {
    pub(crate) async fn exec(&self, id: &ContainerId, request: ExecRequest) -> Result<Session, CriError> {
        let ExecRequest { command, tty, stdin, stdout, stderr } = request;
        if command.is_empty() {
            return Err(CriError::Invalid("no command specified".into()));
        }
        if tty && stderr {
            return Err(CriError::Invalid("tty and stderr cannot both be true".into()));
        }
        let streams = some_of(wire::Streams { stdin, stdout, stderr, tty })?;
        let failed = |error: io::Error| CriError::Failed(format!("failed to exec in container: {error}"));
        let mut line = self.line(id, "exec in container")?;
        let request = Request::Stream { container: id.0.clone(), command, streams };
        if tty {
            let (parcel, theirs) = line::parcel().map_err(failed)?;
            line.ask(request, vec![theirs]).await.map_err(failed)?;
            let Some(master) = line::delivery(&parcel).await.map_err(failed)? else {
                let ended = executed(id, None, line.answer().await.map_err(failed)?)?;
                return Err(failed(io::Error::other(format!("no terminal came, exit code {}", ended.exit_code))));
            };
            let terminal = Terminal::new(master).map_err(failed)?;
            // Held until the line has ended: a hang-up before it could pass for
            // the command's own end, and nobody would kill what it has started.
            let held = terminal.0.try_clone().map_err(failed)?;
            return Ok(Session {
                stdin: stdin.then(|| terminal.input()).transpose().map_err(failed)?,
                stdout: stdout.then(|| terminal.output()).transpose().map_err(failed)?,
                stderr: None,
                resize: Some(terminal.resize().map_err(failed)?),
                exit: exit_code(id.clone(), line, Some(held)).boxed(),
            });
        }
        let mut pipes = Pipes::default();
        let stdin = stdin.then(|| pipes.input()).transpose().map_err(failed)?;
        let stdout = stdout.then(|| pipes.output()).transpose().map_err(failed)?;
        let stderr = stderr.then(|| pipes.output()).transpose().map_err(failed)?;
        line.ask(request, pipes.theirs).await.map_err(failed)?;
        Ok(Session { stdin, stdout, stderr, resize: None, exit: exit_code(id.clone(), line, None).boxed() })
    }

    pub(crate) async fn attach(
        self: &Arc<Self>,
        id: &ContainerId,
        request: AttachRequest,
    ) -> Result<Session, CriError> {
        let failed = |error: io::Error| CriError::Failed(format!("failed to attach to container: {error}"));
        let AttachRequest { stdin, stdout, stderr } = request;
        let mut line = self.line(id, "attach to container")?;
        let (has_input, tty, input_stays, over) = {
            let table = self.table();
            let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
            let entry = table.containers.get(id).ok_or_else(missing)?;
            (entry.record.stdin, entry.record.tty, entry.record.input_stays, entry.over.subscribe())
        };
        let streams = some_of(wire::Streams { stdin, stdout, stderr, tty })?;
        let mut pipes = Pipes::default();
        let stdout = stdout.then(|| pipes.wide_output()).transpose().map_err(failed)?;
        let stderr = stderr.then(|| pipes.wide_output()).transpose().map_err(failed)?;
        let (parcel, theirs) = line::parcel().map_err(failed)?;
        pipes.theirs.push(theirs);
        let request = Request::Attach { container: id.0.clone(), streams };
        line.ask(request, pipes.theirs).await.map_err(failed)?;
        match line.answer().await.map_err(failed)? {
            Reply::Done => {}
            Reply::Failed(Fault::NotRunning | Fault::Unknown) => return Err(CriError::NotRunning { id: id.0.clone() }),
            Reply::Failed(fault) => return Err(failed(io::Error::other(refusal(fault)))),
            _ => return Err(failed(io::Error::other("sandbox monitor gave an unexpected answer"))),
        }
        let end = line::delivery(&parcel).await.map_err(failed)?;
        let wants_input = stdin && has_input;
        let (mut stdin, mut resize) = (None, None);
        match end {
            Some(master) if tty => {
                let terminal = Terminal::new(master).map_err(failed)?;
                stdin = wants_input.then(|| terminal.input()).transpose().map_err(failed)?;
                resize = Some(terminal.resize().map_err(failed)?);
            }
            Some(pipe) if wants_input => {
                let pipe = pipe::Sender::from_owned_fd_unchecked(pipe).map_err(failed)?;
                stdin = Some(Box::new(Feed { pipe, voice: line.voice() }) as Input);
            }
            Some(_) | None => {}
        }
        let voice = line.voice();
        let end = container_end(Arc::downgrade(self), id.clone(), line, over);
        let Some(input) = stdin.take_if(|_| input_stays) else {
            return Ok(Session { stdin, stdout, stderr, resize, exit: end.boxed() });
        };
        let (held, gone) = oneshot::channel();
        let exit = async move {
            tokio::select! {
                biased;
                ended = end => ended,
                _ = gone => Ok(0),
            }
        };
        let stdin = Some(Box::new(Held { input, voice, _held: held }) as Input);
        Ok(Session { stdin, stdout, stderr, resize, exit: exit.boxed() })
    }

    /// A connection of its own to the shim of a running container.
    fn line(&self, id: &ContainerId, what: &str) -> Result<Line, CriError> {
        let (sandbox, _) = self.monitor_of(id, wire::STREAMS_SINCE, what)?;
        Line::open(&self.dirs.run(&sandbox)).map_err(|error| CriError::Failed(format!("failed to {what}: {error}")))
    }
}

fn some_of(streams: wire::Streams) -> Result<wire::Streams, CriError> {
    if streams.stdin || streams.stdout || streams.stderr {
        Ok(streams)
    } else {
        Err(CriError::Invalid("one of `stdin`, `stdout`, or `stderr` must be set".into()))
    }
}

/// Dropped from the first to the last, the line before what is held.
struct Ending {
    line: Line,
    _held: Option<OwnedFd>,
}

fn exit_code(
    id: ContainerId,
    line: Line,
    held: Option<OwnedFd>,
) -> impl Future<Output = Result<i32, CriError>> + Send + 'static {
    let gone = |_| CriError::Failed("failed to exec in container: the sandbox's monitor process is gone".into());
    let mut ending = Ending { line, _held: held };
    async move {
        let ending = &mut ending;
        executed(&id, None, ending.line.answer().await.map_err(gone)?).map(|result| result.exit_code)
    }
}

async fn container_end(
    inner: Weak<Inner>,
    id: ContainerId,
    mut line: Line,
    mut over: watch::Receiver<bool>,
) -> Result<i32, CriError> {
    let gone = || CriError::Failed("failed to attach to container: the runtime was closed".into());
    let mut ended = async move { over.wait_for(|over| *over).await.map(|_| ()) }.boxed();
    loop {
        tokio::select! {
            biased;
            ended = &mut ended => {
                ended.map_err(|_| gone())?;
                break;
            }
            heard = line.hear() => match heard {
                Ok(Message::Lagged) => {
                    let message = "failed to attach to container: the client did not take its output in time";
                    return Err(CriError::Failed(message.into()));
                }
                Ok(_) => {}
                // The monitor has ended, and with it the container.
                Err(_) => {
                    ended.await.map_err(|_| gone())?;
                    break;
                }
            }
        }
    }
    let inner = inner.upgrade().ok_or_else(gone)?;
    let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
    let code = inner.table().containers.get(&id).map(|entry| entry.shown().exit_code);
    code.ok_or_else(missing)
}

/// Pipes to someone else; their ends in the order they were asked for.
#[derive(Default)]
struct Pipes {
    theirs: Vec<OwnedFd>,
}

impl Pipes {
    fn input(&mut self) -> io::Result<Input> {
        let (reader, writer) = io::pipe()?;
        self.theirs.push(reader.into());
        Ok(Box::new(pipe::Sender::from_owned_fd(writer.into())?))
    }

    fn output(&mut self) -> io::Result<Output> {
        let (reader, writer) = io::pipe()?;
        self.theirs.push(writer.into());
        Ok(Box::new(pipe::Receiver::from_owned_fd(reader.into())?))
    }

    /// Holds what a client may be behind, as far as the machine allows.
    fn wide_output(&mut self) -> io::Result<Output> {
        let output = self.output()?;
        if let Some(pipe) = self.theirs.last() {
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, LAG_BYTES_MAX);
        }
        Ok(output)
    }
}

/// The master side of a terminal. Does not block.
struct Terminal(OwnedFd);

impl Terminal {
    fn new(master: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&master, true)?;
        Ok(Self(master))
    }

    fn input(&self) -> io::Result<Input> {
        Ok(Box::new(pipe::Sender::from_owned_fd_unchecked(self.0.try_clone()?)?))
    }

    fn output(&self) -> io::Result<Output> {
        Ok(Box::new(Screen(pipe::Receiver::from_owned_fd_unchecked(self.0.try_clone()?)?)))
    }

    /// Takes new sizes until nobody has any to give.
    fn resize(self) -> io::Result<mpsc::Sender<TerminalSize>> {
        let (sizes, mut wanted) = mpsc::channel::<TerminalSize>(RESIZES_MAX);
        tokio::spawn(async move {
            while let Some(TerminalSize { columns, rows }) = wanted.recv().await {
                if let Err(error) = sys::set_terminal_size(&self.0, columns, rows) {
                    tracing::debug!(%error, "a terminal could not be resized");
                }
            }
        });
        Ok(sizes)
    }
}

/// What appears on a terminal. Its end is EIO, which means that nobody has it open any more.
struct Screen(pipe::Receiver);

impl AsyncRead for Screen {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf).map(|read| match read {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(()),
            other => other,
        })
    }
}

/// A client's hold on a container's input. The shim is told when it is dropped.
struct Feed {
    pipe: pipe::Sender,
    voice: Voice,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.voice.close_input();
    }
}

impl AsyncWrite for Feed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

/// Input of a client that leaves when it has no more to say: the container's
/// own goes on, so nothing else would end the session (as in containerd).
struct Held {
    input: Input,
    voice: Voice,
    /// Dropped with it, which is what the session waits for.
    _held: oneshot::Sender<()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.voice.hang_up();
    }
}

impl AsyncWrite for Held {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(cx)
    }
}
