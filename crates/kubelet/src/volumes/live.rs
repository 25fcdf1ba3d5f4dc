//! Keeps current what running pods were given: config maps, secrets, their own
//! fields, tokens (LC-319, LC-323).
//!
//! One task per pod that has such volumes. It wakes when an object it refers to
//! changes (one watch per object, shared by all pods), when the pod itself
//! changes in a way files can show, and when a token grows old. Nothing is
//! polled, and objects that are immutable are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::{About, Cache, Change, Kind, Scope, Severity, Subscription};
use futures::future::{BoxFuture, FutureExt as _, select_all};
use objects::api::core::v1::{ConfigMap, Pod, Secret};
use objects::reasons::event;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{path_of, payload_dir, write_payload};
use crate::ctx::Ctx;
use crate::payload;

/// Never returns.
pub(crate) async fn keep_current(ctx: Arc<Ctx>, pods: Arc<Cache<Pod>>) {
    let mut changes = pods.subscribe();
    let mut followed: BTreeMap<String, Followed> = BTreeMap::new();
    loop {
        let change = changes.next().await;
        let uid = change.object().metadata.uid.clone().unwrap_or_default();
        match change {
            Change::Applied(pod) if needs_care(&pod) => match followed.get(&uid) {
                Some(known) if shows_same(&known.pod.borrow(), &pod) => {}
                Some(known) => drop(known.pod.send_replace(pod)),
                None => drop(followed.insert(uid, Followed::start(ctx.clone(), pod))),
            },
            Change::Applied(_) | Change::Deleted(_) => drop(followed.remove(&uid)),
        }
    }
}

struct Followed {
    pod: watch::Sender<Arc<Pod>>,
    _task: AbortOnDropHandle<()>,
}

impl Followed {
    fn start(ctx: Arc<Ctx>, pod: Arc<Pod>) -> Self {
        let (pod, receiver) = watch::channel(pod);
        Self { pod, _task: AbortOnDropHandle::new(tokio::spawn(follow(ctx, receiver))) }
    }
}

/// Lives, and has volumes with content of ours.
fn needs_care(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let is_over = matches!(phase, "Succeeded" | "Failed");
    !is_over && pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(payload::is_payload)
}

/// Nothing that a file could show has changed.
fn shows_same(old: &Pod, new: &Pod) -> bool {
    let (before, after) = (&old.metadata, &new.metadata);
    before.labels == after.labels && before.annotations == after.annotations && old.spec == new.spec
}

async fn follow(ctx: Arc<Ctx>, mut pods: watch::Receiver<Arc<Pod>>) {
    let mut sources = Sources::of(&ctx, &pods.borrow());
    loop {
        let pod = pods.borrow_and_update().clone();
        refresh(&ctx, &pod).await;
        let rest = rest(&ctx, &pod);
        tokio::select! {
            biased;
            changed = pods.changed() => if changed.is_err() { return },
            () = sources.changed() => {}
            () = tokio::time::sleep(rest.unwrap_or_default()), if rest.is_some() => {}
        }
    }
}

/// How long nothing needs to happen by itself; `None` is for ever.
fn rest(ctx: &Ctx, pod: &Pod) -> Option<Duration> {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    if !volumes.any(payload::has_token) {
        return None;
    }
    let due = ctx.tokens.due(pod.metadata.uid.as_deref().unwrap_or_default());
    Some(due.map_or(TOKEN_LOOK, |due| due.since(ctx.clock.now().mono).max(TOKEN_RETRY)))
}

/// Whether a pod that is still being prepared has its token; far below the
/// shortest time after which one is renewed.
const TOKEN_LOOK: Duration = Duration::from_secs(60);

/// A token that could not be renewed is asked for again after this long; it
/// has a fifth of its life left then.
const TOKEN_RETRY: Duration = Duration::from_secs(10);

/// Volumes not written yet are left to who prepares the pod.
async fn refresh(ctx: &Ctx, pod: &Pod) {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let dir = ctx.config.pod_dir(uid);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut room = payload::Room::new();
    for volume in volumes.filter(|volume| payload::is_payload(volume)) {
        let path = path_of(&dir, volume);
        let _turn = ctx.turns.of(uid).await;
        if !payload_dir::is_written(&path) {
            continue;
        }
        match write_payload(ctx, pod, path, volume, &mut room).await {
            Ok(false) => {}
            Ok(true) => tracing::info!(uid, volume = volume.name, "volume has new content"),
            Err(error) => {
                let message = format!("MountVolume.SetUp failed for volume \"{}\" : {error}", volume.name);
                let (about, now) = (About::object(pod), ctx.clock.now());
                ctx.recorder.record(about, Severity::Warning, event::FAILED_MOUNT, &message, now);
            }
        }
    }
}

/// The objects whose content a pod's volumes show.
struct Sources {
    config_maps: Vec<Followable<ConfigMap>>,
    secrets: Vec<Followable<Secret>>,
}

struct Followable<K: Kind> {
    /// Keeps the watch alive.
    _cache: Arc<Cache<K>>,
    changes: Subscription<K>,
}

impl Sources {
    fn of(ctx: &Ctx, pod: &Pod) -> Self {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            payload::references_of(volume, &mut config_maps, &mut secrets);
        }
        Self {
            config_maps: config_maps.iter().map(|name| Followable::start(ctx, namespace, name)).collect(),
            secrets: secrets.iter().map(|name| Followable::start(ctx, namespace, name)).collect(),
        }
    }

    /// Waits for the next change of any of them; without any, for ever.
    async fn changed(&mut self) {
        let Self { config_maps, secrets } = self;
        let maps = config_maps.iter_mut().enumerate().map(|(number, source)| {
            let next = source
                .changes
                .next()
                .map(move |change| (number, Of::ConfigMap, is_final(&change, |map: &ConfigMap| map.immutable)));
            next.boxed()
        });
        let others = secrets.iter_mut().enumerate().map(|(number, source)| {
            let next = source
                .changes
                .next()
                .map(move |change| (number, Of::Secret, is_final(&change, |secret: &Secret| secret.immutable)));
            next.boxed()
        });
        let waits: Vec<BoxFuture<'_, (usize, Of, bool)>> = maps.chain(others).collect();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        let ((number, of, is_final), _, rest) = select_all(waits).await;
        drop(rest);
        match (is_final, of) {
            (false, _) => {}
            (true, Of::ConfigMap) => drop(self.config_maps.swap_remove(number)),
            (true, Of::Secret) => drop(self.secrets.swap_remove(number)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Of {
    ConfigMap,
    Secret,
}

/// An immutable object never changes again: its watch can end.
fn is_final<K>(change: &Change<K>, immutable: fn(&K) -> Option<bool>) -> bool {
    matches!(change, Change::Applied(object) if immutable(object) == Some(true))
}

impl<K: Kind> Followable<K> {
    /// By name, which is all that a node may ask for at other API servers.
    fn start(ctx: &Ctx, namespace: &str, name: &str) -> Self {
        let scope = Scope { namespace: namespace.to_owned(), ..Scope::fields(format!("metadata.name={name}")) };
        let cache = ctx.client.cache::<K>(scope);
        Self { changes: cache.subscribe(), _cache: cache }
    }
}
