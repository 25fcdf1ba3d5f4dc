//! What is stored can be read by everybody, and what cannot be read is refused
//! with an answer: an `edit` account must not be able to hide the pods of all
//! others, and no body makes a handler panic.

use std::sync::Arc;

use ambient::{Clock, Ids, Rng};
use apiserver::{ApiServer, Config, Identity, Kept};
use bytes::Bytes;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use objects::{Kind, kinds};
use serde_json::{Value, json};
use store::{Embedded, Op, Options, Plain, Store as _};

use crate::fixture::{Client, Fixture, fixture, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |value, _| json!({"f:a": value}))
}

fn entry(time: &str, fields: &Value) -> Value {
    json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
        "fieldsV1": fields}])
}

/// Every pod, read as the scheduler, the controllers and the node agent do.
async fn typed_pods(admin: &Client) -> List<Pod> {
    let (_, list) = admin.get(PODS).await;
    serde_json::from_str(&list.to_string()).unwrap_or_else(|error| panic!("{error}: {list}"))
}

async fn refused(fixture: &Fixture, answer: (u16, Value), why: &str) {
    let (code, answer) = answer;
    assert!((400..500).contains(&code), "{code} {answer}");
    assert!(answer["message"].as_str().unwrap().contains(why), "{answer}");
    typed_pods(&fixture.admin).await;
}

#[tokio::test]
async fn a_pod_that_nobody_can_read_is_refused_however_it_comes() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    admin.pod("good").await;
    let good = format!("{PODS}/good");
    let with = |owners: Value| {
        let mut bad = pod("bad");
        bad["metadata"]["managedFields"] = owners;
        bad
    };
    let times = ["-000001-06-01T00:00:00Z", "0000-01-01T00:00:00+01:00", "2026-01-01 00:00:00Z", "now"];
    for time in times {
        let owners = entry(time, &json!({"f:a": {}}));
        refused(&fixture, admin.post(PODS, &with(owners.clone())).await, "parsing time").await;
        refused(&fixture, admin.merge(&good, &json!({"metadata": {"managedFields": owners}})).await, "parsing time")
            .await;
        let change = json!([{"op": "add", "path": "/metadata/creationTimestamp", "value": time}]);
        refused(&fixture, admin.call("PATCH", &good, JSON, &change).await, "parsing time").await;
    }
    let now = "2026-01-01T00:00:00Z";
    for levels in [96, 118, 121] {
        let owners = entry(now, &nested(levels));
        refused(&fixture, admin.post(PODS, &with(owners.clone())).await, "max depth").await;
        refused(&fixture, admin.merge(&good, &json!({"metadata": {"managedFields": owners}})).await, "max depth").await;
    }
    // Steps that each look harmless.
    let step = |path: &str, levels| json!({"op": "add", "path": path, "value": nested(levels)});
    let below = format!("/metadata/managedFields/0/fieldsV1{}", "/f:a".repeat(79));
    let deep =
        json!([{"op": "add", "path": "/metadata/managedFields", "value": entry(now, &nested(80))}, step(&below, 80)]);
    refused(&fixture, admin.call("PATCH", &good, JSON, &deep).await, "").await;
    let (code, made) = admin.post(PODS, &with(entry("2026-01-01T00:00:00+05:00", &nested(90)))).await;
    assert_eq!((code, &made["metadata"]["managedFields"][0]["time"]), (201, &json!("2025-12-31T19:00:00Z")), "{made}");
    assert_eq!(typed_pods(admin).await.items.len(), 2);
}

#[tokio::test]
async fn what_is_applied_has_the_types_of_its_kind() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let path = |name: &str| format!("{PODS}/{name}?fieldManager=me");
    for (field, value, why) in [
        ("tolerations", json!([{"key": "a", "tolerationSeconds": 1.5}]), "expected a 64-bit integer"),
        ("priority", json!(1_i64 << 40), "expected a 32-bit integer"),
        ("overhead", json!({"cpu": "much"}), "quantities must match"),
        (
            "topologySpreadConstraints",
            json!([{"topologyKey": "a", "whenUnsatisfiable": "b", "maxSkew": 1e10}]),
            "32-bit",
        ),
    ] {
        let mut bad = pod("bad");
        bad["spec"][field] = value;
        refused(&fixture, admin.call("PATCH", &path("bad"), APPLY, &bad).await, why).await;
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "no base64!"}});
    let secrets = "/api/v1/namespaces/default/secrets/s?fieldManager=me";
    refused(&fixture, admin.call("PATCH", secrets, APPLY, &secret).await, "illegal base64 data").await;
    let mut dated = pod("dated");
    dated["metadata"]["creationTimestamp"] = json!("now");
    refused(&fixture, admin.call("PATCH", &path("dated"), APPLY, &dated).await, "parsing time").await;
}

