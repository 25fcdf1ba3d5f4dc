//! Who may do what, as kubectl shows it.

use podium_e2e::Podium;
use serde_json::Value;

/// What kubectl prints when it is refused.
fn refused(podium: &Podium, arguments: &[&str]) -> String {
    podium.kubectl(arguments).refused(1)
}

const READER: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: reader}
  rules: [{apiGroups: [""], resources: [pods, pods/log], verbs: [get, list, watch]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: robot-reads}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
  subjects: [{kind: ServiceAccount, name: robot}]
"#;

#[test]
fn api_655_an_account_may_what_its_binding_says_and_nothing_else() {
    let podium = Podium::start();
    podium.kubectl_with_input(&["apply", "-f", "-"], READER).ok();
    let token = podium.kubectl(&["create", "token", "robot"]).ok();
    let flags = [
        // Not the administrator's certificate, which would win over the token.
        "--kubeconfig=/dev/null".to_owned(),
        format!("--server=https://{}", podium.address()),
        format!("--certificate-authority={}", podium.data().join("pki/ca.crt").display()),
        format!("--token={}", token.trim()),
    ];
    let as_robot = |arguments: &[&str]| {
        let all: Vec<&str> = flags.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        podium.kubectl(&all)
    };
    as_robot(&["get", "pods"]).ok();
    assert_eq!(as_robot(&["auth", "can-i", "list", "pods"]).ok().trim(), "yes");
    assert_eq!(as_robot(&["auth", "can-i", "get", "pods/log"]).ok().trim(), "yes");
    let whoami = as_robot(&["auth", "whoami", "-o", "json"]).ok();
    let whoami: Value = serde_json::from_str(&whoami).expect("kubectl prints JSON");
    assert_eq!(whoami["status"]["userInfo"]["username"], "system:serviceaccount:default:robot");
    let user = "User \"system:serviceaccount:default:robot\"";
    for (arguments, expected) in [
        (
            &["get", "pods", "-n", "kube-system"][..],
            format!(
                "pods is forbidden: {user} cannot list resource \"pods\" in API group \"\" in the namespace \"kube-system\""
            ),
        ),
        (
            &["get", "secrets"],
            format!(
                "secrets is forbidden: {user} cannot list resource \"secrets\" in API group \"\" in the namespace \"default\""
            ),
        ),
        (
            &["delete", "pod", "x"],
            format!(
                "pods \"x\" is forbidden: {user} cannot delete resource \"pods\" in API group \"\" in the namespace \"default\""
            ),
        ),
        (
            &["get", "nodes"],
            format!("nodes is forbidden: {user} cannot list resource \"nodes\" in API group \"\" at the cluster scope"),
        ),
    ] {
        let said = as_robot(arguments).refused(1);
        assert!(said.contains(&format!("Error from server (Forbidden): {expected}")), "{said}");
    }
    let no = as_robot(&["auth", "can-i", "delete", "pods"]);
    assert_eq!((no.code, no.stdout.trim()), (Some(1), "no"));
    let list = as_robot(&["auth", "can-i", "--list"]).ok();
    let has = |words: [&str; 2]| list.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(has(["pods/log", "[get list watch]"]), "{list}");
    assert!(has(["selfsubjectaccessreviews.authorization.k8s.io", "[create]"]), "{list}");
}

#[test]
fn api_654_an_administrator_acts_as_others() {
    let podium = Podium::start();
    assert_eq!(podium.kubectl(&["auth", "can-i", "*", "*"]).ok().trim(), "yes");
    let said = refused(&podium, &["get", "pods", "--as", "jane", "--as-group", "dev"]);
    assert!(said.contains("pods is forbidden: User \"jane\" cannot list resource \"pods\""), "{said}");
    podium.kubectl(&["create", "clusterrolebinding", "dev-views", "--clusterrole=view", "--group=dev"]).ok();
    podium.kubectl(&["get", "pods", "--as", "jane", "--as-group", "dev"]).ok();
    let said = refused(&podium, &["get", "secrets", "--as", "jane", "--as-group", "dev"]);
    assert!(said.contains("User \"jane\" cannot list resource \"secrets\""), "{said}");
    let table = podium.kubectl(&["get", "clusterrolebinding", "dev-views", "-o", "wide"]).ok();
    assert!(table.contains("ClusterRole/view") && table.contains("dev"), "{table}");
    podium.kubectl(&["create", "role", "editor", "--verb=get,create", "--resource=pods,pods/exec"]).ok();
    podium.kubectl(&["create", "rolebinding", "jane", "--role=editor", "--user=jane"]).ok();
    let said = podium.kubectl(&["auth", "can-i", "create", "pods", "--subresource=exec", "--as", "jane"]).ok();
    assert_eq!(said.trim(), "yes");
}
