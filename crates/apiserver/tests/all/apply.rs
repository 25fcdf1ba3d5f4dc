//! Server-side apply and the owners of fields, over the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fixture::{Client, fixture, fixture_on, json_of, pod};
use ambient::{Clock, Ids, Rng};
use apiserver::{ApiServer, Config, Identity};
use serde_json::{Value, json};
use store::{Entry, ListRequest, Listing, Memory, Op, ReadError, Revision, Store, Watch, WatchError, WriteError};
use tokio::sync::Barrier;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn apply(client: &Client, path: &str, body: &Value) -> (u16, Value) {
    client.call("PATCH", path, "application/apply-patch+yaml", body).await
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}

fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entry| [text(entry, "manager"), text(entry, "operation"), text(entry, "subresource")].join(" "))
        .collect()
}

#[tokio::test]
async fn api_186_api_339_every_write_has_an_owner() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let request = http::Request::post("/api/v1/namespaces/default/pods")
        .header("user-agent", "kubectl-run/v1.33 (linux/amd64)")
        .body(http_body_util::Full::from(pod("p").to_string()))
        .unwrap();
    let made = json_of(admin.send(request).await).await;
    assert_eq!(managers(&made), ["kubectl-run Update "]);
    let path = "/api/v1/namespaces/default/pods/p";
    // API-451: what admission added belongs to nobody.
    let fields = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert_eq!((fields.get("f:serviceAccountName"), fields.get("f:tolerations")), (None, None));
    let (code, labelled) =
        admin.merge(&format!("{path}?fieldManager=me"), &json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(code, 200);
    assert_eq!(managers(&labelled), ["kubectl-run Update ", "me Update "]);
    let status = json!({"status": {"message": "m"}});
    let (_, told) = admin.merge(&format!("{path}/status?fieldManager=node"), &status).await;
    assert_eq!(managers(&told), ["kubectl-run Update ", "me Update ", "node Update status"]);
    let (_, read) = admin.get(path).await;
    assert_eq!(read, told);
    let class = admin.get("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical").await.1;
    assert_eq!(managers(&class), ["kube-apiserver Update "]);
}

#[tokio::test]
async fn api_456_an_applier_says_who_it_is_and_what_it_applies() {
    let fixture = fixture().await;
    let path = format!("{MAPS}/m");
    let (code, status) = apply(&fixture.admin, &path, &map(json!({}))).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let by = format!("{path}?fieldManager=me");
    let (code, status) = apply(&fixture.admin, &by, &json!({"kind": "ConfigMap", "apiVersion": "apps/v1"})).await;
    assert_eq!((code, &status["message"]), (400, &json!("invalid object type: apps/v1, Kind=ConfigMap")));
    let (code, status) =
        apply(&fixture.admin, &by, &json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "other"}}))
            .await;
    assert_eq!(code, 400);
    assert_eq!(status["message"], "the name of the object (other) does not match the name on the URL (m)");
    let (code, status) = fixture.admin.merge(&format!("{by}&force=true"), &json!({})).await;
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().contains("may not be specified for non-apply patch"));
    let mut config = map(json!({}));
    config["dato"] = json!({});
    let (code, status) = apply(&fixture.admin, &by, &config).await;
    assert_eq!(code, 500);
    assert_eq!(
        status["message"],
        "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .dato: field not declared in schema"
    );
    assert_eq!(status.get("reason"), None);
}

