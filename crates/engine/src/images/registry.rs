//! Talks to OCI registries: which hosts to ask, who we are, what they hold.
//!
//! Never: keeps anything on disk (`pull.rs` does), trusts what it is told
//! without a digest.
//! Read next: `registry/http.rs` (single requests), `registry/hosts.rs` (configuration),
//! `registry/proxy.rs` (through whom).

mod challenge;
mod dial;
#[cfg(fuzzing)]
pub mod fuzzing;
mod hosts;
mod http;
mod names;
mod proxy;
mod tls;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE};
use ::http::{Method, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use cri::RegistryAuth;
use hyper::body::Incoming;
use serde::Deserialize;

pub(super) use self::http::{PATIENCE, Patience, Trouble};
pub(super) use self::names::Names;
pub use self::proxy::ProxyConfig;

use self::challenge::Challenge;
use self::hosts::{Host, Tls};
use self::http::{Flow, Http, Question, Trust, authorization, has_host, is_same_origin, plain, trouble};
use self::proxy::Proxies;
use super::ImageError;
use super::limits::{JSON_BYTES_MAX, TOKEN_BYTES_MAX};
use super::manifest::{INDEX_TYPES, MANIFEST_TYPES};
use super::object::only_objects;
use super::read::digest_of;
use super::reference::Reference;

/// How registries are reached.
#[derive(Debug, Clone, Default)]
pub struct RegistryConfig {
    /// A directory of `<registry>/hosts.toml`, as containerd's `certs.d`.
    pub hosts_dir: Option<PathBuf>,
    /// Speak HTTP without TLS to registries that are not configured.
    pub plain_http: bool,
    /// Through whom registries and their token servers are asked.
    pub proxies: ProxyConfig,
}

/// One repository, asked for one image.
pub(super) struct Session {
    /// `docker.io`, for mirrors that serve several registries.
    domain: String,
    /// `library/busybox`.
    path: String,
    endpoints: Vec<Endpoint>,
    auth: Option<RegistryAuth>,
    patience: Patience,
    /// What went wrong at mirrors, for the case that nobody helps.
    complaints: Mutex<Vec<String>>,
}

/// A registry, or something that stands in for it.
pub(super) struct Endpoint {
    host: Host,
    http: Http,
    /// What proved to be accepted.
    proof: Mutex<HeaderMap>,
}

/// The content of a blob from some point on.
pub(super) struct Blob {
    pub(super) starts_at: u64,
    body: Flow,
}

impl Blob {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        self.body.next().await
    }
}

impl Session {
    /// Reads certificates: blocks on files.
    pub(super) fn new(
        reference: &Reference,
        config: &RegistryConfig,
        auth: Option<RegistryAuth>,
        patience: Patience,
        names: &Names,
    ) -> Result<Session, ImageError> {
        let (domain, path) = reference.repository.split_once('/').unwrap_or(("docker.io", &reference.repository));
        let proxies = Arc::new(Proxies::new(&config.proxies));
        let endpoint = |host: Host| {
            let (own, elsewhere) = (tls::config(&host.tls)?, tls::config_elsewhere(&host.tls)?);
            let trust = Trust { own, elsewhere, proxy: tls::config_elsewhere(&Tls::default())? };
            let http = Http::new(trust, proxies.clone(), patience, names.clone());
            Ok(Endpoint { host, http, proof: Mutex::default() })
        };
        let hosts = hosts::hosts(config.hosts_dir.as_deref(), domain, config.plain_http)?;
        let endpoints = hosts.into_iter().map(endpoint).collect::<Result<Vec<_>, ImageError>>()?;
        let (domain, path) = (domain.to_owned(), path.to_owned());
        Ok(Session { domain, path, endpoints, auth, patience, complaints: Mutex::default() })
    }

