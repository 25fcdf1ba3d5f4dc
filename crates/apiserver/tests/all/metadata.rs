//! Names, versions, generations, owners, finalizers and namespaces: what holds
//! for objects of all kinds (spec 03, section 3).

use crate::fixture::{fixture, pod};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn map(metadata: Value) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn api_153_api_154_names_are_given_or_made() {
    let admin = fixture().await.admin;
    let (code, status) = admin.post(MAPS, &map(json!({}))).await;
    assert_eq!(code, 422);
    let text = "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    assert_eq!(message(&status), text);
    let (_, both) = admin.post(MAPS, &map(json!({"name": "a", "generateName": "b-"}))).await;
    assert_eq!((&both["metadata"]["name"], &both["metadata"]["generateName"]), (&json!("a"), &json!("b-")));
    let long = "x".repeat(70);
    let (_, made) = admin.post(MAPS, &map(json!({"generateName": long}))).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!((name.len(), &name[..58]), (63, &long[..58]));
    assert!(name[58..].chars().all(|letter| "bcdfghjklmnpqrstvwxz2456789".contains(letter)), "{name}");
}

#[tokio::test]
async fn api_155_a_prefix_may_end_with_a_dash() {
    let admin = fixture().await.admin;
    assert_eq!(admin.post(MAPS, &map(json!({"generateName": "web-"}))).await.0, 201);
    let (code, status) = admin.post(MAPS, &map(json!({"generateName": "Web-"}))).await;
    assert_eq!(code, 422, "{status}");
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.generateName");
}

