//! Addresses of names that pods choose.
//!
//! The system's resolver waits on a thread for as long as some stranger's name
//! server likes, and cannot be told to stop. So lookups have few threads, of
//! which one namespace has fewer, and one pod fewer still; whoever finds none
//! free waits within its own deadline.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// Threads that wait for name servers; a small part of those for blocking work.
const AT_ONCE_MAX: usize = 64;
const AT_ONCE_OF_NAMESPACE_MAX: usize = 8;
const AT_ONCE_OF_POD_MAX: usize = 2;

type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

pub(crate) struct Lookups {
    resolve: Resolve,
    all: Arc<Semaphore>,
    of_namespaces: Shares,
    of_pods: Shares,
}

/// Whoever uses some is known until the last is given back.
#[derive(Default)]
struct Shares(Mutex<BTreeMap<String, Weak<Semaphore>>>);

impl Shares {
    fn of(&self, who: &str, most: usize) -> Arc<Semaphore> {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shares.retain(|_, share| share.strong_count() > 0);
        let share = shares.get(who).and_then(Weak::upgrade).unwrap_or_else(|| Arc::new(Semaphore::new(most)));
        shares.insert(who.to_owned(), Arc::downgrade(&share));
        share
    }
}

impl Default for Lookups {
    fn default() -> Self {
        Self::through(Arc::new(|host, port| (host, port).to_socket_addrs().map(Iterator::collect)))
    }
}

impl Lookups {
    fn through(resolve: Resolve) -> Self {
        let all = Arc::new(Semaphore::new(AT_ONCE_MAX));
        Self { resolve, all, of_namespaces: Shares::default(), of_pods: Shares::default() }
    }

    /// By namespace and UID: the pod that chose the name.
    pub(crate) fn of<'a>(&'a self, namespace: &'a str, uid: &'a str) -> Resolver<'a> {
        Resolver { lookups: self, namespace, uid }
    }
}

/// Finds addresses on behalf of one pod.
#[derive(Clone, Copy)]
pub(crate) struct Resolver<'a> {
    lookups: &'a Lookups,
    namespace: &'a str,
    uid: &'a str,
}

impl Resolver<'_> {
    pub(super) async fn addresses(self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let Lookups { resolve, all, of_namespaces, of_pods } = self.lookups;
        let taken = |share: Arc<Semaphore>| async { share.acquire_owned().await.map_err(io::Error::other) };
        let own = taken(of_pods.of(self.uid, AT_ONCE_OF_POD_MAX)).await?;
        let shared = taken(of_namespaces.of(self.namespace, AT_ONCE_OF_NAMESPACE_MAX)).await?;
        let place = taken(all.clone()).await?;
        let (resolve, host) = (resolve.clone(), host.to_owned());
        let looked_up = tokio::task::spawn_blocking(move || {
            // Until the thread is free again, whether or not anybody still waits.
            let _held = (own, shared, place);
            resolve(&host, port)
        });
        looked_up.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::RwLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    #[allow(clippy::await_holding_lock, reason = "what waits for it are other threads")]
    async fn lc_244_a_name_that_never_answers_holds_its_own_namespace_only() {
        let (gate, stuck) = (Arc::new(RwLock::new(())), Arc::new(AtomicUsize::new(0)));
        let closed = gate.write().unwrap();
        let lookups = Lookups::through({
            let (gate, stuck) = (gate.clone(), stuck.clone());
            Arc::new(move |host, port| {
                if host.starts_with("stuck") {
                    stuck.fetch_add(1, Ordering::Relaxed);
                    drop(gate.read());
                }
                Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
            })
        });
        // Every caller has stopped waiting; the threads have not.
        let uids: Vec<String> = (0..20).map(|number| format!("hostile-{number}")).collect();
        for (round, uid) in uids.iter().chain(["hostile-0".to_owned()].iter().cycle().take(20)).enumerate() {
            let names: Vec<String> = (0..10).map(|number| format!("stuck-{round}-{number}")).collect();
            let asked = names.iter().map(|name| async {
                tokio::select! {
                    biased;
                    _ = lookups.of("hostile", uid).addresses(name, 80) => panic!("it never answers"),
                    () = tokio::task::yield_now() => {}
                }
            });
            join_all(asked).await;
        }
        let found = lookups.of("neighbour", "n").addresses("fine", 80).await.unwrap();
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 80))]);
        drop(closed);
        assert!(lookups.of("hostile", "hostile-0").addresses("fine", 80).await.is_ok(), "it has its share back");
        assert!(stuck.load(Ordering::Relaxed) <= AT_ONCE_OF_NAMESPACE_MAX);
        // When all threads are free again.
        drop(lookups.all.acquire_many(AT_ONCE_MAX.try_into().unwrap()).await.unwrap());
        lookups.of("neighbour", "n").addresses("fine", 80).await.unwrap();
        assert_eq!(lookups.of_pods.0.lock().unwrap().len(), 1, "shares nobody uses are forgotten");
        assert_eq!(lookups.of_namespaces.0.lock().unwrap().len(), 1);
    }
}
