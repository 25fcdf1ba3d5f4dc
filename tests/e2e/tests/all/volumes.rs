//! What pods find in their volumes: configuration that changes, tokens that
//! work, data that stays.

use std::process::Command;

use podium_e2e::{Done, Patience, Podium, Sketch, run};
use serde_json::{Value, json};

const SLEEPS: &str = "trap 'exit 0' TERM; sleep 3600 & wait";

#[track_caller]
fn apply(podium: &Podium, object: &Value) {
    podium.kubectl_with_input(&["apply", "-f", "-"], &object.to_string()).ok();
}

fn named(kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    for (field, value) in more.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

fn claim(name: &str, more: Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    named("PersistentVolumeClaim", name, json!({"spec": spec}))
}

/// A pod with one volume at `/data` and a container that runs `shell`.
fn pod_with(name: &str, source: Value, shell: &str) -> Sketch {
    let mut volume = json!({"name": "data"});
    for (field, value) in source.as_object().into_iter().flatten() {
        volume[field] = value.clone();
    }
    Sketch::pod(name)
        .container_with("app", shell, json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}))
        .with("volumes", json!([volume]))
}

#[test]
fn lc_319_a_running_pod_sees_a_changed_config_map_but_not_through_a_sub_path() {
    let podium = Podium::start();
    apply(&podium, &named("ConfigMap", "settings", json!({"data": {"mode": "slow"}})));
    let shell = "last=; while true; do now=\"$(cat /whole/mode) $(cat /part)\"; \
        [ \"$now\" = \"$last\" ] || echo \"$now\"; last=$now; sleep 0.1; done";
    let mounts = json!([{"name": "conf", "mountPath": "/whole"},
        {"name": "conf", "mountPath": "/part", "subPath": "mode"}]);
    let pod = Sketch::pod("reader")
        .container_with("app", shell, json!({"volumeMounts": mounts}))
        .with("volumes", json!([{"name": "conf", "configMap": {"name": "settings"}}]));
    podium.apply(&pod);
    podium.wait_ready("reader");
    podium.follow_log("reader", "app", "slow", |line| (line == "slow slow").then_some(()));
    podium.kubectl(&["patch", "configmap", "settings", "-p", r#"{"data":{"mode":"fast"}}"#]).ok();
    podium.follow_log("reader", "app", "fast", |line| (line == "fast slow").then_some(()));
}

#[test]
fn lc_320_lc_321_a_pod_starts_when_what_it_refers_to_appears() {
    let podium = Podium::start();
    podium.apply(&pod_with("early", json!({"configMap": {"name": "settings"}}), SLEEPS));
    let told = "MountVolume.SetUp failed for volume \"data\" : configmap \"settings\" not found";
    podium.wait_event("early", "FailedMount", told);
    let env = json!({"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "vault", "key": "key"}}}]});
    podium.apply(&Sketch::pod("keyless").container_with("app", SLEEPS, env));
    podium.wait_pod("keyless", "why it waits", Patience::LONG, |pod| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "CreateContainerConfigError" && waiting["message"] == "secret \"vault\" not found"
    });
    apply(&podium, &named("ConfigMap", "settings", json!({"data": {"mode": "slow"}})));
    apply(&podium, &named("Secret", "vault", json!({"stringData": {"key": "k"}})));
    podium.wait_ready("early");
    podium.wait_ready("keyless");
}

#[test]
fn parts_named_by_variables_and_groups_that_may_write() {
    let podium = Podium::start();
    let shell = "touch /data/f && stat -c '%g' /data/f && id -G && ls /all && trap 'exit 0' TERM; sleep 3600 & wait";
    let more = json!({
        "env": [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "subPathExpr": "logs-$(WHO)"},
            {"name": "data", "mountPath": "/all"}],
    });
    let context = json!({"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000, "supplementalGroups": [3000]});
    let pod = Sketch::pod("member")
        .container_with("app", shell, more)
        .with("volumes", json!([{"name": "data", "emptyDir": {}}]))
        .with("securityContext", context);
    podium.apply(&pod);
    podium.wait_ready("member");
    let log = podium.logs("member");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "2000", "files belong to the group: {log}");
    let groups: Vec<&str> = lines[1].split(' ').collect();
    assert!(groups.contains(&"2000") && groups.contains(&"3000"), "{log}");
    assert_eq!(lines[2], "logs-member");
}

/// kubectl as the bearer of a token, trusting a certificate of the pod's own.
#[track_caller]
fn kubectl_as(podium: &Podium, token: &str, authority: &str, arguments: &[&str]) -> Done {
    let file = podium.work().join("pod-ca.crt");
    std::fs::write(&file, authority).expect("the work directory is ours");
    let mut command = Command::new(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
    command.env("KUBECONFIG", "/dev/null").env("KUBECACHEDIR", podium.work().join("kube-pod"));
    command.args(["--server", &format!("https://{}", podium.address()), "--token", token, "--certificate-authority"]);
    command.arg(file).args(arguments);
    run(&command, "", Patience::LONG)
}

#[test]
fn lc_323_api_647_a_pods_token_works_as_long_as_the_pod_lives() {
    let podium = Podium::start();
    apply(&podium, &named("ServiceAccount", "robot", json!({})));
    let place = "/var/run/secrets/kubernetes.io/serviceaccount";
    let shell = format!("cat {place}/token; echo; cat {place}/namespace; echo; cat {place}/ca.crt; {SLEEPS}");
    podium.apply(&Sketch::pod("caller").container("app", &shell).with("serviceAccountName", json!("robot")));
    podium.wait_ready("caller");
    let log = podium.logs("caller");
    let mut lines = log.lines();
    let (token, namespace) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    assert_eq!(namespace, "default");
    let authority: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(authority.starts_with("-----BEGIN CERTIFICATE-----"), "{log}");
    kubectl_as(&podium, token, &authority, &["get", "--raw", "/api"]).ok();
    let refused = kubectl_as(&podium, token, &authority, &["get", "pods"]).refused(1);
    let expected = "User \"system:serviceaccount:default:robot\" cannot list resource \"pods\"";
    assert!(refused.contains(expected), "{refused}");
    kubectl_as(&podium, &format!("{token}x"), &authority, &["get", "--raw", "/api"]).refused(1);

    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let made = podium.kubectl_with_input(&["create", "--raw", path, "-f", "-"], "{}").ok();
    let made: Value = serde_json::from_str(&made).expect("kubectl prints JSON");
    let free = made["status"]["token"].as_str().expect("a token was made");
    kubectl_as(&podium, free, &authority, &["get", "--raw", "/api"]).ok();

    podium.delete("caller");
    podium.wait_gone("caller", Patience::SHORT);
    kubectl_as(&podium, token, &authority, &["get", "--raw", "/api"]).refused(1);
}

#[test]
fn api_708_a_new_namespace_has_what_pods_need() {
    let podium = Podium::start();
    apply(&podium, &named("Namespace", "team", json!({})));
    podium
        .kubectl_with_input(
            &["apply", "-n", "team", "-f", "-"],
            &Sketch::pod("web").container("app", SLEEPS).manifest(),
        )
        .ok();
    podium.kubectl(&["wait", "-n", "team", "--for=condition=Ready", "pod/web", "--timeout=60s"]).ok();
    podium.kubectl(&["delete", "configmap", "-n", "team", "kube-root-ca.crt"]).ok();
    let again = Sketch::pod("again").container("app", SLEEPS).manifest();
    podium.kubectl_with_input(&["apply", "-n", "team", "-f", "-"], &again).ok();
    podium.kubectl(&["wait", "-n", "team", "--for=condition=Ready", "pod/again", "--timeout=60s"]).ok();
    podium.kubectl(&["delete", "namespace", "team", "--timeout=60s"]).ok();
}

#[test]
fn claimed_data_outlives_pods_and_goes_with_its_claim() {
    let podium = Podium::start();
    apply(&podium, &claim("data", json!({})));
    let source = json!({"persistentVolumeClaim": {"claimName": "data"}});
    podium.apply(&pod_with("writer", source.clone(), "echo precious > /data/f").restart("Never"));
    podium.wait_phase("writer", "Succeeded");
    podium.kubectl(&["delete", "pod", "writer"]).ok();
    podium.apply(&pod_with("reader", source, &format!("cat /data/f; {SLEEPS}")));
    podium.wait_ready("reader");
    assert_eq!(podium.logs("reader"), "precious\n");

    let table = podium.kubectl(&["get", "pvc"]).ok();
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[3], row[4], row[5]), ("data", "Bound", "64Mi", "RWO", "standard"), "{table}");
    let volume = row[2].to_owned();
    let table = podium.kubectl(&["get", "pv"]).ok();
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[1..7], ["64Mi", "RWO", "Delete", "Bound", "default/data", "standard"], "{table}");
    let classes = podium.kubectl(&["get", "storageclass"]).ok();
    assert!(classes.contains("standard (default)"), "{classes}");

    // Protected while it is used.
    podium.kubectl(&["delete", "pvc", "data", "--wait=false"]).ok();
    assert!(podium.kubectl(&["get", "pvc", "data"]).ok().contains("Terminating"));
    let directory = podium.data().join("volumes").join(&volume);
    assert!(directory.join("f").exists());
    podium.delete("reader");
    podium.kubectl(&["wait", "--for=delete", "pvc/data", "--timeout=30s"]).ok();
    podium.kubectl(&["wait", "--for=delete", &format!("pv/{volume}"), "--timeout=30s"]).ok();
    assert!(!directory.exists(), "the data goes before the volume");
}

#[test]
fn a_local_volume_is_bound_by_hand_and_kept() {
    let podium = Podium::start();
    let place = podium.work().join("disk");
    std::fs::create_dir(&place).expect("the work directory is ours");
    let node = podium.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]).ok();
    let here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]);
    apply(
        &podium,
        &json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
                "persistentVolumeReclaimPolicy": "Retain", "local": {"path": place},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}},
        }),
    );
    podium.kubectl(&["wait", "--for=jsonpath={.status.phase}=Available", "pv/disk", "--timeout=30s"]).ok();
    podium.apply(
        &pod_with(
            "writer",
            json!({"persistentVolumeClaim": {"claimName": "data"}}),
            "echo kept > /data/f; echo wrote; sleep 3600",
        )
        .grace(1),
    );
    podium.wait_event("writer", "FailedScheduling", "persistentvolumeclaim \"data\" not found");
    apply(&podium, &claim("data", json!({"storageClassName": "manual"})));
    podium.wait_ready("writer");
    podium.follow_log("writer", "app", "that it wrote", |line| (line == "wrote").then_some(()));
    podium.kubectl(&["delete", "pod", "writer"]).ok();
    podium.kubectl(&["delete", "pvc", "data", "--timeout=30s"]).ok();
    podium.kubectl(&["wait", "--for=jsonpath={.status.phase}=Released", "pv/disk", "--timeout=30s"]).ok();
    assert_eq!(std::fs::read_to_string(place.join("f")).unwrap_or_default(), "kept\n");
}

