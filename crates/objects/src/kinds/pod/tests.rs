//! Pods as tables show them and as creation prepares them.

use std::time::Duration;

use ambient::{Clock, Now};
use expect_test::{expect, expect_file};
use serde_json::{Value, json};

use super::*;

pub(super) fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}

fn pretty(doc: &Value) -> String {
    format!("{doc:#}")
}

fn defaulted(spec: Value) -> String {
    let mut doc = pod(spec);
    assert_eq!(PodOps.decode(&doc), Ok(Vec::new()));
    PodOps.default(&mut doc);
    let once = doc.clone();
    PodOps.default(&mut doc);
    assert_eq!(doc, once, "defaulting twice changes nothing");
    pretty(&doc["spec"])
}

#[test]
fn api_465_to_472_a_plain_pod_gets_the_usual_defaults() {
    let spec = json!({"containers": [{"name": "web", "image": "nginx"}], "nodeName": null, "hostNetwork": false});
    expect![[r#"
            {
              "containers": [
                {
                  "image": "nginx",
                  "imagePullPolicy": "Always",
                  "name": "web",
                  "resources": {},
                  "terminationMessagePath": "/dev/termination-log",
                  "terminationMessagePolicy": "File"
                }
              ],
              "dnsPolicy": "ClusterFirst",
              "enableServiceLinks": true,
              "restartPolicy": "Always",
              "schedulerName": "default-scheduler",
              "securityContext": {},
              "terminationGracePeriodSeconds": 30
            }"#]]
    .assert_eq(&defaulted(spec));
}

#[test]
fn lc_221_api_473_to_488_ports_probes_env_volumes_and_requests_get_defaults() {
    let spec = json!({
        "hostNetwork": true,
        "serviceAccount": "robot",
        "initContainers": [{"name": "init", "image": "busybox:1.36", "resources": {"limits": {"cpu": 1}}}],
        "containers": [{
            "name": "web", "image": "registry:5000/nginx@sha256:aa",
            "ports": [{"containerPort": 80}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "E", "value": ""}],
            "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 0},
            "readinessProbe": {"grpc": {"port": 90}, "periodSeconds": 3},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
            "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}, "requests": {"cpu": "0.0001"}}
        }],
        "volumes": [{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "hostPath": {"path": "/x"}},
            {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
    });
    expect_file!["../../../tests/golden/pod/defaults.json"].assert_eq(&format!("{}\n", defaulted(spec)));
}

#[test]
fn api_472_the_pull_policy_follows_the_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:00", "IfNotPresent"),
        ("nginx:latest@sha256:00", "Always"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(defaults::pull_policy(image), policy, "{image}");
    }
}

#[test]
fn lc_221_api_476_pod_level_requests_come_from_the_containers_or_the_limit() {
    let mut doc = pod(json!({
        "containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "100m"}}}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}
    }));
    PodOps.default(&mut doc);
    assert_eq!(doc["spec"]["resources"]["requests"], json!({"cpu": "100m", "memory": "1Gi"}));
}

#[test]
fn api_490_a_new_pod_is_pending_whatever_the_client_says() {
    let mut doc = pod(json!({"containers": [{"name": "a", "image": "x"}]}));
    doc["status"] = json!({"phase": "Running", "podIP": "1.2.3.4"});
    PodOps.default(&mut doc);
    PodOps.prepare_create(&mut doc, &Gates::default());
    assert_eq!(doc["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(doc["metadata"]["generation"], 1);
}

#[test]
fn api_492_a_gated_pod_says_so() {
    let mut doc = pod(json!({"containers": [{"name": "a", "image": "x"}], "schedulingGates": [{"name": "g"}]}));
    PodOps.prepare_create(&mut doc, &Gates::default());
    assert_eq!(
        doc["status"]["conditions"],
        json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates"}])
    );
}

#[test]
fn api_493_label_keys_become_requirements() {
    let mut doc = pod(json!({"topologySpreadConstraints": [{"labelSelector": {}, "matchLabelKeys": ["a", "absent"]}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}, "mismatchLabelKeys": ["a"]}]}}}));
    doc["metadata"]["labels"] = json!({"a": "b"});
    PodOps.prepare_create(&mut doc, &Gates::default());
    assert_eq!(
        doc["spec"]["topologySpreadConstraints"][0]["labelSelector"],
        json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]})
    );
    assert_eq!(
        doc["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"],
        json!({"matchExpressions": [{"key": "x", "operator": "Exists"}, {"key": "a", "operator": "NotIn", "values": ["b"]}]})
    );
}

