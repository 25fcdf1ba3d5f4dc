//! Forwarded ports (API-636): pairs of streams, one for data and one for what went
//! wrong, over SPDY or over SPDY inside a WebSocket.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cri::{Connection, CriError};
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::over_spdy::report;
use crate::room::Room;
use crate::spdy::{self, Gone, Outgoing, Stream};

/// The pod whose ports are forwarded.
#[derive(Clone)]
pub struct Target {
    pub dial: Dial,
    /// As failures name it.
    pub pod: String,
    /// Empty where nobody knows it.
    pub uid: String,
}

/// Connects to a port of the pod.
pub type Dial = Arc<dyn Fn(u16) -> BoxFuture<'static, Result<Box<dyn Connection>, CriError>> + Send + Sync>;

/// Of a connection, sent as one.
pub(crate) const PIECE_BYTES: usize = 32 << 10;
/// Streams that wait for their other half.
const HALVES_MAX: usize = 64;
/// Connections into the pod for one client, whether it still listens or not.
const CONNECTIONS_MAX: usize = 512;

/// Until the client is gone.
pub(crate) async fn serve<IO>(io: IO, target: Target, room: Room)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (session, driver) = spdy::open(io, room);
    let forwarding = forward(session, target);
    tokio::select! {
        biased;
        ended = driver => report(ended),
        () = forwarding => {}
    }
}

async fn forward(mut session: spdy::Session, target: Target) {
    // By the number the client gives each connection.
    let mut halves: BTreeMap<String, Halves> = BTreeMap::new();
    let mut connections = JoinSet::new();
    while let Some(stream) = session.opened.recv().await {
        while let Some(ended) = connections.try_join_next() {
            seen(ended);
        }
        let is_data = match stream.headers.get("streamtype").map(String::as_str) {
            Some("data") => true,
            Some("error") => false,
            // Not asked for: it stays silent.
            _ => continue,
        };
        let number = stream.headers.get("requestid").cloned().unwrap_or_default();
        let pair = halves.entry(number.clone()).or_default();
        *if is_data { &mut pair.data } else { &mut pair.error } = Some(stream);
        if let Halves { data: Some(_), error: Some(_) } = pair
            && let Some(Halves { data: Some(data), error: Some(error) }) = halves.remove(&number)
        {
            if connections.len() < CONNECTIONS_MAX {
                connections.spawn(one(data, error, target.clone()));
            } else {
                refuse(&data, &error, format!("too many connections: at most {CONNECTIONS_MAX} at a time")).await;
            }
        }
        if halves.len() > HALVES_MAX {
            return session.close().await;
        }
    }
}

fn seen(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a forwarded connection failed");
    }
}

/// Says why there is no connection.
async fn refuse(data: &Stream, error: &Stream, why: String) {
    let _ = error.outgoing.send(Bytes::from(why)).await;
    let _ = error.outgoing.end().await;
    let _ = data.outgoing.end().await;
}

#[derive(Default)]
struct Halves {
    data: Option<Stream>,
    error: Option<Stream>,
}

impl Target {
    /// A connection, or what to tell the client.
    pub(crate) async fn connect(&self, port: u16) -> Result<Box<dyn Connection>, String> {
        let Self { pod, uid, .. } = self;
        let connected = (self.dial)(port).await;
        connected.map_err(|error| format!("error forwarding port {port} to pod {pod}, uid {uid}: {error}"))
    }
}

/// One connection, from its first byte to its last.
async fn one(data: Stream, error: Stream, target: Target) {
    let told = data.headers.get("port").cloned().unwrap_or_default();
    let connected = match told.parse::<u16>() {
        Ok(port @ 1..) => target.connect(port).await,
        _ => Err(format!("unable to parse {told:?} as a port")),
    };
    match connected {
        Ok(connection) => exchange(data, &error.outgoing, connection).await,
        Err(failure) => refuse(&data, &error, failure).await,
    }
}

async fn exchange(data: Stream, error: &Outgoing, connection: Box<dyn Connection>) {
    let Stream { mut incoming, outgoing, .. } = data;
    let (mut read, mut write) = tokio::io::split(connection);
    let into = async {
        while let Some(unread) = incoming.recv().await {
            if write.write_all(&unread.data).await.is_err() {
                break;
            }
        }
        let _ = write.shutdown().await;
    };
    let out = async {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            outgoing.send(Bytes::copy_from_slice(&buffer[..count])).await?;
        }
        // Nothing went wrong.
        error.end().await?;
        outgoing.end().await
    };
    let (_, _): ((), Result<(), Gone>) = tokio::join!(into, out);
}
