//! An API server double: lists and watches, bindings, patches, deletions and
//! Events, nothing more. Writes are told in the order they came.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use client::Body;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use tokio::sync::mpsc;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A ready node with 200 CPUs.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "status": {
            "allocatable": {"cpu": "200", "memory": "400Gi", "pods": "1000"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main", "image": "busybox"}]},
    })
}

#[derive(Clone)]
pub(crate) struct Api {
    state: Arc<Mutex<State>>,
    told: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>>,
}

struct State {
    revision: u64,
    objects: BTreeMap<(String, String), Value>,
    watchers: Vec<(String, mpsc::UnboundedSender<Value>)>,
    refusal: Option<(u16, &'static str)>,
    /// Status patches of pods are told whole, not as the scheduler's condition.
    tells_patches: bool,
    /// Pods go as they are deleted, and how is told.
    tells_grace: bool,
    tell: mpsc::UnboundedSender<String>,
}

impl Api {
    pub(crate) fn with<const N: usize>(objects: [Value; N]) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let state = State {
            revision: 1,
            objects: BTreeMap::new(),
            watchers: Vec::new(),
            refusal: None,
            tells_patches: false,
            tells_grace: true,
            tell,
        };
        let api = Self { state: Arc::new(Mutex::new(state)), told: Arc::new(tokio::sync::Mutex::new(told)) };
        objects.into_iter().for_each(|object| api.apply(object));
        api
    }

    /// Creates or updates, and tells the watchers.
    pub(crate) fn apply(&self, object: Value) {
        self.lock().apply(object);
    }

    pub(crate) fn tell_patches(&self) {
        self.lock().tells_patches = true;
    }

    /// What is deleted goes unless finalizers hold it, and only that is told.
    pub(crate) fn tell_deletions(&self) {
        self.lock().tells_grace = false;
    }

    pub(crate) fn is_there(&self, plural: &str, name: &str) -> bool {
        self.lock().objects.contains_key(&(plural.to_owned(), name.to_owned()))
    }

    /// It vanishes, and the watchers learn of it.
    pub(crate) fn remove(&self, plural: &str, name: &str) {
        self.lock().remove(plural, name);
    }

    pub(crate) fn refuse_next_binding(&self, code: u16, reason: &'static str) {
        self.lock().refusal = Some((code, reason));
    }

    /// The next `N` writes, sorted: Events and other writes have no order
    /// among each other.
    pub(crate) async fn next_writes<const N: usize>(&self) -> [String; N] {
        self.next_writes_within(Duration::from_secs(60)).await
    }

    /// The same with more patience.
    pub(crate) async fn next_writes_within<const N: usize>(&self, patience: Duration) -> [String; N] {
        let mut told = self.told.lock().await;
        let mut lines = std::array::from_fn(|_| String::new());
        for line in &mut lines {
            let next = tokio::time::timeout(patience, told.recv()).await;
            *line = next.expect("no write in time").expect("the double tells as long as it lives");
        }
        lines.sort();
        lines
    }

    /// In virtual time, so this costs nothing.
    pub(crate) async fn expect_silence(&self, length: Duration) {
        let outcome = tokio::time::timeout(length, async { self.told.lock().await.recv().await }).await;
        assert_eq!(outcome.ok(), None, "an unexpected write");
    }

