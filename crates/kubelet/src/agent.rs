//! The agent of one node: puts the parts together and runs them.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ambient::{Clock, Panics};
use client::{Change, Client, Recorder, Scope};
use cri::{Runtime, Tally};
use futures::StreamExt as _;
use lifecycle::mark_api;
use lifecycle::node::NodeFact;
use objects::api::core::v1::{Node, Pod, Service};
use tokio::sync::{Mutex, mpsc, watch};

use crate::config::Config;
use crate::ctx::Ctx;
use crate::gauge::{Gauge, Host};
use crate::home::{Home, UnknownPods};
use crate::logind::{Guard, Logind};
use crate::meter::Meter;
use crate::pods::{Pods, Sight};
use crate::pull::Pace;
use crate::server::{self, Listener, serve};
use crate::steward::{Face, NodeLine, Steward};
use crate::volumes::keep_current;
use crate::watches::Watches;
use crate::{allocations, log_files, logind, node, oom, orphan, pull, statics};

/// One node's agent. Stopping it stops no pods.
pub struct Kubelet {
    config: Config,
    client: Client,
    runtime: Arc<dyn Runtime>,
    clock: Clock,
    listener: Option<Listener>,
    gauge: Arc<dyn Gauge>,
    line: NodeLine,
    news: mpsc::UnboundedReceiver<NodeFact>,
    face: watch::Sender<Face>,
    logind: Option<Logind>,
    panics: Panics,
}

/// What happens to the machine of an agent (TC-254). Cheap to clone.
#[derive(Debug, Clone)]
pub struct Power(NodeLine);

impl Power {
    /// The machine is about to stop; pods are stopped in order, if it is configured how.
    pub fn announce_shutdown(&self) {
        self.0.tell(NodeFact::ShutdownAnnounced);
    }

    /// It goes on after all; what was stopped stays so (TC-253).
    pub fn cancel_shutdown(&self) {
        self.0.tell(NodeFact::ShutdownCancelled);
    }
}

/// LC-017: wake-up calls may be lost; a look at each pod finds what they would have said.
const RESYNC: Duration = Duration::from_secs(60);
/// Pause before asking a runtime that does not answer again.
const RUNTIME_RETRY: Duration = Duration::from_millis(200);

impl Kubelet {
    pub fn new(config: Config, client: Client, runtime: Arc<dyn Runtime>, clock: Clock) -> Self {
        let (line, news) = NodeLine::open();
        let (gauge, face) = (Arc::new(Host), watch::Sender::default());
        let panics = Panics::default();
        Self { config, client, runtime, clock, listener: None, gauge, line, news, face, logind: None, panics }
    }

    /// Reads another machine than this one.
    pub fn with_gauge(self, gauge: Arc<dyn Gauge>) -> Self {
        Self { gauge, ..self }
    }

    /// Serves the kubelet API besides.
    pub fn with_server(self, listener: Listener) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// Makes the machine wait for pods before it stops, if there is time for
    /// them in the configuration (TC-248).
    pub fn with_logind(self, logind: Logind) -> Self {
        Self { logind: Some(logind), ..self }
    }

    /// Shows the panics of others beside its own.
    pub fn with_panics(self, panics: Panics) -> Self {
        Self { panics, ..self }
    }

    /// Tells the agent about its machine.
    pub fn power(&self) -> Power {
        Power(self.line.clone())
    }

    /// Works until `shutdown` is over. Pods go on without us (LC-376, TC-267).
    /// An error is a reason not to work at all.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), UnknownPods> {
        let Self { config, client, runtime, clock, listener, gauge, line, news, face, logind, panics } = self;
        let work = async {
            let shown = face.subscribe();
            let ctx = Arc::new(start(Parts { config, client, runtime, clock, node: line, gauge, panics }).await);
            let steward = Steward::new(ctx.clone(), news, face);
            // LC-030, TC-039
            let of_this_node = Scope::fields(format!("spec.nodeName={}", ctx.config.node_name));
            let cache = ctx.client.prepared_cache::<Pod>(of_this_node, mark_api);
            let (sight, seen) = watch::channel(Sight::default());
            let server = async {
                match listener {
                    Some(listener) => {
                        serve(ctx.clone(), server::Pods { cache: cache.clone(), sight: seen }, listener).await
                    }
                    None => std::future::pending().await,
                }
            };
            let guard = logind.map(|logind| Guard {
                logind,
                wanted: ctx.config.settings.shutdown_groups.iter().map(|group| group.period).sum(),
                node: ctx.node.clone(),
                face: shown.clone(),
                pods: cache.clone(),
            });
            let guarding = async {
                if let Some(guard) = guard {
                    logind::run(guard).await;
                }
            };
            let pods = follow_pods(ctx.clone(), cache.clone(), steward, sight);
            let live = keep_current(ctx.clone(), cache.clone());
            let rest = async {
                tokio::join!(
                    node::run(ctx.clone(), shown),
                    log_files::run(ctx.clone()),
                    oom::run(ctx.clone()),
                    server,
                    live,
                    guarding
                )
            };
            tokio::select! {
                biased;
                Err(refusal) = pods => Err(refusal),
                _ = rest => Ok(()),
            }
        };
        tokio::select! {
            biased;
            () = shutdown => Ok(()),
            worked = work => worked,
        }
    }
}

