//! Small requests that would cost much.

use podium_misuse::{Answer, Cluster, Trial, pod, trial};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/hostile/configmaps";
/// An answer about what is wrong, with room for a hundred of it.
const ANSWER_MAX: usize = 256 << 10;

fn outcome(answer: &Answer) -> String {
    assert!((200..500).contains(&answer.code), "{answer:?}");
    assert!(answer.body.len() < ANSWER_MAX || answer.code < 300, "an answer of {} bytes", answer.body.len());
    format!("{} ({})", if answer.code < 300 { "served" } else { "refused" }, answer.code)
}

#[test]
fn a_patch_that_doubles_itself_is_stopped() {
    trial("5 JSON patch that doubles by copying", async |cluster: &mut Cluster| {
        cluster
            .tenant
            .post(MAPS, &json!({"metadata": {"name": "bomb", "annotations": {"a": "x".repeat(512)}}}))
            .await
            .ok();
        let doubling = |index: usize| {
            json!({"op": "copy", "from": "/metadata/annotations",
            "path": format!("/metadata/annotations/x{index}")})
        };
        let patch: Vec<Value> = (0..22).map(doubling).collect();
        cluster.tenant.patch("json", &format!("{MAPS}/bomb"), &patch.into()).await.refused(&[400, 413, 422])
    });
}

#[test]
fn a_patch_that_nests_itself_is_stopped() {
    trial("5 JSON patch that nests to depth 160", async |cluster: &mut Cluster| {
        cluster.tenant.post(MAPS, &json!({"metadata": {"name": "deep"}})).await.ok();
        let place = "/metadata/annotations";
        let empty = json!({"op": "add", "path": place, "value": {}});
        let mut patch = vec![empty.clone()];
        for _ in 0..160 {
            patch.push(json!({"op": "move", "from": place, "path": "/y"}));
            patch.push(empty.clone());
            patch.push(json!({"op": "move", "from": "/y", "path": format!("{place}/x")}));
        }
        let path = format!("{MAPS}/deep");
        cluster.tenant.patch("json", &path, &patch.into()).await.refused(&[400, 413, 422]);
        for form in ["merge", "strategic-merge", "apply"] {
            let deep = (0..160).fold(json!({}), |inner, _| json!({"a": inner}));
            let body =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "deep", "annotations": deep}});
            let path = if form == "apply" { format!("{path}?fieldManager=me") } else { path.clone() };
            cluster.tenant.patch(form, &path, &body).await.refused(&[400, 413, 415, 422]);
        }
        "refused (4xx)".to_owned()
    });
}

#[test]
fn a_role_is_not_multiplied_out() {
    trial("6 Role of groups x resources x verbs", async |cluster: &mut Cluster| {
        let names = |prefix: &str, count: usize| (0..count).map(|index| format!("{prefix}{index}")).collect::<Vec<_>>();
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/hostile/roles";
        let rule = json!({"apiGroups": names("g", 200), "resources": names("r", 200), "verbs": names("v", 200)});
        let role = json!({"metadata": {"name": "wide"}, "rules": [rule]});
        outcome(&cluster.landlord.post(roles, &role).await)
    });
}

#[test]
fn long_lists_cost_no_more_than_their_length() {
    Trial::new("6 lists of thousands").growth_max_mb(192.0).play(async |cluster: &mut Cluster| {
        let owners: Vec<Value> = (0..8000)
            .map(|index| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{index}"), "uid": format!("u{index}")}))
            .collect();
        let map = json!({"metadata": {"name": "owned", "ownerReferences": owners}});
        outcome(&cluster.tenant.post(MAPS, &map).await);
        let ports: Vec<Value> = (1..6000).map(|port| json!({"containerPort": port, "name": format!("p{port}")})).collect();
        let mut ported = pod("ported");
        ported["spec"]["containers"][0]["ports"] = ports.into();
        outcome(&cluster.tenant.post("/api/v1/namespaces/hostile/pods", &ported).await);
        let env: Vec<Value> = (0..8000).map(|index| json!({"name": format!("e{index}"), "value": "1"})).collect();
        cluster.tenant.post("/api/v1/namespaces/hostile/pods", &pod("patched")).await.ok();
        let patch = json!({"spec": {"containers": [{"name": "main", "env": env}]}});
        outcome(&cluster.tenant.patch("strategic-merge", "/api/v1/namespaces/hostile/pods/patched", &patch).await);
        let items: Vec<Value> = (0..3000).map(|_| json!("x")).collect();
        let mut removals = vec![json!({"op": "add", "path": "/x", "value": items})];
        removals.extend((0..3000).map(|_| json!({"op": "remove", "path": "/x/0"})));
        cluster.tenant.post(MAPS, &json!({"metadata": {"name": "removed"}})).await.ok();
        outcome(&cluster.tenant.patch("json", &format!("{MAPS}/removed"), &removals.into()).await);
        "served or refused, at its size".to_owned()
    });
}

#[test]
fn a_key_given_ten_thousand_times_is_told_in_short() {
    trial("6 repeated keys", async |cluster: &mut Cluster| {
        let keys: Vec<String> = (0..20_000).map(|_| r#""a":"1""#.to_owned()).collect();
        let body = format!(r#"{{"metadata":{{"name":"repeated"}},"data":{{{}}}}}"#, keys.join(","));
        let headers = [("content-type", "application/json")];
        let answer = cluster.tenant.ask("POST", &format!("{MAPS}?fieldValidation=Strict"), &headers, body).await;
        answer.refused(&[400, 413, 422]);
        outcome(&answer)
    });
}

#[test]
fn a_thousand_errors_are_told_in_short() {
    trial("6 answer of ten thousand errors", async |cluster: &mut Cluster| {
        let finalizers: Vec<String> = (0..40_000).map(|index| format!("/{index}")).collect();
        let map = json!({"metadata": {"name": "wrong", "finalizers": finalizers}});
        let answer = cluster.tenant.post(MAPS, &map).await;
        answer.refused(&[400, 413, 422]);
        outcome(&answer)
    });
}
