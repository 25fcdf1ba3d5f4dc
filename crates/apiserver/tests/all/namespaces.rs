//! What may happen in a namespace that goes away.

use std::sync::Arc;

use ambient::{Clock, Ids, Rng};
use apiserver::{ApiServer, Config, Identity};
use serde_json::{Value, json};
use store::{Entry, ListRequest, Listing, Memory, Op, ReadError, Revision, Store, Watch, WatchError, WriteError};
use tokio::sync::Notify;

use crate::fixture::{Client, fixture};

/// Creates until it is refused.
async fn create_on(client: Client, creator: usize) {
    for number in 0.. {
        let map = json!({"metadata": {"name": format!("map-{creator}-{number}")}});
        let (code, answer) = client.post("/api/v1/namespaces/team/configmaps", &map).await;
        if code != 201 {
            assert!(code == 403 || code == 404, "{answer}");
            return;
        }
    }
}

/// Says of a namespace that is empty what its controller says.
async fn finalize(admin: &Client, namespace: &str) -> (u16, Value) {
    let empty = json!({"kind": "Namespace", "metadata": {"name": namespace}, "spec": {}});
    admin.put(&format!("/api/v1/namespaces/{namespace}/finalize"), &empty).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_created_once_a_namespace_is_marked() {
    let server = fixture().await;
    let admin = &server.admin;
    for round in 0..25 {
        let (code, made) = admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
        assert_eq!(code, 201, "{made}");
        let creators: Vec<_> = (0..8).map(|creator| tokio::spawn(create_on(admin.clone(), creator))).collect();
        while admin.get("/api/v1/namespaces/team/configmaps").await.1["items"] == json!([]) {}
        // Changes that open it for everybody all the same.
        admin.merge("/api/v1/namespaces/team", &json!({"metadata": {"labels": {"round": round.to_string()}}})).await;
        let (code, answer) = admin.delete("/api/v1/namespaces/team", &Value::Null).await;
        assert_eq!(code, 200, "{answer}");
        admin.delete("/api/v1/namespaces/team/configmaps", &Value::Null).await;
        let (_, left) = admin.get("/api/v1/namespaces/team/configmaps").await;
        assert_eq!(left["items"], json!([]), "round {round}: emptied, and one came after");
        assert_eq!(finalize(admin, "team").await.0, 200);
        for creator in creators {
            creator.await.unwrap();
        }
        let (_, left) = admin.get("/api/v1/namespaces/team/configmaps").await;
        assert_eq!(left["items"], json!([]), "round {round}: left behind in a namespace that is gone");
    }
}

/// A store that holds the first write of one key back until it is let go.
struct Slow {
    inner: Memory,
    arrived: Notify,
    go: Notify,
}

const LATE: &str = "/registry/configmaps/team/late";

#[async_trait::async_trait]
impl Store for Slow {
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
        if &*batch[0].key == LATE {
            self.arrived.notify_one();
            self.go.notified().await;
            self.go.notify_one();
        }
        self.inner.write(batch).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        self.inner.watch(prefix, after).await
    }

    async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        self.inner.compact(through).await
    }
}

/// What becomes of a create that passed every check, when this happens before
/// it is written.
async fn late(meanwhile: impl AsyncFnOnce(&Client)) -> (u16, Value, Client) {
    let store = Arc::new(Slow { inner: Memory::new(64), arrived: Notify::new(), go: Notify::new() });
    let api = ApiServer::new(Arc::<Slow>::clone(&store), Config::default(), Clock::manual(), Ids::new(Rng::seeded(1)));
    api.bootstrap().await.unwrap();
    let admin = Client(api.service(Identity::admin()));
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    let creator = admin.clone();
    let create = tokio::spawn(async move {
        creator.post("/api/v1/namespaces/team/configmaps", &json!({"metadata": {"name": "late"}})).await
    });
    store.arrived.notified().await;
    meanwhile(&admin).await;
    store.go.notify_one();
    let (code, answer) = create.await.unwrap();
    (code, answer, admin)
}

#[tokio::test]
async fn api_704_a_create_under_way_does_not_slip_into_a_namespace_that_was_marked() {
    let (code, answer, admin) = late(async |admin| {
        admin.delete("/api/v1/namespaces/team", &Value::Null).await;
    })
    .await;
    assert_eq!(code, 403, "{answer}");
    assert_eq!(admin.get("/api/v1/configmaps?fieldSelector=metadata.namespace%3Dteam").await.1["items"], json!([]));
}

#[tokio::test]
async fn a_create_under_way_goes_on_when_its_namespace_merely_changed() {
    let (code, answer, _) = late(async |admin| {
        admin.merge("/api/v1/namespaces/team", &json!({"metadata": {"labels": {"a": "b"}}})).await;
    })
    .await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn api_193_a_namespace_let_go_before_its_end_is_emptied_all_the_same() {
    let admin = fixture().await.admin;
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    assert_eq!(finalize(&admin, "team").await.1["spec"], json!({}));
    let (_, marked) = admin.delete("/api/v1/namespaces/team", &Value::Null).await;
    assert_eq!(marked["spec"]["finalizers"], json!(["kubernetes"]), "its controller must see it");
    assert_eq!(finalize(&admin, "team").await.0, 200);
    assert_eq!(admin.get("/api/v1/namespaces/team").await.0, 404);
}
