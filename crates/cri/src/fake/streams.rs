//! Live connections to the fake: a command says what its script says, then
//! repeats its input; an attached container and every port only repeat.

use futures::FutureExt as _;
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::{mpsc, oneshot};

use super::Fake;
use crate::{
    AttachRequest, Connection, ContainerId, CriError, ExecRequest, Input, Output, SandboxId, SandboxState, Session,
    TerminalSize,
};

/// What a reader may be behind.
const BUFFER_BYTES: usize = 64 << 10;
/// Terminal sizes nobody has looked at yet.
const SIZES_MAX: usize = 16;

/// Which ends of a session exist.
#[derive(Debug, Clone, Copy)]
struct Ends {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

/// The inside of a session: where the command writes to and reads from.
struct Inside {
    stdin: Option<DuplexStream>,
    stdout: Option<DuplexStream>,
    stderr: Option<DuplexStream>,
    sizes: Option<mpsc::Receiver<TerminalSize>>,
}

impl Fake {
    pub(super) fn exec_session(&self, id: &ContainerId, request: &ExecRequest) -> Result<Session, CriError> {
        let (exec, mut over) = self.next_exec(id, &request.command)?;
        let ends = Ends { stdin: request.stdin, stdout: request.stdout, stderr: request.stderr, tty: request.tty };
        Ok(session(ends, |mut inside| async move {
            let plays = async {
                inside.says(&exec.result.stdout, &exec.result.stderr).await;
                inside.repeats().await;
                tokio::time::sleep(exec.takes).await;
                exec.result.exit_code
            };
            tokio::select! {
                code = plays => code,
                _ = over.wait_for(|is_over| *is_over) => 137,
            }
        }))
    }

    pub(super) fn attach_session(&self, id: &ContainerId, request: AttachRequest) -> Result<Session, CriError> {
        let mut over = self.over_if_running(id)?;
        let config = self.world().held(id).map(|held| held.config.clone());
        let (has_stdin, tty) = config.map_or((false, false), |config| (config.stdin, config.tty));
        let ends =
            Ends { stdin: request.stdin && has_stdin, stdout: request.stdout, stderr: request.stderr && !tty, tty };
        let (fake, id) = (self.clone(), id.clone());
        Ok(session(ends, |mut inside| async move {
            tokio::select! {
                () = async { inside.repeats().await; std::future::pending().await } => {}
                _ = over.wait_for(|is_over| *is_over) => {}
            }
            fake.world().held(&id).map_or(0, |held| held.record.exit_code)
        }))
    }

    pub(super) fn connection(&self, id: &SandboxId, port: u16) -> Result<Box<dyn Connection>, CriError> {
        let mut world = self.world();
        let missing = || CriError::NotFound { what: "sandbox", id: id.0.clone() };
        let sandbox = world.sandboxes.iter().find(|sandbox| sandbox.id == *id).ok_or_else(missing)?;
        if sandbox.state != SandboxState::Ready {
            return Err(CriError::Failed(format!("sandbox {id} is not ready")));
        }
        let call = format!("port_forward {}/{} {port}", sandbox.meta.name, sandbox.meta.attempt);
        world.calls.push(call);
        let (outside, inside) = duplex(BUFFER_BYTES);
        tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(inside);
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        Ok(Box::new(outside))
    }
}

/// Plays in a task of its own until it ends or nobody holds the session.
fn session<F>(ends: Ends, plays: impl FnOnce(Inside) -> F) -> Session
where
    F: Future<Output = i32> + Send + 'static,
{
    let end = |is: bool| is.then(|| duplex(BUFFER_BYTES)).unzip();
    let ((stdin, stdin_inside), (stdout, stdout_inside)) = (end(ends.stdin), end(ends.stdout));
    let (stderr, stderr_inside) = end(ends.stderr);
    let (resize, sizes) = ends.tty.then(|| mpsc::channel(SIZES_MAX)).unzip();
    let inside = Inside { stdin: stdin_inside, stdout: stdout_inside, stderr: stderr_inside, sizes };
    let (mut done, ended) = oneshot::channel();
    let plays = plays(inside);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = done.closed() => {}
            code = plays => { let _ = done.send(code); }
        }
    });
    let exit = async move { ended.await.map_err(|_| CriError::Failed("the command was lost".into())) };
    Session {
        stdin: stdin.map(|stream| Box::new(stream) as Input),
        stdout: stdout.map(|stream| Box::new(stream) as Output),
        stderr: stderr.map(|stream| Box::new(stream) as Output),
        resize,
        exit: exit.boxed(),
    }
}

impl Inside {
    async fn says(&mut self, stdout: &[u8], stderr: &[u8]) {
        for (stream, said) in [(&mut self.stdout, stdout), (&mut self.stderr, stderr)] {
            if let Some(stream) = stream {
                let _ = stream.write_all(said).await;
            }
        }
    }

    /// Its input, and on a terminal the sizes it is told, until the input ends.
    async fn repeats(&mut self) {
        let (Some(stdin), Some(stdout)) = (&mut self.stdin, &mut self.stdout) else { return };
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            tokio::select! {
                biased;
                Some(size) = next_size(&mut self.sizes) => {
                    let _ = stdout.write_all(format!("{}x{}\n", size.columns, size.rows).as_bytes()).await;
                }
                read = tokio::io::AsyncReadExt::read(stdin, &mut buffer) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(count) => { let _ = stdout.write_all(&buffer[..count]).await; }
                },
            }
        }
    }
}

async fn next_size(sizes: &mut Option<mpsc::Receiver<TerminalSize>>) -> Option<TerminalSize> {
    match sizes {
        Some(sizes) => sizes.recv().await,
        None => None,
    }
}
