//! The `scale` subresource: how many pods, of whatever has pods.

use crate::fixture::{Client, fixture, json_of};
use serde_json::{Value, json};

const APPS: &str = "/apis/apps/v1/namespaces/default";

fn deployment() -> Value {
    json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front", "back"]}]},
            "template": {"metadata": {"labels": {"app": "web", "tier": "back"}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]}}}})
}

async fn deployed(admin: &Client) -> Value {
    let (code, made) = admin.post(&format!("{APPS}/deployments"), &deployment()).await;
    assert_eq!(code, 201, "{made}");
    made
}

const SCALE: &str = "/apis/apps/v1/namespaces/default/deployments/web/scale";

#[tokio::test]
async fn api_608_a_scale_is_read_and_written() {
    let fixture = fixture().await;
    let made = deployed(&fixture.admin).await;
    let (code, mut scale) = fixture.admin.get(SCALE).await;
    assert_eq!(code, 200);
    let metadata = &made["metadata"];
    assert_eq!(
        scale,
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "web", "namespace": "default", "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"]},
            "spec": {"replicas": 2}, "status": {"replicas": 0, "selector": "app=web,tier in (back,front)"}})
    );
    scale["spec"]["replicas"] = json!(5);
    scale["metadata"]["labels"] = json!({"not": "taken"});
    scale["status"]["replicas"] = json!(9);
    let (code, answer) = fixture.admin.put(SCALE, &scale).await;
    assert_eq!((code, &answer["spec"], &answer["status"]["replicas"]), (200, &json!({"replicas": 5}), &json!(0)));
    let (_, now) = fixture.admin.get(&format!("{APPS}/deployments/web")).await;
    assert_eq!((&now["spec"]["replicas"], &now["metadata"]["generation"]), (&json!(5), &json!(2)));
    assert_eq!(now["metadata"].get("labels"), None);
    assert_eq!(answer["metadata"]["resourceVersion"], now["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn api_082_api_389_a_patch_of_the_scale_sees_the_scale() {
    let fixture = fixture().await;
    deployed(&fixture.admin).await;
    let (code, scale) = fixture.admin.merge(SCALE, &json!({"spec": {"replicas": 0}})).await;
    assert_eq!((code, &scale["spec"]), (200, &json!({})), "zero is not shown");
    let patch = json!([{"op": "replace", "path": "/spec", "value": {"replicas": 3}}]);
    let (code, scale) = fixture.admin.call("PATCH", SCALE, "application/json-patch+json", &patch).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(3)), "{scale}");
    let strategic = "application/strategic-merge-patch+json";
    let path = format!("{SCALE}?dryRun=All");
    let (code, scale) = fixture.admin.call("PATCH", &path, strategic, &json!({"spec": {"replicas": 4}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(4)));
    assert_eq!(fixture.admin.get(SCALE).await.1["spec"]["replicas"], 3, "API-338: nothing was stored");
}

#[tokio::test]
async fn api_608_scales_of_others_or_of_yesterday_are_refused() {
    let fixture = fixture().await;
    let made = deployed(&fixture.admin).await;
    let scale = |metadata: Value, replicas: i64| json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {"replicas": replicas}});
    let (code, status) = fixture.admin.put(SCALE, &scale(json!({"name": "web"}), -1)).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
    let (code, status) = fixture.admin.put(SCALE, &scale(json!({"name": "web", "uid": "other"}), 1)).await;
    assert_eq!(code, 409);
    let uid = made["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        status["message"],
        format!(
            "Operation cannot be fulfilled on deployments/scale.apps \"web\": Precondition failed: UID in precondition: other, UID in object meta: {uid}"
        )
    );
    let (code, status) = fixture.admin.put(SCALE, &scale(json!({"name": "web", "resourceVersion": "1"}), 1)).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (409, "Conflict"));
    let (code, _) = fixture.admin.put(SCALE, &scale(json!({"name": "other"}), 1)).await;
    assert_eq!(code, 400);
    let missing = SCALE.replace("/web/", "/nope/");
    let (code, status) = fixture.admin.get(&missing).await;
    assert_eq!((code, status["message"].as_str().unwrap()), (404, "deployments.apps \"nope\" not found"));
    assert_eq!(fixture.admin.post(SCALE, &scale(json!({"name": "web"}), 1)).await.0, 405);
    let of_daemons = fixture.admin.get(&format!("{APPS}/daemonsets/web/scale")).await;
    assert_eq!(of_daemons.0, 404, "nobody says how many daemons there are");
    assert_eq!(fixture.admin.get(SCALE).await.1["spec"]["replicas"], 2);
}

