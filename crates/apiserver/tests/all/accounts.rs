//! Service accounts: tokens asked for, used and refused, and what pods are
//! given of them. Storage: what the server adds to claims and volumes.

use std::time::Duration;

use crate::fixture::{Client, Fixture, fixture_with, json_of};
use apiserver::{Config, Identity, SigningKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

pub(crate) async fn server() -> Fixture {
    server_with(&rcgen::KeyPair::generate().unwrap()).await
}

pub(crate) fn signing_key(pair: &rcgen::KeyPair) -> SigningKey {
    let public_der = rcgen::PublicKeyData::subject_public_key_info(pair);
    SigningKey { private_der: pair.serialize_der(), public_der }
}

async fn server_with(pair: &rcgen::KeyPair) -> Fixture {
    let signing_key = Some(signing_key(pair));
    fixture_with(Config { signing_key, advertise: "api.example:6443".into(), ..Config::default() }).await
}

const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

fn request(spec: Value) -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
}

/// A pod bound to node `n1`, and its node.
pub(crate) async fn bound_pod(server: &Fixture, name: &str) -> Value {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    server.admin.post("/api/v1/nodes", &node).await;
    let spec = json!({"nodeName": "n1", "containers": [{"name": "a", "image": "x"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let (code, pod) = server.admin.post("/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(code, 201, "{pod}");
    pod
}

pub(crate) fn bound_to(pod: &Value) -> Value {
    json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"]}})
}

pub(crate) async fn token(client: &Client, spec: Value) -> String {
    let (code, answer) = client.post(TOKEN, &request(spec)).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Without any certificate.
async fn call_as(server: &Fixture, method: &str, path: &str, token: &str) -> (u16, Value) {
    let builder = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
    let body = if method == "POST" { Bytes::from_static(b"{}") } else { Bytes::new() };
    let request = builder.header("content-type", "application/json").body(Full::new(body)).unwrap();
    let response = Client(server.api.anonymous()).send(request).await;
    (response.status().as_u16(), json_of(response).await)
}

const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

#[tokio::test]
async fn api_645_api_648_a_token_is_somebody() {
    let server = server().await;
    let pod = bound_pod(&server, "web").await;
    let (code, answer) = server.admin.post(TOKEN, &request(bound_to(&pod))).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    assert_eq!(answer["spec"]["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-01T01:00:00Z");
    let token = answer["status"]["token"].as_str().unwrap();
    let (code, review) = call_as(&server, "POST", WHO, token).await;
    assert_eq!(code, 201, "{review}");
    let user = &review["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:default:default");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(user["groups"], json!(groups));
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["web"]));
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["n1"]));
    let (code, refusal) = call_as(&server, "GET", "/api/v1/namespaces/default/pods", token).await;
    assert_eq!(code, 403);
    let expected = "User \"system:serviceaccount:default:default\" cannot list resource \"pods\"";
    assert!(refusal["message"].as_str().unwrap().contains(expected), "{refusal}");
    assert_eq!(call_as(&server, "GET", "/api", token).await.0, 200);
}

#[tokio::test]
async fn api_647_a_token_dies_with_its_time_its_audience_its_pod_and_its_account() {
    let server = server().await;
    let pod = bound_pod(&server, "web").await;
    let for_vault = token(&server.admin, json!({"audiences": ["vault"]})).await;
    assert_eq!(call_as(&server, "GET", "/api", &for_vault).await.0, 401);
    assert_eq!(call_as(&server, "GET", "/api", "nonsense").await.0, 401);
    let free = token(&server.admin, json!({})).await;
    let bound = token(&server.admin, bound_to(&pod)).await;
    assert_eq!(call_as(&server, "GET", "/api", &bound).await.0, 200);
    let now = json!({"gracePeriodSeconds": 0});
    server.admin.delete("/api/v1/namespaces/default/pods/web", &now).await;
    assert_eq!(call_as(&server, "GET", "/api", &bound).await.0, 401);
    bound_pod(&server, "web").await;
    assert_eq!(call_as(&server, "GET", "/api", &bound).await.0, 401, "another pod of that name");
    assert_eq!(call_as(&server, "GET", "/api", &free).await.0, 200);
    server.clock.advance(Duration::from_secs(3600 + 59));
    assert_eq!(call_as(&server, "GET", "/api", &free).await.0, 200, "clocks may differ");
    server.clock.advance(Duration::from_secs(2));
    assert_eq!(call_as(&server, "GET", "/api", &free).await.0, 401);
    let late = token(&server.admin, json!({})).await;
    server.admin.delete("/api/v1/namespaces/default/serviceaccounts/default", &Value::Null).await;
    assert_eq!(call_as(&server, "GET", "/api", &late).await.0, 401);
}

#[tokio::test]
async fn api_648_api_649_wrong_requests_are_refused() {
    let server = server().await;
    let pod = bound_pod(&server, "web").await;
    for (seconds, detail) in [
        (599, "may not specify a duration less than 10 minutes"),
        (1_i64 << 33, "may not specify a duration larger than 2^32 seconds"),
    ] {
        let (code, answer) = server.admin.post(TOKEN, &request(json!({"expirationSeconds": seconds}))).await;
        assert_eq!(code, 422);
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("spec.expirationSeconds") && message.contains(detail), "{message}");
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    server.admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let other = TOKEN.replace("accounts/default", "accounts/robot");
    let (code, answer) = server.admin.post(&other, &request(bound_to(&pod))).await;
    let expected = "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name.";
    assert_eq!((code, answer["message"].as_str().unwrap()), (400, expected));
    let mut stale = bound_to(&pod);
    stale["boundObjectRef"]["uid"] = json!("other");
    assert_eq!(server.admin.post(TOKEN, &request(stale)).await.0, 409);
    let map = json!({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}});
    assert_eq!(server.admin.post(TOKEN, &request(map)).await.0, 400);
    let missing = TOKEN.replace("accounts/default", "accounts/nobody");
    assert_eq!(server.admin.post(&missing, &request(json!({}))).await.0, 404);
}

#[tokio::test]
async fn api_684_a_node_gets_tokens_for_its_own_pods_only() {
    let server = server().await;
    let pod = bound_pod(&server, "web").await;
    let node = |name: &str| Client(server.api.service(Identity::node(name)));
    token(&node("n1"), bound_to(&pod)).await;
    assert_eq!(node("n2").post(TOKEN, &request(bound_to(&pod))).await.0, 403);
    assert_eq!(node("n1").post(TOKEN, &request(json!({}))).await.0, 403);
}

#[tokio::test]
async fn api_706_pods_find_their_token() {
    let server = server().await;
    let pod = bound_pod(&server, "web").await;
    let volume = &pod["spec"]["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-".len() + 5, "{name}");
    assert_eq!(volume["projected"]["defaultMode"], 420);
    let mount = json!({"name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"], json!([mount]));
    let quiet = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "quiet"},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "a", "image": "x"}]}});
    let (_, quiet) = server.admin.post("/api/v1/namespaces/default/pods", &quiet).await;
    assert_eq!(quiet["spec"].get("volumes"), None);
}

