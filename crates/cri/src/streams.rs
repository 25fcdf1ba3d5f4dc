//! Live connections into containers: exec, attach, port-forward.

use std::fmt;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::runtime::CriError;

/// What a command in a container is connected to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecRequest {
    pub command: Vec<String>,
    pub tty: bool,
    pub stdin: bool,
    pub stdout: bool,
    /// Never with `tty`.
    pub stderr: bool,
}

/// Which streams of the container's own process to connect to. Whether it has
/// a terminal was decided when it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttachRequest {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

/// How the caller reaches a stream.
#[derive(Debug)]
pub enum Streaming<T> {
    /// Here it is.
    Here(T),
    /// A remote runtime serves it under this URL; pass the client's upgraded
    /// connection through.
    At(String),
}

pub type Input = Box<dyn AsyncWrite + Send + Unpin>;
pub type Output = Box<dyn AsyncRead + Send + Unpin>;

/// A running command, or a client attached to a container.
pub struct Session {
    /// Dropping it ends the input.
    pub stdin: Option<Input>,
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    /// Of the terminal, where there is one.
    pub resize: Option<mpsc::Sender<TerminalSize>>,
    /// The exit code once it is over (128 + n for a signal n). For attach:
    /// when the container ended. Outputs may still hold data then.
    pub exit: BoxFuture<'static, Result<i32, CriError>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

/// One connection to a port inside a pod.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl fmt::Debug for dyn Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}
