//! Nobody's storm, slow body or hang-up costs others their turn, or the cluster
//! what follows a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fixture::{Client, Fixture, fixture, json_of, unstarted_over};
use apiserver::{AuditPolicy, Body, Config, Identity};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use store::{Entry, ListRequest, Listing, Op, ReadError, Revision, Store, Watch, WatchError, WriteError};
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

const PODS: &str = "/api/v1/namespaces/default/pods";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// A write whose body begins and never ends.
async fn slow(client: Client, path: &str) -> Response<Body> {
    let begin = futures::stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"{")))]);
    let body = StreamBody::new(futures::StreamExt::chain(begin, futures::stream::pending()));
    let request = Request::builder().method("POST").uri(path).header("content-type", "application/json");
    client.0.oneshot(request.body(body.boxed_unsync()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn api_006_slow_bodies_of_one_account_stop_nobody() {
    let fixture = fixture().await;
    fixture.admin.allow("jane", json!([{"verbs": ["create"], "apiGroups": [""], "resources": ["pods"]}])).await;
    let stranger = Client(fixture.api.service(Identity::new("stranger", ["nobody"])));
    let mut bodies = tokio::task::JoinSet::new();
    for _ in 0..2000 {
        bodies.spawn(slow(stranger.clone(), REVIEWS));
    }
    let mut refused = 0;
    while refused < 1000 {
        assert_eq!(bodies.join_next().await.unwrap().unwrap().status(), 429, "more than one account may send");
        refused += 1;
    }
    let jane = Client(fixture.api.service(Identity::new("jane", ["dev"])));
    jane.pod("web").await;
    let node = Client(fixture.api.service(Identity::node("n")));
    let lease = json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40}});
    let (code, made) = node.post(LEASES, &lease).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(bodies.len(), 1000, "all that may send still do");
}

#[tokio::test]
async fn api_125_who_may_not_is_told_so_before_the_body_is_read() {
    let fixture = fixture().await;
    let stranger = Client(fixture.api.service(Identity::new("stranger", ["nobody"])));
    assert_eq!(slow(stranger, PODS).await.status(), 403);
    assert_eq!(slow(Client(fixture.api.anonymous()), PODS).await.status(), 401);
}

#[tokio::test(start_paused = true)]
async fn api_005_a_body_that_hardly_comes_is_given_up() {
    let fixture = fixture().await;
    let started = tokio::time::Instant::now();
    let response = slow(fixture.admin.clone(), PODS).await;
    assert_eq!(response.status(), 504);
    assert_eq!(json_of(response).await["reason"], "Timeout");
    assert_eq!(started.elapsed().as_secs(), 10);
}

/// A store whose writes wait to be let through, or break.
struct Gated {
    inner: store::Embedded,
    writes: Semaphore,
    begun: Semaphore,
    is_broken: AtomicBool,
}

#[async_trait::async_trait]
impl Store for Gated {
    async fn revision(&self) -> Result<Revision, ReadError> {
        self.inner.revision().await
    }

    fn shown(&self) -> Revision {
        self.inner.shown()
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<Entry>>, ReadError> {
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest<'_>) -> Result<Listing, ReadError> {
        self.inner.list(request).await
    }

    async fn write(&self, batch: Vec<Op>) -> Result<Revision, WriteError> {
        assert!(!self.is_broken.load(Ordering::SeqCst), "the store is broken");
        self.begun.add_permits(1);
        self.writes.acquire().await.unwrap().forget();
        self.inner.write(batch).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        self.inner.watch(prefix, after).await
    }

    async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        self.inner.compact(through).await
    }
}

struct Scene {
    fixture: Fixture,
    store: Arc<Gated>,
    log: std::path::PathBuf,
}

