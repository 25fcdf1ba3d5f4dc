//! Drives `controllers::quota`: lists what a quota is about, writes its count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ambient::Clock;
use client::{ApiError, Cache, Change, Client, Owned, Patch, Scope};
use controllers::quota::{RESYNC, frees, is_uncounted};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use objects::api::core::v1::{Pod, ResourceQuota};
use objects::{Kind, kinds, quota};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Whoever looked for quotas before there was one to charge has written or
/// given up after this long: the API server lets no write take longer.
const UNCHARGED: Duration = Duration::from_secs(40);
/// How often a count is taken again at once.
const TRIES: u32 = 8;

struct Driver {
    client: Client,
    clock: Clock,
    quotas: Arc<Cache<ResourceQuota>>,
    /// Kinds some quota counts, by group and plural.
    followed: BTreeMap<(&'static str, &'static str), Arc<Cache<Owned>>>,
}

/// Never returns.
pub(crate) async fn run(client: Client, clock: Clock) -> Infallible {
    let (quotas, pods) = (client.cache::<ResourceQuota>(Scope::everywhere()), client.cache::<Pod>(Scope::everywhere()));
    quotas.synced().await;
    let (mut quota_news, mut pod_news) = (quotas.subscribe(), pods.subscribe());
    let mut driver = Driver { client, clock, quotas, followed: BTreeMap::new() };
    // Namespaces in which something is gone.
    let mut gone: SelectAll<BoxStream<'static, String>> = SelectAll::new();
    let mut passes = tokio::time::interval(RESYNC);
    let (mut pending, mut failed) = (BTreeSet::<String>::new(), BTreeSet::new());
    // Namespaces to count once more, and when.
    let mut later = VecDeque::<(Instant, String)>::new();
    loop {
        while let Some(namespace) = pending.pop_first() {
            if let Err(error) = driver.settle(&namespace).await {
                tracing::warn!(namespace, %error, "a quota is not counted yet");
                failed.insert(namespace);
            }
        }
        tokio::select! {
            biased;
            change = quota_news.next() => {
                let quota = change.object();
                gone.extend(driver.follow(quota));
                if is_uncounted(quota) {
                    let namespace = quota.metadata.namespace.clone().unwrap_or_default();
                    later.push_back((Instant::now() + UNCHARGED, namespace.clone()));
                    pending.insert(namespace);
                }
            }
            change = pod_news.next() => {
                let pod = change.object();
                if frees(pod) {
                    pending.insert(pod.metadata.namespace.clone().unwrap_or_default());
                }
            }
            Some(namespace) = gone.next(), if !gone.is_empty() => drop(pending.insert(namespace)),
            Some(namespace) = due(&mut later) => drop(pending.insert(namespace)),
            _ = passes.tick() => pending.extend(driver.namespaces()),
            () = tokio::time::sleep(RETRY), if !failed.is_empty() => pending.append(&mut failed),
        }
    }
}

impl Driver {
    fn namespaces(&self) -> Vec<String> {
        self.quotas.snapshot().iter().map(|quota| quota.metadata.namespace.clone().unwrap_or_default()).collect()
    }

    /// Tells from now on where something it counts is gone.
    fn follow(&mut self, quota: &ResourceQuota) -> Vec<BoxStream<'static, String>> {
        let mut news = Vec::new();
        for kind in counted(&json!(quota)) {
            let key = (kind.group, kind.plural);
            if !self.followed.contains_key(&key) {
                let cache = self.client.untyped(kind).follow();
                news.push(removals(&cache));
                self.followed.insert(key, cache);
            }
        }
        news
    }

    async fn settle(&self, namespace: &str) -> Result<(), ApiError> {
        let quotas = self.quotas.snapshot();
        for quota in quotas.iter().filter(|quota| quota.metadata.namespace.as_deref() == Some(namespace)) {
            self.count(namespace, quota.metadata.name.as_deref().unwrap_or_default()).await?;
        }
        Ok(())
    }

    /// First the quota, then what is there: who is charged in between makes
    /// our write fail.
    async fn count(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let mut was_written = false;
        for _ in 0..TRIES {
            let quota = match self.client.get::<ResourceQuota>(namespace, name).await {
                Ok(quota) => json!(quota),
                Err(ApiError::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut objects = Vec::new();
            for kind in counted(&quota) {
                // Or what goes between our list and its first one would never be told.
                if let Some(cache) = self.followed.get(&(kind.group, kind.plural)) {
                    cache.synced().await;
                }
                objects.push((kind, self.client.untyped(kind).list(namespace).await?));
            }
            let all = objects.iter().flat_map(|(kind, docs): &(_, Vec<Value>)| docs.iter().map(|doc| (*kind, doc)));
            let status = quota::count(&quota, all, self.clock.now());
            if quota["status"] == status {
                return Ok(());
            }
            let version = &quota["metadata"]["resourceVersion"];
            let patch = Patch::Json(json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/status", "value": status},
            ]));
            match self.client.patch_status::<ResourceQuota>(namespace, name, &patch).await {
                Err(ApiError::NotFound { .. }) => return Ok(()),
                // Once more: who came while nothing was counted yet was charged to nobody.
                Ok(_) if !was_written => was_written = true,
                Ok(_) => return Ok(()),
                // The test failed: somebody was charged.
                Err(ApiError::Conflict { .. } | ApiError::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::Conflict { message: format!("{namespace}/{name} changes all the time") })
    }
}

/// The first one, when its time has come; none if there is none.
async fn due(later: &mut VecDeque<(Instant, String)>) -> Option<String> {
    tokio::time::sleep_until(later.front()?.0).await;
    later.pop_front().map(|(_, namespace)| namespace)
}

fn counted(quota: &Value) -> Vec<&'static Kind> {
    let all = kinds::ALL.iter().copied().filter(|kind| kind.ops.is_stored() && quota::counts(kind));
    all.filter(|kind| quota::concerns(quota, kind)).collect()
}

fn removals(cache: &Cache<Owned>) -> BoxStream<'static, String> {
    let changes = stream::unfold(cache.subscribe(), |mut from| async move { Some((from.next().await, from)) });
    Box::pin(changes.filter_map(|change| async move {
        match change {
            Change::Deleted(object) => Some(object.metadata.namespace.clone()),
            Change::Applied(_) => None,
        }
    }))
}
