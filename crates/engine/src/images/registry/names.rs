//! Addresses of registries, whose names anybody may choose.
//!
//! The system's resolver waits on a thread for as long as a name server likes,
//! and cannot be told to stop: so it has a few of them and no more.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Semaphore;
use tower::Service;

/// Threads that wait for name servers; a small part of those for blocking work.
const AT_ONCE_MAX: usize = 64;

type Found = std::vec::IntoIter<SocketAddr>;
type Resolve = dyn Fn(&str) -> io::Result<Found> + Send + Sync;

#[derive(Clone)]
pub(in crate::images) struct Names {
    resolve: Arc<Resolve>,
    places: Arc<Semaphore>,
}

impl Default for Names {
    fn default() -> Self {
        Self { resolve: Arc::new(|host| (host, 0).to_socket_addrs()), places: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }
}

impl Service<Name> for Names {
    type Response = Found;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Found>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { resolve, places } = self.clone();
        async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            let looked_up = tokio::task::spawn_blocking(move || {
                // Until the thread is free again, whether or not anybody still waits.
                let _place = place;
                resolve(name.as_str())
            });
            looked_up.await.map_err(io::Error::other)?
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::RwLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    #[allow(clippy::await_holding_lock, reason = "what waits for it are other threads")]
    async fn names_that_never_answer_hold_a_few_threads_and_no_more() {
        let (gate, stuck) = (Arc::new(RwLock::new(())), Arc::new(AtomicUsize::new(0)));
        let closed = gate.write().unwrap();
        let resolve = {
            let (gate, stuck) = (gate.clone(), stuck.clone());
            move |host: &str| {
                stuck.fetch_add(1, Ordering::Relaxed);
                drop(gate.read());
                (host, 0).to_socket_addrs()
            }
        };
        let mut names = Names { resolve: Arc::new(resolve), ..Names::default() };
        for _ in 0..AT_ONCE_MAX * 3 {
            let mut asked = names.call("127.0.0.1".parse().unwrap());
            assert!(futures::poll!(&mut asked).is_pending(), "who asks stops waiting, the thread does not");
        }
        drop(closed);
        assert_eq!(names.call("127.0.0.1".parse().unwrap()).await.unwrap().len(), 1);
        assert!(stuck.load(Ordering::Relaxed) <= AT_ONCE_MAX + 1);
    }
}
