//! Where the cluster's objects are kept: a file, or etcd.

use std::sync::Arc;

use anyhow::{Context, Result};
use apiserver::Kept;
use rustls::RootCertStore;
use store::{Embedded, Etcd, EtcdOptions, Options, Store};

use crate::cli::{ControlArgs, EtcdArgs};
use crate::instance::{Places, make_private_dir};
use crate::{encryption, pki};

pub(crate) async fn open(args: &ControlArgs, places: &Places) -> Result<Arc<dyn Store>> {
    let (etcd, dir) = (&args.etcd, places.store());
    let seal = Arc::new(Kept(encryption::open(args, places)?));
    if etcd.servers.is_empty() {
        make_private_dir(&dir)?;
        let mut options = Options { seal, ..Options::default() };
        // Zero is the default, as for etcd.
        if let Some(bytes) = args.quota_backend_bytes.filter(|bytes| *bytes > 0) {
            options.quota_bytes = bytes;
        }
        return Ok(Arc::new(Embedded::open(&dir.join("state.redb"), options)?));
    }
    let options = EtcdOptions { addresses: etcd.servers.clone(), tls: tls(etcd)?, seal, ..EtcdOptions::default() };
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
