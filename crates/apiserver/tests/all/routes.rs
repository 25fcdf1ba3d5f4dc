//! Every way by which objects are made or deleted meets the same rules: what
//! may not be made by one is made by none, and what is protected stays.

use apiserver::{Config, Identity, ServiceConfig};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, fixture, fixture_with, pod};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const APPLY: &str = "application/apply-patch+yaml";

/// How something is made. Not every kind is made by PUT.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Post,
    Generated,
    Put,
    Apply,
    /// Only asks, and is told the same.
    DryRun,
}

const WAYS: [Way; 5] = [Way::Post, Way::Generated, Way::Put, Way::Apply, Way::DryRun];
/// For kinds that a PUT does not make.
const WITHOUT_PUT: [Way; 4] = [Way::Post, Way::Generated, Way::Apply, Way::DryRun];

impl Way {
    /// The document names its version and kind, since applied ones must.
    async fn make(self, client: &Client, path: &str, doc: &Value) -> (u16, Value) {
        let name = doc["metadata"]["name"].as_str().unwrap();
        match self {
            Self::Post => client.post(path, doc).await,
            Self::DryRun => client.post(&format!("{path}?dryRun=All"), doc).await,
            Self::Put => client.put(&format!("{path}/{name}"), doc).await,
            Self::Apply => client.call("PATCH", &format!("{path}/{name}?fieldManager=m"), APPLY, doc).await,
            Self::Generated => {
                let mut doc = doc.clone();
                doc["metadata"]["name"] = json!("");
                doc["metadata"]["generateName"] = json!(format!("{name}-"));
                client.post(path, &doc).await
            }
        }
    }
}

fn user(fixture: &Fixture, name: &str) -> Client {
    Client(fixture.api.service(Identity::new(name, ["dev"])))
}

fn node(fixture: &Fixture, name: &str) -> Client {
    Client(fixture.api.service(Identity::node(name)))
}

async fn names(client: &Client, path: &str) -> Vec<String> {
    let (code, list) = client.get(path).await;
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Every way is refused with this text, and nothing is there that was not.
async fn refused(fixture: &Fixture, client: &Client, ways: &[Way], path: &str, doc: &Value, text: &str) {
    let before = names(&fixture.admin, path).await;
    for way in ways {
        let (code, answer) = way.make(client, path, doc).await;
        assert_eq!(code, 403, "{way:?} {path}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(text), "{way:?} {path}: {answer}");
        assert_eq!(names(&fixture.admin, path).await, before, "{way:?} {path}");
    }
}

fn everything() -> Value {
    json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}

fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}})
}

fn rbac(kind: &str, name: &str, more: Value) -> Value {
    let mut doc = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    doc.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    doc
}

/// A request for a certificate of these groups, said to be somebody else's.
fn request(name: &str, signer: &str, group: &str) -> Value {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n1");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
    let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"],
            "username": "system:node:n1", "groups": ["system:nodes"], "uid": "u", "extra": {"k": ["v"]}}})
}

#[tokio::test]
async fn api_743_who_asks_for_a_certificate_is_the_caller_by_every_way() {
    let fixture = fixture().await;
    fixture.admin.allow("jane", everything()).await;
    let jane = user(&fixture, "jane");
    for (index, way) in WITHOUT_PUT.into_iter().enumerate() {
        let ask = request(&format!("r{index}"), "kubernetes.io/kube-apiserver-client-kubelet", "system:nodes");
        let (code, made) = way.make(&jane, REQUESTS, &ask).await;
        assert_eq!(code, 201, "{way:?}: {made}");
        assert_eq!(made["spec"]["username"], "jane", "{way:?}");
        assert_eq!(made["spec"]["groups"], json!(["dev", "system:authenticated"]), "{way:?}");
        assert!(made["spec"]["uid"].is_null() && made["spec"]["extra"].is_null(), "{way:?}: {made}");
    }
    // Nor afterwards: what was asked for stays.
    for way in [Way::Put, Way::Apply] {
        let mut again = request("r0", "kubernetes.io/kube-apiserver-client-kubelet", "system:nodes");
        again["spec"]["request"] = fixture.admin.get(&format!("{REQUESTS}/r0")).await.1["spec"]["request"].clone();
        let (_, kept) = way.make(&jane, REQUESTS, &again).await;
        assert_ne!(kept["spec"]["username"], "system:node:n1", "{way:?}: {kept}");
        let (_, kept) = fixture.admin.get(&format!("{REQUESTS}/r0")).await;
        assert_eq!(kept["spec"]["username"], "jane", "{way:?}");
    }
    let masters = request("x", "kubernetes.io/kube-apiserver-client", "system:masters");
    refused(&fixture, &jane, &WITHOUT_PUT, REQUESTS, &masters, "system:masters group is not allowed").await;
}