#[tokio::test]
async fn a_binding_gives_a_pod_only_what_a_pod_can_have() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    admin.pod("a").await;
    let binding = |metadata: Value| json!({"metadata": metadata, "target": {"kind": "Node", "name": "n"}});
    for (metadata, why) in [
        (json!({"name": "a", "annotations": {"a": {"b": 1}}}), "metadata.annotations.a: invalid type"),
        (json!({"name": "a", "annotations": [1]}), "metadata.annotations: invalid type"),
        (json!({"name": "a", "labels": {"a": 1}}), "metadata.labels.a: invalid type"),
    ] {
        let answer = admin.post(&format!("{PODS}/a/binding"), &binding(metadata.clone())).await;
        refused(&fixture, answer, why).await;
        let answer = admin.post("/api/v1/namespaces/default/bindings", &binding(metadata)).await;
        refused(&fixture, answer, why).await;
    }
    let elsewhere = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n/../../secrets"}});
    refused(&fixture, admin.post(&format!("{PODS}/a/binding"), &elsewhere).await, "target.name").await;
    let good = binding(json!({"name": "a", "annotations": {"a": "b", "c": null}}));
    assert_eq!(admin.post(&format!("{PODS}/a/binding"), &good).await.0, 201);
    let bound = &typed_pods(admin).await.items[0];
    assert_eq!(bound.spec.as_ref().unwrap().node_name.as_deref(), Some("n"));
}

/// Bodies that are no object of any kind, and those whose metadata is wrong.
fn shapeless() -> Vec<Value> {
    vec![json!([]), json!("x"), json!(1), json!([1])]
}

fn misshapen() -> Vec<Value> {
    let metadata = |metadata: Value| json!({"metadata": metadata});
    vec![
        metadata(json!([])),
        metadata(json!("x")),
        metadata(json!({"name": "x", "labels": "x"})),
        metadata(json!({"name": "x", "annotations": [1]})),
        metadata(json!({"name": "x", "ownerReferences": [1]})),
        metadata(json!({"name": "x", "finalizers": "x"})),
        metadata(json!({"name": "x", "managedFields": "x"})),
        metadata(json!({"name": "x", "deletionTimestamp": 1})),
    ]
}

/// Wrong for most kinds, and a field too many for the others.
fn suspect() -> Vec<Value> {
    let wrong = [json!("x"), json!([1])];
    let parts = ["spec", "status", "data", "rules", "roleRef", "target", "deleteOptions", "template"];
    let named = |part: &str, value: &Value| json!({"metadata": {"name": "x"}, part: value});
    let all = parts.iter().flat_map(|part| wrong.iter().map(move |value| named(part, value)));
    all.chain([json!({"spec": "x"}), json!({"status": {"conditions": ["x"]}})]).collect()
}

fn collection(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let namespace = if kind.is_namespaced() { "/namespaces/default" } else { "" };
    format!("{root}/{}{namespace}/{}", kind.version, kind.plural)
}

/// Where upstream keeps such an object.
fn key(kind: &Kind, name: &str) -> String {
    let plural = match kind.plural {
        "nodes" => "minions",
        "services" => "services/specs",
        "endpoints" => "services/endpoints",
        plural => plural,
    };
    let namespace = if kind.is_namespaced() { "/default" } else { "" };
    format!("/registry/{plural}{namespace}/{name}")
}

/// A server over a store that holds these entries, whoever put them there.
async fn over(entries: Vec<(String, String)>) -> (Client, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(store::Embedded::open(&dir.path().join("state.redb"), store::Options::default()).unwrap());
    let api = ApiServer::new(store.clone(), Config::default(), Clock::manual(), Ids::new(Rng::seeded(1)));
    api.bootstrap().await.unwrap();
    for (key, value) in entries {
        store.write(vec![Op::create(key, Bytes::from(value))]).await.unwrap();
    }
    (Client(api.service(Identity::admin())), dir)
}

