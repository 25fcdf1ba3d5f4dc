//! Where the cluster's objects are kept: a file, or etcd.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::RootCertStore;
use store::{Embedded, Etcd, EtcdOptions, Options, Store};

use crate::cli::EtcdArgs;
use crate::instance::make_private_dir;
use crate::pki;

pub(crate) async fn open(etcd: &EtcdArgs, dir: &Path) -> Result<Arc<dyn Store>> {
    if etcd.servers.is_empty() {
        make_private_dir(dir)?;
        return Ok(Arc::new(Embedded::open(&dir.join("state.redb"), Options::default())?));
    }
    let options = EtcdOptions { addresses: etcd.servers.clone(), tls: tls(etcd)?, ..EtcdOptions::default() };
    let store = Etcd::open(options).await.context("--etcd-servers")?;
    Ok(Arc::new(store))
}

fn tls(etcd: &EtcdArgs) -> Result<Option<rustls::ClientConfig>> {
    let Some(path) = &etcd.cafile else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    for certificate in pki::read_certificates(path)? {
        roots.add(certificate).with_context(|| format!("--etcd-cafile {}", path.display()))?;
    }
    let config = rustls::ClientConfig::builder().with_root_certificates(roots);
    Ok(Some(match (&etcd.certfile, &etcd.keyfile) {
        (Some(chain), Some(key)) => config
            .with_client_auth_cert(pki::read_certificates(chain)?, pki::read_private_key(key)?)
            .context("--etcd-certfile")?,
        _ => config.with_no_client_auth(),
    }))
}
