//! Who asks, and whether they may (API-697): certificates are believed as TLS
//! has verified them, tokens as the API server reviews them, and what anyone
//! may do is the API server's to say. Answers are remembered for a while, as
//! upstream does, so that a scrape does not become a storm of questions.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use ambient::{Mono, Timestamp};
use client::ApiError;
use http::{HeaderMap, Method, Response, StatusCode, header};
use objects::api::authentication::v1::{TokenReview, TokenReviewSpec};
use objects::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

use super::{Body, text};
use crate::ctx::Ctx;

/// API-697, with upstream's default lifetimes.
const KNOWN_FOR: Duration = Duration::from_secs(2 * 60);
const ALLOWED_FOR: Duration = Duration::from_secs(5 * 60);
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// Answers remembered of each sort; more begin anew.
const REMEMBERED_MAX: usize = 1024;
/// Longer ones are asked about each time.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Who a request is from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Caller {
    user: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

impl Caller {
    /// And until when. None: the connection shows no certificate that names one
    /// and can be read to the end.
    pub(super) fn of(certificates: &[rustls::pki_types::CertificateDer<'_>]) -> Option<(Self, Timestamp)> {
        let certificate = certificates.first()?;
        let (rest, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let subject = certificate.subject();
        let text =
            |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        let mut names = subject.iter_common_name();
        let user = names.next().and_then(text).filter(|user| !user.is_empty())?;
        if names.next().is_some() || !rest.is_empty() {
            return None;
        }
        let mut groups: Vec<String> = subject.iter_organization().map(text).collect::<Option<_>>()?;
        groups.push("system:authenticated".to_owned());
        let expires = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
        Some((Self { user, groups, ..Self::default() }, expires))
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }
}

/// What the API server has said lately.
#[derive(Default)]
pub(crate) struct Doorkeeper {
    /// None: nobody's token.
    tokens: Memory<String, Option<Caller>>,
    accesses: Memory<(Caller, String, &'static str), bool>,
}

impl Doorkeeper {
    /// Why a request may not go on.
    pub(super) async fn refusal(
        &self,
        ctx: &Ctx,
        certified: Option<&Caller>,
        (method, path, headers): (&Method, &str, &HeaderMap),
    ) -> Option<Response<Body>> {
        let unauthorized = || Some(text(StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()));
        let caller = match (certified, bearer(headers)) {
            (Some(caller), _) => caller.clone(),
            (None, Some(token)) => match self.whose(ctx, token).await {
                Ok(Some(caller)) => caller,
                Ok(None) => return unauthorized(),
                Err(error) => {
                    tracing::warn!(%error, "a token cannot be reviewed");
                    return unauthorized();
                }
            },
            (None, None) => return unauthorized(),
        };
        let (verb, subresources) = (verb(method, path), subresources(path));
        let user = &caller.user;
        for subresource in subresources {
            match self.may(ctx, &caller, &verb, subresource).await {
                Ok(true) => return None,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, user, verb, subresource, "a permission cannot be reviewed");
                    let message = format!(
                        "Authorization error (user={user}, verb={verb}, resource=nodes, subresource={subresource})"
                    );
                    return Some(text(StatusCode::INTERNAL_SERVER_ERROR, message));
                }
            }
        }
        let subresources = subresources.join(" ");
        let message =
            format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n");
        Some(text(StatusCode::FORBIDDEN, message))
    }

    async fn whose(&self, ctx: &Ctx, token: &str) -> Result<Option<Caller>, ApiError> {
        let now = ctx.clock.now().mono;
        if let Some(known) = self.tokens.recall(token, now) {
            return Ok(known);
        }
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = ctx.client.create(&TokenReview { spec, ..TokenReview::default() }).await?;
        let status = review.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let caller = user.and_then(|user| {
            Some(Caller {
                user: user.username.filter(|name| !name.is_empty())?,
                groups: user.groups.unwrap_or_default(),
                uid: user.uid.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            })
        });
        if token.len() <= TOKEN_BYTES_MAX {
            self.tokens.keep(token.to_owned(), caller.clone(), now + KNOWN_FOR, now);
        }
        Ok(caller)
    }

    async fn may(&self, ctx: &Ctx, caller: &Caller, verb: &str, subresource: &'static str) -> Result<bool, ApiError> {
        let now = ctx.clock.now().mono;
        let key = (caller.clone(), verb.to_owned(), subresource);
        if let Some(known) = self.accesses.recall(&key, now) {
            return Ok(known);
        }
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            version: Some("v1".to_owned()),
            resource: Some("nodes".to_owned()),
            subresource: Some(subresource.to_owned()),
            name: Some(ctx.config.node_name.clone()),
            ..ResourceAttributes::default()
        };
        let Caller { user, groups, uid, extra } = caller.clone();
        let spec = SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            user: Some(user),
            groups: Some(groups),
            uid: Some(uid),
            extra: Some(extra),
            ..SubjectAccessReviewSpec::default()
        };
        let review = ctx.client.create(&SubjectAccessReview { spec, ..SubjectAccessReview::default() }).await?;
        let is_allowed = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        let lasts = if is_allowed { ALLOWED_FOR } else { REFUSED_FOR };
        self.accesses.keep(key, is_allowed, now + lasts, now);
        Ok(is_allowed)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then_some(token.trim())
}

