//! etcd goes away and comes back: what fails meanwhile, what goes on, and
//! that nothing is lost or seen twice. No restart of the store in any of it.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use store::{Etcd, EtcdOptions, ListRequest, Op, OpenError, ReadError, Revision, Store, WatchError, WriteError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cases::{A, B, collect, put, text};
use crate::engines::options;
use crate::etcd_server::EtcdServer;

/// An address that stays the same while etcd moves or is cut off.
struct Relay {
    address: SocketAddr,
    /// None: whoever connects is sent away, and whoever is connected too.
    target: watch::Sender<Option<u16>>,
}

impl Relay {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = watch::Sender::new(Some(port));
        let targets = target.subscribe();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(join(client, targets.clone()));
            }
        });
        Self { address, target }
    }

    fn options(&self) -> EtcdOptions {
        EtcdOptions { addresses: vec![format!("http://{}", self.address)], ..EtcdOptions::default() }
    }

    fn cut(&self) {
        self.target.send_replace(None);
    }

    fn join(&self, port: u16) {
        self.target.send_replace(Some(port));
    }
}

async fn join(mut client: TcpStream, mut targets: watch::Receiver<Option<u16>>) {
    let Some(port) = *targets.borrow_and_update() else { return };
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = targets.changed() => {}
    }
}