#[tokio::test]
async fn api_266_a_scale_has_a_table_and_its_own_place_in_discovery() {
    let fixture = fixture().await;
    deployed(&fixture.admin).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = json_of(fixture.admin.get_as(SCALE, accept).await).await;
    assert_eq!(table["rows"][0]["cells"], json!(["web", 2, 0, "0s"]));
    let (_, list) = fixture.admin.get("/apis/apps/v1").await;
    let entry = list["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == "deployments/scale");
    assert_eq!(
        entry.unwrap(),
        &json!({"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
            "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]})
    );
}

#[tokio::test]
async fn api_045_controllers_of_every_kind_are_scaled_alike() {
    let fixture = fixture().await;
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
    for (path, kind) in [
        (format!("{APPS}/replicasets"), "ReplicaSet"),
        (format!("{APPS}/statefulsets"), "StatefulSet"),
        ("/api/v1/namespaces/default/replicationcontrollers".to_owned(), "ReplicationController"),
    ] {
        let mut doc = json!({"kind": kind, "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}});
        if kind == "ReplicationController" {
            doc["spec"]["selector"] = json!({"app": "web"});
        }
        let (code, made) = fixture.admin.post(&path, &doc).await;
        assert_eq!(code, 201, "{made}");
        let (code, scale) = fixture.admin.merge(&format!("{path}/web/scale"), &json!({"spec": {"replicas": 7}})).await;
        assert_eq!((code, &scale["status"]["selector"]), (200, &json!("app=web")), "{scale}");
        assert_eq!(fixture.admin.get(&format!("{path}/web")).await.1["spec"]["replicas"], 7);
    }
}

#[tokio::test]
async fn api_581_what_a_template_hardly_means_is_warned_of() {
    let fixture = fixture().await;
    let mut doc = deployment();
    doc["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let warnings = async |method: &str, path: &str, doc: &Value| {
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = http_body_util::Full::new(doc.to_string().into());
        let response = fixture.admin.send(request.body(body).unwrap()).await;
        assert!(response.status().is_success());
        response.headers().get_all("warning").iter().map(|text| text.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let expected = r#"299 - "spec.template.spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply""#;
    let path = format!("{APPS}/deployments");
    assert_eq!(warnings("POST", &path, &doc).await, [expected]);
    // Said once, not with every write.
    doc["spec"]["replicas"] = json!(3);
    assert_eq!(warnings("PUT", &format!("{path}/web"), &doc).await.len(), 0);
    doc["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    assert_eq!(warnings("PUT", &format!("{path}/web"), &doc).await, [expected]);
}

/// Manager, operation, subresource and fields of every owner of the controller's fields.
async fn owners(admin: &Client) -> Vec<String> {
    let (_, doc) = admin.get(&format!("{APPS}/deployments/web")).await;
    let owners = doc["metadata"]["managedFields"].as_array().unwrap();
    let text = |owner: &Value, key: &str| owner[key].as_str().unwrap_or_default().to_owned();
    let of_replicas = owners.iter().filter(|owner| !owner["fieldsV1"]["f:spec"]["f:replicas"].is_null());
    of_replicas
        .map(|it| {
            format!(
                "{} {} {} {}",
                text(it, "manager"),
                text(it, "operation"),
                text(it, "apiVersion"),
                text(it, "subresource")
            )
        })
        .collect()
}

#[tokio::test]
async fn api_389_api_457_a_scale_can_be_applied() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    deployed(admin).await;
    let scale = |spec: Value| json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "web"}, "spec": spec});
    let apply = async |query: &str, body: &Value| {
        admin.call("PATCH", &format!("{SCALE}?{query}"), "application/apply-patch+yaml", body).await
    };
    let (code, refused) = apply("fieldManager=me", &scale(json!({"replicas": 5}))).await;
    assert_eq!(code, 409);
    let expected = "Apply failed with 1 conflict: conflict with \"unknown\" using autoscaling/v1: .spec.replicas";
    assert_eq!(refused["message"], expected);
    let (code, answer) = apply("fieldManager=me&force=true", &scale(json!({"replicas": 5}))).await;
    assert_eq!((code, &answer["kind"], &answer["spec"]), (200, &json!("Scale"), &json!({"replicas": 5})), "{answer}");
    assert_eq!(owners(admin).await, ["me Apply apps/v1 scale"]);
    let before = admin.get(&format!("{APPS}/deployments/web")).await.1;
    assert_eq!((&before["spec"]["replicas"], &before["metadata"]["generation"]), (&json!(5), &json!(2)));
    apply("fieldManager=me", &scale(json!({"replicas": 5}))).await;
    assert_eq!(admin.get(&format!("{APPS}/deployments/web")).await.1, before, "API-461");
    // What nobody asks for any more is nothing.
    let (code, answer) = apply("fieldManager=me", &scale(json!({}))).await;
    assert_eq!((code, &answer["spec"]), (200, &json!({})), "{answer}");
    for (query, body, code) in [
        ("", scale(json!({"replicas": 1})), 422),
        ("fieldManager=me&force=true", scale(json!({"replicas": -1})), 422),
        ("fieldManager=me", deployment(), 400),
        ("fieldManager=me", scale(json!({"replicos": 1})), 500),
    ] {
        let (told, answer) = apply(query, &body).await;
        assert_eq!(told, code, "{answer}");
    }
    let missing = SCALE.replace("/web/", "/nope/");
    let path = format!("{missing}?fieldManager=me");
    let (code, _) = admin.call("PATCH", &path, "application/apply-patch+yaml", &scale(json!({"replicas": 1}))).await;
    assert_eq!(code, 404);
}