/// An object as nobody would write it: a name and nothing else.
fn bare(kind: &Kind) -> String {
    let stored = kind.ops.view().map_or(kind, |view| view.of);
    let namespace = if kind.is_namespaced() { r#""namespace":"default","# } else { "" };
    let (kind, version) = (stored.kind, stored.api_version());
    format!(
        r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{{"name":"x",{namespace}"uid":"u","resourceVersion":""}}}}"#
    )
}

/// Sends a body in every way that writes; all answers, each with how it was sent.
async fn send_all(admin: &Client, path: &str, name: &str, body: &Value) -> Vec<(String, u16, Value)> {
    let named = format!("{path}{name}");
    let replace = json!([{"op": "replace", "path": "", "value": body}]);
    let applied = format!("{named}?fieldManager=me&force=true");
    let mut answers = Vec::new();
    for (method, path, media, body) in [
        ("POST", path, "application/json", body),
        ("PUT", &named, "application/json", body),
        ("PATCH", &named, JSON, body),
        ("PATCH", &named, JSON, &replace),
        ("PATCH", &named, "application/merge-patch+json", body),
        ("PATCH", &named, STRATEGIC, body),
        ("PATCH", &applied, APPLY, body),
    ] {
        // A JSON patch may have no operation.
        if media == JSON && *body == json!([]) {
            continue;
        }
        let (code, answer) = admin.call(method, path, media, body).await;
        answers.push((format!("{method} {path} {media} {body}"), code, answer));
    }
    answers
}

/// Upstream answers a configuration that does not fit its kind with 500; and
/// this server has no key for tokens.
fn is_unfit(answer: &Value) -> bool {
    let told = ["failed to create typed patch object", "Internal error occurred: this server has no key"];
    answer["message"].as_str().is_some_and(|text| told.iter().any(|start| text.starts_with(start)))
}

async fn check_answers(admin: &Client, kind: &Kind, path: &str, name: &str) {
    let typed = |mut body: Value| {
        body["apiVersion"] = json!(kind.api_version());
        body["kind"] = json!(kind.kind);
        body
    };
    let wrong = shapeless().into_iter().chain(misshapen().into_iter().map(typed));
    for body in wrong {
        for (how, code, answer) in send_all(admin, path, name, &body).await {
            assert!((400..500).contains(&code) || is_unfit(&answer), "{how}: {code} {answer}");
        }
    }
    for body in suspect().into_iter().map(typed) {
        for (how, code, answer) in send_all(admin, path, name, &body).await {
            assert!(code < 500 || is_unfit(&answer), "{how}: {code} {answer}");
        }
    }
}