/// Writes until it works again. What failed may have happened.
async fn put_when_possible(store: &dyn Store, key: &str, value: &str) -> Revision {
    let written = async {
        loop {
            match store.write(vec![Op::create(key, value.to_owned())]).await {
                Ok(revision) => return revision,
                Err(WriteError::Conflict { current: Some(current), .. }) => return current.modified,
                Err(WriteError::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("etcd is back, and writes work again")
}

#[tokio::test]
async fn a_cut_connection_fails_writes_and_new_reads_and_heals() {
    let server = EtcdServer::start();
    let relay = Relay::to(server.port).await;
    let store = Etcd::open(relay.options()).await.unwrap();
    let before = put(&store, A, "1").await;
    let mut changes = store.watch("/registry/", before).await.unwrap();

    relay.cut();
    let error = store.write(vec![Op::create(B, "1")]).await.unwrap_err();
    assert!(matches!(&error, WriteError::Unavailable { detail } if detail.starts_with("etcd: ")), "{error}");
    assert!(matches!(store.revision().await, Err(ReadError::Unavailable { .. })), "nobody knows what is newest");
    // What was known is still shown.
    assert_eq!((store.shown(), text(&store.get(A).await.unwrap().unwrap().value)), (before, "1"));
    assert_eq!(store.list(ListRequest::all("/registry/")).await.unwrap().entries.len(), 1);

    // Meanwhile another server of the same etcd goes on.
    let other = Etcd::open(options(&server)).await.unwrap();
    put(&other, A, "2").await;

    relay.join(server.port);
    put_when_possible(&store, "/registry/pods/default/c", "3").await;
    assert_eq!(collect(&mut *changes, before, 2).await, ["1 1>2", "2 +3"]);
}

#[tokio::test]
async fn etcd_may_be_killed_and_started_again() {
    let server = EtcdServer::start();
    let relay = Relay::to(server.port).await;
    let store = Etcd::open(relay.options()).await.unwrap();
    let before = put(&store, A, "1").await;
    let mut changes = store.watch("/registry/", before).await.unwrap();

    let server = server.restart();
    relay.join(server.port);
    let after = put_when_possible(&store, B, "2").await;
    assert!(after > before, "acknowledged before the kill: {before}, after it: {after}");
    assert_eq!(collect(&mut *changes, before, 1).await, ["1 +2"]);
    assert_eq!(text(&store.get(A).await.unwrap().unwrap().value), "1");
}

/// traps B2 S5, S7: history that went while the connection was lost is not
/// skipped in silence.
#[tokio::test]
async fn changes_compacted_during_an_outage_end_the_watches() {
    let server = EtcdServer::start();
    let relay = Relay::to(server.port).await;
    let store = Etcd::open(relay.options()).await.unwrap();
    let before = put(&store, A, "1").await;
    let mut changes = store.watch("/registry/pods/", before).await.unwrap();

    relay.cut();
    let other = Etcd::open(options(&server)).await.unwrap();
    put(&other, A, "2").await;
    let now = put(&other, B, "1").await;
    other.compact(now).await.unwrap();

    relay.join(server.port);
    let after = put_when_possible(&store, "/registry/pods/default/c", "3").await;
    assert!(matches!(changes.next().await, Err(WatchError::Compacted { .. })));
    let listing = store.list(ListRequest::all("/registry/")).await.unwrap();
    let values: Vec<_> = listing.entries.iter().map(|entry| text(&entry.value)).collect();
    assert_eq!((values, listing.revision), (vec!["2", "1", "3"], after));
}

/// traps B2 S13: what was stopped for a while must not show the past as now.
#[tokio::test]
async fn a_paused_etcd_is_waited_for_or_given_up() {
    let server = EtcdServer::start();
    let store = Arc::new(Etcd::open(options(&server)).await.unwrap());
    let before = put(&*store, A, "1").await;
    signal(&server, "STOP");
    let asked = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.revision().await }
    });
    assert!(matches!(asked.await.unwrap(), Err(ReadError::Unavailable { .. })), "no answer is an error, not the past");
    signal(&server, "CONT");
    put_when_possible(&*store, B, "2").await;
    assert!(store.revision().await.unwrap() > before);
}

fn signal(server: &EtcdServer, name: &str) {
    let status = Command::new("kill").args(["-s", name, &server.pid().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Reads that ask for the newest see what others wrote, at once.
#[tokio::test]
async fn two_servers_of_one_etcd_see_each_other() {
    let server = EtcdServer::start();
    let one = Etcd::open(options(&server)).await.unwrap();
    let two = Etcd::open(options(&server)).await.unwrap();
    for round in 0..50 {
        let key = format!("/registry/pods/default/{round}");
        let written = one.write(vec![Op::create(&*key, "1")]).await.unwrap();
        assert!(two.revision().await.unwrap() >= written);
        let seen = two.get(&key).await.unwrap().unwrap();
        let updated = two.write(vec![Op::update(&*key, "2", seen.modified)]).await.unwrap();
        let stale = one.write(vec![Op::update(&*key, "3", written)]).await.unwrap_err();
        let WriteError::Conflict { current: Some(current), .. } = stale else { panic!("{stale}") };
        assert_eq!(current.modified, updated);
        assert!(one.shown() >= updated, "whoever is refused finds out why");
    }
}

/// Keys of others are left alone, and do not keep anyone waiting.
#[tokio::test]
async fn keys_outside_the_prefix_are_not_ours() {
    let server = EtcdServer::start();
    let ours = Etcd::open(options(&server)).await.unwrap();
    let theirs = EtcdOptions { prefix: "/elsewhere/".into(), ..options(&server) };
    let theirs = Etcd::open(theirs).await.unwrap();
    let written = put(&theirs, "/elsewhere/x", "1").await;
    assert_eq!(ours.revision().await.unwrap(), written);
    assert!(ours.get("/elsewhere/x").await.unwrap().is_none());
    assert!(ours.list(ListRequest::all("/")).await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn a_second_start_loads_everything_in_pages() {
    let server = EtcdServer::start();
    let store = Etcd::open(options(&server)).await.unwrap();
    for batch in 0..11 {
        let ops = (0..100).map(|index| Op::create(format!("/registry/pods/{batch}/{index:03}"), "x"));
        store.write(ops.collect()).await.unwrap();
    }
    let before = store.list(ListRequest::all("/registry/")).await.unwrap();
    drop(store);
    let store = Etcd::open(options(&server)).await.unwrap();
    let after = store.list(ListRequest::all("/registry/")).await.unwrap();
    let rows = |listing: &store::Listing| -> Vec<_> {
        listing.entries.iter().map(|entry| (entry.key.clone(), entry.created, entry.modified)).collect()
    };
    assert_eq!((after.entries.len(), after.revision), (1100, before.revision));
    assert_eq!(rows(&after), rows(&before));
    let error = store.watch("/registry/", Revision(before.revision.0 - 1)).await.err().unwrap();
    assert!(matches!(error, WatchError::Compacted { .. }), "history starts with the store");
}

#[tokio::test]
async fn an_etcd_nobody_answers_for_is_named() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let addresses = vec![format!("http://{nobody}")];
    let options = EtcdOptions { addresses, patience: Duration::from_millis(300), ..EtcdOptions::default() };
    let error = Etcd::open(options).await.unwrap_err();
    assert!(matches!(error, OpenError::Etcd { .. }));
    assert!(error.to_string().contains(&nobody.to_string()), "{error}");
}

/// A directory with an authority, a server's and a client's certificate.
fn certificates() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(dir.path().join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    let authority = rcgen::Issuer::new(params, key);
    for name in ["server", "client"] {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let leaf = params.signed_by(&key, &authority).unwrap();
        std::fs::write(dir.path().join(format!("{name}.crt")), leaf.pem()).unwrap();
        std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    dir
}

#[tokio::test]
async fn etcd_may_want_to_know_who_calls() {
    let files = certificates();
    let path = |name: &str| files.path().join(name);
    let read = |name: &str| CertificateDer::from_pem_file(path(name)).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(read("ca.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(path("client.key")).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots);
    let known = config.clone().with_client_auth_cert(vec![read("client.crt")], key).unwrap();
    let stranger = config.with_no_client_auth();

    let server = EtcdServer::start_with_tls(files.path());
    let store = Etcd::open(EtcdOptions { tls: Some(known), ..options(&server) }).await.unwrap();
    let written = put(&store, A, "1").await;
    assert_eq!(store.revision().await.unwrap(), written);
    let patience = Duration::from_millis(500);
    let refused = Etcd::open(EtcdOptions { tls: Some(stranger), patience, ..options(&server) }).await;
    assert!(matches!(refused, Err(OpenError::Etcd { .. })), "etcd wants a certificate");
}
