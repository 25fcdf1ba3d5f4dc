//! The agent of one node: puts the parts together and runs them.

use std::sync::Arc;
use std::time::Duration;

use ambient::Clock;
use client::{Client, Recorder, Scope};
use cri::Runtime;
use futures::StreamExt as _;
use objects::api::core::v1::Pod;
use tokio::sync::Mutex;

use crate::config::Config;
use crate::ctx::Ctx;
use crate::meter::Meter;
use crate::pods::Pods;
use crate::server::{Listener, serve};
use crate::volumes::keep_current;
use crate::{log_files, node};

/// One node's agent. Stopping it stops no pods.
pub struct Kubelet {
    config: Config,
    client: Client,
    runtime: Arc<dyn Runtime>,
    clock: Clock,
    listener: Option<Listener>,
}

/// Wake-up calls may be lost; a look at each pod finds what they would have said.
const RESYNC: Duration = Duration::from_secs(60);
/// Pause before asking a runtime that does not answer again.
const RUNTIME_RETRY: Duration = Duration::from_millis(200);

impl Kubelet {
    pub fn new(config: Config, client: Client, runtime: Arc<dyn Runtime>, clock: Clock) -> Self {
        Self { config, client, runtime, clock, listener: None }
    }

    /// Serves the kubelet API besides.
    pub fn with_server(self, listener: Listener) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// Works until `shutdown` is over. Pods go on without us (LC-376).
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let work = async {
            let listener = self.listener;
            let ctx = Arc::new(start(self.config, self.client, self.runtime, self.clock).await);
            let of_this_node = Scope::fields(format!("spec.nodeName={}", ctx.config.node_name));
            let cache = ctx.client.cache::<Pod>(of_this_node);
            let server = async {
                match listener {
                    Some(listener) => serve(ctx.clone(), cache.clone(), listener).await,
                    None => std::future::pending().await,
                }
            };
            let pods = follow_pods(ctx.clone(), cache.clone());
            let live = keep_current(ctx.clone(), cache.clone());
            tokio::join!(node::run(ctx.clone()), log_files::run(ctx.clone()), pods, server, live);
        };
        tokio::select! {
            biased;
            () = shutdown => {}
            () = work => {}
        }
    }
}

async fn start(config: Config, client: Client, runtime: Arc<dyn Runtime>, clock: Clock) -> Ctx {
    let recorder = Recorder::start(client.clone(), "kubelet", &config.node_name);
    let runtime_name = loop {
        match runtime.version().await {
            Ok(version) => break version.name,
            Err(error) => tracing::warn!(%error, "the runtime does not answer yet"),
        }
        tokio::time::sleep(RUNTIME_RETRY).await;
    };
    Ctx {
        config,
        client,
        runtime,
        clock,
        recorder,
        runtime_name,
        tokens: Default::default(),
        turns: Default::default(),
        pulls: Mutex::new(()),
        meter: Meter::default(),
    }
}

/// LC-377: first everything the API knows, then what it does not.
async fn follow_pods(ctx: Arc<Ctx>, cache: Arc<client::Cache<Pod>>) {
    let mut wake_ups = ctx.runtime.events();
    cache.synced().await;
    let mut changes = cache.subscribe();
    let mut pods = Pods::new(ctx, cache.connections());
    while let Some(change) = changes.try_next() {
        pods.on_change(change);
    }
    pods.sweep().await;
    let mut resync = tokio::time::interval(RESYNC);
    loop {
        tokio::select! {
            biased;
            change = changes.next() => pods.on_change(change),
            Some(event) = wake_ups.next() => pods.on_runtime(&event.pod_uid),
            () = pods.tend() => {}
            _ = resync.tick() => pods.look_at_all(),
        }
    }
}