#[tokio::test]
async fn api_767_nobody_approves_or_signs_by_any_way_without_the_right() {
    let fixture = fixture().await;
    let rules = json!([{"verbs": ["get", "update", "patch"], "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"]}]);
    fixture.admin.allow("jane", rules).await;
    let jane = user(&fixture, "jane");
    let ask = request("r", "example.com/s", "dev");
    assert_eq!(fixture.admin.post(REQUESTS, &ask).await.0, 201);
    let path = format!("{REQUESTS}/r");
    let (_, stored) = fixture.admin.get(&path).await;
    let condition = json!({"type": "Approved", "status": "True", "reason": "R", "message": "M"});
    let certificate = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap().cert.pem();
    for (part, status) in [
        ("approval", json!({"conditions": [condition]})),
        ("status", json!({"certificate": STANDARD.encode(certificate)})),
        ("status", json!({"conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": "M"}]})),
    ] {
        let mut whole = stored.clone();
        whole["status"] = status.clone();
        let sparse = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": "r"}, "status": status});
        let operations = json!([{"op": "replace", "path": "/status", "value": status}]);
        for (method, kind, body) in [
            ("PUT", "application/json", &whole),
            ("PATCH", "application/merge-patch+json", &sparse),
            ("PATCH", "application/strategic-merge-patch+json", &sparse),
            ("PATCH", "application/json-patch+json", &operations),
            ("PATCH", APPLY, &sparse),
        ] {
            let (code, answer) = jane.call(method, &format!("{path}/{part}?fieldManager=m"), kind, body).await;
            assert_eq!(code, 403, "{method} {kind} {part}: {answer}");
            // The object itself keeps its status, whoever writes it.
            let (_, answer) = jane.call(method, &format!("{path}?fieldManager=m"), kind, body).await;
            assert_ne!(answer["status"], status, "{method} {kind}: {answer}");
        }
    }
    assert_eq!(fixture.admin.get(&path).await.1["status"], stored["status"]);
}

#[tokio::test]
async fn api_188_api_459_what_is_not_there_is_made_by_those_who_may_create() {
    let fixture = fixture().await;
    let verbs = json!(["get", "list", "update", "patch", "escalate", "bind"]);
    fixture.admin.allow("jane", json!([{"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}])).await;
    let jane = user(&fixture, "jane");
    let role = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let view = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "x"}});
    let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "x"}, "spec": {"limits": []}});
    let class =
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "x"}, "handler": "h"});
    for (path, doc) in [
        (LEASES, lease("x")),
        (SERVICES, service("x")),
        ("/api/v1/namespaces/default/endpoints", endpoints),
        ("/api/v1/namespaces/default/limitranges", limits),
        ("/apis/node.k8s.io/v1/runtimeclasses", class),
        (&*format!("{RBAC}/namespaces/default/roles"), rbac("Role", "x", role.clone())),
        (&*format!("{RBAC}/clusterroles"), rbac("ClusterRole", "x", role)),
        (&*format!("{RBAC}/namespaces/default/rolebindings"), rbac("RoleBinding", "x", view.clone())),
        (&*format!("{RBAC}/clusterrolebindings"), rbac("ClusterRoleBinding", "x", view)),
    ] {
        refused(&fixture, &jane, &WAYS, path, &doc, "User \"jane\" cannot create resource").await;
        let (code, made) = Way::Put.make(&fixture.admin, path, &doc).await;
        assert_eq!(code, 201, "{path}: {made}");
        let (code, kept) = Way::Apply.make(&jane, path, &doc).await;
        assert_eq!(code, 200, "what is there she may change: {kept}");
    }
}

