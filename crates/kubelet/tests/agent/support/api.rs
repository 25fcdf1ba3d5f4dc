//! A stand-in for the API server: objects in memory, watches, patches, an
//! off switch. Knows just enough to be asked by an agent.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use client::Body;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Clones share one world.
#[derive(Clone)]
pub(crate) struct Api {
    world: Arc<Mutex<World>>,
    changes: broadcast::Sender<Change>,
    revision: watch::Sender<u64>,
}

#[derive(Default)]
struct World {
    objects: BTreeMap<Key, Value>,
    is_away: bool,
    refuses_statuses: bool,
    /// Requests whose path ends so are never answered.
    unanswered: Option<&'static str>,
    requests: Vec<String>,
    /// Options of deletions and the phase they met, in order.
    deletions: Vec<(Value, Value)>,
    /// Requests for tokens, in order; the nth was answered with `token-n`.
    tokens: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    resource: String,
    namespace: String,
    name: String,
}

#[derive(Clone)]
struct Change {
    kind: &'static str,
    key: Key,
    object: Value,
}

/// A request, taken apart.
struct Asked {
    group: String,
    version: String,
    key: Key,
    subresource: String,
    query: BTreeMap<String, String>,
}

impl Api {
    pub(crate) fn new() -> Self {
        Self { world: Arc::default(), changes: broadcast::channel(1000).0, revision: watch::Sender::new(1) }
    }

