//! The audit log: who asked for what, and how it was answered, one
//! `audit.k8s.io/v1` Event a line, as the policy says.
//!
//! A [`Trail`] follows one request and is part of its work: when it is
//! dropped, however that came about, the event is written with what is known.
//! Bodies are written at the levels that say so and at no other.

mod log;
mod policy;
mod strangers;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use ambient::{Clock, Now, Timestamp};
use bytes::Bytes;
use http::{Extensions, HeaderValue, Response, StatusCode, header, request};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use objects::wire::Messages;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::answer::Body;
use crate::api::PANICKED;
use crate::auth::{ANONYMOUS, Identity};
use crate::error::ApiError;
use crate::object;
use crate::query::Query;
use crate::target::{ResourcePath, Target, Verb};

pub use log::{AuditLog, Rotation};
pub use policy::AuditPolicy;
use policy::{Asked, Level, Stage, Verdict, What};
use strangers::Strangers;

/// What is written, and where.
#[derive(Debug)]
pub struct Audit {
    policy: AuditPolicy,
    log: AuditLog,
    strangers: Mutex<Strangers>,
}

impl Audit {
    pub fn new(policy: AuditPolicy, log: AuditLog) -> Self {
        Self { policy, log, strangers: Mutex::default() }
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In Prometheus text, under upstream's names where it has one.
    pub(crate) fn metrics(&self) -> String {
        let (written, lost) = (&self.log.written, &self.log.lost);
        let row = |name: &str, help: &str, count: u64| {
            format!("# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}\n")
        };
        let sent = "Counter of audit events generated and sent to the audit backend.";
        let failed = "Counter of audit events that failed to be audited properly.";
        let suppressed = "Counter of audit events of strangers that were left out, because there were too many.";
        row("apiserver_audit_event_total", sent, written.load(Ordering::Relaxed))
            + &row("apiserver_audit_error_total", failed, lost.load(Ordering::Relaxed))
            + &row("podium_audit_suppressed_total", suppressed, self.strangers().suppressed)
    }
}

/// How much of each text is kept: longer ones are cut, as upstream cuts user
/// agents.
struct Limits {
    user_agent: usize,
    uri: usize,
    message: usize,
    name: usize,
}

const LIMITS: Limits = Limits { user_agent: 1024, uri: 8 << 10, message: 4 << 10, name: 512 };
/// Of those who have shown nothing that says who they are.
const LIMITS_OF_STRANGERS: Limits = Limits { user_agent: 256, uri: 256, message: 256, name: 64 };
/// A caller's longer Audit-ID is not taken.
pub(crate) const ID_MAX: usize = 64;
const VERB_MAX: usize = 64;
/// A larger body is left out.
const BODY_MAX: usize = 3 << 20;
/// Of a larger answer nobody asks what it is called.
const NAMED_BODY_MAX: usize = 64 << 10;
const TRUNCATED: &str = "audit.k8s.io/truncated";
/// How many events of strangers were left out before this one.
const SUPPRESSED: &str = "podium.io/suppressed";

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "whom")]
    user: Option<Arc<Identity>>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "whom")]
    impersonated_user: Option<Arc<Identity>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Option::is_none")]
    source_ips: Option<[IpAddr; 1]>,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<Value>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, String>,
}

/// As much of a `Status` as is told.
#[derive(Debug, Clone, Default, Serialize)]
struct Status {
    metadata: Nothing,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Debug, Clone, Default, Serialize)]
struct Nothing {}

/// Shared with the connection and the request: it is the same for all of them.
fn whom<S: Serializer>(identity: &Option<Arc<Identity>>, serializer: S) -> Result<S::Ok, S::Error> {
    identity.as_deref().serialize(serializer)
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef {
    resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_group: String,
    api_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<String>,
}

impl ObjectRef {
    fn of(path: &ResourcePath, max: usize) -> Self {
        let part = |text: &String| cut(text.clone(), max);
        Self {
            resource: part(&path.resource),
            namespace: path.namespace.as_ref().map(part),
            name: path.name.as_ref().map(part),
            uid: String::new(),
            api_group: part(&path.group),
            api_version: part(&path.version),
            subresource: path.subresource.as_ref().map(part),
        }
    }
}

/// Whose name only the answer tells.
#[derive(Deserialize)]
struct Named {
    metadata: NamedMeta,
}

#[derive(Deserialize)]
struct NamedMeta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

fn named(object: &[u8]) -> Option<(String, String)> {
    if let Some((name, uid)) = object::name_and_uid(object) {
        return Some((name.to_owned(), uid.to_owned()));
    }
    let found: Named = serde_json::from_slice(object).ok()?;
    Some((found.metadata.name, found.metadata.uid))
}

/// A request before anything became of it.
pub(crate) struct Arrival<'a> {
    pub(crate) parts: &'a request::Parts,
    pub(crate) query: &'a Query,
    pub(crate) target: &'a Target,
    pub(crate) peer: Option<IpAddr>,
    pub(crate) id: Option<&'a HeaderValue>,
    pub(crate) at: Now,
    /// None: it could not be made out.
    pub(crate) caller: Option<&'a Arc<Identity>>,
}

