//! Executes what the deciding crates decide: follows the API, feeds facts,
//! performs writes, reports their outcome as facts.
//!
//! Contains no decision: who is scheduled where and when to try again is
//! `scheduler`'s, what the cluster does by itself is `controllers`'.

mod namespaces;
mod scheduling;
mod storage;
mod writes;

use ambient::{Clock, Rng};
use client::Client;

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

pub use storage::StorageConfig;

/// What the controllers need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllersConfig {
    /// The API server's authority, in PEM: what pods are told to trust.
    pub certificate: String,
    pub storage: StorageConfig,
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
        let ControllersConfig { certificate, storage } = self.config;
        let namespaces = namespaces::run(self.client.clone(), certificate);
        let storage = storage::run(self.client, self.clock, storage);
        tokio::select! {
            biased;
            () = shutdown => {}
            never = namespaces => match never {},
            never = storage => match never {},
        }
    }
}
