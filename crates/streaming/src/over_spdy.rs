//! SPDY as the carrier: every stream of the command is a stream of its own,
//! which the client opens and names.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::command::{Client, Ends, PIECES_MAX, Piece, Said, Told, sizes};
use crate::room::{Place, Room};
use crate::spdy::{self, Gone, Outgoing, Stream, Unread};

/// API-635: what a client may take to open its streams, as upstream's server waits.
const OPENING_MAX: Duration = Duration::from_secs(30);

/// How long a client may take to close when all is said.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// The client's streams, and what must run for them to flow.
pub(crate) fn serve<IO>(io: IO, ends: Ends, room: Room) -> (Client, impl Future<Output = ()>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (says, said) = mpsc::channel(PIECES_MAX);
    let (tells, told) = mpsc::channel(PIECES_MAX);
    (Client { said, tells }, talk(io, (ends, room), says, told))
}

async fn talk<IO>(io: IO, (ends, room): (Ends, Room), says: mpsc::Sender<Piece>, mut told: mpsc::Receiver<Told>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (mut session, driver) = spdy::open(io, room);
    let talking = async {
        let Ok(Some(streams)) = tokio::time::timeout(OPENING_MAX, Streams::collect(&mut session, ends)).await else {
            return session.close().await;
        };
        let Streams { error, stdin, stdout, stderr, resize } = streams;
        let outputs = [&stdout, &stderr].map(|stream| stream.as_ref().map(|stream| stream.outgoing.clone()));
        let listening = async { tokio::join!(listen(stdin, &says), resizes(resize, &says)) };
        tokio::select! {
            biased;
            spoken = speak(&mut told, &outputs, &error.outgoing) => { let _: Result<(), Gone> = spoken; }
            // Its input is over, which says nothing about the client.
            _ = async { listening.await; std::future::pending::<()>().await } => {}
        }
        // A client that still speaks would take the end for a failure; it
        // closes when it has heard everything.
        tokio::time::sleep(FAREWELL_MAX).await;
        session.close().await;
    };
    let mut driver = std::pin::pin!(driver);
    tokio::select! {
        biased;
        // The client is gone; so is `says`.
        ended = &mut driver => return report(ended),
        () = talking => {}
    }
    report(driver.await);
}

pub(crate) fn report(ended: std::io::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a SPDY connection ended early");
    }
}

struct Streams {
    error: Stream,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

impl Streams {
    /// `None` when the client leaves before it has opened them all.
    async fn collect(session: &mut spdy::Session, ends: Ends) -> Option<Self> {
        let (mut error, mut stdin, mut stdout, mut stderr, mut resize) = (None, None, None, None, None);
        loop {
            let is_complete = error.is_some()
                && (!ends.stdin || stdin.is_some())
                && (!ends.stdout || stdout.is_some())
                && (!ends.stderr || stderr.is_some())
                && (!ends.tty || resize.is_some());
            if is_complete && let Some(error) = error.take() {
                return Some(Self { error, stdin, stdout, stderr, resize });
            }
            let stream = session.opened.recv().await?;
            let place = match stream.headers.get("streamtype").map(String::as_str) {
                Some("error") => &mut error,
                Some("stdin") => &mut stdin,
                Some("stdout") => &mut stdout,
                Some("stderr") => &mut stderr,
                Some("resize") => &mut resize,
                // Not asked for: it stays silent.
                _ => continue,
            };
            *place = Some(stream);
        }
    }
}

async fn listen(stdin: Option<Stream>, says: &mpsc::Sender<Piece>) {
    let Some(mut stdin) = stdin else { return };
    while let Some(Unread { data, place }) = stdin.incoming.recv().await {
        if says.send((Said::Stdin(data), place)).await.is_err() {
            return;
        }
    }
    let _ = says.send((Said::StdinEnded, Place::NONE)).await;
}

async fn resizes(resize: Option<Stream>, says: &mpsc::Sender<Piece>) {
    let Some(mut resize) = resize else { return };
    while let Some(unread) = resize.incoming.recv().await {
        for size in sizes(&unread.data) {
            if says.send((Said::Resize(size), Place::NONE)).await.is_err() {
                return;
            }
        }
    }
}

async fn speak(
    told: &mut mpsc::Receiver<Told>,
    [stdout, stderr]: &[Option<Outgoing>; 2],
    error: &Outgoing,
) -> Result<(), Gone> {
    while let Some(piece) = told.recv().await {
        let (stream, bytes) = match piece {
            Told::Stdout(bytes) => (stdout.as_ref(), bytes),
            Told::Stderr(bytes) => (stderr.as_ref(), bytes),
            Told::Status(status) => (Some(error), Bytes::from(status.to_string())),
        };
        if let Some(stream) = stream {
            stream.send(bytes).await?;
        }
    }
    for stream in [stdout.as_ref(), stderr.as_ref(), Some(error)].into_iter().flatten() {
        stream.end().await?;
    }
    Ok(())
}