#[tokio::test]
async fn api_459_applying_makes_what_is_not_there() {
    let fixture = fixture().await;
    let path = format!("{MAPS}/m?fieldManager=me");
    let mut config = map(json!({"a": "1"}));
    config["metadata"]["uid"] = json!("u");
    let (code, status) = apply(&fixture.admin, &path, &config).await;
    assert_eq!(code, 409);
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("uid mismatch: the provided object specified uid u, and no existing object was found")
    );
    let (code, dry) = apply(&fixture.admin, &format!("{path}&dryRun=All"), &map(json!({"a": "1"}))).await;
    assert_eq!((code, managers(&dry)), (201, vec!["me Apply ".to_owned()]));
    assert_eq!(fixture.admin.get(&format!("{MAPS}/m")).await.0, 404);
    let (code, made) = apply(&fixture.admin, &path, &map(json!({"a": "1"}))).await;
    assert_eq!(code, 201);
    assert_eq!(managers(&made), ["me Apply "]);
    // API-461: again is nothing, whatever the time.
    fixture.clock.advance(std::time::Duration::from_secs(60));
    let (code, again) = apply(&fixture.admin, &path, &map(json!({"a": "1"}))).await;
    assert_eq!((code, again), (200, made));
    // A status can not be applied to nothing.
    let (code, _) = apply(&fixture.admin, "/api/v1/namespaces/default/pods/p/status?fieldManager=me", &pod("p")).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn api_457_api_460_conflicts_are_told_and_can_be_forced() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let (code, _) = admin.post(&format!("{MAPS}?fieldManager=kubectl-create"), &map(json!({"a": "1", "b": "1"}))).await;
    assert_eq!(code, 201);
    let path = format!("{MAPS}/m?fieldManager=me");
    let (code, status) = apply(admin, &path, &map(json!({"a": "2"}))).await;
    assert_eq!(code, 409);
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Apply failed with 1 conflict: conflict with \"kubectl-create\" using v1: .data.a",
            "reason": "Conflict",
            "details": {"causes": [{
                "reason": "FieldManagerConflict", "message": "conflict with \"kubectl-create\" using v1",
                "field": ".data.a"
            }]},
            "code": 409
        })
    );
    let (code, forced) = apply(admin, &format!("{path}&force=true"), &map(json!({"a": "2"}))).await;
    assert_eq!((code, &forced["data"]), (200, &json!({"a": "2", "b": "1"})));
    assert_eq!(managers(&forced), ["me Apply ", "kubectl-create Update "]);
    let (code, less) = apply(admin, &path, &map(json!({}))).await;
    assert_eq!((code, &less["data"]), (200, &json!({"b": "1"})));
}

#[tokio::test]
async fn api_389_api_457_a_status_is_applied_through_its_endpoint() {
    let fixture = fixture().await;
    fixture.admin.pod("p").await;
    let mut config = pod("p");
    config["spec"]["containers"][0]["image"] = json!("other");
    config["status"] = json!({"conditions": [{"type": "x.io/y", "status": "True"}]});
    let path = "/api/v1/namespaces/default/pods/p/status?fieldManager=me&force=true";
    let (code, told) = apply(&fixture.admin, path, &config).await;
    assert_eq!(code, 200, "{told}");
    assert_eq!(told["spec"]["containers"][0]["image"], "busybox");
    let mine = told["metadata"]["managedFields"].as_array().unwrap().iter().find(|entry| entry["manager"] == "me");
    let mine = mine.unwrap();
    assert_eq!(mine["subresource"], "status");
    assert_eq!(mine["fieldsV1"].get("f:spec"), None);
    let key = "k:{\"type\":\"x.io/y\"}";
    let conditions = json!({key: {".": {}, "f:status": {}, "f:type": {}}});
    assert_eq!(mine["fieldsV1"]["f:status"], json!({"f:conditions": conditions}));
}

#[tokio::test]
async fn api_454_ownership_can_be_forgotten() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let (_, made) = apply(admin, &format!("{MAPS}/m?fieldManager=me"), &map(json!({"a": "1"}))).await;
    for reset in [json!([]), json!([{}])] {
        let mut doc = made.clone();
        doc["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        doc["metadata"]["managedFields"] = reset;
        let (code, bare) = admin.put(&format!("{MAPS}/m"), &doc).await;
        assert_eq!((code, managers(&bare)), (200, Vec::new()));
        let (_, kept) = admin.put(&format!("{MAPS}/m"), &made).await;
        assert_eq!(kept["code"], 409, "the version is old by now");
        doc["metadata"]["managedFields"] = made["metadata"]["managedFields"].clone();
        let (code, back) = admin.put(&format!("{MAPS}/m"), &doc).await;
        assert_eq!((code, managers(&back)), (200, vec!["me Apply ".to_owned()]));
    }
}

