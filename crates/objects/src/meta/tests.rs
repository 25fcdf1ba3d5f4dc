//! Names, labels and what may never change.

use expect_test::{Expect, expect};

use super::*;

fn lines(errors: Vec<FieldError>) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn create(metadata: Value, expected: Expect) {
    let doc = json!({"metadata": metadata});
    expected.assert_eq(&lines(validate_create(&doc, Scope::Namespaced, NameFormat::Subdomain)));
}

fn update(new: Value, old: Value, expected: Expect) {
    expected.assert_eq(&lines(validate_update(&json!({"metadata": new}), &json!({"metadata": old}))));
}

#[test]
fn api_154_a_name_or_a_prefix_is_required() {
    create(
        json!({}),
        expect![[r#"
            metadata.name: Required value: name or generateName is required
            metadata.namespace: Required value"#]],
    );
}

#[test]
fn api_157_cluster_objects_have_no_namespace() {
    let doc = json!({"metadata": {"name": "a", "namespace": "b"}});
    let errors = validate_create(&doc, Scope::Cluster, NameFormat::Subdomain);
    assert_eq!(lines(errors), "metadata.namespace: Forbidden: not allowed on this type");
}

#[test]
fn api_157_create_clears_what_the_server_owns() {
    let mut doc = json!({"metadata": {
        "name": "a", "uid": "u", "creationTimestamp": "x", "deletionTimestamp": "x",
        "deletionGracePeriodSeconds": 3, "selfLink": "/x", "generation": 7, "labels": {"a": "b"}
    }});
    prepare_create(&mut doc, false);
    assert_eq!(doc, json!({"metadata": {"name": "a", "labels": {"a": "b"}}}));
    prepare_create(&mut doc, true);
    assert_eq!(doc["metadata"]["generation"], 1);
}

#[test]
fn api_158_update_takes_server_owned_fields_from_the_stored_object() {
    let mut old = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "t",
        "deletionTimestamp": "then", "generation": 4}, "spec": {"x": 1}});
    let sent = json!({"metadata": {"name": "a", "generation": 9, "deletionTimestamp": "now"}, "spec": {"x": 1}});
    let mut doc = sent.clone();
    prepare_update(&mut doc, &old, true);
    assert_eq!(doc, old);
    // Where there is none it is not forgotten that one was sent.
    old["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    let mut doc = sent;
    prepare_update(&mut doc, &old, true);
    let errors: Vec<String> = validate_update(&doc, &old).iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["metadata.deletionTimestamp: Invalid value: \"now\": field is immutable"]);
}

#[test]
fn api_178_a_changed_spec_raises_the_generation() {
    let old = json!({"metadata": {"name": "a", "generation": 4}, "spec": {"x": 1}});
    let mut doc = json!({"metadata": {"name": "a"}, "spec": {"x": 2}});
    prepare_update(&mut doc, &old, true);
    assert_eq!(doc["metadata"]["generation"], 5);
    let mut doc = json!({"metadata": {"name": "a"}, "spec": {"x": 2}});
    prepare_update(&mut doc, &old, false);
    assert_eq!(doc["metadata"]["generation"], 4);
}

#[test]
fn api_158_identity_is_immutable() {
    update(
        json!({"name": "b", "uid": "v"}),
        json!({"name": "a", "uid": "u"}),
        expect![[r#"
            metadata.name: Invalid value: "b": field is immutable
            metadata.uid: Invalid value: "v": field is immutable"#]],
    );
}

#[test]
fn api_181_labels_and_annotations_are_checked() {
    create(
        json!({"name": "a", "namespace": "n", "labels": {"a": "-"}, "annotations": {"Example.COM/x": "anything ~"}}),
        expect![[
            r#"metadata.labels: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
        ]],
    );
    create(
        json!({"name": "a", "namespace": "n", "annotations": {"x": "y".repeat(262_144)}}),
        expect!["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
}

#[test]
fn api_182_owners_are_complete_and_one_controls() {
    create(
        json!({"name": "a", "namespace": "n", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "one", "uid": "1", "controller": true},
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "two", "uid": "", "controller": true}
        ]}),
        expect![[r#"
            metadata.ownerReferences.uid: Invalid value: "": must not be empty
            metadata.ownerReferences: Invalid value: [{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"one","uid":"1","controller":true},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"two","uid":"","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for one and two"#]],
    );
}

#[test]
fn api_182_an_owner_named_twice_is_stored_once() {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"});
    let mut doc = json!({"metadata": {"ownerReferences": [owner, owner]}});
    prepare_create(&mut doc, false);
    assert_eq!(items(&doc, "metadata.ownerReferences").len(), 1);
}

#[test]
fn api_183_finalizers_are_standard_or_qualified() {
    create(
        json!({"name": "a", "namespace": "n", "finalizers": ["example.com/f", "mine", "orphan", "foregroundDeletion"]}),
        expect![[r#"
            metadata.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified
            metadata.finalizers: Invalid value: ["example.com/f","mine","orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#]],
    );
}

#[test]
fn api_184_a_dying_object_gets_no_new_finalizers() {
    update(
        json!({"name": "a", "deletionTimestamp": "t", "finalizers": ["a/b", "c/d"]}),
        json!({"name": "a", "deletionTimestamp": "t", "finalizers": ["a/b"]}),
        expect![[
            r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"c/d"}"#
        ]],
    );
    update(
        json!({"name": "a", "deletionTimestamp": "t"}),
        json!({"name": "a", "deletionTimestamp": "t", "finalizers": ["a/b"]}),
        expect![""],
    );
}

#[test]
fn lc_055_a_status_update_does_not_touch_the_spec() {
    let old = json!({"metadata": {"name": "a", "uid": "u", "ownerReferences": [{"uid": "o"}]}, "spec": {"n": 1}, "status": {"p": 1}});
    let mut doc = json!({"metadata": {"name": "a", "labels": {"x": "2"}}, "spec": {"n": 2}, "status": {"p": 2}});
    prepare_status_update(&mut doc, &old);
    let expected = json!({
        "metadata": {"name": "a", "uid": "u", "labels": {"x": "2"}, "ownerReferences": [{"uid": "o"}]},
        "spec": {"n": 1}, "status": {"p": 2}
    });
    assert_eq!(doc, expected);
}
