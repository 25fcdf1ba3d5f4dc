//! The socket: TLS, HTTP/1.1 and HTTP/2, client certificates (API-001). Who may
//! connect, and for how long, is `listener`'s to say.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use listener::Peer;
use tokio::net::TcpListener;

use crate::api::Api;
use crate::auth::Identity;
use crate::origin::Origin;
use crate::service::Service;

/// Writes that have begun get this long when the server stops.
const WRITES_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn serve(
    api: Arc<Api>,
    tcp: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: impl Future<Output = ()>,
) {
    let ending = async {
        shutdown.await;
        api.closing.send_replace(true);
    };
    let make = {
        let api = Arc::clone(&api);
        move |peer: Peer| {
            // The TLS configuration has verified the certificate against the CA.
            let certified = peer.certificates.first().and_then(|leaf| Identity::from_certificate(leaf));
            let (identity, expires) = certified.map(|(identity, expires)| (Arc::new(identity), expires)).unzip();
            let (address, connection) = (Some(peer.address), Some(peer.connection));
            let from = Origin { identity, expires, address, connection };
            let service = Service { api: Arc::clone(&api), from, agent: None };
            move |request: http::Request<Incoming>| Box::pin(service.clone().answer(request))
        }
    };
    listener::serve(tcp, with_alpn(tls), api.config.connections.clone(), api.workers.panics.clone(), ending, make)
        .await;
    api.workers.rest(WRITES_TIMEOUT).await;
}

/// Clients choose HTTP/2 by ALPN; without it they speak HTTP/1.1.
fn with_alpn(tls: Arc<rustls::ServerConfig>) -> Arc<rustls::ServerConfig> {
    if !tls.alpn_protocols.is_empty() {
        return tls;
    }
    let mut tls = rustls::ServerConfig::clone(&tls);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(tls)
}
