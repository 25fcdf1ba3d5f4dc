//! Kinds whose requests need more than the table of kinds says: events, of
//! which there are two views, and requests for certificates.

use crate::fixture::{Client, fixture};
use apiserver::Identity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

const OLD: &str = "/api/v1/namespaces/default/events";
const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn event() -> Value {
    json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c", "reportingInstance": "i", "action": "Bind", "reason": "Done",
        "type": "Normal", "note": "well", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}})
}

#[tokio::test]
async fn api_048_api_768_events_are_stored_once_and_seen_twice() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let mut watch = admin.watch(&format!("{NEW}?watch=1&fieldSelector=regarding.name=p")).await;
    let (code, made) = admin.post(NEW, &event()).await;
    assert_eq!((code, &made["apiVersion"], &made["note"]), (201, &json!("events.k8s.io/v1"), &json!("well")), "{made}");
    let (code, old) = admin.get(&format!("{OLD}/e")).await;
    assert_eq!((code, &old["apiVersion"], &old["message"]), (200, &json!("v1"), &json!("well")), "{old}");
    assert_eq!(old["metadata"]["uid"], made["metadata"]["uid"]);
    let (_, list) = admin.get(&format!("{NEW}?fieldSelector=regarding.kind=Pod")).await;
    assert_eq!((&list["kind"], &list["items"][0]["regarding"]["name"]), (&json!("EventList"), &json!("p")), "{list}");
    let (_, none) = admin.get(&format!("{NEW}?fieldSelector=regarding.kind=Node")).await;
    assert_eq!(none["items"], json!([]));

    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:02.000000Z"}});
    let (code, changed) = admin.merge(&format!("{NEW}/e"), &series).await;
    assert_eq!((code, &changed["series"]["count"]), (200, &json!(2)), "{changed}");
    let (code, same) = admin.merge(&format!("{NEW}/e"), &series).await;
    assert_eq!((code, &same["metadata"]["resourceVersion"]), (200, &changed["metadata"]["resourceVersion"]), "API-176");
    // The old view, which names are written in, is lenient.
    let (code, _) = admin.merge(&format!("{OLD}/e"), &json!({"message": "very well"})).await;
    assert_eq!(code, 200);
    let (code, gone) = admin.delete(&format!("{NEW}/e"), &json!({})).await;
    assert_eq!((code, &gone["details"]["group"]), (200, &json!("events.k8s.io")), "{gone}");

    for (kind, note) in [("ADDED", "well"), ("MODIFIED", "well"), ("MODIFIED", "very well"), ("DELETED", "very well")] {
        let told = watch.next().await.unwrap();
        assert_eq!((&told["type"], &told["object"]["note"]), (&json!(kind), &json!(note)), "{told}");
        assert_eq!(told["object"]["apiVersion"], "events.k8s.io/v1");
    }
}

#[tokio::test]
async fn api_188_api_189_what_put_does_is_the_kinds_to_say() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let role = json!({"metadata": {"name": "r"}, "rules": []});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r";
    assert_eq!(admin.put(path, &role).await.0, 201);
    let class = json!({"metadata": {"name": "c"}, "handler": "crun"});
    let path = "/apis/node.k8s.io/v1/runtimeclasses/c";
    assert_eq!(admin.put(path, &class).await.0, 201);
    let (code, refused) = admin.put(path, &class).await;
    assert_eq!(code, 422);
    let expected = "RuntimeClass.node.k8s.io \"c\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!(refused["message"], expected);
    let (code, _) = admin.put("/api/v1/namespaces/default/configmaps/c", &json!({"metadata": {"name": "c"}})).await;
    assert_eq!(code, 404, "API-187");
}

#[tokio::test]
async fn api_064_whoever_registers_a_webhook_is_told_that_nobody_calls_it() {
    let fixture = fixture().await;
    let body = json!({"metadata": {"name": "w"}}).to_string();
    let request = Request::post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations");
    let request = request.header("content-type", "application/json").body(Full::new(Bytes::from(body))).unwrap();
    let response = fixture.admin.send(request).await;
    assert_eq!(response.status(), 201);
    let warning = response.headers()["warning"].to_str().unwrap().to_owned();
    assert!(warning.contains("is stored only: its webhooks are not called"), "{warning}");
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn pem(group: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "jane");
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

fn request(name: &str, signer: &str, pem: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"request": STANDARD.encode(pem), "signerName": signer,
        "usages": ["client auth"], "username": "somebody else", "groups": ["system:masters"]}})
}

