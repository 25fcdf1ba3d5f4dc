//! Doubt that must end in a refusal.

use std::io::ErrorKind;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use podium_misuse::{Cluster, Credential, pod, trial};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[test]
fn a_bootstrap_token_whose_end_cannot_be_read_is_no_token() {
    trial("10 bootstrap token with an unreadable end", async |cluster: &mut Cluster| {
        for (index, end) in ["tomorrow", "2026-13-01T00:00:00Z", "9999999999", " "].iter().enumerate() {
            let id = format!("abcde{index}");
            let data = json!({"token-id": id, "token-secret": "0123456789abcdef", "expiration": end,
                "usage-bootstrap-authentication": "true"});
            let secret = json!({"metadata": {"name": format!("bootstrap-token-{id}")},
                "type": "bootstrap.kubernetes.io/token", "stringData": data});
            cluster.admin.post("/api/v1/namespaces/kube-system/secrets", &secret).await.ok();
            let token = Credential::Token(format!("{id}.0123456789abcdef"));
            cluster.hostile(token).get("/api/v1/nodes").await.refused(&[401]);
        }
        "refused (401)".to_owned()
    });
}

#[test]
fn a_node_leaves_the_slices_of_others_alone() {
    trial("10 a node deletes everybody's ResourceSlices", async |cluster: &mut Cluster| {
        let node = cluster.node("evil").await;
        let slices = "/apis/resource.k8s.io/v1/resourceslices";
        let slice = json!({"metadata": {"name": "others"}, "spec": {"nodeName": "steady", "driver": "d.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": []}});
        cluster.admin.post(slices, &slice).await.ok();
        node.delete(&format!("{slices}/others")).await.refused(&[403]);
        let answer = node.delete(slices).await;
        cluster.admin.get(&format!("{slices}/others")).await.ok();
        node.delete(&format!("{slices}?fieldSelector=spec.nodeName=steady")).await.refused(&[403]);
        cluster.admin.get(&format!("{slices}/others")).await.ok();
        answer.refused(&[403])
    });
}

#[test]
fn reading_a_nodes_proxy_opens_no_exec() {
    trial("10 exec by get on nodes/proxy", async |cluster: &mut Cluster| {
        cluster
            .allow("nobody", json!([{"apiGroups": [""], "resources": ["nodes/proxy", "pods/exec"], "verbs": ["get"]}]))
            .await;
        let upgrade = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ];
        cluster.tenant.post("/api/v1/namespaces/hostile/pods", &pod("victim")).await.ok();
        let paths = [
            "/api/v1/nodes/steady/proxy/exec/hostile/victim/main?command=id&output=1",
            "/api/v1/namespaces/hostile/pods/victim/exec?command=id&stdout=1",
        ];
        let mut outcome = String::new();
        for path in paths {
            outcome = cluster.nobody.ask("GET", path, &upgrade, "").await.refused(&[403]);
        }
        outcome
    });
}

#[test]
fn an_address_never_becomes_a_path() {
    trial("9 a node's address with a path in it", async |cluster: &mut Cluster| {
        let node = cluster.node("evil").await;
        node.post("/api/v1/nodes", &json!({"metadata": {"name": "evil"}})).await.ok();
        let port = cluster.podium().address().rsplit(':').next().unwrap_or_default().to_owned();
        let secrets = "/api/v1/namespaces/kube-system/secrets?x=[";
        let mut said = Vec::new();
        for address in [format!("127.0.0.1:{port}{secrets}"), format!("::1]:{port}{secrets}")] {
            let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port.parse::<u16>().unwrap_or_default()}}}});
            said.push(node.patch("strategic-merge", "/api/v1/nodes/evil/status", &status).await.refused(&[400, 422]));
        }
        let mut victim = pod("reader");
        victim["spec"]["nodeName"] = json!("evil");
        cluster.tenant.post("/api/v1/namespaces/hostile/pods", &victim).await.ok();
        let log = cluster.tenant.get("/api/v1/namespaces/hostile/pods/reader/log").await;
        assert!(log.code >= 400 && !String::from_utf8_lossy(&log.body).contains("SecretList"), "{log:?}");
        said.remove(0)
    });
}

#[test]
fn tokens_that_are_none_are_refused() {
    trial("2, 10 tokens that are none", async |cluster: &mut Cluster| {
        let part = |text: &str| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(text);
        let claims =
            r#"{"sub":"system:serviceaccount:kube-system:x","iss":"https://kubernetes.default.svc.cluster.local"}"#;
        let long = "a".repeat(6000);
        for token in [
            "x".to_owned(),
            "..".to_owned(),
            "a.b.c".to_owned(),
            long,
            format!("{}.{}.", part(r#"{"alg":"none"}"#), part(claims)),
            format!("{}.{}.{}", part(r#"{"alg":"HS256"}"#), part(claims), part("signature")),
            BASE64_STANDARD.encode("system:masters"),
        ] {
            cluster.hostile(Credential::Token(token)).get("/api/v1/nodes").await.refused(&[401]);
        }
        "refused (401)".to_owned()
    });
}

#[test]
fn one_request_never_becomes_two() {
    trial("traps: two lengths in one request", async |cluster: &mut Cluster| {
        let body = "GET /api/v1/secrets HTTP/1.1\r\nHost: podium\r\n\r\n";
        let length = body.len().to_string();
        for headers in [
            vec![("Content-Length", length.as_str()), ("Transfer-Encoding", "chunked")],
            vec![("Content-Length", "0"), ("Content-Length", length.as_str())],
        ] {
            let mut stream = cluster.nobody.connect().await.expect("a connection");
            let head = cluster.nobody.head("POST", "/api/v1/namespaces/hostile/pods", &headers);
            stream.write_all(format!("{head}{body}").as_bytes()).await.expect("it is written");
            let mut answers = Vec::new();
            let read = tokio::time::timeout(std::time::Duration::from_secs(5), stream.read_to_end(&mut answers)).await;
            if let Ok(Err(error)) = read {
                assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
            }
            let text = String::from_utf8_lossy(&answers);
            assert!(!text.contains("200 OK"), "{text}");
        }
        "refused (400)".to_owned()
    });
}