#[tokio::test]
async fn api_658_nobody_gives_by_any_way_what_they_do_not_have() {
    let fixture = fixture().await;
    fixture
        .admin
        .allow(
            "jane",
            json!([{"verbs": ["create", "get", "list", "update", "patch"], "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["*"]}]),
        )
        .await;
    let jane = user(&fixture, "jane");
    let rules = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]});
    let admin = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "jane"}]});
    for (path, doc) in [
        (format!("{RBAC}/namespaces/default/roles"), rbac("Role", "x", rules.clone())),
        (format!("{RBAC}/clusterroles"), rbac("ClusterRole", "x", rules)),
        (format!("{RBAC}/namespaces/default/rolebindings"), rbac("RoleBinding", "x", admin.clone())),
        (format!("{RBAC}/clusterrolebindings"), rbac("ClusterRoleBinding", "x", admin)),
    ] {
        refused(&fixture, &jane, &WAYS, &path, &doc, "attempting to grant RBAC permissions not currently held").await;
    }
}

#[tokio::test]
async fn api_682_to_api_684_a_node_makes_by_no_way_what_is_not_its_own() {
    let fixture = fixture().await;
    // Whatever else it was allowed.
    fixture.admin.allow("system:node:n1", everything()).await;
    let n1 = node(&fixture, "n1");
    let own = "with the same name as the requesting node";
    refused(&fixture, &n1, &WAYS, LEASES, &lease("n2"), own).await;
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    refused(&fixture, &n1, &WAYS, elsewhere, &lease("n1"), "can only access leases in the").await;
    let other = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}});
    refused(&fixture, &n1, &WITHOUT_PUT, "/api/v1/nodes", &other, "is not allowed to modify node").await;
    let labels = json!({"node-role.kubernetes.io/control-plane": ""});
    let own = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}});
    let named = [Way::Post, Way::Apply, Way::DryRun];
    refused(&fixture, &n1, &named, "/api/v1/nodes", &own, "is not allowed to set the following labels").await;
    refused(&fixture, &n1, &WITHOUT_PUT, PODS, &pod("x"), "can only create mirror pods").await;
    let csi = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n2"},
        "spec": {"drivers": []}});
    refused(&fixture, &n1, &WITHOUT_PUT, "/apis/storage.k8s.io/v1/csinodes", &csi, "can only access CSINode").await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    refused(&fixture, &n1, &WITHOUT_PUT, claims, &claim, "may only update PVC status").await;
}

#[tokio::test]
async fn api_684_a_node_asks_for_certificates_in_its_own_name_only() {
    let fixture = fixture().await;
    let (n1, n2) = (node(&fixture, "n1"), node(&fixture, "n2"));
    for name in ["system:node:n1", "system:node:n2"] {
        fixture.admin.allow(name, everything()).await;
    }
    for signer in ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"] {
        let mut ask = request("r", signer, "system:nodes");
        let own = "can only create a node CSR with CN=system:node:n2";
        refused(&fixture, &n2, &WITHOUT_PUT, REQUESTS, &ask, own).await;
        let (code, made) = n1.post(&format!("{REQUESTS}?dryRun=All"), &ask).await;
        assert_eq!(code, 201, "{made}");
        ask["spec"]["request"] = json!(STANDARD.encode("nonsense"));
        refused(&fixture, &n1, &WITHOUT_PUT, REQUESTS, &ask, "unable to parse csr: ").await;
    }
    // Others judge what they sign.
    let (code, made) = n2.post(REQUESTS, &request("other", "example.com/s", "system:nodes")).await;
    assert_eq!(code, 201, "{made}");
}

