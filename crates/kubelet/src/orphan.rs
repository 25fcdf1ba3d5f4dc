//! Pods that run here and are known to nobody: stopped and removed, without a
//! word to the API (LC-015, TC-096).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cri::{CriError, Sandbox};
use futures::future::join_all;
use tokio::sync::mpsc;

use crate::ctx::Ctx;
use crate::volumes;

/// Grace 1 s, raised to the least time between stop signal and KILL.
const GRACE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(2);

/// LC-017, TC-096: how often they are looked for.
const HOUSEKEEPING: Duration = Duration::from_secs(2);

/// Counts the pods of the runtime and of the disk again and again, for as long
/// as somebody looks. A runtime or a disk that takes its time holds up nobody.
pub(crate) fn census(ctx: &Arc<Ctx>) -> mpsc::Receiver<BTreeSet<String>> {
    let (sender, receiver) = mpsc::channel(1);
    let ctx = ctx.clone();
    tokio::spawn(async move {
        while sender.send(uids(&ctx).await).await.is_ok() {
            tokio::time::sleep(HOUSEKEEPING).await;
        }
    });
    receiver
}

/// What the runtime has when an agent begins. Without a runtime there is
/// nothing to begin with.
pub(crate) async fn left(ctx: &Ctx) -> Vec<Sandbox> {
    loop {
        match ctx.runtime.sandboxes(None).await {
            Ok(sandboxes) => return sandboxes,
            Err(error) => tracing::warn!(%error, "the runtime cannot be read"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Every pod the runtime or the disk knows.
async fn uids(ctx: &Ctx) -> BTreeSet<String> {
    let mut uids = BTreeSet::new();
    match ctx.runtime.sandboxes(None).await {
        Ok(sandboxes) => uids.extend(sandboxes.into_iter().map(|sandbox| sandbox.meta.uid)),
        Err(error) => tracing::warn!(%error, "the runtime cannot be read"),
    }
    let (pods, log_root) = (ctx.config.pods_dir(), ctx.config.log_root.clone());
    let on_disk = tokio::task::spawn_blocking(move || -> std::io::Result<BTreeSet<String>> {
        let pods = std::fs::read_dir(pods)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        // Logs may have outlived everything else of their pod.
        let logs = volumes::log_dirs(&log_root)?.into_iter().map(|(uid, _)| Ok(uid));
        pods.chain(logs).collect()
    });
    uids.extend(on_disk.await.ok().and_then(Result::ok).unwrap_or_default());
    uids
}

/// Tries until nothing is left.
pub(crate) async fn clean_up(ctx: Arc<Ctx>, uid: String) {
    while let Err(error) = try_clean_up(&ctx, &uid).await {
        tracing::warn!(uid, %error, "an unknown pod is not gone yet");
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_clean_up(ctx: &Ctx, uid: &str) -> Result<(), CriError> {
    let containers = ctx.runtime.containers(Some(uid)).await?;
    let stops = containers.iter().map(|container| ctx.runtime.stop_container(&container.id, GRACE));
    join_all(stops).await.into_iter().collect::<Result<(), _>>()?;
    for sandbox in ctx.runtime.sandboxes(Some(uid)).await? {
        ctx.runtime.stop_sandbox(&sandbox.id).await?;
        ctx.runtime.remove_sandbox(&sandbox.id).await?;
        tracing::info!(uid, pod = sandbox.meta.name, "removed a pod that the API does not know");
        let meta = sandbox.meta;
        volumes::tear_down(ctx, &meta.namespace, &meta.name, uid).await.map_err(unremoved)?;
    }
    volumes::tear_down_unknown(ctx, uid).await.map_err(unremoved)
}

fn unremoved(error: std::io::Error) -> CriError {
    CriError::Failed(error.to_string())
}
