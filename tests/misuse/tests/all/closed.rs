//! Doubt that must end in a refusal.

use std::io::ErrorKind;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use podium_misuse::{Cluster, Credential, trial};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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
