//! Getting an image for a container: whether to ask the registry, and as whom.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use ambient::Now;
use client::{About, ApiError, Severity};
use cri::{CriError, Image, Runtime};
use lifecycle::{ImageUse, Outcome, PullPolicy};
use objects::api::core::v1::{Pod, Secret};
use objects::reasons::{event, waiting};

use crate::act::Scene;
use crate::config::Config;
use crate::container::with_tag;
use crate::ctx::Ctx;

mod keyring;
mod pace;
mod records;

use keyring::{Credential, Keyring};
pub(crate) use pace::Pace;
pub(crate) use records::Records;
use records::{Access, Holder};

/// LC-309, LC-310. The reasons are waiting reasons.
pub(crate) async fn pull_image(scene: &Scene, image: &str, policy: PullPolicy) -> Outcome {
    let ctx = &scene.ctx;
    let reference = with_tag(image);
    if policy != PullPolicy::Always {
        match ctx.runtime.image(&reference).await {
            Ok(Some(present)) if may_use(scene, &reference, &present).await => {
                return Outcome::Image(ImageUse::AlreadyPresent);
            }
            // LC-312: what a pod may not use is not there for it.
            Ok(_) if policy == PullPolicy::Never => {
                let message = format!("Container image \"{image}\" is not present with pull policy of Never");
                return refused(waiting::ERR_IMAGE_NEVER_PULL, message);
            }
            Ok(_) => {}
            Err(CriError::Invalid(error)) => {
                let message = format!("Failed to apply default image tag \"{image}\": {error}");
                return refused(waiting::INVALID_IMAGE_NAME, message);
            }
            Err(error) => {
                let message = format!("Failed to inspect image \"{image}\": {error}");
                return refused(waiting::IMAGE_INSPECT_ERROR, message);
            }
        }
    }
    let credentials = credentials(ctx, &scene.pod, image).await;
    let asked = ctx.clock.now();
    // LC-313: nobody waits for, or with, a pod that goes.
    let turn = scene.stopping.run_until_cancelled(ctx.pulls.turn(&scene.who.namespace));
    let Some(turn) = turn.await else { return complain(image, cancelled()) };
    let begun = ctx.clock.now();
    if !ctx.pulls.may_begin(begun) {
        return refused(waiting::ERR_IMAGE_PULL, "pull QPS exceeded".to_owned());
    }
    match turn.during(pull(scene, &reference, credentials)).await {
        Ok(pulled) => {
            let ended = ctx.clock.now();
            Outcome::Image(ImageUse::Pulled {
                took_ms: millis(begun, ended),
                waited_ms: millis(asked, begun),
                size_bytes: pulled.size_bytes,
            })
        }
        Err(error) => complain(image, error),
    }
}

/// LC-312: everyone, or is one of the pod's credentials known to be good?
async fn may_use(scene: &Scene, reference: &str, present: &Image) -> bool {
    let ctx = &scene.ctx;
    let (name, id) = (reference.to_owned(), present.id.clone());
    match on_disk(ctx, move |records| Ok(records.access(&name, &id))).await {
        Ok(Access::Everyone) => true,
        Ok(access) => {
            let credentials = credentials(ctx, &scene.pod, reference).await;
            access.is_for(&credentials.into_iter().map(|credential| credential.holder).collect::<Vec<_>>())
        }
        Err(_) => false,
    }
}

/// With each of the credentials until one is good, which is remembered;
/// without any if there are none.
async fn pull(scene: &Scene, reference: &str, credentials: Vec<Credential>) -> Result<Image, CriError> {
    let ctx = &scene.ctx;
    let name = reference.to_owned();
    let begun = on_disk(ctx, move |records| records.begin(&name)).await;
    begun.map_err(|error| {
        CriError::Failed(format!("failed to record image pull intent for image {reference:?}: {error}"))
    })?;
    let tried = scene.stopping.run_until_cancelled(try_each(ctx, reference, credentials)).await;
    let (outcome, holder) = tried.unwrap_or_else(|| (Err(cancelled()), None));
    let (name, now) = (reference.to_owned(), ctx.clock.now().wall);
    let id = outcome.as_ref().ok().map(|image| image.id.clone());
    let noted = on_disk(ctx, move |records| match id {
        Some(id) => records.pulled(&name, &id, holder.as_ref(), now),
        None => records.end(&name),
    });
    if let Err(error) = noted.await {
        // Nobody gets it without showing credentials again.
        tracing::warn!(%error, image = reference, "cannot note with whose credentials an image was pulled");
    }
    outcome
}

/// In Go's words: what the pull was for is gone.
fn cancelled() -> CriError {
    CriError::Failed("context canceled".to_owned())
}

