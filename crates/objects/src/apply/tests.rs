//! Ownership of fields: the examples of the specification, one by one.

use serde_json::{Value, json};

use super::*;
use crate::kinds;

const NOW: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T00:00:05Z";

fn kind(name: &str) -> &'static Kind {
    kinds::ALL.iter().find(|kind| kind.kind == name).unwrap()
}

fn by(manager: &str) -> Writer<'_> {
    Writer { manager, subresource: "", now: NOW }
}

/// What the server does: defaults around what is tested here.
fn created(name: &str, doc: Value, manager: &str) -> Value {
    let mut doc = doc;
    kind(name).ops.default(&mut doc);
    let owners = track(kind(name), None, &doc, &by(manager));
    doc["metadata"]["managedFields"] = owners;
    doc["metadata"]["uid"] = json!("u");
    doc
}

fn updated(name: &str, live: &Value, doc: Value, writer: &Writer<'_>) -> Value {
    let mut doc = doc;
    kind(name).ops.default(&mut doc);
    let owners = track(kind(name), Some(live), &doc, writer);
    doc["metadata"]["managedFields"] = owners;
    doc
}

fn applied(name: &str, live: Option<&Value>, config: &Value, manager: &str) -> Result<Value, ApplyError> {
    applied_with(name, live, config, &by(manager), false)
}

fn applied_with(
    name: &str,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let mut doc = apply(kind(name), live, config, writer, force)?;
    kind(name).ops.default(&mut doc);
    Ok(doc)
}

/// The fields of one manager.
fn owned(doc: &Value, manager: &str) -> Value {
    let entries = doc["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let entry = entries.into_iter().find(|entry| entry["manager"] == manager);
    entry.map(|entry| entry["fieldsV1"].clone()).unwrap_or_default()
}

fn pod(containers: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}})
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

#[test]
fn api_449_api_450_api_452_a_new_pod_belongs_to_its_creator() {
    let mut doc = pod(json!([{"name": "nginx", "image": "nginx"}]));
    doc["metadata"]["labels"] = json!({"run": "nginx"});
    let doc = created("Pod", doc, "kubectl-run");
    let entry = json!([{
        "manager": "kubectl-run", "operation": "Update", "apiVersion": "v1", "time": NOW, "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:run": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"nginx\"}": {
                    ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {},
                    "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}
                }},
                "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {},
                "f:securityContext": {}, "f:terminationGracePeriodSeconds": {}
            }
        }
    }]);
    assert_eq!(doc["metadata"]["managedFields"], entry);
    let order: Vec<&String> = doc["metadata"]["managedFields"][0].as_object().unwrap().keys().collect();
    assert_eq!(order, ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]);
}

#[test]
fn api_451_a_status_belongs_to_whoever_writes_it_through_its_own_endpoint() {
    let live = created("Pod", pod(json!([{"name": "a", "image": "i"}])), "me");
    let mut doc = live.clone();
    doc["status"] = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]});
    assert_eq!(
        updated("Pod", &live, doc.clone(), &by("me"))["metadata"]["managedFields"],
        live["metadata"]["managedFields"]
    );
    doc["spec"]["nodeName"] = json!("elsewhere");
    let node = Writer { manager: "kubelet", subresource: "status", now: LATER };
    let doc = updated("Pod", &live, doc, &node);
    let expected = json!({"f:status": {
        "f:phase": {}, "f:podIP": {}, "f:podIPs": {".": {}, "k:{\"ip\":\"10.0.0.1\"}": {".": {}, "f:ip": {}}}
    }});
    assert_eq!(owned(&doc, "kubelet"), expected);
    assert_eq!(doc["metadata"]["managedFields"][1]["subresource"], "status");
    // Fields the endpoint does not touch stay with their owner.
    assert_eq!(owned(&doc, "me"), owned(&live, "me"));
}

#[test]
fn api_452_what_changes_changes_hands() {
    let live = created("ConfigMap", map(json!({"a": "1", "b": "1", "c": "1"})), "one");
    let doc = updated("ConfigMap", &live, map(json!({"a": "2", "b": "1"})), &by("two"));
    assert_eq!(owned(&doc, "one"), json!({"f:data": {".": {}, "f:b": {}}}));
    assert_eq!(owned(&doc, "two"), json!({"f:data": {"f:a": {}}}));
}