impl Scene {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let inner = store::Embedded::open(&dir.path().join("state.redb"), store::Options::default()).unwrap();
        let (writes, begun) = (Semaphore::new(Semaphore::MAX_PERMITS), Semaphore::new(0));
        let store = Arc::new(Gated { inner, writes, begun, is_broken: AtomicBool::new(false) });
        let log = dir.path().join("audit.log");
        let audit = Some(crate::audit::written_to(&log, AuditPolicy::default()));
        let fixture = unstarted_over(store.clone(), dir, Config { audit, ..Config::default() });
        fixture.api.bootstrap().await.unwrap();
        store.writes.forget_permits(Semaphore::MAX_PERMITS);
        store.begun.forget_permits(Semaphore::MAX_PERMITS);
        Self { fixture, store, log }
    }

    /// Names and codes of the pods whose making was told, when there is one.
    async fn told(&self) -> Vec<Value> {
        loop {
            let text = std::fs::read_to_string(&self.log).unwrap();
            let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let codes: Vec<Value> = events
                .filter(|event| event["verb"] == "create" && event["objectRef"]["resource"] == "pods")
                .map(|event| event["responseStatus"]["code"].clone())
                .collect();
            if !codes.is_empty() {
                return codes;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_write_ends_and_is_told_although_its_caller_has_hung_up() {
    let scene = Scene::new().await;
    let admin = scene.fixture.admin.clone();
    let call = tokio::spawn(async move { admin.pod("web").await });
    scene.store.begun.acquire().await.unwrap().forget();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    scene.store.writes.add_permits(1);
    assert_eq!(scene.told().await, [json!(201)]);
    assert_eq!(scene.fixture.admin.get(&format!("{PODS}/web")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn api_005_a_write_that_took_too_long_still_ends_and_is_told() {
    let scene = Scene::new().await;
    let (code, status) = scene.fixture.admin.post(PODS, &crate::fixture::pod("web")).await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    scene.store.writes.add_permits(1);
    assert_eq!(scene.told().await, [json!(201)]);
    assert_eq!(scene.fixture.admin.get(&format!("{PODS}/web")).await.0, 200);
}

#[tokio::test]
async fn a_panic_costs_one_request_and_is_told() {
    let scene = Scene::new().await;
    scene.store.is_broken.store(true, Ordering::SeqCst);
    let (code, status) = scene.fixture.admin.post(PODS, &crate::fixture::pod("web")).await;
    assert_eq!((code, &status["reason"]), (500, &json!("InternalError")), "{status}");
    assert_eq!(scene.told().await, [json!(500)]);
    assert!(std::fs::read_to_string(&scene.log).unwrap().contains(r#""stage":"Panic""#));
    let (code, metrics) = scene.fixture.admin.get("/metrics").await;
    assert!(code == 200 && metrics.as_str().unwrap().contains("\npodium_apiserver_panics_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn large_requests_run_on_threads_of_their_own() {
    let fixture = fixture().await;
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("api-large")).count()
    };
    let map = |name: &str, bytes: usize| json!({"metadata": {"name": name}, "data": {"x": "x".repeat(bytes)}});
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(fixture.admin.post(path, &map("small", 1000)).await.0, 201);
    assert_eq!(threads(), 0, "what is small needs none");
    assert_eq!(fixture.admin.post(path, &map("large", 100_000)).await.0, 201);
    assert!(threads() > 0);
    let patch = json!({"data": {"y": "y"}});
    assert_eq!(fixture.admin.merge(&format!("{path}/large"), &patch).await.0, 200);
    let request = Request::builder().uri(format!("{path}/large?pretty=true"));
    let response = fixture.admin.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(response.status(), 200);
}

const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[tokio::test]
async fn api_006_a_storm_of_one_caller_starves_neither_nodes_nor_others() {
    let scene = Scene::new().await;
    scene.store.writes.add_permits(Semaphore::MAX_PERMITS >> 1);
    for user in ["storm", "jane"] {
        let rules = json!([{"verbs": ["create"], "apiGroups": [""], "resources": ["pods"]}]);
        scene.fixture.admin.allow(user, rules).await;
    }
    scene.store.writes.forget_permits(Semaphore::MAX_PERMITS);
    scene.store.begun.forget_permits(Semaphore::MAX_PERMITS);
    let client = |who| Client(scene.fixture.api.service(who));
    let storm = client(Identity::new("storm", ["dev"]));
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..2000 {
        let storm = storm.clone();
        let pod = crate::fixture::pod(&format!("storm-{number}"));
        calls.spawn(async move { storm.post(PODS, &pod).await.0 });
    }
    // Some are at work, some wait, and all others are turned away.
    for _ in 0..1000 {
        assert_eq!(calls.join_next().await.unwrap().unwrap(), 429);
    }
    let node = client(Identity::node("n"));
    let lease = json!({"metadata": {"name": "n"}, "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40}});
    let beat = tokio::spawn(async move { node.post(LEASES, &lease).await.0 });
    let jane = client(Identity::new("jane", ["dev"]));
    let hers = tokio::spawn(async move { jane.post(PODS, &crate::fixture::pod("hers")).await.0 });
    let metrics = async || scene.fixture.admin.get("/metrics").await.1.as_str().unwrap().to_owned();
    let beating = "dispatched_requests_total{flow_schema=\"system-node-high\",priority_level=\"node-high\"} 1\n";
    let waiting = "current_inqueue_requests{flow_schema=\"global-default\",priority_level=\"global-default\"} 301\n";
    for told in [beating, waiting] {
        while !metrics().await.contains(told) {
            tokio::task::yield_now().await;
        }
    }
    // More than these have come before her, but not for her turn.
    scene.store.writes.add_permits(500);
    assert_eq!(hers.await.unwrap(), 201);
    assert_eq!(beat.await.unwrap(), 201);
    let metrics = metrics().await;
    assert!(metrics.contains("reason=\"queue-full\""), "{metrics}");
}

/// A level of a single seat for which nobody waits, and who belongs to it.
async fn guests(fixture: &Fixture, rule: Value) {
    let level = json!({"metadata": {"name": "guests"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}});
    let schema = json!({"metadata": {"name": "guests"}, "spec": {"priorityLevelConfiguration": {"name": "guests"},
        "matchingPrecedence": 500, "rules": [rule]}});
    for (kind, doc) in [("prioritylevelconfigurations", level), ("flowschemas", schema)] {
        let (code, made) = fixture.admin.post(&format!("{FLOWS}/{kind}"), &doc).await;
        assert_eq!(code, 201, "{made}");
    }
}

#[tokio::test]
async fn api_006_a_watch_takes_its_turn_and_keeps_no_seat() {
    let fixture = fixture().await;
    fixture.admin.allow("jane", json!([{"verbs": ["watch"], "apiGroups": [""], "resources": ["pods"]}])).await;
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": "jane"}}], "resourceRules": [
        {"verbs": ["watch"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}]});
    guests(&fixture, rule).await;
    let (_, schema) = fixture.admin.get(&format!("{FLOWS}/flowschemas/guests")).await;
    let jane = Client(fixture.api.service(Identity::new("jane", ["dev"])));
    let mut open = Vec::new();
    for _ in 0..3 {
        let response = jane.get_as(&format!("{PODS}?watch=true"), "application/json").await;
        assert_eq!(response.status(), 200, "{} are open", open.len());
        let told = response.headers()["x-kubernetes-pf-flowschema-uid"].to_str().unwrap();
        assert_eq!(schema["metadata"]["uid"], told);
        open.push(response);
    }
    let (_, metrics) = fixture.admin.get("/metrics").await;
    let turns = "dispatched_requests_total{flow_schema=\"guests\",priority_level=\"guests\"} 3\n";
    assert!(metrics.as_str().unwrap().contains(turns), "{metrics}");
}

#[tokio::test]
async fn api_065_what_is_stored_says_whose_turn_it_is() {
    let fixture = fixture().await;
    let jane = Client(fixture.api.service(Identity::new("jane", ["dev"])));
    let uid = async |path: &str| {
        let (code, doc) = fixture.admin.get(&format!("{FLOWS}/{path}")).await;
        assert_eq!(code, 200, "{doc}");
        doc["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let told = async |client: &Client| {
        let response = client.get_as("/version", "application/json").await;
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        (header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid"))
    };
    let usual = "prioritylevelconfigurations/global-default";
    assert_eq!(told(&jane).await, (uid("flowschemas/global-default").await, uid(usual).await));
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": "jane"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/version"]}]});
    guests(&fixture, rule).await;
    let guests = (uid("flowschemas/guests").await, uid("prioritylevelconfigurations/guests").await);
    assert_eq!(told(&jane).await, guests);
    let exempt = (uid("flowschemas/exempt").await, uid("prioritylevelconfigurations/exempt").await);
    assert_eq!(told(&fixture.admin).await, exempt);
}

#[tokio::test]
async fn api_065_a_schema_says_whether_its_level_is_there() {
    let cluster = crate::tls::cluster().await;
    let admin = Client(cluster.api.service(Identity::admin()));
    let group = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let schema = json!({"metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "mine"}}});
    let (code, made) = admin.post(&format!("{group}/flowschemas"), &schema).await;
    assert_eq!(code, 201, "{made}");
    let mut changes = admin.watch(&format!("{group}/flowschemas?watch=true&resourceVersion=0")).await;
    let mut told = async |name: &str, status: &str| loop {
        let event = changes.next().await.unwrap();
        let conditions = event["object"]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_it = event["object"]["metadata"]["name"] == name;
        if let Some(condition) = conditions.into_iter().find(|one| is_it && one["status"] == status) {
            return condition;
        }
    };
    let dangling = told("mine", "True").await;
    assert_eq!((&dangling["type"], &dangling["reason"]), (&json!("Dangling"), &json!("NotFound")));
    let missing =
        "This FlowSchema references the PriorityLevelConfiguration object named \"mine\" but there is no such object";
    assert_eq!(dangling["message"], missing);
    let level = json!({"metadata": {"name": "mine"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}}});
    let (code, made) = admin.post(&format!("{group}/prioritylevelconfigurations"), &level).await;
    assert_eq!(code, 201, "{made}");
    let found = told("mine", "False").await;
    assert_eq!((&found["reason"], found["lastTransitionTime"].is_string()), (&json!("Found"), true));
    // Those of every cluster are found; what nobody changed is not written again.
    let (_, schemas) = admin.get(&format!("{group}/flowschemas")).await;
    for schema in schemas["items"].as_array().unwrap() {
        assert_eq!(schema["status"]["conditions"][0]["reason"], "Found", "{schema}");
        let owners = schema["metadata"]["managedFields"].as_array().unwrap();
        let consumer = "api-priority-and-fairness-config-consumer-v1";
        assert!(owners.iter().any(|one| one["manager"] == consumer && one["subresource"] == "status"), "{schema}");
    }
}
