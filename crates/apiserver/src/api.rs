//! The server's parts, and the way of a request through them: authenticate,
//! authorize, route, handle, answer.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ambient::{Clock, Ids};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::OnUpgrade;
use objects::Kind;
use objects::wire::Messages;
use store::Store;
use tokio::sync::watch;

use crate::answer::{self, Answer, Body};
use crate::audit::Trail;
use crate::auth::{self, Identity};
use crate::authz::{self, Access, Authorizer};
use crate::error::{ApiError, ResourceName};
use crate::flow::Flow;
use crate::metrics::Metrics;
use crate::negotiate::{self, Form};
use crate::openapi::OpenApi;
use crate::query::Query;
use crate::relay::Relay;
use crate::services::Services;
use crate::target::{ResourcePath, Target, Verb};
use crate::tokens::Tokens;
use crate::{
    Config, accounts, body, components, connect, delete, discovery, eviction, health, impersonation, logs, pods, proxy,
    read, reviews, scale, stream, write,
};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, BodyError>;

/// The caller's body broke off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BodyError(pub(crate) BoxError);

/// Waits until the server stops.
pub(crate) async fn closed(closing: &mut watch::Receiver<bool>) {
    // An error means that the server is gone altogether.
    let _ = closing.wait_for(|closing| *closing).await.map(drop);
}

/// Everything a handler may use.
pub(crate) struct Api {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) authorizer: Authorizer,
    pub(crate) flow: Flow,
    pub(crate) relay: Relay,
    pub(crate) metrics: Metrics,
    pub(crate) openapi: OpenApi,
    pub(crate) wire: Messages,
    /// Absent without a key: then no service account can log in.
    pub(crate) tokens: Option<Tokens>,
    /// Becomes true when the server stops; ends watches and followed logs.
    pub(crate) closing: watch::Sender<bool>,
    pub(crate) services: Services,
    /// Set when everything that every cluster has is there.
    pub(crate) installed: OnceLock<()>,
}

/// Where a request comes from.
#[derive(Clone, Default)]
pub(crate) struct Origin {
    /// None: a caller without a certificate.
    pub(crate) identity: Option<Arc<Identity>>,
    /// None: from within the process.
    pub(crate) address: Option<IpAddr>,
}

/// One request to a served kind.
pub(crate) struct Call {
    pub(crate) caller: Identity,
    pub(crate) kind: &'static Kind,
    pub(crate) path: ResourcePath,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) method: Method,
    /// The connection itself, for protocols that are not HTTP.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

impl Call {
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.path.namespace.as_deref()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> String {
        crate::object::key(self.kind, self.namespace(), self.name())
    }

    pub(crate) fn form(&self) -> Result<Form, ApiError> {
        negotiate::form(&self.headers, &self.query)
    }
}

impl Api {
    /// Answers one request.
    pub(crate) async fn handle(&self, from: &Origin, parts: request::Parts, body: RequestBody) -> Response<Body> {
        let audit_id = parts.headers.get("audit-id").cloned();
        let query = Query::parse(parts.uri.query());
        let is_pretty = answer::wants_pretty(&parts.headers, &query);
        let is_yaml = negotiate::wants_yaml(&parts.headers);
        // What is only passed on stays as it is.
        let is_packed = negotiate::accepts_gzip(&parts.headers) && !parts.uri.path().contains("/proxy");
        let verb = parts.method.clone();
        let log = self.config.audit.as_ref();
        let mut trail = log.map(|log| Trail::start(log, &self.clock, &parts, &query, from.address));
        let answer = self.route(from.identity.as_deref(), parts, query, body, trail.as_mut()).await;
        let answer = answer.map_err(|error| self.perhaps_not_yet(error));
        let refusal = answer.as_ref().err();
        if let Some(trail) = &mut trail {
            let code = answer.as_ref().map_or_else(ApiError::code, Response::status);
            trail.answered(code, refusal);
        }
        let mut response = answer.unwrap_or_else(|error| answer::refusal(&error));
        self.metrics.count(&verb, response.status());
        let headers = response.headers_mut();
        // API-002.
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        // API-003.
        let audit_id = audit_id.or_else(|| HeaderValue::from_str(&self.ids.uid()).ok());
        if let Some(id) = audit_id {
            headers.insert("audit-id", id);
        }
        let is_whole = !headers.contains_key(STREAMING);
        headers.remove(STREAMING);
        let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        if is_whole && is_json && is_yaml {
            response = answer::in_yaml(response).await;
        } else if is_whole && is_json && is_pretty {
            response = answer::prettify(response).await;
        }
        if is_packed && is_whole {
            response = answer::compress(response).await;
        }
        match trail {
            Some(trail) => trail.finish(response, is_whole),
            None => response,
        }
    }

