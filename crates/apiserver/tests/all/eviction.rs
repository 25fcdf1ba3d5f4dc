//! Evictions: pods go as far as their disruption budgets allow.

use crate::fixture::{Client, Fixture, fixture, pod};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A pod on a node; `Running`, and ready or not.
async fn running(fixture: &Fixture, name: &str, is_ready: bool) -> Value {
    let mut doc = pod(name);
    doc["metadata"]["labels"] = json!({"app": "web"});
    assert_eq!(fixture.admin.post(PODS, &doc).await.0, 201);
    assert_eq!(fixture.admin.bind(name, "n").await.0, 201);
    let ready = if is_ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    let (code, pod) = fixture.admin.merge(&format!("{PODS}/{name}/status"), &status).await;
    assert_eq!(code, 200, "{pod}");
    pod
}

/// A budget for `app=web` with this status, seen by its controller.
async fn budget(admin: &Client, name: &str, spec: Value, status: Value) {
    let mut doc = json!({"kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec});
    doc["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    let (code, made) = admin.post(BUDGETS, &doc).await;
    assert_eq!(code, 201, "{made}");
    let mut status = json!({"status": status});
    if status["status"]["observedGeneration"].is_null() {
        status["status"]["observedGeneration"] = json!(1);
    }
    let (code, made) = admin.merge(&format!("{BUDGETS}/{name}/status"), &status).await;
    assert_eq!(code, 200, "{made}");
}

fn healthy(allowed: i64, current: i64, desired: i64) -> Value {
    json!({"disruptionsAllowed": allowed, "currentHealthy": current, "desiredHealthy": desired, "expectedPods": 3})
}

async fn evict_with(admin: &Client, name: &str, options: Value) -> (u16, Value) {
    let eviction = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name},
        "deleteOptions": options});
    admin.post(&format!("{PODS}/{name}/eviction"), &eviction).await
}

async fn evict(admin: &Client, name: &str) -> (u16, Value) {
    evict_with(admin, name, Value::Null).await
}

async fn is_there(admin: &Client, name: &str) -> bool {
    let (code, pod) = admin.get(&format!("{PODS}/{name}")).await;
    code == 200 && pod["metadata"]["deletionTimestamp"].is_null()
}

#[tokio::test]
async fn api_603_tc_208_an_evicted_pod_knows_why_it_goes() {
    let fixture = fixture().await;
    running(&fixture, "a", true).await;
    let (code, status) = evict_with(&fixture.admin, "a", json!({"gracePeriodSeconds": 7})).await;
    assert_eq!((code, &status["status"], &status["code"]), (201, &json!("Success"), &json!(201)));
    let (_, pod) = fixture.admin.get(&format!("{PODS}/a")).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 7);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        target,
        &json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    );
}

#[tokio::test]
async fn api_597_an_eviction_names_its_pod() {
    let fixture = fixture().await;
    running(&fixture, "a", true).await;
    let path = format!("{PODS}/a/eviction");
    let (code, status) = fixture.admin.post(&path, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (400, "name in URL does not match name in Eviction object")
    );
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
    assert_eq!(fixture.admin.post(&path, &other).await.0, 400);
    assert_eq!(evict(&fixture.admin, "nope").await.0, 404);
    assert!(is_there(&fixture.admin, "a").await);
    let old = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "a"}});
    assert_eq!(fixture.admin.post(&path, &old).await.0, 201);
    assert!(!is_there(&fixture.admin, "a").await);
}

#[tokio::test]
async fn api_602_tc_214_a_budget_is_charged_until_it_is_used_up() {
    let fixture = fixture().await;
    for name in ["a", "b", "c"] {
        running(&fixture, name, true).await;
    }
    budget(&fixture.admin, "web", json!({"minAvailable": 1}), healthy(2, 3, 1)).await;
    let (one, two, three) =
        tokio::join!(evict(&fixture.admin, "a"), evict(&fixture.admin, "b"), evict(&fixture.admin, "c"));
    let mut codes = [one.0, two.0, three.0];
    codes.sort_unstable();
    assert_eq!(codes, [201, 201, 429], "never more than it allows");
    let (_, budget) = fixture.admin.get(&format!("{BUDGETS}/web")).await;
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(budget["status"]["disruptedPods"].as_object().unwrap().len(), 2);
    let condition = &budget["status"]["conditions"][0];
    assert_eq!(
        [&condition["type"], &condition["status"], &condition["reason"]],
        ["DisruptionAllowed", "False", "InsufficientPods"]
    );
}

