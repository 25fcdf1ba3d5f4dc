//! A session and a client, whatever carries the client's streams.

use std::time::Duration;

use bytes::Bytes;
use cri::{CriError, Input, Output, Session, TerminalSize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::room::Place;

/// What the client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Stdin(Bytes),
    StdinEnded,
    Resize(TerminalSize),
}

impl Said {
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Stdin(bytes) => bytes.len(),
            Self::StdinEnded | Self::Resize(_) => 0,
        }
    }
}

/// What the client is told, and on which stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Stdout(Bytes),
    Stderr(Bytes),
    /// How it ended, as a `Status`; nothing comes after it.
    Status(Value),
}

/// With the place it has until somebody takes it.
pub(crate) type Piece = (Said, Place);

/// The other end. `said` ends when the client is gone.
pub(crate) struct Client {
    pub(crate) said: mpsc::Receiver<Piece>,
    pub(crate) tells: mpsc::Sender<Told>,
}

/// Which streams a session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

impl Ends {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            stdin: session.stdin.is_some(),
            stdout: session.stdout.is_some(),
            stderr: session.stderr.is_some(),
            tty: session.resize.is_some(),
        }
    }
}

/// Pieces on their way to or from a client.
pub(crate) const PIECES_MAX: usize = 16;
/// Of output, sent as one.
const PIECE_BYTES: usize = 32 << 10;

/// So long a command has for what a client said before it went.
const LAST_WORDS_MAX: Duration = Duration::from_secs(5);

/// What a session is, which decides how its end is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Exec,
    Attach,
}

/// Returns when the command has ended, or the client is gone; the session is
/// dropped then, which ends a command that still runs.
pub(crate) async fn converse(session: Session, purpose: Purpose, client: Client) {
    let Session { stdin, stdout, stderr, resize, exit } = session;
    let Client { said, tells } = client;
    let listening = listen(said, stdin, resize);
    let speaking = async {
        tokio::join!(speak(stdout, &tells, Told::Stdout), speak(stderr, &tells, Told::Stderr));
        // A client that left does not want to know.
        let _ = tells.send(Told::Status(status(purpose, exit.await))).await;
    };
    // Its last words may still be taken, but not for ever.
    let gone = async {
        tells.closed().await;
        tokio::time::sleep(LAST_WORDS_MAX).await;
    };
    tokio::select! {
        biased;
        () = speaking => {}
        () = listening => {}
        () = gone => {}
    }
}

/// Until the client is gone.
async fn listen(mut said: mpsc::Receiver<Piece>, mut stdin: Option<Input>, resize: Option<mpsc::Sender<TerminalSize>>) {
    while let Some((piece, _place)) = said.recv().await {
        match piece {
            Said::Stdin(bytes) => {
                if let Some(input) = &mut stdin
                    && (input.write_all(&bytes).await.is_err() || input.flush().await.is_err())
                {
                    // Nobody reads it any more. The output may go on.
                    stdin = None;
                }
            }
            Said::StdinEnded => {
                if let Some(mut input) = stdin.take() {
                    let _ = input.shutdown().await;
                }
            }
            Said::Resize(size) => {
                if let Some(resize) = &resize {
                    let _ = resize.send(size).await;
                }
            }
        }
    }
}

/// Until the stream ends or the client is gone.
async fn speak(output: Option<Output>, tells: &mpsc::Sender<Told>, told: impl Fn(Bytes) -> Told) {
    let Some(mut output) = output else { return };
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        match output.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if tells.send(told(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// API-631: the `Status` object that clients read the exit code from.
fn status(purpose: Purpose, exit: Result<i32, CriError>) -> Value {
    match (purpose, exit) {
        // How the container ended is not how attaching to it went.
        (Purpose::Exec, Ok(0)) | (Purpose::Attach, Ok(_)) => json!({ "metadata": {}, "status": "Success" }),
        (Purpose::Exec, Ok(code)) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
        }),
        (Purpose::Exec, Err(error)) => internal(&format!("error executing command in container: {error}")),
        (Purpose::Attach, Err(error)) => internal(&format!("error attaching to container: {error}")),
    }
}

fn internal(detail: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {detail}"),
        "reason": "InternalError",
        "details": { "causes": [{ "message": detail }] },
        "code": 500,
    })
}

/// How clients write a terminal's size.
#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

/// API-630: every size in a piece; there may be several, or none that makes sense.
pub(crate) fn sizes(piece: &[u8]) -> impl Iterator<Item = TerminalSize> {
    let sizes = serde_json::Deserializer::from_slice(piece).into_iter::<Size>();
    let sizes: Vec<Size> = sizes.map_while(Result::ok).collect();
    sizes.into_iter().map(|size| TerminalSize { columns: size.width, rows: size.height })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_631_exits_are_told_as_clients_read_them() {
        let status = |purpose, exit| super::status(purpose, exit).to_string();
        assert_eq!(status(Purpose::Exec, Ok(0)), r#"{"metadata":{},"status":"Success"}"#);
        let failed = status(Purpose::Exec, Ok(3));
        assert!(failed.contains(r#""causes":[{"reason":"ExitCode","message":"3"}]"#), "{failed}");
        assert!(failed.contains("command terminated with non-zero exit code: exit status 3"), "{failed}");
        let lost = status(Purpose::Exec, Err(CriError::Failed("it was lost".into())));
        let message = "Internal error occurred: error executing command in container: it was lost";
        assert!(lost.contains(&format!(r#""message":"{message}","reason":"InternalError""#)), "{lost}");
        assert_eq!(status(Purpose::Attach, Ok(3)), r#"{"metadata":{},"status":"Success"}"#);
    }

    #[test]
    fn sizes_are_read_one_after_the_other() {
        let read = |text: &str| sizes(text.as_bytes()).map(|size| (size.columns, size.rows)).collect::<Vec<_>>();
        assert_eq!(read("{\"Width\":80,\"Height\":24}\n{\"Width\":100,\"Height\":40}\n"), [(80, 24), (100, 40)]);
        assert_eq!(read("{\"Width\":-1}"), []);
        assert_eq!(read(""), []);
    }
}
