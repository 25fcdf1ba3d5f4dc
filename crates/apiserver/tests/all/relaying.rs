//! What others write about where they are, and what of it the server follows:
//! addresses that are more than addresses, and the rights it has on the way.

use std::time::Duration;

use ambient::Clock;
use apiserver::Identity;
use http::Request;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::fixture;
use crate::tls::{ADMIN, Cluster, agent, cluster, cluster_at, register};

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

/// A WebSocket at `path`; the protocol that was chosen, and what follows.
async fn websocket(
    cluster: &Cluster,
    path: &str,
    offered: Option<&str>,
) -> (u16, Option<String>, impl AsyncRead + Unpin) {
    let request = Request::get(path)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let request = offered.into_iter().fold(request, |request, name| request.header("sec-websocket-protocol", name));
    let mut response = cluster.open(request, ADMIN).await;
    let code = response.status().as_u16();
    let chosen = response.headers().get("sec-websocket-protocol").map(|name| name.to_str().unwrap().to_owned());
    let stream: Box<dyn AsyncRead + Unpin> = match code {
        101 => Box::new(TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap())),
        _ => Box::new(std::io::Cursor::new(response.into_body().collect().await.unwrap().to_bytes())),
    };
    (code, chosen, stream)
}

/// One message: what it is, and its content.
async fn message(stream: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let head = [stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap()];
    let length = match head[1] {
        126 => usize::from(stream.read_u16().await.unwrap()),
        short => usize::from(short),
    };
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await.unwrap();
    (head[0], content)
}

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;

#[tokio::test]
async fn api_609_logs_come_as_messages_to_who_asks_for_them() {
    let cluster = cluster().await;
    let address = agent(&cluster.authority).await;
    let admin = fixture::Client(cluster.api.service(Identity::admin()));
    register(&admin, address).await;
    admin.pod("web").await;
    admin.bind("web", "n").await;
    let path = "/api/v1/namespaces/default/pods/web/log?tailLines=5";
    let log = b"asked /containerLogs/default/web/main?tailLines=5\n".to_vec();
    let encoded = b"YXNrZWQgL2NvbnRhaW5lckxvZ3MvZGVmYXVsdC93ZWIvbWFpbj90YWlsTGluZXM9NQo=".to_vec();
    for (offered, expected) in [
        (Some("binary.k8s.io"), (BINARY, &log)),
        (Some("base64.binary.k8s.io"), (TEXT, &encoded)),
        (None, (BINARY, &log)),
    ] {
        let (code, chosen, mut stream) = websocket(&cluster, path, offered).await;
        assert_eq!((code, chosen.as_deref()), (101, offered));
        assert_eq!(message(&mut stream).await, (BINARY, Vec::new()), "it is open");
        assert_eq!(message(&mut stream).await, (expected.0, expected.1.clone()));
        assert_eq!(message(&mut stream).await, (CLOSE, 1000_u16.to_be_bytes().to_vec()));
    }
    assert_eq!(websocket(&cluster, path, Some("channel.k8s.io")).await.0, 403);
    let missing = "/api/v1/namespaces/default/pods/none/log";
    assert_eq!(websocket(&cluster, missing, None).await.0, 404);
    let refused = "/api/v1/namespaces/default/pods/web/log?previous=true";
    assert_eq!(websocket(&cluster, refused, None).await.0, 400);
}

#[tokio::test]
async fn api_313_events_come_as_messages_to_who_asks_for_them() {
    let cluster = cluster().await;
    let admin = fixture::Client(cluster.api.service(Identity::admin()));
    admin.pod("web").await;
    let path = "/api/v1/namespaces/default/pods?watch=true&resourceVersion=0";
    let (code, _, mut stream) = websocket(&cluster, path, None).await;
    assert_eq!(code, 101);
    admin.pod("more").await;
    for name in ["web", "more"] {
        let (kind, content) = message(&mut stream).await;
        let event: Value = serde_json::from_slice(&content).unwrap();
        assert_eq!((kind, &event["type"], &event["object"]["metadata"]["name"]), (TEXT, &json!("ADDED"), &json!(name)));
    }
}

#[tokio::test]
async fn api_639_what_was_opened_ends_with_the_certificate() {
    const YEAR_4000: u64 = 64_060_588_800;
    let clock = Clock::manual();
    let cluster = cluster_at(clock.clone()).await;
    cluster.streaming_pod().await;
    let certificate = cluster.authority.issue_until(ADMIN.0, ADMIN.1, 4000);
    let now = u64::try_from(clock.now().wall.as_second()).unwrap();
    clock.advance(Duration::from_secs(YEAR_4000 - now - 1));
    let open = async |request: http::request::Builder| {
        let mut response = cluster.open_with(request.header("connection", "Upgrade"), &certificate).await;
        assert_eq!(response.status(), 101);
        TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap())
    };
    let pods = "/api/v1/namespaces/default/pods";
    let watch = Request::get(format!("{pods}?watch=true&resourceVersion=0"))
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let mut watch = open(watch).await;
    let exec = Request::post(format!("{pods}/web/exec?container=main&command=id&stdout=true"))
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io");
    let mut exec = open(exec).await;
    assert_eq!(message(&mut watch).await.0, TEXT, "the pod");
    clock.advance(Duration::from_secs(2));
    assert_eq!(message(&mut watch).await.0, CLOSE);
    let mut heard = Vec::new();
    // The other side need not say goodbye.
    let _ = exec.read_to_end(&mut heard).await;
    assert!(heard.starts_with(b"POST /exec/default/web/main"), "{heard:?}");
}