#[test]
fn unknown_fields_and_wrong_types_are_named() {
    let doc = pod(
        json!({"containers": [{"name": "a", "image": "x", "foo": 1, "ports": [{"containerPort": 1, "bar": 2}]}], "baz": {}}),
    );
    assert_eq!(
        PodOps.decode(&doc),
        Ok(["spec.containers[0].foo", "spec.containers[0].ports[0].bar", "spec.baz"].map(str::to_owned).to_vec())
    );
    let error = |spec| PodOps.decode(&pod(spec)).unwrap_err().to_string();
    assert_eq!(
        error(json!({"containers": [{"name": 7}]})),
        "spec.containers[0].name: invalid type: integer `7`, expected a string"
    );
    assert_eq!(
        error(json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "lots"}}}]})),
        "spec.containers[0].resources.limits.cpu: quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
}

#[test]
fn api_180_a_changed_spec_raises_the_generation_and_status_stays() {
    let mut old = pod(json!({"containers": [{"name": "a", "image": "x"}]}));
    PodOps.default(&mut old);
    PodOps.prepare_create(&mut old, &Gates::default());
    let mut new = old.clone();
    new["status"] = json!({"phase": "Failed"});
    PodOps.prepare_update(&mut new, &old, &Gates::default());
    assert_eq!(new, old);
    new["spec"]["containers"][0]["image"] = json!("y");
    PodOps.prepare_update(&mut new, &old, &Gates::default());
    assert_eq!(new["metadata"]["generation"], 2);
}

fn running(status: Value) -> Value {
    let mut doc = pod(json!({"containers": [{"name": "a", "image": "x"}], "restartPolicy": "Never"}));
    doc["status"] = status;
    doc
}

#[test]
fn lc_055_lc_102_cleared_status_fields_are_restored() {
    let old = running(json!({"qosClass": "Burstable", "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "False", "observedGeneration": 3}]}));
    let mut new = running(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
    new["spec"]["nodeName"] = json!("elsewhere");
    PodOps.prepare_status_update(&mut new, &old);
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(
        new["status"],
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 3}],
            "qosClass": "Burstable", "observedGeneration": 3})
    );
}