    async fn route(
        &self,
        identity: Option<&Identity>,
        mut parts: request::Parts,
        query: Query,
        body: RequestBody,
        mut trail: Option<&mut Trail>,
    ) -> Answer {
        let path = parts.uri.path().to_owned();
        let caller = auth::authenticate(self, identity, &parts.headers, &path).await?;
        if let Some(trail) = &mut trail {
            trail.caller(&caller);
        }
        let seen_as = impersonation::apply(self, &caller, &mut parts.headers).await?;
        if let (Some(trail), Some(other)) = (&mut trail, &seen_as) {
            trail.seen_as(other);
        }
        let caller = seen_as.unwrap_or(caller);
        match Target::parse(&path) {
            Target::Resource(target) => self.resource(caller, parts, target, query, body).await,
            Target::Plain => {
                authz::require(self, &caller, &Access::of_path(&parts.method, &path)).await?;
                self.plain(&parts, &path, &query).await
            }
        }
    }

    async fn plain(&self, parts: &request::Parts, path: &str, query: &Query) -> Answer {
        if auth::is_public(path) {
            return health::answer(&parts.method, path, query, self).await;
        }
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(ApiError::MethodNotAllowed);
        }
        match path.trim_matches('/') {
            "" => Ok(discovery::root()),
            "metrics" => Ok(answer::text(StatusCode::OK, self.metrics.render())),
            path if path == "api" || path == "apis" || path.starts_with("api/") || path.starts_with("apis/") => {
                discovery::answer(path, &parts.headers, &self.config)
            }
            path if path.starts_with(".well-known/") || path.starts_with("openid/") => accounts::discovery(self, path),
            path if path.starts_with("openapi/") => {
                self.openapi.answer(path, &parts.headers, query, self.clock.now().wall)
            }
            _ => Err(ApiError::NoSuchPage),
        }
    }

    /// API-116: whose turn it is, before what they may.
    async fn resource(
        &self,
        caller: Identity,
        parts: request::Parts,
        path: ResourcePath,
        query: Query,
        body: RequestBody,
    ) -> Answer {
        let verb = Verb::of(&parts.method, &path, &query).ok_or(ApiError::MethodNotAllowed)?;
        let is_long = is_long(verb, &path, &query);
        let _seat = if is_long { None } else { self.flow.enter(&caller, verb).await? };
        let limit = if verb.is_reading() { READ_TIMEOUT } else { WRITE_TIMEOUT };
        let resource = ResourceName { group: path.group.clone(), resource: path.resource.clone() };
        let work = self.work(caller, verb, parts, (path, query), body);
        let answer = match is_long {
            true => work.await,
            false => tokio::time::timeout(limit, work).await.unwrap_or(Err(ApiError::TookTooLong)),
        };
        answer.map_err(|error| error.during(verb, resource))
    }

    /// API-008: before its first objects are made, the server does not know
    /// what is missing.
    fn perhaps_not_yet(&self, error: ApiError) -> ApiError {
        match error {
            ApiError::NoSuchPage | ApiError::NoSuchResource if self.installed.get().is_none() => ApiError::NotInstalled,
            error => error,
        }
    }

    async fn work(
        &self,
        caller: Identity,
        verb: Verb,
        mut parts: request::Parts,
        (path, query): (ResourcePath, Query),
        body: RequestBody,
    ) -> Answer {
        authz::require(self, &caller, &Access::of(verb, &path, &query)).await?;
        if connect::is_stream(&path) {
            // API-623: whoever may only read must not get into containers.
            authz::require(self, &caller, &Access::of(Verb::Create, &path, &query)).await?;
        }
        check_segments(&path)?;
        if !verb.is_reading() {
            // API-331: what a write is decided on is no older than what its
            // caller may have seen, of this server or of another one.
            self.store.revision().await?;
        }
        let body = self.in_json(&mut parts.headers, &path, body).await?;
        if path.group.is_empty() && path.resource == "bindings" && verb == Verb::Create {
            return pods::bind_by_collection(self, &path, &parts.headers, &query, body).await;
        }
        let kind = objects::kinds::find(&path.group, &path.version, &path.resource);
        let kind = kind.ok_or(ApiError::NoSuchResource)?;
        if kind.is_namespaced() != path.namespace.is_some() && !is_across_namespaces(kind, &path) {
            return Err(ApiError::NoSuchResource);
        }
        let upgrade = parts.extensions.remove();
        let (headers, method, warnings) = (parts.headers, parts.method, Vec::new());
        let mut call = Call { caller, kind, path, query, headers, method, upgrade, warnings };
        if !call.kind.ops.verbs().contains(&verb.as_str()) && call.path.subresource.is_none() {
            return Err(ApiError::MethodNotAllowed);
        }
        call.warnings.extend(deprecation(kind));
        if !call.kind.ops.is_stored() {
            return self.ask(verb, &mut call, body).await;
        }
        let is_token = call.kind.kind == "ServiceAccount" && call.path.subresource.as_deref() == Some("token");
        if is_token && verb == Verb::Create {
            return accounts::request_token(self, &call, body).await;
        }
        let mut response = self.verb(verb, &mut call, body).await?;
        answer::add_warnings(response.headers_mut(), &call.warnings);
        Ok(response)
    }

    /// Kinds that are answered and never stored.
    async fn ask(&self, verb: Verb, call: &mut Call, body: RequestBody) -> Answer {
        let mut response = match (verb, &call.path.name) {
            (Verb::Get | Verb::List, _) => components::answer(self, call).await?,
            (Verb::Create, None) => reviews::answer(self, call, body).await?,
            _ => return Err(ApiError::MethodNotAllowed),
        };
        answer::add_warnings(response.headers_mut(), &call.warnings);
        Ok(response)
    }

    /// API-092, API-094, API-688, API-703: a body in protobuf or YAML is JSON from here on.
    async fn in_json(
        &self,
        headers: &mut HeaderMap,
        path: &ResourcePath,
        body: RequestBody,
    ) -> Result<RequestBody, ApiError> {
        let is_passed_on = path.subresource.as_deref() == Some("proxy");
        let is_protobuf = match negotiate::content_type(headers).as_str() {
            _ if is_passed_on => return Ok(body),
            "application/vnd.kubernetes.protobuf" => true,
            "application/yaml" => false,
            _ => return Ok(body),
        };
        let bytes = self.collect(body).await?;
        let group = match path.group.as_str() {
            "" => path.version.clone(),
            group => format!("{group}/{}", path.version),
        };
        let json = match bytes.is_empty() {
            true => bytes,
            false if !is_protobuf => body::yaml_in_json(&bytes)?,
            false => {
                let doc = self.wire.read(&bytes, &group).map_err(|error| ApiError::BadRequest(error.to_string()))?;
                doc.to_string().into()
            }
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(http_body_util::Full::new(json).map_err(|never| match never {}).boxed_unsync())
    }

    async fn verb(&self, verb: Verb, call: &mut Call, body: RequestBody) -> Answer {
        if let Some(subresource) = call.path.subresource.clone() {
            return self.subresource(verb, &subresource, call, body).await;
        }
        let is_everywhere = call.kind.is_namespaced() && call.namespace().is_none();
        match verb {
            Verb::Get => read::get(self, call).await,
            Verb::List => read::list(self, call).await,
            Verb::Watch => stream::watch(self, call).await,
            // API-108: the collection of all namespaces can only be read.
            _ if is_everywhere => Err(ApiError::MethodNotAllowed),
            // API-345: objects are not made by name.
            Verb::Create if call.path.name.is_none() => write::create(self, call, body).await,
            Verb::Update if call.path.name.is_some() => write::replace(self, call, body, write::Part::Main).await,
            // API-083, API-084: what most of kubectl's verbs come down to.
            Verb::Patch if call.path.name.is_some() => write::patch(self, call, body, write::Part::Main).await,
            Verb::Delete => delete::delete(self, call, body).await,
            Verb::DeleteCollection => delete::delete_collection(self, call, body).await,
            _ => Err(ApiError::MethodNotAllowed),
        }
    }

    async fn subresource(&self, verb: Verb, name: &str, call: &mut Call, body: RequestBody) -> Answer {
        let known = call.kind.subresources.iter().find(|known| known.name() == name);
        let part = write::Part::Of(*known.ok_or(ApiError::NoSuchResource)?);
        match (name, verb) {
            ("status" | "ephemeralcontainers" | "resize" | "approval", Verb::Get) => read::get(self, call).await,
            ("ephemeralcontainers" | "resize" | "approval", Verb::Update) => {
                write::replace(self, call, body, part).await
            }
            ("ephemeralcontainers" | "resize" | "approval", Verb::Patch) => write::patch(self, call, body, part).await,
            ("status", Verb::Update) => write::replace(self, call, body, write::Part::Status).await,
            ("status", Verb::Patch) => write::patch(self, call, body, write::Part::Status).await,
            ("scale", Verb::Get) => scale::get(self, call).await,
            ("scale", Verb::Update) => scale::replace(self, call, body).await,
            ("scale", Verb::Patch) => scale::patch(self, call, body).await,
            ("finalize", Verb::Update) => write::replace(self, call, body, write::Part::Finalize).await,
            // API-086.
            ("eviction", Verb::Create) => eviction::evict(self, call, body).await,
            ("binding", Verb::Create) => pods::bind(self, call, body).await,
            // API-087, with the streams below.
            ("log", Verb::Get) => logs::answer(self, call).await,
            ("proxy", _) => proxy::answer(self, call, body).await,
            ("exec" | "attach" | "portforward", Verb::Get | Verb::Create) => connect::answer(self, call, name).await,
            _ => Err(ApiError::MethodNotAllowed),
        }
    }

    /// API-005: the whole body, if it is not too large.
    pub(crate) async fn collect(&self, body: RequestBody) -> Result<Bytes, ApiError> {
        match tokio::time::timeout(BODY_TIMEOUT, whole(body)).await {
            Ok(collected) => collected,
            Err(_) => Err(ApiError::BadRequest("the body did not arrive in time".to_owned())),
        }
    }

    /// Now, as `creationTimestamp` and its like show it.
    pub(crate) fn timestamp(&self) -> String {
        rfc3339(self.clock.now().wall)
    }
}

