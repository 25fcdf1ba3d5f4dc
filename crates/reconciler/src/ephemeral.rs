//! Drives `controllers::ephemeral`: claims that live with their pods.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ambient::Clock;
use client::{About, ApiError, Cache, Change, Client, Deletion, Recorder, Scope, Severity};
use controllers::ephemeral::{Write, claims_of, owning_pod, plan};
use objects::api::core::v1::{PersistentVolumeClaim, Pod};
use objects::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What must be looked at again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Pod(Place),
    Claim(Place),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    namespace: String,
    name: String,
}

impl Place {
    fn of(meta: &ObjectMeta) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { namespace: text(&meta.namespace), name: text(&meta.name) }
    }
}

struct Driver {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
}

/// Never returns.
pub(crate) async fn run(client: Client, clock: Clock) -> Infallible {
    let driver = Driver {
        recorder: Recorder::start(client.clone(), "ephemeral_volume", ""),
        pods: client.cache(Scope::everywhere()),
        claims: client.cache(Scope::everywhere()),
        client,
        clock,
    };
    driver.pods.synced().await;
    driver.claims.synced().await;
    let (mut pods, mut claims) = (driver.pods.subscribe(), driver.claims.subscribe());
    let (mut pending, mut failed) = (BTreeSet::new(), BTreeSet::new());
    loop {
        while let Some(key) = pending.pop_first() {
            if let Err(error) = driver.settle(&key).await {
                tracing::warn!(?key, %error, "an ephemeral volume is not settled yet");
                failed.insert(key);
            }
        }
        tokio::select! {
            biased;
            change = pods.next() => pending.extend(after_pod(&change)),
            change = claims.next() => pending.extend(after_claim(&change)),
            () = tokio::time::sleep(RETRY), if !failed.is_empty() => pending.append(&mut failed),
        }
    }
}

fn after_pod(change: &Change<Pod>) -> Vec<Key> {
    let pod = change.object();
    let Place { namespace, .. } = Place::of(&pod.metadata);
    let claims = claims_of(pod).into_iter().map(|name| Key::Claim(Place { namespace: namespace.clone(), name }));
    match change {
        Change::Applied(_) if claims.len() == 0 => Vec::new(),
        Change::Applied(_) => vec![Key::Pod(Place::of(&pod.metadata))],
        Change::Deleted(_) => claims.collect(),
    }
}

fn after_claim(change: &Change<PersistentVolumeClaim>) -> Option<Key> {
    let claim = change.object();
    let owner = owning_pod(claim)?;
    let place = Place::of(&claim.metadata);
    Some(match change {
        Change::Applied(_) => Key::Claim(place),
        // A pod whose claim somebody took away needs another.
        Change::Deleted(_) => Key::Pod(Place { namespace: place.namespace, name: owner.name.clone() }),
    })
}

impl Driver {
    async fn settle(&self, key: &Key) -> Result<(), ApiError> {
        match key {
            Key::Pod(Place { namespace, name }) => match self.pods.get(namespace, name) {
                Some(pod) => self.supply(&pod, namespace).await,
                None => Ok(()),
            },
            Key::Claim(Place { namespace, name }) => match self.claims.get(namespace, name) {
                Some(claim) => self.remove_orphan(&claim, namespace, name).await,
                None => Ok(()),
            },
        }
    }

    async fn supply(&self, pod: &Pod, namespace: &str) -> Result<(), ApiError> {
        let names = claims_of(pod);
        let known: Vec<_> = names.iter().filter_map(|name| self.claims.get(namespace, name)).collect();
        let find =
            |name: &str| known.iter().map(Arc::as_ref).find(|claim| claim.metadata.name.as_deref() == Some(name));
        for write in plan(pod, find) {
            match write {
                Write::Create(claim) => match self.client.create(claim.as_ref()).await {
                    Ok(_) | Err(ApiError::AlreadyExists { .. } | ApiError::NotFound { .. }) => {}
                    // LC-320: the pod waits, and its user must see why.
                    Err(error @ (ApiError::Invalid { .. } | ApiError::Forbidden { .. })) => {
                        self.tell(pod, &format!("ephemeral volume: {error}"));
                    }
                    Err(error) => return Err(error),
                },
                Write::Tell(message) => self.tell(pod, &message),
            }
        }
        Ok(())
    }

    fn tell(&self, pod: &Pod, message: &str) {
        self.recorder.record(About::object(pod), Severity::Warning, "FailedBinding", message, self.clock.now());
    }

    /// The pod may be newer than what is known here, so it is asked for.
    async fn remove_orphan(&self, claim: &PersistentVolumeClaim, namespace: &str, name: &str) -> Result<(), ApiError> {
        let Some(owner) = owning_pod(claim) else { return Ok(()) };
        let is_owner = |pod: &Pod| pod.metadata.uid.as_deref() == Some(owner.uid.as_str());
        if claim.metadata.deletion_timestamp.is_some()
            || self.pods.get(namespace, &owner.name).is_some_and(|pod| is_owner(&pod))
        {
            return Ok(());
        }
        match self.client.get::<Pod>(namespace, &owner.name).await {
            Ok(pod) if is_owner(&pod) => return Ok(()),
            Ok(_) | Err(ApiError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let how = Deletion { uid: claim.metadata.uid.clone(), ..Deletion::default() };
        match self.client.delete::<PersistentVolumeClaim>(namespace, name, &how).await {
            Ok(()) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