fn status_errors(new: Value, old: Value) -> Vec<String> {
    PodOps
        .validate_status_update(&running(new), &running(old), &Gates::default())
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn api_593_a_container_that_ended_for_good_stays_ended() {
    let ended = json!({"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 1}}}]});
    let back = json!({"containerStatuses": [{"name": "a", "state": {"running": {}}}]});
    assert_eq!(
        status_errors(back.clone(), ended.clone()),
        ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
    );
    let mut old = running(ended);
    old["spec"]["containers"][0]["restartPolicy"] = json!("Never");
    old["spec"]["containers"][0]["restartPolicyRules"] =
        json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]);
    let mut new = old.clone();
    new["status"] = back;
    assert_eq!(PodOps.validate_status_update(&new, &old, &Gates::default()), []);
}

/// traps H33.
#[test]
fn api_593_a_sidecar_may_run_again_whatever_the_policy() {
    let with = |policy: &str, own: Value, state: Value| {
        let init = json!({"name": "s", "image": "x", "restartPolicy": own});
        let mut doc = pod(json!({"containers": [{"name": "a", "image": "x"}], "initContainers": [init],
            "restartPolicy": policy}));
        doc["status"] = json!({"initContainerStatuses": [{"name": "s", "state": state}]});
        doc
    };
    for policy in ["Never", "OnFailure", "Always"] {
        for code in [0, 1] {
            let of = |own: Value| {
                let ended = with(policy, own.clone(), json!({"terminated": {"exitCode": code}}));
                let back = with(policy, own, json!({"running": {}}));
                PodOps.validate_status_update(&back, &ended, &Gates::default())
            };
            assert_eq!(of(json!("Always")), [], "{policy} {code}");
            // One that is to end comes back only where others do.
            assert_eq!(of(Value::Null).is_empty(), policy != "Never", "{policy} {code}");
        }
    }
}

#[test]
fn api_593_status_fields_are_checked() {
    assert_eq!(
        status_errors(
            json!({"qosClass": "Guaranteed", "podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}], "hostIP": "1.1.1.1",
                "hostIPs": [{"ip": "2.2.2.2"}], "conditions": [{"type": "not valid"}]}),
            json!({"qosClass": "BestEffort"})
        ),
        [
            r#"status.qosClass: Invalid value: "Guaranteed": field is immutable"#,
            "status.conditions[0].type: Invalid value: \"not valid\": name part must consist of alphanumeric characters, \
             '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
             '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            r#"status.podIPs: Invalid value: [{"ip":"1.2.3.4"},{"ip":"1.2.3.5"}]: may specify no more than one IP for each IP family"#,
            r#"status.hostIPs[0].ip: Invalid value: "2.2.2.2": must be equal to `hostIP`"#,
        ]
    );
}

#[test]
fn api_218_pods_are_selectable_by_their_fields() {
    let mut doc = pod(json!({"nodeName": "n1", "restartPolicy": "Never"}));
    doc["status"] = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
    let fields: Vec<String> = PodOps.fields(&doc).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    expect![[r#"
        metadata.name=web
        metadata.namespace=default
        spec.nodeName=n1
        spec.restartPolicy=Never
        spec.schedulerName=
        spec.serviceAccountName=
        status.phase=Running
        status.podIP=10.0.0.1
        status.nominatedNodeName=
        spec.host=n1
        spec.hostNetwork=false
        status.podIPs=10.0.0.1"#]]
    .assert_eq(&fields.join("\n"));
}

fn now() -> Now {
    Clock::manual().now().after(Duration::from_secs(3600))
}

/// READY STATUS RESTARTS of a pod with two containers.
fn shown(status: Value) -> String {
    let mut doc = pod(json!({
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}, {"name": "b"}]
    }));
    doc["status"] = status;
    let cells = cells(&doc, now());
    format!("{} {} {}", cells.ready, cells.status, cells.restarts)
}

#[test]
fn lc_388_api_293_api_294_api_295_phase_reason_and_gates_show_first() {
    assert_eq!(shown(json!({"phase": "Pending"})), "0/3 Pending 0");
    assert_eq!(shown(json!({"phase": "Failed", "reason": "Evicted"})), "0/3 Evicted 0");
    let gated = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]});
    assert_eq!(shown(gated), "0/3 SchedulingGated 0");
}

fn init(statuses: Value) -> String {
    shown(json!({"phase": "Pending", "initContainerStatuses": statuses}))
}

