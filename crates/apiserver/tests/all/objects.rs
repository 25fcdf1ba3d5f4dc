//! Objects through the API: every verb, its answers and its refusals.

use crate::fixture::{fixture, json_of, pod};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test]
async fn api_344_create_answers_201_with_a_complete_object() {
    let fixture = fixture().await;
    let pod = fixture.admin.pod("web").await;
    assert_eq!(pod["metadata"]["namespace"], "default");
    assert_eq!(pod["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(pod["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(pod["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["spec"]["serviceAccountName"], "default");
    assert_eq!(pod["spec"]["priority"], 0);
    assert_eq!(pod["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(tolerations.len(), 2, "API-709: {tolerations:?}");
    assert_eq!(tolerations[0]["tolerationSeconds"], 300);
    assert_eq!(fixture.admin.get(&format!("{PODS}/web")).await, (200, pod));
}

#[tokio::test]
async fn api_344_api_346_api_348_put_replaces_what_is_the_clients() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let bare = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"a": "1", "b": "2"}});
    let (code, made) = admin.post(MAPS, &bare).await;
    assert_eq!((code, &made["kind"], &made["apiVersion"]), (201, &json!("ConfigMap"), &json!("v1")));
    let path = format!("{MAPS}/a");
    let (_, put) = admin.put(&path, &json!({"metadata": {"name": "a"}, "data": {"c": "3"}})).await;
    assert_eq!((&put["data"], put["metadata"].get("labels")), (&json!({"c": "3"}), None), "what is absent is gone");
    for field in ["uid", "creationTimestamp"] {
        assert_eq!(put["metadata"][field], made["metadata"][field]);
    }
    let (_, again) = admin.put(&path, &put).await;
    assert_eq!(again, put, "nothing changed, so there is no new version");
    let (_, mut space) = admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    space["status"] = json!({"phase": "Terminating"});
    space["spec"] = json!({});
    let (code, kept) = admin.put("/api/v1/namespaces/team", &space).await;
    assert_eq!((code, &kept["status"]["phase"]), (200, &json!("Active")), "API-353");
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]), "API-353");
    let told =
        json!({"spec": {"finalizers": ["example.com/x"]}, "status": {"conditions": [{"type": "T", "status": "True"}]}});
    let (code, kept) = admin.merge("/api/v1/namespaces/team/status", &told).await;
    assert_eq!((code, &kept["spec"]["finalizers"]), (200, &json!(["kubernetes"])), "API-353");
    assert_eq!(kept["status"]["conditions"][0]["type"], "T");
}

#[tokio::test]
async fn api_129_an_existing_name_is_refused() {
    let fixture = fixture().await;
    fixture.admin.pod("web").await;
    let (code, status) = fixture.admin.post(PODS, &pod("web")).await;
    assert_eq!(code, 409);
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "pods \"web\" already exists", "reason": "AlreadyExists",
            "details": {"name": "web", "kind": "pods"}, "code": 409,
        })
    );
}

#[tokio::test]
async fn api_153_generated_names_have_five_more_characters() {
    let fixture = fixture().await;
    let mut doc = pod("");
    doc["metadata"] = json!({"generateName": "web-"});
    let (code, created) = fixture.admin.post(PODS, &doc).await;
    assert_eq!(code, 201, "{created}");
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!((name.len(), &name[..4]), (9, "web-"));
}

#[tokio::test]
async fn api_704_a_missing_namespace_is_named() {
    let fixture = fixture().await;
    let (code, status) = fixture.admin.post("/api/v1/namespaces/nope/pods", &pod("web")).await;
    assert_eq!((code, status["message"].as_str().unwrap()), (404, "namespaces \"nope\" not found"));
    assert_eq!(status["details"], json!({"name": "nope", "kind": "namespaces"}));
}

#[tokio::test]
async fn api_007_unknown_things_are_told_apart() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let (code, status) = admin.get(&format!("{PODS}/nope")).await;
    assert_eq!((code, status["message"].as_str().unwrap()), (404, "pods \"nope\" not found"));
    let (code, status) = admin.get("/api/v1/namespaces/default/widgets").await;
    assert_eq!((code, status["message"].as_str().unwrap()), (404, "the server could not find the requested resource"));
    let (code, body) = admin.get("/nope").await;
    assert_eq!((code, body.as_str().unwrap().trim()), (404, "404 page not found"));
    let (code, status) = admin.post("/api/v1/pods", &pod("web")).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (405, "MethodNotAllowed"));
}