#[tokio::test]
async fn api_156_api_157_the_server_says_who_and_when() {
    let admin = fixture().await.admin;
    let claimed = json!({"name": "a", "uid": "mine", "creationTimestamp": "1999-01-01T00:00:00Z",
        "deletionTimestamp": "1999-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "selfLink": "/me"});
    let (code, made) = admin.post(MAPS, &map(claimed)).await;
    assert_eq!(code, 201, "{made}");
    let meta = &made["metadata"];
    assert_eq!((meta["uid"].as_str().unwrap().len(), &meta["creationTimestamp"]), (36, &json!("2026-01-01T00:00:00Z")));
    assert_eq!(&meta["uid"].as_str().unwrap()[14..15], "4", "a random one");
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(meta.get(field), None, "{field}");
    }
    assert_eq!(meta["namespace"], "default");
    // What has no namespace loses the one it claims: charts are full of them.
    let claimed = json!({"metadata": {"name": "n", "namespace": "x"}});
    let (code, made) = admin.post("/api/v1/nodes", &claimed).await;
    assert_eq!((code, made["metadata"].get("namespace")), (201, None), "{made}");
    let (code, put) = admin.put("/api/v1/nodes/n", &claimed).await;
    assert_eq!((code, put["metadata"].get("namespace")), (200, None), "{put}");
}

#[tokio::test]
async fn api_158_what_the_server_said_stays() {
    let admin = fixture().await.admin;
    let (_, made) = admin.post(MAPS, &map(json!({"name": "a"}))).await;
    let (code, kept) =
        admin.put(&format!("{MAPS}/a"), &map(json!({"name": "a", "creationTimestamp": "1999-01-01T00:00:00Z"}))).await;
    assert_eq!(code, 200, "{kept}");
    for field in ["uid", "creationTimestamp", "namespace"] {
        assert_eq!(kept["metadata"][field], made["metadata"][field], "{field}");
    }
    let text = "the namespace of the provided object does not match the namespace sent on the request";
    for path in [format!("{MAPS}/a"), format!("{MAPS}/none")] {
        let (code, status) = admin.put(&path, &map(json!({"name": "a", "namespace": "other"}))).await;
        assert_eq!((code, message(&status)), (400, text));
    }
    let (code, status) = admin.put(&format!("{MAPS}/a"), &map(json!({}))).await;
    let text = "the name of the object (a based on URL) was undeterminable: name must be provided";
    assert_eq!((code, message(&status)), (400, text));
    let dying = map(json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let (code, status) = admin.put(&format!("{MAPS}/a"), &dying).await;
    let text = "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: \"2026-01-01T00:00:00Z\": field is immutable";
    assert_eq!((code, message(&status)), (422, text));
    let pod = admin.pod("web").await;
    let mut lying = pod.clone();
    lying["metadata"]["generation"] = json!(99);
    assert_eq!(
        admin.put(&format!("{PODS}/web"), &lying).await.1["metadata"]["generation"],
        pod["metadata"]["generation"]
    );
}

#[tokio::test]
async fn api_160_to_api_165_names_keys_and_values_have_forms() {
    let admin = fixture().await.admin;
    for (metadata, field, words) in [
        (json!({"name": "A"}), "metadata.name", "a lowercase RFC 1123 subdomain must consist of"),
        (json!({"name": "x".repeat(254)}), "metadata.name", "must be no more than 253"),
        (json!({"name": "a", "labels": {"": "x"}}), "metadata.labels", "name part must be non-empty"),
        (
            json!({"name": "a", "labels": {"a": "b c"}}),
            "metadata.labels",
            "a valid label must be an empty string or consist of",
        ),
        (
            json!({"name": "a", "labels": {"UP/x": "b"}}),
            "metadata.labels",
            "prefix part a lowercase RFC 1123 subdomain",
        ),
        (json!({"name": "a", "annotations": {"a b": "x"}}), "metadata.annotations", "name part must consist of"),
    ] {
        let (code, status) = admin.post(MAPS, &map(metadata)).await;
        assert_eq!(code, 422, "{status}");
        assert_eq!(status["details"]["causes"][0]["field"], field);
        assert!(message(&status).contains(words), "{status}");
    }
    let namespace = json!({"metadata": {"name": "a.b"}});
    let (_, status) = admin.post("/api/v1/namespaces", &namespace).await;
    assert!(message(&status).contains("must not contain dots"), "{status}");
    let big = json!({"name": "a", "annotations": {"a": "x".repeat(262_144)}});
    let (_, status) = admin.post(MAPS, &map(big)).await;
    assert!(message(&status).contains("metadata.annotations: Too long: may not be more than 262144 bytes"), "{status}");
}

#[tokio::test]
async fn api_175_api_177_versions_only_grow() {
    let admin = fixture().await.admin;
    let mut last = 0;
    for number in 0..5 {
        let (_, made) = admin.post(MAPS, &map(json!({"name": format!("m{number}")}))).await;
        let version = made["metadata"]["resourceVersion"].as_str().unwrap();
        assert!(!version.starts_with('0'));
        let version: u64 = version.parse().unwrap();
        assert!(version > last);
        last = version;
        let (_, list) = admin.get("/api/v1/namespaces/kube-system/configmaps").await;
        assert!(list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() >= last);
    }
}

#[tokio::test]
async fn api_178_api_179_api_180_generations_count_what_is_wanted() {
    let admin = fixture().await.admin;
    let (_, plain) = admin.post(MAPS, &map(json!({"name": "a"}))).await;
    assert_eq!(plain["metadata"].get("generation"), None);
    let generation = |doc: &Value| doc["metadata"]["generation"].as_i64().unwrap();
    let pod = admin.pod("web").await;
    assert_eq!(generation(&pod), 1);
    admin.bind("web", "n").await;
    let path = format!("{PODS}/web");
    let (_, labelled) = admin.merge(&path, &json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(generation(&labelled), 1);
    let (_, status) = admin.merge(&format!("{path}/status"), &json!({"status": {"phase": "Running"}})).await;
    assert_eq!(generation(&status), 1);
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]);
    let (_, changed) = admin.call("PATCH", &path, "application/json-patch+json", &image).await;
    assert_eq!(generation(&changed), 2);
    assert_eq!(generation(&admin.delete(&path, &json!({})).await.1), 3);
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let (_, made) = admin.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
    assert_eq!(generation(&made), 1);
    let annotated = json!({"metadata": {"annotations": {"a": "b"}}});
    let (_, made) = admin.merge("/apis/apps/v1/namespaces/default/deployments/d", &annotated).await;
    assert_eq!(generation(&made), 2, "of a Deployment annotations count too");
}

#[tokio::test]
async fn api_182_owners_are_named_in_full_and_once() {
    let admin = fixture().await.admin;
    let owner = |name: &str, controller: bool| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": controller});
    let two = json!({"name": "a", "ownerReferences": [owner("x", true), owner("y", true)]});
    let (code, status) = admin.post(MAPS, &map(two)).await;
    assert_eq!(code, 422);
    let text = "Only one reference can have Controller set to true. Found \"true\" in references for x and y";
    assert!(message(&status).contains(text), "{status}");
    let empty = json!({"name": "a", "ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]});
    let (_, status) = admin.post(MAPS, &map(empty)).await;
    let fields: Vec<_> =
        status["details"]["causes"].as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    for field in ["kind", "name", "uid"] {
        assert!(fields.contains(&format!("metadata.ownerReferences.{field}").as_str()), "{field} in {fields:?}");
    }
    let event =
        json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "e"}]});
    let (code, status) = admin.post(MAPS, &map(event)).await;
    assert_eq!(code, 422, "{status}");
    assert!(message(&status).contains("is disallowed from being an owner"), "{status}");
}