#[tokio::test]
async fn api_705_api_707_a_pod_needs_its_account_and_pulls_as_it() {
    let server = server().await;
    let pod = |name: &str, account: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"serviceAccountName": account, "containers": [{"name": "a", "image": "x"}]}})
    };
    let (code, answer) = server.admin.post("/api/v1/namespaces/default/pods", &pod("web", "robot")).await;
    assert_eq!(code, 403);
    let expected =
        "pods \"web\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found";
    assert_eq!(answer["message"], expected);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"},
        "imagePullSecrets": [{"name": "hub"}]});
    server.admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let (code, made) = server.admin.post("/api/v1/namespaces/default/pods", &pod("web", "robot")).await;
    assert_eq!((code, &made["spec"]["imagePullSecrets"]), (201, &json!([{"name": "hub"}])));
}

#[tokio::test]
async fn others_may_check_tokens_themselves() {
    let server = server().await;
    let (_, document) = server.admin.get("/.well-known/openid-configuration").await;
    assert_eq!(document["jwks_uri"], "https://api.example:6443/openid/v1/jwks");
    assert_eq!(document["id_token_signing_alg_values_supported"], json!(["ES256"]));
    let (_, keys) = server.admin.get("/openid/v1/jwks").await;
    assert_eq!((&keys["keys"][0]["kty"], &keys["keys"][0]["use"]), (&json!("EC"), &json!("sig")));
    let (_, resources) = server.admin.get("/api/v1").await;
    let entry = resources["resources"].as_array().unwrap().iter().find(|it| it["name"] == "serviceaccounts/token");
    let entry = entry.unwrap();
    assert_eq!((&entry["group"], &entry["kind"]), (&json!("authentication.k8s.io"), &json!("TokenRequest")));
}

