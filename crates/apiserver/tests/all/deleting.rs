//! What a DELETE answers and what it leaves (spec 02, sections 1.1 and 1.2).

use std::time::Duration;

use crate::fixture::{Client, fixture, pod};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WEB: &str = "/api/v1/namespaces/default/pods/web";

async fn bound(admin: &Client) -> Value {
    admin.pod("web").await;
    admin.bind("web", "n").await;
    admin.get(WEB).await.1
}

fn mark(pod: &Value) -> (&str, i64) {
    let meta = &pod["metadata"];
    (meta["deletionTimestamp"].as_str().unwrap(), meta["deletionGracePeriodSeconds"].as_i64().unwrap())
}

#[tokio::test]
async fn tc_013_tc_016_tc_019_a_delete_notes_grace_and_deadline() {
    let admin = fixture().await.admin;
    let before = bound(&admin).await;
    let (code, pod) = admin.delete(WEB, &Value::Null).await;
    assert_eq!((code, mark(&pod)), (200, ("2026-01-01T00:00:30Z", 30)), "the usual grace");
    assert_eq!(pod["metadata"]["generation"], 2);
    assert_ne!(pod["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(pod["status"], before["status"]);
}

#[tokio::test]
async fn tc_014_options_come_in_the_body_or_in_the_query() {
    let admin = fixture().await.admin;
    bound(&admin).await;
    let (_, pod) = admin.delete(&format!("{WEB}?gracePeriodSeconds=7"), &Value::Null).await;
    assert_eq!(mark(&pod).1, 7);
    let kind = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 5});
    let (_, pod) = admin.delete(&format!("{WEB}?gracePeriodSeconds=1"), &kind).await;
    assert_eq!(mark(&pod).1, 5, "the body wins");
    assert_eq!(admin.delete(WEB, &json!("nonsense")).await.0, 400);
    assert_eq!(admin.delete(WEB, &json!({"gracePeriodSeconds": "5"})).await.0, 400);
}

#[tokio::test]
async fn tc_015_api_380_wrong_options_are_refused() {
    let admin = fixture().await.admin;
    bound(&admin).await;
    for (options, field, words) in [
        (
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
            "propagationPolicy",
            "orphanDependents and deletionPropagation cannot be both set",
        ),
        (
            json!({"propagationPolicy": "Sideways"}),
            "propagationPolicy",
            "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
        ),
        (json!({"dryRun": ["Some"]}), "dryRun", "supported values: \"All\""),
    ] {
        let (code, status) = admin.delete(WEB, &options).await;
        assert_eq!((code, &status["details"]["kind"]), (422, &json!("DeleteOptions")), "{status}");
        assert_eq!(status["details"]["causes"][0]["field"], field);
        assert!(status["message"].as_str().unwrap().contains(words), "{status}");
    }
    assert_eq!(admin.get(WEB).await.1["metadata"].get("deletionTimestamp"), None);
}

#[tokio::test]
async fn tc_017_api_383_nobody_waits_for_pods_that_do_not_run() {
    let admin = fixture().await.admin;
    admin.pod("web").await;
    let (code, last) = admin.delete(WEB, &json!({"gracePeriodSeconds": 60})).await;
    assert_eq!((code, mark(&last).1), (200, 0));
    assert_eq!(admin.get(WEB).await.0, 404);
    bound(&admin).await;
    admin.merge(&format!("{WEB}/status"), &json!({"status": {"phase": "Succeeded"}})).await;
    admin.delete(WEB, &json!({"gracePeriodSeconds": 60})).await;
    assert_eq!(admin.get(WEB).await.0, 404);
}

#[tokio::test]
async fn tc_018_api_383_less_than_nothing_is_one_second() {
    let admin = fixture().await.admin;
    bound(&admin).await;
    assert_eq!(mark(&admin.delete(WEB, &json!({"gracePeriodSeconds": -5})).await.1).1, 1);
}

