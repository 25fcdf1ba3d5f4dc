//! Clients attached to a container: what it says is copied into their pipes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::fcntl::{F_SETFL, OFlag, fcntl};

use crate::log::Which;

/// Attached to one container at a time.
const CLIENTS_MAX: usize = 32;
/// How long a client may take nothing at all while its pipe is full. So long,
/// at most, it holds the container up; then it is attached no longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Everyone attached to one container.
///
/// Nothing is dropped silently: while a client's pipe is full the container's
/// output waits, so that one that is slow gets everything (`kubectl run -i` is
/// used to carry data). One that is stuck is detached, and told so.
#[derive(Default)]
pub(crate) struct Clients(Vec<Client>);

struct Client {
    connection: u64,
    /// By [`Which`].
    taps: [Option<Tap>; 2],
    /// Writes to the container's input.
    feeds: bool,
}

/// The writing end of a client's pipe.
struct Tap {
    pipe: File,
    /// What found no room: the rest of one piece of output.
    unsent: Vec<u8>,
    /// When it has last taken something.
    since: Duration,
}

impl Clients {
    /// `outputs` are the writing ends of the client's pipes.
    pub(crate) fn add(&mut self, connection: u64, outputs: [Option<OwnedFd>; 2], feeds: bool) -> io::Result<()> {
        if self.0.len() >= CLIENTS_MAX {
            return Err(io::Error::other("too many clients are attached"));
        }
        for pipe in outputs.iter().flatten() {
            fcntl(pipe, F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let tap = |pipe: OwnedFd| Tap { pipe: File::from(pipe), unsent: Vec::new(), since: Duration::ZERO };
        self.0.push(Client { connection, taps: outputs.map(|end| end.map(tap)), feeds });
        Ok(())
    }

    /// Copies output to everyone who wants it.
    pub(crate) fn tell(&mut self, which: Which, output: &[u8], now: Duration) {
        for tap in self.0.iter_mut().map(|client| &mut client.taps[which as usize]) {
            if let Some(open) = tap {
                open.unsent.extend_from_slice(output);
                open.since = now;
                if !open.flush(now) {
                    *tap = None;
                }
            }
        }
    }

    /// Tries again to get rid of what found no room.
    pub(crate) fn flush(&mut self, now: Duration) {
        for tap in self.0.iter_mut().flat_map(|client| &mut client.taps) {
            if tap.as_mut().is_some_and(|open| !open.flush(now)) {
                *tap = None;
            }
        }
    }

    /// Whether this output has to wait for someone.
    pub(crate) fn hold_up(&self, which: Which) -> bool {
        self.0.iter().any(|client| client.taps[which as usize].as_ref().is_some_and(Tap::is_behind))
    }

    /// Pipes whose room is waited for.
    pub(crate) fn full_pipes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0
            .iter()
            .flat_map(|client| &client.taps)
            .flatten()
            .filter(|tap| tap.is_behind())
            .map(|tap| tap.pipe.as_fd())
    }

    /// Connections of those who are stuck, and when the next one will be.
    pub(crate) fn take_stuck(&mut self, now: Duration) -> (Vec<u64>, Option<Duration>) {
        let until = |client: &Client| {
            let behind = client.taps.iter().flatten().filter(|tap| tap.is_behind());
            behind.map(|tap| tap.since + PATIENCE).min()
        };
        let stuck = self.0.extract_if(.., |client| until(client).is_some_and(|at| at <= now));
        let stuck = stuck.map(|client| client.connection).collect();
        (stuck, self.0.iter().filter_map(until).min().map(|at| at.saturating_sub(now)))
    }

    /// Whether this connection's client wrote to the container's input; it
    /// does not from now on.
    pub(crate) fn stop_feeding(&mut self, connection: u64) -> bool {
        let of_it = self.0.iter_mut().find(|client| client.connection == connection);
        of_it.is_some_and(|client| std::mem::take(&mut client.feeds))
    }

    /// This connection has ended.
    pub(crate) fn remove(&mut self, connection: u64) {
        self.0.retain(|client| client.connection != connection);
    }

    /// Nothing more will be said.
    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

impl Tap {
    fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// False when nobody reads it any more.
    fn flush(&mut self, now: Duration) -> bool {
        while self.is_behind() {
            match self.pipe.write(&self.unsent) {
                Ok(length) => {
                    self.unsent.drain(..length);
                    self.since = now;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        self.unsent = Vec::new();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_stuck_client_is_dropped_and_the_others_hear_everything() {
        let mut clients = Clients::default();
        let (_stuck, stuck_end) = std::io::pipe().unwrap();
        let (mut good, good_end) = std::io::pipe().unwrap();
        let (gone, gone_end) = std::io::pipe().unwrap();
        drop(gone);
        for (connection, end) in [(1, stuck_end), (2, good_end), (3, gone_end)] {
            clients.add(connection, [Some(end.into()), None], connection == 2).unwrap();
        }
        let mut heard = vec![0; 1000];
        let mut seconds = 0;
        let mut dropped = Vec::new();
        for _ in 0..100 {
            let now = Duration::from_secs(seconds);
            clients.tell(Which::Stdout, &[b'x'; 1000], now);
            clients.tell(Which::Stderr, b"not asked for", now);
            good.read_exact(&mut heard).unwrap();
            // The container waits while someone is behind, for a while.
            while clients.hold_up(Which::Stdout) {
                assert_eq!((clients.full_pipes().count(), clients.hold_up(Which::Stderr)), (1, false));
                seconds += 1;
                clients.flush(Duration::from_secs(seconds));
                let (stuck, due) = clients.take_stuck(Duration::from_secs(seconds));
                assert_eq!(due.is_some(), stuck.is_empty());
                dropped.extend(stuck);
            }
        }
        assert_eq!((dropped, seconds), (vec![1], PATIENCE.as_secs()));
        assert_eq!(clients.0.len(), 2);
        assert!(clients.stop_feeding(2) && !clients.stop_feeding(2) && !clients.stop_feeding(3));
        clients.clear();
        assert_eq!(good.read(&mut heard).unwrap(), 0);
    }
}
