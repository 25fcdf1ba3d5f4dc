//! What the fuzz targets feed; in no build but theirs.

use std::io::Cursor;

use tokio::io::{AsyncRead, AsyncWrite, join, sink};
use tokio::runtime::{Builder, Runtime};

use crate::command::Ends;
use crate::room::Room;
use crate::upgrade::{Form, Version};
use crate::{spdy, websocket};

/// A client that says all this and then hangs up; what it is told is lost.
fn client(bytes: Vec<u8>) -> impl AsyncRead + AsyncWrite + Unpin {
    join(Cursor::new(bytes), sink())
}

/// Nobody really waits.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

pub fn spdy(bytes: &[u8]) {
    runtime().block_on(async {
        let (mut session, connection) = spdy::open(client(bytes.to_vec()), Room::default());
        let streams = async {
            let mut open = Vec::new();
            while let Some(mut stream) = session.opened.recv().await {
                while stream.incoming.try_recv().is_ok() {}
                open.push(stream);
            }
        };
        let _ = tokio::join!(connection, streams);
    });
}

/// A header block, as it is when it is unpacked.
pub fn spdy_headers(plain: &[u8]) {
    spdy::read_headers(plain);
}

/// An odd version: each piece (its length first) is a message in a good frame.
pub fn websocket(version: u8, bytes: &[u8]) {
    let protocols = [
        Version::V4(Form::Bytes),
        Version::V4(Form::Base64),
        Version::V5,
        Version::V1(Form::Bytes),
        Version::V1(Form::Base64),
    ];
    let protocol = protocols[usize::from(version / 2) % protocols.len()];
    let ends = Ends { stdin: true, stdout: true, stderr: true, tty: true };
    let bytes = if version % 2 == 0 { bytes.to_vec() } else { framed(bytes) };
    runtime().block_on(async {
        let (mut other, talk) = websocket::serve(client(bytes), protocol, ends, Room::default()).await;
        let listen = async {
            while other.said.recv().await.is_some() {}
            drop(other);
        };
        tokio::join!(talk, listen);
    });
}

/// Binary messages, masked with zeros.
fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let length = length % 126;
        let (piece, rest) = rest.split_at(usize::from(length).min(rest.len()));
        frames.extend([0x82, 0x80 | u8::try_from(piece.len()).expect("it is below 126"), 0, 0, 0, 0]);
        frames.extend_from_slice(piece);
        bytes = rest;
    }
    frames
}
