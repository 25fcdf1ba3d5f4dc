//! Executes what the deciding crates decide: follows the API, feeds facts,
//! performs writes, reports their outcome as facts.
//!
//! Contains no decision: who is scheduled where and when to try again is
//! `scheduler`'s, what the cluster does by itself is `controllers`'.

mod certificates;
mod disruption;
mod ephemeral;
mod garbage;
mod namespace_deletion;
mod namespaces;
mod nodes;
mod pod_gc;
mod quota;
mod scheduling;
mod storage;
mod taint_eviction;
mod writes;

use std::convert::Infallible;
use std::sync::Arc;

use ambient::{Clock, Rng};
use client::Client;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

/// Everything that reconciles the cluster from outside the nodes.
pub struct Reconciler {
    client: Client,
    clock: Clock,
    rng: Rng,
}

impl Reconciler {
    pub fn new(client: Client, clock: Clock, rng: Rng) -> Self {
        Self { client, clock, rng }
    }

    /// Runs until `shutdown` completes. What is in flight then is dropped: the
    /// next run learns from the API how it ended.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let scheduling = scheduling::run(self.client, self.clock, self.rng.split());
        tokio::select! {
            biased;
            () = shutdown => {}
            never = scheduling => match never {},
        }
    }
}

pub use certificates::{Asked, Signer};
pub use controllers::nodes::Settings as NodeSettings;
pub use controllers::pod_gc::TERMINATED_MAX;
pub use storage::StorageConfig;

/// What the controllers need to know.
#[derive(Debug, Clone)]
pub struct ControllersConfig {
    /// The API server's authority, in PEM: what pods are told to trust.
    pub certificate: String,
    /// Where volumes are made, if here.
    pub storage: Option<StorageConfig>,
    pub nodes: NodeSettings,
    /// More finished pods than this are removed; `None` keeps all.
    pub terminated_pods_max: Option<usize>,
    /// Signs for nodes that join; without it nobody does.
    pub signer: Option<Arc<dyn Signer>>,
}

/// What the cluster does by itself, beside scheduling.
pub struct Controllers {
    client: Client,
    clock: Clock,
    config: ControllersConfig,
}

impl Controllers {
    pub fn new(client: Client, clock: Clock, config: ControllersConfig) -> Self {
        Self { client, clock, config }
    }

    /// Runs until `shutdown` completes; what is in flight then is dropped.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let ControllersConfig { certificate, storage, nodes, terminated_pods_max, signer } = self.config;
        let (client, clock) = (|| self.client.clone(), || self.clock.clone());
        let controllers: [BoxFuture<'static, Infallible>; 11] = [
            Box::pin(namespaces::run(client(), certificate)),
            Box::pin(namespace_deletion::run(client(), clock())),
            Box::pin(storage::run(client(), clock(), storage)),
            Box::pin(ephemeral::run(client(), clock())),
            Box::pin(nodes::run(client(), clock(), nodes)),
            Box::pin(taint_eviction::run(client(), clock())),
            Box::pin(pod_gc::run(client(), clock(), terminated_pods_max)),
            Box::pin(garbage::run(client())),
            Box::pin(quota::run(client(), clock())),
            Box::pin(certificates::run(client(), signer)),
            Box::pin(certificates::clean(client(), clock())),
        ];
        // Each is woken for itself: every write in the cluster is news to one of
        // them, and the others need not look.
        let mut controllers: FuturesUnordered<_> = controllers.into_iter().collect();
        tokio::select! {
            biased;
            () = shutdown => {}
            Some(never) = controllers.next() => match never {},
        }
    }
}
