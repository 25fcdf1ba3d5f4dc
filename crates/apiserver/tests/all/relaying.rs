//! What others write about where they are, and what of it the server follows:
//! addresses that are more than addresses, and the rights it has on the way.

use apiserver::Identity;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::fixture;
use crate::tls::{ADMIN, cluster, register};

fn node(address: &Value, port: &Value) -> Value {
    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"},
        "status": {"addresses": [address], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}})
}

#[tokio::test]
async fn api_625_a_node_may_not_say_that_it_is_somewhere_in_a_url() {
    let fixture = fixture::fixture().await;
    let admin = &fixture.admin;
    let evil = "::1]:7443/api/v1/namespaces/kube-system/secrets?x=[";
    let wrong = [
        (json!({"type": "InternalIP", "address": evil}), json!(10250)),
        (json!({"type": "ExternalIP", "address": "example.com"}), json!(10250)),
        (json!({"type": "Hostname", "address": evil}), json!(10250)),
        (json!({"type": "InternalDNS", "address": "a/b"}), json!(10250)),
        (json!({"type": "InternalIP", "address": "10.0.0.1"}), json!(65536)),
    ];
    for (address, port) in &wrong {
        let (code, refused) = admin.post("/api/v1/nodes", &node(address, port)).await;
        assert_eq!(code, 422, "{refused}");
    }
    let good = node(&json!({"type": "Hostname", "address": "n.example.com"}), &json!(10250));
    let (code, made) = admin.post("/api/v1/nodes", &good).await;
    assert_eq!(code, 201, "{made}");
    let agent = fixture::Client(fixture.api.service(Identity::node("n")));
    for (address, port) in &wrong {
        let status = json!({"status": node(address, port)["status"]});
        let (code, refused) = agent.merge("/api/v1/nodes/n/status", &status).await;
        assert_eq!(code, 422, "{refused}");
    }
    let (code, made) = agent.merge("/api/v1/nodes/n/status", &json!({"status": {"phase": "Running"}})).await;
    assert_eq!(code, 200, "{made}");
}

#[tokio::test]
async fn api_643_a_server_misled_to_itself_may_not_read_secrets_there() {
    let cluster = cluster().await;
    let admin = fixture::Client(cluster.api.service(Identity::admin()));
    // A node that says its agent is where the API server is.
    register(&admin, cluster.address).await;
    for path in
        ["api/v1/namespaces/kube-system/secrets", "api/v1/pods", "apis/rbac.authorization.k8s.io/v1/clusterroles"]
    {
        let (code, text) = cluster.get(&format!("/api/v1/nodes/n/proxy/{path}"), Some(ADMIN)).await;
        assert_eq!(code, 403, "{text}");
        assert!(text.contains("User \\\"kube-apiserver-kubelet-client\\\" cannot list"), "{text}");
    }
    admin.pod("web").await;
    admin.bind("web", "n").await;
    let (code, text) = cluster.get("/api/v1/namespaces/default/pods/web/log", Some(ADMIN)).await;
    assert_eq!(code, 403, "{text}");
    // To agents it is who it always was.
    let review = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {
        "user": "kube-apiserver-kubelet-client", "groups": ["podium", "system:authenticated"],
        "resourceAttributes": {"verb": "create", "version": "v1", "resource": "nodes", "subresource": "proxy", "name": "n"}}});
    let (code, review) = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
    assert_eq!((code, &review["status"]["allowed"]), (201, &json!(true)), "{review}");
}

#[tokio::test]
async fn api_623_who_may_only_read_does_not_open_streams_through_a_proxy() {
    let cluster = cluster().await;
    cluster.streaming_pod().await;
    let admin = fixture::Client(cluster.api.service(Identity::admin()));
    let proxies = json!(["nodes/proxy", "pods/proxy", "services/proxy"]);
    admin.allow("reader", json!([{"verbs": ["get"], "apiGroups": [""], "resources": proxies}])).await;
    admin.allow("runner", json!([{"verbs": ["get", "create"], "apiGroups": [""], "resources": proxies}])).await;
    let exec = "/api/v1/nodes/n/proxy/exec/default/web/main?command=id&output=1";
    for path in
        [exec, "/api/v1/namespaces/default/pods/web/proxy/ws", "/api/v1/namespaces/default/services/web/proxy/ws"]
    {
        let refused = cluster.upgrade_at("GET", path, ("reader", "dev")).await;
        assert_eq!(refused.status(), 403, "{path}");
        let text = refused.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&text).contains("cannot create resource"), "{text:?}");
    }
    assert_eq!(cluster.upgrade_at("GET", exec, ("runner", "dev")).await.status(), 101);
}
