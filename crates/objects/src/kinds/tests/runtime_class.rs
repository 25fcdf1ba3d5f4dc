//! Golden tests of RuntimeClass.

use super::*;

fn class(rest: &Value) -> Value {
    let mut doc = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandboxed"}});
    doc.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    doc
}

#[test]
fn api_053_api_762_runtime_classes_are_checked() {
    create(
        class(&json!({"handler": "crun", "overhead": {"podFixed": {"cpu": "0.25"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}})),
        expect![[
            r#"{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","handler":"crun","metadata":{"name":"sandboxed"},"overhead":{"podFixed":{"cpu":"250m"}},"scheduling":{"nodeSelector":{"a":"b"},"tolerations":[{"key":"k","operator":"Exists"}]}}"#
        ]],
    );
    create(
        class(&json!({"handler": "a_b", "overhead": {"podFixed": {"cpu": "-1", "what": "1"}},
            "scheduling": {"nodeSelector": {"a": "-"},
                "tolerations": [{"key": "k"}, {"key": "k"}, {"operator": "Equal"}]}})),
        expect![[r#"
            handler: Invalid value: "a_b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0
            overhead.limits[what]: Invalid value: "what": must be a standard resource type or fully qualified
            overhead.limits[what]: Invalid value: "what": must be a standard resource for containers
            scheduling.nodeSelector: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            scheduling.tolerations[2].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys"
            scheduling.tolerations[1]: Duplicate value: {"key":"k"}"#]],
    );
    create(class(&json!({"handler": ""})), expect!["handler: Required value"]);
}

#[test]
fn api_372_a_runtime_class_keeps_its_handler() {
    update(
        class(&json!({"handler": "a"})),
        class(&json!({"handler": "b"})),
        expect![[r#"handler: Invalid value: "b": field is immutable"#]],
    );
}

#[test]
fn api_259_runtime_class_rows() {
    row(class(&json!({"handler": "crun"})), expect![[r#"["sandboxed","crun","<unknown>"]"#]]);
}

#[test]
fn api_188_api_189_how_a_runtime_class_is_put() {
    assert!(crate::kinds::runtime_class::KIND.ops.creates_on_update());
    assert!(!crate::kinds::runtime_class::KIND.ops.updates_unconditionally());
    assert!(crate::kinds::rbac::role::ROLE.ops.creates_on_update());
}