    /// Whom to ask for content, in this order.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter().filter(|endpoint| endpoint.host.pulls)
    }

    /// Remembers what a mirror did; what the registry itself did is told anyway.
    pub(super) fn note(&self, endpoint: &Endpoint, trouble: &Trouble) {
        if !endpoint.host.is_mirror {
            return;
        }
        let complaint = format!("; mirror {}: {trouble}", plain(&endpoint.host.base));
        tracing::debug!(%trouble, mirror = %endpoint.host.base, "a mirror did not help");
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() < COMPLAINTS_MAX && !complaints.contains(&complaint) {
            complaints.push(complaint);
        }
    }

    /// To be appended to what the registry itself did.
    pub(super) fn complaints(&self) -> String {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).concat()
    }

    /// Which manifest the registry says a tag means; `None` if it does not say.
    pub(super) async fn digest_of_tag(&self, tag: &str) -> Option<String> {
        for endpoint in self.endpoints.iter().filter(|endpoint| endpoint.host.resolves) {
            let question = self.manifest_question(endpoint, Method::HEAD, tag).ok()?;
            if let Ok(answer) = self.ask(endpoint, question).await
                && answer.status() == StatusCode::OK
            {
                let digest = answer.headers().get("docker-content-digest")?;
                return digest.to_str().ok().map(str::to_owned);
            }
        }
        None
    }

    /// By tag or digest, from the first host whose answer passes `check`.
    pub(super) async fn manifest(
        &self,
        name: &str,
        check: impl Fn(&[u8]) -> Result<(), Trouble>,
    ) -> Result<Bytes, Trouble> {
        let is_digest = name.contains(':');
        let can = |endpoint: &&Endpoint| endpoint.host.resolves || (is_digest && endpoint.host.pulls);
        let mut outcome = Err(Trouble::NotFound);
        for endpoint in self.endpoints.iter().filter(can) {
            let answer = self.patiently(|| self.manifest_from(endpoint, name)).await;
            outcome = answer.and_then(|document| check(&document).map(|()| document));
            match &outcome {
                Ok(_) => break,
                Err(trouble) => self.note(endpoint, trouble),
            }
        }
        outcome
    }

    async fn manifest_from(&self, endpoint: &Endpoint, name: &str) -> Result<Bytes, Trouble> {
        let question = self.manifest_question(endpoint, Method::GET, name)?;
        let at = question.uri.clone();
        let answer = self.ask(endpoint, question).await?;
        if answer.status() != StatusCode::OK {
            return Err(trouble(&answer, &at));
        }
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
        let is_known = INDEX_TYPES.contains(&kind.as_str()) || MANIFEST_TYPES.contains(&kind.as_str());
        // Some registries call everything JSON; what it really is, is read from the content.
        if !is_known && !kind.is_empty() && kind != "application/json" && !kind.ends_with("+prettyjws") {
            return Err(Trouble::Nonsense(format!("{}: {kind:?} is not the type of a manifest", plain(&at))));
        }
        endpoint.http.read(answer, JSON_BYTES_MAX).await
    }

    fn manifest_question(&self, endpoint: &Endpoint, method: Method, name: &str) -> Result<Question, Trouble> {
        let mut question = Question::new(method, self.uri(endpoint, "manifests", name)?);
        let kinds = [INDEX_TYPES, MANIFEST_TYPES].concat().join(", ");
        question.headers.insert(ACCEPT, kinds.parse().unwrap_or(HeaderValue::from_static("*/*")));
        Ok(question)
    }

    /// A blob's bytes from `from` on, or from its beginning where the source
    /// cannot do that.
    pub(super) async fn blob(&self, source: &Endpoint, digest: &str, from: u64) -> Result<Blob, Trouble> {
        let mut question = Question::new(Method::GET, self.uri(source, "blobs", digest)?);
        if from > 0 {
            let range = format!("bytes={from}-").parse().map_err(|_| Trouble::Nonsense("range".into()))?;
            question.headers.insert(RANGE, range);
        }
        let at = question.uri.clone();
        let answer = self.ask(source, question).await?;
        let starts_at = match answer.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT if range_start(answer.headers()) == Some(from) => from,
            StatusCode::PARTIAL_CONTENT => {
                return Err(Trouble::Nonsense(format!("{}: answered another range than asked", plain(&at))));
            }
            StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => return self.blob_from_start(source, digest).await,
            _ => return Err(trouble(&answer, &at)),
        };
        Ok(Blob { starts_at, body: source.http.flow(answer.into_body()) })
    }

    async fn blob_from_start(&self, source: &Endpoint, digest: &str) -> Result<Blob, Trouble> {
        Box::pin(self.blob(source, digest, 0)).await
    }

    /// A small blob as a whole, from the first source that has it undamaged.
    pub(super) async fn small_blob(&self, digest: &str, what: &'static str) -> Result<Bytes, Trouble> {
        self.patiently(|| async {
            let mut outcome = Err(Trouble::NotFound);
            for source in self.sources() {
                outcome = self.small_blob_from(source, digest, what).await;
                match &outcome {
                    Ok(_) => break,
                    Err(trouble) => self.note(source, trouble),
                }
            }
            outcome
        })
        .await
    }

    async fn small_blob_from(&self, source: &Endpoint, digest: &str, what: &'static str) -> Result<Bytes, Trouble> {
        let mut blob = self.blob(source, digest, 0).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = blob.next().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > JSON_BYTES_MAX {
                return Err(Trouble::Nonsense(format!("blob {digest} is longer than {JSON_BYTES_MAX} bytes")));
            }
        }
        verified(digest, &bytes, what)?;
        Ok(Bytes::from(bytes))
    }

    fn uri(&self, endpoint: &Endpoint, kind: &str, name: &str) -> Result<Uri, Trouble> {
        address(&endpoint.host, [&self.domain, &self.path, kind, name])
    }

    /// Asks again a few times where a registry is only busy.
    async fn patiently<T, F: Future<Output = Result<T, Trouble>>>(
        &self,
        attempt: impl Fn() -> F,
    ) -> Result<T, Trouble> {
        for number in 0..QUICK_ATTEMPTS {
            match attempt().await {
                Err(Trouble::Unavailable { retry_after, .. }) => self.pause(number, retry_after).await,
                other => return other,
            }
        }
        attempt().await
    }

    /// After the `number`th failure (from 0).
    pub(super) async fn pause(&self, number: u32, retry_after: Option<Duration>) {
        let grown = self.patience.pause.saturating_mul(1 << number.min(16));
        tokio::time::sleep(retry_after.unwrap_or(grown).min(self.patience.pause_max)).await;
    }

    /// Asks, and proves who we are if the host wants to know.
    async fn ask(&self, endpoint: &Endpoint, mut question: Question) -> Result<::http::Response<Incoming>, Trouble> {
        question.private.extend(endpoint.host.headers.clone());
        let mut again = question.clone();
        question.private.extend(endpoint.proof());
        let answer = endpoint.http.ask(question).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let at = again.uri.clone();
        let challenge = challenge::read(answer.headers());
        let challenge = challenge.ok_or_else(|| {
            Trouble::Denied(format!("{}: {}, without saying which credentials it wants", plain(&at), answer.status()))
        })?;
        let proof = self.prove(endpoint, challenge).await?;
        again.private.extend(proof.clone());
        let answer = endpoint.http.ask(again).await?;
        match answer.status() {
            StatusCode::UNAUTHORIZED => Err(Trouble::Denied(format!("{}: {}", plain(&at), answer.status()))),
            _ => {
                *endpoint.proof.lock().unwrap_or_else(PoisonError::into_inner) = proof;
                Ok(answer)
            }
        }
    }

    /// The header that answers a challenge. Mirrors never learn the
    /// credentials of the registry they stand in for.
    async fn prove(&self, endpoint: &Endpoint, challenge: Challenge) -> Result<HeaderMap, Trouble> {
        let auth = self.auth.as_ref().filter(|_| !endpoint.host.is_mirror);
        match (challenge, auth) {
            (_, Some(RegistryAuth::Bearer(token))) => authorization(&format!("Bearer {token}")),
            (Challenge::Basic, Some(RegistryAuth::Basic { username, password })) => {
                authorization(&basic(username, password))
            }
            (Challenge::Basic, _) => Err(Trouble::Denied("the registry wants a user name and a password".into())),
            (Challenge::Bearer { realm, service, scope }, auth) => {
                let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.path));
                let token = fetch_token(endpoint, &realm, service.as_deref(), &scope, auth).await?;
                authorization(&format!("Bearer {token}"))
            }
        }
    }
}