    pub(crate) fn service(
        &self,
    ) -> impl tower::Service<
        Request<Body>,
        Response = Answer,
        Error = Infallible,
        Future: Future<Output = Result<Answer, Infallible>> + Send,
    > + Clone
    + Send
    + 'static {
        let api = self.clone();
        tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok(api.answer(request).await) }
        })
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("requests arrive whole").to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let groups = ["/api/v1/", "/apis/coordination.k8s.io/v1/", "/apis/storage.k8s.io/v1/"];
        let path = head.uri.path();
        let path = groups.iter().find_map(|group| path.strip_prefix(group)).unwrap_or(path);
        let path: Vec<&str> = path.split('/').collect();
        let is_watch = head.uri.query().is_some_and(|query| query.contains("watch=true"));
        let mut state = self.lock();
        match (&head.method, path.as_slice()) {
            (&Method::GET, [plural] | ["namespaces", _, plural]) if is_watch => state.watch(plural),
            (&Method::GET, [plural] | ["namespaces", _, plural]) => whole(200, &state.list(plural)),
            (&Method::GET, [plural @ ("nodes" | "namespaces"), name]) => state.get(plural, name),
            (&Method::PUT, ["namespaces", name, part]) => state.replace_namespace(name, part, &body),
            (&Method::PATCH, ["nodes", name] | ["nodes", name, "status"]) => state.patch("nodes", name, &body),
            (&Method::DELETE, ["namespaces", _, "pods", name]) if state.tells_grace => state.delete(name, &body),
            (&Method::DELETE, ["namespaces", _, plural, name]) => state.mark(plural, name),
            (&Method::PATCH, ["namespaces", _, "pods", name, "status"]) if state.tells_patches => {
                state.patch("pods", name, &body)
            }
            (&Method::POST, ["namespaces", _, "pods", name, "binding"]) => state.bind(name, &body),
            (&Method::PATCH, ["namespaces", _, "pods", name, "status"]) => state.patch_status(name, &body),
            (&Method::POST, ["namespaces", _, "events"]) => state.event(&body),
            (&Method::PATCH, ["namespaces", _, "events", _]) => whole(200, &body),
            _ => whole(404, &status(404, "NotFound")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while holding the double")
    }
}

impl State {
    fn apply(&mut self, mut object: Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let plural = format!("{}s", text(&object["kind"]).to_lowercase());
        let key = (plural.clone(), text(&object["metadata"]["name"]).to_owned());
        let type_ = if self.objects.insert(key, object.clone()).is_some() { "MODIFIED" } else { "ADDED" };
        let event = json!({"type": type_, "object": object});
        self.watchers.retain(|(kind, watcher)| *kind != plural || watcher.send(event.clone()).is_ok());
    }

    fn list(&self, plural: &str) -> Value {
        let items: Vec<_> = self.objects.iter().filter(|((kind, _), _)| kind == plural).map(|(_, o)| o).collect();
        json!({
            "apiVersion": "v1", "kind": "List",
            "metadata": {"resourceVersion": self.revision.to_string()},
            "items": items,
        })
    }

