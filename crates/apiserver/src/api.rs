//! The server's parts, and the way of a request through them: authenticate,
//! authorize, read the body, wait for a turn, handle, answer.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ambient::{Clock, Ids};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::upgrade::OnUpgrade;
use objects::Kind;
use objects::wire::Messages;
use store::Store;
use tokio::sync::watch;

use crate::answer::{self, Answer, Body, Manner};
use crate::audit::{self, Arrival, Trail};
use crate::auth::{self, Identity};
use crate::authz::{self, Access, Authorizer};
use crate::credentials::Tenure;
use crate::error::{ApiError, ResourceName};
use crate::flow::{self, Class, Flow, Seat};
use crate::health::Health;
use crate::intake::{Held, Intake};
use crate::metrics::Metrics;
use crate::negotiate::{self, Form};
use crate::openapi::OpenApi;
use crate::origin::{Origin, end_of};
use crate::query::Query;
use crate::relay::Relay;
use crate::roll::Sending;
use crate::room::Room;
use crate::services::Services;
use crate::target::{ResourcePath, Target, Verb};
use crate::tokens::Tokens;
use crate::watches::Watches;
use crate::workers::{self, LARGE_BYTES, Workers};
use crate::{
    Config, accounts, body, components, connect, delete, discovery, eviction, health, impersonation, intake, logs,
    messages, metrics, pods, proxy, read, reviews, scale, stream, target, write,
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
    pub(crate) intake: Intake,
    pub(crate) workers: Workers,
    pub(crate) relay: Relay,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) openapi: OpenApi,
    pub(crate) wire: Arc<Messages>,
    /// Absent without a key: then no service account can log in.
    pub(crate) tokens: Option<Tokens>,
    /// Becomes true when the server stops; ends watches and followed logs.
    pub(crate) closing: watch::Sender<bool>,
    pub(crate) services: Services,
    pub(crate) sending: Arc<Sending>,
    pub(crate) watches: Arc<Watches>,
    /// Set when everything that every cluster has is there.
    pub(crate) installed: OnceLock<()>,
}

/// One request to a served kind.
pub(crate) struct Call {
    pub(crate) caller: Arc<Identity>,
    pub(crate) kind: &'static Kind,
    pub(crate) path: ResourcePath,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) method: Method,
    /// The connection itself, for protocols that are not HTTP.
    pub(crate) upgrade: Option<OnUpgrade>,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// For how long who calls is known.
    pub(crate) tenure: Tenure,
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

/// What of a request outlives its handling: how it is answered, and told.
struct Exchange {
    method: Method,
    audit_id: Option<HeaderValue>,
    manner: Manner,
    /// In a box, because most reads have none.
    trail: Option<Box<Trail>>,
    /// A stream ends with it.
    tenure: Tenure,
    /// Held until the answer is ready.
    held: Option<Held>,
    seat: Option<Seat>,
    /// None: it takes no turn.
    class: Option<Class>,
}

/// A request that may be worked on.
struct Job {
    caller: Arc<Identity>,
    verb: Verb,
    parts: request::Parts,
    path: ResourcePath,
    query: Query,
    body: Payload,
    is_long: bool,
    /// How long its caller waits, unless it is long.
    limit: Duration,
    tenure: Tenure,
}

/// Bodies are read whole before anything is done about them, but for those
/// that are only passed on.
enum Payload {
    Whole(Bytes),
    Passed(RequestBody),
}

impl Payload {
    /// As far as it is known.
    fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Passed(_) => 0,
        }
    }
}

enum Admitted {
    Resource(Box<Job>),
    Plain(Box<(request::Parts, Query)>),
}

impl Exchange {
    fn begin(api: &Api, parts: &request::Parts, query: &Query) -> Self {
        let given = parts.headers.get(answer::AUDIT_ID).filter(|id| id.len() <= audit::ID_MAX).cloned();
        Self {
            method: parts.method.clone(),
            // A client that knows its request by an id keeps it, so that both logs tell of the same (API-003).
            audit_id: given.or_else(|| HeaderValue::try_from(api.ids.uid()).ok()),
            manner: Manner::of(parts, query),
            trail: None,
            tenure: Tenure::default(),
            held: None,
            seat: None,
            class: None,
        }
    }
}

