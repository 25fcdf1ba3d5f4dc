//! Texts that two places read: what is shown, what is checked and what is
//! signed must be the same.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use podium_misuse::{Cluster, request_for, trial};
use serde_json::json;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[test]
fn a_certificate_request_is_one_block_and_nothing_else() {
    trial("2 two certificate requests in one", async |cluster: &mut Cluster| {
        cluster
            .allow(
                "tenant",
                json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
            "verbs": ["create", "get", "patch"]}]),
            )
            .await;
        let (masters, _) = request_for("root", "system:masters");
        let (jane, _) = request_for("jane", "");
        let texts = [
            format!(" {masters}{jane}"),
            format!("{jane}{masters}"),
            format!("{masters}\n{jane}"),
            format!("x\n{jane}{masters}"),
            format!("{jane}-----BEGIN CERTIFICATE REQUEST-----\n"),
            jane.replace("-----BEGIN CERTIFICATE REQUEST-----\n", "-----BEGIN CERTIFICATE REQUEST-----\nA: b\n\n"),
        ];
        for (index, text) in texts.iter().enumerate() {
            let request = json!({"metadata": {"name": format!("double-{index}")}, "spec": {
                "request": BASE64_STANDARD.encode(text), "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"]}});
            cluster.tenant.post(REQUESTS, &request).await.refused(&[400, 422]);
        }
        "refused (422)".to_owned()
    });
}

#[test]
fn nobody_is_signed_as_a_master() {
    trial("2 a certificate for system:masters", async |cluster: &mut Cluster| {
        cluster
            .allow(
                "tenant",
                json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
            "verbs": ["create"]}]),
            )
            .await;
        let (masters, _) = request_for("root", "system:masters");
        let request = json!({"metadata": {"name": "masters"}, "spec": {"request": BASE64_STANDARD.encode(masters),
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
        let answer = cluster.tenant.post(REQUESTS, &request).await;
        answer.refused(&[400, 403, 422])
    });
}