#[tokio::test]
async fn api_341_unknown_fields_warn_or_are_refused() {
    let fixture = fixture().await;
    let mut doc = config_map("a");
    doc["spec"] = json!({"foo": 1});
    let (code, status) = fixture.admin.post(&format!("{MAPS}?fieldValidation=Strict"), &doc).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"spec\""
    );
    let request = http::Request::post(MAPS).body(http_body_util::Full::new(doc.to_string().into())).unwrap();
    let response = fixture.admin.send(request).await;
    assert_eq!(response.status(), 201);
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    assert_eq!(warnings, ["299 - \"unknown field \\\"spec\\\"\""]);
    assert_eq!(json_of(response).await.get("spec"), None);
}

#[tokio::test]
async fn api_123_wrong_types_and_mismatches_are_bad_requests() {
    let fixture = fixture().await;
    let mut doc = config_map("a");
    doc["data"] = json!("text");
    assert_eq!(fixture.admin.post(MAPS, &doc).await.0, 400);
    let mut doc = config_map("a");
    doc["metadata"]["namespace"] = json!("other");
    let (code, status) = fixture.admin.post(MAPS, &doc).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    fixture.admin.post(MAPS, &config_map("a")).await;
    let (code, status) = fixture.admin.put(&format!("{MAPS}/a"), &config_map("b")).await;
    assert_eq!(code, 400);
    assert_eq!(status["message"], "the name of the object (b) does not match the name on the URL (a)");
}

#[tokio::test]
async fn api_005_large_bodies_are_refused() {
    let fixture = fixture().await;
    let mut doc = config_map("a");
    doc["data"]["a"] = json!("x".repeat(3 << 20));
    let (code, status) = fixture.admin.post(MAPS, &doc).await;
    assert_eq!((code, status["message"].as_str().unwrap()), (413, "Request entity too large: limit is 3145728"));
}

#[tokio::test]
async fn api_347_stale_updates_conflict_and_unconditional_ones_win() {
    let fixture = fixture().await;
    let (_, first) = fixture.admin.post(MAPS, &config_map("a")).await;
    let mut second = first.clone();
    second["data"]["a"] = json!("2");
    let (code, stored) = fixture.admin.put(&format!("{MAPS}/a"), &second).await;
    assert_eq!((code, &stored["data"]["a"]), (200, &json!("2")));
    let (code, status) = fixture.admin.put(&format!("{MAPS}/a"), &second).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let (code, _) = fixture.admin.put(&format!("{MAPS}/a"), &config_map("a")).await;
    assert_eq!(code, 200);
    let (code, status) = fixture.admin.put(&format!("{MAPS}/missing"), &config_map("missing")).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (404, "NotFound"));
}

#[tokio::test]
async fn api_176_an_update_without_effect_makes_no_version() {
    let fixture = fixture().await;
    let pod = fixture.admin.pod("web").await;
    let (_, same) = fixture.admin.put(&format!("{PODS}/web"), &pod).await;
    assert_eq!(same, pod);
    let (_, same) = fixture.admin.merge(&format!("{PODS}/web"), &json!({"metadata": {"labels": {"app": "web"}}})).await;
    assert_eq!(same, pod);
}