impl Endpoint {
    pub(super) fn is_mirror(&self) -> bool {
        self.host.is_mirror
    }

    fn proof(&self) -> HeaderMap {
        self.proof.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn address(host: &Host, [domain, path, kind, name]: [&str; 4]) -> Result<Uri, Trouble> {
    let of_mirror = if host.is_mirror { format!("?ns={domain}") } else { String::new() };
    let text = format!("{}/{path}/{kind}/{name}{of_mirror}", host.base.to_string().trim_end_matches('/'));
    text.parse().map_err(|_| Trouble::Nonsense(format!("{text:?} is not an address")))
}

fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{username}:{password}")))
}

/// Exchanges credentials, or their absence, for a token at `realm`.
async fn fetch_token(
    endpoint: &Endpoint,
    realm: &str,
    service: Option<&str>,
    scope: &str,
    auth: Option<&RegistryAuth>,
) -> Result<String, Trouble> {
    let question = token_question(&endpoint.host, realm, service, scope, auth)?;
    let at = question.uri.clone();
    let is_home = is_same_origin(&endpoint.host.base, &at);
    let answer = endpoint.http.ask_directly(question, is_home).await?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            return Err(Trouble::Denied(format!("{} gave no token: {}", plain(&at), answer.status())));
        }
        _ => return Err(trouble(&answer, &at)),
    }
    let body = endpoint.http.read(answer, TOKEN_BYTES_MAX).await?;
    token_in(&body).ok_or_else(|| Trouble::Nonsense(format!("{} answered without a token", plain(&at))))
}

