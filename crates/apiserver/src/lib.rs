//! The Kubernetes API over a store: routes from the kinds table, admission,
//! watch, identity, and the relay to node agents.
//!
//! Never: controllers' logic, container runtimes, a second copy of an object's
//! rules (those are in `objects`).
//!
//! ```no_run
//! # async fn example(store: std::sync::Arc<dyn store::Store>) -> Result<(), apiserver::StartError> {
//! use ambient::{Clock, Ids, Rng};
//! use apiserver::{ApiServer, Config, Identity};
//! let api = ApiServer::new(store, Config::default(), Clock::system(), Ids::new(Rng::from_os()));
//! api.bootstrap().await?;
//! let service = api.service(Identity::admin()); // for kube::Client::new(service, "default")
//! # drop(service);
//! # Ok(())
//! # }
//! ```

mod accounts;
mod admission;
mod answer;
mod api;
mod audit;
mod auth;
mod authz;
mod body;
mod bootstrap;
mod certificates;
mod components;
mod connect;
mod create;
mod credentials;
mod delete;
mod deletion;
mod discovery;
mod encryption;
mod endpoint;
mod error;
mod eviction;
mod expiry;
mod flow;
#[cfg(fuzzing)]
pub mod fuzzing;
mod health;
mod impersonation;
mod intake;
mod joining;
mod kept;
mod logs;
mod messages;
mod metrics;
mod namespaces;
mod negotiate;
mod object;
mod openapi;
mod origin;
mod ownership;
mod pods;
mod proxy;
mod query;
mod read;
mod relay;
mod reviews;
mod roll;
mod room;
mod scale;
mod serve;
mod service;
mod services;
mod stream;
mod table;
mod target;
mod tokens;
mod watches;
mod workers;
mod write;

use std::future::Future;
use std::sync::Arc;

use ambient::{Clock, Ids};
use objects::gates::Gates;
use store::Store;
use tokio::net::TcpListener;

use origin::Origin;

pub use answer::Body;
pub use audit::{Audit, AuditLog, AuditPolicy, Rotation};
pub use auth::Identity;
pub use certificates::{AlternativeName, CertificateRequest, Subject};
pub use encryption::Encryption;
pub use health::VERSION;
pub use kept::Kept;
pub use service::Service;
pub use services::ServiceConfig;
pub use tokens::SigningKey;

/// Plain data the server needs to know.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// `host:port` under which clients reach this server.
    pub advertise: String,
    /// How to talk to node agents: our client certificate and the CA theirs
    /// must come from. Without it there are no logs and no streams. ALPN must
    /// be empty.
    pub kubelet_tls: Option<rustls::ClientConfig>,
    /// Node agents in this process, by node: where they listen is nobody else's
    /// business, and need not be where others reach the node.
    pub agents: std::collections::BTreeMap<String, std::net::SocketAddr>,
    /// Signs service account tokens. Without it there are none.
    pub signing_key: Option<SigningKey>,
    /// Which fields and values objects may have (LC-392).
    pub gates: Gates,
    pub services: ServiceConfig,
    /// What servers beside us may believe, published for them.
    pub trust: Option<Trust>,
    /// How many connections there may be, and how long they may be silent.
    pub connections: listener::Limits,
    /// Where to write who asked for what, if anywhere.
    pub audit: Option<Arc<Audit>>,
}

/// Authorities, as PEM.
#[derive(Debug, Clone)]
pub struct Trust {
    /// Whose certificates name our clients.
    pub clients: String,
    /// Whose certificates let a proxy say for whom it speaks.
    pub front_proxy: String,
}

/// The server could not make its initial objects, or remove old ones.
#[derive(Debug, thiserror::Error)]
#[error("the server's own objects could not be written: {0}")]
pub struct StartError(String);

/// The API server. Cheap to clone.
#[derive(Clone)]
pub struct ApiServer(Arc<api::Api>);

impl ApiServer {
    pub fn new(store: Arc<dyn Store>, config: Config, clock: Clock, ids: Ids) -> Self {
        Self(Arc::new(api::Api {
            authorizer: authz::Authorizer::default(),
            flow: flow::Flow::default(),
            intake: intake::Intake::default(),
            workers: workers::Workers::default(),
            relay: relay::Relay::new(config.kubelet_tls.clone()),
            metrics: metrics::Metrics::default(),
            health: health::Health::default(),
            openapi: openapi::OpenApi::default(),
            wire: Arc::default(),
            tokens: config.signing_key.as_ref().and_then(tokens::Tokens::new),
            closing: tokio::sync::watch::Sender::new(false),
            services: services::Services::default(),
            sending: Arc::default(),
            watches: Arc::default(),
            installed: std::sync::OnceLock::new(),
            store,
            config,
            clock,
            ids,
        }))
    }

    /// Makes the objects every cluster has. Harmless to repeat; call it
    /// before the first request.
    pub async fn bootstrap(&self) -> Result<(), StartError> {
        bootstrap::run(&self.0).await.map_err(|error| StartError(error.to_string()))?;
        self.0.installed.get_or_init(|| ());
        Ok(())
    }

    /// Removes what does not stay for ever and is over now; `serve` does so
    /// by itself again and again.
    pub async fn sweep(&self) -> Result<(), StartError> {
        expiry::sweep(&self.0).await.map_err(|error| StartError(error.to_string()))
    }

    /// The server as seen by one in-process caller: no socket, no TLS.
    pub fn service(&self, identity: Identity) -> Service {
        let from = Origin { identity: Some(Arc::new(identity)), ..Origin::default() };
        Service { api: Arc::clone(&self.0), from, agent: None }
    }

    /// The same for a caller that no certificate names: a bearer token decides.
    pub fn anonymous(&self) -> Service {
        Service { api: Arc::clone(&self.0), from: Origin::default(), agent: None }
    }

    /// Serves TLS until `shutdown`, then ends watches and says goodbye to
    /// connections. `tls` must verify client certificates against the CA and
    /// may let clients without one in: they are anonymous.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> std::io::Result<()> {
        tokio::select! {
            biased;
            () = serve::serve(Arc::clone(&self.0), listener, tls, shutdown) => Ok(()),
            never = expiry::run(&self.0) => match never {},
            never = flow::conditions::run(&self.0) => match never {},
        }
    }
}
