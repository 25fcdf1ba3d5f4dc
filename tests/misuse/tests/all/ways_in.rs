//! The ways round the front door: create by PUT and by apply, delete many at
//! once.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use podium_misuse::{Cluster, request_for, trial};
use serde_json::json;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[test]
fn an_applied_certificate_request_is_its_senders() {
    trial("3 apply a certificate request as a node", async |cluster: &mut Cluster| {
        cluster
            .allow(
                "tenant",
                json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
            "verbs": ["create", "get", "patch", "update"]}]),
            )
            .await;
        let (text, _) = request_for("system:node:steady", "system:nodes");
        let spec = json!({"request": BASE64_STANDARD.encode(text), "usages": ["digital signature", "client auth"],
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "username": "system:node:steady",
            "groups": ["system:nodes", "system:authenticated"]});
        let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": "forged"}, "spec": spec});
        let path = format!("{REQUESTS}/forged?fieldManager=me&force=true");
        let answer = cluster.tenant.patch("apply", &path, &request).await;
        if answer.code != 201 {
            return answer.refused(&[400, 403, 422]);
        }
        let made = answer.ok();
        assert_eq!(made["spec"]["username"], "system:serviceaccount:hostile:tenant");
        let groups = made["spec"]["groups"].to_string();
        assert!(!groups.contains("system:nodes"), "{groups}");
        "served, as its sender".to_owned()
    });
}

#[test]
fn update_alone_creates_nothing() {
    trial("3 PUT creates with update alone", async |cluster: &mut Cluster| {
        let rules = json!([{"apiGroups": ["*"], "verbs": ["update"], "resources":
            ["leases", "services", "endpoints", "roles", "rolebindings", "configmaps", "events"]}]);
        cluster.allow("nobody", rules).await;
        let ns = "namespaces/hostile";
        let group = "rbac.authorization.k8s.io";
        for (path, object) in [
            (format!("/apis/coordination.k8s.io/v1/{ns}/leases/x"), json!({"spec": {}})),
            (format!("/api/v1/{ns}/services/x"), json!({"spec": {"ports": [{"port": 80}]}})),
            (format!("/api/v1/{ns}/endpoints/x"), json!({})),
            (format!("/api/v1/{ns}/configmaps/x"), json!({})),
            (format!("/apis/{group}/v1/{ns}/roles/x"), json!({"rules": []})),
            (
                format!("/apis/{group}/v1/{ns}/rolebindings/x"),
                json!({"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"}}),
            ),
        ] {
            let mut object = object;
            object["metadata"] = json!({"name": "x"});
            cluster.nobody.put(&path, &object).await.refused(&[403, 404, 405]);
            assert_eq!(cluster.admin.get(&path).await.code, 404, "{path}");
        }
        "refused (403, 404)".to_owned()
    });
}

#[test]
fn what_delete_protects_is_protected_from_deleting_all() {
    trial("3 deletecollection of what the system needs", async |cluster: &mut Cluster| {
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        cluster.admin.delete(classes).await;
        for name in ["system-cluster-critical", "system-node-critical"] {
            cluster.admin.get(&format!("{classes}/{name}")).await.ok();
        }
        cluster.admin.delete("/api/v1/namespaces").await.refused(&[403, 405]);
        for name in ["default", "kube-system"] {
            cluster.admin.delete(&format!("/api/v1/namespaces/{name}")).await.refused(&[403]);
        }
        "the system's objects stay".to_owned()
    });
}