#[tokio::test]
async fn api_601_tc_212_a_budget_says_why_not() {
    let fixture = fixture().await;
    running(&fixture, "a", true).await;
    budget(&fixture.admin, "web", json!({"minAvailable": 3}), healthy(0, 2, 3)).await;
    let (code, status) = evict(&fixture.admin, "a").await;
    assert_eq!(code, 429);
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "reason": "TooManyRequests", "code": 429, "details": {"causes": [{"reason": "DisruptionBudget",
                "message": "The disruption budget web needs 3 healthy pods and has 2 currently"}]}})
    );
    let cause = async |status: Value| {
        fixture.admin.merge(&format!("{BUDGETS}/web/status"), &json!({"status": status})).await;
        let (code, status) = evict(&fixture.admin, "a").await;
        (code, status["details"]["causes"][0]["message"].as_str().unwrap_or_default().to_owned())
    };
    let text = "The disruption budget web does not allow evicting pods currently";
    assert_eq!(cause(json!({"currentHealthy": 4})).await, (429, text.to_owned()));
    let condition = |reason: &str| {
        json!({"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "it broke",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
    };
    assert_eq!(cause(condition("Odd")).await, (429, format!("{text} (Odd): it broke")));
    assert_eq!(cause(condition("SyncFailed")).await, (429, format!("{text} because it failed sync: it broke")));
    let spec = json!({"spec": {"minAvailable": 1}});
    fixture.admin.merge(&format!("{BUDGETS}/web"), &spec).await;
    let (code, status) = evict(&fixture.admin, "a").await;
    assert_eq!((code, &status["details"]["retryAfterSeconds"]), (429, &json!(10)));
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "The disruption budget web is still being processed by the server."
    );
    assert!(is_there(&fixture.admin, "a").await);
}

#[tokio::test]
async fn api_598_tc_209_pods_that_do_nothing_go_without_asking() {
    let fixture = fixture().await;
    budget(&fixture.admin, "web", json!({"minAvailable": 3}), healthy(0, 2, 3)).await;
    for phase in ["Pending", "Succeeded", "Failed"] {
        running(&fixture, "a", true).await;
        let status = json!({"status": {"phase": phase}});
        assert_eq!(fixture.admin.merge(&format!("{PODS}/a/status"), &status).await.0, 200);
        assert_eq!(evict_with(&fixture.admin, "a", json!({"gracePeriodSeconds": 0})).await.0, 201, "{phase}");
        assert!(!is_there(&fixture.admin, "a").await);
    }
    running(&fixture, "b", true).await;
    fixture.admin.call("DELETE", &format!("{PODS}/b"), "", &Value::Null).await;
    assert_eq!(evict(&fixture.admin, "b").await.0, 201, "it is going anyway");
}

#[tokio::test]
async fn api_600_tc_211_a_pod_that_is_not_ready_may_be_free_of_its_budget() {
    let fixture = fixture().await;
    running(&fixture, "a", false).await;
    budget(&fixture.admin, "web", json!({"minAvailable": 3}), healthy(0, 2, 3)).await;
    assert_eq!(evict(&fixture.admin, "a").await.0, 429, "too few are healthy");
    fixture.admin.merge(&format!("{BUDGETS}/web/status"), &json!({"status": {"currentHealthy": 3}})).await;
    assert_eq!(evict(&fixture.admin, "a").await.0, 201);
    fixture.admin.merge(&format!("{BUDGETS}/web/status"), &json!({"status": {"currentHealthy": 0}})).await;
    running(&fixture, "b", false).await;
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    fixture.admin.merge(&format!("{BUDGETS}/web"), &always).await;
    assert_eq!(evict(&fixture.admin, "b").await.0, 201);
    let (_, budget) = fixture.admin.get(&format!("{BUDGETS}/web")).await;
    assert_eq!(budget["status"].get("disruptedPods"), None, "nothing was charged");
}

