//! The engines under test, each fresh and empty.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use store::{Embedded, Etcd, EtcdOptions, Memory, Options, Store};
use tempfile::TempDir;

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
    let store = Etcd::open(server.options()).await.unwrap();
    Fixture { store: Arc::new(store), _surroundings: Surroundings::Etcd { _server: server } }
}

/// A real etcd on a port the kernel chose, in a directory of its own. It ends
/// with this process, however that ends.
pub(crate) struct EtcdServer {
    process: Child,
    pub(crate) port: u16,
    dir: Option<TempDir>,
}

impl EtcdServer {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(dir: TempDir) -> Self {
        // The peer's address differs, so that the log tells them apart.
        let (client, peer) = ("http://127.0.0.1:0", "http://127.0.0.2:0");
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--data-dir"])
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", client, "--advertise-client-urls", client])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("setpriv of util-linux is there");
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut text = String::new();
        let port = loop {
            let start = text.len();
            let read = log.read_line(&mut text).unwrap();
            assert_ne!(read, 0, "etcd (package etcd-server) did not start:\n{text}");
            if let Some(port) = port_in(&text[start..]) {
                break port;
            }
        };
        // Nobody reads on, and etcd must not stop for that.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { process, port, dir: Some(dir) }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions { addresses: vec![self.address()], history_per_topic_max: HISTORY, ..EtcdOptions::default() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it and starts it again with the same data, on another port.
    pub(crate) fn restart(mut self) -> Self {
        self.end();
        Self::start_in(self.dir.take().unwrap())
    }

    fn end(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        if self.dir.is_some() {
            self.end();
        }
    }
}

/// Of the line that says that clients are served, in 3.4's and in later words.
fn port_in(line: &str) -> Option<u16> {
    if !line.contains("serving") || !line.contains("client") {
        return None;
    }
    let (_, rest) = line.split_once("127.0.0.1:")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|port| *port > 0)
}
