//! Texts that two places read: what is shown, what is checked and what is
//! signed must be the same.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use podium_misuse::{Cluster, request_for, trial};
use serde_json::json;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

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