#[tokio::test]
async fn api_387_patches_by_media_type() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    admin.pod("web").await;
    let path = format!("{PODS}/web");
    let (code, doc) = admin.merge(&path, &json!({"metadata": {"labels": {"tier": "front"}}})).await;
    assert_eq!((code, &doc["metadata"]["labels"]), (200, &json!({"app": "web", "tier": "front"})));
    let patch = json!([{"op": "remove", "path": "/metadata/labels/tier"}]);
    let (code, doc) = admin.call("PATCH", &path, "application/json-patch+json", &patch).await;
    assert_eq!((code, &doc["metadata"]["labels"]), (200, &json!({"app": "web"})));
    let (code, status) = admin.call("PATCH", &path, "application/json-patch+json", &patch).await;
    assert_eq!(code, 422);
    assert_eq!(status["message"], "the server rejected our request due to an error in our request");
    let (code, status) = admin.call("PATCH", &path, "application/x-patch", &json!({})).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (415, "UnsupportedMediaType"));
    let (code, status) = admin.merge(&path, &json!({"metadata": {"resourceVersion": "1"}})).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (409, "Conflict"));
    let (code, _) = admin.merge(&format!("{PODS}/missing"), &json!({})).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn api_338_dry_run_answers_as_if_and_stores_nothing() {
    let fixture = fixture().await;
    let (code, doc) = fixture.admin.post(&format!("{MAPS}?dryRun=All"), &config_map("a")).await;
    assert_eq!(code, 201);
    assert!(doc["metadata"]["uid"].is_string());
    assert_eq!(fixture.admin.get(&format!("{MAPS}/a")).await.0, 404);
    let (code, status) = fixture.admin.post(&format!("{MAPS}?dryRun=Some"), &config_map("a")).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (422, "Invalid"));
    fixture.admin.post(MAPS, &config_map("a")).await;
    let (code, _) = fixture.admin.delete(&format!("{MAPS}/a?dryRun=All"), &Value::Null).await;
    assert_eq!((code, fixture.admin.get(&format!("{MAPS}/a")).await.0), (200, 200));
}

#[tokio::test]
async fn api_349_status_and_spec_have_their_own_endpoints() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let mut doc = admin.pod("web").await;
    doc["status"]["phase"] = json!("Running");
    let (_, main) = admin.put(&format!("{PODS}/web"), &doc).await;
    assert_eq!(main["status"]["phase"], "Pending");
    let patch = json!({"status": {"phase": "Running"}, "spec": {"nodeName": "sneaky"}});
    let (code, status) = admin.merge(&format!("{PODS}/web/status"), &patch).await;
    assert_eq!((code, &status["status"]["phase"]), (200, &json!("Running")));
    assert_eq!(status["spec"].get("nodeName"), None);
    assert_eq!(admin.get(&format!("{PODS}/web/status")).await.1["status"]["phase"], "Running");
}

#[tokio::test]
async fn lc_020_a_pod_is_bound_once() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let before = admin.pod("web").await;
    let (code, status) = admin.bind("web", "node-1").await;
    assert_eq!((code, status["status"].as_str().unwrap()), (201, "Success"));
    let (_, pod) = admin.get(&format!("{PODS}/web")).await;
    assert_eq!(pod["spec"]["nodeName"], "node-1");
    assert_eq!(pod["metadata"].get("generation"), before["metadata"].get("generation"), "API-595");
    let condition = &pod["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("True")));
    let (code, status) = admin.bind("web", "node-2").await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on pods/binding \"web\": pod web is already assigned to node \"node-1\""
    );
    assert_eq!(admin.bind("missing", "node-1").await.0, 404);
}

#[tokio::test]
async fn lc_274_api_383_a_bound_pod_dies_gracefully() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    admin.pod("web").await;
    admin.bind("web", "node-1").await;
    let mut events = admin.watch(&format!("{PODS}?watch=true&resourceVersion=0")).await;
    assert_eq!(events.brief().await, "ADDED web");
    let (code, pod) = admin.delete(&format!("{PODS}/web"), &json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(code, 200);
    assert_eq!(pod["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 5);
    assert_eq!(events.brief().await, "MODIFIED web");
    // TC-029: the name is still taken.
    let (code, status) = admin.post(PODS, &crate::fixture::pod("web")).await;
    assert_eq!(code, 409);
    assert_eq!(status["message"], "object is being deleted: pods \"web\" already exists");
    // The node agent confirms.
    let uid = pod["metadata"]["uid"].clone();
    let wrong = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}});
    let (code, status) = admin.delete(&format!("{PODS}/web"), &wrong).await;
    assert_eq!(code, 409);
    assert!(status["message"].as_str().unwrap().contains("the UID in the precondition (other) does not match"));
    let right = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    let (code, last) = admin.delete(&format!("{PODS}/web"), &right).await;
    assert_eq!((code, last["kind"].as_str().unwrap()), (200, "Pod"));
    assert_eq!(events.brief().await, "MODIFIED web");
    let gone = events.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(admin.get(&format!("{PODS}/web")).await.0, 404);
}