#[tokio::test]
async fn api_720_claims_and_volumes_are_protected_and_get_the_default_class() {
    let server = server().await;
    let claim = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let (code, early) = server.admin.post(claims, &claim("early")).await;
    assert_eq!((code, early["spec"].get("storageClassName")), (201, None));
    assert_eq!(early["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!((&early["status"]["phase"], &early["spec"]["volumeMode"]), (&json!("Pending"), &json!("Filesystem")));
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "podium/host-path",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    let (code, class) = server.admin.post("/apis/storage.k8s.io/v1/storageclasses", &class).await;
    assert_eq!((code, &class["volumeBindingMode"]), (201, &json!("Immediate")));
    let (_, made) = server.admin.post(claims, &claim("late")).await;
    assert_eq!(made["spec"]["storageClassName"], "standard");
    let mut none = claim("none");
    none["spec"]["storageClassName"] = json!("");
    let (_, none) = server.admin.post(claims, &none).await;
    assert_eq!(none["spec"]["storageClassName"], "");
    let (code, refused) =
        server.admin.merge(&format!("{claims}/late"), &json!({"spec": {"storageClassName": "x"}})).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("spec is immutable after creation"), "{refused}");
    let bind = json!({"spec": {"volumeName": "pv"}});
    assert_eq!(server.admin.merge(&format!("{claims}/late"), &bind).await.0, 200);
}

/// A controller manager writes such tokens into Secrets, signed by our key.
#[tokio::test]
async fn api_645_a_token_in_a_secret_is_somebody_as_long_as_it_is_there() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let server = server_with(&pair).await;
    let admin = &server.admin;
    let (_, account) = admin.get("/api/v1/namespaces/default/serviceaccounts/default").await;
    let sign = |issuer: &str, uid: &Value| {
        let claims = json!({
            "iss": issuer, "sub": "system:serviceaccount:default:default",
            "kubernetes.io/serviceaccount/namespace": "default",
            "kubernetes.io/serviceaccount/secret.name": "kept",
            "kubernetes.io/serviceaccount/service-account.name": "default",
            "kubernetes.io/serviceaccount/service-account.uid": uid,
        });
        let key = jsonwebtoken::EncodingKey::from_ec_der(&pair.serialize_der());
        jsonwebtoken::encode(&jsonwebtoken::Header::new(jsonwebtoken::Algorithm::ES256), &claims, &key).unwrap()
    };
    let token = sign("kubernetes/serviceaccount", &account["metadata"]["uid"]);
    assert_eq!(call_as(&server, "POST", WHO, &token).await.0, 401, "no Secret holds it");
    let path = "/api/v1/namespaces/default/secrets/kept";
    let annotations = json!({"kubernetes.io/service-account.name": "default"});
    let secret = json!({
        "metadata": {"name": "kept", "annotations": annotations},
        "type": "kubernetes.io/service-account-token", "stringData": {"token": token},
    });
    assert_eq!(admin.post("/api/v1/namespaces/default/secrets", &secret).await.0, 201);
    let (code, review) = call_as(&server, "POST", WHO, &token).await;
    assert_eq!(code, 201, "{review}");
    assert_eq!(review["status"]["userInfo"]["username"], "system:serviceaccount:default:default");
    assert_eq!(review["status"]["userInfo"]["uid"], account["metadata"]["uid"]);
    let hold = |token: &str| json!({"stringData": {"token": token}});
    for other in
        [sign("kubernetes/serviceaccount", &json!("of another")), sign("somebody", &account["metadata"]["uid"])]
    {
        admin.merge(path, &hold(&other)).await;
        assert_eq!(call_as(&server, "POST", WHO, &other).await.0, 401);
        assert_eq!(call_as(&server, "POST", WHO, &token).await.0, 401, "the Secret holds another");
    }
    admin.merge(path, &hold(&token)).await;
    assert_eq!(call_as(&server, "POST", WHO, &token).await.0, 201);
    let invalid = json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}});
    admin.merge(path, &invalid).await;
    assert_eq!(call_as(&server, "POST", WHO, &token).await.0, 401, "it was taken back");
}

