//! Getting an image for a container: whether to ask the registry, and as whom.

use ambient::Now;
use client::{About, ApiError, Severity};
use cri::{CriError, Image, RegistryAuth};
use lifecycle::{ImageUse, Outcome, PullPolicy};
use objects::api::core::v1::{Pod, Secret};
use objects::reasons::{event, waiting};

use crate::act::Scene;
use crate::container::with_tag;
use crate::ctx::Ctx;

mod keyring;

use keyring::Keyring;

/// LC-309, LC-310. The reasons are waiting reasons.
pub(crate) async fn pull_image(scene: &Scene, image: &str, policy: PullPolicy) -> Outcome {
    let ctx = &scene.ctx;
    let reference = with_tag(image);
    if policy != PullPolicy::Always {
        match ctx.runtime.image(&reference).await {
            Ok(Some(_)) => return Outcome::Image(ImageUse::AlreadyPresent),
            Ok(None) if policy == PullPolicy::Never => {
                let message = format!("Container image \"{image}\" is not present with pull policy of Never");
                return refused(waiting::ERR_IMAGE_NEVER_PULL, message);
            }
            Ok(None) => {}
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
    let keyring = keyring(ctx, &scene.pod).await;
    let asked = ctx.clock.now();
    let _turn = ctx.pulls.lock().await;
    let begun = ctx.clock.now();
    match pull(ctx, &reference, keyring.lookup(image)).await {
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

/// With each of the credentials until one is good; without any if there are none.
async fn pull(ctx: &Ctx, reference: &str, mut credentials: Vec<RegistryAuth>) -> Result<Image, CriError> {
    let last = credentials.pop();
    for auth in credentials {
        match ctx.runtime.pull_image(reference, Some(auth)).await {
            Err(error @ (CriError::PullRefused(_) | CriError::Failed(_))) => {
                tracing::debug!(%error, image = reference, "credentials were not good, trying the next");
            }
            outcome => return outcome,
        }
    }
    ctx.runtime.pull_image(reference, last).await
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

/// The pod's own credentials (LC-311: as far as they can be read).
async fn keyring(ctx: &Ctx, pod: &Pod) -> Keyring {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let listed = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let names = listed.map(|listed| listed.name.as_str()).filter(|name| !name.is_empty());
    let (mut keyring, mut unreadable) = (Keyring::default(), Vec::new());
    for name in names {
        match ctx.client.get::<Secret>(namespace, name).await {
            Ok(secret) => keyring.add(&secret),
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
    keyring
}
