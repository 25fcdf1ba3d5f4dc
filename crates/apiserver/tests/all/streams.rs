//! What goes on after a request was answered: it ends with whoever opened it, and
//! what breaks is counted.

use std::sync::Arc;
use std::time::Duration;

use crate::accounts::{bound_pod, bound_to, server, token};
use crate::fixture::{Client, Events, Fixture};
use crate::tls::{ADMIN, Cluster, cluster_at, cluster_over};
use ambient::Clock;
use apiserver::Identity;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use store::{Delivery, Entry, ListRequest, Listing, Op, ReadError, Revision, Store, Watch, WatchError, WriteError};
use tokio::io::AsyncReadExt as _;

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn watch_as(server: &Fixture, token: &str) -> Events {
    let request = Request::builder().uri(format!("{PODS}?watch=true&resourceVersion=0"));
    let request = request.header("authorization", format!("Bearer {token}")).body(Full::default()).unwrap();
    let response = Client(server.api.anonymous()).send(request).await;
    assert_eq!(response.status(), 200);
    Events::new(response)
}

/// The rest of it, without waiting for the time that passes meanwhile.
async fn rest(mut events: Events) -> Vec<Value> {
    tokio::time::pause();
    let (mut all, begun) = (Vec::new(), tokio::time::Instant::now());
    while let Some(event) = events.next().await {
        all.push(event);
    }
    // Watches end by themselves, but not so soon.
    assert!(begun.elapsed() < Duration::from_secs(600), "{:?}", begun.elapsed());
    tokio::time::resume();
    all
}

#[tokio::test]
async fn api_647_what_was_opened_ends_with_the_token() {
    let server = server().await;
    let readers = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}]);
    server.admin.allow("system:serviceaccount:default:default", readers).await;
    let web = bound_pod(&server, "web").await;
    let (free, bound) = (token(&server.admin, json!({})).await, token(&server.admin, bound_to(&web)).await);
    let (mut free, bound) = (watch_as(&server, &free).await, watch_as(&server, &bound).await);
    // With the pod it was made for.
    server.admin.delete(&format!("{PODS}/web"), &json!({"gracePeriodSeconds": 0})).await;
    let told = rest(bound).await;
    assert_eq!(told.last().unwrap()["type"], "DELETED", "it was told so before: {told:?}");
    while free.brief().await != "DELETED web" {}
    server.admin.pod("more").await;
    assert_eq!(free.brief().await, "ADDED more", "others go on");
    // With its time.
    server.clock.advance(Duration::from_secs(3600 + 61));
    assert!(rest(free).await.is_empty());
    // With its account.
    let late = token(&server.admin, json!({})).await;
    let late = watch_as(&server, &late).await;
    server.admin.delete(&format!("{ACCOUNT}/default"), &Value::Null).await;
    rest(late).await;
}

#[tokio::test]
async fn api_647_commands_end_with_the_token_they_were_begun_with() {
    let clock = Clock::manual();
    let cluster = cluster_at(clock.clone()).await;
    cluster.streaming_pod().await;
    let admin = Client(cluster.api.service(Identity::admin()));
    admin
        .allow(
            "system:serviceaccount:default:default",
            json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["*"]}]),
        )
        .await;
    let token = token(&admin, json!({"expirationSeconds": 600})).await;
    // Clocks may differ by a minute.
    clock.advance(Duration::from_secs(600 + 59));
    let exec = Request::post(format!("{PODS}/web/exec?container=main&command=id&stdout=true"))
        .header("authorization", format!("Bearer {token}"))
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io");
    let mut response = cluster.open_as(exec, None).await;
    assert_eq!(response.status(), 101);
    let mut exec = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    clock.advance(Duration::from_secs(2));
    let mut heard = Vec::new();
    // The other side need not say goodbye.
    let _ = exec.read_to_end(&mut heard).await;
    assert!(heard.starts_with(b"POST /exec/default/web/main"), "{heard:?}");
}

/// A store whose changes of config maps can not be waited for.
struct Breaking(store::Embedded);

struct Broken;

#[async_trait::async_trait]
impl Watch for Broken {
    async fn next(&mut self) -> Result<Delivery, WatchError> {
        panic!("the store is broken");
    }

    async fn poll(&mut self) -> Result<Delivery, WatchError> {
        panic!("the store is broken");
    }

    fn has_news(&self) -> bool {
        true
    }
}

#[async_trait::async_trait]
impl Store for Breaking {
    async fn revision(&self) -> Result<Revision, ReadError> {
        self.0.revision().await
    }

    fn shown(&self) -> Revision {
        self.0.shown()
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<Entry>>, ReadError> {
        self.0.get(key).await
    }

    async fn list(&self, request: ListRequest<'_>) -> Result<Listing, ReadError> {
        self.0.list(request).await
    }

    async fn write(&self, batch: Vec<Op>) -> Result<Revision, WriteError> {
        self.0.write(batch).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        if prefix.contains("configmaps") {
            return Ok(Box::new(Broken));
        }
        self.0.watch(prefix, after).await
    }

    async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        self.0.compact(through).await
    }
}

async fn counted(cluster: &Cluster) -> Vec<String> {
    let (_, text) = cluster.get("/metrics", Some(ADMIN)).await;
    text.lines().filter_map(|line| line.strip_prefix("podium_task_panics_total")).map(str::to_owned).collect()
}

/// Whether it was, from the beginning to the end.
async fn is_answered(cluster: &Cluster, request: http::request::Builder) -> bool {
    match cluster.try_open(request, Some(&cluster.authority.issue(ADMIN.0, ADMIN.1))).await {
        Ok(response) => response.into_body().collect().await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test]
async fn streams_and_connections_that_panic_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = store::Embedded::open(&dir.path().join("state.redb"), store::Options::default()).unwrap();
    let cluster = cluster_over(Arc::new(Breaking(store)), dir, Clock::system()).await;
    let watch = || Request::get("/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=1");
    assert_eq!(counted(&cluster).await, [r#"{task="connection"} 0"#, r#"{task="http2_stream"} 0"#]);
    // Half of an answer is not taken for all of it.
    assert!(!is_answered(&cluster, watch()).await);
    let response = watch()
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let mut response = cluster.open(response, ADMIN).await;
    assert_eq!(response.status(), 101);
    let mut heard = Vec::new();
    let _ = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap()).read_to_end(&mut heard).await;
    // What is made elsewhere, and whoever waited for it.
    let table = watch().header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    assert!(!is_answered(&cluster, table).await);
    let expected =
        [r#"{task="body"} 1"#, r#"{task="connection"} 2"#, r#"{task="http2_stream"} 0"#, r#"{task="stream"} 1"#];
    assert_eq!(counted(&cluster).await, expected);
}
