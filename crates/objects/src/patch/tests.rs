//! Each kind of patch on small documents.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::kinds::pod;

fn strategic(original: Value, patch: Value, expected: Expect) {
    let text = match strategic_merge_patch(&pod::KIND, &original, &patch) {
        Ok(result) => result.to_string(),
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&text);
}

#[test]
fn api_390_json_patches_apply_in_order_or_not_at_all() {
    let original = json!({"a": [1, 2], "b": {"c": "d"}});
    let patch = json!([
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "test", "path": "/b/c", "value": "d"},
        {"op": "remove", "path": "/b/c"},
    ]);
    assert_eq!(json_patch(&original, &patch).unwrap(), json!({"a": [1, 2, 3], "b": {}}));
    let failing = json!([{"op": "remove", "path": "/x"}]);
    assert_eq!(
        json_patch(&original, &failing),
        Err(PatchError::Unprocessable("the server rejected our request due to an error in our request".to_owned()))
    );
    assert!(matches!(json_patch(&original, &json!({"op": "add"})), Err(PatchError::Malformed(_))));
}

#[test]
fn api_391_merge_patches_remove_with_null_and_replace_lists() {
    let original = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
    let patch = json!({"a": {"b": null, "d": 3}, "l": [9]});
    assert_eq!(merge_patch(&original, &patch).unwrap(), json!({"a": {"c": 2, "d": 3}, "l": [9]}));
    assert!(matches!(merge_patch(&original, &json!([])), Err(PatchError::Malformed(_))));
}

#[test]
fn api_393_lists_merge_by_key_and_others_are_replaced() {
    strategic(
        json!({"spec": {"containers": [{"name": "a", "image": "x", "args": ["1", "2"]}, {"name": "b", "image": "y"}],
            "tolerations": [{"key": "old"}]}, "metadata": {"finalizers": ["a/b"]}}),
        json!({"spec": {"containers": [{"name": "a", "image": "z", "args": ["3"]}, {"name": "c", "image": "n"}],
            "tolerations": [{"key": "new"}]}, "metadata": {"finalizers": ["c/d", "a/b"]}}),
        expect![[
            r#"{"spec":{"containers":[{"name":"a","image":"z","args":["3"]},{"name":"b","image":"y"},{"name":"c","image":"n"}],"tolerations":[{"key":"new"}]},"metadata":{"finalizers":["a/b","c/d"]}}"#
        ]],
    );
}

#[test]
fn api_394_patch_directives_replace_and_delete_maps() {
    let original = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeSelector": {"x": "y"}}});
    strategic(
        original.clone(),
        json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}, "spec": {"nodeSelector": {"$patch": "delete"}}}),
        expect![[r#"{"metadata":{"labels":{"c":"3"}},"spec":{"nodeSelector":{}}}"#]],
    );
    strategic(
        original,
        json!({"metadata": {"$patch": "mangle"}}),
        expect![[r#"error: unknown patch type: mangle in map: {"$patch":"mangle"}"#]],
    );
}

#[test]
fn api_395_keyed_lists_delete_and_replace_elements() {
    let original =
        json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X"}, {"name": "Y"}]}, {"name": "b"}]}});
    strategic(
        original.clone(),
        json!({"spec": {"containers": [{"$patch": "delete", "name": "b"}, {"name": "a", "env": [{"$patch": "delete", "name": "X"}]}]}}),
        expect![[r#"{"spec":{"containers":[{"name":"a","env":[{"name":"Y"}]}]}}"#]],
    );
    strategic(
        original.clone(),
        json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "n"}]}}),
        expect![[r#"{"spec":{"containers":[{"name":"n"}]}}"#]],
    );
    strategic(
        original,
        json!({"spec": {"containers": [{"image": "x"}]}}),
        expect![[r#"error: map: {"image":"x"} does not contain declared merge key: name"#]],
    );
}

#[test]
fn api_396_retain_keys_drops_the_other_keys() {
    let original = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    strategic(
        original.clone(),
        json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}}),
        expect![[r#"{"spec":{"volumes":[{"name":"v","secret":{"secretName":"s"}}]}}"#]],
    );
    strategic(
        original,
        json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "secret": {}}]}}),
        expect!["error: patch content doesn't match retainKeys list"],
    );
}

#[test]
fn api_397_set_element_order_sorts_and_keeps_unknown_elements_near() {
    let original = json!({"status": {"conditions": [{"type": "A"}, {"type": "S"}, {"type": "B"}]}});
    strategic(
        original.clone(),
        json!({"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "N"}, {"type": "A"}],
            "conditions": [{"type": "N", "status": "True"}]}}),
        expect![[r#"{"status":{"conditions":[{"type":"B"},{"type":"N","status":"True"},{"type":"A"},{"type":"S"}]}}"#]],
    );
    strategic(
        original.clone(),
        json!({"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]}}),
        expect![[r#"{"status":{"conditions":[{"type":"B"},{"type":"A"},{"type":"S"}]}}"#]],
    );
    strategic(
        original,
        json!({"status": {"$setElementOrder/conditions": [{"type": "A"}], "conditions": [{"type": "N"}]}}),
        expect!["error: invalid patch format of setElementOrder list"],
    );
}

#[test]
fn api_398_scalars_are_deleted_from_merged_lists() {
    strategic(
        json!({"metadata": {"finalizers": ["a/b", "c/d"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}}),
        expect![[r#"{"metadata":{"finalizers":["c/d"]}}"#]],
    );
}

#[test]
fn api_399_keys_compare_by_their_printed_form() {
    strategic(
        json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "x"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "y"}]}]}}),
        expect![[r#"{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"name":"y"}]}]}}"#]],
    );
}

#[test]
fn api_606_a_node_agents_status_patch_keeps_foreign_conditions() {
    strategic(
        json!({"metadata": {"name": "p", "uid": "u"}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True"}, {"type": "example.com/gate", "status": "True"}]}}),
        json!({"metadata": {"uid": "u"}, "status": {"phase": "Running",
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}],
            "conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "10.0.0.1"}],
            "containerStatuses": [{"name": "c", "ready": true}]}}),
        expect![[
            r#"{"metadata":{"name":"p","uid":"u"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"},{"type":"PodScheduled","status":"True"},{"type":"example.com/gate","status":"True"}],"podIPs":[{"ip":"10.0.0.1"}],"containerStatuses":[{"name":"c","ready":true}]}}"#
        ]],
    );
}