#[tokio::test]
async fn a_body_of_the_wrong_shape_is_refused_by_every_kind() {
    let stored = kinds::ALL.iter().filter(|kind| kind.ops.is_stored() && kind.ops.view().is_none());
    let (admin, _dir) = over(stored.map(|kind| (key(kind, "x"), bare(kind))).collect()).await;
    for kind in kinds::ALL {
        check_answers(&admin, kind, &collection(kind), "/x").await;
    }
    check_answers(&admin, &kinds::asked::BINDING, "/api/v1/namespaces/default/bindings", "").await;
    let (code, _) = admin.get("/api/v1/namespaces/default/pods/x").await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn a_body_of_the_wrong_shape_is_refused_by_every_subresource() {
    let stored = kinds::ALL.iter().filter(|kind| kind.ops.is_stored() && kind.ops.view().is_none());
    let (admin, _dir) = over(stored.map(|kind| (key(kind, "x"), bare(kind))).collect()).await;
    let account = "/api/v1/namespaces/default/serviceaccounts/x/token";
    for body in [json!([]), json!({"spec": "x"}), json!({"spec": []}), json!({"spec": {"audiences": {"a": 1}}})] {
        let (code, answer) = admin.post(account, &body).await;
        assert_eq!(code, 400, "{body} {answer}");
    }
    for kind in kinds::ALL {
        for subresource in kind.subresources.iter().map(|subresource| subresource.name()) {
            if !matches!(subresource, "attach" | "exec" | "log" | "portforward" | "proxy") {
                check_answers(&admin, kind, &format!("{}/x/{subresource}", collection(kind)), "").await;
            }
        }
        if kind.ops.is_stored() {
            let path = format!("{}/x", collection(kind));
            for options in [json!([]), json!("x"), json!({"preconditions": "x"}), json!({"gracePeriodSeconds": "1"})] {
                let (code, answer) = admin.delete(&path, &options).await;
                assert!((400..500).contains(&code), "{path} {options}: {code} {answer}");
            }
        }
    }
}

#[tokio::test]
async fn what_others_put_into_the_store_is_an_error_for_itself_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.redb");
    let pods = kinds::find("", "v1", "pods").unwrap();
    let foreign =
        ["k8s\u{0}", "[]", r#"{"metadata":{"name":"bad"}}"#, r#"{"kind":"Pod","metadata":{"resourceVersion":"""#];
    let store = Embedded::open(&path, Options::default()).unwrap();
    store.write(vec![Op::create(key(pods, "x"), bare(pods))]).await.unwrap();
    for (index, value) in foreign.iter().enumerate() {
        store.write(vec![Op::create(key(pods, &format!("bad{index}")), *value)]).await.unwrap();
    }
    drop(store);
    let options = Options { seal: Arc::new(Kept(Arc::new(Plain))), ..Options::default() };
    let store = Embedded::open(&path, options).unwrap();
    let api = ApiServer::new(Arc::new(store), Config::default(), Clock::manual(), Ids::new(Rng::seeded(1)));
    api.bootstrap().await.unwrap();
    let admin = Client(api.service(Identity::admin()));
    let (code, list) = admin.get(PODS).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1), "{list}");
    admin.allow("jane", json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}])).await;
    let jane = Client(api.service(Identity::new("jane", ["dev"])));
    for index in 0..foreign.len() {
        let bad = format!("{PODS}/bad{index}");
        let anyway = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
        for (code, answer) in [
            admin.get(&bad).await,
            admin.put(&bad, &pod(&format!("bad{index}"))).await,
            admin.merge(&bad, &json!({})).await,
            admin.bind(&format!("bad{index}"), "n").await,
            admin.delete(&bad, &Value::Null).await,
        ] {
            let expected =
                format!("Internal error occurred: unable to transform key \"/registry/pods/default/bad{index}\": ");
            assert!(code == 500 && answer["message"].as_str().unwrap().starts_with(&expected), "{code} {answer}");
        }
        assert_eq!(jane.delete(&bad, &anyway).await.0, 403);
        assert_eq!(admin.delete(&bad, &anyway).await.0, 200);
        assert_eq!(admin.get(&bad).await.0, 404);
    }
    let (code, _) = admin.delete(&format!("{PODS}/x"), &Value::Null).await;
    assert_eq!(code, 200);
}

/// Whatever stands behind this name, changed as only somebody else could.
async fn rewrite(store: &store::Embedded, name: &str, change: impl Fn(&mut Value)) {
    let all = store.list(store::ListRequest::all("/")).await.unwrap();
    let entry = all.entries.iter().find(|entry| entry.key.ends_with(&format!("/{name}"))).unwrap();
    let mut doc: Value = serde_json::from_slice(&entry.value).unwrap();
    change(&mut doc);
    let op = store::Op::update(entry.key.to_string(), doc.to_string(), entry.modified);
    store.write(vec![op]).await.unwrap();
}

#[tokio::test]
async fn what_others_wrote_wrongly_makes_no_request_panic() {
    let dir = tempfile::tempdir().unwrap();
    let store = store::Embedded::open(&dir.path().join("state.redb"), store::Options::default()).unwrap();
    let store = std::sync::Arc::new(store);
    let fixture = crate::fixture::unstarted_over(store.clone(), dir, apiserver::Config::default());
    fixture.api.bootstrap().await.unwrap();
    let admin = &fixture.admin;
    admin.pod("web").await;
    admin.pod("guarded").await;
    admin.bind("guarded", "n").await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "few"},
        "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "guarded"}}}});
    assert_eq!(admin.post(budgets, &budget).await.0, 201);
    rewrite(&store, "web", |pod| pod["spec"] = json!("x")).await;
    rewrite(&store, "few", |budget| {
        budget["status"] = json!({"disruptionsAllowed": 1, "observedGeneration": 1, "disruptedPods": "x"})
    })
    .await;
    rewrite(&store, "view", |role| role["metadata"]["labels"] = json!("x")).await;
    admin.bind("web", "n").await;
    let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "guarded"}});
    admin.post("/api/v1/namespaces/default/pods/guarded/eviction", &eviction).await;
    fixture.api.bootstrap().await.unwrap();
    let (_, role) = admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view").await;
    assert_eq!(role["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults", "{role:.400}");
    let (_, metrics) = admin.get("/metrics").await;
    assert!(metrics.as_str().unwrap().contains("\npodium_apiserver_panics_total 0\n"), "{metrics}");
}
