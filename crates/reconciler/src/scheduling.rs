//! Drives `scheduler`: pods and nodes in, bindings, conditions and Events out.

use std::convert::Infallible;
use std::time::Duration;

use ambient::{Clock, Rng};
use client::{Change, Client, Recorder, Scope, Subscription};
use objects::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use objects::api::storage::v1::StorageClass;
use scheduler::{
    Action, Fact, NodeName, PodUid, Scheduler, claim_key, parse_claim, parse_class, parse_node, parse_pod, parse_volume,
};
use tokio::task::JoinSet;

use crate::writes::{bind, record, show_failure};

const SCHEDULER_NAME: &str = "default-scheduler";

/// Writes under way at once; decisions wait beyond it. Enough to fill the
/// store's group commits, few enough not to starve other clients.
const WRITES_MAX: usize = 64;

/// Never returns. All lists are complete before the first decision, so that
/// no pod is told about nodes that were merely not seen yet.
pub(crate) async fn run(client: Client, clock: Clock, mut rng: Rng) -> Infallible {
    let (nodes, pods) = (client.cache::<Node>(Scope::everywhere()), client.cache::<Pod>(Scope::everywhere()));
    let (claims, volumes) = (client.cache(Scope::everywhere()), client.cache(Scope::everywhere()));
    let classes = client.cache(Scope::everywhere());
    nodes.synced().await;
    pods.synced().await;
    tokio::join!(claims.synced(), volumes.synced(), classes.synced());
    let mut driver = Driver {
        claims: claims.subscribe(),
        volumes: volumes.subscribe(),
        classes: classes.subscribe(),
        nodes: nodes.subscribe(),
        pods: pods.subscribe(),
        recorder: Recorder::start(client.clone(), SCHEDULER_NAME, ""),
        scheduler: Scheduler::new(SCHEDULER_NAME),
        writes: JoinSet::new(),
        client,
        clock,
    };
    loop {
        driver.absorb_pending();
        driver.act(&mut rng);
        driver.wait().await;
    }
}

struct Driver {
    client: Client,
    clock: Clock,
    nodes: Subscription<Node>,
    pods: Subscription<Pod>,
    claims: Subscription<PersistentVolumeClaim>,
    volumes: Subscription<PersistentVolume>,
    classes: Subscription<StorageClass>,
    recorder: Recorder,
    scheduler: Scheduler,
    /// Each ends in the fact that tells its outcome.
    writes: JoinSet<Fact>,
}

impl Driver {
    /// Pods last: one seen together with its node and its claims finds them.
    fn absorb_pending(&mut self) {
        while let Some(change) = self.classes.try_next() {
            self.absorb(class_fact(&change));
        }
        while let Some(change) = self.volumes.try_next() {
            self.absorb(volume_fact(&change));
        }
        while let Some(change) = self.claims.try_next() {
            self.absorb(claim_fact(&change));
        }
        while let Some(change) = self.nodes.try_next() {
            self.absorb(node_fact(&change));
        }
        while let Some(change) = self.pods.try_next() {
            self.absorb(pod_fact(&change));
        }
    }

    fn act(&mut self, rng: &mut Rng) {
        while self.writes.len() < WRITES_MAX {
            let now = self.clock.now();
            let Some(action) = self.scheduler.next(now, rng.next_u64()) else { return };
            tracing::debug!(?action, "acting");
            match action {
                Action::Record { pod, is_warning, reason, message } => {
                    record(&self.recorder, &pod, is_warning, reason, &message, now);
                }
                Action::Bind { pod, node } => {
                    let client = self.client.clone();
                    self.writes.spawn(async move { bind(&client, pod, node).await });
                }
                Action::ShowFailure(failure) => {
                    let client = self.client.clone();
                    self.writes.spawn(async move { show_failure(&client, failure, now).await });
                }
            }
        }
    }

    /// Until something happened or the time has come to look again.
    async fn wait(&mut self) {
        let now = self.clock.now();
        let wake_in = self.scheduler.wake_at().map(|at| at.since(now.mono));
        let may_act = self.writes.len() < WRITES_MAX;
        tokio::select! {
            biased;
            Some(outcome) = self.writes.join_next() => match outcome {
                Ok(fact) => self.absorb(fact),
                Err(error) => tracing::error!(%error, "a write of the scheduler broke off"),
            },
            change = self.nodes.next() => self.absorb(node_fact(&change)),
            change = self.pods.next() => self.absorb(pod_fact(&change)),
            change = self.claims.next() => self.absorb(claim_fact(&change)),
            change = self.volumes.next() => self.absorb(volume_fact(&change)),
            change = self.classes.next() => self.absorb(class_fact(&change)),
            () = tokio::time::sleep(wake_in.unwrap_or(Duration::MAX)), if may_act && wake_in.is_some() => {}
        }
    }

    fn absorb(&mut self, fact: Fact) {
        self.scheduler.absorb(fact, self.clock.now());
    }
}

fn node_fact(change: &Change<Node>) -> Fact {
    match change {
        Change::Applied(node) => Fact::NodeSeen(parse_node(node)),
        Change::Deleted(node) => Fact::NodeGone(NodeName::from(node.metadata.name.as_deref().unwrap_or_default())),
    }
}

fn pod_fact(change: &Change<Pod>) -> Fact {
    match change {
        Change::Applied(pod) => Fact::PodSeen(parse_pod(pod).into()),
        Change::Deleted(pod) => Fact::PodGone(PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default())),
    }
}

fn claim_fact(change: &Change<PersistentVolumeClaim>) -> Fact {
    match change {
        Change::Applied(claim) => Fact::ClaimSeen(parse_claim(claim)),
        Change::Deleted(claim) => Fact::ClaimGone(claim_key(claim)),
    }
}

fn volume_fact(change: &Change<PersistentVolume>) -> Fact {
    let volume = parse_volume(change.object());
    match change {
        Change::Applied(_) => Fact::VolumeSeen(volume),
        Change::Deleted(_) => Fact::VolumeGone(volume.name),
    }
}

fn class_fact(change: &Change<StorageClass>) -> Fact {
    let (name, waits) = parse_class(change.object());
    match change {
        Change::Applied(_) => Fact::ClassSeen { name, waits },
        Change::Deleted(_) => Fact::ClassGone(name),
    }
}