impl Api {
    /// Answers one request.
    pub(crate) async fn handle(
        self: &Arc<Self>,
        from: &Origin,
        parts: request::Parts,
        body: RequestBody,
    ) -> Response<Body> {
        let query = Query::parse(parts.uri.query());
        let mut exchange = Exchange::begin(self, &parts, &query);
        let admitted = self.unbroken(self.admit(from, parts, query, body, &mut exchange)).await;
        match admitted {
            Ok(Admitted::Resource(job)) => self.carry_out(exchange, job).await,
            Ok(Admitted::Plain(asked)) => {
                let answer = self.unbroken(self.plain(&asked.0, &asked.1)).await;
                self.finish(exchange, answer).await
            }
            Err(error) => self.finish(exchange, Err(error)).await,
        }
    }

    /// Who asks, whether they may, and only then what they send; last, whose
    /// turn it is, so that nobody's turn is spent waiting for a body. Whoever
    /// may not is told so before anything is read.
    async fn admit(
        &self,
        from: &Origin,
        mut parts: request::Parts,
        query: Query,
        body: RequestBody,
        exchange: &mut Exchange,
    ) -> Result<Admitted, ApiError> {
        let at = self.clock.now();
        let url_path = parts.uri.path().to_owned();
        let target = Target::parse(&url_path);
        let known = auth::authenticate(self, from, &parts.headers, &url_path, at.wall).await;
        if let Some(audit) = &self.config.audit {
            let (caller, peer, id) =
                (known.as_ref().ok().map(|(caller, _)| caller), from.address, exchange.audit_id.as_ref());
            let arrival = Arrival { parts: &parts, query: &query, target: &target, peer, id, at, caller };
            exchange.trail = Trail::start(audit, &self.clock, &arrival).map(Box::new);
            if let Some(recorder) = exchange.trail.as_deref().and_then(Trail::recorder) {
                parts.extensions.insert(recorder);
            }
        }
        let (caller, tenure) = known?;
        exchange.tenure = tenure.clone();
        if let Some(connection) = from.connection.as_ref().filter(|_| caller.user != auth::ANONYMOUS) {
            connection.is_of(intake::party(&caller.user));
        }
        let seen_as = impersonation::apply(self, &caller, &mut parts.headers).await?.map(Arc::new);
        if let (Some(trail), Some(other)) = (&mut exchange.trail, &seen_as) {
            trail.seen_as(other);
        }
        let caller = seen_as.unwrap_or(caller);
        let Target::Resource(path) = target else {
            let access = Access::of_path(&parts.method, &url_path);
            authz::require(self, &caller, &access).await?;
            self.wait_turn(&caller, &access, 1, exchange).await?;
            return Ok(Admitted::Plain(Box::new((parts, query))));
        };
        let verb = Verb::of(&parts.method, &path, &query).ok_or(ApiError::MethodNotAllowed)?;
        let access = Access::of(verb, &path, &query);
        authz::require(self, &caller, &access).await?;
        if connect::opens(&path, &parts.headers) {
            // API-623: whoever may only read must not get into containers.
            authz::require(self, &caller, &Access::of(Verb::Create, &path, &query)).await?;
        }
        target::check_segments(&path)?;
        let is_long = is_long(verb, &path, &query);
        let limit = if verb.is_reading() { READ_TIMEOUT } else { WRITE_TIMEOUT };
        let limit = if is_long { limit } else { query.patience()?.map_or(limit, |asked| asked.min(limit)) };
        let body = match is_long {
            _ if is_passed_on(&path) => Payload::Passed(body),
            true => Payload::Whole(Bytes::new()),
            false if verb.is_reading() => Payload::Whole(Bytes::new()),
            false => {
                let (bytes, held) = self.intake.read(&caller, body).await?;
                exchange.held = held;
                Payload::Whole(bytes)
            }
        };
        // A watch has its turn until it is open; then it holds nobody up.
        if !is_long || (verb == Verb::Watch && path.subresource.is_none()) {
            self.wait_turn(&caller, &access, flow::width(body.len()), exchange).await?;
        }
        Ok(Admitted::Resource(Box::new(Job { caller, verb, parts, path, query, body, is_long, limit, tenure })))
    }

