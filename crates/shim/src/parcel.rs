//! Descriptors on their way through a unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};

/// Descriptors that come with one message at most.
pub const FDS_MAX: usize = 8;

/// Sends (the beginning of) `bytes` with these descriptors; how many bytes went.
pub fn send(socket: &impl AsFd, bytes: &[u8], fds: &[impl AsFd]) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(|fd| fd.as_fd().as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let rights = if raw.is_empty() { &[][..] } else { &rights[..] };
    loop {
        let flags = MsgFlags::MSG_NOSIGNAL;
        match sendmsg::<UnixAddr>(socket.as_fd().as_raw_fd(), &[IoSlice::new(bytes)], rights, flags, None) {
            Err(Errno::EINTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// Receives what is there: how many bytes, and the descriptors that came with them.
pub fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = nix::cmsg_space!([RawFd; FDS_MAX]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = loop {
        match recvmsg::<UnixAddr>(socket.as_fd().as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Err(Errno::EINTR) => {}
            received => break received?,
        }
    };
    let mut fds = Vec::new();
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just given us these descriptors.
            fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok((received.bytes, fds))
}

/// Sends one descriptor and nothing else.
pub fn hand_over(socket: &impl AsFd, fd: &impl AsFd) -> io::Result<()> {
    send(socket, b"f", &[fd.as_fd()]).map(|_| ())
}

/// Takes one descriptor; `None` when the other side had none.
pub fn take_over(socket: &impl AsFd) -> io::Result<Option<OwnedFd>> {
    receive(socket, &mut [0]).map(|(_, fds)| fds.into_iter().next())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_arrives_with_its_bytes_and_its_absence_is_noticed() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert_eq!(send(&here, b"hello", &[&writer]).unwrap(), 5);
        drop(writer);
        let mut buffer = [0; 16];
        let (length, mut fds) = receive(&there, &mut buffer).unwrap();
        assert_eq!((&buffer[..length], fds.len()), (&b"hello"[..], 1));
        std::fs::File::from(fds.remove(0)).write_all(b"x").unwrap();
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "x");
        hand_over(&here, &reader).unwrap();
        assert!(take_over(&there).unwrap().is_some());
        drop(here);
        assert!(take_over(&there).unwrap().is_none());
    }
}