#[tokio::test]
async fn api_599_tc_210_two_budgets_for_one_pod_are_one_too_many() {
    let fixture = fixture().await;
    running(&fixture, "a", true).await;
    budget(&fixture.admin, "one", json!({"minAvailable": 0}), healthy(1, 1, 0)).await;
    budget(&fixture.admin, "two", json!({"minAvailable": 0}), healthy(1, 1, 0)).await;
    let (code, status) = evict(&fixture.admin, "a").await;
    assert_eq!((code, &status["status"], &status["code"]), (201, &json!("Failure"), &json!(500)));
    assert_eq!(
        status["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    assert!(is_there(&fixture.admin, "a").await);
    // Others speak of others, or of nobody.
    fixture.admin.call("DELETE", &format!("{BUDGETS}/two"), "", &Value::Null).await;
    for (name, selector) in [("three", json!({"matchLabels": {"app": "db"}})), ("four", Value::Null)] {
        let doc = json!({"kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": {"selector": selector}});
        assert_eq!(fixture.admin.post(BUDGETS, &doc).await.0, 201);
    }
    assert_eq!(evict(&fixture.admin, "a").await.1["status"], "Success");
}

#[tokio::test]
async fn tc_213_a_dry_run_asks_and_changes_nothing() {
    let fixture = fixture().await;
    running(&fixture, "a", true).await;
    budget(&fixture.admin, "web", json!({"minAvailable": 0}), healthy(1, 1, 0)).await;
    let (_, before) = fixture.admin.get(&format!("{PODS}/a")).await;
    let (_, budget_before) = fixture.admin.get(&format!("{BUDGETS}/web")).await;
    assert_eq!(evict_with(&fixture.admin, "a", json!({"dryRun": ["All"]})).await.0, 201);
    let eviction = json!({"metadata": {"name": "a"}});
    assert_eq!(fixture.admin.post(&format!("{PODS}/a/eviction?dryRun=All"), &eviction).await.0, 201);
    assert_eq!(fixture.admin.get(&format!("{PODS}/a")).await.1, before);
    assert_eq!(fixture.admin.get(&format!("{BUDGETS}/web")).await.1, budget_before);
    fixture.admin.merge(&format!("{BUDGETS}/web/status"), &json!({"status": {"disruptionsAllowed": 0}})).await;
    assert_eq!(evict_with(&fixture.admin, "a", json!({"dryRun": ["All"]})).await.0, 429);
}

#[tokio::test]
async fn tc_208_preconditions_of_an_eviction_are_kept() {
    let fixture = fixture().await;
    let pod = running(&fixture, "a", true).await;
    let (code, status) = evict_with(&fixture.admin, "a", json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!((code, status["reason"].as_str().unwrap()), (409, "Conflict"));
    assert_eq!(evict_with(&fixture.admin, "a", json!({"preconditions": {"resourceVersion": "1"}})).await.0, 409);
    assert!(is_there(&fixture.admin, "a").await);
    let (_, now) = fixture.admin.get(&format!("{PODS}/a")).await;
    assert_eq!(now["metadata"]["resourceVersion"], pod["metadata"]["resourceVersion"], "nothing was written");
    let exact = json!({"preconditions": {"uid": pod["metadata"]["uid"],
        "resourceVersion": pod["metadata"]["resourceVersion"]}});
    assert_eq!(evict_with(&fixture.admin, "a", exact).await.0, 201);
    assert!(!is_there(&fixture.admin, "a").await);
}

#[tokio::test]
async fn api_189_a_budget_is_replaced_only_by_who_has_seen_it() {
    let fixture = fixture().await;
    budget(&fixture.admin, "web", json!({"minAvailable": 1}), healthy(0, 0, 0)).await;
    let doc = json!({"kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": {"minAvailable": 2}});
    let (code, status) = fixture.admin.put(&format!("{BUDGETS}/web"), &doc).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "PodDisruptionBudget.policy \"web\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

#[tokio::test]
async fn api_727_a_job_knows_its_uid_when_it_is_made() {
    let fixture = fixture().await;
    let job = json!({"kind": "Job", "metadata": {"generateName": "sum-"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}}});
    let (code, made) = fixture.admin.post("/apis/batch/v1/namespaces/default/jobs", &job).await;
    assert_eq!(code, 201, "{made}");
    let (name, uid) = (&made["metadata"]["name"], &made["metadata"]["uid"]);
    assert_eq!(made["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    assert_eq!(
        made["spec"]["template"]["metadata"]["labels"],
        json!({"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
            "controller-uid": uid, "job-name": name})
    );
}