#[tokio::test]
async fn tc_034_removing_the_last_finalizer_removes_the_object() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let mut doc = config_map("a");
    doc["metadata"]["finalizers"] = json!(["example.com/hold"]);
    admin.post(MAPS, &doc).await;
    let (code, marked) = admin.delete(&format!("{MAPS}/a"), &Value::Null).await;
    assert_eq!((code, &marked["metadata"]["deletionTimestamp"]), (200, &json!("2026-01-01T00:00:00Z")));
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.0, 200);
    let (code, _) = admin.merge(&format!("{MAPS}/a"), &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!((code, admin.get(&format!("{MAPS}/a")).await.0), (200, 404));
}

#[tokio::test]
async fn api_151_most_kinds_answer_a_delete_with_a_status() {
    let fixture = fixture().await;
    let (_, created) = fixture.admin.post(MAPS, &config_map("a")).await;
    let (code, status) = fixture.admin.delete(&format!("{MAPS}/a"), &json!({"propagationPolicy": "Background"})).await;
    assert_eq!(code, 200);
    let uid = &created["metadata"]["uid"];
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps", "uid": uid}));
    assert_eq!(status["status"], "Success");
}

#[tokio::test]
async fn api_152_api_386_collections_are_deleted_by_selector() {
    let fixture = fixture().await;
    for name in ["a", "b", "c"] {
        fixture.admin.post(MAPS, &config_map(name)).await;
    }
    let path = format!("{MAPS}?fieldSelector=metadata.name!=b");
    let (code, list) = fixture.admin.delete(&path, &Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 2));
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!((list["items"][0].get("kind"), &list["items"][0]["metadata"]["name"]), (None, &json!("a")));
    let (_, rest) = fixture.admin.get(MAPS).await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn api_193_a_deleted_namespace_is_marked_and_left_to_its_controller() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "team"}});
    let (code, created) = admin.post("/api/v1/namespaces", &namespace).await;
    assert_eq!((code, &created["status"]["phase"]), (201, &json!("Active")));
    admin.post("/api/v1/namespaces/team/configmaps", &config_map("a")).await;
    let account = json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}});
    admin.post("/api/v1/namespaces/team/serviceaccounts", &account).await;
    admin.post("/api/v1/namespaces/team/pods", &pod("web")).await;
    let binding = json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(admin.post("/api/v1/namespaces/team/bindings", &binding).await.0, 201);
    let (code, marked) = admin.delete("/api/v1/namespaces/team", &Value::Null).await;
    assert_eq!((code, &marked["status"]["phase"]), (200, &json!("Terminating")));
    let (code, status) = admin.post("/api/v1/namespaces/team/configmaps", &config_map("b")).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "configmaps \"b\" is forbidden: unable to create new content in namespace team because it is being terminated"
    );
    assert_eq!(admin.get("/api/v1/namespaces/team/configmaps/a").await.0, 200);
    admin.delete("/api/v1/namespaces/team/configmaps/a", &Value::Null).await;
    admin.delete("/api/v1/namespaces/team/serviceaccounts/default", &Value::Null).await;
    admin.delete("/api/v1/namespaces/team/pods/web", &json!({"gracePeriodSeconds": 0})).await;
    let (code, mut empty) = admin.get("/api/v1/namespaces/team").await;
    assert_eq!((code, &empty["spec"]["finalizers"]), (200, &json!(["kubernetes"])));
    empty["spec"]["finalizers"] = json!([]);
    assert_eq!(admin.put("/api/v1/namespaces/team/finalize", &empty).await.0, 200);
    assert_eq!(admin.get("/api/v1/namespaces/team").await.0, 404);
    let (code, status) = admin.delete("/api/v1/namespaces/default", &Value::Null).await;
    assert_eq!(code, 403);
    assert_eq!(status["message"], "namespaces \"default\" is forbidden: this namespace may not be deleted");
}

#[tokio::test]
async fn api_188_leases_may_be_created_by_put() {
    let fixture = fixture().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
    let lease = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "n"},
        "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40},
    });
    let (code, created) = fixture.admin.put(path, &lease).await;
    assert_eq!(code, 201, "{created}");
    let (code, status) = fixture.admin.put(path, &lease).await;
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().ends_with("must be specified for an update"), "{status}");
    assert_eq!(fixture.admin.put(path, &created).await.0, 200);
}