#[test]
fn a_generic_ephemeral_volume_lives_with_its_pod() {
    let podium = Podium::start();
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}}});
    let source = json!({"ephemeral": {"volumeClaimTemplate": template}});
    podium.apply(&pod_with("scratch", source, &format!("echo here > /data/f; cat /data/f; {SLEEPS}")));
    podium.wait_ready("scratch");
    assert_eq!(podium.logs("scratch"), "here\n");
    let owner = ["get", "pvc", "scratch-data", "-o", "jsonpath={.metadata.ownerReferences[0].name} {.status.phase}"];
    assert_eq!(podium.kubectl(&owner).ok(), "scratch Bound");
    podium.delete("scratch");
    podium.wait_gone("scratch", Patience::LONG);
    podium.kubectl(&["wait", "--for=delete", "pvc/scratch-data", "--timeout=60s"]).ok();
}

#[test]
fn a_variable_comes_from_a_file_an_init_container_left() {
    let podium = Podium::start();
    let init = json!([{"name": "prepare", "image": "busybox:1.36", "volumeMounts": [{"name": "conf", "mountPath": "/conf"}],
        "command": ["sh", "-c", "printf \"# made here\\nADDRESS='db:5432'\\n\" > /conf/app.env"]}]);
    let env = json!({"env": [
        {"name": "DB", "valueFrom": {"fileKeyRef": {"volumeName": "conf", "path": "app.env", "key": "ADDRESS"}}},
        {"name": "NO", "valueFrom": {"fileKeyRef": {"volumeName": "conf", "path": "app.env", "key": "NONE", "optional": true}}}]});
    let pod = Sketch::pod("reader")
        .container_with("app", "echo \"$DB ${NO-unset}\"", env)
        .with("initContainers", init)
        .with("volumes", json!([{"name": "conf", "emptyDir": {}}]))
        .restart("Never");
    podium.apply(&pod);
    podium.wait_phase("reader", "Succeeded");
    assert_eq!(podium.logs("reader"), "db:5432 unset\n");
}

