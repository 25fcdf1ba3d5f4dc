//! One server over a temporary store, called in process.

use std::sync::Arc;

use ambient::{Clock, Ids, Rng};
use apiserver::{ApiServer, Body, Config, Identity, Service};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) struct Fixture {
    pub(crate) api: ApiServer,
    pub(crate) clock: Clock,
    pub(crate) admin: Client,
    _dir: tempfile::TempDir,
}

pub(crate) async fn fixture() -> Fixture {
    fixture_with(Config::default()).await
}

pub(crate) async fn fixture_with(config: Config) -> Fixture {
    fixture_on(config, options()).await
}

pub(crate) async fn fixture_on(config: Config, options: store::Options) -> Fixture {
    let fixture = unstarted_on(config, options);
    fixture.api.bootstrap().await.unwrap();
    fixture
}

fn options() -> store::Options {
    store::Options { history_per_topic_max: 64, ..store::Options::default() }
}

/// Before its first objects are there.
pub(crate) fn unstarted(config: Config) -> Fixture {
    unstarted_on(config, options())
}

fn unstarted_on(config: Config, options: store::Options) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let store = store::Embedded::open(&dir.path().join("state.redb"), options).unwrap();
    unstarted_over(Arc::new(store), dir, config)
}

pub(crate) fn unstarted_over(store: Arc<dyn store::Store>, dir: tempfile::TempDir, config: Config) -> Fixture {
    let clock = Clock::manual();
    let api = ApiServer::new(store, config, clock.clone(), Ids::new(Rng::seeded(1)));
    let admin = Client(api.service(Identity::admin()));
    Fixture { api, clock, admin, _dir: dir }
}

#[derive(Clone)]
pub(crate) struct Client(pub(crate) Service);

impl Client {
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Body> {
        self.0.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn call(&self, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let response = self.send(request.body(Full::new(bytes)).unwrap()).await;
        let code = response.status().as_u16();
        (code, json_of(response).await)
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, "", &Value::Null).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Response<Body> {
        let request = Request::builder().uri(path).header("accept", accept);
        self.send(request.body(Full::default()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call("POST", path, "application/json", body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call("PUT", path, "application/json", body).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call("PATCH", path, "application/merge-patch+json", body).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> (u16, Value) {
        self.call("DELETE", path, "application/json", options).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Events {
        let response = self.get_as(path, "application/json").await;
        assert_eq!(response.status(), StatusCode::OK);
        Events::new(response)
    }

    /// Creates a pod and returns it.
    pub(crate) async fn pod(&self, name: &str) -> Value {
        let (code, pod) = self.post("/api/v1/namespaces/default/pods", &pod(name)).await;
        assert_eq!(code, 201, "{pod}");
        pod
    }

    /// Gives a user a ClusterRole of its own name with these rules.
    pub(crate) async fn allow(&self, user: &str, rules: Value) {
        let group = "rbac.authorization.k8s.io";
        let role = json!({"kind": "ClusterRole", "metadata": {"name": user}, "rules": rules});
        let binding = json!({"kind": "ClusterRoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
            "subjects": [{"kind": "User", "name": user}]});
        for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            let (code, made) = self.post(&format!("/apis/{group}/v1/{plural}"), &object).await;
            assert_eq!(code, 201, "{made}");
        }
    }

    pub(crate) async fn bind(&self, name: &str, node: &str) -> (u16, Value) {
        let binding = json!({
            "kind": "Binding", "apiVersion": "v1", "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        });
        self.post(&format!("/api/v1/namespaces/default/pods/{name}/binding"), &binding).await
    }
}

pub(crate) async fn json_of(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}

/// The events of a watch, one by one.
pub(crate) struct Events {
    body: Body,
    buffer: Vec<u8>,
}

impl Events {
    pub(crate) fn new(response: Response<Body>) -> Self {
        Self { body: response.into_body(), buffer: Vec::new() }
    }

    /// None at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Type and name of the next event.
    pub(crate) async fn brief(&mut self) -> String {
        let event = self.next().await.expect("the stream goes on");
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap())
    }
}
