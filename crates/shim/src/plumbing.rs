//! What connects the shim with a container: pipes or a terminal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{F_SETFL, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Uid, pipe2};

use crate::builder::Ends;
use crate::wire::{ContainerSpec, Input};
use crate::{parcel, sys};

/// The shim's ends.
pub(crate) struct Ours {
    pub(crate) stdin: Stdin,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    pub(crate) sync: OwnedFd,
}

/// Makes both ends of everything.
pub(crate) fn lay(spec: &ContainerSpec) -> io::Result<(Ours, Ends)> {
    let (sync, sync_end) = socket()?;
    fcntl(&sync, F_SETFL(OFlag::O_NONBLOCK))?;
    if spec.tty {
        let (console, console_end) = socket()?;
        fcntl(&console, F_SETFL(OFlag::O_NONBLOCK))?;
        let ours = Ours { stdin: Stdin::Awaited(console), stdout: None, stderr: None, sync };
        let theirs = Ends { stdin: None, stdout: None, stderr: None, console: Some(console_end), sync: sync_end };
        return Ok((ours, theirs));
    }
    let (out, out_end) = pipe()?;
    let (err, err_end) = pipe()?;
    let (stdin, stdin_end) = match spec.input {
        Input::Null => (Stdin::None, None),
        Input::Open | Input::Once => {
            let (end, pipe) = pipe2(OFlag::O_CLOEXEC)?;
            fcntl(&pipe, F_SETFL(OFlag::O_NONBLOCK))?;
            (Stdin::Pipe { pipe, is_once: spec.input == Input::Once }, Some(end))
        }
    };
    let ours = Ours { stdin, stdout: Some(out), stderr: Some(err), sync };
    let theirs = Ends { stdin: stdin_end, stdout: Some(out_end), stderr: Some(err_end), console: None, sync: sync_end };
    Ok((ours, theirs))
}

/// Our end, which does not block, for reading; the other one for writing.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&reader, F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((reader, writer))
}

fn socket() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?)
}

/// What a container reads from.
pub(crate) enum Stdin {
    /// `/dev/null`, or ended.
    None,
    Pipe {
        pipe: OwnedFd,
        is_once: bool,
    },
    /// Its terminal will come over this.
    Awaited(OwnedFd),
    Terminal {
        master: OwnedFd,
        /// Ours, so that the terminal does not hang up while no process has it open.
        _peer: OwnedFd,
    },
}

impl Stdin {
    /// Once the container is made: where its terminal's output is read, if it has one.
    pub(crate) fn take_terminal(&mut self, uid: u32) -> io::Result<Option<OwnedFd>> {
        let Self::Awaited(console) = self else { return Ok(None) };
        let master = parcel::take_over(console)?.ok_or_else(|| io::Error::other("there is none"))?;
        fcntl(&master, F_SETFL(OFlag::O_NONBLOCK))?;
        let peer = sys::terminal_peer(master.as_fd())?;
        // So that the user can open its own /dev/stdout.
        nix::unistd::fchown(&peer, Some(Uid::from_raw(uid)), None)?;
        let output = master.try_clone()?;
        *self = Self::Terminal { master, _peer: peer };
        Ok(Some(output))
    }

    /// What a client gets: the writing end or the terminal.
    pub(crate) fn writer(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Pipe { pipe: end, .. } | Self::Terminal { master: end, .. } => Some(end.as_fd()),
            Self::None | Self::Awaited(_) => None,
        }
    }

    /// `stdinOnce`: input ends with the first client. That of a terminal stays, as in containerd.
    pub(crate) fn on_client_gone(&mut self) {
        if let Self::Pipe { is_once: true, .. } = self {
            self.close();
        }
    }

    /// The container is over, or has nothing more to read.
    pub(crate) fn close(&mut self) {
        *self = Self::None;
    }
}
