//! `podium cri serve`: the embedded runtime behind a standard CRI socket.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ambient::{Clock, Ids, Rng};
use anyhow::{Context, Result, bail};
use criwire::{Server, ServerConfig};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::cli::CriServe;
use crate::containers::{self, PodNetwork};
use crate::instance::{Instance, make_private_dir};
use crate::{control, preflight};

pub(crate) fn run(args: &CriServe) -> Result<()> {
    preflight::check()?;
    tokio::runtime::Runtime::new()?.block_on(serve(args))
}

async fn serve(args: &CriServe) -> Result<()> {
    let mut rng = Rng::from_os();
    let (clock, ids) = (Clock::system(), Ids::new(rng.split()));
    let mut stopping = control::stop_signals()?;
    let given = args.listen.as_deref().map(socket_path).transpose()?;
    let instance = Instance::open(args.place.places(), args.pod_cidr.as_deref(), &mut rng)?;
    let path = given.unwrap_or_else(|| instance.places.run.join("cri.sock"));
    let registries = containers::registries(&args.registries, false);
    let network = PodNetwork { cni: args.cni.config(), ..PodNetwork::default() };
    let engine = containers::open_engine(&instance, registries, network, &clock, &ids).await?;
    make_private_dir(&instance.places.run)?;
    let listener = listen(&path).await?;
    // Streams are for who was given a URL over the socket: never beyond this machine.
    let streams = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
    let config = ServerConfig { log_root: instance.places.pod_logs(), streams_at: streams.local_addr()? };
    println!("serving CRI v1 on unix://{}", path.display());
    let server = Server::new(engine, config, clock, ids);
    tokio::select! {
        biased;
        stopped = stopping.wait_for(|stop| *stop) => { stopped.context("signals can no longer be received")?; }
        () = server.serve(listener, streams) => {}
    }
    let _ = fs::remove_file(&path);
    Ok(())
}

fn socket_path(endpoint: &str) -> Result<PathBuf> {
    let path = PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    if !path.is_absolute() {
        bail!("--listen: {endpoint:?} is no socket: say unix:///run/podium/cri.sock");
    }
    Ok(path)
}

/// Only root may connect: whoever can, owns the machine.
async fn listen(path: &Path) -> Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        if UnixStream::connect(path).await.is_ok() {
            bail!("somebody serves {} already: stop that first, or give another --listen", path.display());
        }
        // Left by one that was killed.
        fs::remove_file(path).with_context(|| format!("cannot remove the old {}", path.display()))?;
    }
    // From the first moment on.
    let usual = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(usual);
    listener.with_context(|| format!("cannot listen on {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn sockets_are_named_by_url_or_path() {
        assert_eq!(socket_path("unix:///run/p.sock").unwrap(), Path::new("/run/p.sock"));
        assert_eq!(socket_path("/run/p.sock").unwrap(), Path::new("/run/p.sock"));
        assert!(socket_path("tcp://127.0.0.1:1").is_err());
    }

    #[tokio::test]
    async fn a_socket_left_by_the_dead_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cri.sock");
        drop(listen(&path).await.unwrap());
        let listener = listen(&path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listen(&path).await.unwrap_err().to_string().contains("already"));
        drop(listener);
    }
}
