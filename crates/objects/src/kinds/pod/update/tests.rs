//! What an update of a pod may change.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::gates::Gates;
use crate::kinds::KindOps;
use crate::kinds::pod::{PodOps, tests::pod};

fn stored(spec: Value) -> Value {
    let mut doc = pod(spec);
    PodOps.default(&mut doc);
    PodOps.prepare_create(&mut doc, &Gates::default());
    doc
}

/// Errors of changing a stored pod.
fn change(spec: Value, edit: impl Fn(&mut Value), expected: Expect) {
    let old = stored(spec);
    let mut new = old.clone();
    edit(&mut new);
    PodOps.default(&mut new);
    PodOps.prepare_update(&mut new, &old, &Gates::default());
    let errors: Vec<String> =
        PodOps.validate_update(&new, &old, &Gates::default()).iter().map(ToString::to_string).collect();
    expected.assert_eq(&errors.join("\n"));
}

fn plain() -> Value {
    json!({"containers": [{"name": "a", "image": "x"}], "initContainers": [{"name": "i", "image": "x"}],
        "tolerations": [{"key": "k", "operator": "Exists"}]})
}

#[test]
fn api_588_images_deadline_and_new_tolerations_may_change() {
    change(
        plain(),
        |pod| {
            pod["spec"]["containers"][0]["image"] = json!("y");
            pod["spec"]["initContainers"][0]["image"] = json!("y");
            pod["spec"]["activeDeadlineSeconds"] = json!(10);
            pod["spec"]["tolerations"] =
                json!([{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "Exists"}]);
            pod["metadata"]["labels"] = json!({"a": "b"});
        },
        expect![""],
    );
}

#[test]
fn api_588_the_deadline_only_shrinks_and_tolerations_stay() {
    let mut spec = plain();
    spec["activeDeadlineSeconds"] = json!(10);
    change(
        spec.clone(),
        |pod| pod["spec"]["activeDeadlineSeconds"] = json!(11),
        expect!["spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"],
    );
    change(
        spec,
        |pod| pod["spec"]["activeDeadlineSeconds"] = Value::Null,
        expect![
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"
        ],
    );
    change(
        plain(),
        |pod| pod["spec"]["tolerations"] = json!([{"key": "l", "operator": "Exists"}]),
        expect!["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    );
}

#[test]
fn api_588_a_negative_grace_period_may_become_one() {
    let mut spec = plain();
    spec["terminationGracePeriodSeconds"] = json!(-3);
    change(spec, |pod| pod["spec"]["terminationGracePeriodSeconds"] = json!(1), expect![""]);
}

#[test]
fn api_588_api_589_gates_go_and_the_node_selector_grows() {
    let mut spec = plain();
    spec["schedulingGates"] = json!([{"name": "g"}]);
    spec["nodeSelector"] = json!({"a": "b"});
    change(
        spec.clone(),
        |pod| {
            pod["spec"]["schedulingGates"] = json!([]);
            pod["spec"]["nodeSelector"]["c"] = json!("d");
        },
        expect![""],
    );
    change(
        spec,
        |pod| {
            pod["spec"]["schedulingGates"] = json!([{"name": "h"}]);
            pod["spec"]["nodeSelector"] = json!({"a": "z"});
        },
        expect![[r#"
            spec.schedulingGates.h: Forbidden: only deletion is allowed, but found new scheduling gate 'h'
            spec.nodeSelector: Invalid value: {"a":"z"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"#]],
    );
}

fn wanted_on(terms: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[test]
fn api_589_a_gated_pod_may_be_wanted_on_fewer_nodes() {
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let disk = json!({"key": "disk", "operator": "Exists"});
    let mut spec = plain();
    spec["schedulingGates"] = json!([{"name": "g"}]);
    let narrowed = wanted_on(&json!([{"matchExpressions": [zone, disk]}]));
    change(spec.clone(), |pod| pod["spec"]["affinity"] = narrowed.clone(), expect![""]);
    spec["affinity"] = wanted_on(&json!([{"matchExpressions": [zone]}]));
    change(
        spec.clone(),
        |pod| {
            pod["spec"]["affinity"] = narrowed.clone();
            pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 1, "preference": {"matchExpressions": [disk]}}]);
        },
        expect![""],
    );
    change(
        spec.clone(),
        |pod| pod["spec"]["affinity"] = wanted_on(&json!([{"matchExpressions": [disk, zone]}])),
        expect![[r#"
            spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: {"matchExpressions":[{"key":"disk","operator":"Exists"},{"key":"zone","operator":"In","values":["a"]}]}: only additions are allowed (no mutations or deletions)"#]],
    );
    change(
        spec.clone(),
        |pod| pod["spec"]["affinity"] = Value::Null,
        expect![
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        ],
    );
    spec["schedulingGates"] = json!([]);
    let old = stored(spec);
    let mut new = old.clone();
    new["spec"]["affinity"] = narrowed;
    let errors = PodOps.validate_update(&new, &old, &Gates::default());
    assert_eq!(errors.len(), 1, "without gates nothing may change: {errors:?}");
}

#[test]
fn api_361_api_590_everything_else_is_forbidden_with_a_difference() {
    change(
        plain(),
        |pod| {
            pod["spec"]["hostNetwork"] = json!(true);
            pod["spec"]["containers"][0]["command"] = json!(["sh"]);
        },
        expect![[r#"
            spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            +  containers[0].command: ["sh"]
            +  hostNetwork: true"#]],
    );
    change(
        plain(),
        |pod| pod["spec"]["initContainers"] = json!([]),
        expect!["spec.initContainers: Forbidden: pod updates may not add or remove containers"],
    );
}

#[test]
fn api_591_api_592_resources_node_and_mirror_annotation_stay() {
    change(
        plain(),
        |pod| {
            pod["spec"]["nodeName"] = json!("n1");
            pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        },
        expect![[r#"
            spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            +  containers[0].resources.requests: {"cpu":"1"}
            +  nodeName: "n1""#]],
    );
    change(
        plain(),
        |pod| pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"}),
        expect!["metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"],
    );
}