    /// Stores an object as a user would have created it.
    pub(crate) fn create(&self, resource: &str, mut object: Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = Key {
            resource: resource.to_owned(),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        };
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", key.name));
        }
        self.store(key, object, "ADDED");
    }

    /// As `kubectl delete --grace-period` does.
    pub(crate) fn delete_pod(&self, name: &str, grace: i64) {
        let key = Key { resource: "pods".into(), namespace: "default".into(), name: name.into() };
        self.delete(&key, Some(grace));
    }

    pub(crate) fn delete_node(&self, name: &str) {
        self.delete(&Key { resource: "nodes".into(), namespace: String::new(), name: name.into() }, None);
    }

    pub(crate) fn change_pod(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.change("pods", name, change);
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        self.get("pods", "default", name)
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = Key { resource: resource.into(), namespace: namespace.into(), name: name.into() };
        self.world().objects.get(&key).cloned()
    }

    pub(crate) fn list(&self, resource: &str) -> Vec<Value> {
        let world = self.world();
        world.objects.iter().filter(|(key, _)| key.resource == resource).map(|(_, object)| object.clone()).collect()
    }

    /// Events about a pod: `Normal Started x2 Container started`.
    pub(crate) fn events(&self, pod: &str) -> Vec<String> {
        let mut events = self.list("events");
        events.retain(|event| event["involvedObject"]["name"] == pod);
        events.sort_by_key(|event| event["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .iter()
            .map(|event| {
                let count = match event["count"].as_i64() {
                    Some(1) | None => String::new(),
                    Some(count) => format!("x{count} "),
                };
                format!("{} {} {count}{}", text(&event["type"]), text(&event["reason"]), text(&event["message"]))
            })
            .collect()
    }

    pub(crate) fn change(&self, resource: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let namespace = if resource == "nodes" { "" } else { "default" };
        let key = Key { resource: resource.into(), namespace: namespace.into(), name: name.into() };
        let mut object = self.get(resource, namespace, name).expect("it exists");
        change(&mut object);
        self.store(key, object, "MODIFIED");
    }

    pub(crate) fn tokens(&self) -> Vec<Value> {
        self.world().tokens.clone()
    }

    /// Options of what was deleted by request, and the phase it had.
    pub(crate) fn deletions(&self) -> Vec<(Value, Value)> {
        self.world().deletions.clone()
    }

    /// `PATCH /api/v1/…`, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.world().requests.clone()
    }

    /// Whoever asks for what ends so waits for ever.
    pub(crate) fn leave_unanswered(&self, path: &'static str) {
        self.world().unanswered = Some(path);
    }

    /// Statuses of pods cannot be written.
    pub(crate) fn refuse_statuses(&self, refuses: bool) {
        self.world().refuses_statuses = refuses;
    }

    /// Every request fails and every watch breaks until it comes back.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.world().is_away = is_away;
        let _ = self.changes.send(Change {
            kind: "AWAY",
            key: Key { resource: String::new(), namespace: String::new(), name: String::new() },
            object: Value::Null,
        });
    }

    /// Waits for a pod to look as wanted; shows it when it never does.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(Option<&Value>) -> bool) -> Value {
        let mut revision = self.revision.subscribe();
        let waiting = async {
            loop {
                let pod = self.pod(name);
                if wanted(pod.as_ref()) {
                    return pod.unwrap_or_default();
                }
                revision.changed().await.expect("the world lives");
            }
        };
        match tokio::time::timeout(Duration::from_secs(1000), waiting).await {
            Ok(pod) => pod,
            Err(_) => panic!("never so: {:#}\nevents: {:#?}", self.pod(name).unwrap_or_default(), self.events(name)),
        }
    }

    /// Waits for anything else in the world: not all of it shows in the API,
    /// so it is looked at every few moments of virtual time as well.
    pub(crate) async fn until_world(&self, wanted: impl Fn(&Self) -> bool) {
        let mut revision = self.revision.subscribe();
        let waiting = async {
            while !wanted(self) {
                let changed = tokio::time::timeout(Duration::from_millis(50), revision.changed()).await;
                changed.unwrap_or(Ok(())).expect("the world lives");
            }
        };
        tokio::time::timeout(Duration::from_secs(1000), waiting).await.expect("the world becomes so");
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("not poisoned")
    }

    fn store(&self, key: Key, mut object: Value, kind: &'static str) -> Value {
        let mut world = self.world();
        let revision = *self.revision.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        world.objects.insert(key.clone(), object.clone());
        let _ = self.changes.send(Change { kind, key, object: object.clone() });
        drop(world);
        self.revision.send_replace(revision);
        object
    }

    fn delete(&self, key: &Key, grace: Option<i64>) -> Option<Value> {
        let mut object = self.world().objects.get(key).cloned()?;
        let is_pod = key.resource == "pods";
        let grace = grace.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(0);
        let is_held = object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        if is_pod && (grace > 0 || is_held) {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:10:00Z");
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            return Some(self.store(key.clone(), object, "MODIFIED"));
        }
        let mut world = self.world();
        let revision = *self.revision.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        world.objects.remove(key);
        let _ = self.changes.send(Change { kind: "DELETED", key: key.clone(), object: object.clone() });
        drop(world);
        self.revision.send_replace(revision);
        Some(object)
    }

    async fn answer(self, request: Request<Body>) -> Answer {
        let line = format!("{} {}", request.method(), request.uri().path());
        let is_answered = {
            let mut world = self.world();
            world.requests.push(line);
            let is_status = request.method() == Method::PATCH && request.uri().path().contains("/pods/");
            if world.is_away || (world.refuses_statuses && is_status) {
                return failure(503, "ServiceUnavailable", "away");
            }
            world.unanswered.is_none_or(|path| !request.uri().path().ends_with(path))
        };
        if !is_answered {
            return std::future::pending().await;
        }
        let Some(asked) = Asked::parse(&request) else { return failure(404, "NotFound", "no such path") };
        let method = request.method().clone();
        let kind = request.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_strategic = kind.contains("strategic");
        let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        match method {
            Method::GET if asked.query.get("watch").is_some_and(|watch| watch == "true" || watch == "1") => {
                self.watch(&asked)
            }
            Method::GET if asked.key.name.is_empty() => self.page(&asked),
            Method::GET => self.found(&asked.key),
            Method::POST => self.posted(asked, body),
            Method::PATCH => self.patched(&asked, &body, is_strategic),
            Method::DELETE => self.deleted(&asked.key, &body),
            _ => failure(405, "MethodNotAllowed", "not here"),
        }
    }

    fn found(&self, key: &Key) -> Answer {
        match self.world().objects.get(key) {
            Some(object) => success(200, object),
            None => missing(key),
        }
    }

    fn page(&self, asked: &Asked) -> Answer {
        let world = self.world();
        let items: Vec<&Value> =
            world.objects.iter().filter(|(key, object)| asked.selects(key, object)).map(|(_, object)| object).collect();
        let revision = self.revision.borrow().to_string();
        success(
            200,
            &json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": revision }, "items": items }),
        )
    }

    fn posted(&self, asked: Asked, body: Value) -> Answer {
        if asked.subresource == "token" {
            let mut world = self.world();
            world.tokens.push(body);
            let token = format!("token-{}", world.tokens.len());
            return success(201, &json!({"kind": "TokenRequest", "status": {"token": token}}));
        }
        if let Some(status) = reviewed(&asked.key.resource, &body["spec"]) {
            let mut answer = body;
            answer["status"] = status;
            return success(201, &answer);
        }
        let mut key = asked.key.clone();
        key.name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.world().objects.contains_key(&key) {
            return failure(409, "AlreadyExists", "already exists");
        }
        self.create(&key.resource, body);
        let stored = self.world().objects[&key].clone();
        success(201, &stored)
    }

    fn patched(&self, asked: &Asked, patch: &Value, is_strategic: bool) -> Answer {
        let Some(old) = self.world().objects.get(&asked.key).cloned() else { return missing(&asked.key) };
        let uid = &patch["metadata"]["uid"];
        if !uid.is_null() && *uid != old["metadata"]["uid"] {
            return failure(409, "Conflict", "the UID in the precondition differs");
        }
        let kind = objects::kinds::find(&asked.group, &asked.version, &asked.key.resource).expect("a kind we know");
        let new = if is_strategic {
            objects::patch::strategic_merge_patch(kind, &old, patch)
        } else {
            objects::patch::merge_patch(&old, patch)
        };
        match new {
            Ok(new) if new == old => success(200, &old),
            Ok(new) => success(200, &self.store(asked.key.clone(), new, "MODIFIED")),
            Err(error) => failure(422, "Invalid", &error.to_string()),
        }
    }

    fn deleted(&self, key: &Key, options: &Value) -> Answer {
        let Some(old) = self.world().objects.get(key).cloned() else { return missing(key) };
        self.world().deletions.push((options.clone(), old["status"]["phase"].clone()));
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != old["metadata"]["uid"] {
            return failure(409, "Conflict", "the UID in the precondition differs");
        }
        match self.delete(key, options["gracePeriodSeconds"].as_i64()) {
            Some(object) => success(200, &object),
            None => missing(key),
        }
    }

    /// Everything from the asked revision on: what is newer now, then changes.
    fn watch(&self, asked: &Asked) -> Answer {
        let world = self.world();
        let changes = self.changes.subscribe();
        let from: u64 = asked.query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let is_newer = |object: &Value| {
            object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok()).is_some_and(|v| v > from)
        };
        let backlog: Vec<Bytes> = world
            .objects
            .iter()
            .filter(|(key, object)| asked.selects(key, object) && is_newer(object))
            .map(|(_, object)| line("MODIFIED", object))
            .collect();
        let filter = Asked {
            group: String::new(),
            version: String::new(),
            key: asked.key.clone(),
            subresource: String::new(),
            query: asked.query.clone(),
        };
        let live = futures::stream::unfold((changes, filter), |(mut changes, filter)| async move {
            loop {
                let change = changes.recv().await.ok()?;
                if change.kind == "AWAY" {
                    return None;
                }
                if filter.selects(&change.key, &change.object) {
                    return Some((line(change.kind, &change.object), (changes, filter)));
                }
            }
        });
        let lines = futures::StreamExt::chain(futures::stream::iter(backlog), live);
        let frames = futures::StreamExt::map(lines, |line| Ok::<_, Infallible>(Frame::data(line)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }
}

