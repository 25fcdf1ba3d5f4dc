//! Both values of every gate that touches a pod's fields.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::gates::Gates;
use crate::kinds::KindOps;
use crate::kinds::pod::{PodOps, tests::pod};

const RESTART_ALL_GATES: &str = "NodeDeclaredFeatures=true,RestartAllContainersOnContainerExits=true";

fn gates(settings: &str) -> Gates {
    Gates::parse(settings).unwrap()
}

fn words(errors: &[crate::FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A new pod as it would be stored, and its errors.
fn created(spec: Value, settings: &str) -> (Value, String) {
    let mut doc = pod(spec);
    PodOps.default(&mut doc);
    PodOps.prepare_create(&mut doc, &gates(settings));
    let errors = words(&PodOps.validate_create(&doc, &gates(settings)));
    (doc, errors)
}

/// What an update that changes only the first image makes of a stored pod.
fn updated(old: &Value, edit: impl Fn(&mut Value), settings: &str) -> (Value, String) {
    let mut doc = old.clone();
    doc["spec"]["containers"][0]["image"] = json!("y");
    edit(&mut doc);
    PodOps.default(&mut doc);
    PodOps.prepare_update(&mut doc, old, &gates(settings));
    let errors = words(&PodOps.validate_update(&doc, old, &gates(settings)));
    (doc, errors)
}

fn stopped_by(signal: &str) -> Value {
    json!({"os": {"name": "linux"}, "containers": [{"name": "a", "image": "x", "lifecycle": {"stopSignal": signal}}]})
}

#[test]
fn tc_073_stop_signals_are_dropped_while_their_gate_is_off() {
    let (doc, errors) = created(stopped_by("SIGUSR1"), "");
    assert_eq!((doc["spec"]["containers"][0].get("lifecycle"), errors.as_str()), (None, ""));
    let (stored, errors) = created(stopped_by("SIGUSR1"), "ContainerStopSignals=true");
    assert_eq!(stored["spec"]["containers"][0]["lifecycle"], json!({"stopSignal": "SIGUSR1"}));
    assert_eq!(errors, "");
    // LC-392: what uses the field already keeps it when the gate goes off …
    let (doc, errors) = updated(&stored, |_| {}, "");
    assert_eq!(doc["spec"]["containers"][0]["lifecycle"], json!({"stopSignal": "SIGUSR1"}));
    assert_eq!(errors, "");
    // … and what does not cannot begin to.
    let (plain, _) = created(json!({"containers": [{"name": "a", "image": "x"}]}), "");
    let begin = |doc: &mut Value| doc["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGUSR1"});
    let (doc, errors) = updated(&plain, begin, "");
    assert_eq!((doc["spec"]["containers"][0].get("lifecycle"), errors.as_str()), (None, ""));
}

#[test]
fn tc_073_hooks_beside_a_dropped_stop_signal_stay() {
    let mut spec = stopped_by("SIGUSR1");
    spec["containers"][0]["lifecycle"]["preStop"] = json!({"sleep": {"seconds": 1}});
    let (doc, _) = created(spec, "");
    assert_eq!(doc["spec"]["containers"][0]["lifecycle"], json!({"preStop": {"sleep": {"seconds": 1}}}));
}

#[test]
fn tc_074_tc_075_tc_076_stop_signals_fit_the_operating_system() {
    let check = |spec: Value, expected: Expect| expected.assert_eq(&created(spec, "ContainerStopSignals=true").1);
    let mut spec = stopped_by("SIGUSR1");
    spec["os"] = Value::Null;
    check(
        spec.clone(),
        expect![
            "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`"
        ],
    );
    spec["os"] = json!({"name": "windows"});
    check(
        spec,
        expect![[
            r#"spec.containers[0].lifecycle.stopSignal: Unsupported value: "SIGUSR1": supported values: "SIGKILL", "SIGTERM""#
        ]],
    );
    check(stopped_by("SIGRTMIN+15"), expect![""]);
    check(
        stopped_by("USR1"),
        expect![[
            r#"spec.containers[0].lifecycle.stopSignal: Unsupported value: "USR1": supported values: "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTMAX", "SIGRTMAX-1", "SIGRTMAX-10", "SIGRTMAX-11", "SIGRTMAX-12", "SIGRTMAX-13", "SIGRTMAX-14", "SIGRTMAX-2", "SIGRTMAX-3", "SIGRTMAX-4", "SIGRTMAX-5", "SIGRTMAX-6", "SIGRTMAX-7", "SIGRTMAX-8", "SIGRTMAX-9", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+10", "SIGRTMIN+11", "SIGRTMIN+12", "SIGRTMIN+13", "SIGRTMIN+14", "SIGRTMIN+15", "SIGRTMIN+2", "SIGRTMIN+3", "SIGRTMIN+4", "SIGRTMIN+5", "SIGRTMIN+6", "SIGRTMIN+7", "SIGRTMIN+8", "SIGRTMIN+9", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ""#
        ]],
    );
}

fn restarting(action: &str) -> Value {
    let rules = json!([{"action": action, "exitCodes": {"operator": "In", "values": [88]}}]);
    json!({"containers": [{"name": "a", "image": "x"}], "initContainers": [
        {"name": "watcher", "image": "x", "restartPolicy": "Always", "restartPolicyRules": rules}
    ]})
}

#[test]
fn lc_142_lc_143_restarting_all_containers_needs_its_gate() {
    let check = |action: &str, settings: &str, expected: Expect| {
        expected.assert_eq(&created(restarting(action), settings).1);
    };
    check("RestartAllContainers", RESTART_ALL_GATES, expect![""]);
    check("Restart", RESTART_ALL_GATES, expect![""]);
    check(
        "Reboot",
        RESTART_ALL_GATES,
        expect![[
            r#"spec.initContainers[0].restartPolicyRules[0].action: Unsupported value: "Reboot": supported values: "Restart", "RestartAllContainers""#
        ]],
    );
    check(
        "RestartAllContainers",
        "",
        expect![[r#"
        spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always
        spec.initContainers[0].restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart""#]],
    );
}

#[test]
fn lc_392_a_stored_pod_keeps_restarting_all_containers() {
    let (stored, _) = created(restarting("RestartAllContainers"), RESTART_ALL_GATES);
    assert_eq!(updated(&stored, |_| {}, "").1, "");
}

#[test]
fn lc_144_container_policies_are_dropped_while_their_gate_is_off() {
    let off = "ContainerRestartRules=false";
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]);
    let spec = json!({
        "containers": [{"name": "a", "image": "x", "restartPolicy": "Never", "restartPolicyRules": rules}],
        "initContainers": [
            {"name": "i", "image": "x", "restartPolicy": "OnFailure"},
            {"name": "s", "image": "x", "restartPolicy": "Always"}
        ]
    });
    let policies = |doc: &Value| {
        let of = |list: &str, at: usize| doc["spec"][list][at]["restartPolicy"].as_str().unwrap_or("-").to_owned();
        [of("containers", 0), of("initContainers", 0), of("initContainers", 1)]
    };
    let (doc, errors) = created(spec.clone(), off);
    assert_eq!((policies(&doc), errors.as_str()), (["-", "-", "Always"].map(str::to_owned), ""));
    assert_eq!(doc["spec"]["containers"][0].get("restartPolicyRules"), None);
    let (stored, _) = created(spec, "");
    let (doc, errors) = updated(&stored, |_| {}, off);
    assert_eq!((policies(&doc), errors.as_str()), (["Never", "OnFailure", "Always"].map(str::to_owned), ""));
}

#[test]
fn lc_392_other_fields_vanish_with_their_gates() {
    let spec = json!({
        "containers": [{"name": "a", "image": "x", "env": [
            {"name": "E", "valueFrom": {"fileKeyRef": {"key": "K", "path": "p", "volumeName": "v"}}}]}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "i", "image": {"reference": "r"}}],
        "hostnameOverride": "h",
        "resources": {"limits": {"cpu": "1"}}
    });
    let kept = |doc: &Value| {
        let spec = &doc["spec"];
        let paths = ["/containers/0/env/0/valueFrom/fileKeyRef", "/volumes/1/image", "/hostnameOverride", "/resources"];
        paths.map(|path| spec.pointer(path).is_some())
    };
    let off = "EnvFiles=false,ImageVolume=false,HostnameOverride=false,PodLevelResources=false";
    assert_eq!(kept(&created(spec.clone(), off).0), [false; 4]);
    let (stored, _) = created(spec, "");
    assert_eq!(kept(&stored), [true; 4]);
    assert_eq!(kept(&updated(&stored, |_| {}, off).0), [true; 4]);
}

#[test]
fn lc_072_lc_135_who_may_leave_terminated_depends_on_the_gates() {
    let status = |state: Value| json!({"containerStatuses": [{"name": "a", "state": state}]});
    let errors = |spec: &Value, settings: &str| {
        let mut old = pod(spec.clone());
        let mut new = old.clone();
        old["status"] = status(json!({"terminated": {"exitCode": 7}}));
        new["status"] = status(json!({"waiting": {}}));
        PodOps.validate_status_update(&new, &old, &gates(settings)).len()
    };
    let mut spec = restarting("RestartAllContainers");
    spec["restartPolicy"] = json!("Never");
    // Whoever ended for good comes back with all the others.
    assert_eq!(errors(&spec, RESTART_ALL_GATES), 0);
    assert_eq!(errors(&spec, ""), 1);
    // With the gate off the agent goes by the pod's policy, so that must be fine.
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "a", "restartPolicy": "Never"}]});
    assert_eq!(errors(&spec, ""), 1);
    assert_eq!(errors(&spec, "ContainerRestartRules=false"), 0);
    // LC-136: without a policy of its own a container's rules are ignored.
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [7]}}]);
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "a", "restartPolicyRules": rules}]});
    assert_eq!(errors(&spec, ""), 1);
}