#[test]
fn lc_315_an_image_is_a_volume_that_is_read_and_never_written_or_run() {
    let podium = Podium::start();
    let shell = "head -n 1 /img/etc/passwd; head -n 1 /part/group; cmp /img/bin/busybox /bin/busybox && echo same; \
        touch /img/f 2>&1 | grep -o 'Read-only file system'; /img/bin/busybox true 2>&1 | grep -o 'Permission denied'";
    let mounts = json!([{"name": "tools", "mountPath": "/img"},
        {"name": "tools", "mountPath": "/part", "subPath": "etc"}]);
    let source = json!({"reference": "busybox:1.28", "pullPolicy": "Never"});
    let pod = Sketch::pod("reader")
        .container_with("app", shell, json!({"volumeMounts": mounts}))
        .with("volumes", json!([{"name": "tools", "image": source}]))
        .restart("Never");
    podium.apply(&pod);
    podium.wait_phase("reader", "Succeeded");
    let said = "root:x:0:0:root:/root:/bin/sh\nroot:x:0:\nsame\nRead-only file system\nPermission denied\n";
    assert_eq!(podium.logs("reader"), said);
    let absent = json!({"reference": "busybox:0.1", "pullPolicy": "Never"});
    podium.apply(&pod_with("waiting", json!({"image": absent}), SLEEPS));
    let reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    podium.kubectl(&["wait", "pod/waiting", &format!("--for={reason}=ErrImageNeverPull"), "--timeout=60s"]).ok();
}