#[tokio::test]
async fn api_176_api_461_a_write_without_effect_leaves_version_and_times() {
    let fixture = fixture().await;
    let path = format!("{MAPS}/m");
    let (_, made) = fixture.admin.post(MAPS, &map(json!({"a": "1"}))).await;
    fixture.clock.advance(std::time::Duration::from_secs(60));
    let (code, same) = fixture.admin.merge(&path, &json!({"data": {"a": "1"}})).await;
    assert_eq!((code, same), (200, made.clone()));
    let (_, changed) = fixture.admin.merge(&path, &json!({"data": {"a": "2"}})).await;
    assert_ne!(changed["metadata"]["managedFields"][0]["time"], made["metadata"]["managedFields"][0]["time"]);
}

#[tokio::test]
async fn api_456_configurations_may_be_yaml() {
    let fixture = fixture().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: |\n    text\n";
    let request = http::Request::patch(format!("{MAPS}/m?fieldManager=me"))
        .header("content-type", "application/apply-patch+yaml")
        .body(http_body_util::Full::from(yaml))
        .unwrap();
    let response = fixture.admin.send(request).await;
    assert_eq!(response.status(), 201);
    assert_eq!(json_of(response).await["data"]["a"], "text\n");
    let request = http::Request::patch(format!("{MAPS}/m?fieldManager=me"))
        .header("content-type", "application/apply-patch+yaml")
        .body(http_body_util::Full::from("a: [1"))
        .unwrap();
    let response = fixture.admin.send(request).await;
    assert_eq!(response.status(), 400);
    let message = json_of(response).await["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("error decoding YAML: "), "{message}");
}

#[tokio::test]
async fn api_341_keys_that_a_configuration_has_twice_are_told() {
    let fixture = fixture().await;
    let send = async |query: &str, body: &'static str| {
        let request = http::Request::patch(format!("{MAPS}/m?fieldManager=me{query}"))
            .header("content-type", "application/apply-patch+yaml")
            .body(http_body_util::Full::from(body))
            .unwrap();
        let response = fixture.admin.send(request).await;
        let warnings = response.headers().get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned());
        (response.status().as_u16(), warnings.collect::<Vec<_>>(), json_of(response).await)
    };
    let yaml = "apiVersion: v1\nkind: ConfigMap\ndata:\n  a: one\n  a: two\n";
    let (code, warnings, made) = send("", yaml).await;
    assert_eq!((code, &made["data"]), (201, &json!({"a": "two"})));
    assert_eq!(warnings, [r#"299 - "line 5: key \"a\" already set in map""#]);
    let json = r#"{"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "a": "2"}}"#;
    assert_eq!(send("", json).await.1, [r#"299 - "line 1: key \"a\" already set in map""#]);
    assert_eq!(send("&fieldValidation=Ignore", yaml).await.1.len(), 0);
    let (code, _, refused) = send("&fieldValidation=Strict", yaml).await;
    let expected = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 5: key \"a\" already set in map";
    assert_eq!((code, &refused["message"]), (400, &json!(expected)));
}

#[tokio::test]
async fn api_455_owners_are_always_sent() {
    let fixture = fixture().await;
    let (_, made) = fixture.admin.post(MAPS, &map(json!({"a": "1"}))).await;
    assert_eq!(managers(&made).len(), 1);
    let (_, read) = fixture.admin.get(&format!("{MAPS}/m")).await;
    assert_eq!(read["metadata"]["managedFields"], made["metadata"]["managedFields"]);
    let (_, list) = fixture.admin.get(MAPS).await;
    let item = list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "m").unwrap();
    assert_eq!(item["metadata"]["managedFields"], made["metadata"]["managedFields"]);
    let mut events = fixture.admin.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Dm")).await;
    let event = events.next().await.unwrap();
    assert_eq!(event["object"]["metadata"]["managedFields"], made["metadata"]["managedFields"]);
}

#[tokio::test]
async fn api_464_what_is_too_large_with_its_owners_is_stored_without() {
    let options = store::Options { value_bytes_max: 200_000, ..store::Options::default() };
    let fixture = fixture_on(Config::default(), options).await;
    let admin = &fixture.admin;
    // Who owns so many keys is said at greater length than what they are.
    let data: serde_json::Map<String, Value> =
        (0..2000).map(|number| (format!("a-key-that-is-long-enough-{number:08}"), json!(""))).collect();
    admin.post(MAPS, &map(json!({"a": "1"}))).await;
    let (code, stored) = admin.merge(&format!("{MAPS}/m?fieldManager=one"), &json!({"data": data})).await;
    assert_eq!(code, 200, "{}", stored["message"]);
    assert!(!managers(&stored).is_empty(), "it still fits");
    let text = "x".repeat(60_000);
    let (code, stored) = admin.merge(&format!("{MAPS}/m?fieldManager=two"), &json!({"data": {"large": text}})).await;
    assert_eq!(code, 200, "{}", stored["message"]);
    assert_eq!(stored["metadata"].get("managedFields"), None);
    assert_eq!(stored["data"].as_object().unwrap().len(), 2002);
    // What is too large by itself is refused, and changes nothing.
    let (code, _) = admin.merge(&format!("{MAPS}/m"), &json!({"data": {"larger": "x".repeat(200_000)}})).await;
    assert!(code >= 400, "{code}");
    assert_eq!(admin.get(&format!("{MAPS}/m")).await.1, stored);
}

/// A store whose first writes of one key arrive together: all who made them
/// found nothing there.
struct Together {
    inner: Memory,
    key: &'static str,
    arrived: AtomicUsize,
    barrier: Barrier,
}

const WRITERS: usize = 4;

#[async_trait::async_trait]
impl Store for Together {
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
        if &*batch[0].key == self.key && self.arrived.fetch_add(1, Ordering::SeqCst) < WRITERS {
            self.barrier.wait().await;
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

async fn together(key: &'static str) -> Client {
    let store = Together { inner: Memory::new(64), key, arrived: AtomicUsize::new(0), barrier: Barrier::new(WRITERS) };
    let api = ApiServer::new(Arc::new(store), Config::default(), Clock::manual(), Ids::new(Rng::seeded(1)));
    api.bootstrap().await.unwrap();
    Client(api.service(Identity::admin()))
}

#[tokio::test]
async fn api_459_of_many_who_apply_something_new_one_makes_it_and_the_others_change_it() {
    let admin = together("/registry/configmaps/default/m").await;
    let writers = (0..WRITERS).map(|writer| {
        let admin = admin.clone();
        let path = format!("{MAPS}/m?fieldManager=writer-{writer}");
        tokio::spawn(async move { apply(&admin, &path, &map(json!({format!("key-{writer}"): "x"}))).await })
    });
    let mut codes = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        let (code, answer) = writer.await.unwrap();
        assert!(code < 300, "{answer}");
        codes.push(code);
    }
    codes.sort_unstable();
    assert_eq!(codes, [200, 200, 200, 201]);
    let (_, made) = admin.get(&format!("{MAPS}/m")).await;
    assert_eq!(made["data"].as_object().unwrap().len(), WRITERS, "{made}");
    assert_eq!(managers(&made).len(), WRITERS);
}

#[tokio::test]
async fn api_459_who_lost_the_race_meets_conflicts_like_everybody() {
    let admin = together("/registry/configmaps/default/m").await;
    let writers = (0..WRITERS).map(|writer| {
        let admin = admin.clone();
        let path = format!("{MAPS}/m?fieldManager=writer-{writer}");
        tokio::spawn(async move { apply(&admin, &path, &map(json!({"key": writer.to_string()}))).await })
    });
    let (mut made, mut refused) = (0, 0);
    for writer in writers.collect::<Vec<_>>() {
        match writer.await.unwrap() {
            (201, _) => made += 1,
            (409, status) => {
                let message = status["message"].as_str().unwrap();
                assert!(message.starts_with("Apply failed with 1 conflict: conflict with \"writer-"), "{status}");
                refused += 1;
            }
            (code, answer) => panic!("{code}: {answer}"),
        }
    }
    assert_eq!((made, refused), (1, WRITERS - 1));
}

#[tokio::test]
async fn api_188_who_puts_something_new_and_comes_second_changes_it() {
    let admin = together("/registry/services/endpoints/default/e").await;
    let path = "/api/v1/namespaces/default/endpoints/e";
    let writers = (0..WRITERS).map(|writer| {
        let admin = admin.clone();
        let labels = json!({"writer": writer.to_string()});
        let doc = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e", "labels": labels}});
        tokio::spawn(async move { admin.put(path, &doc).await.0 })
    });
    let mut codes = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        codes.push(writer.await.unwrap());
    }
    codes.sort_unstable();
    assert_eq!(codes, [200, 200, 200, 201]);
}