#[tokio::test]
async fn api_594_a_node_binds_no_pod_by_any_way() {
    let fixture = fixture().await;
    fixture.admin.allow("system:node:n1", everything()).await;
    fixture.admin.pod("web").await;
    let n1 = node(&fixture, "n1");
    let binding = json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}});
    for path in [format!("{PODS}/web/binding"), "/api/v1/namespaces/default/bindings".to_owned()] {
        let (code, answer) = n1.post(&path, &binding).await;
        assert_eq!(code, 403, "{path}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("only 'status' and 'eviction' are allowed"), "{answer}");
    }
    let (_, kept) = fixture.admin.get(&format!("{PODS}/web")).await;
    assert!(kept["spec"]["nodeName"].is_null(), "{kept}");
    // A binding is of the namespace it is sent to.
    let (code, _) = fixture
        .admin
        .post("/api/v1/bindings", &json!({"metadata": {"name": "default/web"}, "target": {"name": "n"}}))
        .await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn api_717_pod_security_is_asked_by_every_way() {
    let fixture = fixture().await;
    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    assert_eq!(fixture.admin.merge("/api/v1/namespaces/default", &enforce).await.0, 200);
    let mut host = pod("x");
    host["spec"]["hostNetwork"] = json!(true);
    refused(&fixture, &fixture.admin, &WITHOUT_PUT, PODS, &host, "violates PodSecurity \"baseline:latest\"").await;
}

#[tokio::test]
async fn api_704_api_716_namespace_and_quota_are_asked_by_every_way() {
    let fixture = fixture().await;
    let space = json!({"metadata": {"name": "going", "finalizers": ["example.com/hold"]}});
    assert_eq!(fixture.admin.post("/api/v1/namespaces", &space).await.0, 201);
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/services": "0"}}});
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    assert_eq!(fixture.admin.post(quotas, &quota).await.0, 201);
    let counted = json!({"status": {"hard": {"count/services": "0"}, "used": {"count/services": "0"}}});
    assert_eq!(fixture.admin.merge(&format!("{quotas}/q/status"), &counted).await.0, 200);
    refused(&fixture, &fixture.admin, &WAYS, SERVICES, &service("x"), "exceeded quota: q").await;
    assert_eq!(fixture.admin.delete("/api/v1/namespaces/going", &Value::Null).await.0, 200);
    let there = "/api/v1/namespaces/going/services";
    refused(&fixture, &fixture.admin, &WAYS, there, &service("x"), "because it is being terminated").await;
}

#[tokio::test]
async fn api_188_api_347_a_put_that_names_a_uid_or_a_version_means_what_is_there() {
    let admin = fixture().await.admin;
    let mut doc = lease("x");
    doc["metadata"]["uid"] = json!("u");
    let path = format!("{LEASES}/x");
    let (code, answer) = admin.put(&path, &doc).await;
    let expected = "Operation cannot be fulfilled on leases.coordination.k8s.io \"x\": StorageError: invalid object, Code: 4, Key: /registry/leases/kube-node-lease/x, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u, UID in object meta: ";
    assert_eq!((code, &answer["message"]), (409, &json!(expected)));
    let mut doc = lease("x");
    doc["metadata"]["resourceVersion"] = json!("7");
    let (code, answer) = admin.put(&path, &doc).await;
    assert_eq!((code, &answer["reason"]), (409, &json!("Conflict")), "{answer}");
    assert_eq!(admin.call("PATCH", &format!("{path}?fieldManager=m"), APPLY, &doc).await.0, 409);
    assert_eq!(admin.get(&path).await.0, 404);
    doc["metadata"]["resourceVersion"] = json!("0");
    assert_eq!(admin.put(&path, &doc).await.0, 201);
}

#[tokio::test]
async fn api_711_the_systems_priorities_stay_and_others_go() {
    let fixture = fixture().await;
    let own = json!({"metadata": {"name": "own"}, "value": 5});
    assert_eq!(fixture.admin.post(CLASSES, &own).await.0, 201);
    let system = ["system-cluster-critical", "system-node-critical"];
    for path in [format!("{CLASSES}/{}", system[0]), CLASSES.to_owned(), format!("{CLASSES}?dryRun=All")] {
        let (code, answer) = fixture.admin.delete(&path, &Value::Null).await;
        assert_eq!(code, 403, "{path}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("this is a system priority class"), "{answer}");
    }
    assert_eq!(names(&fixture.admin, CLASSES).await, system);
}

#[tokio::test]
async fn api_194_the_first_namespaces_stay() {
    let fixture = fixture().await;
    for name in ["default", "kube-system", "kube-public"] {
        assert_eq!(fixture.admin.delete(&format!("/api/v1/namespaces/{name}"), &Value::Null).await.0, 403);
    }
    assert_eq!(fixture.admin.delete("/api/v1/namespaces", &Value::Null).await.0, 405);
    assert_eq!(names(&fixture.admin, "/api/v1/namespaces").await.len(), 4);
}

#[tokio::test]
async fn api_195_the_way_to_the_server_comes_back_however_it_was_removed() {
    let endpoint = Some("192.0.2.7:6443".parse().unwrap());
    let config = Config { services: ServiceConfig { endpoint, ..ServiceConfig::default() }, ..Config::default() };
    let fixture = fixture_with(config).await;
    let admin = &fixture.admin;
    for path in [
        SERVICES,
        "/api/v1/namespaces/default/endpoints",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    ] {
        let own = format!("{path}/kubernetes");
        let uid = async || admin.get(&own).await.1["metadata"]["uid"].clone();
        let first = uid().await;
        assert_eq!(admin.delete(&own, &Value::Null).await.0, 200);
        let second = uid().await;
        assert!(second.is_string() && second != first, "{path}");
        assert_eq!(admin.delete(path, &Value::Null).await.0, 200);
        let third = uid().await;
        assert!(third.is_string() && third != second, "{path}");
        // What is held goes later, by an update.
        let held = |list: Value| json!({"metadata": {"finalizers": list}});
        assert_eq!(admin.merge(&own, &held(json!(["example.com/hold"]))).await.0, 200);
        assert_eq!(admin.delete(&own, &Value::Null).await.0, 200);
        assert_eq!(uid().await, third, "{path}");
        assert_eq!(admin.merge(&own, &held(json!([]))).await.0, 200);
        let fourth = uid().await;
        assert!(fourth.is_string() && fourth != third, "{path}");
    }
}

#[tokio::test]
async fn api_065_whose_turn_it_is_stays_known_whatever_is_removed() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        let path = format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}");
        let names = async || {
            let (code, list) = admin.get(&path).await;
            assert_eq!(code, 200);
            let items = list["items"].as_array().unwrap().clone();
            items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let before = names().await;
        assert_eq!(admin.delete(&format!("{path}/catch-all"), &Value::Null).await.0, 200);
        assert_eq!(names().await, before);
        assert_eq!(admin.delete(&path, &Value::Null).await.0, 200);
        assert_eq!(names().await, before);
    }
}

