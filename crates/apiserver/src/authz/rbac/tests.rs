//! What rules allow, and for whom they hold.

use objects::kinds;
use serde_json::json;

use super::super::Resource;
use super::*;

fn rule(rule: Value) -> Rule {
    serde_json::from_value(rule).unwrap()
}

/// `VERB GROUP/RESOURCE[/SUBRESOURCE] [NAMESPACE/]NAME`, or `VERB /path`.
fn access(line: &str) -> Access {
    let words: Vec<&str> = line.split(' ').collect();
    if words[1].starts_with('/') {
        return Access { verb: words[0].into(), to: Object::Path(words[1].into()) };
    }
    let (group, resource) = words[1].split_once('/').unwrap();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let place = words.get(2).copied().unwrap_or_default();
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let to = Resource {
        group: group.replace("core", ""),
        resource: resource.into(),
        subresource: subresource.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..Resource::default()
    };
    Access { verb: words[0].into(), to: Object::Resource(to) }
}

#[test]
fn api_656_a_rule_allows_by_verb_group_resource_and_name() {
    let pods = rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}));
    let scale = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"]}));
    let all = rule(json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*"]}));
    let named =
        rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}));
    for (rule, line, is_allowed) in [
        (&pods, "get core/pods n/x", true),
        (&pods, "watch core/pods n/x", false),
        (&pods, "get apps/pods n/x", false),
        (&pods, "get core/pods/log n/x", false),
        (&pods, "get /pods", false),
        (&scale, "update apps/deployments/scale n/x", true),
        (&scale, "update apps/deployments n/x", false),
        (&scale, "update apps/deployments/upscale n/x", false),
        (&all, "get apps/deployments/status n/x", true),
        (&named, "get core/secrets n/a", true),
        (&named, "get core/secrets n/b", false),
        (&named, "list core/secrets n/", false),
        (&named, "list core/secrets n/a", true),
    ] {
        assert_eq!(rule.allows(&access(line)), is_allowed, "{line}");
    }
}

#[test]
fn api_657_paths_are_exact_or_begin_so() {
    let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]}));
    for (line, is_allowed) in [
        ("get /healthz", true),
        ("get /healthz/ping", false),
        ("get /apis/", true),
        ("get /apis/apps/v1", true),
        ("get /apis", false),
        ("post /healthz", false),
        ("get core/pods n/x", false),
    ] {
        assert_eq!(paths.allows(&access(line)), is_allowed, "{line}");
    }
    assert!(rule(json!({"verbs": ["*"], "nonResourceURLs": ["*"]})).allows(&access("post /x")));
}

fn put(policy: &mut Policy, plural: &str, place: &str, doc: Value) {
    let kind = kinds::find(kinds::rbac::GROUP, "v1", plural).unwrap();
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    policy.put(kind, namespace, name, &doc);
}

fn binding(kind: &str, role: &str, subject: Value) -> Value {
    json!({"roleRef": {"kind": kind, "name": role}, "subjects": [subject]})
}

fn policy() -> Policy {
    let mut policy = Policy::default();
    let reads = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    put(&mut policy, "clusterroles", "reader", reads.clone());
    put(&mut policy, "roles", "a/local", reads);
    let group = json!({"kind": "Group", "name": "ops"});
    put(&mut policy, "clusterrolebindings", "ops", binding("ClusterRole", "reader", group));
    let account = json!({"kind": "ServiceAccount", "name": "robot"});
    put(&mut policy, "rolebindings", "a/robot", binding("Role", "local", account));
    let user = json!({"kind": "User", "name": "jane"});
    put(&mut policy, "rolebindings", "b/jane", binding("ClusterRole", "reader", user.clone()));
    put(&mut policy, "rolebindings", "b/lost", binding("Role", "gone", user));
    policy
}

fn answer(policy: &Policy, user: &str, groups: &[&str], line: &str) -> String {
    match policy.decide(&Identity::new(user, groups.iter().copied()), &access(line)) {
        Decision::Allowed(why) => why,
        Decision::NoOpinion(why) => format!("no {why}"),
    }
}

#[test]
fn api_655_bindings_hold_where_they_are_and_for_whom_they_name() {
    let policy = policy();
    let robot = "system:serviceaccount:a:robot";
    for (user, groups, line, expected) in [
        (
            "joe",
            &["ops"][..],
            "get core/pods z/x",
            r#"RBAC: allowed by ClusterRoleBinding "ops" of ClusterRole "reader" to Group "ops""#,
        ),
        (
            "joe",
            &["ops"],
            "get core/pods",
            r#"RBAC: allowed by ClusterRoleBinding "ops" of ClusterRole "reader" to Group "ops""#,
        ),
        ("ops", &[], "get core/pods z/x", "no "),
        (
            robot,
            &[],
            "get core/pods a/x",
            r#"RBAC: allowed by RoleBinding "robot/a" of Role "local" to ServiceAccount "robot/a""#,
        ),
        (robot, &[], "get core/pods b/x", "no "),
        (
            "jane",
            &[],
            "get core/pods b/x",
            r#"RBAC: allowed by RoleBinding "jane/b" of ClusterRole "reader" to User "jane""#,
        ),
        ("jane", &[], "get core/pods", "no "),
        ("jane", &[], "list core/pods b/", r#"no RBAC: role.rbac.authorization.k8s.io "gone" not found"#),
    ] {
        assert_eq!(answer(&policy, user, groups, line), expected, "{user} {line}");
    }
}

#[test]
fn api_655_what_is_taken_away_is_gone() {
    let mut policy = policy();
    let kind = |plural| kinds::find(kinds::rbac::GROUP, "v1", plural).unwrap();
    let other = json!({"kind": "User", "name": "joe"});
    put(&mut policy, "rolebindings", "b/jane", binding("ClusterRole", "reader", other));
    policy.remove(kind("rolebindings"), "b", "lost");
    assert_eq!(answer(&policy, "jane", &[], "get core/pods b/x"), "no ");
    assert!(answer(&policy, "joe", &[], "get core/pods b/x").starts_with("RBAC"));
    policy.remove(kind("clusterroles"), "", "reader");
    let missing = r#"no RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found"#;
    assert_eq!(answer(&policy, "joe", &["ops"], "get core/pods b/x"), missing);
    policy.remove(kind("clusterrolebindings"), "", "ops");
    policy.remove(kind("rolebindings"), "b", "jane");
    assert_eq!(answer(&policy, "joe", &["ops"], "get core/pods b/x"), "no ");
    assert!(policy.cluster_bindings.by_subject.is_empty() && policy.bindings["b"].by_subject.is_empty());
}
