//! Who may do what: roles, bindings, and what nobody may give away.

use crate::fixture::{Client, Fixture, fixture, fixture_with};
use apiserver::{Config, Identity};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn user(fixture: &Fixture, name: &str) -> Client {
    Client(fixture.api.service(Identity::new(name, ["dev"])))
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

async fn names(client: &Client, path: &str) -> Vec<String> {
    let (code, list) = client.get(path).await;
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn api_655_a_binding_counts_from_the_next_request_on() {
    let fixture = fixture().await;
    let jane = user(&fixture, "jane");
    assert_eq!(jane.get(PODS).await.0, 403);
    let role = json!({"kind": "Role", "metadata": {"name": "reader"},
        "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]});
    let (code, _) = fixture.admin.post(&format!("{RBAC}/namespaces/default/roles"), &role).await;
    assert_eq!(code, 201);
    let binding = json!({"kind": "RoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "jane"}]});
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    assert_eq!(fixture.admin.post(&bindings, &binding).await.0, 201);
    assert_eq!(jane.get(PODS).await.0, 200);
    assert_eq!(jane.get(&format!("{PODS}?watch=true")).await.0, 403);
    assert_eq!(jane.get("/api/v1/pods").await.0, 403);
    assert_eq!(jane.get("/api/v1/namespaces/kube-system/pods").await.0, 403);
    assert_eq!(jane.get(&format!("{PODS}/web/log")).await.0, 403);
    assert_eq!(jane.get(&format!("{PODS}/web")).await.0, 404);
    fixture.admin.delete(&format!("{bindings}/jane"), &Value::Null).await;
    assert_eq!(jane.get(PODS).await.0, 403);
}

#[tokio::test]
async fn api_655_more_changes_than_history_holds_are_seen() {
    let fixture = fixture().await;
    let jane = user(&fixture, "jane");
    assert_eq!(jane.get(PODS).await.0, 403);
    // The history of this store ends after 64 changes.
    for index in 0..70 {
        let role = json!({"kind": "ClusterRole", "metadata": {"name": format!("r{index}")}, "rules": []});
        assert_eq!(fixture.admin.post(&format!("{RBAC}/clusterroles"), &role).await.0, 201);
    }
    fixture.admin.allow("jane", json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}])).await;
    assert_eq!(jane.get(PODS).await.0, 200);
}

#[tokio::test]
async fn api_660_the_roles_of_upstream_are_there_and_keep_what_they_need() {
    let fixture = fixture().await;
    let roles = names(&fixture.admin, &format!("{RBAC}/clusterroles")).await;
    for name in ["cluster-admin", "admin", "edit", "view", "system:discovery", "system:node", "system:kube-scheduler"] {
        assert!(roles.iter().any(|role| role == name), "{name}");
    }
    let viewer = format!("{RBAC}/clusterroles/system:public-info-viewer");
    let binding = format!("{RBAC}/clusterrolebindings/system:public-info-viewer");
    let (_, before) = fixture.admin.get(&viewer).await;
    fixture.admin.merge(&viewer, &json!({"rules": []})).await;
    fixture.admin.merge(&binding, &json!({"subjects": [{"kind": "User", "name": "jane"}]})).await;
    let kept = format!("{RBAC}/clusterroles/system:heapster");
    let own =
        json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []});
    fixture.admin.merge(&kept, &own).await;
    fixture.api.bootstrap().await.unwrap();
    let (_, after) = fixture.admin.get(&viewer).await;
    let urls = |role: &Value| {
        let rules = role["rules"].as_array().unwrap().clone();
        let mut urls: Vec<String> = rules
            .iter()
            .flat_map(|rule| rule["nonResourceURLs"].as_array().unwrap().clone())
            .map(|url| url.as_str().unwrap().to_owned())
            .collect();
        urls.sort();
        urls
    };
    assert_eq!(urls(&after), urls(&before));
    let (_, binding) = fixture.admin.get(&binding).await;
    let subjects: Vec<&str> =
        binding["subjects"].as_array().unwrap().iter().map(|subject| subject["name"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["jane", "system:authenticated", "system:unauthenticated"], "what was added stays");
    assert_eq!(fixture.admin.get(&kept).await.1["rules"], Value::Null, "who does not want it is left alone");
}

#[tokio::test]
async fn api_659_api_666_view_edit_and_admin_gather_their_rules() {
    let fixture = fixture().await;
    let rules = async |name: &str| fixture.admin.get(&format!("{RBAC}/clusterroles/{name}")).await.1["rules"].clone();
    let (view, admin) = (rules("view").await, rules("admin").await);
    let count = |rules: &Value| rules.as_array().unwrap().len();
    assert!(count(&view) > 10 && count(&admin) > count(&rules("edit").await));
    let own = json!({"kind": "ClusterRole",
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]}]});
    assert_eq!(fixture.admin.post(&format!("{RBAC}/clusterroles"), &own).await.0, 201);
    for name in ["view", "edit", "admin"] {
        assert!(rules(name).await.as_array().unwrap().contains(&own["rules"][0]), "{name}");
    }
    fixture.admin.merge(&format!("{RBAC}/clusterroles/view"), &json!({"rules": []})).await;
    assert_eq!(count(&rules("view").await), count(&view) + 1, "it can not be changed by hand");
    fixture.admin.delete(&format!("{RBAC}/clusterroles/widgets"), &Value::Null).await;
    assert_eq!((rules("view").await, rules("admin").await), (view, admin));
}