    /// Nothing happens between a list and its watch here, so it starts now.
    fn watch(&mut self, plural: &str) -> Answer {
        let (tell, mut told) = mpsc::unbounded_channel::<Value>();
        self.watchers.push((plural.to_owned(), tell));
        let frames = futures::stream::poll_fn(move |context| told.poll_recv(context));
        let frames = futures::StreamExt::map(frames, |event| {
            Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(format!("{event}\n"))))
        });
        Response::new(http_body_util::StreamBody::new(frames).boxed_unsync())
    }

    fn bind(&mut self, name: &str, binding: &Value) -> Answer {
        let node = text(&binding["target"]["name"]);
        let meta = &binding["metadata"];
        self.told(format!("bind {}/{name} {} to {node}", text(&meta["namespace"]), text(&meta["uid"])));
        if let Some((code, reason)) = self.refusal.take() {
            return whole(code, &status(code, reason));
        }
        let mut pod = self.objects[&("pods".to_owned(), name.to_owned())].clone();
        assert_eq!(pod["spec"]["nodeName"], Value::Null, "a second binding of {name}");
        pod["spec"]["nodeName"] = json!(node);
        self.apply(pod);
        whole(201, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn patch_status(&mut self, name: &str, patch: &Value) -> Answer {
        let condition = &patch["status"]["conditions"][0];
        self.told(format!(
            "status default/{name} {} {}={} {} at {}: {}",
            text(&patch["metadata"]["uid"]),
            text(&condition["type"]),
            text(&condition["status"]),
            text(&condition["reason"]),
            text(&condition["lastTransitionTime"]),
            text(&condition["message"]),
        ));
        let mut pod = self.objects[&("pods".to_owned(), name.to_owned())].clone();
        pod["status"]["conditions"] = json!([condition]);
        self.apply(pod.clone());
        whole(200, &pod)
    }

    fn get(&self, plural: &str, name: &str) -> Answer {
        match self.objects.get(&(plural.to_owned(), name.to_owned())) {
            Some(object) => whole(200, object),
            None => whole(404, &status(404, "NotFound")),
        }
    }

    /// Lists are joined by type, as far as they have any, and replaced otherwise.
    fn patch(&mut self, plural: &str, name: &str, patch: &Value) -> Answer {
        let key = (plural.to_owned(), name.to_owned());
        let Some(mut object) = self.objects.get(&key).cloned() else { return whole(404, &status(404, "NotFound")) };
        let meta = &patch["metadata"];
        let is_same = |field: &str| meta[field].is_null() || meta[field] == object["metadata"][field];
        if !is_same("uid") || !is_same("resourceVersion") {
            return whole(409, &status(409, "Conflict"));
        }
        let part = if patch["status"].is_null() { "spec" } else { "status" };
        self.told(format!("patch {plural}/{name} {part} {}", patch[part]));
        for (field, value) in patch[part].as_object().into_iter().flatten() {
            let held = &mut object[part][field];
            match (held.as_array_mut(), value.as_array()) {
                (Some(held), Some(news)) if field == "conditions" => {
                    held.retain(|held| !news.iter().any(|new| new["type"] == held["type"]));
                    held.extend(news.iter().cloned());
                }
                _ => *held = value.clone(),
            }
        }
        self.apply(object.clone());
        whole(200, &object)
    }

    fn delete(&mut self, name: &str, how: &Value) -> Answer {
        let grace = how["gracePeriodSeconds"].as_i64();
        self.told(format!("delete {name} {} grace {grace:?}", text(&how["preconditions"]["uid"])));
        self.remove("pods", name);
        whole(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn mark(&mut self, plural: &str, name: &str) -> Answer {
        let key = (plural.to_owned(), name.to_owned());
        let Some(mut object) = self.objects.get(&key).cloned() else { return whole(404, &status(404, "NotFound")) };
        if object["metadata"]["finalizers"].is_null() {
            self.told(format!("delete {plural}/{name}"));
            self.remove(plural, name);
        } else if object["metadata"]["deletionTimestamp"].is_null() {
            self.told(format!("mark {plural}/{name}"));
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            self.apply(object);
        }
        whole(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }

    fn replace_namespace(&mut self, name: &str, part: &str, body: &Value) -> Answer {
        let key = ("namespaces".to_owned(), name.to_owned());
        let Some(mut object) = self.objects.get(&key).cloned() else { return whole(404, &status(404, "NotFound")) };
        if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return whole(409, &status(409, "Conflict"));
        }
        if part == "finalize" && body["spec"]["finalizers"] == json!([]) {
            self.told(format!("finalize {name}"));
            self.remove("namespaces", name);
            return whole(200, body);
        }
        let told = body["status"]["conditions"].as_array().into_iter().flatten();
        let holding: Vec<&str> = told.filter(|it| it["status"] == "True").map(|it| text(&it["message"])).collect();
        self.told(format!("status {name}: {}", holding.join("; ")));
        object["status"] = body["status"].clone();
        self.apply(object.clone());
        whole(200, &object)
    }

    fn remove(&mut self, plural: &str, name: &str) {
        self.revision += 1;
        let Some(mut object) = self.objects.remove(&(plural.to_owned(), name.to_owned())) else { return };
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let event = json!({"type": "DELETED", "object": object});
        self.watchers.retain(|(kind, watcher)| kind != plural || watcher.send(event.clone()).is_ok());
    }

    fn event(&mut self, event: &Value) -> Answer {
        let about = &event["involvedObject"];
        self.told(format!(
            "event {} {} {}/{} {}: {}",
            text(&event["type"]),
            text(&event["reason"]),
            text(&about["namespace"]),
            text(&about["name"]),
            text(&event["source"]["component"]),
            text(&event["message"]),
        ));
        whole(201, event)
    }

    fn told(&self, line: String) {
        // Nobody listens any more once the test has ended.
        let _ = self.tell.send(line);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "refused"})
}

fn whole(code: u16, body: &Value) -> Answer {
    let body = http_body_util::Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(code).header("content-type", "application/json").body(body).expect("a plain answer")
}