#[tokio::test]
async fn tc_020_watchers_see_the_mark_before_the_end() {
    let admin = fixture().await.admin;
    bound(&admin).await;
    let mut events = admin.watch(&format!("{PODS}?watch=true&resourceVersion=0")).await;
    assert_eq!(events.brief().await, "ADDED web");
    admin.delete(WEB, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(events.brief().await, "MODIFIED web");
    assert_eq!(events.brief().await, "DELETED web");
}

#[tokio::test]
async fn tc_021_tc_022_api_384_api_385_a_deletion_is_only_ever_hastened() {
    let fixture = fixture().await;
    let admin = &fixture.admin;
    bound(admin).await;
    admin.delete(WEB, &json!({"gracePeriodSeconds": 30})).await;
    fixture.clock.advance(Duration::from_secs(10));
    for longer in [Value::Null, json!({"gracePeriodSeconds": 30}), json!({"gracePeriodSeconds": 90})] {
        let (code, pod) = admin.delete(WEB, &longer).await;
        assert_eq!((code, mark(&pod)), (200, ("2026-01-01T00:00:30Z", 30)));
    }
    let (_, pod) = admin.delete(WEB, &json!({"gracePeriodSeconds": 20})).await;
    assert_eq!(mark(&pod), ("2026-01-01T00:00:20Z", 20));
    let (_, pod) = admin.delete(WEB, &json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(mark(&pod), ("2026-01-01T00:00:10Z", 1), "not into the past");
    assert_eq!(pod["metadata"]["generation"], 2, "the first delete only");
    admin.delete(WEB, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(admin.get(WEB).await.0, 404);
}

#[tokio::test]
async fn tc_023_api_385_no_update_takes_a_deletion_back() {
    let admin = fixture().await.admin;
    bound(&admin).await;
    let (_, marked) = admin.delete(WEB, &Value::Null).await;
    let undo = json!({"metadata": {"deletionTimestamp": null, "deletionGracePeriodSeconds": null}});
    for path in [WEB.to_owned(), format!("{WEB}/status")] {
        let (code, pod) = admin.merge(&path, &undo).await;
        assert_eq!((code, mark(&pod)), (200, mark(&marked)), "{path}");
    }
    let later = json!({"metadata": {"deletionGracePeriodSeconds": 99}});
    let (code, status) = admin.merge(WEB, &later).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
}

#[tokio::test]
async fn tc_024_time_alone_removes_nothing() {
    let fixture = fixture().await;
    bound(&fixture.admin).await;
    fixture.admin.delete(WEB, &Value::Null).await;
    fixture.clock.advance(Duration::from_secs(3600));
    assert_eq!(fixture.admin.get(WEB).await.0, 200);
}

#[tokio::test]
async fn tc_025_api_381_only_what_was_meant_is_deleted() {
    let admin = fixture().await.admin;
    let pod = bound(&admin).await;
    let meta = &pod["metadata"];
    for (condition, words) in [
        (
            json!({"uid": "other"}),
            format!(
                "the UID in the precondition (other) does not match the UID in record ({}). The object might have been deleted and then recreated",
                meta["uid"].as_str().unwrap()
            ),
        ),
        (
            json!({"resourceVersion": "1"}),
            format!(
                "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({}). The object might have been modified",
                meta["resourceVersion"].as_str().unwrap()
            ),
        ),
    ] {
        let (code, status) = admin.delete(WEB, &json!({"preconditions": condition})).await;
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
        assert!(status["message"].as_str().unwrap().ends_with(&words), "{status}");
    }
    let right = json!({"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}});
    assert_eq!(admin.delete(WEB, &right).await.0, 200);
}

#[tokio::test]
async fn tc_026_api_151_some_kinds_answer_with_their_last_words() {
    let admin = fixture().await.admin;
    assert_eq!(admin.delete(WEB, &Value::Null).await.0, 404);
    admin.pod("web").await;
    let (code, last) = admin.delete(WEB, &Value::Null).await;
    assert_eq!((code, &last["kind"]), (200, &json!("Pod")));
    let account = json!({"metadata": {"name": "robot"}});
    admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let (_, last) = admin.delete("/api/v1/namespaces/default/serviceaccounts/robot", &Value::Null).await;
    assert_eq!(last["kind"], "ServiceAccount");
    bound(&admin).await;
    assert_eq!(admin.delete(WEB, &json!({"orphanDependents": false})).await.0, 202);
}

#[tokio::test]
async fn tc_027_a_dry_run_changes_nothing() {
    let admin = fixture().await.admin;
    let before = bound(&admin).await;
    let (code, would) = admin.delete(WEB, &json!({"dryRun": ["All"], "gracePeriodSeconds": 3})).await;
    assert_eq!((code, mark(&would).1), (200, 3));
    assert_eq!(admin.get(WEB).await.1, before);
}

#[tokio::test]
async fn tc_028_a_collection_follows_the_same_rules() {
    let admin = fixture().await.admin;
    bound(&admin).await;
    admin.pod("unbound").await;
    let (code, list) = admin.delete(&format!("{PODS}?labelSelector=app%3Dweb"), &Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1));
    assert_eq!(mark(&list["items"][0]).1, 30);
    assert_eq!(admin.get(&format!("{PODS}/unbound")).await.0, 200);
    admin.delete(PODS, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(admin.get(PODS).await.1["items"], json!([]));
}

#[tokio::test]
async fn tc_029_tc_031_a_dying_pod_keeps_its_name_and_gets_no_node() {
    let admin = fixture().await.admin;
    bound(&admin).await;
    admin.delete(WEB, &Value::Null).await;
    let (code, status) = admin.post(PODS, &pod("web")).await;
    assert_eq!(code, 409);
    assert_eq!(status["message"], "object is being deleted: pods \"web\" already exists");
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    admin.post(PODS, &held).await;
    admin.delete(&format!("{PODS}/held"), &Value::Null).await;
    let (code, status) = admin.bind("held", "n").await;
    assert_eq!(code, 409, "{status}");
    assert!(status["message"].as_str().unwrap().contains("is being deleted"), "{status}");
}

#[tokio::test]
async fn tc_032_tc_035_tc_037_finalizers_hold_a_pod_and_grace_holds_it_without_them() {
    let admin = fixture().await.admin;
    let mut held = pod("web");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    admin.post(PODS, &held).await;
    admin.bind("web", "n").await;
    admin.delete(WEB, &json!({"gracePeriodSeconds": 30})).await;
    let (code, _) = admin.merge(WEB, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!((code, admin.get(WEB).await.0), (200, 200), "TC-035: its grace is not over");
    admin.delete(WEB, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(admin.get(WEB).await.0, 404);

    admin.post(PODS, &held).await;
    admin.bind("web", "n").await;
    let (_, marked) = admin.delete(WEB, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(mark(&marked).1, 0);
    assert_eq!(admin.get(WEB).await.0, 200, "TC-032, TC-037: also when forced");
    admin.merge(&format!("{WEB}/status"), &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(admin.get(WEB).await.0, 404, "TC-034: by the status too");
}

#[tokio::test]
async fn tc_033_other_kinds_have_no_grace() {
    let admin = fixture().await.admin;
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    admin.post(MAPS, &held).await;
    let (_, marked) = admin.delete(&format!("{MAPS}/a"), &json!({"gracePeriodSeconds": 30})).await;
    assert_eq!(mark(&marked), ("2026-01-01T00:00:00Z", 0));
}

#[tokio::test]
async fn tc_036_a_dying_object_gets_no_new_finalizers() {
    let admin = fixture().await.admin;
    bound(&admin).await;
    admin.delete(WEB, &Value::Null).await;
    let (code, status) = admin.merge(WEB, &json!({"metadata": {"finalizers": ["example.com/late"]}})).await;
    assert_eq!(code, 422);
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.finalizers");
}

#[tokio::test]
async fn tc_404_tc_405_tc_407_the_policy_is_kept_with_the_object() {
    let admin = fixture().await.admin;
    let made = json!({"metadata": {"name": "a"}});
    for (options, finalizers) in [
        (json!({"propagationPolicy": "Foreground"}), json!(["foregroundDeletion"])),
        (json!({"propagationPolicy": "Orphan"}), json!(["orphan"])),
        (json!({"orphanDependents": true}), json!(["orphan"])),
    ] {
        admin.post(MAPS, &made).await;
        let (code, marked) = admin.delete(&format!("{MAPS}/a"), &options).await;
        assert_eq!((code, &marked["metadata"]["finalizers"]), (200, &finalizers), "{options}");
        let (_, again) = admin.delete(&format!("{MAPS}/a"), &Value::Null).await;
        assert_eq!(again["metadata"]["finalizers"], finalizers, "what is under way goes on");
        admin.delete(&format!("{MAPS}/a"), &json!({"propagationPolicy": "Background"})).await;
        assert_eq!(admin.get(&format!("{MAPS}/a")).await.0, 404);
    }
}

#[tokio::test]
async fn api_190_api_191_some_kinds_leave_theirs_alone() {
    let admin = fixture().await.admin;
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"restartPolicy": "Always", "containers": [{"name": "web", "image": "nginx"}]}});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    for (path, spec, finalizers) in [
        ("/apis/batch/v1/namespaces/default/jobs", json!({"template": once}), json!(["orphan"])),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            json!({"selector": {"app": "web"}, "template": template}),
            json!(["orphan"]),
        ),
        (
            "/apis/apps/v1/namespaces/default/replicasets",
            json!({"selector": {"matchLabels": {"app": "web"}}, "template": template}),
            Value::Null,
        ),
    ] {
        let (code, made) = admin.post(path, &json!({"metadata": {"name": "web"}, "spec": spec})).await;
        assert_eq!(code, 201, "{made}");
        let (code, gone) = admin.delete(&format!("{path}/web"), &Value::Null).await;
        assert_eq!((code, &gone["metadata"]["finalizers"]), (200, &finalizers), "{path}");
        admin.delete(&format!("{path}/web"), &json!({"propagationPolicy": "Background"})).await;
        assert_eq!(admin.get(&format!("{path}/web")).await.0, 404);
    }
    let path = "/api/v1/namespaces/default/events/e";
    let event =
        json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    assert_eq!(admin.put(path, &event).await.0, 201, "API-191: made by PUT");
    assert_eq!(admin.delete(path, &json!({"propagationPolicy": "Foreground"})).await.0, 200);
    assert_eq!(admin.get(path).await.0, 404, "API-191: nothing is ever owned by it");
}
