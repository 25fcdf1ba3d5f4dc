//! What somebody shows to be somebody (API-640, API-645, API-647). A token is
//! read once for each request, and asked about again for as long as something
//! lasts that was opened with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ambient::{Clock, Timestamp};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, header};
use objects::{Kind, kinds};
use serde_json::Value;
use store::Store;

use crate::api::Api;
use crate::auth::{CREDENTIAL, Identity};
use crate::error::ApiError;
use crate::tokens::{Bound, Claims, ISSUER, KeptClaims, Subject};
use crate::{joining, object};

/// API-647: what is being deleted counts this much longer.
const FAREWELL_SECONDS: i64 = 60;

/// A token that was well made, whether or not it still counts.
pub(crate) enum Credential {
    /// Signed by us, with a time.
    Token(Box<Claims>),
    /// Signed by us, and good for as long as its Secret.
    Kept { token: String, claims: KeptClaims },
    /// Not signed: a Secret knows it.
    Joining { id: String, secret: String },
}

impl Credential {
    /// None: not a token that could be for one of these audiences now.
    pub(crate) fn read(api: &Api, token: &str, audiences: &[&str]) -> Option<Self> {
        let tokens = api.tokens.as_ref()?;
        if let Some(claims) = tokens.read(token, audiences, api.clock.now().wall) {
            return Some(Self::Token(Box::new(claims)));
        }
        let claims = tokens.read_kept(token).filter(|_| audiences.contains(&ISSUER))?;
        Some(Self::Kept { token: token.to_owned(), claims })
    }

    /// Whom it was made for.
    pub(crate) fn audiences(&self) -> Vec<String> {
        match self {
            Self::Token(claims) => claims.aud.clone(),
            Self::Kept { .. } | Self::Joining { .. } => vec![ISSUER.to_owned()],
        }
    }

    /// Whose it is; nobody's if what it is bound to is gone, or its time is over.
    pub(crate) async fn bearer(&self, store: &dyn Store, now: Timestamp) -> Result<Option<Identity>, ApiError> {
        match self {
            Self::Token(claims) if now.as_second() >= claims.until() => Ok(None),
            Self::Token(claims) => bearer_of(store, claims, now).await,
            Self::Kept { token, claims } => bearer_of_kept(store, token, claims).await,
            Self::Joining { id, secret } => joining::identity(store, id, secret, now).await,
        }
    }

    fn expires(&self) -> Option<Timestamp> {
        match self {
            // A time beyond all calendars never comes.
            Self::Token(claims) => Timestamp::from_second(claims.until()).ok(),
            Self::Kept { .. } | Self::Joining { .. } => None,
        }
    }
}

/// For how long who asks is known.
#[derive(Clone, Default)]
pub(crate) struct Tenure {
    expires: Option<Timestamp>,
    credential: Option<Arc<Credential>>,
}

/// Wall clocks are set now and then, and objects deleted.
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(10);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(60);

impl Tenure {
    /// None: for ever.
    pub(crate) fn until(expires: Option<Timestamp>) -> Self {
        Self { expires, credential: None }
    }

    fn of(credential: Credential) -> Self {
        Self { expires: credential.expires(), credential: Some(Arc::new(credential)) }
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.expires.is_none() && self.credential.is_none()
    }

    /// Waits until who asked is nobody any more.
    pub(crate) async fn over(self, store: Arc<dyn Store>, clock: Clock) {
        if self.is_endless() {
            return std::future::pending().await;
        }
        loop {
            let left = self.expires.map(|moment| moment.duration_since(clock.now().wall));
            if left.is_some_and(|left| left.is_negative()) {
                return;
            }
            let pause = left.map_or(LOOK_AGAIN_MAX, |left| left.unsigned_abs());
            tokio::time::sleep(pause.clamp(LOOK_AGAIN_MIN, LOOK_AGAIN_MAX)).await;
            let Some(credential) = &self.credential else { continue };
            // A store that does not answer says nothing about anybody.
            if let Ok(None) = credential.bearer(&*store, clock.now().wall).await {
                return;
            }
        }
    }
}

/// Who the bearer of this request's token is, and for how long; `None` without a
/// token.
pub(crate) async fn bearer(api: &Api, headers: &HeaderMap) -> Result<Option<(Identity, Tenure)>, ApiError> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some((scheme, token)) = given.split_once(' ') else { return Ok(None) };
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Ok(None);
    }
    let credential = match joining::parts(token) {
        Some((id, secret)) => Some(Credential::Joining { id: id.to_owned(), secret: secret.to_owned() }),
        None => Credential::read(api, token, &[ISSUER]),
    };
    let credential = credential.ok_or(ApiError::Unauthorized)?;
    let identity = credential.bearer(&*api.store, api.clock.now().wall).await?.ok_or(ApiError::Unauthorized)?;
    Ok(Some((identity, Tenure::of(credential))))
}

