//! The images of the node: since when they are known, when they were last
//! used, and how they go (TC §14.2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ambient::Timestamp;
use cri::{Container, ContainerState, CriError, Image};
use lifecycle::node::{ImageSeen, ImageStock, Reading, Settings, Signal, collect_images};
use objects::api::core::v1::Pod;

use crate::ctx::Ctx;
use crate::log_files;

/// What is remembered of images, by id. Forgotten with the agent, as upstream.
#[derive(Debug, Default)]
pub(crate) struct Stock(Mutex<BTreeMap<String, Times>>);

#[derive(Debug, Clone, Copy)]
struct Times {
    first_seen: Timestamp,
    last_used: Option<Timestamp>,
}

impl Stock {
    pub(crate) async fn list(&self, ctx: &Ctx) -> Result<ImageStock, CriError> {
        let containers = ctx.runtime.containers(None).await?;
        let images = ctx.runtime.images().await?;
        let place = ctx.runtime.image_fs().await?.mount_point;
        let signals = ctx.gauge.read(&ctx.config.root, Some(&place));
        let reading = signals.get(&Signal::ImagefsAvailable);
        let Reading { available, capacity } = *reading.ok_or_else(|| unreadable(&place))?;
        let used = used_names(&containers);
        let images = self.remember(&images, &used, ctx.clock.now().wall);
        Ok(ImageStock { capacity_bytes: capacity, available_bytes: available, images })
    }

    /// Containers that were created meanwhile use their image: it stays.
    pub(crate) async fn remove(&self, ctx: &Ctx, doomed: &[String]) {
        for id in doomed {
            match self.remove_one(ctx, id).await {
                Ok(()) => tracing::info!(image = id, "an unused image was removed"),
                Err(error) => tracing::warn!(image = id, %error, "an image could not be removed"),
            }
        }
    }

    /// TC-236: dead containers of pods that stopped, then every unused image.
    pub(crate) async fn reclaim(&self, ctx: &Ctx, pods: &[Arc<Pod>]) {
        if let Err(error) = remove_dead(ctx, pods).await {
            tracing::warn!(%error, "dead containers could not be removed");
        }
        match self.list(ctx).await {
            Ok(stock) => {
                let all = Settings { image_high_percent: 0, image_low_percent: 0, ..ctx.config.settings.clone() };
                let doomed = collect_images(&stock, &all, ctx.clock.now()).doomed;
                self.remove(ctx, &doomed).await;
            }
            Err(error) => tracing::warn!(%error, "images could not be listed"),
        }
    }

    async fn remove_one(&self, ctx: &Ctx, id: &str) -> Result<(), CriError> {
        let used = used_names(&ctx.runtime.containers(None).await?);
        match ctx.runtime.image(id).await? {
            Some(image) if !is_used(&image, &used) => ctx.runtime.remove_image(id).await,
            Some(_) | None => Ok(()),
        }
    }

    fn remember(&self, images: &[Image], used: &BTreeSet<String>, now: Timestamp) -> Vec<ImageSeen> {
        let mut known = self.0.lock().expect("a stock is never poisoned: nothing panics while holding it");
        known.retain(|id, _| images.iter().any(|image| image.id == *id));
        let seen = |image: &Image| {
            let is_used = is_used(image, used);
            let times = known.entry(image.id.clone()).or_insert(Times { first_seen: now, last_used: None });
            if is_used {
                times.last_used = Some(now);
            }
            ImageSeen {
                id: image.id.clone(),
                size_bytes: i64::try_from(image.size_bytes).unwrap_or(i64::MAX),
                is_used,
                is_pinned: image.is_pinned,
                first_seen: times.first_seen,
                last_used: times.last_used,
            }
        };
        images.iter().map(seen).collect()
    }
}

/// Every container, dead or alive, keeps its image and those mounted into it (LC-315).
fn used_names(containers: &[Container]) -> BTreeSet<String> {
    let own = containers.iter().flat_map(|container| [&container.image, &container.image_ref]);
    let mounted = containers.iter().flat_map(|container| &container.mounts).filter_map(|mount| mount.image.as_ref());
    own.chain(mounted).cloned().collect()
}

fn is_used(image: &Image, used: &BTreeSet<String>) -> bool {
    let names = [&image.id].into_iter().chain(&image.repo_tags).chain(&image.repo_digests);
    names.into_iter().any(|name| used.contains(name))
}

/// Of pods whose end the API knows.
async fn remove_dead(ctx: &Ctx, pods: &[Arc<Pod>]) -> Result<(), CriError> {
    let is_over = |pod: &&Arc<Pod>| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    for uid in pods.iter().filter(is_over).filter_map(|pod| pod.metadata.uid.as_deref()) {
        for container in ctx.runtime.containers(Some(uid)).await? {
            if container.state == ContainerState::Exited {
                ctx.runtime.remove_container(&container.id).await?;
                log_files::forget(ctx, container).await;
            }
        }
    }
    Ok(())
}

fn unreadable(place: &std::path::Path) -> CriError {
    CriError::Failed(format!("{}: its file system cannot be read", place.display()))
}