#[tokio::test]
async fn api_611_logs_need_a_container_where_there_are_several() {
    let fixture = fixture().await;
    let mut doc = pod("web");
    doc["spec"]["containers"] = json!([{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]);
    fixture.admin.post(PODS, &doc).await;
    let (code, status) = fixture.admin.get(&format!("{PODS}/web/log")).await;
    assert_eq!(code, 400);
    assert_eq!(status["message"], "a container name must be specified for pod web, choose one of: [a b]");
    let (code, status) = fixture.admin.get(&format!("{PODS}/web/log?container=c")).await;
    assert_eq!((code, status["message"].as_str().unwrap()), (400, "container c is not valid for pod web"));
    assert_eq!(fixture.admin.get(&format!("{PODS}/web/log?container=a")).await.0, 204, "API-612");
}

#[tokio::test]
async fn tc_171_api_715_a_new_node_is_not_used_before_it_is_seen_ready() {
    let admin = fixture().await.admin;
    let own = json!({"key": "own", "effect": "NoExecute"});
    let born = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    for (name, given, kept) in [
        ("plain", json!([]), json!([born])),
        ("tainted", json!([own]), json!([own, born])),
        ("careful", json!([born]), json!([born])),
    ] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": given}});
        let (code, made) = admin.post("/api/v1/nodes", &node).await;
        assert_eq!((code, &made["spec"]["taints"]), (201, &kept), "{made}");
    }
    let (code, ready) = admin.merge("/api/v1/nodes/plain", &json!({"spec": {"taints": null}})).await;
    assert_eq!((code, &ready["spec"]["taints"]), (200, &Value::Null), "only when it is made");
}

#[tokio::test]
async fn api_388_a_patch_is_made_of_what_is_there_now() {
    let fixture = fixture().await;
    fixture.admin.post(MAPS, &config_map("m")).await;
    let path = format!("{MAPS}/m");
    // All of them read the same version and write one after the other.
    let patches = (0..6).map(|number| {
        let (admin, path) = (fixture.admin.clone(), path.clone());
        tokio::spawn(async move { admin.merge(&path, &json!({"data": {format!("k{number}"): "v"}})).await.0 })
    });
    for patch in patches.collect::<Vec<_>>() {
        assert_eq!(patch.await.unwrap(), 200);
    }
    let (_, stored) = fixture.admin.get(&path).await;
    let count = stored["data"].as_object().unwrap().keys().filter(|key| key.starts_with('k')).count();
    assert_eq!(count, 6, "{stored}");
    let version = stored["metadata"]["resourceVersion"].clone();
    let patch = json!({"metadata": {"resourceVersion": version}, "data": {"new": "1"}});
    assert_eq!(fixture.admin.merge(&path, &patch).await.0, 200);
    let (code, refused) = fixture.admin.merge(&path, &patch).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")));
    assert_eq!(fixture.admin.merge(&format!("{MAPS}/none"), &json!({})).await.0, 404);
}

#[tokio::test]
async fn api_392_a_patch_that_makes_no_object_of_the_kind_is_invalid() {
    let fixture = fixture().await;
    fixture.admin.post(MAPS, &config_map("m")).await;
    for kind in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let path = format!("{MAPS}/m");
        let (code, refused) = fixture.admin.call("PATCH", &path, kind, &json!({"data": {"a": 1}})).await;
        assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")), "{refused}");
        assert_eq!(refused["details"]["causes"][0]["field"], "patch", "{refused}");
    }
    assert_eq!(fixture.admin.get(&format!("{MAPS}/m")).await.1["data"].get("a"), config_map("m")["data"].get("a"));
}

#[tokio::test]
async fn api_400_some_maps_are_replaced_not_merged() {
    let fixture = fixture().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    assert_eq!(fixture.admin.post(budgets, &budget).await.0, 201);
    let patch = json!({"spec": {"selector": {"matchLabels": {"c": "d"}}}});
    let strategic = "application/strategic-merge-patch+json";
    let (code, patched) = fixture.admin.call("PATCH", &format!("{budgets}/b"), strategic, &patch).await;
    assert_eq!((code, &patched["spec"]["selector"]), (200, &json!({"matchLabels": {"c": "d"}})), "{patched}");
    assert_eq!(patched["spec"]["minAvailable"], 1);
}