pub(crate) fn kind(plural: &str) -> &'static Kind {
    kinds::find("", "v1", plural).expect("the kinds table has what tokens are bound to")
}

pub(crate) fn user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

pub(crate) async fn fetch(
    store: &dyn Store,
    plural: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    if name.is_empty() {
        return Ok(None);
    }
    Ok(store.get(&object::key(kind(plural), namespace, name)).await?.map(|entry| object::document(&entry)))
}

/// API-647: everything it is bound to lives.
async fn bearer_of(store: &dyn Store, claims: &Claims, now: Timestamp) -> Result<Option<Identity>, ApiError> {
    let Subject { namespace, node, pod, secret, serviceaccount, warnafter: _ } = &claims.subject;
    let here = Some(namespace.as_str());
    let parts = [
        ("serviceaccounts", here, Some(serviceaccount)),
        ("pods", here, pod.as_ref()),
        ("secrets", here, secret.as_ref()),
        // A pod's token outlives its node's object: the pod decides.
        ("nodes", None, node.as_ref().filter(|_| pod.is_none())),
    ];
    for (plural, namespace, bound) in parts {
        if let Some(bound) = bound
            && !lives(store, plural, namespace, bound, now).await?
        {
            return Ok(None);
        }
    }
    let mut identity = account_identity(namespace, serviceaccount);
    identity.extra = extra(&claims.jti, pod.as_ref(), node.as_ref());
    Ok(Some(identity))
}

/// API-645: a token in a Secret is somebody as long as the Secret holds it.
async fn bearer_of_kept(store: &dyn Store, token: &str, claims: &KeptClaims) -> Result<Option<Identity>, ApiError> {
    let KeptClaims { namespace, secret, account, account_uid, .. } = claims;
    let is_going = |doc: &Value| !object::at(doc, &["metadata", "deletionTimestamp"]).is_null();
    let Some(secret) = fetch(store, "secrets", Some(namespace), secret).await?.filter(|doc| !is_going(doc)) else {
        return Ok(None);
    };
    let is_invalid = object::at(&secret, &["metadata", "labels", INVALID_SINCE]).is_string();
    if is_invalid || object::text(&secret, &["data", "token"]) != BASE64_STANDARD.encode(token) {
        return Ok(None);
    }
    let found = fetch(store, "serviceaccounts", Some(namespace), account).await?;
    let is_same = |doc: &Value| object::text(doc, &["metadata", "uid"]) == account_uid && !is_going(doc);
    let identity = || account_identity(namespace, &Bound { name: account.clone(), uid: account_uid.clone() });
    Ok(found.filter(is_same).map(|_| identity()))
}

/// Put on the Secret of a token that nobody used for a year.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

fn account_identity(namespace: &str, account: &Bound) -> Identity {
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let mut identity = Identity::new(user(namespace, &account.name), groups);
    identity.uid.clone_from(&account.uid);
    identity
}

async fn lives(
    store: &dyn Store,
    plural: &str,
    namespace: Option<&str>,
    bound: &Bound,
    now: Timestamp,
) -> Result<bool, ApiError> {
    let Some(doc) = fetch(store, plural, namespace, &bound.name).await? else { return Ok(false) };
    let is_over = match object::at(&doc, &["metadata", "deletionTimestamp"]) {
        Value::Null => false,
        // A time that can not be read has passed.
        deleted => deleted
            .as_str()
            .and_then(|at| at.parse::<Timestamp>().ok())
            .is_none_or(|at| now.as_second() > at.as_second().saturating_add(FAREWELL_SECONDS)),
    };
    Ok(object::text(&doc, &["metadata", "uid"]) == bound.uid && !is_over)
}

/// API-645.
fn extra(jti: &str, pod: Option<&Bound>, node: Option<&Bound>) -> BTreeMap<String, Vec<String>> {
    let mut extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("JTI={jti}")])]);
    let mut add = |key: &str, value: String| {
        extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    };
    for (what, bound) in [("pod", pod), ("node", node)] {
        if let Some(Bound { name, uid }) = bound {
            add(&format!("{what}-name"), name.clone());
            add(&format!("{what}-uid"), uid.clone());
        }
    }
    extra
}
