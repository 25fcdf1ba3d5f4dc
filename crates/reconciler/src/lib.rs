//! Executes what the deciding crates decide: follows the API, feeds facts,
//! performs writes, reports their outcome as facts.
//!
//! Contains no decision: who is scheduled where and when to try again is
//! `scheduler`'s; controllers will be driven from here the same way.

mod scheduling;
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