    async fn wait_turn(
        &self,
        caller: &Identity,
        access: &Access,
        width: usize,
        exchange: &mut Exchange,
    ) -> Result<(), ApiError> {
        let class = exchange.class.insert(self.flow.classify(self, caller, access).await?);
        exchange.seat = self.flow.enter(caller, class, width).await?;
        Ok(())
    }

    /// A write runs to its end and is told of whether its caller still waits
    /// or not; whoever waits too long is told that.
    async fn carry_out(self: &Arc<Self>, exchange: Exchange, job: Box<Job>) -> Response<Body> {
        let limit = job.limit;
        if job.is_long {
            let answer = self.unbroken(self.resource(job)).await;
            return self.finish(exchange, answer).await;
        }
        if job.verb.is_reading() {
            let answer = tokio::time::timeout(limit, self.unbroken(self.resource(job))).await;
            return self.finish(exchange, answer.unwrap_or(Err(ApiError::TookTooLong))).await;
        }
        let bytes = job.body.len();
        let (audit_id, is_large) = (exchange.audit_id.clone(), self.is_large(job.verb, &job.path, bytes).await);
        let api = Arc::clone(self);
        let write = async move {
            let answer = api.unbroken(api.resource(job)).await;
            api.finish(exchange, answer).await
        };
        let outcome = match is_large {
            false => tokio::time::timeout(limit, self.workers.finish(write)).await,
            true => {
                let done = tokio::time::timeout(limit, self.workers.spawn(true, write)).await;
                done.map(|done| done.map_err(|error| error.to_string()))
            }
        };
        let error = match outcome {
            Ok(Ok(response)) => return response,
            Ok(Err(error)) => ApiError::Internal(error),
            Err(_) => ApiError::TookTooLong,
        };
        let mut response = answer::refusal(&error);
        answer::add_headers(response.headers_mut(), audit_id);
        response
    }

    /// Whether this would keep others waiting. What a patch changes may be
    /// much larger than itself.
    async fn is_large(&self, verb: Verb, path: &ResourcePath, bytes: usize) -> bool {
        if bytes > LARGE_BYTES || verb != Verb::Patch {
            return bytes > LARGE_BYTES;
        }
        let Some(kind) = objects::kinds::find(&path.group, &path.version, &path.resource) else { return false };
        let name = path.name.as_deref().unwrap_or_default();
        let stored = self.store.get(&crate::object::key(kind, path.namespace.as_deref(), name)).await;
        stored.is_ok_and(|entry| entry.is_some_and(|entry| entry.value.len() > LARGE_BYTES))
    }