#[test]
fn api_453_old_managers_are_folded_together() {
    let mut doc = created("ConfigMap", map(json!({"k": "v"})), "m0");
    for number in 1..14 {
        let mut next = doc.clone();
        next["data"][format!("k{number}")] = json!("v");
        let (manager, now) = (format!("m{number}"), format!("2026-01-01T00:00:{number:02}Z"));
        doc = updated("ConfigMap", &doc, next, &Writer { manager: &manager, subresource: "", now: &now });
    }
    let managers = doc["metadata"]["managedFields"].as_array().unwrap();
    let names: Vec<&str> = managers.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(names, ["ancient-changes", "m5", "m6", "m7", "m8", "m9", "m10", "m11", "m12", "m13"]);
    let folded = json!({"f:data": {".": {}, "f:k": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}, "f:k4": {}}});
    assert_eq!(owned(&doc, "ancient-changes"), folded);
}

#[test]
fn api_454_ownership_can_be_forgotten_and_is_not_lost_by_accident() {
    let live = created("ConfigMap", map(json!({"a": "1"})), "one");
    for reset in [json!([]), json!([{}])] {
        let mut doc = map(json!({"a": "2"}));
        doc["metadata"]["managedFields"] = reset;
        assert_eq!(track(kind("ConfigMap"), Some(&live), &doc, &by("two")), Value::Null);
    }
    // Neither leaving it out nor sending nonsense does that.
    for sent in [Value::Null, json!([{"manager": "x", "operation": "Steal"}])] {
        let mut doc = map(json!({"a": "1"}));
        doc["metadata"]["managedFields"] = sent;
        assert_eq!(track(kind("ConfigMap"), Some(&live), &doc, &by("two")), live["metadata"]["managedFields"]);
    }
}

#[test]
fn api_456_a_configuration_says_what_it_is_about() {
    let refused = |config: Value| applied("ConfigMap", None, &config, "me").unwrap_err();
    let text = |text: &str| ApplyError::Malformed(text.to_owned());
    assert_eq!(refused(json!({"metadata": {"name": "c"}})), text("invalid object type: /, Kind="));
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    assert_eq!(refused(other), text("invalid object type: apps/v1, Kind=Deployment"));
    let mut config = map(json!({}));
    config["metadata"]["managedFields"] = json!([]);
    assert_eq!(refused(config), text("metadata.managedFields must be nil"));
}

#[test]
fn api_457_applying_owns_removes_and_shares() {
    let first = applied("ConfigMap", None, &map(json!({"a": "1", "b": "1"})), "one").unwrap();
    assert_eq!(first["metadata"]["managedFields"][0]["operation"], "Apply");
    assert_eq!(owned(&first, "one"), json!({"f:data": {"f:a": {}, "f:b": {}}}));
    // The same value is shared, so it stays when the first lets go of it.
    let shared = applied("ConfigMap", Some(&first), &map(json!({"b": "1"})), "two").unwrap();
    assert_eq!(owned(&shared, "one"), owned(&first, "one"));
    let less = applied("ConfigMap", Some(&shared), &map(json!({})), "one").unwrap();
    assert_eq!(less["data"], json!({"b": "1"}));
    assert_eq!(owned(&less, "one"), json!({"f:data": {}}));
    assert_eq!(owned(&less, "two"), json!({"f:data": {"f:b": {}}}));
    let none = applied("ConfigMap", Some(&less), &map(Value::Null), "two").unwrap();
    assert_eq!(none.get("data"), None);
}

#[test]
fn api_457_api_460_what_others_own_is_a_conflict_unless_forced() {
    let live = created("ConfigMap", map(json!({"a": "1", "b": "1"})), "kubectl-create");
    let one = applied("ConfigMap", Some(&live), &map(json!({"a": "2"})), "me").unwrap_err();
    let text = "Apply failed with 1 conflict: conflict with \"kubectl-create\" using v1: .data.a";
    assert_eq!(one.message(), text);
    let both = map(json!({"a": "2", "b": "2"}));
    let two = applied("ConfigMap", Some(&live), &both, "me").unwrap_err();
    assert_eq!(
        two.message(),
        "Apply failed with 2 conflicts: conflicts with \"kubectl-create\" using v1:\n- .data.a\n- .data.b"
    );
    let forced = applied_with("ConfigMap", Some(&live), &both, &by("me"), true).unwrap();
    assert_eq!(forced["data"], json!({"a": "2", "b": "2"}));
    assert_eq!(owned(&forced, "kubectl-create"), json!({"f:data": {}}));
    // An applier is named without its version.
    let other = applied("ConfigMap", Some(&forced), &map(json!({"a": "3"})), "you").unwrap_err();
    assert_eq!(other.message(), "Apply failed with 1 conflict: conflict with \"me\": .data.a");
}