impl Arrival<'_> {
    fn is_of_a_stranger(&self) -> bool {
        self.caller.is_none_or(|caller| caller.user == ANONYMOUS)
    }
}

fn limits(is_stranger: bool) -> Limits {
    if is_stranger { LIMITS_OF_STRANGERS } else { LIMITS }
}

/// What is known of a request so far.
pub(crate) struct Trail {
    audit: Arc<Audit>,
    clock: Clock,
    verdict: Verdict,
    event: Event,
    recorder: Option<Recorder>,
    is_stranger: bool,
    is_panic: bool,
    is_ended: bool,
}

impl Trail {
    /// None if the policy does not care.
    pub(crate) fn start(audit: &Arc<Audit>, clock: &Clock, arrival: &Arrival<'_>) -> Option<Self> {
        let Arrival { parts, target, .. } = arrival;
        let verb = verb(parts, target, arrival.query);
        let what = match target {
            Target::Plain => What::Path(parts.uri.path()),
            Target::Resource(path) => What::Resource {
                group: &path.group,
                namespace: path.namespace.as_deref().unwrap_or_default(),
                resource: &path.resource,
                subresource: path.subresource.as_deref().unwrap_or_default(),
                name: path.name.as_deref().unwrap_or_default(),
            },
        };
        let user = arrival.caller.map(|caller| (caller.user.as_str(), caller.groups.as_slice()));
        let verdict = audit.policy.judge(&Asked { user, verb: &verb, what })?;
        let is_stranger = arrival.is_of_a_stranger();
        let event = event(arrival, verb, verdict.level);
        let recorder = (verdict.level >= Level::Request).then(Recorder::default);
        let (audit, clock) = (Arc::clone(audit), clock.clone());
        let mut trail = Self { audit, clock, verdict, event, recorder, is_stranger, is_panic: false, is_ended: false };
        trail.write(Stage::RequestReceived);
        Some(trail)
    }

    /// For the body, where the policy asks for it.
    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.recorder.clone()
    }

    pub(crate) fn seen_as(&mut self, identity: &Arc<Identity>) {
        self.event.impersonated_user = Some(Arc::clone(identity));
    }

    /// What was answered, before the headers are final.
    pub(crate) fn answered(&mut self, code: StatusCode, error: Option<&ApiError>) {
        let max = limits(self.is_stranger).message;
        let told = error.map(ApiError::status).unwrap_or_default();
        let text = |field: &str| told.get(field).and_then(Value::as_str).map(|text| cut(text.to_owned(), max).into());
        self.event.response_status = Some(Status {
            metadata: Nothing {},
            status: text("status"),
            message: text("message"),
            reason: text("reason"),
            code: Some(code.as_u16()),
        });
        self.is_panic = matches!(error, Some(ApiError::Internal(said)) if said == PANICKED);
    }

    /// Looks at an answer before it is packed: at what was made by it, and at
    /// all of it where the policy asks for that.
    pub(crate) async fn look(&mut self, response: Response<Body>, wire: &Messages) -> Response<Body> {
        let is_wanted = self.verdict.level == Level::RequestResponse;
        let object = self.event.object_ref.as_ref();
        let is_nameless = object.is_some_and(|object| object.name.is_none()) && self.event.verb == "create";
        let length = http_body::Body::size_hint(response.body()).exact().unwrap_or(u64::MAX);
        let max = if is_wanted { BODY_MAX } else { NAMED_BODY_MAX };
        if length > max as u64 {
            if is_wanted {
                self.note_truncation();
            }
            return response;
        }
        if !is_wanted && (!is_nameless || response.status() != StatusCode::CREATED) {
            return response;
        }
        let (head, body) = response.into_parts();
        let Ok(bytes) = body.collect().await.map(http_body_util::Collected::to_bytes);
        if is_nameless && let (Some(object), Some((name, uid))) = (&mut self.event.object_ref, named(&bytes)) {
            object.name = Some(name).filter(|name| !name.is_empty());
            object.uid = uid;
        }
        if is_wanted {
            let doc = serde_json::from_slice(&bytes).ok().or_else(|| wire.read(&bytes, "").ok());
            self.event.response_object = doc.map(|doc| self.kept(doc));
        }
        Response::from_parts(head, Full::new(bytes).boxed_unsync())
    }

    fn kept(&self, mut doc: Value) -> Value {
        if self.verdict.omits_managed_fields {
            without_managed_fields(&mut doc);
            doc.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(without_managed_fields);
        }
        doc
    }

    fn note_truncation(&mut self) {
        self.event.annotations.insert(TRUNCATED, "true".to_owned());
    }

    /// Writes the event; that of a stream's end when the stream ends.
    pub(crate) fn finish(mut self: Box<Self>, response: Response<Body>, is_whole: bool) -> Response<Body> {
        if is_whole {
            self.end(if self.is_panic { Stage::Panic } else { Stage::ResponseComplete });
            return response;
        }
        self.write(Stage::ResponseStarted);
        response.map(|body| Followed { body, _trail: self }.boxed_unsync())
    }

    fn end(&mut self, stage: Stage) {
        self.is_ended = true;
        let body = self.recorder.take().and_then(|Recorder(kept)| kept.get().cloned()).unwrap_or_default();
        if body.len() > BODY_MAX {
            self.note_truncation();
        } else if let Ok(doc) = serde_json::from_slice(&body) {
            self.event.request_object = Some(self.kept(doc));
        }
        self.write(stage);
    }

    fn write(&mut self, stage: Stage) {
        if self.verdict.omits(stage) {
            return;
        }
        let now = self.clock.now();
        let suppressed = {
            let mut strangers = self.audit.strangers();
            if self.is_stranger && !strangers.admit(now.mono) {
                return;
            }
            strangers.tell()
        };
        self.event.stage = stage.as_str();
        self.event.stage_timestamp = micro(now.wall);
        if let Some(count) = suppressed {
            self.event.annotations.insert(SUPPRESSED, count.to_string());
        }
        self.audit.log.write(&self.event, now);
        // A later stage of the same request does not say it again.
        self.event.annotations.remove(SUPPRESSED);
    }
}

