//! The administrator's kubeconfig: made, printed, merged into another file.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::instance::{Places, write_private};
use crate::pki::{Authority, Leaf};

mod text;

/// The name under which cluster, user and context appear.
const NAME: &str = "podium";

/// A kubeconfig that makes its holder the administrator.
pub(crate) fn document(server: SocketAddr, authority: &Authority, admin: &Leaf) -> Value {
    let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": NAME, "cluster": {
            "server": format!("https://{}", reachable(server)),
            "certificate-authority-data": encode(authority.certificate_pem()),
        }}],
        "users": [{ "name": NAME, "user": {
            "client-certificate-data": encode(&admin.certificate_pem),
            "client-key-data": encode(&admin.key.serialize_pem()),
        }}],
        "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": NAME } }],
        "current-context": NAME,
    })
}

/// A wildcard address is where one listens, not where one calls.
fn reachable(server: SocketAddr) -> SocketAddr {
    let mut server = server;
    if server.ip().is_unspecified() {
        server.set_ip(if server.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    server
}

pub(crate) fn write(path: &Path, document: &Value) -> Result<()> {
    write_private(path, text::written(document)?.as_bytes())
}

/// Puts our entries into `path`, leaving those of other clusters alone.
pub(crate) fn merge(path: &Path, document: &Value) -> Result<()> {
    let merged = match fs::read_to_string(path) {
        Ok(found) => {
            let existing = text::read(&found)
                .with_context(|| format!("{} is not a kubeconfig; it was left as it is", path.display()))?;
            text::merged(existing, document, NAME)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => document.clone(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    write(path, &merged)
}

pub(crate) fn print(places: &Places) -> Result<()> {
    let path = places.kubeconfig();
    match fs::read_to_string(&path) {
        Ok(text) => {
            print!("{text}");
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{} does not exist yet: start podium with `podium up`", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_kubeconfig_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        for text in ["[]", "- a", "just words", "7", "clusters: {}", "users: x", "a: [", "a: 1\na: 2"] {
            fs::write(&path, text).unwrap();
            let error = merge(&path, &json!({})).unwrap_err().to_string();
            assert!(error.ends_with("is not a kubeconfig; it was left as it is"), "{text}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_wildcard_bind_is_called_at_loopback() {
        assert_eq!(reachable("0.0.0.0:6443".parse().unwrap()), "127.0.0.1:6443".parse().unwrap());
        assert_eq!(reachable("10.1.2.3:1".parse().unwrap()), "10.1.2.3:1".parse().unwrap());
    }
}