/// The outcome, and whose credentials brought it about.
async fn try_each(
    ctx: &Ctx,
    reference: &str,
    mut credentials: Vec<Credential>,
) -> (Result<Image, CriError>, Option<Holder>) {
    let last = credentials.pop();
    for Credential { auth, holder } in credentials {
        match ctx.runtime.pull_image(reference, Some(auth)).await {
            Err(error @ (CriError::PullRefused(_) | CriError::Failed(_))) => {
                tracing::debug!(%error, image = reference, "credentials were not good, trying the next");
            }
            outcome => return (outcome, Some(holder)),
        }
    }
    let (auth, holder) = last.map(|Credential { auth, holder }| (auth, holder)).unzip();
    (ctx.runtime.pull_image(reference, auth).await, holder)
}

async fn on_disk<T: Send + 'static>(
    ctx: &Ctx,
    work: impl FnOnce(&Records) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let records = ctx.pulled.clone();
    tokio::task::spawn_blocking(move || work(&records)).await.map_err(io::Error::other)?
}

/// Of the agent that was here before, as far as they are about images that
/// still are.
pub(crate) async fn open_records(config: &Config, runtime: &dyn Runtime) -> Arc<Records> {
    let records = Arc::new(Records::new(&config.root, config.image_trust.clone()));
    let pruned = match runtime.images().await {
        Ok(images) => {
            let records = records.clone();
            let is_here = move |id: &str| images.iter().any(|image| image.id == id);
            tokio::task::spawn_blocking(move || records.prune(is_here)).await.map_err(io::Error::other).flatten()
        }
        Err(error) => Err(io::Error::other(error)),
    };
    if let Err(error) = pruned {
        tracing::warn!(%error, "notes about images that are gone stay until the next start");
    }
    records
}

/// The runtime's own words, where upstream has none of its own.
fn complain(image: &str, error: CriError) -> Outcome {
    match error {
        CriError::Invalid(error) => {
            let message = format!("Failed to apply default image tag \"{image}\": {error}");
            refused(waiting::INVALID_IMAGE_NAME, message)
        }
        CriError::RegistryUnavailable(error) => {
            let message = format!("image pull failed for {image} because the registry is unavailable: {error}");
            refused(waiting::REGISTRY_UNAVAILABLE, message)
        }
        error => refused(waiting::ERR_IMAGE_PULL, error.to_string()),
    }
}

fn refused(reason: &str, message: String) -> Outcome {
    Outcome::NoImage { reason: reason.to_owned(), message }
}

fn millis(from: Now, to: Now) -> u64 {
    u64::try_from((to.mono - from.mono).as_millis()).unwrap_or(u64::MAX)
}

/// The pod's own credentials for an image (LC-311: as far as they can be read).
async fn credentials(ctx: &Ctx, pod: &Pod, image: &str) -> Vec<Credential> {
    let secrets = pull_secrets(ctx, pod).await;
    if secrets.is_empty() {
        return Vec::new();
    }
    let image = image.to_owned();
    // Whatever somebody wrote into them is read off the async threads.
    let read = tokio::task::spawn_blocking(move || {
        let mut keyring = Keyring::default();
        secrets.iter().for_each(|secret| keyring.add(secret));
        keyring.lookup(&image)
    });
    read.await.unwrap_or_default()
}

/// What the secrets of one pod may hold together; each holds 1 MiB at most.
const SECRETS_BYTES_MAX: usize = 4 << 20;

async fn pull_secrets(ctx: &Ctx, pod: &Pod) -> Vec<Secret> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let listed = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let (mut found, mut unreadable, mut left) = (Vec::new(), Vec::new(), SECRETS_BYTES_MAX);
    for name in distinct(listed.map(|listed| listed.name.as_str())) {
        match ctx.client.get::<Secret>(namespace, name).await {
            Ok(secret) => match left.checked_sub(weight(&secret)) {
                Some(rest) => {
                    left = rest;
                    found.push(secret);
                }
                None => unreadable.push(name),
            },
            Err(error) => {
                if !matches!(error, ApiError::NotFound { .. }) {
                    tracing::warn!(%error, secret = name, "an image pull secret cannot be read");
                }
                unreadable.push(name);
            }
        }
    }
    if !unreadable.is_empty() {
        let list = unreadable.join(", ");
        let message = format!(
            "Unable to retrieve some image pull secrets ({list}); attempting to pull the image may not succeed."
        );
        let reason = event::FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET;
        ctx.recorder.record(About::object(pod), Severity::Warning, reason, &message, ctx.clock.now());
    }
    found
}

/// Each once, in the order they are listed.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !name.is_empty() && seen.insert(*name)).collect()
}

fn weight(secret: &Secret) -> usize {
    secret.data.iter().flatten().map(|(key, value)| key.len() + value.0.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_311_a_pull_secret_is_read_once_however_often_it_is_listed() {
        let names = std::iter::repeat_n("a", 100_000).chain(["b", "", "a"]);
        assert_eq!(distinct(names), ["a", "b"]);
    }
}