#[tokio::test]
async fn a_refused_patch_of_a_secret_does_not_tell_its_contents() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}});
    assert_eq!(admin.post(secrets, &secret).await.0, 201);
    let (code, answer) = admin.merge(&format!("{secrets}/s"), &json!({"data": {"k": "plain text!"}})).await;
    assert_eq!(code, 422);
    assert!(!answer.to_string().contains("plain text!"), "{answer}");
}

#[tokio::test]
async fn api_682_a_node_deletes_by_no_way_what_is_not_its_own() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    admin.allow("system:node:n1", everything()).await;
    let n1 = node(&fixture, "n1");
    for name in ["n1", "n2"] {
        assert_eq!(admin.post(LEASES, &lease(name)).await.0, 201);
        admin.pod(name).await;
        assert_eq!(admin.bind(name, name).await.0, 201);
    }
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "n2"}});
    let (code, answer) = n1.post(&format!("{PODS}/n2/eviction"), &eviction).await;
    assert_eq!(code, 403, "{answer}");
    for (path, text) in [
        (format!("{PODS}/n2"), "can only delete pods with spec.nodeName set to itself"),
        (PODS.to_owned(), "can only delete pods with spec.nodeName set to itself"),
        (format!("{LEASES}/n2"), "can only access node lease with the same name"),
        (LEASES.to_owned(), "can only access node lease with the same name"),
    ] {
        let (code, answer) = n1.delete(&path, &json!({"gracePeriodSeconds": 0})).await;
        assert_eq!(code, 403, "{path}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(text), "{path}: {answer}");
    }
    assert_eq!(names(admin, PODS).await, ["n2"], "its own pod is gone, and no other");
    assert_eq!(names(admin, LEASES).await, ["n2"]);
}

/// Objects are made, changed and deleted in few places, each of which knows in
/// whose name. A file that writes to the store beside them goes round the rules.
#[test]
fn nothing_else_writes_to_the_store() {
    fn files(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    let writes = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]").next().unwrap().contains("store.write(")
    };
    let mut writers: Vec<String> = found
        .into_iter()
        .filter(writes)
        .map(|path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned())
        .collect();
    writers.sort();
    let of_callers = ["create.rs", "delete.rs", "eviction.rs", "pods.rs", "write.rs"];
    let of_the_server = ["authz/aggregate.rs", "authz/defaults.rs", "bootstrap.rs", "expiry.rs"];
    let mut expected: Vec<&str> = of_callers.into_iter().chain(of_the_server).collect();
    expected.sort_unstable();
    assert_eq!(writers, expected);
}