#[test]
fn api_460_paths_name_items_by_their_keys() {
    let containers = json!([{"name": "app", "image": "a", "ports": [{"containerPort": 80}]}]);
    let live = created("Pod", pod(containers), "x");
    let config = pod(json!([{"name": "app", "image": "b"}]));
    let error = applied("Pod", Some(&live), &config, "me").unwrap_err();
    assert!(error.message().ends_with(": .spec.containers[name=\"app\"].image"), "{}", error.message());
}

#[test]
fn api_415_api_457_ports_are_told_apart_by_protocol_too() {
    let ports = |ports: Value| pod(json!([{"name": "a", "image": "i", "ports": ports}]));
    let live = applied("Pod", None, &ports(json!([{"containerPort": 53}])), "one").unwrap();
    let key = "k:{\"containerPort\":53,\"protocol\":\"TCP\"}";
    assert!(owned(&live, "one")["f:spec"]["f:containers"]["k:{\"name\":\"a\"}"]["f:ports"].get(key).is_some());
    let both = applied("Pod", Some(&live), &ports(json!([{"containerPort": 53, "protocol": "UDP"}])), "two").unwrap();
    let expected = json!([{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]);
    assert_eq!(both["spec"]["containers"][0]["ports"], expected);
    // What was defaulted is nobody's, so giving the port another name works.
    let named = json!([{"containerPort": 53, "protocol": "TCP", "name": "dns"}]);
    let named = applied("Pod", Some(&both), &ports(named), "three").unwrap();
    assert_eq!(named["spec"]["containers"][0]["ports"][0]["name"], "dns");
}

#[test]
fn api_457_atoms_are_replaced_whole_and_sets_are_joined() {
    let config = |finalizers: Value, command: Value| {
        let mut doc = pod(json!([{"name": "a", "image": "i", "command": command}]));
        doc["metadata"]["finalizers"] = finalizers;
        doc
    };
    let live = applied("Pod", None, &config(json!(["a.b/c"]), json!(["x", "y"])), "one").unwrap();
    assert_eq!(owned(&live, "one")["f:metadata"], json!({"f:finalizers": {"v:\"a.b/c\"": {}}}));
    let both = applied_with("Pod", Some(&live), &config(json!(["d.e/f"]), json!(["z"])), &by("two"), true).unwrap();
    assert_eq!(both["metadata"]["finalizers"], json!(["a.b/c", "d.e/f"]));
    assert_eq!(both["spec"]["containers"][0]["command"], json!(["z"]));
    let gone = applied("Pod", Some(&both), &pod(json!([{"name": "a", "image": "i"}])), "one").unwrap();
    assert_eq!(gone["metadata"]["finalizers"], json!(["d.e/f"]));
    assert_eq!(gone["spec"]["containers"][0]["command"], json!(["z"]));
}

#[test]
fn api_457_the_order_of_the_configuration_wins() {
    let env = |names: &[&str]| {
        let env: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        pod(json!([{"name": "a", "image": "i", "env": env}]))
    };
    let order = |live: &[&str], config: &[&str]| {
        let live = created("Pod", env(live), "x");
        let doc = applied("Pod", Some(&live), &env(config), "me").unwrap();
        let env = doc["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        env.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>().concat()
    };
    assert_eq!(order(&["a", "b", "c"], &["c", "a"]), "bca");
    assert_eq!(order(&["a", "b", "c"], &["b", "d"]), "abcd");
    assert_eq!(order(&["a", "b"], &["n", "b", "a"]), "nba");
    assert_eq!(order(&[], &["b", "a"]), "ba");
}

#[test]
fn api_458_an_object_nobody_owns_belongs_to_the_time_before() {
    let mut live = map(json!({"a": "1"}));
    live["metadata"]["uid"] = json!("u");
    let error = applied("ConfigMap", Some(&live), &map(json!({"a": "2"})), "me").unwrap_err();
    assert_eq!(error.message(), "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a");
    let same = applied("ConfigMap", Some(&live), &map(json!({"a": "1"})), "me").unwrap();
    assert_eq!(owned(&same, "before-first-apply"), json!({"f:data": {".": {}, "f:a": {}}}));
}

#[test]
fn api_461_applying_again_changes_nothing_not_even_the_time() {
    let config = pod(json!([{"name": "a", "image": "i", "ports": [{"containerPort": 80}]}]));
    let first = applied("Pod", None, &config, "me").unwrap();
    let later = Writer { manager: "me", subresource: "", now: LATER };
    assert_eq!(applied_with("Pod", Some(&first), &config, &later, false).unwrap(), first);
    let more = pod(json!([{"name": "a", "image": "j"}]));
    let changed = applied_with("Pod", Some(&first), &more, &later, false).unwrap();
    assert_eq!(changed["metadata"]["managedFields"][0]["time"], LATER);
    assert_eq!(changed["spec"]["containers"][0].get("ports"), None);
}

#[test]
fn api_461_an_update_that_changes_nothing_is_seen_as_such() {
    let live = created("ConfigMap", map(json!({"a": "1"})), "one");
    let later = Writer { manager: "one", subresource: "", now: LATER };
    let mut doc = updated("ConfigMap", &live, map(json!({"a": "2"})), &later);
    doc["metadata"]["uid"] = json!("u");
    assert!(!is_same_but_times(&doc, &live));
    doc["data"] = json!({"a": "1"});
    assert!(is_same_but_times(&doc, &live));
    doc["metadata"]["managedFields"][0]["manager"] = json!("two");
    assert!(!is_same_but_times(&doc, &live));
}

#[test]
fn api_462_kubectl_may_take_over_what_it_applied_from_the_client() {
    let client = |data: Value| {
        let mut doc = map(data.clone());
        doc["metadata"]["annotations"] = json!({LAST_APPLIED: map(data).to_string()});
        created("ConfigMap", doc, "kubectl-client-side-apply")
    };
    let live = client(json!({"a": "1", "b": "1"}));
    let taken = applied("ConfigMap", Some(&live), &map(json!({"a": "2"})), "kubectl").unwrap();
    assert_eq!(taken["data"], json!({"a": "2", "b": "1"}));
    let annotation = taken["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(annotation).unwrap(), map(json!({"a": "2"})));
    // Anyone else, or a value changed since, is a conflict.
    assert!(applied("ConfigMap", Some(&live), &map(json!({"a": "2"})), "me").is_err());
    let mut doc = live.clone();
    doc["data"]["a"] = json!("3");
    let edited = updated("ConfigMap", &live, doc, &by("kubectl-edit"));
    let error = applied("ConfigMap", Some(&edited), &map(json!({"a": "2"})), "kubectl").unwrap_err();
    assert!(error.message().contains("\"kubectl-edit\" using v1: .data.a"), "{}", error.message());
}

#[test]
fn api_463_what_does_not_fit_the_type_is_refused_with_its_place() {
    let message = |config: Value| applied("Pod", None, &config, "me").unwrap_err().message();
    let head = "failed to create typed patch object (/p; /v1, Kind=Pod): ";
    let twice = json!([{"name": "a", "image": "i"}, {"name": "a", "image": "j"}]);
    assert_eq!(message(pod(twice)), format!("{head}.spec.containers: duplicate entries for key [name=\"a\"]"));
    let unknown = pod(json!([{"name": "a", "imagine": "i"}]));
    assert_eq!(message(unknown), format!("{head}.spec.containers[name=\"a\"].imagine: field not declared in schema"));
    let wrong = pod(json!([{"name": "a", "ports": [{"containerPort": "http"}]}]));
    let place = ".spec.containers[name=\"a\"].ports[containerPort=\"http\",protocol=\"TCP\"].containerPort";
    assert_eq!(message(wrong), format!("{head}{place}: expected numeric (int or float), got string"));
}

#[test]
fn api_463_doubles_in_the_live_object_do_not_stand_in_the_way() {
    let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B", "value": "1"}]);
    let live = created("Pod", pod(json!([{"name": "a", "image": "i", "env": env}])), "x");
    let config = pod(json!([{"name": "a", "env": [{"name": "B", "value": "1"}, {"name": "C", "value": "1"}]}]));
    let doc = applied("Pod", Some(&live), &config, "me").unwrap();
    assert_eq!(doc["spec"]["containers"][0]["env"].as_array().unwrap().len(), 4);
}