/// Whoever hangs up, takes too long or panics is written down as well.
impl Drop for Trail {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        let is_panic = std::thread::panicking();
        let failure = |message: &'static str| Status {
            status: Some("Failure".into()),
            message: Some(message.into()),
            ..Status::default()
        };
        if is_panic {
            let (reason, code) = (Some("InternalError".into()), Some(500));
            self.event.response_status = Some(Status { reason, code, ..failure("APIServer panic'd") });
        } else if self.event.response_status.is_none() {
            self.event.response_status = Some(failure("the request was given up before it was answered"));
        }
        self.end(if is_panic { Stage::Panic } else { Stage::ResponseComplete });
    }
}

fn event(arrival: &Arrival<'_>, verb: Cow<'static, str>, level: Level) -> Event {
    let Arrival { parts, target, .. } = arrival;
    let limits = limits(arrival.is_of_a_stranger());
    let mut annotations = BTreeMap::new();
    let uri = parts.uri.to_string();
    if uri.len() > limits.uri {
        annotations.insert(TRUNCATED, "true".to_owned());
    }
    let text = |value: Option<&HeaderValue>| value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    Event {
        kind: "Event",
        api_version: "audit.k8s.io/v1",
        level: level.as_str(),
        audit_id: cut(text(arrival.id), ID_MAX),
        stage: "",
        request_uri: cut(uri, limits.uri),
        verb: if verb.len() > VERB_MAX { cut(verb.into_owned(), VERB_MAX).into() } else { verb },
        user: arrival.caller.cloned(),
        impersonated_user: None,
        source_ips: arrival.peer.map(|peer| [peer]),
        user_agent: cut(text(parts.headers.get(header::USER_AGENT)), limits.user_agent),
        object_ref: match target {
            Target::Resource(path) => Some(ObjectRef::of(path, limits.name)),
            Target::Plain => None,
        },
        response_status: None,
        request_object: None,
        response_object: None,
        request_received_timestamp: micro(arrival.at.wall),
        stage_timestamp: String::new(),
        annotations,
    }
}

/// As upstream marks it.
fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push_str("...TRUNCATED");
    }
    text
}

fn without_managed_fields(doc: &mut Value) {
    if let Some(metadata) = doc.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
}

/// Where the body of a request is left for its trail, once it is JSON.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<OnceLock<Bytes>>);

/// Keeps the body for the log, where the policy asks for it.
pub(crate) fn record(extensions: &Extensions, body: &Bytes) {
    if let Some(Recorder(kept)) = extensions.get() {
        kept.get_or_init(|| body.clone());
    }
}

/// A body whose end is told, when it is dropped with its trail.
struct Followed {
    body: Body,
    _trail: Box<Trail>,
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// As authorization names it (API-110).
fn verb(parts: &request::Parts, target: &Target, query: &Query) -> Cow<'static, str> {
    let verb = match target {
        Target::Resource(path) => Verb::of(&parts.method, path, query).map(Verb::as_str),
        Target::Plain => None,
    };
    verb.map_or_else(|| parts.method.as_str().to_ascii_lowercase().into(), Cow::Borrowed)
}

/// API-102: a MicroTime.
fn micro(time: Timestamp) -> String {
    format!("{time:.6}")
}
