//! What the levels say about pods, in upstream's words.

use super::*;

fn told(level: &str, pod: &Value) -> String {
    let namespace = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    let policy = Policy::of(&namespace, "enforce");
    policy.violations(pod).iter().map(|it| format!("{}: {}", it.reason, it.detail)).collect::<Vec<_>>().join("\n")
}

fn plain() -> Value {
    json!({"spec": {"containers": [{"name": "a", "image": "i"}]}})
}

#[test]
fn api_718_baseline_refuses_what_reaches_the_machine() {
    let pod = json!({
        "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}},
        "spec": {
            "hostNetwork": true, "hostPID": true,
            "securityContext": {"sysctls": [{"name": "kernel.msgmax"}], "seccompProfile": {"type": "Unconfined"},
                "seLinuxOptions": {"type": "spc_t", "user": "u"}, "windowsOptions": {"hostProcess": true}},
            "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
            "initContainers": [{"name": "i", "securityContext": {"procMount": "Unmasked"}}],
            "containers": [
                {"name": "a", "ports": [{"hostPort": 80}, {"hostPort": 81}], "livenessProbe": {"httpGet": {"host": "h"}},
                    "securityContext": {"privileged": true, "capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}},
                {"name": "b", "securityContext": {"privileged": true, "appArmorProfile": {"type": "Unconfined"}}},
            ],
        },
    });
    let expected = r#"forbidden AppArmor profiles: container "b" and annotation must not set AppArmor profile type to "Unconfined", "container.apparmor.security.beta.kubernetes.io/a="unconfined""
non-default capabilities: container "a" must not include "SYS_ADMIN" in securityContext.capabilities.add
host namespaces: hostNetwork=true, hostPID=true
hostPath volumes: volume "v"
hostPort: container "a" uses hostPorts 80, 81
probe or lifecycle host: container "a" uses probe or lifecycle host "h"
privileged: containers "a", "b" must not set securityContext.privileged=true
procMount: container "i" must not set securityContext.procMount to "Unmasked"
seLinuxOptions: pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set
seccompProfile: pod must not set securityContext.seccompProfile.type to "Unconfined"
forbidden sysctls: kernel.msgmax
hostProcess: pod must not set securityContext.windowsOptions.hostProcess=true"#;
    assert_eq!(told("baseline", &pod), expected);
    assert_eq!(told("privileged", &pod), "");
    assert_eq!(told("baseline", &plain()), "");
}

#[test]
fn api_719_restricted_demands_what_keeps_pods_in() {
    let expected = r#"allowPrivilegeEscalation != false: container "a" must set securityContext.allowPrivilegeEscalation=false
unrestricted capabilities: container "a" must set securityContext.capabilities.drop=["ALL"]
runAsNonRoot != true: pod or container "a" must set securityContext.runAsNonRoot=true
seccompProfile: pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#;
    assert_eq!(told("restricted", &plain()), expected);
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    let mut good = plain();
    good["spec"]["containers"][0]["securityContext"] = context;
    good["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    assert_eq!(told("restricted", &good), "");
    let mut bad = good.clone();
    bad["spec"]["securityContext"] = json!({"runAsUser": 0, "runAsNonRoot": false});
    bad["spec"]["volumes"] = json!([{"name": "v", "nfs": {}}, {"name": "w", "hostPath": {}}]);
    bad["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = json!(["CHOWN"]);
    let expected = r#"unrestricted capabilities: container "a" must not include "CHOWN" in securityContext.capabilities.add
restricted volume types: volumes "v", "w" use restricted volume types "hostPath", "nfs"
runAsNonRoot != true: pod must not set securityContext.runAsNonRoot=false
runAsUser=0: pod must not set runAsUser=0"#;
    assert_eq!(told("restricted", &bad), expected);
    bad["spec"]["hostUsers"] = json!(false);
    assert!(!told("restricted", &bad).contains("runAs"), "root is nobody outside");
}

#[test]
fn api_717_labels_that_can_not_be_understood() {
    let labelled = |level: &str, version: &str| json!({"metadata": {"name": "n", "labels": {"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": version}}});
    let kind = namespaces::kind();
    assert!(check_labels(kind, &labelled("baseline", "v1.30"), None).is_ok());
    let refused = check_labels(kind, &labelled("base", "1.30"), None).unwrap_err().to_string();
    let expected = r#"Namespace "n" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "base": must be one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: "1.30": must be "latest" or "v1.x"]"#;
    assert_eq!(refused, expected);
    assert!(check_labels(kind, &labelled("base", "1.30"), Some(&labelled("base", "1.30"))).is_ok(), "nothing new");
    assert_eq!(
        Policy::of(&labelled("base", "x"), "enforce"),
        Policy { level: Level::Restricted, version: "latest".into() }
    );
}