#[tokio::test]
async fn api_594_api_596_a_binding_says_which_pod_and_which_node() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let web = admin.pod("web").await;
    let binding = |metadata: Value, target: Value| json!({"kind": "Binding", "apiVersion": "v1", "metadata": metadata, "target": target});
    let to_node = json!({"kind": "Node", "name": "n1"});
    let path = format!("{PODS}/web/binding");
    let (code, refused) = admin.post(&path, &binding(json!({"name": "other"}), to_node.clone())).await;
    assert_eq!((code, &refused["message"]), (400, &json!("name in URL does not match name in Binding object")));
    let (code, refused) = admin.post(&path, &binding(json!({"name": "web"}), json!({"kind": "Host"}))).await;
    assert_eq!(code, 422);
    let fields: Vec<&Value> = refused["details"]["causes"].as_array().unwrap().iter().map(|it| &it["field"]).collect();
    assert_eq!(fields, ["target.kind", "target.name"], "{refused}");
    for wrong in [json!({"name": "web", "uid": "old"}), json!({"name": "web", "resourceVersion": "1"})] {
        assert_eq!(admin.post(&path, &binding(wrong, to_node.clone())).await.0, 409);
    }
    let conflict = |detail: &str| format!("Operation cannot be fulfilled on pods/binding \"web\": {detail}");
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    admin.post(PODS, &gated).await;
    let (code, refused) = admin.bind("gated", "n1").await;
    let expected = conflict("pod web has non-empty .spec.schedulingGates").replace("web", "gated");
    assert_eq!((code, &refused["message"]), (409, &json!(expected)));
    // The other way, and what else a binding may carry.
    let metadata =
        json!({"name": "web", "uid": web["metadata"]["uid"], "labels": {"l": "1"}, "annotations": {"a": "2"}});
    let (code, answer) = admin.post("/api/v1/namespaces/default/bindings", &binding(metadata, to_node)).await;
    assert_eq!((code, &answer["kind"], &answer["status"]), (201, &json!("Status"), &json!("Success")));
    let (_, bound) = admin.get(&format!("{PODS}/web")).await;
    assert_eq!((&bound["spec"]["nodeName"], &bound["metadata"]["labels"]["l"]), (&json!("n1"), &json!("1")));
    assert_eq!(bound["metadata"]["annotations"]["a"], "2");
    let mut going = pod("going");
    going["metadata"]["finalizers"] = json!(["example.com/stay"]);
    admin.post(PODS, &going).await;
    admin.delete(&format!("{PODS}/going"), &Value::Null).await;
    let (code, refused) = admin.bind("going", "n1").await;
    let expected = conflict("pod web is being deleted, cannot be assigned to a host").replace("web", "going");
    assert_eq!((code, &refused["message"]), (409, &json!(expected)));
}

#[tokio::test]
async fn api_606_an_agents_patch_of_a_status_is_for_one_pod_only() {
    let fixture = fixture().await;
    let web = fixture.admin.pod("web").await;
    let path = format!("{PODS}/web/status");
    let patch = |uid: &Value| {
        json!({"metadata": {"uid": uid}, "status": {"$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Mine"}],
            "conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}})
    };
    let mine = json!({"status": {"conditions": [{"type": "Mine", "status": "False"}]}});
    let strategic = "application/strategic-merge-patch+json";
    fixture.admin.call("PATCH", &path, strategic, &mine).await;
    let (code, patched) = fixture.admin.call("PATCH", &path, strategic, &patch(&web["metadata"]["uid"])).await;
    assert_eq!((code, &patched["status"]["phase"]), (200, &json!("Running")), "{patched}");
    let kinds: Vec<&Value> = patched["status"]["conditions"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
    assert_eq!(kinds, ["Ready", "Mine"]);
    let (code, refused) = fixture.admin.call("PATCH", &path, strategic, &patch(&json!("of another"))).await;
    assert_eq!(code, 409, "{refused}");
}

#[tokio::test]
async fn api_610_what_is_asked_of_a_log_must_make_sense() {
    let fixture = fixture().await;
    fixture.admin.pod("web").await;
    for (query, detail) in [
        ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("stream=Stdout", "stream: Forbidden: may not be specified"),
    ] {
        let (code, refused) = fixture.admin.get(&format!("{PODS}/web/log?{query}")).await;
        assert_eq!((code, &refused["details"]["kind"]), (422, &json!("PodLogOptions")), "{query}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with("PodLogOptions \"\" is invalid: ") && message.contains(detail), "{message}");
    }
}
