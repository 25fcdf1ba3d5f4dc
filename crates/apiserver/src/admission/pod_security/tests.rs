//! What the levels say about pods, in upstream's words.

use super::*;

fn told(level: &str, pod: &Value) -> String {
    told_by(level, "latest", pod)
}

fn told_by(level: &str, version: &str, pod: &Value) -> String {
    let namespace = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level,
        "pod-security.kubernetes.io/enforce-version": version}}});
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

/// The versions from `first` to `last` at which something is wrong with a pod.
fn versions(level: &str, pod: &Value) -> Vec<(u32, u32)> {
    let mut found: Vec<(u32, u32)> = Vec::new();
    for minor in (0..=36).filter(|minor| !told_by(level, &format!("v1.{minor}"), pod).is_empty()) {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == minor => *last = minor,
            _ => found.push((minor, minor)),
        }
    }
    found
}

#[test]
fn api_717_a_namespace_may_ask_for_the_rules_of_an_older_version() {
    let with = |spec: Value| {
        let mut pod = plain();
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        pod
    };
    let of_container = |field: &str, value: Value| {
        let mut pod = plain();
        pod["spec"]["containers"][0][field] = value;
        pod
    };
    let sysctl = |name: &str| with(json!({"securityContext": {"sysctls": [{"name": name}]}}));
    let host = of_container("livenessProbe", json!({"httpGet": {"host": "h"}}));
    assert_eq!(versions("baseline", &host), [(34, 36)]);
    let engine = with(json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}}));
    assert_eq!(versions("baseline", &engine), [(0, 30)]);
    assert_eq!(versions("baseline", &sysctl("net.ipv4.tcp_syncookies")), []);
    assert_eq!(versions("baseline", &sysctl("net.ipv4.ip_local_reserved_ports")), [(0, 26)]);
    assert_eq!(versions("baseline", &sysctl("net.ipv4.tcp_fin_timeout")), [(0, 28)]);
    assert_eq!(versions("baseline", &sysctl("net.ipv4.tcp_rmem")), [(0, 31)]);
    assert_eq!(versions("baseline", &sysctl("net.ipv4.tcp_notsent_lowat")), [(0, 36)]);
    let unmasked = of_container("securityContext", json!({"procMount": "Unmasked"}));
    assert_eq!(versions("baseline", &unmasked), [(0, 36)]);
    let mut at_home = unmasked;
    at_home["spec"]["hostUsers"] = json!(false);
    assert_eq!(versions("baseline", &at_home), [(0, 34)]);
    let unconfined = with(json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}));
    assert_eq!(versions("baseline", &unconfined), [(19, 36)]);
    let mut noted = plain();
    noted["metadata"]["annotations"]["container.seccomp.security.alpha.kubernetes.io/a"] = json!("unconfined");
    assert_eq!(versions("baseline", &noted), [(0, 18)]);
    assert_eq!(
        told_by("baseline", "v1.18", &noted),
        "seccompProfile: forbidden annotation container.seccomp.security.alpha.kubernetes.io/a=\"unconfined\""
    );
}

#[test]
fn api_717_what_is_restricted_grew_over_time() {
    let told = |version: &str, pod: &Value| told_by("restricted", version, pod).lines().count();
    assert_eq!(told("v1.7", &plain()), 1, "who runs as root");
    assert_eq!(told("v1.8", &plain()), 2, "escalation");
    assert_eq!(told("v1.19", &plain()), 3, "seccomp");
    assert_eq!(told("v1.22", &plain()), 4, "capabilities");
    let mut root = plain();
    root["spec"]["securityContext"] = json!({"runAsUser": 0, "runAsNonRoot": true});
    assert_eq!((told("v1.22", &root), told("v1.23", &root)), (3, 4));
    let mut windows = plain();
    windows["spec"]["os"] = json!({"name": "windows"});
    assert_eq!((told("v1.24", &windows), told("v1.25", &windows)), (4, 1));
    let mut at_home = plain();
    at_home["spec"]["hostUsers"] = json!(false);
    assert_eq!((told("v1.34", &at_home), told("v1.35", &at_home)), (4, 3));
    let mut able = plain();
    able["spec"]["containers"][0]["securityContext"] = json!({"capabilities": {"add": ["SYS_ADMIN"]}});
    assert!(told_by("restricted", "v1.21", &able).starts_with("non-default capabilities: "));
    assert!(!told_by("restricted", "v1.22", &able).contains("non-default"));
}