/// What everything on the node is made of.
struct Parts {
    config: Config,
    client: Client,
    runtime: Arc<dyn Runtime>,
    clock: Clock,
    node: NodeLine,
    gauge: Arc<dyn Gauge>,
    panics: Panics,
}

async fn start(parts: Parts) -> Ctx {
    let Parts { config, client, runtime, clock, node, gauge, panics } = parts;
    let recorder = Recorder::start(client.clone(), "kubelet", &config.node_name);
    let runtime_name = loop {
        match runtime.version().await {
            Ok(version) => break version.name,
            Err(error) => tracing::warn!(%error, "the runtime does not answer yet"),
        }
        tokio::time::sleep(RUNTIME_RETRY).await;
    };
    let round = std::sync::Mutex::new(clock.now().mono);
    let pulls = Pace::new(&config.pulls, clock.now());
    let walks = Tally::new(clock.clone());
    let pulled = pull::open_records(&config, runtime.as_ref()).await;
    let services = client.cache::<Service>(Scope::fields("spec.clusterIP!=None"));
    Ctx {
        config,
        client,
        runtime,
        clock,
        recorder,
        node,
        gauge,
        runtime_name,
        tokens: Default::default(),
        turns: Default::default(),
        pulls,
        lookups: Default::default(),
        watches: Watches::new(panics.clone()),
        sessions: Default::default(),
        pulled,
        meter: Meter::default(),
        walks,
        panics,
        services,
        runtime_classes: Default::default(),
        users: Mutex::new(()),
        round,
    }
}

/// LC-356: what files ask for runs with or without the API. LC-377: then
/// everything the API knows, then what it does not.
async fn follow_pods(
    ctx: Arc<Ctx>,
    cache: Arc<client::Cache<Pod>>,
    mut steward: Steward,
    sight: watch::Sender<Sight>,
) -> Result<Infallible, UnknownPods> {
    steward.absorb(NodeFact::Restored(allocations::restore(&ctx).await));
    let mut wake_ups = ctx.runtime.events();
    let nodes = ctx.client.cache::<Node>(node::own(&ctx));
    let (mut node_changes, mut changes) = (nodes.subscribe(), cache.subscribe());
    let mut statics = statics::follow(&ctx).await;
    let mut census = None;
    let mut pods = Pods::new(ctx.clone(), cache.connections(), steward, sight);
    pods.on_left(&orphan::left(&ctx).await);
    let mut home = Home::open(&ctx).await;
    pods.on_statics(&statics.borrow_and_update().pods());
    // Nobody of the API is judged by labels and taints that are not known yet.
    let mut synced = pin!(async { tokio::join!(nodes.synced(), cache.synced()) });
    let mut is_synced = false;
    let mut resync = tokio::time::interval(RESYNC);
    loop {
        if census.is_none()
            && is_synced
            && statics.borrow().is_complete()
            && home.check(&ctx, nodes.get("", &ctx.config.node_name).as_deref(), |uid| pods.knows(uid)).await?
        {
            pods.on_complete();
            census = Some(orphan::census(&ctx));
        }
        ctx.begin_round();
        pods.settle();
        tokio::select! {
            biased;
            _ = &mut synced, if !is_synced => {
                is_synced = true;
                std::iter::from_fn(|| node_changes.try_next()).for_each(|change| pods.on_node(&change));
                pods.on_changes(std::iter::from_fn(|| changes.try_next()).collect());
                pods.on_synced();
            }
            change = node_changes.next(), if is_synced => {
                if let (Change::Applied(node), true) = (&change, census.is_some()) {
                    home.remember(node).await;
                }
                pods.on_node(&change);
            }
            change = changes.next(), if is_synced => {
                pods.on_changes(std::iter::once(change).chain(std::iter::from_fn(|| changes.try_next())).collect());
            }
            Ok(()) = statics.changed() => pods.on_statics(&statics.borrow_and_update().pods()),
            Some(event) = wake_ups.next() => pods.on_runtime(&event.pod_uid),
            Some(found) = next(&mut census) => pods.sweep(&found),
            () = pods.tend() => {}
            _ = resync.tick() => pods.look_at_all(),
        }
    }
}

/// Pends while there is nobody to wait for.
async fn next<T>(receiver: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}
