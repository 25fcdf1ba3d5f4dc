//! Connections to ports inside a pod.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use cri::{CriError, NamespaceMode, SandboxId, SandboxState};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;

use crate::engine::Inner;

impl Inner {
    /// To the pod's loopback: IPv4, then IPv6, as in containerd.
    pub(crate) async fn port_forward(&self, id: &SandboxId, port: u16) -> Result<TcpStream, CriError> {
        let failed = |error: io::Error| {
            CriError::Failed(format!("failed to execute portforward in network namespace of sandbox {id}: {error}"))
        };
        let namespace = self.network_namespace(id)?.map(File::open).transpose().map_err(failed)?;
        let [v4, v6] = sockets(namespace).await.map_err(failed)?;
        let refused_v4 = match connect(v4, (Ipv4Addr::LOCALHOST, port).into()).await {
            Ok(stream) => return Ok(stream),
            Err(error) => format!("dial tcp4 127.0.0.1:{port}: {error}"),
        };
        let refused_v6 = match connect(v6, (Ipv6Addr::LOCALHOST, port).into()).await {
            Ok(stream) => return Ok(stream),
            Err(error) => format!("dial tcp6 [::1]:{port}: {error}"),
        };
        Err(CriError::Failed(format!(
            "failed to connect to localhost:{port} inside namespace {:?}, IPv4: {refused_v4} IPv6 {refused_v6}",
            id.0
        )))
    }

    /// `None`: the node's own.
    fn network_namespace(&self, id: &SandboxId) -> Result<Option<String>, CriError> {
        let table = self.table();
        let missing = || CriError::NotFound { what: "sandbox", id: id.0.clone() };
        let entry = table.sandboxes.get(id).ok_or_else(missing)?;
        if entry.record.state != SandboxState::Ready || entry.shim.is_none() {
            return Err(CriError::Failed(format!("sandbox {id} is not ready")));
        }
        let is_own = entry.record.config.network != NamespaceMode::Node;
        Ok(is_own.then(|| format!("/proc/{}/ns/net", entry.record.shim_pid)))
    }
}

type Sockets = [io::Result<TcpSocket>; 2];

/// A socket belongs to the namespace it was made in, for ever. Only a thread
/// of its own may go there, because it does not come back.
async fn sockets(namespace: Option<File>) -> io::Result<Sockets> {
    let make = || [TcpSocket::new_v4(), TcpSocket::new_v6()];
    let Some(namespace) = namespace else { return Ok(make()) };
    let (report, made) = oneshot::channel();
    std::thread::Builder::new().name("port-forward".into()).spawn(move || {
        let entered = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
        // Whoever asked may have stopped waiting.
        let _ = report.send(entered.map(|()| make()).map_err(io::Error::from));
    })?;
    made.await.map_err(io::Error::other)?
}

/// Errors in Go's words.
async fn connect(socket: io::Result<TcpSocket>, address: SocketAddr) -> Result<TcpStream, String> {
    let worded = |call: &str, error: &io::Error| {
        let errno = error.raw_os_error().map(nix::errno::Errno::from_raw);
        let text = errno.map_or_else(|| error.to_string(), |errno| errno.desc().to_lowercase());
        format!("{call}: {text}")
    };
    let socket = socket.map_err(|error| worded("socket", &error))?;
    socket.connect(address).await.map_err(|error| worded("connect", &error))
}
