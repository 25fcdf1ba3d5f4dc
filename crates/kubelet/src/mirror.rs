//! The objects that show static pods in the API (LC-356, LC-357, TC-148).
//!
//! Decides: nothing; `lifecycle::mirror_step` does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::{ApiError, Deletion};
use lifecycle::{MirrorStep, mirror_of, mirror_step};
use objects::api::core::v1::Pod;
use tokio::task::JoinSet;

use crate::ctx::Ctx;

/// Namespace and name, which a static pod shares with its mirror.
pub(crate) type Key = (String, String);

/// Pause after the API refused or did not answer.
const RETRY: Duration = Duration::from_secs(5);

pub(crate) fn key(pod: &Pod) -> Key {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

pub(crate) struct Mirrors {
    ctx: Arc<Ctx>,
    /// As the API has them.
    held: BTreeMap<Key, Arc<Pod>>,
    /// Who owns them; nobody before the Node exists.
    node_uid: Option<String>,
    /// At most one step per mirror is under way.
    busy: BTreeSet<Key>,
    steps: JoinSet<Key>,
}

impl Mirrors {
    pub(crate) fn new(ctx: Arc<Ctx>) -> Self {
        Self { ctx, held: BTreeMap::new(), node_uid: None, busy: BTreeSet::new(), steps: JoinSet::new() }
    }

    pub(crate) fn on_node(&mut self, uid: Option<String>) {
        self.node_uid = uid;
    }

    pub(crate) fn on_applied(&mut self, mirror: Arc<Pod>) {
        self.held.insert(key(&mirror), mirror);
    }

    pub(crate) fn on_deleted(&mut self, mirror: &Pod) {
        let key = key(mirror);
        if self.held.get(&key).is_some_and(|held| held.metadata.uid == mirror.metadata.uid) {
            self.held.remove(&key);
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Pod>> {
        self.held.get(key)
    }

    /// Begins what is to be done: `wanted` are the static pods, `ending` the
    /// names of which something may still run. Nobody is unwanted before all
    /// who may want something have spoken.
    pub(crate) fn tend(&mut self, wanted: &BTreeMap<Key, Arc<Pod>>, ending: &BTreeSet<Key>, is_complete: bool) {
        let Some(node_uid) = self.node_uid.clone() else { return };
        let keys: BTreeSet<Key> = wanted.keys().chain(self.held.keys()).cloned().collect();
        for key in keys.difference(&self.busy.clone()) {
            let (pod, mirror) = (wanted.get(key), self.held.get(key));
            if pod.is_none() && !is_complete {
                continue;
            }
            let step = mirror_step(pod.map(AsRef::as_ref), ending.contains(key), mirror.map(AsRef::as_ref));
            let (ctx, key) = (self.ctx.clone(), key.clone());
            let call = match (step, pod, mirror) {
                (MirrorStep::Create, Some(pod), _) => {
                    let mirror = mirror_of(pod, &ctx.config.node_name, &node_uid);
                    Call::Create(Box::new(mirror))
                }
                (MirrorStep::Delete, _, Some(mirror)) => Call::Delete(mirror.metadata.uid.clone()),
                _ => continue,
            };
            self.busy.insert(key.clone());
            self.steps.spawn(async move {
                call.make(&ctx, &key).await;
                key
            });
        }
    }

    /// Returns when a step is over, so that the next one can be found.
    pub(crate) async fn over(&mut self) {
        match self.steps.join_next().await {
            Some(Ok(key)) => drop(self.busy.remove(&key)),
            Some(Err(error)) => {
                tracing::error!(%error, "a step of a mirror failed");
                // Nobody knows whose it was; what is done twice does no harm.
                self.busy.clear();
            }
            None => std::future::pending().await,
        }
    }
}

enum Call {
    Create(Box<Pod>),
    Delete(Option<String>),
}

impl Call {
    /// What the API has is seen by the watch; a failure is tried again.
    async fn make(self, ctx: &Ctx, (namespace, name): &Key) {
        let result = match self {
            Self::Create(mirror) => ctx.client.create(mirror.as_ref()).await.map(drop),
            Self::Delete(uid) => {
                let how = Deletion { grace_seconds: Some(0), uid, ..Deletion::default() };
                ctx.client.delete::<Pod>(namespace, name, &how).await
            }
        };
        match result {
            Ok(()) => {}
            Err(ApiError::NotFound { .. } | ApiError::AlreadyExists { .. } | ApiError::Conflict { .. }) => {}
            Err(error) => {
                tracing::warn!(namespace, name, %error, "a mirror of a static pod could not be written");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
