//! Which requests a policy is about, and which policies are none.

use expect_test::expect;

use super::*;

fn policy(rules: &str) -> AuditPolicy {
    AuditPolicy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}")).unwrap()
}

/// `verb group/resource[/subresource] [namespace[/name]]` or `verb /path`.
fn level(policy: &AuditPolicy, line: &str) -> Level {
    let groups = ["system:authenticated".to_owned(), "dev".to_owned()];
    let mut words = line.split(' ');
    let (verb, object) = (words.next().unwrap(), words.next().unwrap());
    let (namespace, name) = words.next().unwrap_or_default().split_once('/').unwrap_or_default();
    let what = match object.starts_with('/') {
        true => What::Path(object),
        false => {
            let mut parts = object.split('/');
            let mut next = || parts.next().unwrap_or_default();
            let group = next();
            let group = if group == "core" { "" } else { group };
            What::Resource { group, resource: next(), subresource: next(), namespace, name }
        }
    };
    let asked = Asked { user: Some(("jane", &groups)), verb, what };
    policy.judge(&asked).map_or(Level::None, |verdict| verdict.level)
}

#[test]
fn the_first_rule_that_fits_decides_and_none_means_silence() {
    let policy = policy(
        "- {level: None, users: [jane], verbs: [watch]}\n\
         - {level: RequestResponse, userGroups: [dev], resources: [{group: '', resources: [pods]}]}\n\
         - {level: Request, resources: [{group: apps}], namespaces: [team]}\n\
         - {level: Metadata, nonResourceURLs: ['/api*', /version]}\n\
         - {level: Metadata, users: [joe]}",
    );
    for (line, wanted) in [
        ("watch core/pods", Level::None),
        ("get core/pods", Level::RequestResponse),
        ("get core/pods/log", Level::None),
        ("get apps/deployments team/web", Level::Request),
        ("get apps/deployments/scale team/web", Level::Request),
        ("get apps/deployments other/web", Level::None),
        ("get /apis", Level::Metadata),
        ("get /version", Level::Metadata),
        ("get /version/x", Level::None),
    ] {
        assert_eq!(level(&policy, line), wanted, "{line}");
    }
    let stranger = Asked { user: None, verb: "get", what: What::Path("/nowhere") };
    assert_eq!(policy.judge(&stranger), None, "a rule about users is not about nobody");
}

#[test]
fn resources_are_named_with_subresources_stars_and_names() {
    for (resources, fitting, others) in [
        ("[pods]", "pods", "pods/log pods/exec secrets"),
        ("[pods/log]", "pods/log", "pods pods/exec"),
        ("['*']", "pods pods/log secrets", ""),
        ("['*/exec']", "pods/exec nodes/exec", "pods pods/log"),
        ("['pods/*']", "pods pods/log", "secrets secrets/log"),
    ] {
        let policy = policy(&format!("- {{level: Metadata, resources: [{{group: '', resources: {resources}}}]}}"));
        for (list, wanted) in [(fitting, Level::Metadata), (others, Level::None)] {
            for object in list.split_whitespace() {
                assert_eq!(level(&policy, &format!("get core/{object}")), wanted, "{resources} {object}");
            }
        }
        assert_eq!(level(&policy, "get apps/pods"), Level::None, "another group");
    }
    let named = policy("- {level: Metadata, resources: [{group: '', resources: [secrets], resourceNames: [a]}]}");
    assert_eq!(level(&named, "get core/secrets team/a"), Level::Metadata);
    assert_eq!(level(&named, "get core/secrets team/b"), Level::None);
}

#[test]
fn by_default_writes_secrets_and_the_inside_of_containers_are_written_down() {
    let policy = AuditPolicy::default();
    for line in [
        "create core/configmaps",
        "update apps/deployments/scale",
        "patch core/nodes/status",
        "deletecollection core/pods",
        "get core/secrets",
        "watch core/secrets",
        "get core/pods/exec",
        "get core/pods/attach",
        "get core/pods/portforward",
        "get core/nodes/proxy",
        "get core/services/proxy",
        "create authentication.k8s.io/tokenreviews",
        "get certificates.k8s.io/certificatesigningrequests",
        "create core/serviceaccounts/token",
        "post /anything",
    ] {
        assert_eq!(level(&policy, line), Level::Metadata, "{line}");
    }
    for line in ["get core/pods", "list core/configmaps", "watch core/pods", "get core/pods/log", "get /healthz"] {
        assert_eq!(level(&policy, line), Level::None, "{line}");
    }
}

#[test]
fn stages_are_left_out_by_the_policy_or_by_a_rule() {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nomitManagedFields: true\n\
        rules:\n- {level: Metadata, omitStages: [Panic], verbs: [get]}\n- {level: Metadata, omitManagedFields: false}";
    let policy = AuditPolicy::parse(text).unwrap();
    let judged = |verb| policy.judge(&Asked { user: None, verb, what: What::Path("/") }).unwrap();
    let kept = |verdict: Verdict| Stage::ALL.map(|(stage, _)| !verdict.omits(stage));
    assert_eq!(kept(judged("get")), [false, true, true, false]);
    assert_eq!(kept(judged("put")), [false, true, true, true]);
    assert!(judged("get").omits_managed_fields && !judged("put").omits_managed_fields);
}

#[test]
fn a_wrong_policy_is_refused_with_the_name_of_its_field() {
    let wrong = |text: &str| AuditPolicy::parse(text).unwrap_err();
    let rules = |rules: &str| wrong(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}"));
    expect!["this is Pod of v1, and should be Policy of audit.k8s.io/v1"]
        .assert_eq(&wrong("{apiVersion: v1, kind: Pod}"));
    expect!["loaded illegal policy with 0 rules"].assert_eq(&wrong("{apiVersion: audit.k8s.io/v1, kind: Policy}"));
    expect!["unknown field `verb`, expected one of `level`, `users`, `userGroups`, `verbs`, `resources`, `namespaces`, `nonResourceURLs`, `omitStages`, `omitManagedFields`"].assert_eq(&rules("- {level: Metadata, verb: [get]}"));
    expect![[r#"rules[0].level: Unsupported value: "Much": supported values: "None", "Metadata", "Request", "RequestResponse"; rules[1].level: Required value"#]].assert_eq(&rules("- {level: Much}\n- {verbs: [get]}"));
    expect![[r#"rules[0].nonResourceURLs: Invalid value: "api,/a*/b": rules cannot apply to both regular resources and non-resource URLs; rules[0].nonResourceURLs[0]: Invalid value: "api": non-resource URL rules must begin with a '/' character; rules[0].nonResourceURLs[1]: Invalid value: "/a*/b": non-resource URL wildcards '*' must be the final character of the rule"#]].assert_eq(&rules("- {level: None, nonResourceURLs: [api, '/a*/b'], namespaces: [x]}"));
    expect![[r#"rules[0].resources[0].group: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'); rules[0].resources[0].resourceNames: Invalid value: "x": using resourceNames requires at least one resource; rules[0].omitStages[0]: Invalid value: "Begin": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#]]
        .assert_eq(&rules("- {level: None, omitStages: [Begin], resources: [{group: A_b, resourceNames: [x]}]}"));
}
