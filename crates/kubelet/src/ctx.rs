//! What every part of the agent holds: its configuration and its doors (API,
//! runtime, clock, Events, the node and the machine).

use std::sync::{Arc, PoisonError};

use ambient::{Clock, Mono, Panics};
use client::{Cache, Client, Recorder};
use cri::{ContainerId, Runtime, Tally};
use objects::api::core::v1::Service;
use tokio::sync::Mutex;

use crate::config::Config;
use crate::gauge::Gauge;
use crate::measure::Walked;
use crate::meter::Meter;
use crate::outbound::Lookups;
use crate::pull::{Pace, Records};
use crate::runtime_class::Classes;
use crate::server::Sessions;
use crate::steward::NodeLine;
use crate::tokens::Tokens;
use crate::volumes::Turns;
use crate::watches::Watches;

pub(crate) struct Ctx {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    /// To whoever decides about all pods.
    pub(crate) node: NodeLine,
    pub(crate) gauge: Arc<dyn Gauge>,
    /// The prefix of `containerID`, e.g. `podium` (LC-073).
    pub(crate) runtime_name: String,
    /// Service account tokens of this node's pods (LC-323).
    pub(crate) tokens: Tokens,
    /// Who may touch a pod's volumes.
    pub(crate) turns: Turns,
    pub(crate) pulls: Pace,
    /// Of names that pods choose.
    pub(crate) lookups: Lookups,
    /// Of directories with logs that are followed.
    pub(crate) watches: Watches,
    /// Streams that lead into pods.
    pub(crate) sessions: Sessions,
    /// With whose credentials images came here (LC-312).
    pub(crate) pulled: Arc<Records>,
    pub(crate) meter: Meter,
    /// What pods take of the disk, by UID.
    pub(crate) walks: Tally<Walked>,
    /// Of tasks that nobody waits for.
    pub(crate) panics: Panics,
    /// Those that have an address, for the environment of containers.
    pub(crate) services: Arc<Cache<Service>>,
    pub(crate) runtime_classes: Classes,
    /// Users for pods are found for one at a time.
    pub(crate) users: Mutex<()>,
    /// When the loop over all pods last came round.
    pub(crate) round: std::sync::Mutex<Mono>,
}

pub(crate) fn detach(panics: &Panics, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    let panics = panics.clone();
    tokio::spawn(async move { panics.caught(task, work).await });
}

impl Ctx {
    /// Begins what goes on by itself, such as a stream after its request was answered.
    pub(crate) fn detach(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        detach(&self.panics, task, work);
    }

    pub(crate) fn begin_round(&self) {
        *self.round.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.now().mono;
    }

    pub(crate) fn last_round(&self) -> Mono {
        *self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// LC-073: as the API shows it.
    pub(crate) fn shown_id(&self, id: &ContainerId) -> String {
        format!("{}://{id}", self.runtime_name)
    }

    /// The way back.
    pub(crate) fn runtime_id(&self, shown: &str) -> ContainerId {
        let own = shown.strip_prefix(self.runtime_name.as_str()).and_then(|rest| rest.strip_prefix("://"));
        ContainerId::from(own.unwrap_or(shown))
    }
}
