//! The engines under test, each fresh and empty.

use std::sync::Arc;

use store::{Embedded, Etcd, EtcdOptions, Memory, Options, Store};
use tempfile::TempDir;

use crate::etcd_server::EtcdServer;

/// A store; what is around it lives as long.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    _surroundings: Surroundings,
}

enum Surroundings {
    None,
    Directory { _path: TempDir },
    Etcd { _server: EtcdServer },
}

/// Changes of one kind that are remembered.
pub(crate) const HISTORY: usize = 64;

pub(crate) async fn embedded() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { history_per_topic_max: HISTORY, ..Options::default() };
    let store = Embedded::open(&dir.path().join("state.redb"), options).unwrap();
    Fixture { store: Arc::new(store), _surroundings: Surroundings::Directory { _path: dir } }
}

pub(crate) async fn memory() -> Fixture {
    Fixture { store: Arc::new(Memory::new(HISTORY)), _surroundings: Surroundings::None }
}

pub(crate) async fn etcd() -> Fixture {
    let server = EtcdServer::start();
    let store = Etcd::open(options(&server)).await.unwrap();
    Fixture { store: Arc::new(store), _surroundings: Surroundings::Etcd { _server: server } }
}

pub(crate) fn options(server: &EtcdServer) -> EtcdOptions {
    EtcdOptions { addresses: vec![server.address()], history_per_topic_max: HISTORY, ..EtcdOptions::default() }
}
