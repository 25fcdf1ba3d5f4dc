//! Golden tests of roles and bindings.

use super::*;

const GROUP: &str = "rbac.authorization.k8s.io/v1";

fn role(rules: Value) -> Value {
    json!({"apiVersion": GROUP, "kind": "Role", "metadata": {"name": "reader", "namespace": "n"}, "rules": rules})
}

fn binding(role: &Value, subjects: &Value) -> Value {
    json!({"apiVersion": GROUP, "kind": "RoleBinding", "metadata": {"name": "b", "namespace": "n"},
        "roleRef": role, "subjects": subjects})
}

#[test]
fn api_741_bindings_name_the_group_of_users_groups_and_roles() {
    create(
        binding(
            &json!({"kind": "Role", "name": "reader"}),
            &json!([{"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "robot"}]),
        ),
        expect![[
            r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"b","namespace":"n"},"roleRef":{"kind":"Role","apiGroup":"rbac.authorization.k8s.io","name":"reader"},"subjects":[{"kind":"User","name":"jane","apiGroup":"rbac.authorization.k8s.io"},{"kind":"ServiceAccount","name":"robot"}]}"#
        ]],
    );
}

#[test]
fn api_656_api_657_rules_are_of_resources_or_of_paths() {
    create(
        role(json!([{"verbs": []}, {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}])),
        expect![[r#"
            rules[0].verbs: Required value: verbs must contain at least one value
            rules[0].apiGroups: Required value: resource rules must supply at least one api group
            rules[0].resources: Required value: resource rules must supply at least one resource
            rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs
            rules[1].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs"#]],
    );
    let name = json!({"apiVersion": GROUP, "kind": "ClusterRole", "metadata": {"name": "a/b"}, "rules": []});
    create(name, expect![[r#"metadata.name: Invalid value: "a/b": may not contain '/'"#]]);
}

#[test]
fn api_655_subjects_are_users_groups_and_service_accounts() {
    create(
        binding(
            &json!({"kind": "Pod", "apiGroup": "apps"}),
            &json!([
                {"kind": "ServiceAccount", "name": "Robot", "apiGroup": "x"},
                {"kind": "User", "apiGroup": "x", "name": "jane"},
                {"kind": "Robot"},
            ]),
        ),
        expect![[r#"
            roleRef.apiGroup: Unsupported value: "apps": supported values: "rbac.authorization.k8s.io"
            roleRef.kind: Unsupported value: "Pod": supported values: "Role", "ClusterRole"
            roleRef.name: Required value
            subjects[0].name: Invalid value: "Robot": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            subjects[0].apiGroup: Unsupported value: "x": supported values: ""
            subjects[1].apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io"
            subjects[2].name: Required value
            subjects[2].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#]],
    );
    create(
        json!({"apiVersion": GROUP, "kind": "ClusterRoleBinding", "metadata": {"name": "b"},
            "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "robot"}]}),
        expect![[r#"
            roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"
            subjects[0].namespace: Required value"#]],
    );
}

#[test]
fn api_375_a_binding_keeps_its_role() {
    let to = |name: &str| {
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        binding(&role, &json!([]))
    };
    update(
        to("view"),
        to("edit"),
        expect![[
            r#"roleRef: Invalid value: {"kind":"ClusterRole","apiGroup":"rbac.authorization.k8s.io","name":"edit"}: cannot change roleRef"#
        ]],
    );
}

#[test]
fn api_659_roles_that_gather_say_from_where() {
    let gathering = |selectors: Value| {
        json!({"apiVersion": GROUP, "kind": "ClusterRole", "metadata": {"name": "r"},
            "aggregationRule": {"clusterRoleSelectors": selectors}})
    };
    create(
        gathering(json!([])),
        expect![
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
        ],
    );
    create(
        gathering(json!([{"matchExpressions": [{"key": "a", "operator": "Near"}]}])),
        expect![[
            r#"aggregationRule.clusterRoleSelectors[0]: Invalid value: {"matchExpressions":[{"key":"a","operator":"Near"}]}: invalid label selector."#
        ]],
    );
}

#[test]
fn api_263_api_269_rows_of_bindings_and_roles() {
    row(
        json!({"apiVersion": GROUP, "kind": "ClusterRoleBinding",
            "metadata": {"name": "b", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
                {"kind": "User", "name": "jane"}, {"kind": "User", "name": "joe"}, {"kind": "Group", "name": "dev"},
                {"kind": "ServiceAccount", "name": "robot", "namespace": "n"}]}),
        expect![[r#"["b","ClusterRole/view","60m","jane, joe","dev","n/robot"]"#]],
    );
    row(
        json!({"apiVersion": GROUP, "kind": "Role",
            "metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"}}),
        expect![[r#"["r","2026-01-01T00:00:00Z"]"#]],
    );
}