#[tokio::test]
async fn api_183_api_184_finalizers_are_known_or_qualified() {
    let admin = fixture().await.admin;
    for (finalizers, words) in [
        (json!(["mine"]), "name is neither a standard finalizer name nor is it fully qualified"),
        (json!(["orphan", "foregroundDeletion"]), "finalizer orphan and foregroundDeletion cannot be both set"),
    ] {
        let (code, status) = admin.post(MAPS, &map(json!({"name": "a", "finalizers": finalizers}))).await;
        assert_eq!(code, 422, "{status}");
        assert!(message(&status).contains(words), "{status}");
    }
    admin.post(MAPS, &map(json!({"name": "a", "finalizers": ["example.com/one"]}))).await;
    let path = format!("{MAPS}/a");
    admin.delete(&path, &Value::Null).await;
    let more = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two"]}});
    let (code, status) = admin.merge(&path, &more).await;
    assert_eq!(code, 422);
    let text = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/two\"}";
    assert!(message(&status).contains(text), "{status}");
}

#[tokio::test]
async fn api_185_the_last_finalizer_takes_the_object_along() {
    let admin = fixture().await.admin;
    admin.post(MAPS, &map(json!({"name": "a", "finalizers": ["example.com/one"]}))).await;
    admin.delete(&format!("{MAPS}/a"), &Value::Null).await;
    let (_, list) = admin.get(MAPS).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = admin.watch(&format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    let (code, last) = admin.merge(&format!("{MAPS}/a"), &json!({"metadata": {"finalizers": []}})).await;
    assert_eq!((code, last["metadata"].get("finalizers")), (200, None), "{last}");
    assert_eq!(events.brief().await, "DELETED a");
}

#[tokio::test]
async fn api_192_api_193_only_finalize_lets_a_namespace_go() {
    let admin = fixture().await.admin;
    let (_, made) = admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "team");
    let path = "/api/v1/namespaces/team";
    let (_, kept) = admin.merge(path, &json!({"metadata": {"labels": null}, "spec": {"finalizers": []}})).await;
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]), "{kept}");
    assert_eq!(kept["metadata"]["labels"]["kubernetes.io/metadata.name"], "team");
    let mut held = kept.clone();
    held["spec"]["finalizers"] = json!(["kubernetes", "hold"]);
    let (code, status) = admin.put(&format!("{path}/finalize"), &held).await;
    let text = "Namespace \"team\" is invalid: spec.finalizers: Invalid value: \"hold\": name is neither a standard finalizer name nor is it fully qualified";
    assert_eq!((code, message(&status)), (422, text));
    held["spec"]["finalizers"] = json!(["kubernetes", "example.com/hold"]);
    held["status"]["phase"] = json!("Terminating");
    let (code, held) = admin.put(&format!("{path}/finalize"), &held).await;
    assert_eq!((code, held["spec"]["finalizers"].as_array().unwrap().len()), (200, 2));
    assert_eq!(held["status"]["phase"], "Active", "API-353: of the status it says nothing");
    let (code, dying) = admin.delete(path, &Value::Null).await;
    assert_eq!((code, &dying["status"]["phase"]), (200, &json!("Terminating")));
    let (code, mut dying) = admin.get(path).await;
    assert_eq!(code, 200, "somebody holds it");
    dying["spec"]["finalizers"] = json!([]);
    assert_eq!(admin.put(&format!("{path}/finalize"), &dying).await.0, 200);
    assert_eq!(admin.get(path).await.0, 404);
}

#[tokio::test]
async fn api_194_api_195_api_196_some_namespaces_are_always_there() {
    let admin = fixture().await.admin;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert_eq!(admin.get(&format!("/api/v1/namespaces/{name}")).await.0, 200, "{name}");
    }
    for name in ["default", "kube-system", "kube-public"] {
        let (code, status) = admin.delete(&format!("/api/v1/namespaces/{name}"), &Value::Null).await;
        assert_eq!(code, 403);
        assert_eq!(message(&status), format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"));
    }
    let hold = json!({"metadata": {"name": "late", "finalizers": ["example.com/hold"]}});
    admin.post("/api/v1/namespaces", &hold).await;
    admin.delete("/api/v1/namespaces/late", &Value::Null).await;
    let (code, status) = admin.post("/api/v1/namespaces/late/pods", &pod("web")).await;
    assert_eq!(code, 403);
    let text =
        "pods \"web\" is forbidden: unable to create new content in namespace late because it is being terminated";
    assert_eq!(message(&status), text);
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
}
