//! Questions: who is this, may they, and acting as someone else; and what a
//! node may write.

use crate::fixture::{Client, Fixture, fixture, fixture_with, json_of, pod};
use apiserver::{Config, Identity, SigningKey};
use http::{Request, header};
use http_body_util::Full;
use serde_json::{Value, json};

const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn user(fixture: &Fixture, name: &str) -> Client {
    Client(fixture.api.service(Identity::new(name, ["dev"])))
}

fn node(fixture: &Fixture, name: &str) -> Client {
    Client(fixture.api.service(Identity::node(name)))
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

/// May write what is in `default`, as the role says.
async fn editor(fixture: &Fixture) -> Client {
    let binding = json!({"metadata": {"name": "editors"}, "subjects": [{"kind": "Group", "name": "dev"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let (code, made) = fixture.admin.post(path, &binding).await;
    assert_eq!(code, 201, "{made}");
    user(fixture, "jane")
}

async fn with_tokens() -> Fixture {
    let pair = rcgen::KeyPair::generate().unwrap();
    let key = SigningKey {
        private_der: pair.serialize_der(),
        public_der: rcgen::PublicKeyData::subject_public_key_info(&pair),
    };
    fixture_with(Config { signing_key: Some(key), ..Config::default() }).await
}

async fn review(client: &Client, plural: &str, spec: Value) -> (u16, Value) {
    client.post(&format!("{AUTHORIZATION}/{plural}"), &json!({"spec": spec})).await
}

#[tokio::test]
async fn api_652_a_token_is_reviewed_for_whom_it_was_made() {
    let fixture = with_tokens().await;
    let request = json!({"spec": {"audiences": ["vault"]}});
    let (_, made) = fixture.admin.post("/api/v1/namespaces/default/serviceaccounts/default/token", &request).await;
    let token = made["status"]["token"].as_str().unwrap();
    let ask =
        async |spec: Value| fixture.admin.post(&format!("{AUTHENTICATION}/tokenreviews"), &json!({"spec": spec})).await;
    let (code, known) = ask(json!({"token": token, "audiences": ["vault", "other"]})).await;
    assert_eq!((code, &known["status"]["authenticated"]), (201, &json!(true)));
    assert_eq!(known["status"]["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!(known["status"]["audiences"], json!(["vault"]));
    let (code, unknown) = ask(json!({"token": token})).await;
    assert_eq!((code, &unknown["status"]["authenticated"]), (201, &Value::Null), "it is not for this server");
    assert_eq!(unknown["status"]["error"], "invalid bearer token");
    let (code, refused) = ask(json!({})).await;
    assert_eq!((code, message(&refused)), (400, "token is required for TokenReview in authentication"));
}

#[tokio::test]
async fn api_653_everyone_may_ask_who_they_are() {
    let fixture = fixture().await;
    let (code, answer) = user(&fixture, "jane").post(&format!("{AUTHENTICATION}/selfsubjectreviews"), &json!({})).await;
    assert_eq!(code, 201);
    let expected = json!({"username": "jane", "groups": ["dev", "system:authenticated"]});
    assert_eq!(answer["status"]["userInfo"], expected);
    assert_eq!(fixture.admin.get(&format!("{AUTHENTICATION}/selfsubjectreviews")).await.0, 405);
}

#[tokio::test]
async fn api_676_accesses_are_reviewed() {
    let fixture = fixture().await;
    fixture.admin.allow("jane", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])).await;
    let jane = user(&fixture, "jane");
    let get = json!({"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "a"}});
    let (code, answer) = review(&jane, "selfsubjectaccessreviews", get.clone()).await;
    let reason = "RBAC: allowed by ClusterRoleBinding \"jane\" of ClusterRole \"jane\" to User \"jane\"";
    assert_eq!((code, &answer["status"]), (201, &json!({"allowed": true, "reason": reason})));
    let list = json!({"resourceAttributes": {"verb": "list", "resource": "pods"}});
    let (_, answer) = review(&jane, "selfsubjectaccessreviews", list).await;
    assert_eq!(answer["status"], json!({"allowed": false}));
    let path = json!({"nonResourceAttributes": {"verb": "get", "path": "/healthz"}});
    let (_, answer) = review(&jane, "selfsubjectaccessreviews", path.clone()).await;
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(review(&jane, "subjectaccessreviews", get.clone()).await.0, 403, "others are not hers to ask about");

    let mut of_jane = get.clone();
    of_jane["user"] = json!("jane");
    let (_, answer) = review(&fixture.admin, "subjectaccessreviews", of_jane.clone()).await;
    assert_eq!(answer["status"]["allowed"], true);
    let mut of_nobody = path.clone();
    of_nobody["user"] = json!("jane");
    let (_, answer) = review(&fixture.admin, "subjectaccessreviews", of_nobody).await;
    assert_eq!(answer["status"]["allowed"], false, "nobody is authenticated by being asked about");
    let local = async |spec| {
        let path = format!("{AUTHORIZATION}/namespaces/a/localsubjectaccessreviews");
        fixture.admin.post(&path, &json!({"spec": spec})).await
    };
    assert_eq!(local(of_jane.clone()).await.1["status"]["allowed"], true);
    of_jane["resourceAttributes"]["namespace"] = json!("b");
    let (code, refused) = local(of_jane).await;
    assert_eq!(code, 422);
    assert!(
        message(&refused)
            .contains("spec.resourceAttributes.namespace: Invalid value: \"b\": must match metadata.namespace")
    );
    let (code, refused) = review(&fixture.admin, "subjectaccessreviews", json!({})).await;
    assert_eq!(code, 422);
    for detail in [
        "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
        "spec.user: Invalid value: \"\": at least one of user or group must be specified",
    ] {
        assert!(message(&refused).contains(detail), "{refused}");
    }
}

#[tokio::test]
async fn api_677_rules_are_listed() {
    let fixture = fixture().await;
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    fixture.admin.allow("jane", json!([rule])).await;
    let jane = user(&fixture, "jane");
    let (code, answer) = review(&jane, "selfsubjectrulesreviews", json!({"namespace": "default"})).await;
    assert_eq!((code, &answer["status"]["incomplete"]), (201, &json!(false)));
    assert!(answer["status"]["resourceRules"].as_array().unwrap().contains(&rule), "{answer}");
    assert!(answer["status"]["nonResourceRules"][0]["nonResourceURLs"].as_array().unwrap().contains(&json!("/api")));
    assert_eq!(review(&jane, "selfsubjectrulesreviews", json!({})).await.0, 400);
    let (_, answer) = review(&node(&fixture, "n"), "selfsubjectrulesreviews", json!({"namespace": "default"})).await;
    assert_eq!(answer["status"]["incomplete"], true);
}

async fn get_as(client: &Client, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    let response = client.send(request.body(Full::default()).unwrap()).await;
    (response.status().as_u16(), json_of(response).await)
}

#[tokio::test]
async fn api_654_who_may_impersonate_is_seen_as_the_other() {
    let fixture = fixture().await;
    let as_jane = [("impersonate-user", "jane"), ("impersonate-group", "dev")];
    let (code, refused) = get_as(&fixture.admin, PODS, &as_jane).await;
    assert_eq!(code, 403);
    assert!(message(&refused).contains("User \"jane\" cannot list resource \"pods\""), "{refused}");
    let joe = user(&fixture, "joe");
    let (code, refused) = get_as(&joe, PODS, &as_jane).await;
    let expected = "users \"jane\" is forbidden: User \"joe\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
    assert_eq!((code, message(&refused)), (403, expected));
    let only =
        json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"]}]);
    fixture.admin.allow("joe", only).await;
    fixture.admin.allow("jane", json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}])).await;
    assert_eq!(get_as(&joe, PODS, &as_jane[..1]).await.0, 200);
    let (code, refused) = get_as(&joe, PODS, &as_jane).await;
    assert_eq!(code, 403);
    assert!(message(&refused).starts_with("groups \"dev\" is forbidden"), "{refused}");
    assert_eq!(get_as(&fixture.admin, PODS, &as_jane[1..]).await.0, 400);
}

#[tokio::test]
async fn api_094_bodies_in_protobuf_are_read() {
    let fixture = fixture().await;
    let send = async |path: &str, body: &[u8]| {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/vnd.kubernetes.protobuf")
            .header(header::ACCEPT, "application/vnd.kubernetes.protobuf,application/json");
        let response = fixture.admin.send(request.body(Full::new(body.to_vec().into())).unwrap()).await;
        (response.status().as_u16(), json_of(response).await)
    };
    let map = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x11\x0a\x03\x0a\x01a\x12\x0a\x0a\x03key\x12\x03val";
    let (code, made) = send("/api/v1/namespaces/default/configmaps", map).await;
    assert_eq!((code, &made["data"]), (201, &json!({"key": "val"})));
    let (code, refused) = send("/api/v1/namespaces/default/configmaps", b"{}").await;
    assert_eq!(code, 400);
    assert!(message(&refused).contains("does not appear to be a protobuf message"), "{refused}");
}

#[tokio::test]
async fn api_679_api_681_a_node_reads_what_its_pods_need() {
    let fixture = fixture().await;
    for name in ["mine", "other"] {
        let secret = json!({"metadata": {"name": name}, "data": {}});
        assert_eq!(fixture.admin.post("/api/v1/namespaces/default/secrets", &secret).await.0, 201);
    }
    let mut web = pod("web");
    web["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "mine"}}]);
    fixture.admin.post(PODS, &web).await;
    let secret = |name: &str| format!("/api/v1/namespaces/default/secrets/{name}");
    let n1 = node(&fixture, "n1");
    assert_eq!(n1.get(&secret("mine")).await.0, 403, "the pod is not bound yet");
    fixture.admin.bind("web", "n1").await;
    assert_eq!(n1.get(&secret("mine")).await.0, 200);
    let (code, refused) = n1.get(&secret("other")).await;
    let expected = "secrets \"other\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \
                    \"\" in the namespace \"default\": no relationship found between node 'n1' and this object";
    assert_eq!((code, message(&refused)), (403, expected));
    assert_eq!(node(&fixture, "n2").get(&secret("mine")).await.0, 403);
    assert_eq!(n1.get("/api/v1/pods").await.0, 403);
    assert_eq!(n1.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await.0, 200);
    assert_eq!(n1.get("/api/v1/nodes").await.0, 403);
}

#[tokio::test]
async fn api_682_to_api_684_a_node_writes_what_is_its_own() {
    let fixture = fixture().await;
    let (n1, n2) = (node(&fixture, "n1"), node(&fixture, "n2"));
    let own = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let (code, refused) = n1.post("/api/v1/nodes", &own("n1", json!({"node-role.kubernetes.io/x": ""}))).await;
    let expected =
        "nodes \"n1\" is forbidden: node \"n1\" is not allowed to set the following labels: node-role.kubernetes.io/x";
    assert_eq!((code, message(&refused)), (403, expected));
    let (code, made) = n1.post("/api/v1/nodes", &own("n1", json!({"disk": "ssd"}))).await;
    assert_eq!(code, 201, "{made}");
    let (code, refused) = n2.merge("/api/v1/nodes/n1", &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(
        (code, message(&refused)),
        (403, "nodes \"n1\" is forbidden: node \"n2\" is not allowed to modify node \"n1\"")
    );
    let taints = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let (code, refused) = n1.merge("/api/v1/nodes/n1", &taints).await;
    assert_eq!(
        (code, message(&refused)),
        (403, "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints")
    );
    assert_eq!(n1.merge("/api/v1/nodes/n1/status", &json!({"status": {"capacity": {"cpu": "1"}}})).await.0, 200);

    let lease = |name: &str| json!({"metadata": {"name": name}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(n1.post(leases, &lease("n2")).await.0, 403);
    assert_eq!(n1.post(leases, &lease("n1")).await.0, 201);

    fixture.admin.pod("web").await;
    fixture.admin.bind("web", "n1").await;
    let running = json!({"status": {"phase": "Running"}});
    assert_eq!(n2.merge(&format!("{PODS}/web/status"), &running).await.0, 403);
    assert_eq!(n1.merge(&format!("{PODS}/web/status"), &running).await.0, 200);
    let labels = json!({"metadata": {"labels": {"app": "other"}}});
    let (code, refused) = n1.merge(&format!("{PODS}/web/status"), &labels).await;
    assert_eq!(
        (code, message(&refused)),
        (403, "pods \"web\" is forbidden: node \"n1\" cannot update labels through pod status")
    );
    let now = json!({"gracePeriodSeconds": 0});
    assert_eq!(n2.delete(&format!("{PODS}/web"), &now).await.0, 403);
    assert_eq!(n1.delete(&format!("{PODS}/web"), &now).await.0, 200);
}

#[tokio::test]
async fn api_682_a_node_alone_makes_mirror_pods_and_for_itself() {
    let fixture = fixture().await;
    let (n1, n2) = (node(&fixture, "n1"), node(&fixture, "n2"));
    let (code, made) = n1.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await;
    assert_eq!(code, 201, "{made}");
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let mut mirror = pod("static");
    mirror["spec"]["nodeName"] = json!("n1");
    let (code, refused) = n1.post(PODS, &mirror).await;
    assert_eq!(code, 403);
    assert!(message(&refused).contains("node \"n1\" can only create mirror pods"), "{refused}");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    mirror["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "old", "controller": true}]);
    let (code, refused) = n1.post(PODS, &mirror).await;
    assert_eq!(code, 403);
    assert!(message(&refused).contains("UID mismatch"), "{refused}");
    mirror["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
    // API-682: nor for another node, and nobody but a node does.
    let (code, refused) = n2.post(PODS, &mirror).await;
    assert_eq!(code, 403);
    assert!(
        message(&refused).contains("node \"n2\" can only create pods with spec.nodeName set to itself"),
        "{refused}"
    );
    for client in [&fixture.admin, &editor(&fixture).await] {
        let (code, refused) = client.post(PODS, &mirror).await;
        let expected = "pods \"static\" is forbidden: only a node can create pods with the \"kubernetes.io/config.mirror\" annotation";
        assert_eq!((code, message(&refused)), (403, expected));
    }
    let (code, made) = n1.post(PODS, &mirror).await;
    assert_eq!(code, 201, "{made}");
    // What a binding carries becomes part of the pod.
    assert_eq!(fixture.admin.post(PODS, &pod("later")).await.0, 201);
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"},
        "metadata": {"name": "later", "annotations": {"kubernetes.io/config.mirror": "x"}}});
    for path in [format!("{PODS}/later/binding"), PODS.replace("/pods", "/bindings")] {
        let (code, refused) = fixture.admin.post(&path, &binding).await;
        assert_eq!((code, message(&refused)), (403, "pods \"later\" is forbidden: may not add mirror pod annotation"));
    }
}

#[tokio::test]
async fn api_676_selectors_narrow_a_question_or_are_told_to_be_ignored() {
    let fixture = fixture().await;
    let of_node = |selector: Value| {
        json!({"user": "system:node:n1", "groups": ["system:nodes"],
            "resourceAttributes": {"verb": "list", "resource": "pods", "fieldSelector": selector}})
    };
    let status = async |spec: Value| review(&fixture.admin, "subjectaccessreviews", spec).await.1["status"].clone();
    assert_eq!(status(of_node(json!({"rawSelector": "spec.nodeName=n1"}))).await["allowed"], true);
    let required = |requirements: Value| of_node(json!({"requirements": requirements}));
    let own = json!({"key": "spec.nodeName", "operator": "In", "values": ["n1"]});
    assert_eq!(status(required(json!([own]))).await["allowed"], true);
    assert_eq!(
        status(required(json!([{"key": "spec.nodeName", "operator": "In", "values": ["n2"]}]))).await["allowed"],
        false
    );
    let ignored = "spec.resourceAttributes.fieldSelector ignored due to parse error";
    assert_eq!(status(required(json!([{"key": "a", "operator": "Exists"}]))).await["evaluationError"], ignored);
    assert_eq!(status(of_node(json!({"rawSelector": "a"}))).await["evaluationError"], ignored);
    let partly = status(required(json!([own, {"key": "a", "operator": "Newer", "values": ["b"]}]))).await;
    assert_eq!(partly["allowed"], true);
    assert_eq!(partly["evaluationError"], "spec.resourceAttributes.fieldSelector partially ignored due to parse error");
    let labels = |selector: Value| json!({"resourceAttributes": {"verb": "list", "resource": "pods", "labelSelector": selector}});
    let (_, fine) =
        review(&fixture.admin, "selfsubjectaccessreviews", labels(json!({"rawSelector": "a in (b)"}))).await;
    assert_eq!(fine["status"].get("evaluationError"), None);
    let (_, odd) = review(&fixture.admin, "selfsubjectaccessreviews", labels(json!({"rawSelector": "a in"}))).await;
    assert_eq!(odd["status"]["evaluationError"], "spec.resourceAttributes.labelSelector ignored due to parse error");

    let wrong = json!({"resourceAttributes": {"verb": "list", "resource": "pods",
        "fieldSelector": {"rawSelector": "a=b", "requirements": [{"operator": "In", "values": []}]},
        "labelSelector": {}}});
    let (code, refused) = review(&fixture.admin, "selfsubjectaccessreviews", wrong).await;
    assert_eq!(code, 422);
    for detail in [
        "spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements",
        "spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified",
        "spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        "spec.resourceAttributes.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required",
    ] {
        assert!(message(&refused).contains(detail), "{refused}");
    }
    let (_, refused) = review(
        &fixture.admin,
        "selfsubjectaccessreviews",
        labels(json!({"requirements": [{"key": "a b", "operator": "Exists", "values": ["c d"]}]})),
    )
    .await;
    for detail in [
        "requirements[0].key: Invalid value: \"a b\"",
        "requirements[0].values: Forbidden",
        "requirements[0].values[0]: Invalid value: \"c d\"",
    ] {
        assert!(message(&refused).contains(detail), "{refused}");
    }
}

#[tokio::test]
async fn api_128_a_review_has_no_table() {
    let fixture = fixture().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    for (accept, expected) in [(table.to_owned(), 406), (format!("{table},application/json"), 201)] {
        let request = http::Request::builder()
            .method("POST")
            .uri("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("accept", &accept)
            .header("content-type", "application/json");
        let body = http_body_util::Full::new(review.to_string().into());
        let response = fixture.admin.send(request.body(body).unwrap()).await;
        assert_eq!(response.status(), expected);
        let answer = crate::fixture::json_of(response).await;
        match expected {
            406 => assert!(
                answer["message"].as_str().unwrap().starts_with("only the following media types are accepted: ")
            ),
            _ => assert_eq!(answer["status"]["allowed"], true, "{answer}"),
        }
    }
}