    /// A panic costs the request that met it, and is seen.
    async fn unbroken<T>(&self, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
            self.metrics.panicked();
            tracing::error!(said = workers::said(&*panic), "a request caused a panic");
            Err(ApiError::Internal(PANICKED.to_owned()))
        })
    }

    async fn finish(&self, mut exchange: Exchange, answer: Answer) -> Response<Body> {
        let answer = answer.map_err(|error| self.perhaps_not_yet(error));
        if let Some(trail) = &mut exchange.trail {
            let code = answer.as_ref().map_or_else(ApiError::code, Response::status);
            trail.answered(code, answer.as_ref().err());
        }
        let mut response = answer.unwrap_or_else(|error| answer::refusal(&error));
        self.metrics.count(&exchange.method, response.status());
        answer::add_headers(response.headers_mut(), exchange.audit_id.take());
        if let Some(class) = &exchange.class {
            class.add_headers(response.headers_mut());
        }
        let is_whole = response.headers_mut().remove(STREAMING).is_none();
        if let (true, Some(trail)) = (is_whole, &mut exchange.trail) {
            response = trail.look(response, &self.wire).await;
        }
        if is_whole && exchange.manner.changes(&response) {
            let size = response.body().size_hint();
            let is_large = size.lower() > LARGE_BYTES as u64 || size.exact().is_none();
            let dressed = exchange.manner.dress(response, Arc::clone(&self.wire));
            response = match is_large {
                false => dressed.await,
                true => self.workers.spawn(true, dressed).await.unwrap_or_else(|error| {
                    self.metrics.panicked();
                    answer::refusal(&ApiError::Internal(error.to_string()))
                }),
            };
        }
        if !is_whole && !exchange.tenure.is_endless() {
            let until = exchange.tenure.over(Arc::clone(&self.store), self.clock.clone());
            response = response.map(|body| answer::until(body, until));
        }
        match exchange.trail {
            Some(trail) => trail.finish(response, is_whole),
            None => response,
        }
    }

    async fn plain(&self, parts: &request::Parts, query: &Query) -> Answer {
        let path = parts.uri.path();
        if auth::is_public(path) {
            return health::answer(&parts.method, path, query, self).await;
        }
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(ApiError::MethodNotAllowed);
        }
        match path.trim_matches('/') {
            "" => Ok(discovery::root()),
            "metrics" => Ok(answer::text(StatusCode::OK, metrics::all(self))),
            "metrics/slis" => Ok(answer::text(StatusCode::OK, self.health.render())),
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

    async fn resource(&self, job: Box<Job>) -> Answer {
        let resource = ResourceName { group: job.path.group.clone(), resource: job.path.resource.clone() };
        let verb = job.verb;
        let room = Room::of(&job.caller, verb, &job.path);
        // In a box from here on: whoever wraps it would otherwise copy it, state and all.
        let work = Box::pin(self.work(job));
        let answer = match room {
            Room::SparingReserve => store::sparing_the_reserve(work).await,
            Room::WithReserve => work.await,
            Room::Any => store::making_room(work).await,
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

    async fn work(&self, job: Box<Job>) -> Answer {
        let Job { caller, verb, mut parts, path, query, body, tenure, .. } = *job;
        if !verb.is_reading() {
            // API-331: what a write is decided on is no older than what its
            // caller may have seen, of this server or of another one.
            self.store.revision().await?;
        }
        let (body, passed) = match body {
            Payload::Whole(bytes) => (self.in_json(&mut parts.headers, &path, bytes)?, None),
            Payload::Passed(body) => (Bytes::new(), Some(body)),
        };
        audit::record(&parts.extensions, &body);
        if path.group.is_empty() && path.resource == "bindings" && verb == Verb::Create {
            return Box::pin(pods::bind_by_collection(self, &caller, &path, &parts.headers, &query, body)).await;
        }
        let kind = objects::kinds::find(&path.group, &path.version, &path.resource);
        let kind = kind.ok_or(ApiError::NoSuchResource)?;
        // `P/<resource>` of a namespaced kind lists all namespaces (API-108).
        let is_everywhere = kind.is_namespaced() && path.namespace.is_none() && path.name.is_none();
        if kind.is_namespaced() != path.namespace.is_some() && !is_everywhere {
            return Err(ApiError::NoSuchResource);
        }
        let upgrade = parts.extensions.remove();
        let (headers, method, warnings) = (parts.headers, parts.method, Vec::new());
        let mut call = Call { caller, kind, path, query, headers, method, upgrade, warnings, tenure };
        if !call.kind.ops.verbs().contains(&verb.as_str()) && call.path.subresource.is_none() {
            return Err(ApiError::MethodNotAllowed);
        }
        call.warnings.extend(answer::deprecation(kind));
        if let Some(body) = passed {
            let is_known = call.kind.subresources.iter().any(|known| known.name() == "proxy");
            return match is_known {
                true => Box::pin(proxy::answer(self, &mut call, body)).await,
                false => Err(ApiError::NoSuchResource),
            };
        }
        if !call.kind.ops.is_stored() {
            return Box::pin(self.ask(verb, &mut call, body)).await;
        }
        let is_token = call.kind.kind == "ServiceAccount" && call.path.subresource.as_deref() == Some("token");
        if is_token && verb == Verb::Create {
            return Box::pin(accounts::request_token(self, &mut call, body)).await;
        }
        let mut response = self.verb(verb, &mut call, body).await?;
        answer::add_warnings(response.headers_mut(), &call.warnings);
        Ok(response)
    }

    /// Kinds that are answered and never stored.
    async fn ask(&self, verb: Verb, call: &mut Call, body: Bytes) -> Answer {
        let mut response = match (verb, &call.path.name) {
            (Verb::Get | Verb::List, _) => components::answer(self, call).await?,
            (Verb::Create, None) => reviews::answer(self, call, body).await?,
            _ => return Err(ApiError::MethodNotAllowed),
        };
        answer::add_warnings(response.headers_mut(), &call.warnings);
        Ok(response)
    }

    /// API-092, API-094, API-688, API-703: a body in protobuf or YAML is JSON from here on.
    fn in_json(&self, headers: &mut HeaderMap, path: &ResourcePath, bytes: Bytes) -> Result<Bytes, ApiError> {
        let is_protobuf = match negotiate::content_type(headers).as_str() {
            "application/vnd.kubernetes.protobuf" => true,
            "application/yaml" => false,
            _ => return Ok(bytes),
        };
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
        Ok(json)
    }

    /// What is larger than a read is in a box, or every read would have room for it.
    async fn verb(&self, verb: Verb, call: &mut Call, body: Bytes) -> Answer {
        if let Some(subresource) = call.path.subresource.clone() {
            return Box::pin(self.subresource(verb, &subresource, call, body)).await;
        }
        let is_everywhere = call.kind.is_namespaced() && call.namespace().is_none();
        match verb {
            Verb::Get => read::get(self, call).await,
            Verb::List => read::list(self, call).await,
            Verb::Watch => match messages::of_lines(call)? {
                Some(messages) => messages.send(self, Box::pin(stream::watch(self, call)).await?, end_of(self, call)),
                None => Box::pin(stream::watch(self, call)).await,
            },
            // API-108: the collection of all namespaces can only be read.
            _ if is_everywhere => Err(ApiError::MethodNotAllowed),
            // API-345: objects are not made by name.
            Verb::Create if call.path.name.is_none() => Box::pin(write::post(self, call, body)).await,
            Verb::Update if call.path.name.is_some() => {
                Box::pin(write::replace(self, call, body, write::Part::Main)).await
            }
            // API-083, API-084: what most of kubectl's verbs come down to.
            Verb::Patch if call.path.name.is_some() => {
                Box::pin(write::patch(self, call, body, write::Part::Main)).await
            }
            Verb::Delete => Box::pin(delete::delete(self, call, body)).await,
            Verb::DeleteCollection => Box::pin(delete::delete_collection(self, call, body)).await,
            _ => Err(ApiError::MethodNotAllowed),
        }
    }

    async fn subresource(&self, verb: Verb, name: &str, call: &mut Call, body: Bytes) -> Answer {
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
            ("eviction", Verb::Create) => eviction::evict(self, call, body).await,
            ("binding", Verb::Create) => pods::bind(self, call, body).await,
            // API-087, with the streams below.
            ("log", Verb::Get) => logs::answer(self, call).await,
            ("exec" | "attach" | "portforward", Verb::Get | Verb::Create) => connect::answer(self, call, name).await,
            _ => Err(ApiError::MethodNotAllowed),
        }
    }

    /// Now, as `creationTimestamp` and its like show it.
    pub(crate) fn timestamp(&self) -> String {
        rfc3339(self.clock.now().wall)
    }
}

/// API-102: UTC with seconds.
pub(crate) fn rfc3339(time: ambient::Timestamp) -> String {
    format!("{time:.0}")
}

/// What is said of a request that caused a panic.
pub(crate) const PANICKED: &str = "this request caused apiserver to panic, look in the logs for details";

/// Marks answers whose body never ends by itself; removed before sending.
pub(crate) const STREAMING: HeaderName = HeaderName::from_static("x-podium-streaming");

/// API-005.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// API-006: what may take as long as it likes and holds nobody up.
fn is_long(verb: Verb, path: &ResourcePath, query: &Query) -> bool {
    let is_followed_log = path.subresource.as_deref() == Some("log") && query.is_set("follow");
    verb == Verb::Watch || connect::is_stream(path) || is_passed_on(path) || is_followed_log
}

fn is_passed_on(path: &ResourcePath) -> bool {
    path.subresource.as_deref() == Some("proxy")
}
