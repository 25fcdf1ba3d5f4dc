//! A real etcd for tests: package etcd-server, and setpriv of util-linux.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A real etcd on a port the kernel chose, in a directory of its own. It ends
/// with this process, however that ends.
pub(crate) struct EtcdServer {
    process: Child,
    pub(crate) port: u16,
    scheme: &'static str,
    dir: Option<TempDir>,
}

impl EtcdServer {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), "http", &[])
    }

    /// It shows `server.crt` with `server.key`, and wants to be shown one of
    /// `ca.crt`; all of them are files in this directory.
    pub(crate) fn start_with_tls(files: &Path) -> Self {
        let file = |name: &str| files.join(name).to_string_lossy().into_owned();
        let (certificate, key, authority) = (file("server.crt"), file("server.key"), file("ca.crt"));
        let flags = ["--cert-file", &certificate, "--key-file", &key, "--trusted-ca-file", &authority];
        Self::start_in(tempfile::tempdir().unwrap(), "https", &[&flags[..], &["--client-cert-auth"]].concat())
    }

    fn start_in(dir: TempDir, scheme: &'static str, flags: &[&str]) -> Self {
        // The peer's address differs, so that the log tells them apart.
        let (client, peer) = (&format!("{scheme}://127.0.0.1:0"), "http://127.0.0.2:0");
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--data-dir"])
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", client, "--advertise-client-urls", client])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(flags)
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
        Self { process, port, scheme, dir: Some(dir) }
    }

    pub(crate) fn address(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it and starts it again with the same data, on another port.
    pub(crate) fn restart(mut self) -> Self {
        self.end();
        Self::start_in(self.dir.take().unwrap(), self.scheme, &[])
    }

    pub(crate) fn end(&mut self) {
        // Twice harms nobody.
        let _ = self.process.kill();
        let _ = self.process.wait();
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
