//! A server with a certificate authority made on the spot, to try clients
//! against: `cargo run --example dev_server -- DIR [ADDR:PORT]`, then
//! `kubectl --kubeconfig DIR/kubeconfig get pods`.

#[path = "../tests/all/pki.rs"]
mod pki;

use std::path::PathBuf;
use std::sync::Arc;

use ambient::{Clock, Ids, Rng};
use apiserver::{ApiServer, Config};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or("usage: dev_server DIR [ADDR:PORT]")?);
    let bind = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let authority = pki::Authority::new();
    let admin = authority.issue("kubernetes-admin", "system:masters");
    let store = store::Embedded::open(&dir.join("state.redb"), store::Options::default())?;
    let listener = tokio::net::TcpListener::bind(bind).await?;
    let address = listener.local_addr()?;
    let kubelet_tls = Some(authority.client(Some(&admin)));
    let config = Config { advertise: address.to_string(), kubelet_tls, ..Config::default() };
    let api = ApiServer::new(Arc::new(store), config, Clock::system(), Ids::new(Rng::from_os()));
    api.bootstrap().await?;
    let encode = |pem: &str| BASE64_STANDARD.encode(pem);
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: dev\nclusters:\n- name: dev\n  cluster: {{server: \"https://{address}\", certificate-authority-data: {}}}\nusers:\n- name: dev\n  user: {{client-certificate-data: {}, client-key-data: {}}}\ncontexts:\n- name: dev\n  context: {{cluster: dev, user: dev}}\n",
        encode(&authority.pem()),
        encode(&admin.pem),
        encode(&admin.key_pem)
    );
    std::fs::write(dir.join("kubeconfig"), kubeconfig)?;
    let tls = authority.server(&authority.issue("kube-apiserver", "podium"));
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    api.serve(listener, tls, stop).await?;
    Ok(())
}