impl Asked {
    fn parse(request: &Request<Body>) -> Option<Self> {
        let path = request.uri().path().trim_matches('/').to_owned();
        let parts: Vec<&str> = path.split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            key: Key { resource: part(0), namespace: namespace.to_owned(), name: part(1) },
            subresource: part(2),
            query: query.into_owned().collect(),
        })
    }

    fn selects(&self, key: &Key, object: &Value) -> bool {
        let is_here = key.resource == self.key.resource
            && (self.key.namespace.is_empty() || self.key.namespace == key.namespace)
            && self.subresource.is_empty();
        is_here
            && self.query.get("fieldSelector").is_none_or(|selector| {
                let (path, value) = selector.split_once('=').expect("a selector we know");
                path.split('.').fold(object, |inner, field| &inner[field]) == value
            })
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({ "type": kind, "object": object })))
}

fn success(code: u16, object: &Value) -> Answer {
    answered(code, object)
}

fn missing(key: &Key) -> Answer {
    failure(404, "NotFound", &format!("{} \"{}\" not found", key.resource, key.name))
}

fn failure(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message });
    answered(code, &status)
}

/// Whose token `token-of-NAME` is, and who may what: the API server and
/// administrators everything, `metrics` of a node those who are called so,
/// `reader` may read all of it.
fn reviewed(resource: &str, spec: &Value) -> Option<Value> {
    match resource {
        "tokenreviews" => Some(match spec["token"].as_str().and_then(|token| token.strip_prefix("token-of-")) {
            Some(user) => json!({"authenticated": true, "user": {"username": user, "groups": ["dev"]}}),
            None => json!({"user": {}, "error": "invalid bearer token"}),
        }),
        "subjectaccessreviews" => {
            let is_master = spec["groups"].as_array().is_some_and(|groups| groups.contains(&json!("system:masters")));
            let is_trusted = spec["user"] == "kube-apiserver-kubelet-client" || is_master;
            let is_own = spec["user"] == "metrics" && spec["resourceAttributes"]["subresource"] == "metrics";
            let is_reading = spec["user"] == "reader" && spec["resourceAttributes"]["verb"] == "get";
            Some(json!({"allowed": is_trusted || is_own || is_reading}))
        }
        _ => None,
    }
}

fn answered(code: u16, body: &Value) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).expect("a status");
    response
}

impl tower::Service<Request<Body>> for Api {
    type Response = Answer;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { Ok(api.answer(request).await) })
    }
}