#[test]
fn lc_388_api_296_api_297_api_298_api_299_api_300_api_301_init_progress_shows_until_it_is_over() {
    assert_eq!(init(json!([{"name": "i", "state": {"running": {}}}])), "0/3 Init:0/2 0");
    assert_eq!(init(json!([{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}])), "0/3 Init:0/2 0");
    let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
    assert_eq!(init(json!([done, {"name": "s", "state": {"waiting": {}}}])), "0/3 Init:1/2 0");
    assert_eq!(
        init(json!([{"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 2}])),
        "0/3 Init:CrashLoopBackOff 2"
    );
    assert_eq!(init(json!([{"name": "i", "state": {"terminated": {"exitCode": 3}}}])), "0/3 Init:ExitCode:3 0");
    assert_eq!(
        init(json!([{"name": "i", "state": {"terminated": {"exitCode": 137, "signal": 9}}}])),
        "0/3 Init:Signal:9 0"
    );
    assert_eq!(
        init(json!([{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}])),
        "0/3 Init:Error 0"
    );
    assert_eq!(
        init(json!([{"name": "i", "state": {"waiting": {"reason": "ErrImagePull"}}}])),
        "0/3 Init:ErrImagePull 0"
    );
    // A started sidecar counts as ready and the app containers speak.
    let sidecar = json!({"name": "s", "started": true, "ready": true, "state": {"running": {}}});
    assert_eq!(init(json!([done, sidecar])), "1/3 Pending 0");
    let unready = json!({"name": "s", "started": true, "ready": false, "state": {"running": {}}});
    assert_eq!(init(json!([done, unready])), "0/3 Pending 0");
}

fn apps(a: Value, b: Value, ready: &str) -> String {
    let named = |name: &str, mut status: Value| {
        status["name"] = json!(name);
        status
    };
    shown(
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}, {"type": "Initialized", "status": "True"}],
        "containerStatuses": [named("a", a), named("b", b)]}),
    )
}

#[test]
fn lc_388_api_302_api_303_api_304_api_305_api_306_api_309_the_first_container_with_something_to_say_decides() {
    let running = || json!({"ready": true, "state": {"running": {}}});
    let waiting = |reason: &str| json!({"state": {"waiting": {"reason": reason}}});
    let ended = |code: i64, reason: &str| json!({"state": {"terminated": {"exitCode": code, "reason": reason}}});
    assert_eq!(apps(running(), running(), "True"), "2/3 Running 0");
    assert_eq!(apps(waiting("ContainerCreating"), waiting("ErrImagePull"), "False"), "0/3 ContainerCreating 0");
    assert_eq!(apps(running(), waiting("CrashLoopBackOff"), "False"), "1/3 CrashLoopBackOff 0");
    assert_eq!(apps(ended(0, "Completed"), running(), "True"), "1/3 Running 0");
    assert_eq!(apps(ended(0, "Completed"), running(), "False"), "1/3 NotReady 0");
    assert_eq!(apps(ended(0, "Completed"), ended(1, "Error"), "False"), "0/3 Error 0");
    assert_eq!(apps(ended(0, "Completed"), ended(0, "Completed"), "False"), "0/3 Completed 0");
    assert_eq!(apps(ended(137, "OOMKilled"), ended(0, "Completed"), "False"), "0/3 OOMKilled 0");
    assert_eq!(apps(ended(2, ""), running(), "False"), "1/3 ExitCode:2 0");
    let killed = json!({"state": {"terminated": {"exitCode": 143, "signal": 15}}});
    assert_eq!(apps(killed, running(), "False"), "1/3 Signal:15 0");
    let unready = json!({"ready": false, "state": {"running": {}}});
    assert_eq!(apps(unready, running(), "False"), "1/3 Running 0");
}

