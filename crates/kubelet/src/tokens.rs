//! Tokens of service accounts for pods: asked for once, renewed in time
//! (LC-323).
//!
//! Kept by pod UID, so that a pod of the same name never gets its
//! predecessor's token.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ambient::{Mono, Now, Timestamp};
use objects::api::core::v1::{Pod, ServiceAccount, ServiceAccountTokenProjection};
use serde_json::json;

use crate::ctx::Ctx;

/// However long a token lives, a day old it is renewed.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// API-485.
const LIFE_DEFAULT: i64 = 3600;

#[derive(Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<Wanted, Token>>);

/// What makes two requests the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    pod_uid: String,
    audience: String,
    seconds: i64,
}

#[derive(Debug, Clone)]
struct Token {
    text: String,
    renew_at: Mono,
    expires_at: Mono,
}

impl Tokens {
    /// A token for this pod's service account, bound to the pod. One that
    /// cannot be renewed is used to its end.
    pub(crate) async fn get(
        &self,
        ctx: &Ctx,
        pod: &Pod,
        source: &ServiceAccountTokenProjection,
    ) -> Result<String, String> {
        let wanted = Wanted {
            pod_uid: pod.metadata.uid.clone().unwrap_or_default(),
            audience: source.audience.clone().unwrap_or_default(),
            seconds: source.expiration_seconds.unwrap_or(LIFE_DEFAULT),
        };
        let known = self.lock().get(&wanted).cloned();
        if let Some(known) = known.as_ref().filter(|known| ctx.clock.now().mono < known.renew_at) {
            return Ok(known.text.clone());
        }
        match request(ctx, pod, &wanted).await {
            Ok(token) => {
                let text = token.text.clone();
                self.lock().insert(wanted, token);
                Ok(text)
            }
            Err(error) => match known.filter(|known| ctx.clock.now().mono < known.expires_at) {
                Some(known) => {
                    tracing::warn!(uid = wanted.pod_uid, error, "a token could not be renewed yet");
                    Ok(known.text)
                }
                None => Err(format!("failed to fetch token: {error}")),
            },
        }
    }

    /// When the first of a pod's tokens is to be renewed.
    pub(crate) fn due(&self, pod_uid: &str) -> Option<Mono> {
        let tokens = self.lock();
        tokens.iter().filter(|(wanted, _)| wanted.pod_uid == pod_uid).map(|(_, token)| token.renew_at).min()
    }

    pub(crate) fn forget(&self, pod_uid: &str) {
        self.lock().retain(|wanted, _| wanted.pod_uid != pod_uid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Wanted, Token>> {
        self.0.lock().expect("tokens are never poisoned: nothing panics holding them")
    }
}

async fn request(ctx: &Ctx, pod: &Pod, wanted: &Wanted) -> Result<Token, String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let audiences: Vec<&String> = Some(&wanted.audience).into_iter().filter(|audience| !audience.is_empty()).collect();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": audiences,
            "expirationSeconds": wanted.seconds,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": text(&meta.name), "uid": wanted.pod_uid},
        },
    });
    let asked_at = ctx.clock.now();
    let answer =
        ctx.client.create_subresource::<ServiceAccount>(&text(&meta.namespace), account, "token", &request).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let status = &answer["status"];
    let token = status["token"].as_str().ok_or("the answer has none")?;
    let expires: Option<Timestamp> = status["expirationTimestamp"].as_str().and_then(|time| time.parse().ok());
    let life = life(expires, wanted.seconds, asked_at);
    let (renew_at, expires_at) = (asked_at.mono + renew_after(life), asked_at.mono + life);
    Ok(Token { text: token.to_owned(), renew_at, expires_at })
}

/// As the server says, which may give less than was asked.
fn life(expires: Option<Timestamp>, asked_seconds: i64, now: Now) -> Duration {
    let asked = Duration::from_secs(asked_seconds.unsigned_abs());
    expires.map_or(asked, |expires| Duration::try_from(expires.duration_since(now.wall)).unwrap_or_default())
}

/// At four fifths of its life, or after a day.
fn renew_after(life: Duration) -> Duration {
    life.mul_f64(0.8).min(AGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lc_323_tokens_are_renewed_at_four_fifths_or_after_a_day() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(renew_after(hours(1)), Duration::from_secs(48 * 60));
        assert_eq!(renew_after(hours(24 * 365)), hours(24));
        let now = ambient::Clock::manual().now();
        let soon = now.wall + jiff::SignedDuration::from_secs(600);
        assert_eq!(life(Some(soon), 3600, now), Duration::from_secs(600));
        assert_eq!(life(None, 3600, now), hours(1));
        assert_eq!(life(Some(now.wall - jiff::SignedDuration::from_secs(5)), 3600, now), Duration::ZERO);
    }
}