#[tokio::test]
async fn api_358_api_743_api_767_a_request_for_a_certificate_is_its_senders() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let everything = json!([{"apiGroups": ["certificates.k8s.io"], "verbs": ["*"],
        "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"]}]);
    admin.allow("jane", everything).await;
    let jane = Client(fixture.api.service(Identity::new("jane", ["dev"])));

    let (code, made) = jane.post(REQUESTS, &request("r", "example.com/s", &pem("dev"))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["username"], "jane");
    assert_eq!(made["spec"]["groups"], json!(["dev", "system:authenticated"]));

    let (code, refused) = jane.post(REQUESTS, &request("x", "example.com/s", "no")).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().ends_with("PEM block type must be CERTIFICATE REQUEST"), "{refused}");
    // Shown and checked as one, signed as the other.
    for both in
        [format!(" {}{}", pem("system:masters"), pem("dev")), format!("{}{}", pem("dev"), pem("system:masters"))]
    {
        let (code, refused) = jane.post(REQUESTS, &request("x", "kubernetes.io/kube-apiserver-client", &both)).await;
        assert_eq!(code, 422, "{refused}");
    }
    let mut forged = pem("dev").into_bytes();
    let within_the_signature = forged.len() - "-----END CERTIFICATE REQUEST-----\n".len() - 12;
    forged[within_the_signature] = if forged[within_the_signature] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    assert_eq!(jane.post(REQUESTS, &request("x", "example.com/s", &forged)).await.0, 422);
    let masters = request("x", "kubernetes.io/kube-apiserver-client", &pem("system:masters"));
    let (code, refused) = jane.post(REQUESTS, &masters).await;
    assert_eq!(code, 403);
    let expected = "certificatesigningrequests.certificates.k8s.io \"x\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert_eq!(refused["message"], expected);
}

#[tokio::test]
async fn api_358_api_767_approval_and_signing_are_rights_per_signer() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let group = "certificates.k8s.io";
    admin.allow("jane", json!([{"apiGroups": [group], "resources": ["*"], "verbs": ["get", "update", "patch"]}])).await;
    let rights = json!([{"apiGroups": [group], "resources": ["*"], "verbs": ["get", "update", "patch"]},
        {"apiGroups": [group], "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["approve", "sign"]}]);
    admin.allow("joe", rights).await;
    let [jane, joe] = ["jane", "joe"].map(|name| Client(fixture.api.service(Identity::new(name, ["dev"]))));
    admin.post(REQUESTS, &request("r", "example.com/s", &pem("dev"))).await;

    let approved =
        json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "R", "message": "M"}]}});
    let path = format!("{REQUESTS}/r/approval");
    let (code, refused) = jane.merge(&path, &approved).await;
    assert_eq!(code, 403);
    let expected = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve requests with signerName \"example.com/s\"";
    assert_eq!(refused["message"], expected);
    let (code, done) = joe.merge(&path, &approved).await;
    assert_eq!(
        (code, &done["status"]["conditions"][0]["lastTransitionTime"]),
        (200, &json!("2026-01-01T00:00:00Z")),
        "{done}"
    );

    let issued = |text: &str| json!({"status": {"certificate": STANDARD.encode(text)}});
    let path = format!("{REQUESTS}/r/status");
    let certificate = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap().cert.pem();
    assert_eq!(jane.merge(&path, &issued(&certificate)).await.0, 403);
    let (code, refused) = joe.merge(&path, &issued(&pem("dev"))).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("only CERTIFICATE PEM blocks are allowed"), "{refused}");
    let (code, done) = joe.merge(&path, &issued(&certificate)).await;
    assert_eq!((code, &done["status"]["conditions"][0]["type"]), (200, &json!("Approved")), "{done}");
}

#[tokio::test]
async fn api_060_autoscalers_are_stored_once_and_seen_twice() {
    let admin = fixture().await.admin;
    let old = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let new = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let doc = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    let (code, made) = admin.post(old, &doc).await;
    assert_eq!((code, &made["spec"]["minReplicas"]), (201, &json!(1)), "{made}");
    let (_, seen) = admin.get(&format!("{new}/a")).await;
    let target = &seen["spec"]["metrics"][0]["resource"]["target"];
    assert_eq!((&target["averageUtilization"], &seen["apiVersion"]), (&json!(50), &json!("autoscaling/v2")));
    let (code, changed) =
        admin.merge(&format!("{old}/a"), &json!({"spec": {"targetCPUUtilizationPercentage": 60}})).await;
    assert_eq!((code, &changed["spec"]["targetCPUUtilizationPercentage"]), (200, &json!(60)), "{changed}");
    let (_, list) = admin.get(old).await;
    assert_eq!(list["items"][0]["spec"]["targetCPUUtilizationPercentage"], 60);
    let (code, status) = admin
        .post(
            old,
            &json!({"metadata": {"name": "b"}, "spec": {"maxReplicas": 0,
        "scaleTargetRef": {"kind": "Deployment", "name": "web"}}}),
        )
        .await;
    assert_eq!(code, 422, "{status}");
}

