//! Admission judges what will be stored, however it was said.

use apiserver::Identity;
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, fixture, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const APPLY: &str = "application/apply-patch+yaml";

async fn enforcing(level: &str) -> Fixture {
    let fixture = fixture().await;
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    assert_eq!(fixture.admin.merge("/api/v1/namespaces/default", &labels).await.0, 200);
    fixture
}

/// A pod that `restricted` takes.
fn tame(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["securityContext"] = json!({"allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    pod
}

/// POST and apply answer the same.
async fn made(client: &Client, pod: &Value) -> (u16, Value) {
    let name = pod["metadata"]["name"].as_str().unwrap();
    let dry = format!("{PODS}/{name}?fieldManager=m&dryRun=All");
    let (applied, _) = client.call("PATCH", &dry, APPLY, pod).await;
    let (posted, answer) = client.post(PODS, pod).await;
    assert_eq!(applied, posted, "{answer}");
    (posted, answer)
}

#[tokio::test]
async fn api_717_volumes_are_what_they_will_be_in_whatever_order() {
    let fixture = enforcing("restricted").await;
    let volumes = [
        json!({"name": "v", "emptyDir": null, "hostPath": {"path": "/"}}),
        json!({"emptyDir": null, "hostPath": {"path": "/"}, "name": "v"}),
        json!({"configMap": null, "secret": null, "name": "v", "hostPath": {"path": "/"}}),
        json!({"name": "v", "ephemeral": null, "nfs": {"server": "s", "path": "/"}}),
        json!({"anything": {}, "hostPath": {"path": "/"}, "name": "v"}),
    ];
    for volume in &volumes {
        let mut pod = tame("x");
        pod["spec"]["volumes"] = json!([volume]);
        let (code, answer) = fixture.admin.post(PODS, &pod).await;
        assert_eq!(code, 403, "{volume}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("restricted volume types (volume \"v\""), "{answer}");
    }
    let mut two = tame("x");
    two["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]);
    let (code, answer) = made(&fixture.admin, &two).await;
    assert_eq!(code, 422, "{answer}");
    // Nothing at all becomes an empty directory.
    let mut none = tame("none");
    none["spec"]["volumes"] = json!([{"name": "v", "hostPath": null}]);
    let (code, stored) = made(&fixture.admin, &none).await;
    assert_eq!(code, 201, "{stored}");
    assert!(stored["spec"]["volumes"][0]["emptyDir"].is_object(), "{stored}");
}

#[tokio::test]
async fn api_719_what_is_null_is_not_said() {
    let fixture = enforcing("restricted").await;
    let nulls: [fn(&mut Value); 6] = [
        |pod| pod["spec"]["containers"][0]["securityContext"] = Value::Null,
        |pod| pod["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] = Value::Null,
        |pod| pod["spec"]["containers"][0]["securityContext"]["seccompProfile"] = Value::Null,
        |pod| pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = Value::Null,
        |pod| pod["spec"]["containers"][0]["securityContext"]["capabilities"]["drop"] = json!([null]),
        |pod| pod["spec"]["initContainers"] = json!([{"name": "i", "image": "x", "securityContext": null}]),
    ];
    for (index, change) in nulls.into_iter().enumerate() {
        let mut pod = tame("x");
        change(&mut pod);
        let (code, answer) = made(&fixture.admin, &pod).await;
        assert_eq!(code, 403, "{index}: {answer}");
    }
    // What is not a field is not stored either.
    let mut odd = tame("odd");
    odd["spec"]["hostnetwork"] = json!(true);
    odd["spec"]["HostPID"] = json!(true);
    let (code, stored) = fixture.admin.post(PODS, &odd).await;
    assert_eq!(code, 201, "{stored}");
    for field in ["hostnetwork", "HostPID", "hostNetwork", "hostPID"] {
        assert!(stored["spec"][field].is_null(), "{stored}");
    }
}

#[tokio::test]
async fn api_717_containers_that_come_later_are_judged_too() {
    let fixture = enforcing("baseline").await;
    fixture.admin.pod("web").await;
    let path = format!("{PODS}/web/ephemeralcontainers");
    let debugger = json!({"name": "d", "image": "x", "securityContext": {"capabilities": null, "privileged": true}});
    let later = json!({"spec": {"ephemeralContainers": [debugger]}});
    for kind in ["application/strategic-merge-patch+json", "application/merge-patch+json"] {
        let (code, answer) = fixture.admin.call("PATCH", &path, kind, &later).await;
        assert_eq!(code, 403, "{answer}");
    }
    let (_, mut whole) = fixture.admin.get(&format!("{PODS}/web")).await;
    whole["spec"]["ephemeralContainers"] = later["spec"]["ephemeralContainers"].clone();
    assert_eq!(fixture.admin.put(&path, &whole).await.0, 403);
    let (_, kept) = fixture.admin.get(&format!("{PODS}/web")).await;
    assert!(kept["spec"]["ephemeralContainers"].is_null(), "{kept}");
}

#[tokio::test]
async fn api_537_an_unmasked_proc_needs_users_of_its_own() {
    let fixture = fixture().await;
    let text = "`hostUsers` must be false to use `Unmasked`";
    for users in [Value::Null, json!(true)] {
        for list in ["containers", "initContainers"] {
            let mut pod = pod("x");
            pod["spec"]["hostUsers"] = users.clone();
            let container = json!({"name": "u", "image": "x", "securityContext": {"procMount": "Unmasked"}});
            pod["spec"][list] = json!([container]);
            if list != "containers" {
                pod["spec"]["containers"] = json!([{"name": "main", "image": "x"}]);
            }
            let (code, answer) = made(&fixture.admin, &pod).await;
            assert_eq!(code, 422, "{answer}");
            let expected = format!("spec.{list}[0].securityContext.procMount: Invalid value: \"Unmasked\": {text}");
            assert!(answer["message"].as_str().unwrap().contains(&expected), "{answer}");
            let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]});
            let deployment = json!({"metadata": {"name": "x"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
            let (code, answer) = fixture.admin.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await;
            assert_eq!(code, 422, "{answer}");
            assert!(answer["message"].as_str().unwrap().contains(text), "{answer}");
        }
    }
    let mut own = pod("own");
    own["spec"]["hostUsers"] = json!(false);
    own["spec"]["containers"][0]["securityContext"] = json!({"procMount": "Unmasked"});
    let (code, answer) = made(&fixture.admin, &own).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn api_707_an_account_limits_the_secrets_of_its_pods() {
    let fixture = fixture().await;
    let account = json!({"metadata": {"name": "robot", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "mine"}]});
    assert_eq!(fixture.admin.post(ACCOUNTS, &account).await.0, 201);
    let with = |name: &str, secret: &str| {
        let mut pod = pod(name);
        pod["spec"]["serviceAccountName"] = json!("robot");
        pod["spec"]["volumes"] = json!([{"name": "v", "configMap": null, "secret": {"secretName": secret}}]);
        pod
    };
    let (code, answer) = made(&fixture.admin, &with("x", "other")).await;
    assert_eq!(code, 403);
    let expected = "pods \"x\" is forbidden: volume with secret.secretName=\"other\" is not allowed because service account robot does not reference that secret";
    assert_eq!(answer["message"], expected);
    let (code, answer) = made(&fixture.admin, &with("web", "mine")).await;
    assert_eq!(code, 201, "{answer}");
    let debugger = json!({"name": "d", "image": "x", "envFrom": [{"secretRef": {"name": "other"}}]});
    let later = json!({"spec": {"ephemeralContainers": [debugger]}});
    let (code, answer) = fixture.admin.merge(&format!("{PODS}/web/ephemeralcontainers"), &later).await;
    assert_eq!(code, 403, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("ephemeral container d with envFrom referencing"), "{answer}");
    // Nor as a mirror, which has no account.
    let mut mirror = pod("mirror");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": null});
    mirror["spec"]["nodeName"] = json!("n1");
    mirror["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "other"}}]);
    let (code, answer) = fixture.admin.post(PODS, &mirror).await;
    assert_eq!(code, 403, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("a mirror pod may not reference secrets"), "{answer}");
}

fn slice(name: &str, node: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {"nodeName": node, "driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
}

#[tokio::test]
async fn api_678_a_node_has_to_do_with_its_own_resource_slices_alone() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    let n1 = Client(fixture.api.service(Identity::node("n1")));
    assert_eq!(admin.post(SLICES, &slice("theirs", "n2")).await.0, 201);
    let (code, answer) = n1.post(SLICES, &slice("x", "n2")).await;
    assert_eq!(code, 403);
    let expected = "resourceslices.resource.k8s.io \"x\" is forbidden: can only create ResourceSlice with the same NodeName as the requesting node";
    assert_eq!(answer["message"], expected);
    for spec in [json!({"nodeName": null, "allNodes": true}), json!({"nodeName": ""})] {
        let mut doc = slice("x", "n1");
        doc["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        assert_eq!(n1.post(SLICES, &doc).await.0, 403, "{doc}");
        let path = format!("{SLICES}/x?fieldManager=m");
        assert_eq!(n1.call("PATCH", &path, APPLY, &doc).await.0, 403, "{doc}");
    }
    assert_eq!(n1.post(SLICES, &slice("mine", "n1")).await.0, 201);
    assert_eq!(n1.get(&format!("{SLICES}/mine")).await.0, 200);
    let (code, answer) = n1.merge(&format!("{SLICES}/mine"), &json!({"spec": {"nodeName": "n2"}})).await;
    assert_eq!(code, 422, "{answer}");
    for (method, path) in [
        ("GET", format!("{SLICES}/theirs")),
        ("DELETE", format!("{SLICES}/theirs")),
        ("GET", SLICES.to_owned()),
        ("DELETE", SLICES.to_owned()),
        ("DELETE", format!("{SLICES}?fieldSelector=spec.nodeName%3Dn2")),
        ("DELETE", format!("{SLICES}?fieldSelector=spec.nodeName!%3Dn1")),
        ("GET", format!("{SLICES}?watch=true&fieldSelector=spec.driver%3Dd")),
    ] {
        let (code, answer) = n1.call(method, &path, "application/json", &Value::Null).await;
        assert_eq!(code, 403, "{method} {path}: {answer}");
    }
    assert_eq!(n1.merge(&format!("{SLICES}/theirs"), &json!({"metadata": {"labels": {"a": "b"}}})).await.0, 403);
    let own = format!("{SLICES}?fieldSelector=spec.nodeName%3Dn1");
    assert_eq!(n1.get(&own).await.1["items"].as_array().unwrap().len(), 1);
    assert_eq!(n1.delete(&own, &Value::Null).await.0, 200);
    assert_eq!(admin.get(&format!("{SLICES}/mine")).await.0, 404);
    assert_eq!(admin.get(&format!("{SLICES}/theirs")).await.0, 200);
    // Whatever else it was allowed, it deletes none but its own.
    admin.allow("system:node:n1", json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])).await;
    assert_eq!(n1.post(SLICES, &slice("mine", "n1")).await.0, 201);
    assert_eq!(n1.delete(SLICES, &Value::Null).await.0, 403);
    assert_eq!(n1.merge(&format!("{SLICES}/theirs"), &json!({"metadata": {"labels": {"a": "b"}}})).await.0, 403);
    assert_eq!(admin.get(&format!("{SLICES}/mine")).await.0, 404);
    assert_eq!(admin.get(&format!("{SLICES}/theirs")).await.0, 200);
}