fn claims(token: &str) -> (Value, Value) {
    let part = |index: usize| {
        let text = token.split('.').nth(index).unwrap();
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap()
    };
    (part(0), part(1))
}

#[tokio::test]
async fn api_646_api_651_a_token_says_what_it_is_and_can_be_checked_by_others() {
    let server = server().await;
    let pod = bound_pod(&server, "web").await;
    let (header, claims) = claims(&token(&server.admin, bound_to(&pod)).await);
    let (_, keys) = server.admin.get("/openid/v1/jwks").await;
    assert_eq!((&header["alg"], &header["kid"]), (&json!("ES256"), &keys["keys"][0]["kid"]));
    let (_, document) = server.admin.get("/.well-known/openid-configuration").await;
    assert_eq!((&claims["iss"], &claims["aud"]), (&document["issuer"], &json!([document["issuer"]])));
    assert_eq!(document["response_types_supported"], json!(["id_token"]));
    assert_eq!(document["subject_types_supported"], json!(["public"]));
    let keys = server.admin.get_as("/openid/v1/jwks", "application/jwk-set+json").await;
    assert_eq!(keys.headers()["content-type"], "application/jwk-set+json");
    assert_eq!(claims["sub"], "system:serviceaccount:default:default");
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    assert_eq!(claims["nbf"], claims["iat"]);
    assert_eq!(claims["jti"].as_str().unwrap().len(), 36);
    let subject = &claims["kubernetes.io"];
    assert_eq!((&subject["namespace"], &subject["serviceaccount"]["name"]), (&json!("default"), &json!("default")));
    assert_eq!(subject["pod"], json!({"name": "web", "uid": pod["metadata"]["uid"]}));
    assert_eq!(subject["node"]["name"], "n1");
    assert_eq!((subject.get("secret"), subject.get("warnafter")), (None, None));
}

#[tokio::test]
async fn api_644_a_token_for_somebody_else_is_not_for_us() {
    let server = server().await;
    let (_, document) = server.admin.get("/.well-known/openid-configuration").await;
    for (audiences, code) in [(json!(["vault"]), 401), (json!(["vault", document["issuer"]]), 201), (json!([]), 201)] {
        let token = token(&server.admin, json!({"audiences": audiences})).await;
        assert_eq!(call_as(&server, "POST", WHO, &token).await.0, code, "{audiences}");
    }
}

#[tokio::test]
async fn api_650_programs_that_never_look_again_have_a_year() {
    let server = server().await;
    let pod = bound_pod(&server, "web").await;
    let mut spec = bound_to(&pod);
    spec["expirationSeconds"] = json!(3607);
    let (_, answer) = server.admin.post(TOKEN, &request(spec.clone())).await;
    let text = answer["status"]["token"].as_str().unwrap();
    let (_, extended) = claims(text);
    let second = |claim: &Value| claim.as_i64().unwrap();
    let made = second(&extended["iat"]);
    assert_eq!(second(&extended["exp"]) - made, 365 * 24 * 3600);
    assert_eq!(second(&extended["kubernetes.io"]["warnafter"]) - made, 3607);
    assert_eq!(answer["spec"]["expirationSeconds"], 3607);
    let told: jiff::Timestamp = answer["status"]["expirationTimestamp"].as_str().unwrap().parse().unwrap();
    assert_eq!(told.as_second() - made, 3607);
    server.clock.advance(std::time::Duration::from_secs(100 * 24 * 3600));
    assert_eq!(call_as(&server, "POST", WHO, text).await.0, 201);
    for (key, value) in
        [("expirationSeconds", json!(3608)), ("boundObjectRef", Value::Null), ("audiences", json!(["vault"]))]
    {
        let mut other = spec.clone();
        other[key] = value;
        let (_, plain) = claims(&token(&server.admin, other).await);
        assert!(second(&plain["exp"]) - second(&plain["iat"]) <= 3608, "{key}");
        assert_eq!(plain["kubernetes.io"].get("warnafter"), None, "{key}");
    }
}