#[tokio::test]
async fn api_640_a_bootstrap_token_lets_a_machine_ask() {
    let fixture = fixture().await;
    let encoded = |text: &str| STANDARD.encode(text);
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token", "data": {
        "token-id": encoded("abcdef"), "token-secret": encoded("0123456789abcdef"), "usage-bootstrap-authentication": encoded("true")}});
    assert_eq!(fixture.admin.post("/api/v1/namespaces/kube-system/secrets", &secret).await.0, 201);
    let stranger = Client(fixture.api.anonymous());
    let mut ask = request("r", "kubernetes.io/kube-apiserver-client-kubelet", &pem("system:nodes"));
    ask["spec"]["usages"] = json!(["digital signature", "client auth"]);
    let send = async |token: &str, method: &str, path: &str, body: &Value| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {token}"));
        stranger.send(request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await
    };
    assert_eq!(send("abcdef.0123456789abcdee", "POST", REQUESTS, &ask).await.status(), 401);
    let response = send("abcdef.0123456789abcdef", "POST", REQUESTS, &ask).await;
    assert_eq!(response.status(), 201);
    let made = crate::fixture::json_of(response).await;
    assert_eq!(made["spec"]["username"], "system:bootstrap:abcdef");
    let response = send("abcdef.0123456789abcdef", "GET", "/api/v1/nodes", &json!(null)).await;
    assert_eq!(response.status(), 403, "it may ask, and nothing else");
}

#[tokio::test]
async fn api_044_the_store_is_the_one_part_that_is_known() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let (code, list) = admin.get("/api/v1/componentstatuses").await;
    let store =
        json!({"metadata": {"name": "etcd-0"}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
    assert_eq!((code, &list["kind"]), (200, &json!("ComponentStatusList")));
    assert_eq!(list["items"], json!([store]));
    let (code, one) = admin.get("/api/v1/componentstatuses/etcd-0").await;
    assert_eq!((code, &one["kind"], &one["conditions"]), (200, &json!("ComponentStatus"), &store["conditions"]));
    let (code, status) = admin.get("/api/v1/componentstatuses/scheduler").await;
    assert_eq!((code, &status["message"]), (404, &json!("componentstatus \"scheduler\" not found")));
    assert_eq!(admin.get("/api/v1/componentstatuses?labelSelector=a%3Db").await.1["items"], json!([]));
    let response = admin.get_as("/api/v1/componentstatuses", "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(response.headers()["warning"], "299 - \"v1 ComponentStatus is deprecated in v1.19+\"");
    assert_eq!(crate::fixture::json_of(response).await["rows"][0]["cells"], json!(["etcd-0", "Healthy", "ok", ""]));
    assert_eq!(admin.post("/api/v1/componentstatuses", &store).await.0, 405);
    assert_eq!(admin.get("/api/v1/componentstatuses?watch=true").await.0, 405);
    assert_eq!(admin.delete("/api/v1/componentstatuses", &Value::Null).await.0, 405);
    let (_, core) = admin.get("/api/v1").await;
    let entry = core["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == "componentstatuses");
    let expected = json!({"name": "componentstatuses", "singularName": "componentstatus", "namespaced": false,
        "kind": "ComponentStatus", "verbs": ["get", "list"], "shortNames": ["cs"]});
    assert_eq!(entry, Some(&expected));
}

#[tokio::test]
async fn api_769_events_go_an_hour_after_their_last_word() {
    let fixture = fixture().await;
    let path = "/api/v1/namespaces/default/events";
    let event = |name: &str| {
        json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
            "reason": "Started", "count": 1})
    };
    for name in ["old", "retold"] {
        assert_eq!(fixture.admin.post(path, &event(name)).await.0, 201);
    }
    let mut watch = fixture.admin.watch(&format!("{path}?watch=true&resourceVersion=0")).await;
    assert_eq!((watch.brief().await, watch.brief().await), ("ADDED old".to_owned(), "ADDED retold".to_owned()));
    let wait = |seconds: u64| fixture.clock.advance(std::time::Duration::from_secs(seconds));
    wait(1800);
    assert_eq!(fixture.admin.merge(&format!("{path}/retold"), &json!({"count": 2})).await.0, 200);
    assert_eq!(watch.brief().await, "MODIFIED retold");
    wait(1799);
    fixture.api.sweep().await.unwrap();
    assert_eq!(fixture.admin.get(&format!("{path}/old")).await.0, 200);
    wait(1);
    fixture.api.sweep().await.unwrap();
    assert_eq!(fixture.admin.get(&format!("{path}/old")).await.0, 404);
    assert_eq!(watch.brief().await, "DELETED old");
    assert_eq!(fixture.admin.get(&format!("{path}/retold")).await.0, 200);
    wait(1800);
    fixture.api.sweep().await.unwrap();
    assert_eq!(watch.brief().await, "DELETED retold");
}