/// Answers with the time until which they count.
struct Memory<K, V>(Mutex<BTreeMap<K, (V, Mono)>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<K: Ord, V: Clone> Memory<K, V> {
    fn recall<Q: Ord + ?Sized>(&self, key: &Q, now: Mono) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
    {
        let known = self.0.lock().expect("no code panics while holding it");
        known.get(key).filter(|(_, until)| now < *until).map(|(value, _)| value.clone())
    }

    fn keep(&self, key: K, value: V, until: Mono, now: Mono) {
        let mut known = self.0.lock().expect("no code panics while holding it");
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(key, (value, until));
    }
}

/// API-623: whoever may only read must not get into containers, whatever the
/// method: a WebSocket begins with a GET.
fn verb(method: &Method, path: &str) -> String {
    match *method {
        _ if super::streams::is_one(path) => "create".to_owned(),
        Method::POST => "create".to_owned(),
        Method::PUT => "update".to_owned(),
        Method::GET | Method::HEAD => "get".to_owned(),
        _ => method.as_str().to_lowercase(),
    }
}

/// API-690 to API-696: what of a node a path shows, as authorizers name it;
/// any of them is enough.
fn subresources(path: &str) -> &'static [&'static str] {
    match path.split('/').next().unwrap_or_default() {
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "metrics" => &["metrics"],
        "stats" => &["stats"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use ambient::Clock;

    use super::*;

    #[test]
    fn api_690_to_api_696_paths_are_subresources_of_the_node() {
        for (path, expected) in [
            ("pods", "pods proxy"),
            ("runningpods", "pods proxy"),
            ("healthz/ping", "healthz proxy"),
            ("configz", "configz proxy"),
            ("metrics/cadvisor", "metrics"),
            ("stats/summary", "stats"),
            ("logs/kubelet.log", "log"),
            ("exec/default/web/app", "proxy"),
            ("containerLogs/default/web/app", "proxy"),
        ] {
            assert_eq!(subresources(path).join(" "), expected, "{path}");
        }
        let verbs = [Method::POST, Method::GET, Method::DELETE].map(|method| verb(&method, "pods"));
        assert_eq!(verbs, ["create", "get", "delete"]);
        for path in ["exec/default/web/app", "attach/a", "run/default/web/u/app", "portForward/default/web", "exec"] {
            assert_eq!(verb(&Method::GET, path), "create", "API-623: {path}");
        }
    }

    #[test]
    fn api_697_answers_count_until_their_time_is_over() {
        let clock = Clock::manual();
        let memory = Memory::default();
        let now = clock.now().mono;
        memory.keep("a".to_owned(), true, now + REFUSED_FOR, now);
        assert_eq!(memory.recall("a", clock.now().mono), Some(true));
        clock.advance(REFUSED_FOR);
        assert_eq!(memory.recall("a", clock.now().mono), None);
        for index in 0..2 * REMEMBERED_MAX {
            let now = clock.now().mono;
            memory.keep(index.to_string(), true, now + REFUSED_FOR, now);
            assert!(memory.0.lock().unwrap().len() <= REMEMBERED_MAX);
        }
    }
}