fn token_in(answer: &[u8]) -> Option<String> {
    let TokenAnswer { token, access_token } = serde_json::from_slice(answer).unwrap_or_default();
    token.or(access_token).filter(|token| !token.is_empty())
}

fn token_question(
    host: &Host,
    realm: &str,
    service: Option<&str>,
    scope: &str,
    auth: Option<&RegistryAuth>,
) -> Result<Question, Trouble> {
    let mut words = form_urlencoded::Serializer::new(String::new());
    words.append_pair("scope", scope);
    service.map(|service| words.append_pair("service", service));
    let mut question = match auth {
        Some(RegistryAuth::IdentityToken(token)) => {
            words.append_pair("grant_type", "refresh_token");
            words.append_pair("client_id", "podium");
            words.append_pair("refresh_token", token);
            let mut question = Question::new(Method::POST, realm_uri(host, realm, "")?);
            question.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            question.body = Bytes::from(words.finish());
            question
        }
        _ => Question::new(Method::GET, realm_uri(host, realm, &words.finish())?),
    };
    if let Some(RegistryAuth::Basic { username, password }) = auth {
        question.private = authorization(&basic(username, password))?;
    }
    Ok(question)
}

/// A registry reached over TLS cannot make us show credentials without it.
fn realm_uri(host: &Host, realm: &str, query: &str) -> Result<Uri, Trouble> {
    // What would follow a fragment would be a part of it, and not be sent.
    let realm = realm.split('#').next().unwrap_or_default();
    let separator = match (query.is_empty(), realm.contains('?')) {
        (true, _) => "",
        (false, true) => "&",
        (false, false) => "?",
    };
    let nonsense = || Trouble::Nonsense(format!("token server {realm:?} cannot be used"));
    let uri: Uri = format!("{realm}{separator}{query}").parse().map_err(|_| nonsense())?;
    match uri.scheme_str().filter(|_| has_host(&uri)) {
        Some("https") => Ok(uri),
        Some("http") if host.base.scheme_str() == Some("http") => Ok(uri),
        _ => Err(nonsense()),
    }
}

/// Whether this is what a digest stands for.
pub(super) fn verified(expected: &str, content: &[u8], what: &'static str) -> Result<(), Trouble> {
    let actual = digest_of(content);
    match actual == expected {
        true => Ok(()),
        false => Err(Trouble::Mismatch { what, expected: expected.to_owned(), actual }),
    }
}

fn range_start(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    text.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

#[derive(Deserialize, Default)]
#[serde(remote = "Self")]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

only_objects!(TokenAnswer);

/// Complaints about mirrors that a message has room for.
const COMPLAINTS_MAX: usize = 8;
/// More attempts at small things, after the first.
const QUICK_ATTEMPTS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_asked_for_with_its_scope_whatever_the_realm_ends_with() {
        let host = Host {
            base: Uri::from_static("https://r.example/v2"),
            is_mirror: false,
            resolves: true,
            pulls: true,
            headers: HeaderMap::new(),
            tls: Tls::default(),
        };
        for (realm, expected) in [
            ("https://t.example/token", "https://t.example/token?scope=a&service=s"),
            ("https://t.example/token?x=y", "https://t.example/token?x=y&scope=a&service=s"),
            ("https://t.example/token#there", "https://t.example/token?scope=a&service=s"),
            ("https://t.example/token?x=y#there?", "https://t.example/token?x=y&scope=a&service=s"),
        ] {
            let question = token_question(&host, realm, Some("s"), "a", None).unwrap();
            assert_eq!(question.uri.to_string(), expected, "{realm}");
        }
        for nowhere in ["http://t.example/token", "https://:5000/token", "", "token"] {
            assert!(token_question(&host, nowhere, None, "a", None).is_err(), "{nowhere}");
        }
    }
}
