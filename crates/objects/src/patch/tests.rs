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

fn operations(list: Vec<Value>) -> Value {
    Value::Array(list)
}

#[test]
fn api_390_copies_stop_at_three_mebibytes_altogether() {
    let original = json!({"a": ["0123456789"]});
    let copy = |to: &str| json!({"op": "copy", "from": "/a", "path": to});
    // Doubles with every operation.
    let bomb = operations((0..40).map(|_| copy("/a/-")).collect());
    assert!(matches!(json_patch(&original, &bomb), Err(PatchError::Unprocessable(_))));
    // Nests with every operation.
    let bomb = operations((0..40).map(|_| copy("/a/0")).collect());
    assert!(matches!(json_patch(&original, &bomb), Err(PatchError::Unprocessable(_))));
    // Nothing but structure.
    let empty = json!({"a": [[], [], [], []]});
    let bomb = operations((0..40).map(|_| copy("/a/-")).collect());
    assert!(matches!(json_patch(&empty, &bomb), Err(PatchError::Unprocessable(_))));
    let few = operations((0..4).map(|_| copy("/a/-")).collect());
    assert!(json_patch(&original, &few).is_ok());
    // One value of a mebibyte may be copied twice, not three times.
    let large = json!({"a": "x".repeat(1 << 20)});
    let times = |count: usize| operations((0..count).map(|n| copy(&format!("/b{n}"))).collect());
    assert!(json_patch(&large, &times(2)).is_ok());
    assert!(matches!(json_patch(&large, &times(3)), Err(PatchError::Unprocessable(_))));
    // Where hardly anything is left, not even what has become empty is copied.
    let nearly = json!({"a": "x".repeat((3 << 20) - 42), "emptied": {"k": 1}});
    let rest = operations(vec![
        copy("/b"),
        json!({"op": "remove", "path": "/emptied/k"}),
        json!({"op": "copy", "from": "/emptied", "path": "/c"}),
        json!({"op": "copy", "from": "/emptied", "path": "/d"}),
    ]);
    assert!(matches!(json_patch(&nearly, &rest), Err(PatchError::Unprocessable(_))));
}

#[test]
fn api_390_nothing_is_nested_deeper_than_it_can_be_read() {
    // Each turn moves `a` below a new `b`, and that to `a` again.
    let turn = [
        json!({"op": "add", "path": "/b", "value": {}}),
        json!({"op": "move", "from": "/a", "path": "/b/a"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    let turns = |count: usize| operations(turn.iter().cycle().take(3 * count).cloned().collect());
    let original = json!({"a": {}});
    assert!(json_patch(&original, &turns(50)).is_ok());
    assert!(matches!(json_patch(&original, &turns(3_000)), Err(PatchError::Unprocessable(_))));
    let deep = (0..120).fold(json!({}), |inner, _| json!([inner]));
    let add = |op: &str| json!([{"op": op, "path": "/a", "value": deep.clone()}]);
    assert!(matches!(json_patch(&original, &add("add")), Err(PatchError::Unprocessable(_))));
    assert!(matches!(json_patch(&original, &add("replace")), Err(PatchError::Unprocessable(_))));
}

#[test]
fn api_390_operations_do_what_rfc_6902_says() {
    let original = json!({"l": [0, 1, 2], "m": {"x/y": 1, "~": 2}, "s": "t"});
    let check = |patch: Value, expected: Option<Value>| {
        assert_eq!(json_patch(&original, &json!([patch])).ok(), expected, "{patch}");
    };
    let with = |key: &str, value: Value| {
        let mut changed = original.clone();
        changed[key] = value;
        Some(changed)
    };
    check(json!({"op": "add", "path": "/l/1", "value": 9}), with("l", json!([0, 9, 1, 2])));
    check(json!({"op": "add", "path": "/l/3", "value": 9}), with("l", json!([0, 1, 2, 9])));
    check(json!({"op": "add", "path": "/l/4", "value": 9}), None);
    check(json!({"op": "add", "path": "/l/01", "value": 9}), None);
    check(json!({"op": "add", "path": "/s/t", "value": 9}), None);
    check(json!({"op": "add", "path": "/x/y", "value": 9}), None);
    check(json!({"op": "add", "path": "", "value": {"n": 1}}), Some(json!({"n": 1})));
    check(json!({"op": "remove", "path": "/l/0"}), with("l", json!([1, 2])));
    check(json!({"op": "remove", "path": "/l/-"}), None);
    check(json!({"op": "remove", "path": "/m/x~1y"}), with("m", json!({"~": 2})));
    check(json!({"op": "remove", "path": "/m/~0"}), with("m", json!({"x/y": 1})));
    check(json!({"op": "replace", "path": "/l/2", "value": 9}), with("l", json!([0, 1, 9])));
    check(json!({"op": "replace", "path": "/none", "value": 9}), None);
    check(json!({"op": "move", "from": "/l/0", "path": "/l/2"}), with("l", json!([1, 2, 0])));
    check(json!({"op": "move", "from": "/m", "path": "/m/x"}), None);
    check(json!({"op": "copy", "from": "/l", "path": "/s"}), with("s", json!([0, 1, 2])));
    check(json!({"op": "test", "path": "/m", "value": {"~": 2, "x/y": 1}}), Some(original.clone()));
    check(json!({"op": "test", "path": "/l", "value": [0, 1]}), None);
    check(json!({"op": "test", "path": "/none", "value": null}), None);
}

#[test]
fn api_390_long_lists_change_in_the_middle() {
    let mut expected: Vec<u64> = (0..5_000).collect();
    let original = json!({"l": expected});
    let mut list = Vec::new();
    for n in 0..3_000 {
        let at = (n * 7_919) % expected.len();
        if n % 3 == 0 {
            list.push(json!({"op": "remove", "path": format!("/l/{at}")}));
            expected.remove(at);
        } else {
            list.push(json!({"op": "add", "path": format!("/l/{at}"), "value": n}));
            expected.insert(at, n as u64);
        }
    }
    list.push(json!({"op": "test", "path": "/l", "value": expected}));
    assert_eq!(json_patch(&original, &operations(list)).unwrap(), json!({"l": expected}));
}
