//! One engine's connection: what it has sent and we have not heard yet, and what
//! it has not taken yet. Never waited for: an engine that is busy writing to us
//! reads later.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::wire::{self, Message};

/// What one engine has not taken yet: more than one message of any size.
const UNSENT_BYTES_MAX: usize = 2 * wire::FRAME_BYTES_MAX;
/// How long an engine may take to take the last answer.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    pub(crate) received: Vec<u8>,
    pub(crate) unsent: Vec<u8>,
    /// Descriptors that came and were not used yet.
    pub(crate) fds: Vec<OwnedFd>,
    /// Belongs to one command or client: is told nothing else.
    pub(crate) is_stream: bool,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Vec::new(), unsent: Vec::new(), fds: Vec::new(), is_stream: false })
    }

    /// `Err` when it takes nothing any more, or too little.
    pub(crate) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.unsent.extend_from_slice(&wire::frame(message)?);
        self.flush()?;
        if self.unsent.len() > UNSENT_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too much is unsent"));
        }
        Ok(())
    }

    /// Sends what it takes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(length) => sent += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        Ok(())
    }

    /// Sends the rest; whoever does not take it does not want it.
    pub(crate) fn finish(mut self) {
        let wait = || {
            self.stream.set_nonblocking(false)?;
            self.stream.set_write_timeout(Some(FINISH_TIMEOUT))
        };
        let _ = wait().and_then(|()| self.stream.write_all(&self.unsent));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::wire::{Fault, Reply};

    fn message(length: usize) -> Message {
        Message::Reply { seq: 1, reply: Reply::Failed(Fault::Failed("x".repeat(length))) }
    }

    #[test]
    fn an_engine_that_does_not_read_is_not_waited_for_and_misses_nothing() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours).unwrap();
        connection.send(&message(wire::FRAME_BYTES_MAX - 1000)).unwrap();
        connection.send(&message(1)).unwrap();
        assert!(!connection.unsent.is_empty());
        let reader = std::thread::spawn(move || {
            let mut heard = Vec::new();
            theirs.read_to_end(&mut heard).unwrap();
            heard
        });
        connection.finish();
        let mut heard = reader.join().unwrap();
        for length in [wire::FRAME_BYTES_MAX - 1000, 1] {
            assert_eq!(wire::take::<Message>(&mut heard).unwrap(), Some(message(length)));
        }
        assert!(heard.is_empty());
    }

    #[test]
    fn an_engine_that_never_reads_is_given_up() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours).unwrap();
        let sent = (0..100).take_while(|_| connection.send(&message(1 << 20)).is_ok()).count();
        assert!((8..12).contains(&sent), "{sent}");
    }
}