/// What is too large is still read, up to a point: clients that are busy
/// sending may not see an answer that comes before they are done.
async fn whole(mut body: RequestBody) -> Result<Bytes, ApiError> {
    let (mut collected, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::BadRequest(format!("the body could not be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > DISCARDED_BYTES_MAX {
            break;
        } else if length > BODY_BYTES_MAX {
            collected = Vec::new();
        } else {
            collected.extend_from_slice(&data);
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(ApiError::TooLarge(format!("limit is {BODY_BYTES_MAX}")));
    }
    Ok(collected.into())
}

/// API-102: UTC with seconds.
pub(crate) fn rfc3339(time: ambient::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Marks answers whose body never ends by itself; removed before sending.
pub(crate) const STREAMING: &str = "x-podium-streaming";

/// API-005.
const BODY_BYTES_MAX: usize = 3 << 20;
const DISCARDED_BYTES_MAX: usize = 10 * BODY_BYTES_MAX;
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// API-006: what may take as long as it likes and holds nobody up.
fn is_long(verb: Verb, path: &ResourcePath, query: &Query) -> bool {
    let subresource = path.subresource.as_deref();
    let is_followed_log = subresource == Some("log") && query.is_set("follow");
    verb == Verb::Watch || connect::is_stream(path) || subresource == Some("proxy") || is_followed_log
}

/// API-163: what comes from the URL becomes part of a storage key.
fn check_segments(path: &ResourcePath) -> Result<(), ApiError> {
    for (what, value) in [("Name", &path.name), ("Namespace", &path.namespace)] {
        let problem = match value.as_deref() {
            Some(".") => "may not be '.'",
            Some("..") => "may not be '..'",
            Some(text) if text.contains('/') => "may not contain '/'",
            Some(text) if text.contains('%') => "may not contain '%'",
            _ => continue,
        };
        let value = value.as_deref().unwrap_or_default();
        return Err(ApiError::BadRequest(format!("{what} parameter invalid: \"{value}\": {problem}")));
    }
    Ok(())
}

/// `P/<resource>` of a namespaced kind lists all namespaces (API-108).
fn is_across_namespaces(kind: &Kind, path: &ResourcePath) -> bool {
    kind.is_namespaced() && path.namespace.is_none() && path.name.is_none()
}

/// API-343: what is said with every use of a kind that is on its way out.
fn deprecation(kind: &Kind) -> Option<String> {
    let text = match (kind.group, kind.kind) {
        ("", "Endpoints") => "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ("", "ComponentStatus") => "v1 ComponentStatus is deprecated in v1.19+",
        _ => return None,
    };
    Some(text.to_owned())
}