#[tokio::test]
async fn api_658_nobody_gives_what_they_do_not_have() {
    let fixture = fixture().await;
    let write = json!({"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]});
    let mut careful = write.clone();
    careful["verbs"] = json!(["get", "create", "update", "patch"]);
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    fixture.admin.allow("jane", json!([careful, pods])).await;
    fixture.admin.allow("root", json!([write])).await;
    let (jane, root) = (user(&fixture, "jane"), user(&fixture, "root"));
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = |name: &str, rules: Value| json!({"kind": "Role", "metadata": {"name": name}, "rules": rules});
    assert_eq!(jane.post(&roles, &role("own", json!([pods]))).await.0, 201);
    let more = json!([pods, {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]}]);
    let (code, refused) = jane.post(&roles, &role("more", more.clone())).await;
    assert_eq!(code, 403);
    assert_eq!(
        message(&refused),
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"jane\" (groups=[\"dev\" \"system:authenticated\"]) \
         is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
    assert_eq!(jane.merge(&format!("{roles}/own"), &json!({"rules": more})).await.0, 403);
    let finalizers = json!({"metadata": {"finalizers": ["example.com/x"]}});
    assert_eq!(jane.merge(&format!("{roles}/own"), &finalizers).await.0, 200);
    assert_eq!(root.post(&roles, &role("more", more)).await.0, 201, "who may escalate may");

    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let binding = |name: &str, kind: &str, role: &str| {
        json!({"kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "User", "name": "joe"}]})
    };
    assert_eq!(jane.post(&bindings, &binding("own", "Role", "own")).await.0, 201);
    assert_eq!(jane.post(&bindings, &binding("more", "Role", "more")).await.0, 403);
    let (code, missing) = jane.post(&bindings, &binding("gone", "ClusterRole", "gone")).await;
    assert_eq!((code, message(&missing)), (404, "clusterrole.rbac.authorization.k8s.io \"gone\" not found"));
    assert_eq!(root.post(&bindings, &binding("more", "ClusterRole", "cluster-admin")).await.0, 201, "who may bind may");

    let gathering = json!({"kind": "ClusterRole", "metadata": {"name": "all"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let (code, refused) = jane.post(&format!("{RBAC}/clusterroles"), &gathering).await;
    assert_eq!(code, 403);
    assert!(message(&refused).ends_with("must have cluster-admin privileges to use the aggregationRule"), "{refused}");
}

#[tokio::test]
async fn api_641_api_664_strangers_see_health_and_version_and_nothing_else() {
    let fixture = fixture_with(Config::default()).await;
    let stranger = Client(fixture.api.anonymous());
    assert_eq!(stranger.get("/version").await.0, 200);
    assert_eq!(stranger.get("/readyz").await.0, 200);
    let (code, refused) = stranger.get("/livez/ping").await;
    assert_eq!(code, 403);
    assert_eq!(message(&refused), "forbidden: User \"system:anonymous\" cannot get path \"/livez/ping\"");
    assert_eq!(stranger.get("/api").await.0, 401);
    assert_eq!(stranger.get(PODS).await.0, 401);
    let wrong = http::Request::get("/version").header("authorization", "Bearer nonsense");
    let response = stranger.send(wrong.body(http_body_util::Full::default()).unwrap()).await;
    assert_eq!(response.status(), 401, "who shows something wrong is nobody");
}

#[tokio::test]
async fn api_662_api_663_everyone_known_may_discover_and_ask_about_themselves() {
    let fixture = fixture().await;
    let jane = user(&fixture, "jane");
    for path in ["/api", "/apis", "/apis/rbac.authorization.k8s.io", "/openapi/v3", "/version", "/healthz"] {
        assert_eq!(jane.get(path).await.0, 200, "{path}");
    }
    for path in ["/", "/metrics", "/livez/ping", "/openid/v1/jwks"] {
        assert_eq!(jane.get(path).await.0, 403, "{path}");
    }
}