#[test]
fn lc_388_api_307_deletion_has_the_last_word_on_living_pods() {
    let deleting = |phase: &str, reason: &str| {
        let mut doc = pod(json!({"containers": [{"name": "a"}]}));
        doc["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        doc["status"] = json!({"phase": phase, "reason": reason});
        cells(&doc, now()).status
    };
    assert_eq!(deleting("Running", ""), "Terminating");
    assert_eq!(deleting("Succeeded", ""), "Succeeded");
    assert_eq!(deleting("Running", "NodeLost"), "Unknown");
    assert_eq!(deleting("Failed", "Evicted"), "Evicted", "API-309");
}

#[test]
fn api_308_restarts_say_when_the_last_one_was() {
    let status = |count: i64, at: &str| {
        json!({"restartCount": count, "ready": true, "state": {"running": {}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": at}}})
    };
    assert_eq!(
        apps(status(1, "2026-01-01T00:30:00Z"), status(2, "2026-01-01T00:59:48Z"), "True"),
        "2/3 Running 3 (12s ago)"
    );
}

#[test]
fn api_237_api_271_api_272_a_row_has_a_cell_per_column() {
    let mut doc =
        pod(json!({"containers": [{"name": "a"}], "nodeName": "n1", "readinessGates": [{"conditionType": "x/y"}]}));
    doc["metadata"]["creationTimestamp"] = json!("2026-01-01T00:50:30Z");
    doc["status"] = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
        "containerStatuses": [{"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}}]});
    let row = PodOps.row(&doc, now());
    assert_eq!(row.len(), KIND.columns.len());
    expect![[r#"["web","1/1","Running","0","9m30s","10.0.0.1","n1","<none>","0/1"]"#]]
        .assert_eq(&Value::from(row).to_string());
    let gates = |doc: &Value| PodOps.row(doc, now())[8].clone();
    doc["status"]["conditions"] = json!([{"type": "x/y", "status": "True"}]);
    assert_eq!(gates(&doc), "1/1");
    doc["spec"]["readinessGates"] = json!([]);
    assert_eq!(gates(&doc), "<none>");
}

#[test]
fn lc_325_a_volume_without_source_is_an_empty_directory() {
    let mut doc = pod(json!({"containers": [{"name": "web", "image": "nginx"}], "volumes": [{"name": "data"}]}));
    PodOps.default(&mut doc);
    assert_eq!(doc["spec"]["volumes"], json!([{"name": "data", "emptyDir": {}}]));
    let doc = pod(json!({"containers": [{"name": "web", "image": "nginx"}], "volumes": [{"name": "data"}]}));
    let undefaulted = PodOps.validate_create(&doc, &Gates::default());
    assert!(
        undefaulted.iter().any(|error| error.to_string().contains("must specify a volume type")),
        "{undefaulted:?}"
    );
}

#[test]
fn api_489_old_kinds_of_volumes_have_their_defaults() {
    let mut doc = pod(json!({"containers": [{"name": "a", "image": "x"}], "volumes": [
        {"name": "i", "iscsi": {"targetPortal": "t", "iqn": "q", "lun": 0}},
        {"name": "r", "rbd": {"monitors": ["m"], "image": "i"}},
        {"name": "d", "azureDisk": {"diskName": "d", "diskURI": "u"}},
        {"name": "s", "scaleIO": {"gateway": "g", "system": "s", "secretRef": {"name": "x"}}},
    ]}));
    PodOps.default(&mut doc);
    let volumes = &doc["spec"]["volumes"];
    assert_eq!(volumes[0]["iscsi"]["iscsiInterface"], "default");
    let of = |volume: &Value, fields: [&str; 3]| fields.map(|field| volume[field].as_str().unwrap().to_owned());
    assert_eq!(of(&volumes[1]["rbd"], ["pool", "user", "keyring"]), ["rbd", "admin", "/etc/ceph/keyring"]);
    assert_eq!(of(&volumes[2]["azureDisk"], ["cachingMode", "kind", "fsType"]), ["ReadWrite", "Shared", "ext4"]);
    assert_eq!(volumes[2]["azureDisk"]["readOnly"], false);
    assert_eq!(of(&volumes[3]["scaleIO"], ["storageMode", "fsType", "gateway"]), ["ThinProvisioned", "xfs", "g"]);
}

#[test]
fn api_779_api_780_what_a_pod_always_shows() {
    let mut doc = pod(json!({"nodeName": "n1"}));
    doc["status"] = json!({"containerStatuses": [{"name": "a"}]});
    PodOps.default(&mut doc);
    assert!(doc["spec"].as_object().unwrap().contains_key("containers"), "{doc}");
    assert_eq!(
        doc["status"]["containerStatuses"][0],
        json!({"name": "a", "state": {}, "lastState": {}, "ready": false, "restartCount": 0, "image": "", "imageID": ""})
    );
    let mut doc = pod(json!({"containers": []}));
    PodOps.default(&mut doc);
    assert_eq!(doc["status"], json!({}));
}
